//! A copy of a log's batches into a log that is written, up to a moment, and of some times.
//!
//! ```text
//! valid batches --cut, times, aborted--> whole batches as they are | batches of the records that are kept --> the log of a follower
//! ```
//!
//! Offsets, timestamps, headers and producers are kept. The leader's epoch becomes 0, because consumers wait for ever for an epoch that
//! the metadata of another cluster does not have; the checksum does not cover it. Dropped records leave gaps, as compaction does.

use std::collections::HashMap;

use super::log::{PartitionLog, first_control};
use super::new_batch::{CONTROL, NewBatch, TRANSACTIONAL, plain_header, put_headers};
use super::validator::{AppendOptions, Origin};
use super::writer::LogWriter;
use crate::error::{Error, Result};
use crate::io::signals;
use crate::kafka::format::batch_cursor::BatchCursor;
use crate::kafka::format::codec::Codec;
use crate::kafka::format::control_record::ControlType;
use crate::kafka::format::header::{Header, TimestampType};
use crate::kafka::format::record::{Span, Wants, field, unreadable_headers};
use crate::kafka::read::producer_state::ProducerState;
use crate::kafka::read::record_filter::KeyFilter;
use crate::kafka::read::segment_range::{AbortedRange, SegmentRange};
use crate::kafka::read::valid_batches::ValidBatches;
use crate::report::{Finding, Flaw};
use crate::time_range::TimeRange;

/// Bytes that are appended together.
const CHUNK: usize = 1 << 20;
/// Bytes between two calls that show the progress.
const PROGRESS: u64 = 16 << 20;
/// The epoch of all batches of a copy.
const EPOCH: i32 = 0;

/// The transactions of a log up to a moment.
#[derive(Debug, Default)]
pub struct Transactions {
    /// The first offset that was stored after the moment; `None`: none.
    pub cut: Option<i64>,
    /// Aborted ones, by their markers.
    pub aborted: Vec<AbortedRange>,
    /// Open ones, with the epochs of their producers.
    pub open: Vec<(AbortedRange, i16)>,
    /// Producers and epochs of the markers of committed ones.
    pub committed: Vec<(i64, i16)>,
}

/// The result of a copy.
#[derive(Debug, Default)]
pub struct Copied {
    /// Records that were copied.
    pub records: u64,
    /// Batches that were copied whole.
    pub whole_batches: u64,
    /// Batches of which some records were copied.
    pub encoded_batches: u64,
    /// Bytes that were appended.
    pub bytes: u64,
    /// An id above those of all producers.
    pub next_producer_id: i64,
    /// Damage that was skipped.
    pub findings: Vec<Finding>,
    /// As of [`Transactions`].
    pub committed: Vec<(i64, i16)>,
}

/// Reads batches up to the first record with a timestamp above `as_of`.
struct Cutter {
    as_of: i64,
    cut: Option<i64>,
    cursor: BatchCursor,
    committed: Vec<(i64, i16)>,
}

impl Cutter {
    fn new(ranges: &[SegmentRange], as_of: i64) -> Self {
        let most = ranges.iter().map(|range| range.segment.options().max_batch_bytes).max();
        Self { as_of, cut: None, cursor: BatchCursor::new(most.unwrap_or(0)), committed: Vec::new() }
    }

    /// Finds the cut in a batch; false if there is nothing of the batch before it.
    fn look(&mut self, header: &Header, batch: &[u8]) -> std::result::Result<bool, Flaw> {
        if header.max_timestamp > self.as_of {
            if header.timestamp_type() == TimestampType::LogAppend && !header.is_legacy() {
                self.cut = Some(header.base_offset);
            } else {
                let (as_of, cut) = (self.as_of, &mut self.cut);
                self.cursor.each(header, batch, Wants::Times, |span, _| {
                    *cut = (span.timestamp > as_of).then_some(shifted(header, span));
                    cut.is_none()
                })?;
            }
        }
        Ok(self.cut.is_none_or(|cut| cut > header.base_offset || header.is_legacy()))
    }

    /// Returns whether a marker aborts a transaction; `None` for other batches.
    fn marker(&mut self, header: &Header, batch: &[u8]) -> Result<Option<bool>> {
        let kind = first_control(&mut self.cursor, header, batch)?.map(|(record, _)| record.kind);
        if kind == Some(ControlType::Commit) {
            self.committed.push((header.producer_id, header.producer_epoch));
        }
        Ok(match kind {
            Some(ControlType::Abort) => Some(true),
            Some(ControlType::Commit) => Some(false),
            _ => None,
        })
    }
}

/// The offset of a record, if the bytes of its batch have a wrong base offset.
fn shifted(header: &Header, span: &Span) -> i64 {
    if header.is_legacy() { span.offset } else { header.base_offset + i64::from(span.delta) }
}

impl Transactions {
    /// Reads the transactions of ranges of a log, up to the first record with a timestamp above `as_of`.
    ///
    /// # Errors
    /// `Corrupt` for a marker that cannot be read; an I/O error.
    pub fn before(ranges: &[SegmentRange], as_of: i64) -> Result<Self> {
        let (mut cutter, mut found) = (Cutter::new(ranges, as_of), Self::default());
        let (mut state, mut epochs, mut bytes) = (ProducerState::default(), HashMap::new(), 0);
        let of = |producer_id, first_offset, last_offset| AbortedRange { producer_id, first_offset, last_offset };
        ValidBatches::new(ranges).each(|number, header, batch| {
            bytes += batch.len();
            if bytes >= CHUNK
                && let Some(range) = ranges.get(number)
            {
                bytes = 0;
                signals::look().map_err(|e| Error::io(range.segment.path(), e))?;
            }
            // The copy names a batch whose records cannot be read.
            if !cutter.look(header, batch).unwrap_or(true) {
                return Ok(false);
            }
            if header.is_control() {
                if let Some(is_abort) = cutter.marker(header, batch)?
                    && let Some(ended) = state.marker(header.producer_id, header.base_offset, is_abort)
                {
                    found.aborted.push(of(ended.producer_id, ended.first_offset, ended.last_offset));
                }
            } else if header.is_transactional() {
                state.data(header, header.base_offset);
                epochs.insert(header.producer_id, header.producer_epoch);
            }
            Ok(cutter.cut.is_none())
        })?;
        for (first_offset, producer_id) in state.open_transactions() {
            let epoch = epochs.get(&producer_id).copied().unwrap_or(-1);
            found.open.push((of(producer_id, first_offset, i64::MAX), epoch));
        }
        (found.cut, found.committed) = (cutter.cut, cutter.committed);
        Ok(found)
    }
}

/// The state of a copy.
struct Copying<'a> {
    writer: &'a LogWriter,
    times: TimeRange,
    keys: Option<&'a KeyFilter>,
    now: i64,
    cutter: Cutter,
    /// Batches that are not appended yet.
    chunk: Vec<u8>,
    copied: Copied,
}

impl LogWriter {
    /// Appends the records of ranges of another log that have timestamps in a range of times and one of the keys, up to the first one
    /// with a timestamp above `as_of`, without those of the aborted transactions of the ranges. Segments begin where those of the ranges begin.
    /// `progress` gets the bytes that were read.
    ///
    /// # Errors
    /// As [`Self::append_batches`]; that of `progress`; an I/O error.
    pub fn copy(
        &self,
        ranges: &[SegmentRange],
        times: TimeRange,
        keys: Option<&KeyFilter>,
        as_of: i64,
        now: i64,
        progress: &dyn Fn(u64) -> Result<()>,
    ) -> Result<Copied> {
        let cutter = Cutter::new(ranges, as_of);
        let mut copying =
            Copying { writer: self, times, keys, now, cutter, chunk: Vec::new(), copied: Copied::default() };
        let (mut batches, mut damaged) = (ValidBatches::new(ranges), Vec::new());
        let (mut current, mut read, mut shown) = (0, 0, 0);
        batches.each(|number, header, batch| {
            let Some(range) = ranges.get(number) else { return Ok(false) };
            read += batch.len() as u64;
            if read - shown >= PROGRESS {
                shown = read;
                progress(read)?;
            }
            if number != current {
                current = number;
                copying.roll()?;
            }
            let goes_on = match copying.take(range, header, batch)? {
                Ok(()) => copying.cutter.cut.is_none(),
                Err(flaw) => {
                    damaged.push(Finding::new(range.segment.path(), header.position, flaw));
                    true
                }
            };
            if copying.chunk.len() >= CHUNK {
                copying.flush()?;
                signals::look().map_err(|e| Error::io(range.segment.path(), e))?;
            }
            Ok(goes_on)
        })?;
        copying.flush()?;
        progress(read)?;
        self.advance_high_watermark(None)?;
        let mut copied = copying.copied;
        copied.committed = copying.cutter.committed;
        copied.findings = batches.findings;
        copied.findings.extend(damaged);
        Ok(copied)
    }

    /// Ends the open transactions, and returns their number: with a commit if the markers of committed ones have the producer and the
    /// epoch after its own, which is that of the same transaction in another partition (`transaction.version` 2); else with an abort.
    ///
    /// # Errors
    /// As [`Self::append_batches`].
    pub fn end_transactions(&self, committed: &[(i64, i16)], timestamp: i64, now: i64) -> Result<usize> {
        let open = self.change(|log| Ok(log.producers.open_transactions()))?;
        for (producer_id, epoch, coordinator_epoch) in &open {
            let is_commit = committed.contains(&(*producer_id, epoch.wrapping_add(1)));
            let options = AppendOptions::of(Origin::Coordinator, EPOCH);
            self.append_batches(
                &marker(*producer_id, *epoch, *coordinator_epoch, is_commit, timestamp)?,
                options,
                now,
            )?;
        }
        self.advance_high_watermark(None)?;
        Ok(open.len())
    }
}

/// Source: `MemoryRecords#withEndTransactionMarker`.
fn marker(id: i64, epoch: i16, coordinator_epoch: i32, is_commit: bool, timestamp: i64) -> Result<Vec<u8>> {
    let kind = if is_commit { ControlType::Commit } else { ControlType::Abort };
    let key = [[0, 0], kind.id().to_be_bytes()].concat();
    let value = [&[0, 0][..], &coordinator_epoch.max(0).to_be_bytes()].concat();
    let (mut new, mut out) = (NewBatch::default(), Vec::new());
    new.push(timestamp, Some(&key), Some(&value), (0, &[]));
    let attributes = TRANSACTIONAL | CONTROL;
    let like = Header { attributes, producer_id: id, producer_epoch: epoch, ..plain_header() };
    new.finish(&like, Codec::None, None, &mut out)?;
    Ok(out)
}

impl Copying<'_> {
    fn flush(&mut self) -> Result<()> {
        if !self.chunk.is_empty() {
            let options =
                AppendOptions { has_checksums_compared: true, ..AppendOptions::of(Origin::Replication, EPOCH) };
            self.writer.append_batches(&self.chunk, options, self.now)?;
            self.copied.bytes += self.chunk.len() as u64;
            self.chunk.clear();
        }
        Ok(())
    }

    /// Begins a segment where the last one ends, unless that is empty. A gap between two segments is that of a lost segment.
    fn roll(&mut self) -> Result<()> {
        self.flush()?;
        let now = self.now;
        self.writer.change(|log: &mut PartitionLog| if log.active()?.size > 0 { log.roll(0, now) } else { Ok(()) })
    }

    /// Takes what is wanted of a batch, or returns what is wrong with its records.
    fn take(&mut self, range: &SegmentRange, header: &Header, batch: &[u8]) -> Result<std::result::Result<(), Flaw>> {
        match self.cutter.look(header, batch) {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(())),
            Err(flaw) => return Ok(Err(flaw)),
        }
        let is_straddling = header.base_offset < range.begin_offset || self.cutter.cut.is_some();
        if header.is_control() {
            self.cutter.marker(header, batch)?;
            let is_first = self.copied.bytes == 0 && self.chunk.is_empty();
            // Markers before the first record end nothing.
            if !(is_straddling || (is_first && self.times.begin_ms > i64::MIN)) {
                self.push(header, batch, 0);
            }
            return Ok(Ok(()));
        }
        let is_out = header.max_timestamp < self.times.begin_ms && header.timestamp_type() != TimestampType::None;
        if is_out || range.is_aborted(header) {
            return Ok(Ok(()));
        }
        if !is_straddling && self.times.is_all() && self.keys.is_none() {
            return Ok(self.count(header, batch).map(|records| self.push(header, batch, records)));
        }
        let end = self.cutter.cut.unwrap_or(i64::MAX);
        self.take_some(header, batch, range.begin_offset, end)
    }

    /// Returns the number of records.
    fn count(&mut self, header: &Header, batch: &[u8]) -> std::result::Result<u64, Flaw> {
        if let Some(count) = header.count.and_then(|count| u64::try_from(count).ok()) {
            return Ok(count);
        }
        let mut records = 0;
        self.cutter.cursor.each(header, batch, Wants::Times, |_, _| {
            records += 1;
            true
        })?;
        Ok(records)
    }

    /// Appends a batch as it is.
    fn push(&mut self, header: &Header, batch: &[u8], records: u64) {
        let begin = self.chunk.len();
        self.chunk.extend(batch);
        if let Some(bytes) = self.chunk.get_mut(begin..).filter(|_| !header.is_legacy()) {
            Header { leader_epoch: EPOCH, ..*header }.write_uncovered(bytes);
        }
        self.copied.records += records;
        self.copied.whole_batches += 1;
        self.copied.next_producer_id = self.copied.next_producer_id.max(header.producer_id.saturating_add(1));
    }

    /// Appends the records of some offsets, and of the times and keys, as a new batch; the whole batch if these are all of them. Offsets that are
    /// dropped at an end of the batch are no longer of it; in the middle they leave gaps.
    fn take_some(
        &mut self,
        header: &Header,
        batch: &[u8],
        begin: i64,
        end: i64,
    ) -> Result<std::result::Result<(), Flaw>> {
        let (times, keys) = (self.times, self.keys);
        let keeps = |span: &Span, bytes: &[u8]| {
            let offset = shifted(header, span);
            begin <= offset
                && offset < end
                && (times.begin_ms..=times.end_ms).contains(&span.timestamp)
                && keys.is_none_or(|keys| keys.matches(span, bytes).unwrap_or(false))
        };
        let (mut kept, mut all, mut has_headers) = (0, 0, true);
        let counted = self.cutter.cursor.each(header, batch, Wants::All, |span, bytes| {
            has_headers &= header.is_legacy() || span.each_header(bytes, |_, _| ()).is_some();
            kept += u64::from(keeps(span, bytes));
            all += 1;
            true
        });
        if let Err(flaw) = counted.and_then(|()| has_headers.then_some(()).ok_or_else(unreadable_headers)) {
            return Ok(Err(flaw));
        }
        if kept == all {
            self.push(header, batch, kept);
            return Ok(Ok(()));
        }
        let codec = match header.codec() {
            Ok(codec) => codec,
            Err(flaw) => return Ok(Err(flaw)),
        };
        if kept == 0 {
            return Ok(Ok(()));
        }
        let base = if header.is_legacy() { i64::MIN } else { header.base_offset.max(begin) };
        let (mut new, mut headers, mut first, mut last) = (NewBatch::default(), Vec::new(), base, 0);
        let read = self.cutter.cursor.each(header, batch, Wants::All, |span, bytes| {
            if keeps(span, bytes) {
                last = shifted(header, span);
                first = if first == i64::MIN { last } else { first };
                let count = put_headers(&mut headers, header, span, bytes);
                let (key, value) = (field(span.key, bytes), field(span.value, bytes));
                new.push_at(last - first, span.timestamp, key, value, (count, &headers));
            }
            true
        });
        if let Err(flaw) = read {
            return Ok(Err(flaw));
        }
        let dropped = i32::try_from(first - header.base_offset).unwrap_or(0);
        let like = Header {
            base_offset: first,
            last_offset: if header.is_legacy() { last } else { header.last_offset.min(end - 1) },
            base_sequence: header.sequence(dropped),
            leader_epoch: EPOCH,
            ..*header
        };
        new.finish_up_to(&like, codec, None, &mut self.chunk)?;
        self.copied.records += kept;
        self.copied.encoded_batches += 1;
        self.copied.next_producer_id = self.copied.next_producer_id.max(header.producer_id.saturating_add(1));
        Ok(Ok(()))
    }
}
