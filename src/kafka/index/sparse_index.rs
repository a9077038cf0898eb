//! The interface of the two sparse indexes.

use std::path::Path;

use super::index_file::{IndexFile, IndexOptions};
use crate::error::Result;
use crate::io::Location;

/// A sparse index next to a log: entries with ascending keys, each with a place to begin reading.
pub trait SparseIndex: Sized + Send + Sync {
    /// The result of a look-up.
    type Entry: Copy + Send + Sync;

    /// Bytes of an entry.
    const ENTRY_SIZE: usize;
    /// The suffix of the file's name.
    const SUFFIX: &'static str;

    /// Opens a file for reading, or for appends as well. Nothing is created.
    ///
    /// # Errors
    /// An I/O error; `Corrupt` for a file that is too long for a broker; `Locked` if another writer has it open.
    fn open(path: impl Into<Location>, options: &IndexOptions) -> Result<Self>;

    /// Creates a file of zeros, and opens it for appends.
    ///
    /// # Errors
    /// `AlreadyExists` and other I/O errors; `InvalidArgument` for a size of less than one entry.
    fn create(path: &Path, base_offset: i64, max_bytes: u64) -> Result<Self>;

    /// The file.
    fn file(&self) -> &IndexFile;

    /// The file, to add entries.
    fn file_mut(&mut self) -> &mut IndexFile;

    /// Number of entries.
    fn len(&self) -> usize;

    /// The entry of a slot.
    fn entry(&self, slot: usize) -> Option<Self::Entry>;

    /// The entry that counts as the one before the first.
    fn front(&self) -> Self::Entry;

    /// The slot of the largest key at or below the target.
    fn slot(&self, target: i64) -> Option<usize>;

    /// For each target, the result of [`Self::slot`] plus 1; 0 for none.
    fn ranks(&self, targets: &[i64]) -> Vec<u32>;

    /// True if no entry can be added.
    fn is_full(&self) -> bool;

    /// Drops entries at or above an offset. Their bytes stay in the file until they are overwritten or truncated.
    ///
    /// # Errors
    /// `InvalidArgument` if the file is open for reading only.
    fn truncate_to(&mut self, offset: i64) -> Result<()>;

    /// Resize the file to as many whole entries as fit in `max_bytes`; false if it has that length already.
    ///
    /// # Errors
    /// `InvalidArgument` if the file would be too small for its entries, or is open for reading only; an I/O error.
    fn resize(&mut self, max_bytes: u64) -> Result<bool>;

    /// Checks the index as the broker does.
    ///
    /// # Errors
    /// `Corrupt` if the broker would reject it.
    fn sanity_check(&self) -> Result<()>;

    /// Path of the file.
    fn path(&self) -> &Location {
        &self.file().path
    }

    /// Offset that entries are relative to.
    fn base_offset(&self) -> i64 {
        self.file().base_offset
    }

    /// Length of the file in bytes.
    fn file_len(&self) -> u64 {
        self.file().len
    }

    /// Number of entries that fit in the file.
    fn max_entries(&self) -> u64 {
        self.file().max_entries()
    }

    /// True when there is no entry.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the entry of a rank; [`Self::front`] if there is none.
    fn entry_of_rank(&self, rank: usize) -> Self::Entry {
        rank.checked_sub(1).and_then(|slot| self.entry(slot)).unwrap_or_else(|| self.front())
    }

    /// Returns the rank of one target; see [`Self::ranks`].
    fn rank(&self, target: i64) -> usize {
        self.slot(target).map_or(0, |slot| slot + 1)
    }

    /// Returns the entry of the largest key at or below the target; [`Self::front`] if there is none.
    fn lookup(&self, target: i64) -> Self::Entry {
        self.entry_of_rank(self.rank(target))
    }

    /// Truncates the file after the last entry. Source: `AbstractIndex#trimToValidSize`.
    ///
    /// # Errors
    /// As [`Self::resize`].
    fn trim(&mut self) -> Result<()> {
        self.resize((self.len() * Self::ENTRY_SIZE) as u64).map(|_| ())
    }

    /// Waits until appended entries are on the disk.
    ///
    /// # Errors
    /// An I/O error.
    fn flush(&self) -> Result<()> {
        self.file().flush()
    }
}
