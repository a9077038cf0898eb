//! Which entries of a segment's indexes hold. With [`Check::Trust`](crate::kafka::Check::Trust) all do; else the log is asked,
//! once for each entry that a look-up comes to, and where it says no the entry before is tried.

use std::sync::atomic::{AtomicU8, Ordering};

use super::batch_order::lowest_offset;
use super::segment::Segment;
use crate::error::{Error, Result};
use crate::kafka::format::header::NO_TIMESTAMP;
use crate::kafka::index::offset_index::OffsetEntry;
use crate::kafka::index::sparse_index::SparseIndex;
use crate::kafka::index::time_index::TimeEntry;

/// An index of the segment, and which of its entries the log was asked about: not yet, yes, no.
#[derive(Debug)]
pub(crate) struct CheckedIndex<I> {
    index: Option<I>,
    answers: Vec<AtomicU8>,
}

impl<I: SparseIndex> CheckedIndex<I> {
    pub(crate) fn new(index: Option<I>) -> Self {
        let entries = index.as_ref().map_or(0, I::len);
        Self { index, answers: std::iter::repeat_with(|| AtomicU8::new(0)).take(entries).collect() }
    }

    /// Entries, whether they hold or not; 0 without an index.
    pub(crate) fn len(&self) -> usize {
        self.answers.len()
    }

    /// Entries at or below the target.
    fn rank(&self, target: i64) -> usize {
        self.index.as_ref().map_or(0, |index| index.rank(target))
    }

    /// The last entry that holds, of the first `rank`.
    fn entry_before(&self, rank: usize, holds: impl Fn(I::Entry) -> Result<bool>) -> Result<Option<I::Entry>> {
        let entries = (0..rank).rev().filter_map(|slot| Some((slot, self.index.as_ref()?.entry(slot)?)));
        for (slot, entry) in entries {
            if self.holds(slot, || holds(entry))? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// What the log says about the entry of a slot: asked once.
    fn holds(&self, slot: usize, ask: impl FnOnce() -> Result<bool>) -> Result<bool> {
        let answer = self.answers.get(slot);
        match answer.map_or(0, |a| a.load(Ordering::Relaxed)) {
            0 => {
                let holds = ask()?;
                if let Some(answer) = answer {
                    answer.store(1 + u8::from(!holds), Ordering::Relaxed);
                }
                Ok(holds)
            }
            known => Ok(known == 1),
        }
    }
}

impl Segment {
    /// The largest entry of the offset index at or below the target that holds.
    ///
    /// # Errors
    /// The system's error.
    pub fn offset_entry(&self, target: i64) -> Result<OffsetEntry> {
        self.offset_entry_before(self.offset_index()?.rank(target))
    }

    /// The last entry of the offset index that holds, of the first `rank`.
    ///
    /// # Errors
    /// The system's error.
    pub fn offset_entry_before(&self, rank: usize) -> Result<OffsetEntry> {
        let holds = |entry| Ok(!self.verifies() || self.attests_offset(entry)?);
        let front = OffsetEntry { offset: self.base_offset(), position: 0 };
        Ok(self.offset_index()?.entry_before(rank, holds)?.unwrap_or(front))
    }

    /// Every batch before the position ends before the entry's offset: a whole batch begins at the position, and ends at
    /// or below that offset.
    ///
    /// The offset lies in that batch, or in a later one of the same append. Where it lies in none, a base offset became lower,
    /// which no checksum covers: a walk from the entry before meets that batch behind another, and tells it.
    fn attests_offset(&self, entry: OffsetEntry) -> Result<bool> {
        let Ok(position) = u64::try_from(entry.position) else { return Ok(false) };
        let mut lookup = self.lookup_from(position, true)?;
        match lookup.next() {
            Ok(Some(header)) if header.last_offset == entry.offset => Ok(true),
            Ok(Some(header)) if header.last_offset < entry.offset => self.has_offset(position, entry.offset),
            Ok(_) | Err(Error::Corrupt { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether an offset lies in a batch of those that follow each other from a position on, by their heads.
    fn has_offset(&self, position: u64, offset: i64) -> Result<bool> {
        let mut lookup = self.lookup_from(position, false)?;
        loop {
            match lookup.next() {
                Ok(Some(header)) if header.last_offset < offset => {}
                Ok(Some(header)) => return Ok(lowest_offset(&header) <= offset),
                Ok(None) | Err(Error::Corrupt { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// The largest entry of the time index at or below the target that holds.
    ///
    /// # Errors
    /// The system's error.
    pub fn time_entry(&self, target: i64) -> Result<TimeEntry> {
        self.time_entry_before(self.time_index()?.rank(target))
    }

    /// The last entry of the time index that holds, of the first `rank`.
    ///
    /// # Errors
    /// The system's error.
    pub fn time_entry_before(&self, rank: usize) -> Result<TimeEntry> {
        let holds = |entry| Ok(!self.verifies() || self.attests_time(entry)?);
        let front = TimeEntry { timestamp: NO_TIMESTAMP, offset: self.base_offset() };
        Ok(self.time_index()?.entry_before(rank, holds)?.unwrap_or(front))
    }

    /// The batch of the entry's offset has its timestamp as the largest.
    ///
    /// That no batch before it has a larger one only a walk over all of them could tell.
    fn attests_time(&self, entry: TimeEntry) -> Result<bool> {
        let position = u64::try_from(self.offset_entry(entry.offset)?.position).unwrap_or(0);
        let mut lookup = self.lookup_from(position, true)?;
        loop {
            match lookup.next() {
                Ok(Some(header)) if header.last_offset < entry.offset => {}
                Ok(Some(header)) => {
                    let inside = header.is_legacy() || header.base_offset <= entry.offset;
                    return Ok(inside && header.max_timestamp == entry.timestamp);
                }
                Ok(None) | Err(Error::Corrupt { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}
