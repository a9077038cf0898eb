//! Index entries in memory: what was read of a log that no index file covers.
//!
//! Twelve bytes an entry, sorted by hash and then by offset, so that a look-up goes by halves. What is added is sorted in when
//! it is first asked for.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, Int32Array, Int64Array, ListArray};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};

use crate::error::{Error, Result};

/// Hash of a key, and the offset in two halves: 12 bytes without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    hash: u32,
    high: u32,
    low: u32,
}

impl Entry {
    fn new(hash: i32, phy_offset: i64) -> Self {
        let [a, b, c, d, e, f, g, h] = phy_offset.to_be_bytes();
        Self {
            hash: hash.cast_unsigned(),
            high: u32::from_be_bytes([a, b, c, d]),
            low: u32::from_be_bytes([e, f, g, h]),
        }
    }

    fn phy_offset(self) -> i64 {
        (i64::from(self.high) << 32) | i64::from(self.low)
    }
}

/// Entries by the hashes of their keys.
#[derive(Debug, Default)]
pub struct EntryTable {
    entries: Vec<Entry>,
    /// So many of them are sorted.
    sorted: usize,
}

impl EntryTable {
    /// Adds entries; rows without a hash or an offset are left out.
    ///
    /// # Errors
    /// `InvalidArgument` when the columns differ in length.
    pub fn add(&mut self, hashes: &Int32Array, phy_offsets: &Int64Array) -> Result<()> {
        if hashes.len() != phy_offsets.len() {
            let text = format!("columns differ in length: {} keys, {} phy_offsets", hashes.len(), phy_offsets.len());
            return Err(Error::InvalidArgument(text));
        }
        let rows = hashes.iter().zip(phy_offsets);
        self.entries.extend(rows.filter_map(|(hash, offset)| Some(Entry::new(hash?, offset?))));
        Ok(())
    }

    /// Adds the entries of another table.
    pub fn append(&mut self, mut other: Self) {
        self.entries.append(&mut other.entries);
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The offsets of each hash, rising; null where the hash is.
    ///
    /// # Errors
    /// `InvalidArgument` when there are more than one column can have.
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
    fn gives_the_offsets_of_each_hash() {
        let mut table = EntryTable::default();
        assert_eq!(select(&mut table, vec![Some(7)]), [Some(vec![])]);
        let big = i64::MAX;
        table.add(&vec![7, 3, 7, i32::MAX].into(), &vec![big, 5, 40, 0].into()).unwrap();
        assert_eq!(select(&mut table, vec![Some(7), None, Some(4)]), [Some(vec![40, big]), None, Some(vec![])]);
        table.add(&vec![Some(7), None, Some(0)].into(), &vec![Some(1 << 32), Some(2), None].into()).unwrap();
        assert_eq!(select(&mut table, vec![Some(7), Some(i32::MAX)]), [Some(vec![40, 1 << 32, big]), Some(vec![0])]);
        assert_eq!(table.len(), 5);
        let mut other = EntryTable::default();
        other.add(&vec![3].into(), &vec![1].into()).unwrap();
        table.append(other);
        assert_eq!(select(&mut table, vec![Some(3)]), [Some(vec![1, 5])]);
        assert!(table.add(&vec![1].into(), &Int64Array::from(Vec::<i64>::new())).is_err());
    }
}
