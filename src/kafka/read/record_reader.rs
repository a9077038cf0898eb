//! The records of segments as record batches.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::batch_order::{BatchOrder, lowest_offset};
use super::record_builder::{Owner, RecordBuilder};
use super::record_columns::Column;
use super::record_filter::{KeyFilter, RecordFilter};
use super::segment_range::SegmentRange;
use super::segment_reader::{OnError, SegmentRows, Step, UnreadOffsets};
use super::walk::{Reads, Tail, Walk, undecodable};
use crate::batch_size::BatchSize;
use crate::error::{Error, Result};
use crate::io::FileSource;
use crate::kafka::format::batch_cursor::{BatchCursor, CHUNK};
use crate::kafka::format::header::Header;
use crate::kafka::format::record::{self, Span, Wants};
use crate::matcher::Matcher;
use crate::report::{Finding, Flaw, Kind};
use crate::time_range::TimeRange;

/// Which records to read, and how.
#[derive(Clone, Debug)]
pub struct RecordScan {
    /// Only records of these times.
    pub times: TimeRange,
    /// Only records that carry one of these keys; `None`: all.
    pub keys: Option<KeyFilter>,
    /// Only records at these offsets, in any order; `None`: all.
    pub offsets: Option<Vec<i64>>,
    /// Only records in which this pattern is searched with success; `None`: all.
    pub matcher: Option<Matcher>,
    /// Columns, in this order.
    pub columns: Vec<Column>,
    /// The size of a record batch.
    pub batch_size: BatchSize,
    /// Keys and values are views: where a batch is not compressed and every record is wanted, of the bytes that were read.
    pub views: bool,
    /// Include control records.
    pub control: bool,
    /// Compare checksums.
    pub check_crc: bool,
    /// The reaction to damage.
    pub on_error: OnError,
    /// Threads that read and decode local segments; with 1 the caller's own.
    pub threads: usize,
}

impl Default for RecordScan {
    /// The first columns of all records, by the caller's thread; damage is an error.
    fn default() -> Self {
        Self {
            times: TimeRange::ALL,
            keys: None,
            offsets: None,
            matcher: None,
            columns: Column::by_default(),
            batch_size: BatchSize::default(),
            views: false,
            control: false,
            check_crc: true,
            on_error: OnError::Raise,
            threads: 1,
        }
    }
}

/// A selective reader returns a batch after it has read this many bytes, even an empty one, so that the caller can stop.
const BYTES_PER_BATCH: u64 = 256 * 1024 * 1024;

/// As [`BYTES_PER_BATCH`], if a pattern is searched: to decompress and to search takes longer.
const SEARCHED_PER_BATCH: u64 = 32 * 1024 * 1024;

/// The range that is being read.
#[derive(Debug)]
struct Current {
    range: SegmentRange,
    owner: Arc<Owner>,
    source: FileSource,
    /// The batch that is being read.
    batch: Option<Header>,
    order: BatchOrder,
    /// Position of the batch before, if it begins at or above the end offset.
    beyond: Option<u64>,
    /// The fault of the last bytes that could not be decoded.
    undecodable: Option<Flaw>,
    /// The offset after the last batch that was read or skipped.
    next: i64,
    /// The value of `next` before this last batch.
    next_before: i64,
    /// Damage after which no valid batch was found yet.
    damaged: Option<Damaged>,
}

/// Damage in a range.
#[derive(Clone, Copy, Debug)]
struct Damaged {
    /// The first offset that the damage hides.
    begin_offset: i64,
    /// Byte offset in the log where the damage starts.
    position: u64,
}

impl Current {
    fn new(range: SegmentRange, source: FileSource) -> Self {
        let owner = Arc::new(Owner { topic: range.topic.clone(), partition: range.partition });
        let base = range.segment.base_offset();
        let next = range.begin_offset.max(base);
        Self {
            range,
            owner,
            source,
            batch: None,
            order: BatchOrder::new(base),
            beyond: None,
            undecodable: None,
            next,
            next_before: next,
            damaged: None,
        }
    }

    /// Records damage at a byte offset, unless no valid batch was found since earlier damage.
    fn note_damage(&mut self, position: u64) {
        self.damaged.get_or_insert(Damaged { begin_offset: self.next, position });
    }

    /// Records a batch whose offsets do not fit its position: damage changed them, or those of the previous batch.
    fn note_misplaced(&mut self, header: &Header) -> Option<UnreadOffsets> {
        let first = lowest_offset(header);
        // The last batch may have stated too many offsets, or a batch with too high offsets was skipped.
        let begin_offset = [self.next, self.next_before].into_iter().find(|offset| *offset <= first);
        let Some(begin_offset) = begin_offset.filter(|_| self.order.is_in_range(header)) else {
            self.note_damage(header.position);
            return None;
        };
        (self.next, self.next_before) = (first, begin_offset);
        self.damaged = None;
        self.unread(begin_offset, first, u64::from(header.size))
    }

    /// Records a valid batch, which ends earlier damage. Returns the offsets that the damage hides.
    fn note_valid(&mut self, header: &Header) -> Option<UnreadOffsets> {
        let damaged = self.damaged.take_if(|damaged| damaged.position < header.position)?;
        let end = lowest_offset(header).min(self.range.end_offset);
        self.unread(damaged.begin_offset, end, header.position - damaged.position)
    }

    /// Records that a batch was read or skipped.
    fn pass(&mut self, header: &Header) {
        let end = header.last_offset.saturating_add(1);
        if end > self.next {
            (self.next_before, self.next) = (self.next, end);
        }
    }

    /// Returns the offsets that damage at the end of the range hides. `position` is the byte offset at which the reader stopped.
    fn end(&mut self, position: u64) -> Option<UnreadOffsets> {
        let damaged = self.damaged.take()?;
        let bytes = position.saturating_sub(damaged.position);
        self.unread(damaged.begin_offset, self.range.end_offset, bytes)
    }

    fn unread(&self, begin_offset: i64, end_offset: i64, bytes: u64) -> Option<UnreadOffsets> {
        let owner = &self.owner;
        let unread = || UnreadOffsets {
            topic: owner.topic.clone(),
            partition: owner.partition,
            begin_offset,
            end_offset,
            bytes,
        };
        (begin_offset < end_offset).then(unread)
    }
}

/// The batches of a range, once it was left.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passed {
    /// The lowest offset of the first batch.
    pub(super) first: Option<i64>,
    /// The last offset of the batches in order.
    pub(super) last: Option<i64>,
    /// The offsets of the range ended before its bytes.
    pub(super) is_complete: bool,
    /// The last batch begins at or above the end offset. Only the batch after it would tell if its offset is damaged.
    pub(super) is_beyond: bool,
}

/// A walk over ranges of segments that collects their records. Files are open only while they are read.
#[derive(Debug)]
pub(super) struct RecordRows {
    /// The ranges to read; those after them only tell where segments end.
    most: usize,
    passed: Passed,
    ranges: std::iter::Peekable<std::vec::IntoIter<SegmentRange>>,
    /// The missing parts of the log, each with the number of the range after it; in their order.
    missing: std::iter::Peekable<std::vec::IntoIter<(usize, Finding)>>,
    begun: usize,
    scan: RecordScan,
    filter: RecordFilter,
    wants: Wants,
    /// A batch is returned after this many bytes, and when so many were read.
    pause_every: u64,
    pause_at: u64,
    current: Option<Current>,
    walk: Walk,
    cursor: BatchCursor,
    /// Records of the current batch that are not in the columns yet.
    spans: Vec<Span>,
    /// All records of the current batch are in `spans` or in the columns.
    decoded: bool,
    /// The fault after the records in `spans`.
    flaw: Option<Flaw>,
    builder: RecordBuilder,
    findings: Vec<Finding>,
    damage: Vec<Finding>,
    unread: Vec<UnreadOffsets>,
}

impl RecordRows {
    pub(super) fn new(
        ranges: Vec<SegmentRange>,
        missing: Vec<(usize, Finding)>,
        scan: RecordScan,
        filter: RecordFilter,
    ) -> Self {
        let builder = RecordBuilder::new(&scan.columns, scan.views, scan.batch_size.bytes);
        let pause_every = match (filter.is_search(), filter.is_selective()) {
            (true, _) => SEARCHED_PER_BATCH,
            (false, true) => BYTES_PER_BATCH,
            (false, false) => u64::MAX,
        };
        Self {
            most: usize::MAX,
            passed: Passed::default(),
            ranges: ranges.into_iter().peekable(),
            missing: missing.into_iter().peekable(),
            begun: 0,
            wants: if filter.wants_fields() { Wants::All } else { builder.wants() },
            pause_every,
            pause_at: pause_every,
            builder,
            filter,
            scan,
            current: None,
            walk: Walk::new(Reads::Whole, 0, 0),
            cursor: BatchCursor::new(0),
            spans: Vec::with_capacity(CHUNK),
            decoded: false,
            flaw: None,
            findings: Vec::new(),
            damage: Vec::new(),
            unread: Vec::new(),
        }
    }

    /// Reads the first of these ranges from now on, and ends then. The memory of the read before is used again.
    pub(super) fn restart_with_first(&mut self, ranges: Vec<SegmentRange>) {
        let next = Self { most: 1, ..Self::new(ranges, Vec::new(), self.scan.clone(), self.filter.clone()) };
        let before = std::mem::replace(self, next);
        // A read that was given up leaves rows.
        if before.builder.rows() == 0 {
            self.builder = before.builder;
        }
        self.cursor = before.cursor;
        self.walk.window = before.walk.window;
        self.walk.window.bytes_read = 0;
    }

    /// The batches of the range that was left last.
    pub(super) fn passed(&self) -> Passed {
        self.passed
    }
}

impl SegmentRows for RecordRows {
    fn step(&mut self) -> Result<Step> {
        if self.bytes_read() >= self.pause_at {
            self.pause_at = self.bytes_read().saturating_add(self.pause_every);
            return Ok(Step::Full);
        }
        let Some(current) = &mut self.current else { return self.next_range() };
        if let Some(header) = current.batch {
            return self.read_batch(&header);
        }
        let path = current.range.segment.path();
        match self.walk.next(&current.source).map_err(|e| Error::io(path, e))? {
            Ok(header) => self.enter_batch(&header)?,
            Err(tail) => self.leave_range(&tail)?,
        }
        Ok(Step::Continue)
    }

    fn rows(&self) -> usize {
        self.builder.rows()
    }

    fn take(&mut self) -> RecordBatch {
        self.builder.take()
    }

    fn schema(&self) -> SchemaRef {
        self.builder.schema()
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }

    fn damage(&self) -> &[Finding] {
        &self.damage
    }

    fn unread(&self) -> &[UnreadOffsets] {
        &self.unread
    }

    fn position(&self) -> u64 {
        self.walk.at
    }

    fn bytes_read(&self) -> u64 {
        self.walk.window.bytes_read
    }
}

impl RecordRows {
    fn next_range(&mut self) -> Result<Step> {
        let number = self.begun;
        if let Some((_, finding)) = self.missing.next_if(|(next, _)| *next <= number) {
            self.report(finding)?;
            return Ok(Step::Continue);
        }
        self.begun += 1;
        let Some(range) = self.ranges.next().filter(|_| number < self.most) else { return Ok(Step::End) };
        let segment = &range.segment;
        let source = segment.open_source()?;
        let begin = range.begin(self.scan.times)?;
        let end = range.end_position.unwrap_or(u64::MAX).min(segment.len());
        self.walk.restart(begin, end);
        self.cursor.limit(segment.options().max_batch_bytes);
        self.passed = Passed::default();
        self.current = Some(Current::new(range, source));
        Ok(Step::Continue)
    }

    /// Reports bytes that cannot be decoded, and goes on after them where the offset index leads to a batch.
    fn pass_over(&mut self, mut current: Current, flaw: &Flaw) -> Result<()> {
        let segment = Arc::clone(&current.range.segment);
        current.note_damage(self.walk.at);
        // Several entries may lead to the same damage.
        if current.undecodable.as_ref() != Some(flaw) {
            self.report(Finding::new(segment.path(), self.walk.at, flaw.clone()))?;
            current.undecodable = Some(flaw.clone());
        }
        if self.scan.on_error == OnError::Skip
            && let Some(position) = segment.indexed_position_after(self.walk.at).filter(|at| *at < self.walk.end)
        {
            self.walk.restart(position, self.walk.end);
            self.current = Some(current);
        } else {
            self.unread.extend(current.end(self.walk.end));
        }
        Ok(())
    }

    /// Leaves the range at a byte offset, and records the offsets that damage at its end hides.
    fn leave(&mut self, position: u64) {
        if let Some(mut current) = self.current.take() {
            self.unread.extend(current.end(position));
        }
    }

    fn leave_range(&mut self, tail: &Tail) -> Result<()> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        self.passed.is_beyond = current.beyond.is_some();
        if let Tail::Undecodable(flaw) = tail {
            return self.pass_over(current, flaw);
        }
        let next_base = self.next_base(&current.range);
        let Some(flaw) = tail.flaw() else { return self.check_last_batch(current, next_base) };
        // A byte range of the caller may end inside a batch.
        if current.range.end_position.is_some() && tail.is_expected() {
            self.unread.extend(current.end(self.walk.at));
            return Ok(());
        }
        // A broker was writing the last segment of a partition, and no other.
        let is_last = next_base.is_none() && current.range.end_position.is_none();
        let finding = Finding::new(current.range.segment.path(), self.walk.at, flaw);
        if is_last && tail.is_expected_by(current.range.segment.options().compat) {
            self.unread.extend(current.end(self.walk.at));
            self.findings.push(finding);
            return Ok(());
        }
        current.note_damage(self.walk.at);
        self.unread.extend(current.end(self.walk.end));
        self.report(finding)
    }

    /// Raises a finding or notes it, by the options of the scan.
    fn report(&mut self, finding: Finding) -> Result<()> {
        match self.scan.on_error {
            OnError::Raise => Err(finding.into()),
            OnError::Skip | OnError::Stop => {
                self.damage.push(finding.clone());
                self.findings.push(finding);
                Ok(())
            }
        }
    }

    /// Reports a last batch of the segment that begins at or above the next segment, so that it was not read.
    fn check_last_batch(&mut self, mut current: Current, next_base: Option<i64>) -> Result<()> {
        let misplaced = current.beyond.zip(next_base);
        if let Some((position, _)) = misplaced {
            current.note_damage(position);
        }
        self.unread.extend(current.end(self.walk.at));
        let Some((position, next_base)) = misplaced else { return Ok(()) };
        let expected = format_args!("offsets below {next_base}, where the next segment begins").to_string();
        let last = current.order.last().unwrap_or(i64::MAX);
        let flaw = Flaw::new(Kind::BatchOffset, expected, last);
        self.report(Finding::new(current.range.segment.path(), position, flaw))
    }

    /// Returns the base offset of the next segment of the same partition, if that is read as well.
    fn next_base(&mut self, range: &SegmentRange) -> Option<i64> {
        let next = self.ranges.peek()?;
        let base = next.segment.base_offset();
        let same = next.topic == range.topic && next.partition == range.partition;
        let follows = same && base > range.segment.base_offset();
        follows.then_some(base)
    }

    /// Reports the fault of a batch, and leaves it, or the whole segment if the options of the scan require it.
    fn refuse(&mut self, header: &Header, flaw: Flaw) -> Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        current.note_damage(header.position);
        self.refuse_noted(header, flaw)
    }

    fn refuse_noted(&mut self, header: &Header, flaw: Flaw) -> Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        current.batch = None;
        let finding = Finding::new(current.range.segment.path(), header.position, flaw);
        self.report(finding)?;
        if let (OnError::Stop, Some(current)) = (self.scan.on_error, &mut self.current) {
            current.note_damage(header.position);
            self.leave(self.walk.end);
        }
        Ok(())
    }

    /// Opens a batch if it may have wanted records.
    fn enter_batch(&mut self, header: &Header) -> Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let segment = Arc::clone(&current.range.segment);
        let options = segment.options();
        let misplaced = current.order.check(header).filter(|_| options.compat.is_none());
        self.passed.first.get_or_insert(lowest_offset(header));
        self.passed.last = current.order.last();
        if let Some(flaw) = misplaced {
            self.unread.extend(current.note_misplaced(header));
            self.refuse_noted(header, flaw)?;
        }
        if self.is_beyond(header) {
            return Ok(());
        }
        let Some(current) = &mut self.current else { return Ok(()) };
        let range = &current.range;
        if header.last_offset < range.begin_offset || header.max_timestamp < self.scan.times.begin_ms {
            self.unread.extend(current.note_valid(header));
            current.pass(header);
            return Ok(());
        }
        if let Err(flaw) = header.check_size(options.max_batch_bytes) {
            return self.refuse(header, flaw);
        }
        let batch = match self.walk.batch(&current.source, header) {
            Ok(batch) => batch,
            Err(error) => {
                let flaw = undecodable(error).map_err(|e| Error::io(segment.path(), e))?;
                // The next batch may begin in the same damage.
                current.undecodable = Some(flaw.clone());
                return self.refuse(header, flaw);
            }
        };
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
        if hidden || range.is_aborted(header) {
            self.unread.extend(current.note_valid(header));
            current.pass(header);
            current.batch = None;
            self.leave_at_end(header);
            return Ok(());
        }
        match self.cursor.begin(header, batch) {
            Ok(()) => {
                self.unread.extend(current.note_valid(header));
                self.builder.begin_run(&current.owner, header);
                current.batch = Some(*header);
                self.spans.clear();
                (self.decoded, self.flaw) = (false, None);
                Ok(())
            }
            Err(flaw) => self.refuse(header, flaw),
        }
    }

    /// Returns whether a batch begins at or above the end offset. The range ends at the second such batch in a row: the base
    /// offset of the first may be damaged, and then the batch after it is out of order.
    fn is_beyond(&mut self, header: &Header) -> bool {
        let Some(current) = &mut self.current else { return true };
        let end = current.range.end_offset;
        let beyond = !header.is_legacy() && end < i64::MAX && header.base_offset >= end;
        let before = std::mem::replace(&mut current.beyond, beyond.then_some(header.position));
        if beyond && before.is_some() {
            self.passed.is_complete = true;
            self.leave(header.position);
        }
        beyond
    }

    fn finish_batch(&mut self, header: &Header) {
        if let Some(current) = &mut self.current {
            current.pass(header);
            current.batch = None;
        }
        self.leave_at_end(header);
    }

    /// End the range if all batches after this one are at or above the end offset.
    fn leave_at_end(&mut self, header: &Header) {
        let end = self.current.as_ref().map_or(i64::MAX, |current| current.range.end_offset);
        if end < i64::MAX && end <= header.last_offset.saturating_add(1) {
            self.passed.is_complete = true;
            self.leave(self.walk.at);
        }
    }

    /// Go on with the records of the current batch.
    fn read_batch(&mut self, header: &Header) -> Result<Step> {
        let Some(current) = &mut self.current else { return Ok(Step::Continue) };
        if self.builder.rows() == 0 {
            self.builder.begin_run(&current.owner, header);
        }
        let failed = |e| Error::io(current.range.segment.path(), e);
        // A few records would hold the memory of many.
        let lends = self.scan.views && !self.cursor.is_decoded() && !self.filter.is_selective();
        let lent = lends.then(|| self.walk.lend(&current.source, header)).transpose().map_err(failed)?;
        let batch = self.walk.batch(&current.source, header).map_err(failed)?;
        if self.spans.is_empty() && !self.decoded {
            match self.cursor.fill(header, batch, self.wants, CHUNK, &mut self.spans) {
                Ok(ended) => self.decoded = ended,
                Err(flaw) => {
                    self.decoded = true;
                    self.flaw = Some(flaw);
                }
            }
            if !self.filter.retain(&current.range, &mut self.spans, self.cursor.bytes(batch)) {
                self.spans.clear();
                (self.decoded, self.flaw) = (true, Some(record::unreadable_headers()));
            }
        }
        let rows = self.spans.len().min(self.scan.batch_size.rows - self.builder.rows());
        let fitting = self.builder.room_for(self.spans.get(..rows).unwrap_or_default());
        let taken = self.spans.get(..fitting).unwrap_or_default();
        if !self.builder.append(taken, self.cursor.bytes(batch), lent.as_ref(), header) {
            let flaw = record::unreadable_headers();
            self.spans.clear();
            (self.decoded, self.flaw) = (true, Some(flaw));
        }
        self.spans.drain(..fitting.min(self.spans.len()));
        if self.spans.is_empty() && self.decoded {
            match self.flaw.take() {
                Some(flaw) => self.refuse(header, flaw)?,
                None => self.finish_batch(header),
            }
        }
        Ok(if fitting == rows { Step::Continue } else { Step::Full })
    }
}
