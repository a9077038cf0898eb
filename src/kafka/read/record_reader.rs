//! Records of segments as a stream of record batches.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};

use super::batch_order::BatchOrder;
use super::lookup::too_large;
use super::record_builder::{Owner, RecordBuilder};
use super::record_columns::Column;
use super::segment_range::SegmentRange;
use super::walk::{Reads, Tail, Walk};
use crate::error::{Error, Result};
use crate::io::{FileSource, ReadAt};
use crate::kafka::finding::{Finding, Flaw, Kind, OnError};
use crate::kafka::format::batch_cursor::{BatchCursor, CHUNK};
use crate::kafka::format::header::Header;
use crate::kafka::format::record::Span;
use crate::time_range::TimeRange;

/// What to read.
#[derive(Clone, Debug)]
pub struct RecordScan {
    /// Records of these times.
    pub times: TimeRange,
    /// Columns in this order.
    pub columns: Vec<Column>,
    /// Rows of a batch; it ends earlier at 64 MiB.
    pub batch_size: usize,
    /// Markers of the broker as well.
    pub control: bool,
    /// Compare checksums.
    pub check_crc: bool,
    /// What to do at damage.
    pub on_error: OnError,
}

/// The part that is being read.
#[derive(Debug)]
struct Current {
    part: SegmentRange,
    owner: Arc<Owner>,
    source: FileSource,
    /// The batch that is being read.
    batch: Option<Header>,
    order: BatchOrder,
    /// Where the batch before lies, if it begins behind what is wanted.
    beyond: Option<u64>,
}

/// A walk over parts of segments that gives record batches. Files are open only while they are read.
#[derive(Debug)]
pub struct RecordReader {
    parts: std::iter::Peekable<std::vec::IntoIter<SegmentRange>>,
    scan: RecordScan,
    current: Option<Current>,
    walk: Walk,
    cursor: BatchCursor,
    /// Records that were read and are not in the columns yet; all of the batch was read; what is wrong behind them.
    spans: Vec<Span>,
    read: bool,
    flaw: Option<Flaw>,
    builder: RecordBuilder,
    findings: Vec<Finding>,
    /// What ends the reading, once the rows before it are taken.
    pending: Option<Error>,
    ended: bool,
}

impl RecordReader {
    /// Reads these parts, in their order.
    ///
    /// # Errors
    /// `InvalidArgument` when `batch_size` is 0.
    pub fn new(parts: Vec<SegmentRange>, scan: RecordScan) -> Result<Self> {
        if scan.batch_size == 0 {
            return Err(Error::InvalidArgument("batch_size is 1 or more, not 0".to_owned()));
        }
        Ok(Self {
            parts: parts.into_iter().peekable(),
            builder: RecordBuilder::new(&scan.columns),
            scan,
            current: None,
            walk: Walk::new(Reads::Whole, 0, 0),
            cursor: BatchCursor::new(0),
            spans: Vec::with_capacity(CHUNK),
            read: false,
            flaw: None,
            findings: Vec::new(),
            pending: None,
            ended: false,
        })
    }

    /// What was met and not raised.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Byte offset in the segment at hand, behind the last whole batch.
    pub fn position(&self) -> u64 {
        self.walk.at
    }

    /// Bytes read from logs so far.
    pub fn bytes_read(&self) -> u64 {
        self.walk.window.bytes_read
    }

    /// The next batch; `None` at the end. After an error there is nothing more.
    ///
    /// # Errors
    /// `Corrupt` for what cannot be true, with [`OnError::Raise`]; the system's error.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        while !self.ended && self.builder.rows() < self.scan.batch_size {
            match self.step() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.pending = Some(error);
                    self.ended = true;
                }
            }
        }
        if self.builder.rows() > 0 {
            return Ok(Some(self.builder.take()));
        }
        self.pending.take().map_or(Ok(None), Err)
    }

    /// Does the next thing. False when the columns are full of bytes.
    fn step(&mut self) -> Result<bool> {
        let Some(current) = &mut self.current else {
            self.next_part()?;
            return Ok(true);
        };
        if let Some(header) = current.batch {
            return self.read_batch(&header);
        }
        let path = current.part.segment.path();
        match self.walk.next(&current.source).map_err(|e| Error::io(path, e))? {
            Ok(header) => self.enter_batch(&header)?,
            Err(tail) => self.leave_part(&tail)?,
        }
        Ok(true)
    }

    fn next_part(&mut self) -> Result<()> {
        let Some(part) = self.parts.next() else {
            self.ended = true;
            return Ok(());
        };
        let segment = &part.segment;
        let source = segment.open_source()?;
        let begin = part.begin(self.scan.times)?;
        let end = part.end_position.unwrap_or(u64::MAX).min(segment.len()).min(source.len());
        self.walk.restart(begin, end);
        self.cursor = BatchCursor::new(segment.options().max_batch_bytes);
        let order = BatchOrder::new(segment.base_offset());
        let owner = Arc::new(Owner { topic: part.topic.clone(), partition: part.partition });
        self.current = Some(Current { part, owner, source, batch: None, order, beyond: None });
        Ok(())
    }

    fn leave_part(&mut self, tail: &Tail) -> Result<()> {
        let Some(current) = self.current.take() else { return Ok(()) };
        let next_base = self.next_base(&current.part);
        let Some(flaw) = tail.flaw() else { return self.leave_last(&current, next_base) };
        let finding = Finding::new(current.part.segment.path(), self.walk.at, flaw);
        // The last segment of a partition is the one that a broker was writing.
        let goes_on = next_base.is_some();
        let compat = current.part.segment.options().compat;
        let quiet = tail.is_quiet_in(compat) && !goes_on && current.part.end_position.is_none();
        let slice = current.part.end_position.is_some() && tail.is_quiet();
        match self.scan.on_error {
            // A slice may end inside of a batch.
            _ if slice => Ok(()),
            OnError::Raise if !quiet => Err(finding.into()),
            _ => {
                self.findings.push(finding);
                Ok(())
            }
        }
    }

    /// Says so where the last batch of a segment lies behind the beginning of the next one, so that nothing was read of it.
    fn leave_last(&mut self, current: &Current, next_base: Option<i64>) -> Result<()> {
        let (Some(position), Some(next_base)) = (current.beyond, next_base) else { return Ok(()) };
        let expected = format_args!("offsets below {next_base}, where the next segment begins").to_string();
        let last = current.order.last().unwrap_or(i64::MAX);
        let finding = Finding::new(current.part.segment.path(), position, Flaw::new(Kind::BatchOffset, expected, last));
        if self.scan.on_error == OnError::Raise {
            return Err(finding.into());
        }
        self.findings.push(finding);
        Ok(())
    }

    /// Base offset of the segment that follows in the same partition, where it is to be read, too.
    fn next_base(&mut self, part: &SegmentRange) -> Option<i64> {
        let next = self.parts.peek()?;
        let base = next.segment.base_offset();
        let follows = next.topic == part.topic && next.partition == part.partition && base > part.segment.base_offset();
        follows.then_some(base)
    }

    /// Says what is wrong with a batch; the walk goes on behind it, if it goes on.
    fn refuse(&mut self, header: &Header, flaw: Flaw) -> Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        current.batch = None;
        let finding = Finding::new(current.part.segment.path(), header.position, flaw);
        if self.scan.on_error == OnError::Raise {
            return Err(finding.into());
        }
        self.findings.push(finding);
        if self.scan.on_error == OnError::Stop {
            self.current = None;
        }
        Ok(())
    }

    /// Looks whether the batch that the walk came to has records that are wanted, and opens it then.
    fn enter_batch(&mut self, header: &Header) -> Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let segment = Arc::clone(&current.part.segment);
        let options = segment.options();
        let misplaced = current.order.check(header).filter(|_| options.compat.is_none());
        if let Some(flaw) = misplaced {
            self.refuse(header, flaw)?;
        }
        if self.is_beyond(header) {
            return Ok(());
        }
        let Some(current) = &mut self.current else { return Ok(()) };
        let part = &current.part;
        if header.last_offset < part.begin_offset || header.max_timestamp < self.scan.times.begin_ms {
            return Ok(());
        }
        if header.size as usize > options.max_batch_bytes {
            return self.refuse(header, too_large(header, options.max_batch_bytes));
        }
        let batch = self.walk.batch(&current.source, header).map_err(|e| Error::io(segment.path(), e))?;
        if self.scan.check_crc
            && let Err(flaw) = header.check_crc(batch)
        {
            return self.refuse(header, flaw);
        }
        if header.magic > 2 {
            let flaw = Flaw::new(Kind::BatchMagic, "a magic of 0, 1 or 2", header.magic);
            self.findings.push(Finding::new(segment.path(), header.position, flaw));
        }
        let hidden = header.is_control() && !self.scan.control;
        if hidden || part.is_aborted(header) {
            current.batch = None;
            self.leave_behind(header);
            return Ok(());
        }
        match self.cursor.begin(header, batch) {
            Ok(()) => {
                self.builder.begin_run(&current.owner, header);
                current.batch = Some(*header);
                self.spans.clear();
                (self.read, self.flaw) = (false, None);
                Ok(())
            }
            Err(flaw) => self.refuse(header, flaw),
        }
    }

    /// Passes over a batch that begins behind what is wanted, and leaves the part at the second one in a row: the first may be a
    /// batch whose base offset was damaged, which the one behind it gives away.
    fn is_beyond(&mut self, header: &Header) -> bool {
        let Some(current) = &mut self.current else { return true };
        let end = current.part.end_offset;
        let beyond = !header.is_legacy() && end < i64::MAX && header.base_offset >= end;
        let before = std::mem::replace(&mut current.beyond, beyond.then_some(header.position));
        if beyond && before.is_some() {
            self.current = None;
        }
        beyond
    }

    /// All records of the batch are read.
    fn finish_batch(&mut self, header: &Header) {
        if let Some(current) = &mut self.current {
            current.batch = None;
        }
        self.leave_behind(header);
    }

    /// Leaves the part when nothing that is wanted can come behind this batch.
    fn leave_behind(&mut self, header: &Header) {
        let end = self.current.as_ref().map_or(i64::MAX, |current| current.part.end_offset);
        if end < i64::MAX && end <= header.last_offset.saturating_add(1) {
            self.current = None;
        }
    }

    /// Reads on in the batch that is open. False when the columns are full of bytes.
    fn read_batch(&mut self, header: &Header) -> Result<bool> {
        let Some(current) = &mut self.current else { return Ok(true) };
        if self.builder.rows() == 0 {
            self.builder.begin_run(&current.owner, header);
        }
        let path = current.part.segment.path();
        let batch = self.walk.batch(&current.source, header).map_err(|e| Error::io(path, e))?;
        if self.spans.is_empty() && !self.read {
            match self.cursor.fill(header, batch, self.builder.wants(), CHUNK, &mut self.spans) {
                Ok(ended) => self.read = ended,
                Err(flaw) => {
                    self.read = true;
                    self.flaw = Some(flaw);
                }
            }
            let (begin, end, times) = (current.part.begin_offset, current.part.end_offset, self.scan.times);
            if (begin, end) != (i64::MIN, i64::MAX) || !times.is_all() {
                self.spans.retain(|span| {
                    begin <= span.offset && span.offset < end && times.meets(span.timestamp, span.timestamp)
                });
            }
        }
        let rows = self.spans.len().min(self.scan.batch_size - self.builder.rows());
        let fitting = self.builder.room_for(self.spans.get(..rows).unwrap_or_default());
        let taken = self.spans.get(..fitting).unwrap_or_default();
        if !self.builder.append(taken, self.cursor.bytes(batch), header) {
            let flaw = Flaw::new(Kind::Records, "headers as they are written", "something else");
            self.spans.clear();
            (self.read, self.flaw) = (true, Some(flaw));
        }
        self.spans.drain(..fitting.min(self.spans.len()));
        if self.spans.is_empty() && self.read {
            match self.flaw.take() {
                Some(flaw) => self.refuse(header, flaw)?,
                None => self.finish_batch(header),
            }
        }
        Ok(fitting == rows)
    }
}

impl Iterator for RecordReader {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().map_err(|e| ArrowError::ExternalError(Box::new(e))).transpose()
    }
}

impl RecordBatchReader for RecordReader {
    fn schema(&self) -> SchemaRef {
        self.builder.schema()
    }
}
