//! Candidates of the index, checked against the messages of the log.
//!
//! An index stores hashes, so the message itself must show that it carries a key. Frames are read in the order of their
//! offsets, topic and keys are checked on the raw frame, and columns are built for the messages that pass. Only the frames of one
//! block and the rows of one batch are in memory: a body of a few KiB may be decompressed to 64 MiB.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchReader, new_null_array};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use super::commit_log::columns::Column;
use super::commit_log::frame::Frame;
use super::commit_log::{BatchBuilder, Bodies, CommitLog, FrameCollector, KeptFrames};
use super::index_entries::KeyTexts;
use crate::error::{Error, Result};
use crate::hash_index::key_hash;
use crate::io::i64_of;
use crate::java_text::decode_utf8;
use crate::time_range::TimeRange;

/// Candidates that are read together, unless their frames take too much memory.
const BLOCK: usize = 1024;
/// Rows that are added to a batch together.
const ROWS: usize = 64;

/// One key that is searched for, and where it may be.
#[derive(Clone, Debug, Default)]
pub struct KeyQuery {
    /// The topics that a message may have; `None`: any.
    pub topics: Option<Vec<String>>,
    /// The key; `None`: every message at the offsets, each of which must be there.
    pub key: Option<String>,
    /// Offsets in the log, in any order. Without offsets the answer is empty.
    pub candidates: Vec<i64>,
}

/// Options of the check of candidates, and of the rows of the messages that pass.
#[derive(Clone, Debug)]
pub struct Checks {
    /// Range of store times.
    pub times: TimeRange,
    /// The most messages of one query; `None`: all.
    pub max_num: Option<usize>,
    /// True if `T#` and the tags of a message count as one of its keys.
    pub tags: bool,
    /// Columns of the answer.
    pub columns: Vec<Column>,
    /// The most rows of a batch.
    pub batch_size: usize,
    /// Bytes of bodies after which the answer has no more: the later rows have null instead. `None`: all bodies.
    pub body_budget: Option<usize>,
    /// Number of the next query. If it is set, the answer begins with a column `query_row`.
    pub first_row: Option<i64>,
}

/// Counters of the search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Candidates that carry another key.
    pub rejected: u64,
    /// True if a key has more messages than the limit.
    pub truncated: bool,
    /// Rows at the end of the answer whose bodies are left out ([`Checks::body_budget`]).
    pub without_body: u64,
}

/// Returns the messages that carry the keys, in the order of the queries. Each query has its newest message first and each
/// message once.
pub struct VerifiedMessages {
    log: Arc<CommitLog>,
    checks: Checks,
    queries: VecDeque<(i64, KeyQuery)>,
    /// Messages of the first query found so far.
    found: usize,
    /// The most candidates of a block.
    most_pairs: usize,
    /// The frames of the block, and those that are not in a batch yet: place and number of the query.
    frames: KeptFrames,
    chosen: VecDeque<(usize, i64)>,
    builder: BatchBuilder,
    rows: Vec<i64>,
    /// The message columns, and all columns of the answer.
    messages: SchemaRef,
    schema: SchemaRef,
    body_bytes: usize,
    counts: Counts,
    missing: BTreeSet<i64>,
    failed: bool,
}

impl std::fmt::Debug for VerifiedMessages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifiedMessages").field("queries", &self.queries.len()).finish_non_exhaustive()
    }
}

/// A candidate that is read with others.
#[derive(Clone, Copy, Debug)]
struct Pair {
    /// Number of the query among those of the block.
    query: usize,
    /// Number of the offset in the block.
    place: usize,
    verdict: Verdict,
}

/// The result of checking a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// No valid message begins there.
    Missing,
    /// Its time is outside of the range.
    Nothing,
    /// Its message carries another key.
    Rejected,
    /// Its message carries the key.
    Found,
}

/// A block of candidates that are read together.
#[derive(Debug, Default)]
struct Block {
    queries: Vec<(i64, KeyQuery)>,
    pairs: Vec<(usize, i64)>,
    /// True if the last query has more candidates.
    unfinished: bool,
}

/// Returns for each of these ascending ranges of the log the candidates in it, ascending, each once.
pub fn offsets_within(mut candidates: Vec<i64>, ranges: &[(i64, i64)]) -> Vec<Vec<i64>> {
    candidates.sort_unstable();
    candidates.dedup();
    let within = |&(begin, end): &(i64, i64)| {
        let first = candidates.partition_point(|offset| *offset < begin);
        let last = candidates.partition_point(|offset| *offset < end);
        candidates.get(first..last).map(<[i64]>::to_vec).unwrap_or_default()
    };
    ranges.iter().map(within).collect()
}

impl VerifiedMessages {
    /// Prepare to check the candidates of the queries.
    ///
    /// # Errors
    /// `InvalidArgument` when `batch_size` is 0.
    pub fn new(log: Arc<CommitLog>, queries: Vec<KeyQuery>, checks: Checks) -> Result<Self> {
        let builder = log.builder(&checks.columns, Bodies::Decoded);
        Self::with_builder(builder, log, queries, checks)
    }

    /// As [`Self::new`], with the builder of an earlier answer of the same columns, whose memory is used again.
    ///
    /// # Errors
    /// As `new`.
    pub(crate) fn with_builder(
        mut builder: BatchBuilder,
        log: Arc<CommitLog>,
        queries: Vec<KeyQuery>,
        checks: Checks,
    ) -> Result<Self> {
        if checks.batch_size == 0 {
            return Err(Error::InvalidArgument("batch_size: expected 1 or more, got 0".to_owned()));
        }
        let messages = builder.schema();
        if checks.body_budget == Some(0) {
            builder = without_bodies(&log, &checks);
        }
        let mut schema = Arc::clone(&messages);
        if checks.first_row.is_some() {
            let row = Arc::new(Field::new("query_row", DataType::Int64, true));
            schema =
                Arc::new(Schema::new(std::iter::once(row).chain(schema.fields().iter().cloned()).collect::<Vec<_>>()));
        }
        let mut messages = Self {
            log,
            checks,
            queries: VecDeque::new(),
            found: 0,
            most_pairs: BLOCK,
            frames: KeptFrames::default(),
            chosen: VecDeque::new(),
            builder,
            rows: Vec::new(),
            messages,
            schema,
            body_bytes: 0,
            counts: Counts::default(),
            missing: BTreeSet::new(),
            failed: false,
        };
        messages.go_on_with(queries);
        Ok(messages)
    }

    /// Goes on with further queries after the last batch. Their numbers follow from [`Checks::first_row`].
    pub(crate) fn go_on_with(&mut self, queries: Vec<KeyQuery>) {
        let first = self.checks.first_row.unwrap_or(0);
        self.checks.first_row = self.checks.first_row.map(|row| row + i64_of(queries.len()));
        for (row, mut query) in (first..).zip(queries) {
            query.candidates.sort_unstable();
            query.candidates.dedup();
            if !query.candidates.is_empty() {
                self.queries.push_back((row, query));
            }
        }
    }

    /// Returns the builder after the last batch; `None` if it builds no bodies any more.
    pub(crate) fn into_builder(self) -> Option<BatchBuilder> {
        (self.builder.schema() == self.messages).then_some(self.builder)
    }

    /// Bytes of the bodies so far, if they are limited.
    pub(crate) fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    /// The counters so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Offsets of the candidates so far where no valid message begins, ascending.
    pub fn missing(&self) -> Vec<i64> {
        self.missing.iter().copied().collect()
    }

    /// Returns the next batch; `None` at the end and after an error.
    ///
    /// # Errors
    /// An I/O error, with the path; `Corrupt` where a message of a query without a key is gone.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        while !self.failed {
            if let Some(batch) = self.build() {
                return Ok(Some(batch));
            }
            if self.queries.is_empty() {
                break;
            }
            if let Err(error) = self.read_block() {
                self.failed = true;
                self.queries.clear();
                return Err(error);
            }
        }
        Ok((!self.failed && self.builder.rows() > 0).then(|| self.take()))
    }

    fn next_block(&mut self) -> Block {
        let mut block = Block::default();
        while block.pairs.len() < self.most_pairs && !block.unfinished {
            let Some((row, mut query)) = self.queries.pop_front() else { break };
            let before = if block.queries.is_empty() { self.found } else { 0 };
            // If a query has a limit, each step reads only a few more candidates than the limit.
            let wanted = self.checks.max_num.map_or(BLOCK, |most| (2 * (most.saturating_sub(before) + 1)).max(16));
            let most = wanted.min(self.most_pairs - block.pairs.len()).min(query.candidates.len());
            let newest = query.candidates.split_off(query.candidates.len() - most);
            let number = block.queries.len();
            block.pairs.extend(newest.into_iter().rev().map(|offset| (number, offset)));
            block.unfinished = !query.candidates.is_empty();
            block.queries.push((row, query));
        }
        block
    }

    /// Returns the candidates of a block to the queries.
    fn put_back(&mut self, mut block: Block) {
        for (number, offset) in block.pairs.into_iter().rev() {
            if let Some((_, query)) = block.queries.get_mut(number) {
                query.candidates.push(offset);
            }
        }
        block.queries.into_iter().rev().for_each(|query| self.queries.push_front(query));
    }

    /// Reads the next candidates and chooses the messages of the answer.
    fn read_block(&mut self) -> Result<()> {
        let mut block = self.next_block();
        let mut offsets: Vec<i64> = block.pairs.iter().map(|(_, offset)| *offset).collect();
        offsets.sort_unstable();
        offsets.dedup();
        let mut pairs: Vec<Pair> = Vec::with_capacity(block.pairs.len());
        for (query, offset) in &block.pairs {
            let place = offsets.binary_search(offset).unwrap_or_default();
            pairs.push(Pair { query: *query, place, verdict: Verdict::Missing });
        }
        let mut order: Vec<usize> = (0..pairs.len()).collect();
        order.sort_by_key(|number| pairs.get(*number).map(|pair| pair.place));
        let log = Arc::clone(&self.log);
        let mut collector = FrameCollector::new(&log)?;
        let (mut next, mut gone) = (0, None);
        let read = collector.read(&offsets, |place, frame| {
            let mut is_wanted = false;
            while let Some(pair) =
                order.get(next).and_then(|number| pairs.get_mut(*number)).filter(|p| p.place == place)
            {
                match (&frame, block.queries.get(pair.query)) {
                    (Some(frame), Some((_, query))) => {
                        pair.verdict = self.checks.judge(query, frame);
                        is_wanted |= pair.verdict == Verdict::Found;
                    }
                    (None, Some((_, query))) if query.key.is_none() => gone = offsets.get(place).copied(),
                    _ => {}
                }
                next += 1;
            }
            is_wanted
        })?;
        if let Some(offset) = gone.and_then(|offset| u64::try_from(offset).ok()) {
            return Err(Error::corrupt(
                log.path(),
                offset,
                "the message that was found at this offset of the log",
                "none: its file was deleted or changed meanwhile",
            ));
        }
        if read < offsets.len() {
            // The frames take too much memory: fewer at a time.
            self.most_pairs = (block.pairs.len() / 2).max(1);
            self.put_back(block);
            return Ok(());
        }
        self.frames = collector.into_frames();
        self.choose(&block, &pairs);
        if block.unfinished
            && let Some((row, query)) = block.queries.pop()
        {
            if self.checks.max_num.is_some_and(|most| self.found > most) {
                self.found = 0;
            } else {
                self.queries.push_front((row, query));
            }
        } else {
            self.found = 0;
        }
        Ok(())
    }

    /// Chooses the messages of a block that belong to the answer.
    fn choose(&mut self, block: &Block, pairs: &[Pair]) {
        let mut last = 0;
        for (number, pair) in pairs.iter().enumerate() {
            if pair.query != last {
                (last, self.found) = (pair.query, 0);
            }
            if self.checks.max_num.is_some_and(|most| self.found > most) {
                continue;
            }
            match pair.verdict {
                Verdict::Nothing => {}
                Verdict::Missing => self.missing.extend(block.pairs.get(number).map(|(_, offset)| *offset)),
                Verdict::Rejected => self.counts.rejected += 1,
                Verdict::Found => {
                    self.found += 1;
                    if self.checks.max_num.is_some_and(|most| self.found > most) {
                        self.counts.truncated = true;
                    } else if let (Some(_), Some((row_number, _))) =
                        (self.frames.row(pair.place), block.queries.get(pair.query))
                    {
                        self.chosen.push_back((pair.place, *row_number));
                    }
                }
            }
        }
    }

    /// Adds the chosen messages to the batch, and returns it if it is full.
    fn build(&mut self) -> Option<RecordBatch> {
        while !self.chosen.is_empty() {
            let most = ROWS.min(self.checks.batch_size - self.builder.rows());
            let rows: Vec<_> = self.chosen.iter().take(most).filter_map(|(place, _)| self.frames.row(*place)).collect();
            let added = self.builder.append(&rows);
            let is_full = added < rows.len() || self.builder.rows() >= self.checks.batch_size;
            self.rows.extend(self.chosen.drain(..added).map(|(_, number)| number));
            if is_full {
                return Some(self.take());
            }
        }
        None
    }

    fn take(&mut self) -> RecordBatch {
        let mut batch = self.builder.take();
        if batch.num_columns() < self.messages.fields().len() {
            self.counts.without_body += batch.num_rows() as u64;
            batch = with_columns(&batch, &self.messages);
        } else if let Some(budget) = self.checks.body_budget {
            self.count_bodies(&batch, budget);
        }
        let rows = std::mem::take(&mut self.rows);
        if self.checks.first_row.is_none() {
            return batch;
        }
        let rows: ArrayRef = Arc::new(Int64Array::from(rows));
        let columns = std::iter::once(rows).chain(batch.columns().iter().cloned()).collect();
        RecordBatch::try_new(Arc::clone(&self.schema), columns).expect("one number was kept for each row")
    }

    /// Counts the bodies of a batch, and leaves out the later ones if the next one may not fit into the budget.
    fn count_bodies(&mut self, batch: &RecordBatch, budget: usize) {
        let bodies = batch.column_by_name(Column::Body.name()).and_then(|bodies| bodies.as_binary_opt::<i32>());
        let sizes = bodies.into_iter().flatten().flatten().map(<[u8]>::len);
        let (sum, largest) = sizes.fold((0, 0), |(sum, largest), size| (sum + size, size.max(largest)));
        self.body_bytes += sum;
        if self.body_bytes + largest > budget {
            self.builder = without_bodies(&self.log, &self.checks);
        }
    }
}

/// Builds batches of the columns without bodies.
fn without_bodies(log: &CommitLog, checks: &Checks) -> BatchBuilder {
    let mut columns = checks.columns.clone();
    columns.retain(|column| !matches!(column, Column::Body | Column::BodyError));
    log.builder(&columns, Bodies::Decoded)
}

/// Adds the columns that a batch lacks, with nulls.
fn with_columns(batch: &RecordBatch, schema: &SchemaRef) -> RecordBatch {
    let column = |field: &Arc<Field>| {
        let null = || new_null_array(field.data_type(), batch.num_rows());
        batch.column_by_name(field.name()).map_or_else(null, Arc::clone)
    };
    let columns = schema.fields().iter().map(column).collect();
    RecordBatch::try_new(Arc::clone(schema), columns).expect("bodies and their errors may be null")
}

impl Checks {
    fn judge(&self, query: &KeyQuery, frame: &Frame<'_>) -> Verdict {
        let Some(key) = &query.key else { return Verdict::Found };
        let time = frame.store_timestamp();
        if !self.times.meets(time, time) {
            return Verdict::Nothing;
        }
        let is_topic = query.topics.as_ref().is_none_or(|topics| {
            let topic = decode_utf8(frame.topic());
            topics.iter().any(|wanted| *wanted == topic)
        });
        if is_topic && KeyTexts::of_properties(frame.properties()).carries(key, self.tags) {
            Verdict::Found
        } else {
            Verdict::Rejected
        }
    }
}

/// Returns the frames of the newest messages that carry the key of a query, as the log holds them, in its order.
///
/// At most `max_num` messages and `max_bytes` bytes are returned.
///
/// # Errors
/// An I/O error, with the path.
pub fn frames_with_key(
    log: &CommitLog,
    mut query: KeyQuery,
    checks: &Checks,
    max_num: usize,
    max_bytes: usize,
) -> Result<Vec<u8>> {
    let mut candidates = std::mem::take(&mut query.candidates);
    candidates.sort_unstable();
    candidates.dedup();
    let mut collector = FrameCollector::new(log)?;
    let (mut found, mut bytes) = (Vec::<Vec<u8>>::new(), 0);
    for offset in candidates.into_iter().rev() {
        if found.len() == max_num {
            break;
        }
        collector.read(&[offset], |_, frame| {
            if let Some(frame) = frame.filter(|frame| checks.judge(&query, frame) == Verdict::Found) {
                found.push(frame.into_parts().0.to_vec());
            }
            false
        })?;
        bytes = found.iter().map(Vec::len).sum();
        if bytes > max_bytes {
            found.pop();
            break;
        }
    }
    let mut frames = Vec::with_capacity(bytes);
    found.iter().rev().for_each(|frame| frames.extend_from_slice(frame));
    Ok(frames)
}

/// Classify each offset for a key, with the words of docs/findings.md.
///
/// - `match`: its message carries the key and was stored in the time range; `out-of-range`: at another time
/// - `other-key`: another key of it has the same hash; `other-topic`: the same under another topic
/// - `stale-entry`: none of its keys has the hash
/// - no message begins there: `expired`, before the log; `cut-off`, truncated by a broker; `missing-file`; `beyond-log`, after
///   its end; `damaged`
///
/// # Errors
/// An I/O error, with the path.
pub fn judge(log: &CommitLog, offsets: &[i64], topic: &str, key: &str, times: TimeRange) -> Result<Vec<&'static str>> {
    let key_hash = key_hash(&[topic, "#", key].concat());
    let mut rising = offsets.to_vec();
    rising.sort_unstable();
    rising.dedup();
    let mut verdicts = vec![None; rising.len()];
    FrameCollector::new(log)?.read(&rising, |number, frame| {
        if let (Some(frame), Some(verdict)) = (frame, verdicts.get_mut(number)) {
            let texts = KeyTexts::of_properties(frame.properties());
            let (stored, time) = (decode_utf8(frame.topic()), frame.store_timestamp());
            *verdict = Some(if stored == topic && texts.carries(key, true) {
                if times.meets(time, time) { "match" } else { "out-of-range" }
            } else if !texts.has_hash(&stored, key_hash, true) {
                "stale-entry"
            } else if stored == topic {
                "other-key"
            } else {
                "other-topic"
            });
        }
        false
    })?;
    let of = |offset: &i64| match rising.binary_search(offset).ok().and_then(|number| verdicts.get(number).copied()) {
        Some(Some(verdict)) => Ok(verdict),
        _ => why_no_message(log, u64::try_from(*offset).unwrap_or(0)),
    };
    offsets.iter().map(of).collect()
}

fn why_no_message(log: &CommitLog, offset: u64) -> Result<&'static str> {
    Ok(if log.gaps()?.iter().any(|gap| (gap.begin..gap.end).contains(&offset)) {
        "missing-file"
    } else if offset < log.min_offset()? {
        "expired"
    } else if log.is_cut_off(offset)? {
        "cut-off"
    } else if offset >= log.max_offset()? {
        "beyond-log"
    } else {
        "damaged"
    })
}

impl Iterator for VerifiedMessages {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().map_err(|e| ArrowError::ExternalError(Box::new(e))).transpose()
    }
}

impl RecordBatchReader for VerifiedMessages {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
