//! What can be asked of either sparse index.

use std::path::Path;

use super::index_file::{IndexFile, IndexOptions};
use crate::error::Result;

/// A sparse index beside a log: entries with ascending keys, each of which says where to begin to read.
pub trait SparseIndex: Sized + Send + Sync {
    /// What a look-up gives.
    type Entry: Copy + Send + Sync;

    /// Bytes of an entry.
    const ENTRY_SIZE: usize;
    /// How the file's name ends.
    const SUFFIX: &'static str;

    /// Opens a file for reading, or for appends as well; nothing is created.
    ///
    /// # Errors
    /// The system's error; `Corrupt` for a file that is too long for a broker; `WouldBlock` when another writer has it.
    fn open(path: &Path, options: &IndexOptions) -> Result<Self>;

    /// Creates a file that is full of zeros, and opens it for appends.
    ///
    /// # Errors
    /// `AlreadyExists` and other errors of the system; `InvalidArgument` for a size without room for an entry.
    fn create(path: &Path, base_offset: i64, max_bytes: u64) -> Result<Self>;

    /// The file.
    fn file(&self) -> &IndexFile;

    /// Entries.
    fn len(&self) -> usize;

    /// The entry of a slot.
    fn entry(&self, slot: usize) -> Option<Self::Entry>;

    /// What stands for all entries before the first.
    fn front(&self) -> Self::Entry;

    /// The slot of the largest key at or below the target.
    fn slot(&self, target: i64) -> Option<usize>;

    /// For each target, the slot that [`Self::slot`] gives, plus 1; 0 for none.
    fn ranks(&self, targets: &[i64]) -> Vec<u32>;

    /// True when there is no room for another entry.
    fn is_full(&self) -> bool;

    /// Forgets entries at or above an offset; their bytes stay until they are overwritten or cut off.
    ///
    /// # Errors
    /// `InvalidArgument` when the file is open for reading.
    fn truncate_to(&mut self, offset: i64) -> Result<()>;

    /// Gives the file room for as many whole entries as `max_bytes` holds; false when it has that already.
    ///
    /// # Errors
    /// `InvalidArgument` when entries would be cut off, or the file is open for reading; the system's error.
    fn resize(&mut self, max_bytes: u64) -> Result<bool>;

    /// The broker's own check.
    ///
    /// # Errors
    /// `Corrupt` for what it refuses.
    fn sanity_check(&self) -> Result<()>;

    /// Where the file lies.
    fn path(&self) -> &Path {
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

    /// Entries that the file has room for.
    fn max_entries(&self) -> u64 {
        self.file().max_entries()
    }

    /// True when there is no entry.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entry that [`Self::ranks`] means by a rank; [`Self::front`] where there is none.
    fn entry_of_rank(&self, rank: usize) -> Self::Entry {
        rank.checked_sub(1).and_then(|slot| self.entry(slot)).unwrap_or_else(|| self.front())
    }

    /// The rank of one target; see [`Self::ranks`].
    fn rank(&self, target: i64) -> usize {
        self.slot(target).map_or(0, |slot| slot + 1)
    }

    /// The entry of the largest key at or below the target; [`Self::front`] where there is none.
    fn lookup(&self, target: i64) -> Self::Entry {
        self.entry_of_rank(self.rank(target))
    }

    /// Cuts the file behind the last entry. Source: `AbstractIndex#trimToValidSize`.
    ///
    /// # Errors
    /// As [`Self::resize`].
    fn trim(&mut self) -> Result<()> {
        self.resize((self.len() * Self::ENTRY_SIZE) as u64).map(|_| ())
    }

    /// Waits until what was appended is on the disk.
    ///
    /// # Errors
    /// The system's error.
    fn flush(&self) -> Result<()> {
        self.file().flush()
    }
}
