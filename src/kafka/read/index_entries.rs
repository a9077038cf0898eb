//! Entries of a segment's indexes for look-ups. With [`Check::Trust`] every entry counts. With [`Check::Verify`] an entry
//! counts only if the log agrees with it; otherwise the entry before it is tried.

use super::batch_order::lowest_offset;
use super::checked_walk::CheckedWalk;
use super::segment::Segment;
use crate::error::{Error, Result};
use crate::kafka::format::header::NO_TIMESTAMP;
use crate::kafka::index::index_file::Check;
use crate::kafka::index::offset_index::OffsetEntry;
use crate::kafka::index::time_index::TimeEntry;

impl Segment {
    /// True when entries and batches are checked against the log.
    pub(crate) fn verifies(&self) -> bool {
        match self.options().check {
            Check::Verify => true,
            Check::Trust => false,
        }
    }

    /// Returns the largest valid entry of the offset index at or below the target.
    ///
    /// # Errors
    /// An I/O error.
    pub fn offset_entry(&self, target: i64) -> Result<OffsetEntry> {
        self.offset_entry_before(self.offset_index()?.rank(target))
    }

    /// Returns the last valid entry of the first `rank` entries of the offset index.
    ///
    /// # Errors
    /// An I/O error.
    pub fn offset_entry_before(&self, rank: usize) -> Result<OffsetEntry> {
        let is_valid = |entry| Ok(!self.verifies() || self.confirms_offset(entry)?);
        let front = OffsetEntry { offset: self.base_offset(), position: 0 };
        Ok(self.offset_index()?.entry_before(rank, is_valid)?.unwrap_or(front))
    }

    /// True when a whole batch begins at the entry's position and ends at or below its offset. Then every batch before the
    /// position ends below the entry's offset.
    ///
    /// The offset is in that batch, or in a later one of the same append. If it is in none, a base offset became lower,
    /// which no checksum covers; a walk from the entry before meets that batch out of order, and reports it.
    fn confirms_offset(&self, entry: OffsetEntry) -> Result<bool> {
        let Ok(position) = u64::try_from(entry.position) else { return Ok(false) };
        let mut walk = CheckedWalk::checked(self, position)?;
        match walk.next() {
            Ok(Some(header)) if header.last_offset == entry.offset => Ok(true),
            Ok(Some(header)) if header.last_offset < entry.offset => self.has_offset(position, entry.offset),
            Ok(_) | Err(Error::Corrupt { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns whether, by their headers, one of the batches from a position on contains an offset.
    fn has_offset(&self, position: u64, offset: i64) -> Result<bool> {
        let mut walk = CheckedWalk::unchecked(self, position)?;
        loop {
            match walk.next() {
                Ok(Some(header)) if header.last_offset < offset => {}
                Ok(Some(header)) => return Ok(lowest_offset(&header) <= offset),
                Ok(None) | Err(Error::Corrupt { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the largest valid entry of the time index at or below the target.
    ///
    /// # Errors
    /// An I/O error.
    pub fn time_entry(&self, target: i64) -> Result<TimeEntry> {
        self.time_entry_before(self.time_index()?.rank(target))
    }

    /// Returns the last valid entry of the first `rank` entries of the time index.
    ///
    /// # Errors
    /// An I/O error.
    pub fn time_entry_before(&self, rank: usize) -> Result<TimeEntry> {
        let is_valid = |entry| Ok(!self.verifies() || self.confirms_time(entry)?);
        let front = TimeEntry { timestamp: NO_TIMESTAMP, offset: self.base_offset() };
        Ok(self.time_index()?.entry_before(rank, is_valid)?.unwrap_or(front))
    }

    /// True when the batch that contains the entry's offset has the entry's timestamp as its largest.
    ///
    /// Only a walk over all batches before it could show that none of them has a larger one.
    fn confirms_time(&self, entry: TimeEntry) -> Result<bool> {
        let position = self.offset_entry(entry.offset)?.walk_from();
        let mut walk = CheckedWalk::checked(self, position)?;
        loop {
            match walk.next() {
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
