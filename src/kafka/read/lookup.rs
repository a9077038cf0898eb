//! Look-ups in a segment. Source: `LogSegment#translateOffset`, `#read`, `#findOffsetByTimestamp`, `#readNextOffset`.
//!
//! With `Check::Trust` the indexes and the headers of batches are taken as they are, as the broker does. With
//! `Check::Verify` an entry counts only if the batch that it leads to agrees with it, and every batch on the way is
//! checked, so that damage is an error and not another answer.

use super::batch_order::BatchOrder;
use super::checked_walk::CheckedWalk;
use super::segment::Segment;
use super::walk::{Reads, Walk};
use crate::error::{Error, Result};
use crate::io::ReadAt;
use crate::kafka::compat::Compat;
use crate::kafka::format::batch_cursor::BatchCursor;
use crate::kafka::format::header::Header;
use crate::kafka::format::record::Wants;
use crate::kafka::index::time_index::TimeEntry;
use crate::report::{Flaw, Kind};

/// The batch that contains an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translated {
    /// Base offset of the batch; its last offset by the rule of releases before 4.0.
    pub offset: i64,
    /// Byte offset in the log.
    pub position: u64,
    /// Bytes of the batch.
    pub size: u32,
}

/// A record that was found by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOffset {
    /// The record's own timestamp.
    pub timestamp: i64,
    /// Its offset.
    pub offset: i64,
    /// Leader epoch of its batch, where it has one.
    pub leader_epoch: Option<i32>,
}

/// Bytes of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Byte offset in the log: where the batch of the offset begins.
    pub position: u64,
    /// Number of bytes from there; they may end inside a batch.
    pub size: u64,
    /// True when the limit ends inside the first batch.
    pub first_entry_incomplete: bool,
}

impl Segment {
    /// Returns the first batch whose last offset is at or above an offset; `None` if there is none.
    ///
    /// # Errors
    /// `Corrupt` for a batch on the way that is not valid; an I/O error.
    pub fn translate_offset(&self, offset: i64, starting_position: u64) -> Result<Option<Translated>> {
        let found = self.find_batch(offset, starting_position)?;
        let last = self.options().compat.is_some_and(Compat::translates_to_last_offset);
        found
            .map(|header| {
                let offset = if last { header.last_offset } else { self.first_offset(&header)? };
                Ok(Translated { offset, position: header.position, size: header.size })
            })
            .transpose()
    }

    fn find_batch(&self, offset: i64, starting_position: u64) -> Result<Option<Header>> {
        let position = self.offset_entry(offset)?.walk_from().max(starting_position);
        let mut walk = CheckedWalk::new(self, position, self.verifies())?;
        if self.options().compat.is_some_and(Compat::searches_by_base_offset) {
            return self.find_by_base_offset(walk, offset);
        }
        while let Some(header) = walk.next()? {
            if header.last_offset >= offset {
                walk.confirm()?;
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    /// COMPAT(kafka `FileRecords#searchForOffsetFromPosition`): searched by base offsets. The answer differs only if a base
    /// offset is wrong.
    fn find_by_base_offset(&self, mut walk: CheckedWalk<'_>, offset: i64) -> Result<Option<Header>> {
        let mut before: Option<Header> = None;
        let holds = |header: &Header| header.last_offset >= offset;
        while let Some(header) = walk.next()? {
            let first = self.first_offset(&header)?;
            if first == offset {
                return Ok(Some(header));
            }
            if first > offset {
                return Ok(Some(before.filter(holds).unwrap_or(header)));
            }
            before = Some(header);
        }
        Ok(before.filter(holds))
    }

    /// Returns the offset of a batch's first record. For a legacy wrapper its messages must be decompressed.
    pub(crate) fn first_offset(&self, header: &Header) -> Result<i64> {
        if !header.is_legacy() || header.codec_id() == 0 {
            return Ok(header.base_offset);
        }
        let mut first = None;
        self.each_record(header, |_, offset| {
            first = Some(offset);
            false
        })?;
        Ok(first.unwrap_or(header.base_offset))
    }

    /// Calls `take` with the timestamp and offset of each record of a batch, until it returns false.
    pub(crate) fn each_record(&self, header: &Header, mut take: impl FnMut(i64, i64) -> bool) -> Result<()> {
        let limit = self.options().max_batch_bytes;
        header.check_size(limit).map_err(|flaw| self.corrupt(header.position, flaw))?;
        let source = self.source()?;
        let mut walk = Walk::new(Reads::Headers, header.position, self.len());
        let batch = walk.batch(source.as_ref(), header).map_err(|e| Error::io(self.path(), e))?;
        let mut cursor = BatchCursor::new(limit);
        cursor
            .each(header, batch, Wants::Times, |span, _| take(span.timestamp, span.offset))
            .map_err(|flaw| self.corrupt(header.position, flaw))
    }

    /// Returns the bytes that a fetch from an offset reads; `None` if no batch ends at or above it.
    ///
    /// # Errors
    /// `InvalidArgument` for a limit that is negative or ends before the batch; `Corrupt`; an I/O error.
    pub fn read(
        &self,
        offset: i64,
        max_bytes: i64,
        max_position: Option<i64>,
        min_one_message: bool,
    ) -> Result<Option<Fetched>> {
        let invalid = |text: String| Error::InvalidArgument(format!("{}: {text}", self.path().display()));
        let limit =
            u64::try_from(max_bytes).map_err(|_| invalid(format!("max_bytes={max_bytes}: expected 0 or more")))?;
        let Some(batch) = self.find_batch(offset, 0)? else { return Ok(None) };
        let size = u64::from(batch.size);
        let adjusted = if min_one_message { limit.max(size) } else { limit };
        let end = max_position.map_or(Ok(self.len()), u64::try_from).ok();
        let space_left = end.and_then(|end| end.checked_sub(batch.position)).filter(|_| adjusted > 0);
        if space_left.is_none() && adjusted > 0 {
            let end = max_position.unwrap_or(0);
            let text = format!("max_position={end}: expected at least {}, where the batch begins", batch.position);
            return Err(invalid(text));
        }
        Ok(Some(Fetched {
            position: batch.position,
            size: space_left.unwrap_or(0).min(adjusted),
            first_entry_incomplete: (1..size).contains(&adjusted),
        }))
    }

    /// Reads bytes of the log.
    ///
    /// # Errors
    /// `UnexpectedEof` if the log ends before them; an I/O error.
    pub fn bytes(&self, position: u64, size: u64) -> Result<Vec<u8>> {
        let io = |e| Error::io(self.path(), e);
        let end = position.checked_add(size).filter(|end| *end <= self.len());
        let len =
            end.and_then(|_| usize::try_from(size).ok()).ok_or_else(|| io(std::io::ErrorKind::UnexpectedEof.into()))?;
        let mut bytes = vec![0; len];
        self.source()?.read_exact_at(&mut bytes, position).map_err(io)?;
        Ok(bytes)
    }

    /// Returns the first record at or above `starting_offset` with a timestamp at or above `timestamp`.
    ///
    /// # Errors
    /// `Corrupt` for a batch on the way that is not valid or cannot be read; an I/O error.
    pub fn offset_for_timestamp(
        &self,
        timestamp: i64,
        starting_offset: i64,
        control: bool,
    ) -> Result<Option<TimedOffset>> {
        let entry = self.time_entry(timestamp)?;
        let position = self.offset_entry(entry.offset.max(starting_offset))?.walk_from();
        let mut walk = CheckedWalk::new(self, position, self.verifies())?;
        while let Some(header) = walk.next()? {
            if header.magic < 0 && !self.verifies() {
                let flaw = Flaw::new(Kind::BatchMagic, "a magic of 0, 1 or 2", header.magic);
                return Err(self.corrupt(header.position, flaw));
            }
            if header.max_timestamp < timestamp || (header.is_control() && !control) {
                continue;
            }
            let mut found = None;
            self.each_record(&header, |time, offset| {
                if time < timestamp || offset < starting_offset {
                    return true;
                }
                found = Some((time, offset));
                false
            })?;
            if let Some((timestamp, offset)) = found {
                walk.confirm()?;
                let leader_epoch = (header.leader_epoch >= 0).then_some(header.leader_epoch);
                return Ok(Some(TimedOffset { timestamp, offset, leader_epoch }));
            }
        }
        Ok(None)
    }

    /// Returns the offset after the last batch; the base offset of a segment without batches.
    ///
    /// # Errors
    /// `Corrupt` if the log cannot be walked to its end; an I/O error.
    pub fn next_offset(&self) -> Result<i64> {
        self.end_of_batches(false)
    }

    /// Returns the offset after the last batch that can be reached from the start. It equals [`Self::next_offset`] unless the log
    /// cannot be read to its end.
    ///
    /// # Errors
    /// An I/O error.
    pub fn readable_end(&self) -> Result<i64> {
        self.end_of_batches(true)
    }

    fn end_of_batches(&self, is_end_at_damage: bool) -> Result<i64> {
        let entry = self.offset_entry_before(self.offset_index()?.len())?;
        let mut position = entry.walk_from();
        if !self.verifies() {
            match self.find_batch(entry.offset, 0)? {
                Some(batch) => position = batch.position,
                None => return Ok(self.base_offset()),
            }
        }
        let mut walk = CheckedWalk::unchecked(self, position)?;
        let mut order = BatchOrder::new(self.base_offset());
        let mut last = None;
        loop {
            let header = match walk.next() {
                Ok(Some(header)) => header,
                Ok(None) => break,
                Err(Error::Corrupt { .. }) if is_end_at_damage => break,
                Err(error) => return Err(error),
            };
            // Batches out of order are not an error here: the readers of records report them.
            order.check(&header);
            last = if self.verifies() { order.last() } else { Some(header.last_offset) };
        }
        Ok(last.map_or(self.base_offset(), |last| last.wrapping_add(1)))
    }

    /// Returns the largest timestamp and the last offset of the first batch that has it; -1 and the base offset without any.
    ///
    /// With `Check::Trust` that is the last entry of the time index, as for a broker that has just opened the segment.
    ///
    /// # Errors
    /// `Corrupt` if the log cannot be walked to its end; an I/O error.
    pub fn max_timestamp(&self) -> Result<TimeEntry> {
        let mut largest = self.time_entry_before(self.time_index()?.len())?;
        if !self.verifies() {
            return Ok(largest);
        }
        let position = self.offset_entry(largest.offset)?.walk_from();
        let mut walk = CheckedWalk::unchecked(self, position)?;
        while let Some(header) = walk.next()? {
            if header.max_timestamp > largest.timestamp {
                largest = TimeEntry { timestamp: header.max_timestamp, offset: header.last_offset };
            }
        }
        Ok(largest)
    }
}

#[cfg(test)]
#[path = "lookup_tests.rs"]
mod tests;
