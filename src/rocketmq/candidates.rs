//! Candidates of the index, checked against the messages of the log.
//!
//! An index stores hashes, so the message itself must show that it carries a key. Frames are read in the order of their
//! offsets, topic and keys are checked on the raw frame, and columns are built for the messages that pass.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use super::commit_log::columns::Column;
use super::commit_log::frame::Frame;
use super::commit_log::{BatchBuilder, Bodies, CommitLog, Gather};
use super::index_entries::KeyTexts;
use crate::error::{Error, Result};
use crate::hash_index::key_hash;
use crate::java_text::decode_utf8;
use crate::time_range::TimeRange;

/// Candidates that are read together. Their frames are in memory at the same time.
const BLOCK: usize = 1024;
/// Rows that are added to a batch together.
const ROWS: usize = 64;

/// One key that is searched for, and where it may be.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// The topic; `None`: any.
    pub topic: Option<String>,
    /// The key.
    pub key: String,
    /// Offsets in the log, in any order. Without offsets the answer is empty.
    pub candidates: Vec<i64>,
}

/// How candidates are checked, and what is built of the messages that pass.
#[derive(Clone, Debug)]
pub struct Checks {
    /// Range of store times.
    pub times: TimeRange,
    /// The most messages of one question; `None`: all.
    pub max_num: Option<usize>,
    /// Whether `T#` and the tags of a message count as one of its keys.
    pub tags: bool,
    /// Columns of the answer.
    pub columns: Vec<Column>,
    /// The most rows of a batch.
    pub batch_size: usize,
    /// Number of the first question. If it is set, the answer begins with a column `query_row`.
    pub first_row: Option<i64>,
}

/// Counters of the search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Candidates that carry another key.
    pub rejected: u64,
    /// Whether a key has more messages than the limit.
    pub truncated: bool,
}

/// Returns the messages that carry the keys, in the order of the questions. Each question has its newest message first and each
/// message once.
pub struct VerifiedMessages {
    log: Arc<CommitLog>,
    checks: Checks,
    questions: VecDeque<(i64, Question)>,
    /// Messages of the first question found so far.
    found: usize,
    builder: BatchBuilder,
    rows: Vec<i64>,
    schema: SchemaRef,
    ready: VecDeque<RecordBatch>,
    counts: Counts,
    missing: BTreeSet<i64>,
    failed: bool,
}

impl std::fmt::Debug for VerifiedMessages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifiedMessages").field("questions", &self.questions.len()).finish_non_exhaustive()
    }
}

/// A candidate that is read with others.
#[derive(Clone, Copy, Debug)]
struct Pair {
    /// Number of the question among those of the block.
    question: usize,
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
    questions: Vec<(i64, Question)>,
    pairs: Vec<(usize, i64)>,
    /// Whether the last question has more candidates.
    unfinished: bool,
}

impl VerifiedMessages {
    /// Prepare to check the candidates of the questions.
    ///
    /// # Errors
    /// `InvalidArgument` when `batch_size` is 0.
    pub fn new(log: Arc<CommitLog>, questions: Vec<Question>, checks: Checks) -> Result<Self> {
        if checks.batch_size == 0 {
            return Err(Error::InvalidArgument("batch_size: expected 1 or more, got 0".to_owned()));
        }
        let builder = log.builder(&checks.columns, Bodies::Decoded);
        let mut schema = builder.schema();
        if checks.first_row.is_some() {
            let row = Arc::new(Field::new("query_row", DataType::Int64, true));
            schema =
                Arc::new(Schema::new(std::iter::once(row).chain(schema.fields().iter().cloned()).collect::<Vec<_>>()));
        }
        let asked = questions.into_iter().zip(checks.first_row.unwrap_or(0)..).map(|(mut question, row)| {
            question.candidates.sort_unstable();
            question.candidates.dedup();
            (row, question)
        });
        let questions = asked.filter(|(_, question)| !question.candidates.is_empty()).collect();
        Ok(Self {
            log,
            checks,
            questions,
            found: 0,
            builder,
            rows: Vec::new(),
            schema,
            ready: VecDeque::new(),
            counts: Counts::default(),
            missing: BTreeSet::new(),
            failed: false,
        })
    }

    /// The counters so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Offsets of the candidates so far where no valid message begins, ascending.
    pub fn missing(&self) -> Vec<i64> {
        self.missing.iter().copied().collect()
    }

    /// Return the next batch; `None` at the end and after an error.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        while self.ready.is_empty() && !self.failed && !self.questions.is_empty() {
            if let Err(error) = self.answer_block() {
                self.failed = true;
                self.questions.clear();
                return Err(error);
            }
        }
        if self.ready.is_empty() && !self.failed && self.builder.rows() > 0 {
            let batch = self.take();
            self.ready.push_back(batch);
        }
        Ok(self.ready.pop_front())
    }

    fn next_block(&mut self) -> Block {
        let mut block = Block::default();
        while block.pairs.len() < BLOCK && !block.unfinished {
            let Some((row, mut question)) = self.questions.pop_front() else { break };
            let before = if block.questions.is_empty() { self.found } else { 0 };
            // If a question has a limit, each step reads only a few more candidates than the limit.
            let wanted = self.checks.max_num.map_or(BLOCK, |most| (2 * (most.saturating_sub(before) + 1)).max(16));
            let most = wanted.min(BLOCK - block.pairs.len()).min(question.candidates.len());
            let newest = question.candidates.split_off(question.candidates.len() - most);
            let number = block.questions.len();
            block.pairs.extend(newest.into_iter().rev().map(|offset| (number, offset)));
            block.unfinished = !question.candidates.is_empty();
            block.questions.push((row, question));
        }
        block
    }

    fn answer_block(&mut self) -> Result<()> {
        let mut block = self.next_block();
        let mut offsets: Vec<i64> = block.pairs.iter().map(|(_, offset)| *offset).collect();
        offsets.sort_unstable();
        offsets.dedup();
        let mut pairs: Vec<Pair> = Vec::with_capacity(block.pairs.len());
        for (question, offset) in &block.pairs {
            let place = offsets.binary_search(offset).unwrap_or_default();
            pairs.push(Pair { question: *question, place, verdict: Verdict::Missing });
        }
        let mut order: Vec<usize> = (0..pairs.len()).collect();
        order.sort_by_key(|number| pairs.get(*number).map(|pair| pair.place));
        let log = Arc::clone(&self.log);
        let mut gather = Gather::new(&log)?;
        let mut next = 0;
        gather.read(&offsets, |place, frame| {
            let mut is_wanted = false;
            while let Some(pair) =
                order.get(next).and_then(|number| pairs.get_mut(*number)).filter(|p| p.place == place)
            {
                if let (Some(frame), Some((_, question))) = (&frame, block.questions.get(pair.question)) {
                    pair.verdict = self.checks.judge(question, frame);
                    is_wanted |= pair.verdict == Verdict::Found;
                }
                next += 1;
            }
            is_wanted
        })?;
        self.add(&block, &pairs, &gather);
        if block.unfinished
            && let Some((row, question)) = block.questions.pop()
        {
            if self.checks.max_num.is_some_and(|most| self.found > most) {
                self.found = 0;
            } else {
                self.questions.push_front((row, question));
            }
        } else {
            self.found = 0;
        }
        Ok(())
    }

    /// Add the messages of a block to the answer.
    fn add(&mut self, block: &Block, pairs: &[Pair], gather: &Gather<'_>) {
        let mut last = 0;
        let mut rows = Vec::with_capacity(ROWS);
        let mut numbers = Vec::with_capacity(ROWS);
        for (number, pair) in pairs.iter().enumerate() {
            if pair.question != last {
                (last, self.found) = (pair.question, 0);
            }
            if self.checks.max_num.is_some_and(|most| self.found > most) {
                continue;
            }
            match pair.verdict {
                Verdict::Nothing => {}
                Verdict::Missing => _ = self.missing.extend(block.pairs.get(number).map(|(_, offset)| *offset)),
                Verdict::Rejected => self.counts.rejected += 1,
                Verdict::Found => {
                    self.found += 1;
                    if self.checks.max_num.is_some_and(|most| self.found > most) {
                        self.counts.truncated = true;
                    } else if let (Some(row), Some((row_number, _))) =
                        (gather.row(pair.place), block.questions.get(pair.question))
                    {
                        rows.push(row);
                        numbers.push(*row_number);
                        if rows.len() == ROWS {
                            self.append(&mut rows, &mut numbers);
                        }
                    }
                }
            }
        }
        self.append(&mut rows, &mut numbers);
    }

    fn append(&mut self, rows: &mut Vec<super::commit_log::Row<'_>>, numbers: &mut Vec<i64>) {
        let mut begin = 0;
        while begin < rows.len() {
            let end = rows.len().min(begin + self.checks.batch_size - self.builder.rows());
            let added = self.builder.append(rows.get(begin..end).unwrap_or_default());
            self.rows.extend(numbers.iter().skip(begin).take(added));
            begin += added;
            if begin < end || self.builder.rows() >= self.checks.batch_size {
                let batch = self.take();
                self.ready.push_back(batch);
            }
        }
        rows.clear();
        numbers.clear();
    }

    fn take(&mut self) -> RecordBatch {
        let batch = self.builder.take();
        let rows = std::mem::take(&mut self.rows);
        if self.checks.first_row.is_none() {
            return batch;
        }
        let rows: ArrayRef = Arc::new(Int64Array::from(rows));
        let columns = std::iter::once(rows).chain(batch.columns().iter().cloned()).collect();
        RecordBatch::try_new(Arc::clone(&self.schema), columns).expect("one number was kept for each row")
    }
}

impl Checks {
    fn judge(&self, question: &Question, frame: &Frame<'_>) -> Verdict {
        let time = frame.store_timestamp();
        if !self.times.meets(time, time) {
            return Verdict::Nothing;
        }
        let is_topic = question.topic.as_ref().is_none_or(|topic| decode_utf8(frame.topic()) == topic.as_str());
        if is_topic && KeyTexts::of_properties(frame.properties()).carries(&question.key, self.tags) {
            Verdict::Found
        } else {
            Verdict::Rejected
        }
    }
}

/// Classify the message at each offset for a key, with the words of docs/findings.md; `None` where no message begins.
///
/// - `match`: it carries the key and was stored in the time range; `out-of-range`: at another time
/// - `other-key`: another key of it has the same hash; `other-topic`: the same under another topic
/// - `stale-entry`: none of its keys has the hash
///
/// # Errors
/// The system's error, with the path.
pub fn judge(
    log: &CommitLog,
    offsets: &[i64],
    topic: &str,
    key: &str,
    times: TimeRange,
) -> Result<Vec<Option<&'static str>>> {
    let key_hash = key_hash(&[topic, "#", key].concat());
    let mut rising = offsets.to_vec();
    rising.sort_unstable();
    rising.dedup();
    let mut verdicts = vec![None; rising.len()];
    Gather::new(log)?.read(&rising, |number, frame| {
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
    let of =
        |offset: &i64| rising.binary_search(offset).ok().and_then(|number| verdicts.get(number).copied().flatten());
    Ok(offsets.iter().map(of).collect())
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
