//! One entry of an index file: 20 bytes. Source: `IndexFile#putKey`.
//!
//! ```text
//! 0   key_hash    i32   0 or more
//! 4   phy_offset  i64   begin of the message in the commit log
//! 12  time_diff   i32   seconds since the header's begin_timestamp
//! 16  prev_index  i32   position of the older entry of the same slot, 0 = none
//! ```

use std::io;
use std::ops::Range;

use super::geometry::{ENTRY_LEN, Geometry};
use super::header::Header;
use crate::io::{ReadAt, WriteAt};

/// Offset of `time_diff` in an entry.
pub(crate) const TIME_DIFF: u64 = 12;
/// Offset of `prev_index` in an entry.
pub(crate) const PREV_INDEX: u64 = 16;

/// The fields of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Hash of the whole index key.
    pub key_hash: i32,
    /// Commit-log offset of the message.
    pub phy_offset: i64,
    /// Seconds since the file's `begin_timestamp`, clamped to 0 and `i32::MAX`.
    pub time_diff: i32,
    /// Position of the older entry of the same slot; 0 = none.
    pub prev_index: i32,
}

#[expect(
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    reason = "bit patterns of the file"
)]
impl Entry {
    /// Reads the entry at a position.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before the entry does, else an I/O error.
    #[inline]
    pub fn read(source: &impl ReadAt, geometry: Geometry, position: u32) -> io::Result<Self> {
        source.words(geometry.entry(position)).map(Self::of_words)
    }

    #[inline]
    fn of_words([hash, high, low, diff, prev]: [u32; WORDS]) -> Self {
        Self {
            key_hash: hash as i32,
            phy_offset: (u64::from(high) << 32 | u64::from(low)) as i64,
            time_diff: diff as i32,
            prev_index: prev as i32,
        }
    }

    /// Stores the entry at a position.
    #[inline]
    pub(crate) fn write(&self, target: &impl WriteAt, geometry: Geometry, position: u32) -> io::Result<()> {
        let phy = self.phy_offset as u64;
        let words =
            [self.key_hash as u32, (phy >> 32) as u32, phy as u32, self.time_diff as u32, self.prev_index as u32];
        target.put_words(geometry.entry(position), words)
    }

    /// The bytes of the file.
    #[inline]
    pub(crate) fn to_bytes(self) -> [u8; ENTRY_LEN as usize] {
        let phy = self.phy_offset as u64;
        let hash_and_high = (u64::from(self.key_hash as u32) << 32 | phy >> 32).to_be_bytes();
        let low_and_diff = (phy << 32 | u64::from(self.time_diff as u32)).to_be_bytes();
        let mut bytes = [0; ENTRY_LEN as usize];
        let (front, prev) = bytes.split_at_mut(16);
        let (first, second) = front.split_at_mut(8);
        first.copy_from_slice(&hash_and_high);
        second.copy_from_slice(&low_and_diff);
        prev.copy_from_slice(&self.prev_index.to_be_bytes());
        bytes
    }

    /// True if no field was ever written.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// True if the entry is valid at `position` in the chain of `slot`: its hash belongs there and the link goes down. (A
    /// broker killed between two stores leaves an entry that links to itself: B24.)
    #[inline]
    pub fn is_whole(&self, geometry: Geometry, position: u32, slot: u32) -> bool {
        self.key_hash >= 0
            && self.time_diff >= 0
            && self.prev_index >= 0
            && (self.prev_index as u32) < position
            && geometry.slot_of(self.key_hash) == slot
    }
}

/// Number of words in an entry.
const WORDS: usize = 5;
const _: () = assert!(WORDS as u64 * 4 == ENTRY_LEN, "an entry is whole words");

/// The entries at ascending positions, with one read for each block.
pub(crate) struct Entries<'a, S> {
    source: &'a S,
    geometry: Geometry,
    /// Position of the first entry of the block.
    first: u32,
    block: Vec<[u32; WORDS]>,
    /// Positions whose entries were not returned yet.
    ahead: Range<u32>,
}

impl<'a, S: ReadAt> Entries<'a, S> {
    /// Entries in the largest block: 160 KiB, which fit in the processor cache.
    const BLOCK: u32 = 8192;

    /// Returns the entries at `positions`, all of which are in the file.
    pub(crate) fn new(source: &'a S, geometry: Geometry, positions: Range<u32>) -> Self {
        Self { source, geometry, first: positions.start, block: Vec::new(), ahead: positions }
    }

    fn held(&self) -> Option<Entry> {
        let number = (self.ahead.start - self.first) as usize;
        self.block.get(number).copied().map(Entry::of_words)
    }

    fn read_block(&mut self) -> io::Result<()> {
        self.first = self.ahead.start;
        let count = self.ahead.end.saturating_sub(self.first).min(Self::BLOCK);
        self.block.resize(count as usize, [0; WORDS]);
        self.source.word_run(self.geometry.entry(self.first), self.block.as_flattened_mut())
    }
}

impl<S: ReadAt> Iterator for Entries<'_, S> {
    type Item = io::Result<(u32, Entry)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.ahead.is_empty() {
            return None;
        }
        if self.held().is_none()
            && let Err(e) = self.read_block()
        {
            // The iterator ends after an error.
            self.ahead = 0..0;
            return Some(Err(e));
        }
        let entry = self.held()?;
        self.ahead.next().map(|position| Ok((position, entry)))
    }
}

/// The time difference that a put stores, in seconds. Source: `IndexFile#putKey`.
///
/// `begin_timestamp` is the header's as it is before the put.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "clamped first")]
pub(crate) fn time_diff(begin_timestamp: i64, store_timestamp: i64) -> i32 {
    if begin_timestamp <= 0 {
        return 0;
    }
    // Below 0 first: the rest is then unsigned, which divides in fewer steps.
    let seconds = store_timestamp.wrapping_sub(begin_timestamp).max(0).unsigned_abs() / 1000;
    seconds.min(u64::from(i32::MAX.unsigned_abs())) as i32
}

/// The store time that the broker computes for an entry, in milliseconds. Source: `IndexFile#selectPhyOffset`.
pub(crate) fn broker_time(begin_timestamp: i64, time_diff: i32) -> i64 {
    begin_timestamp.wrapping_add(i64::from(time_diff) * 1000)
}

/// First and last millisecond at which the message of an entry can have been stored.
///
/// - Entry 1 was stored at the header's `begin_timestamp`. Its difference is relative to the seed (B3) and does not count.
/// - Times before `begin_timestamp` are clamped to difference 0, and very late times to the largest difference.
/// - In between, the difference is the time in whole seconds, rounded down.
#[inline]
pub(crate) fn stored_between(begin_timestamp: i64, position: u32, time_diff: i32) -> (i64, i64) {
    if position == 1 {
        return (begin_timestamp, begin_timestamp);
    }
    let first = broker_time(begin_timestamp, time_diff);
    match time_diff {
        0 => (i64::MIN, first.saturating_add(999)),
        i32::MAX => (first, i64::MAX),
        _ => (first, first.saturating_add(999)),
    }
}

/// Returns whether the header's times agree with the newest entry. If not, no time of the file can be trusted.
pub(crate) fn times_agree(header: &Header, last_position: u32, last: &Entry) -> bool {
    if header.begin_timestamp <= 0 {
        return false;
    }
    let (first, until) = stored_between(header.begin_timestamp, last_position, last.time_diff);
    (first..=until).contains(&header.end_timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_clamped_as_the_broker_does() {
        for (begin, stored, diff) in [
            (0, 5_000, 0),
            (-7, 5_000, 0),
            (1, 1, 0),
            (1, 1 + 2_147_483_647 * 1000 + 5000, i32::MAX),
            (1, i64::MIN + 10, 0),
            (1, 1 + 2_147_483_646 * 1000 + 999, i32::MAX - 1),
            (1_700_000_000_000, 1_700_000_001_999, 1),
            (1_700_000_000_000, 1_699_999_997_000, 0),
        ] {
            assert_eq!(time_diff(begin, stored), diff, "{begin} {stored}");
        }
    }

    #[test]
    fn a_difference_stands_for_a_second_or_for_all_beyond() {
        assert_eq!(stored_between(5000, 1, 59), (5000, 5000));
        assert_eq!(stored_between(5000, 2, 0), (i64::MIN, 5999));
        assert_eq!(stored_between(5000, 2, 3), (8000, 8999));
        assert_eq!(stored_between(5000, 2, i32::MAX).1, i64::MAX);
    }
}
