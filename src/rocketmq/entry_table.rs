//! Index entries in memory, for log ranges that no index file covers.
//!
//! An entry takes 12 bytes. Entries are sorted by hash and then by offset, so a lookup is a binary search. New entries are merged
//! at the next lookup.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array as _, Int32Array, Int64Array, ListArray};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};

use crate::error::{Error, Result};

/// Hash of a key, and the offset in two halves: 12 bytes without padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    hash: u32,
    high: u32,
    low: u32,
}

impl Entry {
    fn new(hash: i32, phy_offset: i64) -> Self {
        let [high, low] = [phy_offset >> 32, phy_offset & 0xFFFF_FFFF]
            .map(|half| u32::try_from(half & 0xFFFF_FFFF).unwrap_or_default());
        Self { hash: hash.cast_unsigned(), high, low }
    }

    fn phy_offset(self) -> i64 {
        (i64::from(self.high) << 32) | i64::from(self.low)
    }
}

/// Entries by the hashes of their keys.
#[derive(Debug, Default)]
pub struct EntryTable {
    entries: Vec<Entry>,
    /// Number of sorted entries at the beginning.
    sorted: usize,
}

impl EntryTable {
    /// Add an entry.
    pub fn push(&mut self, hash: i32, phy_offset: i64) {
        self.entries.push(Entry::new(hash, phy_offset));
    }

    /// Add the entries of another table.
    pub fn append(&mut self, mut other: Self) {
        self.entries.append(&mut other.entries);
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Return whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Return the offsets of each hash in ascending order; null if the hash is null.
    ///
    /// # Errors
    /// `InvalidArgument` if there are more offsets than one column can hold.
    pub fn select(&mut self, hashes: &Int32Array) -> Result<ListArray> {
        self.sort();
        let mut offsets = Vec::new();
        let mut ends = Vec::with_capacity(hashes.len() + 1);
        ends.push(0);
        for hash in hashes {
            let found = hash.map_or(0..0, |hash| self.range(hash.cast_unsigned()));
            offsets.extend(self.entries.get(found).unwrap_or_default().iter().map(|entry| entry.phy_offset()));
            let end = i32::try_from(offsets.len());
            ends.push(
                end.map_err(|_| Error::InvalidArgument("too many hits: ask for fewer keys at a time".to_owned()))?,
            );
        }
        let field = Arc::new(Field::new("item", DataType::Int64, true));
        let (ends, offsets) = (OffsetBuffer::new(ScalarBuffer::from(ends)), Arc::new(Int64Array::from(offsets)));
        Ok(ListArray::new(field, ends, offsets, hashes.nulls().cloned()))
    }

    /// Return the offsets of a hash in ascending order.
    pub fn offsets(&mut self, hash: i32) -> impl Iterator<Item = i64> {
        self.sort();
        let found = self.range(hash.cast_unsigned());
        self.entries.get(found).unwrap_or_default().iter().map(|entry| entry.phy_offset())
    }

    fn range(&self, hash: u32) -> Range<usize> {
        let begin = self.entries.partition_point(|entry| entry.hash < hash);
        let after = self.entries.get(begin..).unwrap_or_default();
        begin..begin + after.partition_point(|entry| entry.hash == hash)
    }

    fn sort(&mut self) {
        if self.sorted < self.entries.len() {
            if let Some(added) = self.entries.get_mut(self.sorted..) {
                added.sort_unstable();
            }
            // Finds the two sorted runs and merges them.
            self.entries.sort();
            self.sorted = self.entries.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;

    fn select(table: &mut EntryTable, hashes: Vec<Option<i32>>) -> Vec<Option<Vec<i64>>> {
        let found = table.select(&Int32Array::from(hashes)).unwrap();
        found.iter().map(|row| row.map(|row| row.as_primitive::<Int64Type>().values().to_vec())).collect()
    }

    #[test]
    fn select_returns_the_offsets_of_each_hash() {
        let mut table = EntryTable::default();
        assert_eq!(select(&mut table, vec![Some(7)]), [Some(vec![])]);
        let big = i64::MAX;
        for (hash, offset) in [(7, big), (3, 5), (7, 40), (i32::MAX, 0)] {
            table.push(hash, offset);
        }
        assert_eq!(select(&mut table, vec![Some(7), None, Some(4)]), [Some(vec![40, big]), None, Some(vec![])]);
        table.push(7, 1 << 32);
        assert_eq!(table.offsets(7).collect::<Vec<_>>(), [40, 1 << 32, big]);
        assert_eq!(select(&mut table, vec![Some(7), Some(i32::MAX)]), [Some(vec![40, 1 << 32, big]), Some(vec![0])]);
        assert_eq!(table.len(), 5);
        let mut other = EntryTable::default();
        other.push(3, 1);
        table.append(other);
        assert_eq!(select(&mut table, vec![Some(3)]), [Some(vec![1, 5])]);
    }
}
