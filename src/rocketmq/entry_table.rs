//! Index entries in memory, for log ranges that no index file covers.
//!
//! An entry takes 12 bytes. Entries are sorted by hash and then by offset, so a lookup is a binary search. New entries are merged
//! at the next lookup.

use std::ops::Range;

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
    /// Adds an entry.
    pub fn push(&mut self, hash: i32, phy_offset: i64) {
        self.entries.push(Entry::new(hash, phy_offset));
    }

    /// Adds the entries of another table.
    pub fn append(&mut self, mut other: Self) {
        self.entries.append(&mut other.entries);
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the offsets of a hash in ascending order.
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

    fn offsets(table: &mut EntryTable, hash: i32) -> Vec<i64> {
        table.offsets(hash).collect()
    }

    #[test]
    fn the_offsets_of_a_hash_ascend() {
        let mut table = EntryTable::default();
        assert!(table.is_empty());
        assert_eq!(offsets(&mut table, 7), [0; 0]);
        for (hash, offset) in [(7, i64::MAX), (3, 5), (7, 40), (i32::MAX, 0)] {
            table.push(hash, offset);
        }
        assert_eq!(offsets(&mut table, 7), [40, i64::MAX]);
        assert_eq!(offsets(&mut table, 4), [0; 0]);
        table.push(7, 1 << 32);
        assert_eq!(offsets(&mut table, 7), [40, 1 << 32, i64::MAX]);
        assert_eq!(offsets(&mut table, i32::MAX), [0]);
        assert_eq!(table.len(), 5);
        let mut other = EntryTable::default();
        other.push(3, 1);
        table.append(other);
        assert_eq!(offsets(&mut table, 3), [1, 5]);
    }
}
