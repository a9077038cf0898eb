//! The offset index: from an offset to a position in the log at or before its batch.
//!
//! An entry is `relative offset i32, position i32`. It means that every batch whose last offset is at or above the entry's
//! begins at or after the position, and that a batch begins there. That batch need not contain the offset.

use std::path::Path;

use super::index_file::{Check, IndexFile, IndexOptions};
use super::slot_search;
use super::sparse_index::SparseIndex;
use crate::error::{Error, Result};
use crate::io::{Location, u32_of};

/// Bytes of an entry.
pub(crate) const ENTRY_SIZE: usize = 8;
/// Slots at the end that the broker searches first.
const WARM: usize = 8192 / ENTRY_SIZE;

/// An entry, or the result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetEntry {
    /// Absolute offset.
    pub offset: i64,
    /// Byte offset in the log.
    pub position: i32,
}

impl OffsetEntry {
    /// The byte of the log from which a walk finds the offset. A negative position, which only damage gives, stands for the start.
    pub(crate) fn walk_from(self) -> u64 {
        u64::from(self.position.max(0).cast_unsigned())
    }
}

/// An open `.index` file.
#[derive(Debug)]
pub struct OffsetIndex {
    file: IndexFile,
    /// Relative offsets and positions, of equal length.
    keys: Vec<i32>,
    positions: Vec<i32>,
    /// Keys ascend, so that any search finds the same slot.
    ascending: bool,
}

impl SparseIndex for OffsetIndex {
    type Entry = OffsetEntry;

    const ENTRY_SIZE: usize = ENTRY_SIZE;
    const SUFFIX: &'static str = ".index";

    fn open(path: impl Into<Location>, options: &IndexOptions) -> Result<Self> {
        let path = &path.into();
        let (mut keys, mut positions) = (Vec::new(), Vec::new());
        let mut ascending = true;
        let most = options.log_len.map_or(i32::MAX, |len| i32::try_from(len).unwrap_or(i32::MAX));
        let file = IndexFile::open::<ENTRY_SIZE>(path, options, |bytes| {
            let (key, position) = decode(*bytes);
            let ascends = match (keys.last(), positions.last()) {
                (Some(last_key), Some(last)) => (key > *last_key, position > *last),
                _ => (true, key > 0 || position > 0),
            };
            if options.check == Check::Verify && !(ascends == (true, true) && key >= 0 && (0..most).contains(&position))
            {
                return false;
            }
            ascending &= ascends.0;
            keys.push(key);
            positions.push(position);
            true
        })?;
        Ok(Self { file, keys, positions, ascending })
    }

    fn create(path: &Path, base_offset: i64, max_bytes: u64) -> Result<Self> {
        let file = IndexFile::create(path, base_offset, max_bytes, ENTRY_SIZE as u64)?;
        Ok(Self { file, keys: Vec::new(), positions: Vec::new(), ascending: true })
    }

    fn file(&self) -> &IndexFile {
        &self.file
    }

    fn file_mut(&mut self) -> &mut IndexFile {
        &mut self.file
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn entry(&self, slot: usize) -> Option<OffsetEntry> {
        let (key, position) = (self.keys.get(slot)?, self.positions.get(slot)?);
        Some(OffsetEntry { offset: self.absolute(*key), position: *position })
    }

    fn front(&self) -> OffsetEntry {
        OffsetEntry { offset: self.base_offset(), position: 0 }
    }

    /// Source: `OffsetIndex#lookup`.
    fn slot(&self, target: i64) -> Option<usize> {
        let key = |slot: usize| self.keys.get(slot).map_or(i64::MAX, |key| self.absolute(*key));
        slot_search::slot_range(self.len(), WARM, target, key).lower
    }

    fn ranks(&self, targets: &[i64]) -> Vec<u32> {
        let mut ranks = Vec::new();
        // A target far below the base offset becomes the smallest key, which must not be the key of an entry.
        if self.ascending && self.keys.first() != Some(&i32::MIN) {
            let base = self.base_offset();
            let relative: Vec<i32> = targets.iter().map(|target| relative_target(base, *target)).collect();
            slot_search::ranks(&self.keys, &relative, &mut ranks);
        } else {
            ranks.extend(targets.iter().map(|t| u32_of(self.rank(*t))));
        }
        ranks
    }

    /// Source: `AbstractIndex#isFull`.
    fn is_full(&self) -> bool {
        self.len() as u64 >= self.max_entries()
    }

    /// Source: `OffsetIndex#truncateTo`.
    fn truncate_to(&mut self, offset: i64) -> Result<()> {
        self.file.check_writable()?;
        let keep = match self.slot(offset) {
            None => 0,
            Some(slot) if self.entry(slot).is_some_and(|entry| entry.offset == offset) => slot,
            Some(slot) => slot + 1,
        };
        self.keys.truncate(keep);
        self.positions.truncate(keep);
        Ok(())
    }

    fn resize(&mut self, max_bytes: u64) -> Result<bool> {
        self.file.resize(max_bytes, self.len())
    }

    /// Source: `OffsetIndex#sanityCheck`.
    fn sanity_check(&self) -> Result<()> {
        if !self.is_empty() && self.last_offset() < self.base_offset() {
            let at = (self.len() * ENTRY_SIZE - ENTRY_SIZE) as u64;
            let expected = format!("a last offset of at least {}", self.base_offset());
            return Err(Error::corrupt(self.path(), at, expected, self.last_offset().to_string()));
        }
        self.file.check_len()
    }
}

impl OffsetIndex {
    /// Offset of the last entry; the base offset of an empty index.
    pub fn last_offset(&self) -> i64 {
        self.keys.last().map_or(self.base_offset(), |key| self.absolute(*key))
    }

    fn absolute(&self, key: i32) -> i64 {
        self.base_offset().wrapping_add(i64::from(key))
    }

    /// Returns an entry whose offset is outside a fetch of `fetch_size` bytes from `position`, if there is one.
    ///
    /// COMPAT(kafka `OffsetIndex#fetchUpperBoundOffset`): the sum wraps at 32 bits, and slot 0 is not found by equality.
    pub fn fetch_upper_bound(&self, position: i32, fetch_size: i32) -> Option<OffsetEntry> {
        let target = i64::from(position.wrapping_add(fetch_size));
        let value = |slot: usize| self.positions.get(slot).map_or(i64::MAX, |p| i64::from(*p));
        slot_search::slot_range(self.len(), WARM, target, value).upper.and_then(|slot| self.entry(slot))
    }

    /// Adds an entry. Source: `OffsetIndex#append`.
    ///
    /// # Errors
    /// `IndexFull`; `InvalidArgument` for an offset that is not above the last one or too far from the base offset, or if the
    /// file is open for reading only. Then nothing is written.
    pub fn append(&mut self, offset: i64, position: i32) -> Result<()> {
        self.file.check_writable()?;
        if self.is_full() {
            return Err(Error::IndexFull { path: self.path().to_path_buf(), entries: self.len() as u64 });
        }
        if !self.is_empty() && offset <= self.last_offset() {
            return Err(Error::InvalidArgument(format!(
                "{}: offset {offset}: expected more than {}, the last one",
                self.path().display(),
                self.last_offset()
            )));
        }
        let key = self.file.relative(offset)?;
        self.file.put(self.len(), encode(key, position).as_flattened())?;
        self.keys.push(key);
        self.positions.push(position);
        Ok(())
    }
}

/// Returns the target as a key; one that does not fit becomes the nearest key.
fn relative_target(base: i64, target: i64) -> i32 {
    let relative = i128::from(target) - i128::from(base);
    i32::try_from(relative).unwrap_or(if relative < 0 { i32::MIN } else { i32::MAX })
}

fn decode(bytes: [u8; ENTRY_SIZE]) -> (i32, i32) {
    // The key is the upper half, the position the lower one.
    let both = i64::from_be_bytes(bytes);
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the number")]
    ((both >> 32) as i32, both as i32)
}

pub(crate) fn encode(key: i32, position: i32) -> [[u8; 4]; 2] {
    [key.to_be_bytes(), position.to_be_bytes()]
}

#[cfg(test)]
#[path = "offset_index_tests.rs"]
mod tests;
