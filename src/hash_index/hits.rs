//! The answers of a batch: one list of offsets a row, laid out as an Arrow list column is.

use std::ops::Range;

use super::key_hash::KeySource;
use crate::error::{Error, Result};

/// Commit-log offsets of many rows, one list a row.
///
/// Calls append to it, so that one can be cleared and used again without asking for memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hits {
    /// Where each list ends in `phy_offsets`; 0 comes first.
    ends: Vec<i32>,
    phy_offsets: Vec<i64>,
}

impl Default for Hits {
    fn default() -> Self {
        Self { ends: vec![0], phy_offsets: Vec::new() }
    }
}

impl Hits {
    /// No row yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// No row yet, and room for the ends of `rows`.
    pub fn with_rows(rows: usize) -> Self {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        Self { ends, phy_offsets: Vec::new() }
    }

    /// Forgets all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.ends.truncate(1);
        self.phy_offsets.clear();
    }

    /// How many rows were answered.
    pub fn len(&self) -> usize {
        self.ends.len() - 1
    }

    /// True when no row was answered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The offsets of all rows, one row after the other.
    pub fn phy_offsets(&self) -> &[i64] {
        &self.phy_offsets
    }

    /// The list of each row, newest first.
    pub fn rows(&self) -> impl Iterator<Item = &[i64]> {
        let starts = self.ends.iter().zip(self.ends.iter().skip(1));
        starts.map(|(&start, &end)| {
            let range = usize::try_from(start).unwrap_or(0)..usize::try_from(end).unwrap_or(0);
            self.phy_offsets.get(range).unwrap_or_default()
        })
    }

    /// Offsets and values of an Arrow list: `len() + 1` ends, the first of them 0, and the offsets of all rows.
    pub fn into_parts(self) -> (Vec<i32>, Vec<i64>) {
        (self.ends, self.phy_offsets)
    }
}

/// A candidate on its way to its row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    pub(super) phy_offset: i64,
    /// Row within the chunk.
    pub(super) row: u32,
    /// Place of the file in the order asked for, newest first.
    pub(super) file: u32,
}

/// Rows that are answered together, and what was found for them so far, in any order.
///
/// The memory is used again for the next chunk: fresh pages cost more than the lookups.
#[derive(Default)]
pub(super) struct Chunk {
    /// One a row; negative where there is no key.
    pub(super) key_hashes: Vec<i32>,
    /// Candidates of one row and file are in the order of the chain. Only the first `filled` count.
    pub(super) found: Vec<Found>,
    pub(super) filled: usize,
    /// Candidates of each row; kept while walking only where there are many files.
    pub(super) counts: Vec<u32>,
    /// Rows whose walk met something that cannot be true.
    pub(super) doubtful: Vec<u32>,
}

impl Chunk {
    /// Rows of a chunk. What a chunk needs stays in the second-level cache of one core.
    pub(super) const ROWS: usize = 16 * 1024;

    /// Forgets what was found and takes the keys of `rows`.
    pub(super) fn load<K: KeySource + ?Sized>(&mut self, keys: &K, rows: &Range<usize>) {
        self.key_hashes.resize(rows.len(), 0);
        keys.hash_block(rows.start, &mut self.key_hashes);
        self.counts.clear();
        self.counts.resize(rows.len(), 0);
        self.doubtful.clear();
        self.filled = 0;
    }

    pub(super) fn push(&mut self, row: u32, file: u32, phy_offset: i64) {
        self.found.truncate(self.filled);
        self.found.push(Found { phy_offset, row, file });
        self.filled += 1;
        if let Some(count) = self.counts.get_mut(row as usize) {
            *count += 1;
        }
    }

    /// The key hash of a row and the most candidates that it still wants; `None` where it wants none.
    pub(super) fn wanted(&self, row: u32, max_num: Option<usize>) -> Option<(i32, Option<usize>)> {
        let key_hash = *self.key_hashes.get(row as usize)?;
        let count = *self.counts.get(row as usize)? as usize;
        let room = max_num.map(|most| most.saturating_sub(count));
        (key_hash >= 0 && room != Some(0)).then_some((key_hash, room))
    }

    /// Takes back what was found for the doubtful rows, and returns these in rising order.
    pub(super) fn withdraw_doubtful(&mut self) -> Vec<u32> {
        let mut rows = std::mem::take(&mut self.doubtful);
        if !rows.is_empty() {
            rows.sort_unstable();
            rows.dedup();
            self.found.truncate(self.filled);
            self.found.retain(|hit| rows.binary_search(&hit.row).is_err());
            self.filled = self.found.len();
        }
        for &row in &rows {
            if let Some(count) = self.counts.get_mut(row as usize) {
                *count = 0;
            }
        }
        rows
    }

    /// Appends the rows to `out`: a counting sort by row that keeps the order within a row.
    ///
    /// # Errors
    /// `InvalidArgument` when the list column would hold 2^31 offsets or more.
    pub(super) fn lay_out(&mut self, files: usize, max_num: u32, out: &mut Hits) -> Result<()> {
        self.found.truncate(self.filled);
        if files > 1 {
            self.order_files(max_num);
        } else {
            self.counts.fill(0);
            for hit in &self.found {
                if let Some(count) = self.counts.get_mut(hit.row as usize) {
                    *count += 1;
                }
            }
        }
        let too_many = || Error::InvalidArgument("2^31 hits or more in one batch: ask for fewer keys or hits".into());
        let before = out.phy_offsets.len();
        let after = before + self.found.len();
        i32::try_from(after).map_err(|_| too_many())?;
        // From now on, `counts` says where the next offset of a row goes.
        let mut end = before;
        for count in &mut self.counts {
            let start = end;
            end += *count as usize;
            *count = u32::try_from(start).unwrap_or(u32::MAX);
            out.ends.push(i32::try_from(end).unwrap_or(i32::MAX));
        }
        out.phy_offsets.resize(after, 0);
        for hit in &self.found {
            if let Some(place) = self.counts.get_mut(hit.row as usize) {
                if let Some(to) = out.phy_offsets.get_mut(*place as usize) {
                    *to = hit.phy_offset;
                }
                *place += 1;
            }
        }
        Ok(())
    }

    /// Puts each row's candidates into the order of the files and cuts them to the newest `max_num`.
    ///
    /// Walks over several files are under way together, so an older file's candidate can be found first.
    fn order_files(&mut self, max_num: u32) {
        // Stable: the order of a chain stays.
        self.found.sort_by_key(|hit| (hit.row, hit.file));
        self.counts.fill(0);
        let counts = &mut self.counts;
        self.found.retain(|hit| {
            let Some(count) = counts.get_mut(hit.row as usize) else { return false };
            *count += u32::from(*count < max_num);
            *count <= max_num
        });
    }
}
