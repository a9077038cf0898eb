//! The answers of a batch: one list of offsets per row, in the layout of an Arrow list column.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Int64Array, ListArray};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};

use crate::error::{Error, Result};
use crate::hash_index::key_hash::java_hash::KeySource;
use crate::io::{u32_of, usize_of};

/// Commit-log offsets of many rows, one list per row.
///
/// Calls append to it, so it can be cleared and reused without a new allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hits {
    /// The end of each list in `phy_offsets`, after a first 0.
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

    /// No row yet, and capacity for the ends of `rows`.
    pub fn with_rows(rows: usize) -> Self {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        Self { ends, phy_offsets: Vec::new() }
    }

    /// The lists of `rows` rows, of offsets with the number of their row, in any order. Those of one row keep their order.
    ///
    /// # Errors
    /// `InvalidArgument` for 2^31 offsets or more.
    pub(crate) fn of_rows(rows: usize, found: impl Iterator<Item = (u32, i64)> + Clone) -> Result<Self> {
        let mut ends = vec![0i32; rows + 1];
        let place = |row: u32| usize_of(row);
        found.clone().for_each(|(row, _)| {
            if let Some(count) = ends.get_mut(place(row).saturating_add(1)) {
                *count += 1;
            }
        });
        let mut sum = 0i32;
        for end in &mut ends {
            sum = sum.checked_add(*end).ok_or_else(|| {
                Error::InvalidArgument("the answer would hold 2^31 offsets or more: ask for fewer keys".to_owned())
            })?;
            *end = sum;
        }
        let mut next = ends.clone();
        let mut phy_offsets = vec![0; usize::try_from(sum).unwrap_or(0)];
        found.for_each(|(row, offset)| {
            if let Some(at) = next.get_mut(place(row)) {
                if let Some(place) = usize::try_from(*at).ok().and_then(|at| phy_offsets.get_mut(at)) {
                    *place = offset;
                }
                *at += 1;
            }
        });
        Ok(Self { ends, phy_offsets })
    }

    /// Removes all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.ends.truncate(1);
        self.phy_offsets.clear();
    }

    /// Number of answered rows.
    pub fn len(&self) -> usize {
        self.ends.len() - 1
    }

    /// True if no row was answered.
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

    /// The rows as an Arrow list column; a row of `nulls` is null.
    pub fn into_list_array(self, nulls: Option<NullBuffer>) -> ListArray {
        let item = Arc::new(Field::new("item", DataType::Int64, true));
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        ListArray::new(item, offsets, Arc::new(Int64Array::from(self.phy_offsets)), nulls)
    }
}

/// A candidate that is not assigned to its row yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    pub(crate) phy_offset: i64,
    /// Row within the chunk.
    pub(crate) row: u32,
    /// Number of the file in the call, newest first.
    pub(crate) file: u32,
}

/// Set in the count of a doubtful row: it takes no more candidates until it is answered again.
pub(crate) const DOUBTFUL: u32 = 1 << 31;

/// Rows that are answered together, and their candidates so far, in any order.
///
/// The memory is reused for the next chunk: fresh pages cost more than the lookups.
#[derive(Default)]
pub(crate) struct Chunk {
    /// One per row; negative for a row without a key.
    pub(crate) key_hashes: Vec<i32>,
    /// Candidates of one row and file are in the order of the chain. Only the first `filled` count.
    pub(crate) found: Vec<Found>,
    pub(crate) filled: usize,
    /// Candidates of each row, or [`DOUBTFUL`]; updated during walks only if there are several files.
    pub(crate) counts: Vec<u32>,
    /// Candidates by row, if there are several files.
    sorted: Vec<Found>,
    /// Rows whose walk met damage.
    pub(crate) doubtful: Vec<u32>,
}

impl Chunk {
    /// Rows of a chunk. The memory of a chunk fits into the second-level cache of one core.
    pub(crate) const ROWS: usize = 16 * 1024;

    /// Removes the candidates and loads the keys of `rows`.
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

    /// Returns the key hash of a row and how many candidates it still takes; `None` if it takes none.
    pub(crate) fn wanted(&self, row: u32, max_num: Option<usize>) -> Option<(i32, Option<usize>)> {
        let key_hash = *self.key_hashes.get(row as usize)?;
        let count = *self.counts.get(row as usize)? as usize;
        let left_to_find = max_num.map(|most| most.saturating_sub(count));
        (key_hash >= 0 && left_to_find != Some(0) && count < DOUBTFUL as usize).then_some((key_hash, left_to_find))
    }

    /// Removes the candidates of the doubtful rows, and returns these rows in rising order.
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

    /// Walks over several files are interleaved, so a candidate of an older file can be found first, and more candidates than
    /// wanted.
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

/// Turns the number of candidates of each row into the place of its first one. Calls `each` with the end of each row.
fn starts(counts: &mut [u32], first: usize, mut each: impl FnMut(i32)) -> &mut [u32] {
    let mut end = u32_of(first);
    for count in &mut *counts {
        let start = end;
        end += *count;
        *count = start;
        each(end.cast_signed());
    }
    counts
}
