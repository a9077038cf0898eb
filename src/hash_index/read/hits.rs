//! The answers of a batch: one list of offsets a row, laid out as an Arrow list column is.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::hash_index::key_hash::java_hash::KeySource;

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
pub(crate) struct Found {
    pub(crate) phy_offset: i64,
    /// Row within the chunk.
    pub(crate) row: u32,
    /// Place of the file in the order asked for, newest first.
    pub(crate) file: u32,
}

/// Set in the count of a row that is doubtful: it wants nothing any more, until it is answered anew.
pub(crate) const DOUBTFUL: u32 = 1 << 31;

/// Rows that are answered together, and what was found for them so far, in any order.
///
/// The memory is used again for the next chunk: fresh pages cost more than the lookups.
#[derive(Default)]
pub(crate) struct Chunk {
    /// One a row; negative where there is no key.
    pub(crate) key_hashes: Vec<i32>,
    /// Candidates of one row and file are in the order of the chain. Only the first `filled` count.
    pub(crate) found: Vec<Found>,
    pub(crate) filled: usize,
    /// Candidates of each row, or [`DOUBTFUL`]; kept while walking only where there are many files.
    pub(crate) counts: Vec<u32>,
    /// Candidates by row, where there are many files.
    sorted: Vec<Found>,
    /// Rows whose walk met something that cannot be true.
    pub(crate) doubtful: Vec<u32>,
}

impl Chunk {
    /// Rows of a chunk. What a chunk needs stays in the second-level cache of one core.
    pub(crate) const ROWS: usize = 16 * 1024;

    /// Forgets what was found and takes the keys of `rows`.
    pub(crate) fn load<K: KeySource + ?Sized>(&mut self, keys: &K, rows: &Range<usize>) {
        self.key_hashes.resize(rows.len(), 0);
        keys.hash_block(rows.start, &mut self.key_hashes);
        self.counts.clear();
        self.counts.resize(rows.len(), 0);
        self.doubtful.clear();
        self.filled = 0;
    }

    pub(crate) fn push(&mut self, row: u32, file: u32, phy_offset: i64) {
        self.found.truncate(self.filled);
        self.found.push(Found { phy_offset, row, file });
        self.filled += 1;
        if let Some(count) = self.counts.get_mut(row as usize) {
            *count += 1;
        }
    }

    /// The key hash of a row and the most candidates that it still wants; `None` where it wants none.
    pub(crate) fn wanted(&self, row: u32, max_num: Option<usize>) -> Option<(i32, Option<usize>)> {
        let key_hash = *self.key_hashes.get(row as usize)?;
        let count = *self.counts.get(row as usize)? as usize;
        let room = max_num.map(|most| most.saturating_sub(count));
        (key_hash >= 0 && room != Some(0) && count < DOUBTFUL as usize).then_some((key_hash, room))
    }

    /// Takes back what was found for the doubtful rows, and returns these in rising order.
    pub(crate) fn withdraw_doubtful(&mut self) -> Vec<u32> {
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

    /// Appends the rows to `out`, each with its newest `max_num`: a counting sort by row, which keeps the order within.
    ///
    /// # Errors
    /// `InvalidArgument` when the list column would hold 2^31 offsets or more.
    pub(crate) fn lay_out(&mut self, files: usize, max_num: u32, out: &mut Hits) -> Result<()> {
        self.found.truncate(self.filled);
        let too_many = || Error::InvalidArgument("2^31 hits or more in one batch: ask for fewer keys or hits".into());
        let after = out.phy_offsets.len() + self.found.len();
        i32::try_from(after).map_err(|_| too_many())?;
        self.counts.fill(0);
        for hit in &self.found {
            if let Some(count) = self.counts.get_mut(hit.row as usize) {
                *count += 1;
            }
        }
        if files > 1 {
            self.append_by_file(max_num as usize, out);
            return Ok(());
        }
        let places = starts(&mut self.counts, out.phy_offsets.len(), |end| out.ends.push(end));
        out.phy_offsets.resize(after, 0);
        for hit in &self.found {
            if let Some(place) = places.get_mut(hit.row as usize) {
                if let Some(to) = out.phy_offsets.get_mut(*place as usize) {
                    *to = hit.phy_offset;
                }
                *place += 1;
            }
        }
        Ok(())
    }

    /// Walks over several files are under way together, so an older file's candidate can be found first, and more of them
    /// than are wanted.
    fn append_by_file(&mut self, max_num: usize, out: &mut Hits) {
        self.sorted.resize(self.found.len(), Found::default());
        let mut ends = Vec::with_capacity(self.counts.len());
        let places = starts(&mut self.counts, 0, |end| ends.push(end));
        for hit in &self.found {
            if let Some(place) = places.get_mut(hit.row as usize) {
                if let Some(to) = self.sorted.get_mut(*place as usize) {
                    *to = *hit;
                }
                *place += 1;
            }
        }
        let mut rest = self.sorted.as_mut_slice();
        let mut start = 0;
        for end in ends {
            let Some((row, others)) = rest.split_at_mut_checked((end - start).cast_unsigned() as usize) else { return };
            if !row.is_sorted_by_key(|hit| hit.file) {
                row.sort_by_key(|hit| hit.file); // stable: the order of a chain stays
            }
            out.phy_offsets.extend(row.iter().take(max_num).map(|hit| hit.phy_offset));
            out.ends.push(i32::try_from(out.phy_offsets.len()).unwrap_or(i32::MAX));
            (rest, start) = (others, end);
        }
    }
}

/// Turns the number of candidates of each row into the place of its first one; `each` is given where each row ends.
fn starts(counts: &mut [u32], first: usize, mut each: impl FnMut(i32)) -> &mut [u32] {
    let mut end = u32::try_from(first).unwrap_or(u32::MAX);
    for count in &mut *counts {
        let start = end;
        end += *count;
        *count = start;
        each(end.cast_signed());
    }
    counts
}
