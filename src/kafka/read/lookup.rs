//! Look-ups in a segment. Source: `LogSegment#translateOffset`, `#read`, `#findOffsetByTimestamp`, `#readNextOffset`.
//!
//! With [`Check::Trust`] the indexes are taken as they are and batches by their heads, as the broker does. With
//! [`Check::Verify`] an entry counts only if the batch that it leads to agrees with it, and every batch on the way is
//! checked, so that damage is an error and not another answer.

use std::sync::Arc;

use super::batch_order::BatchOrder;
use super::segment::Segment;
use super::walk::{Reads, Tail, Walk};
use crate::error::{Error, Result};
use crate::io::{FileSource, ReadAt};
use crate::kafka::finding::{Finding, Flaw, Kind};
use crate::kafka::format::batch_cursor::BatchCursor;
use crate::kafka::format::header::Header;
use crate::kafka::format::record::Wants;
use crate::kafka::index::index_file::Check;
use crate::kafka::index::time_index::TimeEntry;

/// Where the batch of an offset lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translated {
    /// Base offset of the batch, or its last one by the rule of releases before 4.0.
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
    /// Bytes from there; they may end inside of a batch.
    pub size: u64,
    /// The limit cuts the first batch.
    pub first_entry_incomplete: bool,
}

/// A walk for one look-up.
pub(crate) struct Lookup<'a> {
    segment: &'a Segment,
    source: Arc<FileSource>,
    walk: Walk,
    checked: bool,
    order: BatchOrder,
}

impl Lookup<'_> {
    /// The next batch; `None` at an end that may be.
    pub(crate) fn next(&mut self) -> Result<Option<Header>> {
        let path = self.segment.path();
        match self.walk.next(self.source.as_ref()).map_err(|e| Error::io(path, e))? {
            Ok(header) => {
                if self.checked {
                    self.check(&header)?;
                }
                Ok(Some(header))
            }
            Err(tail) => self.end(&tail),
        }
    }

    fn end(&self, tail: &Tail) -> Result<Option<Header>> {
        match tail.flaw() {
            Some(flaw) if !tail.is_quiet_in(self.segment.options.compat) => {
                Err(self.segment.corrupt(self.walk.at, flaw))
            }
            _ => Ok(None),
        }
    }

    fn check(&mut self, header: &Header) -> Result<()> {
        if header.size as usize > self.segment.options.max_batch_bytes {
            return Err(self.segment.corrupt(header.position, too_large(header, self.segment.options.max_batch_bytes)));
        }
        let path = self.segment.path();
        let crc = self.walk.check_crc(self.source.as_ref(), header).map_err(|e| Error::io(path, e))?;
        let flaw = crc.err().or_else(|| self.order.check(header));
        flaw.map_or(Ok(()), |flaw| Err(self.segment.corrupt(header.position, flaw)))
    }

    /// Looks whether the batch behind the one that answers is in order: no checksum covers the base offset, so one that became
    /// higher shows only there. The look-up is at its end then.
    fn confirm(&mut self) -> Result<()> {
        if !self.checked {
            return Ok(());
        }
        let path = self.segment.path();
        let Ok(header) = self.walk.next(self.source.as_ref()).map_err(|e| Error::io(path, e))? else { return Ok(()) };
        self.order.check(&header).map_or(Ok(()), |flaw| Err(self.segment.corrupt(header.position, flaw)))
    }
}

/// What is said of a batch beyond the limit.
pub(crate) fn too_large(header: &Header, limit: usize) -> Flaw {
    Flaw::new(Kind::BatchSize, format_args!("a batch of at most {limit} bytes"), format_args!("{} bytes", header.size))
}

impl Segment {
    pub(crate) fn corrupt(&self, offset: u64, flaw: Flaw) -> Error {
        Finding::new(self.path(), offset, flaw).into()
    }

    pub(crate) fn verifies(&self) -> bool {
        self.options.check == Check::Verify
    }

    pub(crate) fn lookup_from(&self, position: u64, checked: bool) -> Result<Lookup<'_>> {
        let walk = Walk::new(Reads::Heads, position, self.len());
        Ok(Lookup { segment: self, source: self.source()?, walk, checked, order: BatchOrder::new(self.base_offset()) })
    }

    /// The first batch whose last offset is at or above an offset; `None` when there is none.
    ///
    /// # Errors
    /// `Corrupt` where the way there cannot be walked; the system's error.
    pub fn translate_offset(&self, offset: i64, starting_position: u64) -> Result<Option<Translated>> {
        let found = self.find_batch(offset, starting_position)?;
        let last = self.options.compat.is_some_and(crate::kafka::compat::Compat::translates_to_last_offset);
        found
            .map(|header| {
                let offset = if last { header.last_offset } else { self.first_offset(&header)? };
                Ok(Translated { offset, position: header.position, size: header.size })
            })
            .transpose()
    }

    fn find_batch(&self, offset: i64, starting_position: u64) -> Result<Option<Header>> {
        let position = u64::try_from(self.offset_entry(offset)?.position).unwrap_or(0).max(starting_position);
        let mut lookup = self.lookup_from(position, self.verifies())?;
        if self.options.compat.is_some_and(crate::kafka::compat::Compat::searches_by_base_offset) {
            return self.find_by_base_offset(&mut lookup, offset);
        }
        while let Some(header) = lookup.next()? {
            if header.last_offset >= offset {
                lookup.confirm()?;
                return Ok(Some(header));
            }
        }
        Ok(None)
    }

    /// COMPAT(kafka `FileRecords#searchForOffsetFromPosition`): by base offsets; another answer only where they lie.
    fn find_by_base_offset(&self, lookup: &mut Lookup<'_>, offset: i64) -> Result<Option<Header>> {
        let mut before: Option<Header> = None;
        let holds = |header: &Header| header.last_offset >= offset;
        while let Some(header) = lookup.next()? {
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

    /// Offset of the first record's slot; that of a legacy wrapper is found by decompressing it.
    fn first_offset(&self, header: &Header) -> Result<i64> {
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

    /// Gives timestamp and offset of the records of a batch to `take` until it says no.
    fn each_record(&self, header: &Header, mut take: impl FnMut(i64, i64) -> bool) -> Result<()> {
        if header.size as usize > self.options.max_batch_bytes {
            return Err(self.corrupt(header.position, too_large(header, self.options.max_batch_bytes)));
        }
        let source = self.source()?;
        let mut walk = Walk::new(Reads::Heads, header.position, self.len());
        let batch = walk.batch(source.as_ref(), header).map_err(|e| Error::io(self.path(), e))?;
        let mut cursor = BatchCursor::new(self.options.max_batch_bytes);
        cursor
            .each(header, batch, Wants::Times, |span, _| take(span.timestamp, span.offset))
            .map_err(|flaw| self.corrupt(header.position, flaw))
    }

    /// What a fetch from an offset gives; `None` when nothing is at or behind it.
    ///
    /// # Errors
    /// `InvalidArgument` for limits that are negative or before the batch; `Corrupt`; the system's error.
    pub fn read(
        &self,
        offset: i64,
        max_bytes: i64,
        max_position: Option<i64>,
        min_one_message: bool,
    ) -> Result<Option<Fetched>> {
        let invalid = |text: String| Error::InvalidArgument(format!("{text} from {}", self.path().display()));
        let limit =
            u64::try_from(max_bytes).map_err(|_| invalid(format!("invalid max size {max_bytes} for a read")))?;
        let Some(batch) = self.find_batch(offset, 0)? else { return Ok(None) };
        let size = u64::from(batch.size);
        let adjusted = if min_one_message { limit.max(size) } else { limit };
        let end = max_position.map_or(Ok(self.len()), u64::try_from).ok();
        let room = end.and_then(|end| end.checked_sub(batch.position)).filter(|_| adjusted > 0);
        if room.is_none() && adjusted > 0 {
            let text = format!("the batch begins at {}, the read ends at {max_position:?}:", batch.position);
            return Err(invalid(text));
        }
        Ok(Some(Fetched {
            position: batch.position,
            size: room.unwrap_or(0).min(adjusted),
            first_entry_incomplete: (1..size).contains(&adjusted),
        }))
    }

    /// Bytes of the log.
    ///
    /// # Errors
    /// `UnexpectedEof` when they are not all there; the system's error.
    pub fn bytes(&self, position: u64, size: u64) -> Result<Vec<u8>> {
        let io = |e| Error::io(self.path(), e);
        let end = position.checked_add(size).filter(|end| *end <= self.len());
        let len =
            end.and_then(|_| usize::try_from(size).ok()).ok_or_else(|| io(std::io::ErrorKind::UnexpectedEof.into()))?;
        let mut bytes = vec![0; len];
        self.source()?.read_exact_at(&mut bytes, position).map_err(io)?;
        Ok(bytes)
    }

    /// The first record at or behind `starting_offset` with a timestamp at or above `timestamp`.
    ///
    /// # Errors
    /// `Corrupt` where the way there cannot be walked or a batch not be read; the system's error.
    pub fn offset_for_timestamp(
        &self,
        timestamp: i64,
        starting_offset: i64,
        control: bool,
    ) -> Result<Option<TimedOffset>> {
        let entry = self.time_entry(timestamp)?;
        let position = self.offset_entry(entry.offset.max(starting_offset))?.position;
        let mut lookup = self.lookup_from(u64::try_from(position).unwrap_or(0), self.verifies())?;
        while let Some(header) = lookup.next()? {
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
                lookup.confirm()?;
                let leader_epoch = (header.leader_epoch >= 0).then_some(header.leader_epoch);
                return Ok(Some(TimedOffset { timestamp, offset, leader_epoch }));
            }
        }
        Ok(None)
    }

    /// Offset behind the last batch; the base offset of a segment without any.
    ///
    /// # Errors
    /// `Corrupt` where the log cannot be walked to its end; the system's error.
    pub fn next_offset(&self) -> Result<i64> {
        let entry = self.offset_entry_before(self.offset_index()?.len())?;
        let mut position = u64::try_from(entry.position).unwrap_or(0);
        if !self.verifies() {
            match self.find_batch(entry.offset, 0)? {
                Some(batch) => position = batch.position,
                None => return Ok(self.base_offset()),
            }
        }
        let mut lookup = self.lookup_from(position, false)?;
        let mut last = None;
        while let Some(header) = lookup.next()? {
            // What is wrong with a batch's place is for those to say who read it.
            lookup.order.check(&header);
            last = if self.verifies() { lookup.order.last() } else { Some(header.last_offset) };
        }
        Ok(last.map_or(self.base_offset(), |last| last.wrapping_add(1)))
    }

    /// The largest timestamp and the last offset of the first batch that has it; -1 and the base offset without any.
    ///
    /// With [`Check::Trust`] that is the last entry of the time index, as for a broker that has just opened the segment.
    ///
    /// # Errors
    /// `Corrupt` where the log cannot be walked to its end; the system's error.
    pub fn max_timestamp(&self) -> Result<TimeEntry> {
        let mut largest = self.time_entry_before(self.time_index()?.len())?;
        if !self.verifies() {
            return Ok(largest);
        }
        let position = self.offset_entry(largest.offset)?.position;
        let mut lookup = self.lookup_from(u64::try_from(position).unwrap_or(0), false)?;
        while let Some(header) = lookup.next()? {
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
