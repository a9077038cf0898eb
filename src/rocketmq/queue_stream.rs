//! Reads the messages of chosen consume queues, in the order of the log.
//!
//! The units of one queue are in the order of the log. A unit is confirmed if it refers to a message of its queue. If two
//! adjacent units are confirmed and their queue offsets are consecutive, no message of the queue is missing between them. The
//! rules:
//!
//! - each unit of a plain queue has the queue offset after that of the unit before it;
//! - each unit refers to a higher offset in the log than the unit before it;
//! - each unit whose message is returned refers to a whole message of that topic, queue, queue offset and size;
//! - so do the last unit before the wanted range of the log, unless its message was deleted, and the first unit after the range.
//!
//! Messages are read in steps. A step is returned only up to the offset to which all queues were checked. If a unit is wrong, the
//! stream ends after the last message before which nothing is missing. The caller reads the log from there.
//!
//! With several threads each one reads and decodes a share of a step. They run only during a call, and end with it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::thread;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};

use super::commit_log::columns::{self, Column};
use super::commit_log::{BatchBuilder, Bodies, CommitLog, Filter, FramesAt, Row, Search, Wanted};
use super::consume_queue::{Boundary, ConsumeQueue, Kind, Options, each_topic, queues_of};
use crate::batch_size::BatchSize;
use crate::error::{Error, Result};
use crate::io::{Location, i64_of, signals};
use crate::java_text::decode_utf8;
use crate::report::Finding;
use crate::time_range::TimeRange;

/// Maximum number of messages of a step.
const STEP: usize = 8192;
/// Maximum number of message bytes of a step.
const STEP_BYTES: u64 = 8 << 20;
/// A batch may have this many times the bytes of its limit, because messages that do not fit are read again for the next one. Steps are
/// planned by the messages before, so that batches end near the limit.
const OVER: usize = 2;
/// Units to read ahead, of one queue and of all queues together.
const AHEAD: usize = 8192;
const AHEAD_OF_ALL: usize = 1 << 20;
/// Messages that are read and decoded together.
const BLOCK: usize = 64;
/// A share of a step has at least this number of messages, or starting a thread costs more than it saves.
const LEAST_SHARE: usize = 256;
/// Maximum number of reads of a batch queue: each read scans all its units.
const BATCH_READINGS: i64 = 16;

/// Units from which the size of the messages of a queue is estimated.
const UNITS_SAMPLED: i64 = 64;

/// A part of a queue.
#[derive(Debug)]
pub struct QueuePart {
    /// The topic in its messages.
    pub topic: String,
    /// The queue id in its messages.
    pub queue_id: i64,
    /// The queue.
    pub queue: Arc<ConsumeQueue>,
    /// First queue offset.
    pub begin: i64,
    /// Queue offset after the last.
    pub end: i64,
}

impl QueuePart {
    /// Returns the part of a queue that may hold messages of a filter, from their times and queue offsets.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn matching(queue: Arc<ConsumeQueue>, topic: String, queue_id: i64, filter: &Filter) -> Result<Self> {
        let (mut begin, mut end) = queue.bounds()?;
        let TimeRange { begin_ms, end_ms } = filter.times;
        if begin_ms > i64::MIN {
            begin = begin.max(queue.offset_by_time(begin_ms, Boundary::Lower)?);
        }
        if end_ms < i64::MAX {
            end = end.min(queue.offset_by_time(end_ms, Boundary::Upper)?.saturating_add(1));
        }
        let begin = begin.max(*filter.queue_offsets.start());
        let end = end.min(filter.queue_offsets.end().saturating_add(1));
        Ok(Self { topic, queue_id, queue, begin, end })
    }

    /// Returns about how many bytes the messages have, from the first units.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn bytes(&self) -> Result<u64> {
        let (mut bytes, mut units) = (0, 0);
        self.queue.units(self.begin, self.end.min(self.begin.saturating_add(UNITS_SAMPLED)), |unit| {
            bytes += u64::from(unit.unit.size.max(0).cast_unsigned());
            units += 1;
        })?;
        let count = self.end.saturating_sub(self.begin).max(0).cast_unsigned();
        Ok(bytes.checked_div(units).map_or(0, |mean: u64| mean.saturating_mul(count)))
    }
}

/// The range and the columns that a stream reads.
#[derive(Debug)]
pub struct StreamOptions {
    /// No message begins before this offset of the log.
    pub begin_phy_offset: u64,
    /// No message begins at or after this offset of the log.
    pub end_phy_offset: u64,
    /// The columns, in their order.
    pub columns: Vec<Column>,
    /// The content of the body column.
    pub bodies: Bodies,
    /// The size of a batch.
    pub batch_size: BatchSize,
    /// Which of the messages are returned.
    pub filter: Filter,
    /// Number of threads that read and decode, the caller's included.
    pub threads: usize,
}

/// The message as a unit describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unit {
    phy_offset: i64,
    size: i32,
    queue_offset: i64,
}

impl Unit {
    fn wanted(self) -> Wanted {
        let invalid = Wanted { phy_offset: u64::MAX, size: 0 };
        let offset = u64::try_from(self.phy_offset);
        let size = u32::try_from(self.size);
        offset.ok().zip(size.ok()).map_or(invalid, |(phy_offset, size)| Wanted { phy_offset, size })
    }

    /// Offset in the log after the message; 0 for a unit that leads to none.
    fn end(self) -> u64 {
        self.phy_offset.saturating_add(i64::from(self.size)).max(0).cast_unsigned()
    }
}

/// Returns whether a message is the one that a unit of a queue refers to.
fn is_of(row: Option<&Row<'_>>, topic: &str, queue_id: i64, unit: Unit) -> bool {
    row.is_some_and(|Row { frame, .. }| {
        frame.queue_offset() == unit.queue_offset
            && i64::from(frame.queue_id()) == queue_id
            && decode_utf8(frame.topic()) == topic
    })
}

/// The reason why the units of a queue cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    Missing(i64),
    LeadsBack(Unit),
    LeadsElsewhere(Unit),
}

impl Fault {
    fn describe(&self, part: &QueuePart) -> String {
        let place = part.queue.path().display().to_string();
        match self {
            Self::Missing(queue_offset) => format!("{place}: expected unit {queue_offset}, found none"),
            Self::LeadsBack(Unit { queue_offset, phy_offset, .. }) => {
                format!("{place}: unit {queue_offset} leads to offset {phy_offset}, not behind the message before it")
            }
            Self::LeadsElsewhere(Unit { queue_offset, phy_offset, .. }) => {
                format!("{place}: unit {queue_offset} leads to offset {phy_offset}, where its message does not begin")
            }
        }
    }
}

/// A queue and its read position.
struct Cursor {
    part: QueuePart,
    ahead: usize,
    /// Units that were read ahead.
    units: VecDeque<Unit>,
    /// Queue offset to continue from; `end` of the part when all is read.
    next: i64,
    /// Queue offset of the next unit of a plain queue.
    expected: Option<i64>,
    /// The fault after the units that were read ahead.
    fault: Option<Fault>,
    /// The unit before the head.
    before: Option<Unit>,
    /// The last unit that was skipped because its message is before the range.
    skipped: Option<Unit>,
    /// True if the head refers to its message.
    is_checked: bool,
    /// Offset in the log before which no message of the part is missing.
    checked_end: u64,
    /// The fault that ended the walk.
    failed: Option<Fault>,
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("part", &self.part).field("next", &self.next).finish_non_exhaustive()
    }
}

impl Cursor {
    fn new(part: QueuePart, ahead: usize) -> Self {
        let expected = (part.queue.kind() == Kind::Plain).then_some(part.begin);
        let next = part.begin;
        Self {
            part,
            ahead,
            units: VecDeque::new(),
            next,
            expected,
            fault: None,
            before: None,
            skipped: None,
            is_checked: false,
            checked_end: 0,
            failed: None,
        }
    }

    /// Returns the next unit; `None` at the end of the part, and at a fault.
    fn head(&mut self) -> Result<Option<Unit>> {
        while self.units.is_empty() && self.fault.is_none() && self.next < self.part.end {
            self.read_ahead()?;
        }
        let Some(head) = self.units.front().copied() else {
            return Ok(None);
        };
        if self.before.is_some_and(|before| head.phy_offset <= before.phy_offset) {
            self.units.clear();
            self.fault = Some(Fault::LeadsBack(head));
            return Ok(None);
        }
        Ok(Some(head))
    }

    /// Returns the next unit whose message begins at `begin` or after it. The last unit before `begin` is kept to be checked,
    /// unless its message is before `log_begin` and so was deleted.
    fn head_from(&mut self, begin: i64, log_begin: i64) -> Result<Option<Unit>> {
        loop {
            let head = self.head()?;
            let Some(head) = head.filter(|head| head.phy_offset < begin) else {
                return Ok(head);
            };
            self.pop();
            self.skipped = (head.phy_offset >= log_begin).then_some(head);
        }
    }

    fn pop(&mut self) -> Option<Unit> {
        self.before = self.units.pop_front();
        self.is_checked = false;
        self.before
    }

    fn read_ahead(&mut self) -> Result<()> {
        let (first, begin, end) = (self.next, self.part.begin, self.part.end);
        let mut step = i64_of(self.ahead);
        if self.part.queue.kind() == Kind::Batch {
            step = step.max(end.saturating_sub(begin) / BATCH_READINGS + 1);
        }
        let last = end.min(first.saturating_add(step));
        let Self { units, expected, fault, .. } = self;
        self.part.queue.units(first, last, |unit| {
            let queue_offset = unit.base_offset;
            // A batch that begins earlier was read with the units before.
            if fault.is_some() || (queue_offset < first && first > begin) {
                return;
            }
            match expected {
                Some(next) if *next != queue_offset => *fault = Some(Fault::Missing(*next)),
                _ => {
                    *expected = expected.map(|next| next + 1);
                    units.push_back(Unit { phy_offset: unit.unit.phy_offset, size: unit.unit.size, queue_offset });
                }
            }
        })?;
        if let Some(next) = self.expected.filter(|next| *next != last)
            && self.fault.is_none()
        {
            self.fault = Some(Fault::Missing(next));
        }
        self.next = last;
        Ok(())
    }
}

/// A share of the messages of a step. One thread at a time reads and decodes it.
///
/// Messages are decoded when they are read, because they are in the processor's cache then, and their memory is used again for the
/// next ones. The rows are returned only after the whole step was checked.
struct Share {
    /// The messages of one block.
    frames: FramesAt,
    builder: BatchBuilder,
    /// The units, with the numbers of their queues.
    units: Vec<(usize, Unit)>,
    /// True if each unit refers to its message, or an I/O error; `None` if no thread read them.
    outcome: Option<Result<Vec<bool>>>,
    /// Number of units whose messages were decoded.
    decoded: usize,
    /// Rows of this step in `ready` or in the builder.
    rows: usize,
    /// Bytes of this step that were added to the builder.
    bytes: usize,
    /// A batch to be returned before the next one is decoded.
    ready: Option<RecordBatch>,
}

impl Share {
    /// Takes the units of a step.
    fn begin(&mut self, units: &[(usize, Unit)]) {
        self.units = units.to_vec();
        self.outcome = None;
        (self.decoded, self.rows, self.bytes) = (0, 0, 0);
    }

    /// Checks the units of a step, and decodes their messages until a batch is full or a unit does not refer to its message.
    fn read(&mut self, cursors: &[Cursor], rules: &Rules) {
        self.outcome = Some(self.read_units(cursors, rules));
    }

    fn read_units(&mut self, cursors: &[Cursor], rules: &Rules) -> Result<Vec<bool>> {
        let mut outcome = Vec::with_capacity(self.units.len());
        let mut is_right = true;
        while outcome.len() < self.units.len() {
            let first = outcome.len();
            outcome.extend(self.read_block(first, BLOCK, cursors)?);
            is_right = is_right && outcome.iter().skip(first).all(|is_of| *is_of);
            if is_right && self.ready.is_none() {
                self.add_rows(first, outcome.len(), rules);
            }
        }
        if is_right && self.is_full(rules, rules.ends) {
            self.finish();
        }
        Ok(outcome)
    }

    /// Reads the messages of the units from this one on, `count` at most. Returns whether each unit refers to its message.
    fn read_block(&mut self, first: usize, count: usize, cursors: &[Cursor]) -> Result<Vec<bool>> {
        let units = self.units.iter().skip(first).take(count);
        let wanted: Vec<Wanted> = units.clone().map(|(_, unit)| unit.wanted()).collect();
        self.frames.read(&wanted)?;
        let is_of = |(place, (number, unit)): (usize, &(usize, Unit))| {
            let row = self.frames.row(place);
            cursors
                .get(*number)
                .is_some_and(|cursor| is_of(row.as_ref(), &cursor.part.topic, cursor.part.queue_id, *unit))
        };
        Ok(units.enumerate().map(is_of).collect())
    }

    /// Adds the messages of the units `first..end`, which were read last. If this makes the batch full, it is `ready`.
    fn add_rows(&mut self, first: usize, end: usize, rules: &Rules) {
        let space_left = rules.batch_size.rows - self.builder.rows();
        let mut rows = Vec::with_capacity(end - first);
        let mut numbers = Vec::with_capacity(end - first);
        let mut next = first;
        while next < end && rows.len() < space_left {
            let row = self.frames.row(next - first);
            if let Some(row) = row.filter(|row| rules.filter.passes(&row.frame, row.place.phy_offset)) {
                rows.push(row);
                numbers.push(next);
            }
            next += 1;
        }
        let (rows_before, bytes_before) = (self.builder.rows(), self.builder.bytes());
        let added = self.builder.append(&rows);
        self.rows += self.builder.rows() - rows_before;
        self.bytes += self.builder.bytes() - bytes_before;
        self.decoded = numbers.get(added).copied().unwrap_or(next);
        if added < rows.len() || self.builder.rows() >= rules.batch_size.rows {
            self.ready = Some(self.builder.take());
        }
    }

    /// Decodes the messages that were not decoded when they were checked, until a batch is full. They are read again. `ends`: then
    /// the batch ends, too.
    fn decode(&mut self, cursors: &[Cursor], rules: &Rules, ends: bool) -> Result<()> {
        while self.decoded < self.units.len() && self.ready.is_none() {
            let first = self.decoded;
            let is_of = self.read_block(first, BLOCK.min(rules.batch_size.rows), cursors)?;
            let lost = is_of.iter().position(|is_of| !is_of);
            if let Some((_, unit)) = lost.and_then(|place| self.units.get(first + place)) {
                return Err(Error::corrupt(
                    rules.log.path(),
                    unit.wanted().phy_offset,
                    "the message that was found at this offset of the log",
                    "none: its file was deleted or changed meanwhile",
                ));
            }
            self.add_rows(first, first + is_of.len(), rules);
        }
        if self.is_full(rules, ends) {
            self.finish();
        }
        Ok(())
    }

    /// Returns whether the batch ends with the step: the rest would take a step for few messages.
    fn is_full(&self, rules: &Rules, ends: bool) -> bool {
        ends || self.builder.bytes() >= rules.batch_size.bytes / 8 * 7
    }

    /// Bytes in the log of the messages that were decoded.
    fn stored_bytes(&self) -> u64 {
        self.units.iter().take(self.decoded).map(|(_, unit)| unit.size.max(0).cast_unsigned()).map(u64::from).sum()
    }

    /// Ends the batch.
    fn finish(&mut self) {
        if self.ready.is_none() && self.decoded >= self.units.len() && self.builder.rows() > 0 {
            self.ready = Some(self.builder.take());
        }
    }

    /// Drops the messages that end after this offset of the log, and the rows of this step.
    fn cut(&mut self, end: u64) {
        if self.rows > 0 {
            let batch = self.ready.take().unwrap_or_else(|| self.builder.take());
            let before = batch.num_rows().saturating_sub(self.rows);
            self.ready = (before > 0).then(|| batch.slice(0, before));
        }
        (self.decoded, self.rows) = (0, 0);
        self.units.retain(|(_, unit)| unit.end() <= end);
    }

    /// Returns whether all batches were returned. Without `ends` the last rows stay for the batch of the next step.
    fn is_done(&self, ends: bool) -> bool {
        self.ready.is_none() && self.decoded >= self.units.len() && !(ends && self.builder.rows() > 0)
    }
}

/// Calls `work` for each item, each in a thread of its own, the first one in the caller's.
///
/// If a thread cannot be started, `work` is not called for its item.
fn in_threads<'a, T: Send + 'a>(mut items: impl Iterator<Item = &'a mut T>, work: impl Fn(&mut T) + Sync) {
    let work = &work;
    thread::scope(|scope| {
        let first = items.next();
        for item in items {
            drop(thread::Builder::new().name("logdex-queue".to_owned()).spawn_scoped(scope, move || work(item)));
        }
        if let Some(item) = first {
            work(item);
        }
    });
}

/// The common part of all shares.
struct Rules {
    log: Arc<CommitLog>,
    batch_size: BatchSize,
    filter: Filter,
    /// True if batches end with a share.
    ends: bool,
}

/// Reads the messages of parts of queues as record batches.
pub struct QueueStream {
    cursors: Vec<Cursor>,
    /// The messages of the step, in the order of the log.
    shares: Vec<Share>,
    /// Messages that are only checked.
    borders: FramesAt,
    schema: SchemaRef,
    rules: Rules,
    begin: i64,
    end: i64,
    log_begin: i64,
    /// Offset in the log before which no message of the parts is missing.
    position: u64,
    /// Bytes in the log of the messages that the last step decoded, and the bytes that they added to batches.
    ratio: (u64, u64),
    fault: Option<String>,
    ended: bool,
}

impl fmt::Debug for QueueStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueStream").field("cursors", &self.cursors).finish_non_exhaustive()
    }
}

impl QueueStream {
    /// Prepares to read parts of queues.
    ///
    /// # Errors
    /// `InvalidArgument` when `batch_size` is 0; an I/O error, with the path.
    pub fn new(log: &Arc<CommitLog>, parts: Vec<QueuePart>, options: StreamOptions) -> Result<Self> {
        if options.batch_size.rows == 0 {
            return Err(Error::InvalidArgument("batch_size: expected 1 or more, found 0".to_owned()));
        }
        let borders = FramesAt::new(Arc::clone(log))?;
        let share = || Share {
            frames: borders.clone(),
            builder: log
                .builder(&options.columns, options.bodies)
                .searching(options.filter.search.as_ref())
                .of_bytes(options.batch_size.bytes.saturating_mul(OVER).min(BatchSize::MOST_BYTES)),
            units: Vec::new(),
            outcome: None,
            decoded: 0,
            rows: 0,
            bytes: 0,
            ready: None,
        };
        let shares: Vec<Share> = (0..options.threads.max(1)).map(|_| share()).collect();
        let ahead = (AHEAD_OF_ALL / parts.len().max(1)).clamp(64, AHEAD);
        Ok(Self {
            cursors: parts.into_iter().map(|part| Cursor::new(part, ahead)).collect(),
            begin: i64_of(options.begin_phy_offset.max(borders.begin())),
            end: i64_of(options.end_phy_offset),
            position: options.begin_phy_offset,
            log_begin: i64_of(borders.begin()),
            shares,
            borders,
            schema: columns::schema(&options.columns),
            rules: Rules {
                log: Arc::clone(log),
                batch_size: options.batch_size,
                filter: options.filter,
                ends: options.threads > 1,
            },
            ratio: (1, 1),
            fault: None,
            ended: false,
        })
    }

    /// Returns the offset in the log before which no message of the parts is missing. This includes messages that
    /// [`Self::next_batch`] has not returned yet. When all was read, it is the end of the range.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the bodies that could not be searched so far.
    pub fn unsearched(&self) -> Vec<Finding> {
        self.rules.filter.search.as_ref().map_or_else(Vec::new, Search::unsearched)
    }

    /// The reason for an end before the end of the range; `None` without one.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Returns the next batch; `None` at the end. After a step without a match it is empty, so that the caller can stop, or show how
    /// far the read is.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let ends = self.ended || self.rules.ends;
            let current = self.shares.iter().position(|share| !share.is_done(ends));
            let step = match current {
                Some(current) => match self.shares.get_mut(current).and_then(|share| share.ready.take()) {
                    Some(batch) => return Ok(Some(batch)),
                    None => self.decode_rest(current, ends),
                },
                None if self.ended => return Ok(None),
                None => self.next_step(),
            };
            if let Err(error) = step {
                // Messages may have been decoded that were not checked.
                self.shares.clear();
                self.ended = true;
                return Err(error);
            }
            if current.is_none() && !self.ended && self.shares.iter().all(|share| share.is_done(ends)) {
                return Ok(Some(RecordBatch::new_empty(Arc::clone(&self.schema))));
            }
        }
    }

    /// Decodes the next batches of the step.
    fn decode_rest(&mut self, current: usize, ends: bool) -> Result<()> {
        let Self { shares, cursors, rules, .. } = self;
        let left = shares.iter_mut().skip(current).filter(|share| share.ready.is_none() && !share.is_done(ends));
        in_threads(left, |share| share.outcome = share.decode(cursors, rules, ends).err().map(Err));
        shares.iter_mut().find_map(|share| share.outcome.take()?.err()).map_or(Ok(()), Err)
    }

    /// Reads the messages of the next units, and checks up to which offset they can be returned.
    fn next_step(&mut self) -> Result<()> {
        // A selective filter may pass no batch to the caller for long.
        signals::look().map_err(|e| Error::io(self.rules.log.path(), e))?;
        let units = self.choose_units()?;
        let most = units.len().div_ceil(self.shares.len()).max(LEAST_SHARE);
        let mut parts = units.chunks(most);
        for share in &mut self.shares {
            share.begin(parts.next().unwrap_or_default());
        }
        let Self { cursors, rules, .. } = self;
        in_threads(self.shares.iter_mut().filter(|share| !share.units.is_empty()), |share| share.read(cursors, rules));
        for share in &mut self.shares {
            let is_of = match share.outcome.take() {
                Some(outcome) => outcome?,
                None => share.read_units(&self.cursors, &self.rules)?,
            };
            for ((number, unit), is_of) in share.units.iter().zip(&is_of) {
                if let Some(cursor) = self.cursors.get_mut(*number).filter(|cursor| cursor.failed.is_none()) {
                    if *is_of {
                        cursor.checked_end = unit.end();
                    } else {
                        cursor.failed = Some(Fault::LeadsElsewhere(*unit));
                    }
                }
            }
            share.units.truncate(is_of.iter().take_while(|is_of| **is_of).count());
        }
        let added: usize = self.shares.iter().map(|share| share.bytes).sum();
        self.ratio = (self.shares.iter().map(Share::stored_bytes).sum::<u64>().max(1), added.max(1) as u64);
        self.check_borders()?;
        let failed = self.cursors.iter().filter_map(|cursor| Some((cursor, cursor.failed.as_ref()?)));
        if let Some((cursor, fault)) = failed.min_by_key(|(cursor, _)| cursor.checked_end) {
            let end = cursor.checked_end.max(self.position);
            self.fault = Some(fault.describe(&cursor.part));
            self.shares.iter_mut().for_each(|share| share.cut(end));
            (self.position, self.ended) = (end, true);
        } else if let Some((_, last)) = units.last() {
            self.position = last.end();
        } else {
            (self.position, self.ended) = (self.position.max(self.end.cast_unsigned()), true);
        }
        Ok(())
    }

    /// Returns the next units in the order of their messages in the log, as many as a step may hold.
    fn choose_units(&mut self) -> Result<Vec<(usize, Unit)>> {
        let mut heads = BinaryHeap::new();
        for (number, cursor) in self.cursors.iter_mut().enumerate() {
            heads.extend(cursor.head_from(self.begin, self.log_begin)?.map(|head| Reverse((head.phy_offset, number))));
        }
        // Messages that do not fit in the next batches would be read twice.
        let BatchSize { rows, bytes } = self.rules.batch_size;
        let builders = || self.shares.iter().map(|share| &share.builder);
        let most =
            builders().map(|builder| rows - builder.rows()).fold(0, usize::saturating_add).clamp(LEAST_SHARE, STEP);
        let space_left =
            builders().map(|builder| bytes.saturating_sub(builder.bytes())).fold(0, usize::saturating_add) as u64;
        let (stored, added) = self.ratio;
        let most_bytes = (space_left.saturating_mul(stored) / added).clamp(1, STEP_BYTES);
        let (mut units, mut bytes) = (Vec::new(), 0);
        while let Some(Reverse((phy_offset, number))) = heads.pop() {
            if phy_offset >= self.end || units.len() >= most || bytes >= most_bytes {
                break;
            }
            let Some(cursor) = self.cursors.get_mut(number) else { break };
            if let Some(unit) = cursor.pop() {
                bytes += u64::from(unit.size.max(0).cast_unsigned());
                units.push((number, unit));
            }
            heads.extend(cursor.head()?.map(|head| Reverse((head.phy_offset, number))));
        }
        Ok(units)
    }

    /// Checks the unit before the range and the one after the step, in each queue: no message between them may be missing.
    fn check_borders(&mut self) -> Result<()> {
        let mut asked = Vec::new();
        for (number, cursor) in self.cursors.iter_mut().enumerate().filter(|(_, cursor)| cursor.failed.is_none()) {
            asked.extend(cursor.skipped.take().map(|unit| (unit, number, false)));
            match cursor.head()? {
                Some(head) if !cursor.is_checked => asked.push((head, number, true)),
                Some(_) => {}
                None => cursor.failed = cursor.fault.take(),
            }
        }
        asked.sort_by_key(|(unit, ..)| unit.phy_offset);
        let wanted: Vec<Wanted> = asked.iter().map(|(unit, ..)| unit.wanted()).collect();
        self.borders.read(&wanted)?;
        for (place, (unit, number, is_head)) in asked.into_iter().enumerate() {
            let Some(cursor) = self.cursors.get_mut(number) else { continue };
            if !is_of(self.borders.row(place).as_ref(), &cursor.part.topic, cursor.part.queue_id, unit) {
                // If this is the unit before the range, nothing was returned yet.
                cursor.checked_end = if is_head { cursor.checked_end } else { 0 };
                cursor.failed = Some(Fault::LeadsElsewhere(unit));
            } else if is_head && cursor.failed.is_none() {
                cursor.is_checked = true;
                cursor.checked_end = unit.phy_offset.max(0).cast_unsigned();
            }
        }
        Ok(())
    }
}

impl Iterator for QueueStream {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().map_err(|e| ArrowError::ExternalError(Box::new(e))).transpose()
    }
}

impl RecordBatchReader for QueueStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Returns whether a message of this topic, queue and queue offset begins at an offset of the log.
///
/// # Errors
/// An I/O error, with the path.
pub fn is_message_of(log: &CommitLog, phy_offset: i64, topic: &str, queue_id: i64, queue_offset: i64) -> Result<bool> {
    let Ok(phy_offset) = u64::try_from(phy_offset) else {
        return Ok(false);
    };
    let found = log.message(phy_offset)?;
    Ok(found.is_some_and(|message| {
        message.queue_offset == queue_offset && i64::from(message.queue_id) == queue_id && message.topic == topic
    }))
}

/// Returns the range of the log whose messages these queues cover if no file at their ends is missing.
///
/// A queue without its first file, or whose last file is full, may lack messages before its first unit or after its last one.
///
/// # Errors
/// An I/O error, with the path.
pub fn certain_range(log: &CommitLog, queues: &[QueuePart]) -> Result<(u64, u64)> {
    let (log_begin, mut begin, mut end) = (log.min_offset()?.cast_signed(), 0, u64::MAX);
    for QueuePart { queue, .. } in queues {
        let (first, last) = queue.outermost_units()?;
        begin = begin.max(first.filter(|first| first.phy_offset > log_begin).map_or(0, |first| first.phy_offset));
        end = last.map_or(end, |last| end.min(last.end().max(0).cast_unsigned()));
    }
    Ok((begin.cast_unsigned(), end))
}

/// Returns the end of the farthest message in the log that a unit of a queue refers to; `None` if there is no such unit.
///
/// The queues are those of these topics, or all, in some folders of a store. They are read in this number of threads.
///
/// # Errors
/// An I/O error, with the path.
pub fn dispatched_end(
    log: &Arc<CommitLog>,
    folders: &[Location],
    topics: Option<&[String]>,
    options: &Options,
    threads: usize,
) -> Result<Option<u64>> {
    let last_units = |topic: &str, directories: &[Location]| -> Result<Vec<(Unit, String, i64)>> {
        let mut found = Vec::new();
        for directory in directories {
            for place in queues_of(topic, directory)? {
                let queue = ConsumeQueue::listed(&place.directory, options.clone());
                let last = match queue.last_unit() {
                    // The broker deleted the queue after the directory of the topic was listed.
                    Err(error) if error.is_missing() => None,
                    last => last?,
                };
                let Some(last) = last else { continue };
                let unit =
                    Unit { phy_offset: last.unit.phy_offset, size: last.unit.size, queue_offset: last.base_offset };
                found.push((unit, place.topic, i64::from(place.queue_id)));
            }
        }
        Ok(found)
    };
    let mut last: Vec<_> = each_topic(folders, topics, threads, last_units)?.into_iter().flatten().collect();
    last.sort_by_key(|(unit, ..)| Reverse((unit.phy_offset, unit.size, unit.queue_offset)));
    let mut frames = FramesAt::new(Arc::clone(log))?;
    for (unit, topic, queue_id) in &last {
        frames.read(&[unit.wanted()])?;
        if is_of(frames.row(0).as_ref(), topic, *queue_id, *unit) {
            return Ok(Some(unit.end()));
        }
    }
    Ok(None)
}
