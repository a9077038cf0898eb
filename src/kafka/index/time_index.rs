//! The time index: from a timestamp to an offset such that no later record is at or before it.
//!
//! An entry is `timestamp i64, relative offset i32`, the largest timestamp of the segment so far and the last offset of
//! the batch that reached it first. It means that every record with a later timestamp has a higher offset. Timestamps
//! ascend strictly, offsets may repeat. Entries of 3.7 and older may hold an offset inside of a batch.

use std::path::Path;

use super::index_file::{Check, IndexFile, IndexOptions};
use super::slot_search;
use super::sparse_index::SparseIndex;
use crate::error::{Error, Result};
use crate::io::{Location, u32_of};
use crate::kafka::format::header::NO_TIMESTAMP;

/// Bytes of an entry.
pub(crate) const ENTRY_SIZE: usize = 12;
/// Slots at the end that the broker searches first.
const WARM: usize = 8192 / ENTRY_SIZE;

/// An entry, or the result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeEntry {
    /// Milliseconds since the epoch; -1: none.
    pub timestamp: i64,
    /// Absolute offset.
    pub offset: i64,
}

/// An open `.timeindex` file.
#[derive(Debug)]
pub struct TimeIndex {
    file: IndexFile,
    /// Timestamps and relative offsets, of equal length.
    timestamps: Vec<i64>,
    offsets: Vec<i32>,
    /// Timestamps ascend, so that any search finds the same slot.
    ascending: bool,
}

impl SparseIndex for TimeIndex {
    type Entry = TimeEntry;

    const ENTRY_SIZE: usize = ENTRY_SIZE;
    const SUFFIX: &'static str = ".timeindex";

    fn open(path: impl Into<Location>, options: &IndexOptions) -> Result<Self> {
        let path = &path.into();
        let (mut timestamps, mut offsets) = (Vec::new(), Vec::new());
        let mut ascending = true;
        let file = IndexFile::open::<ENTRY_SIZE>(path, options, |bytes| {
            let (timestamp, offset) = decode(bytes);
            let ascends = match (timestamps.last(), offsets.last()) {
                (Some(time), Some(last)) => (timestamp > *time, offset >= *last),
                _ => (true, timestamp > 0 || offset > 0),
            };
            if options.check == Check::Verify && !(ascends == (true, true) && timestamp >= 0 && offset >= 0) {
                return false;
            }
            ascending &= ascends.0;
            timestamps.push(timestamp);
            offsets.push(offset);
            true
        })?;
        Ok(Self { file, timestamps, offsets, ascending })
    }

    fn create(path: &Path, base_offset: i64, max_bytes: u64) -> Result<Self> {
        let file = IndexFile::create(path, base_offset, max_bytes, ENTRY_SIZE as u64)?;
        Ok(Self { file, timestamps: Vec::new(), offsets: Vec::new(), ascending: true })
    }

    fn file(&self) -> &IndexFile {
        &self.file
    }

    fn file_mut(&mut self) -> &mut IndexFile {
        &mut self.file
    }

    fn len(&self) -> usize {
        self.timestamps.len()
    }

    fn entry(&self, slot: usize) -> Option<TimeEntry> {
        let (timestamp, offset) = (self.timestamps.get(slot)?, self.offsets.get(slot)?);
        Some(TimeEntry { timestamp: *timestamp, offset: self.base_offset().wrapping_add(i64::from(*offset)) })
    }

    fn front(&self) -> TimeEntry {
        TimeEntry { timestamp: NO_TIMESTAMP, offset: self.base_offset() }
    }

    /// Source: `TimeIndex#lookup`.
    fn slot(&self, target: i64) -> Option<usize> {
        let key = |slot: usize| self.timestamps.get(slot).copied().unwrap_or(i64::MAX);
        slot_search::slot_range(self.len(), WARM, target, key).lower
    }

    fn ranks(&self, targets: &[i64]) -> Vec<u32> {
        let mut ranks = Vec::new();
        if self.ascending {
            slot_search::ranks(&self.timestamps, targets, &mut ranks);
        } else {
            ranks.extend(targets.iter().map(|t| u32_of(self.rank(*t))));
        }
        ranks
    }

    /// Source: `TimeIndex#isFull`.
    fn is_full(&self) -> bool {
        self.len() as u64 + 1 >= self.max_entries()
    }

    /// Source: `TimeIndex#truncateTo`, which searches by the offsets.
    fn truncate_to(&mut self, offset: i64) -> Result<()> {
        self.file.check_writable()?;
        let value = |slot: usize| self.entry(slot).map_or(i64::MAX, |entry| entry.offset);
        let keep = match slot_search::slot_range(self.len(), WARM, offset, value).lower {
            None => 0,
            Some(slot) if value(slot) == offset => slot,
            Some(slot) => slot + 1,
        };
        self.timestamps.truncate(keep);
        self.offsets.truncate(keep);
        Ok(())
    }

    fn resize(&mut self, max_bytes: u64) -> Result<bool> {
        self.file.resize(max_bytes, self.len())
    }

    /// Source: `TimeIndex#sanityCheck`.
    fn sanity_check(&self) -> Result<()> {
        let at = (self.len() * ENTRY_SIZE).saturating_sub(ENTRY_SIZE) as u64;
        let (first, last) = (self.timestamps.first(), self.last_entry());
        if let Some(first) = first.filter(|first| last.timestamp < **first) {
            let expected = format!("a last timestamp of at least {first}, the first one");
            return Err(Error::corrupt(self.path(), at, expected, last.timestamp.to_string()));
        }
        if !self.is_empty() && last.offset < self.base_offset() {
            let expected = format!("a last offset of at least {}", self.base_offset());
            return Err(Error::corrupt(self.path(), at, expected, last.offset.to_string()));
        }
        self.file.check_len()
    }
}

impl TimeIndex {
    /// Returns the last entry; no timestamp and the base offset if the index is empty.
    pub fn last_entry(&self) -> TimeEntry {
        self.len().checked_sub(1).and_then(|slot| self.entry(slot)).unwrap_or_else(|| self.front())
    }

    /// Adds an entry, unless the last one has its timestamp; true if it was added. Source: `TimeIndex#maybeAppend`.
    ///
    /// `skip_full_check` uses the slot that is reserved for the last entry of a segment.
    ///
    /// # Errors
    /// `IndexFull`; `InvalidArgument` for an offset or a timestamp below the last ones, or an offset too far from the base
    /// offset, or if the file is open for reading only. Then nothing is written.
    pub fn maybe_append(&mut self, timestamp: i64, offset: i64, skip_full_check: bool) -> Result<bool> {
        self.file.check_writable()?;
        let full = || Error::IndexFull { path: self.path().to_path_buf(), entries: self.len() as u64 };
        if !skip_full_check && self.is_full() {
            return Err(full());
        }
        let last = self.last_entry();
        let below = |what: &str, value: i64, last: i64| {
            let path = self.path().display();
            Err(Error::InvalidArgument(format!("{path}: {what} {value}: expected at least {last}, the last one")))
        };
        if !self.is_empty() && offset < last.offset {
            return below("offset", offset, last.offset);
        }
        if !self.is_empty() && timestamp < last.timestamp {
            return below("timestamp", timestamp, last.timestamp);
        }
        if timestamp <= last.timestamp {
            return Ok(false);
        }
        if self.len() as u64 >= self.max_entries() {
            return Err(full());
        }
        let relative = self.file.relative(offset)?;
        self.file.put(self.len(), &encode(timestamp, relative))?;
        self.timestamps.push(timestamp);
        self.offsets.push(relative);
        Ok(true)
    }
}

pub(crate) fn decode(bytes: &[u8; ENTRY_SIZE]) -> (i64, i32) {
    let timestamp = bytes.first_chunk().copied().map_or(0, i64::from_be_bytes);
    (timestamp, bytes.last_chunk().copied().map_or(0, i32::from_be_bytes))
}

pub(crate) fn encode(timestamp: i64, offset: i32) -> [u8; ENTRY_SIZE] {
    let mut bytes = [0; ENTRY_SIZE];
    for (to, from) in bytes.iter_mut().zip(timestamp.to_be_bytes().into_iter().chain(offset.to_be_bytes())) {
        *to = from;
    }
    bytes
}

#[cfg(test)]
#[path = "time_index_tests.rs"]
mod tests;
