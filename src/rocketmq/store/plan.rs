//! The plan of a read: the parts of the log that are read through the index, through the queues, or from the log itself.
//!
//! Streams, pages and tasks of a cluster consume the same pieces.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::open::Store;
use super::queues::{Queues, SHORT_BYTES};
use super::ranges::{Range, in_time, signed, within};
use crate::error::{Error, Result};
use crate::report::Finding;
use crate::rocketmq::commit_log::{CommitLog, Filter, TextSet};
use crate::rocketmq::consume_queue::Kind;
use crate::rocketmq::offset_files::Gap;
use crate::rocketmq::queue_stream::{self, QueuePart};

/// Scanning this many bytes of log takes about a second.
const SCAN_BUDGET_BYTES: u64 = 1 << 30;
/// Queues are read instead of the log if their messages have this many times fewer bytes: messages far apart cost more than as many
/// bytes in a row.
const WORTH_SINGLE_READS: u64 = 8;
/// The most queues of which the number of bytes is estimated.
const MOST_QUEUES: usize = 1_024;

/// The choice to read the log for given topics or keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanChoice {
    /// If little of the log may hold a match.
    Auto,
    /// Always.
    Always,
    /// Only what index and queues do not cover.
    Never,
}

/// The conditions to use index and queues. Reading the log is always right.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// The index is used if more bytes of the log than this may hold a match; `None`: never.
    pub index: Option<u64>,
    /// The queues are used if more bytes of the log than this may hold a match; `None`: never.
    pub queues: Option<u64>,
    /// The queues are used only if they save most of the reads, and each has one directory of plain units.
    pub is_sparse: bool,
    /// An earlier result of where the queues end is used, if that is near the end of the log.
    pub uses_known_end: bool,
    /// Number of threads that read the ends of queues.
    pub threads: usize,
}

impl Policy {
    /// For one reader, who gets the messages in the order of the log.
    pub fn of_stream(choice: ScanChoice, filter: &Filter, threads: usize) -> Self {
        let least = |enough: u64| match choice {
            ScanChoice::Auto => Some(enough),
            ScanChoice::Always => None,
            ScanChoice::Never => Some(0),
        };
        // Without topics the index may lack a deleted topic whose messages are still in the log.
        let index = least(if filter.topics.is_some() { SHORT_BYTES } else { SCAN_BUDGET_BYTES });
        Self { index, queues: least(SCAN_BUDGET_BYTES), is_sparse: false, uses_known_end: false, threads }
    }

    /// For tasks that read in any order, each a part. `is_pushed_down`: index and queues may be used.
    pub fn of_tasks(is_pushed_down: bool, threads: usize) -> Self {
        let least = is_pushed_down.then_some(0);
        Self { index: least, queues: least, is_sparse: true, uses_known_end: false, threads }
    }

    /// For a page of messages, of which a person asks for one after the other.
    pub fn of_page(threads: usize) -> Self {
        Self { index: None, queues: Some(0), is_sparse: false, uses_known_end: true, threads }
    }
}

/// The way to the messages of a piece.
#[derive(Debug)]
pub enum Way {
    /// A scan of the log.
    Log,
    /// At these offsets, which ascend.
    Offsets(Vec<i64>),
    /// Through queues, in the order of the log.
    Queues(Vec<QueuePart>),
}

/// A part of the log, and the way to its messages.
#[derive(Debug)]
pub struct Piece {
    /// Messages that begin in it belong to the piece.
    pub range: Range,
    /// The way to them.
    pub way: Way,
}

/// The pieces of a read.
#[derive(Debug)]
pub struct Plan {
    /// The files of the log when the read was planned.
    pub log: Arc<CommitLog>,
    /// The ranges of the log that may hold a match, by offsets and by the times of the files, ascending.
    pub ranges: Vec<Range>,
    /// In the order of the log.
    pub pieces: Vec<Piece>,
    /// The requested topics that have queues, as far as they were looked up.
    pub queued_topics: Arc<BTreeSet<String>>,
    /// Texts for the log.
    pub notes: Vec<String>,
}

/// Returns the topics that a message may have; `None`: only the log knows.
pub type KnownTopics<'a> = &'a (dyn Fn() -> Result<Option<Vec<String>>> + Sync);

impl Store {
    /// Plans to read the messages that a filter passes. `offsets` are those of the messages, if the caller knows them.
    ///
    /// # Errors
    /// An I/O error, with the path; the error of `known_topics`.
    pub fn plan(
        &self,
        filter: &Filter,
        offsets: Option<Vec<i64>>,
        policy: Policy,
        known_topics: KnownTopics<'_>,
    ) -> Result<Plan> {
        // The files of now: one that the broker deletes before it is read is an error, and not a range that is missing.
        let log = Arc::new(self.log.pinned()?);
        let span = (signed(filter.phy_offsets.start), signed(filter.phy_offsets.end));
        let ranges = within(span, &in_time(&log, filter.times, self.slack_ms)?);
        let (pieces, queued_topics, notes) = (Vec::new(), Arc::default(), Vec::new());
        let mut plan = Plan { log, ranges, pieces, queued_topics, notes };
        if let Some(offsets) = offsets {
            plan.read_offsets(offsets)?;
            return Ok(plan);
        }
        let size = plan.ranges.iter().map(|(begin, end)| end.abs_diff(*begin)).sum::<u64>();
        let is_worth = |least: Option<u64>| least.is_some_and(|least| size > least);
        if is_worth(policy.index)
            && filter.keys.is_some()
            && self.plan_by_index(&mut plan, filter, span, known_topics)?
        {
            return Ok(plan);
        }
        if is_worth(policy.queues)
            && let Some(topics) = filter.topics.as_ref().map(TextSet::texts)
        {
            // The end is read first: a message that is dispatched from here on, also to a new queue, is read from the log.
            let dispatched = self.queues.reliable_end(Some(&topics), policy.threads, policy.uses_known_end)?;
            // Queues begin where the log begins now. If files expired, reading the log reports it.
            if plan.plan_by_queues(&self.queues, filter, &topics, dispatched, policy.is_sparse)?
                && self.log.min_offset()? == plan.log.min_offset()?
            {
                return Ok(plan);
            }
        }
        plan.pieces = plan.of_log((0, i64::MAX));
        Ok(plan)
    }

    /// Plans to read where the index leads, and the log that it does not cover. Returns whether the index can answer.
    fn plan_by_index(
        &self,
        plan: &mut Plan,
        filter: &Filter,
        span: Range,
        known_topics: KnownTopics<'_>,
    ) -> Result<bool> {
        let topics = match &filter.topics {
            Some(topics) => Some(topics.texts()),
            None => known_topics()?,
        };
        // A broker's answers are those of its own walk through the log.
        let Some(topics) = topics.filter(|topics| !topics.is_empty() && !self.index.is_brokers()) else {
            return Ok(false);
        };
        let keys = filter.keys.as_ref().map(TextSet::texts).unwrap_or_default();
        let indexed = match self.indexed_offsets(&topics, &keys, span, filter.times) {
            Err(error @ (Error::Corrupt { .. } | Error::Geometry { .. })) => {
                plan.notes.push(format!("the index does not help, the log is read: {error}"));
                None
            }
            indexed => indexed?,
        };
        let Some(parts) = indexed else { return Ok(false) };
        let mut at = 0;
        for ((begin, end), offsets) in parts {
            plan.pieces.extend(plan.of_log((at, begin)));
            plan.pieces.push(Piece { range: (begin, end), way: Way::Offsets(plan.in_ranges(offsets)) });
            at = end;
        }
        plan.pieces.extend(plan.of_log((at, i64::MAX)));
        Ok(true)
    }
}

impl Plan {
    /// Pieces of the log within `range`.
    pub fn of_log(&self, range: Range) -> Vec<Piece> {
        let parts = within(range, &self.ranges);
        parts.into_iter().map(|range| Piece { range, way: Way::Log }).collect()
    }

    /// Returns the missing parts of the log that may hold a match. A scan of the log reports them as well.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn gaps(&self) -> Result<Vec<Finding>> {
        let mut gaps = self.log.gaps()?;
        gaps.retain(|gap| {
            let overlaps = |(begin, end): &Range| begin.cast_unsigned() < gap.end && gap.begin < end.cast_unsigned();
            self.ranges.iter().any(overlaps)
        });
        Ok(gaps.iter().map(Gap::finding).collect())
    }

    /// Returns those of the offsets that may hold a match.
    fn in_ranges(&self, mut offsets: Vec<i64>) -> Vec<i64> {
        offsets.retain(|offset| self.ranges.iter().any(|(begin, end)| (begin..end).contains(&offset)));
        offsets
    }

    /// Plans to read the messages at some offsets. Only a scan determines which messages after the end of a broker's walk are valid.
    fn read_offsets(&mut self, mut offsets: Vec<i64>) -> Result<()> {
        offsets.sort_unstable();
        offsets.dedup();
        let end = signed(self.log.max_offset()?);
        let mut offsets = self.in_ranges(offsets);
        let after_end = offsets.split_off(offsets.partition_point(|offset| *offset < end));
        self.pieces.push(Piece { range: (0, end), way: Way::Offsets(offsets) });
        if !after_end.is_empty() {
            self.pieces.extend(self.of_log((end, i64::MAX)));
        }
        Ok(())
    }

    /// Plans to read through the queues of some topics up to the offset `dispatched`, and the log that they do not cover. Returns
    /// whether the queues help.
    fn plan_by_queues(
        &mut self,
        queues: &Queues,
        filter: &Filter,
        topics: &[String],
        dispatched: u64,
        is_sparse: bool,
    ) -> Result<bool> {
        let directories = queues.directories(Some(topics))?;
        self.queued_topics = Arc::new(directories.keys().map(|(topic, _)| topic.clone()).collect());
        // A topic without queues may have been deleted, with its messages still in the log.
        if let Some(topic) = topics.iter().find(|topic| !self.queued_topics.contains(*topic)) {
            self.notes.push(format!("topic {topic:?} has no queue; the log is read instead"));
            return Ok(false);
        }
        let mut parts = Vec::new();
        for ((topic, queue_id), paths) in directories {
            if filter.queue_ids.as_ref().is_some_and(|ids| !ids.contains(&queue_id)) {
                continue;
            }
            if is_sparse && (paths.len() > 1 || parts.len() >= MOST_QUEUES) {
                return Ok(false);
            }
            for path in &paths {
                parts.push(QueuePart::matching(queues.open(path)?, topic.clone(), i64::from(queue_id), filter)?);
            }
        }
        let (begin, end) = queue_stream::certain_range(&self.log, &parts)?;
        let begin = begin.max(filter.phy_offsets.start);
        let end = end.min(dispatched).min(self.log.max_offset()?).min(filter.phy_offsets.end).max(begin);
        let range = (signed(begin), signed(end));
        if is_sparse {
            let mut bytes = 0_u64;
            for part in &parts {
                if part.queue.kind() != Kind::Plain {
                    return Ok(false);
                }
                bytes = bytes.saturating_add(part.bytes()?);
            }
            let size: u64 = self.ranges.iter().map(|(begin, end)| end.abs_diff(*begin)).sum();
            if bytes.saturating_mul(WORTH_SINGLE_READS) > size {
                return Ok(false);
            }
        }
        self.pieces = self.of_log((0, range.0));
        self.pieces.push(Piece { range, way: Way::Queues(parts) });
        self.pieces.extend(self.of_log((range.1, i64::MAX)));
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use arrow_array::cast::AsArray as _;
    use arrow_array::types::Int64Type;

    use super::*;
    use crate::batch_size::BatchSize;
    use crate::io::Location;
    use crate::rocketmq::commit_log::columns::Column;
    use crate::rocketmq::commit_log::write::{
        Append, CommitLogWriter, FlushMode, GivenMessage, Host, Limits, PutOptions, WriterOptions,
    };
    use crate::rocketmq::commit_log::{self, Bodies, ScanOptions};
    use crate::rocketmq::consume_queue::{self, ConsumeQueueWriter, DelayLevels};
    use crate::rocketmq::release::Release;
    use crate::rocketmq::store::{MessageStream, ReadOptions, StoreIndex};

    /// Writes a store with a message of topic `T` in each of these queues, after some of another topic. Returns their offsets.
    fn write(root: &Path, queue_ids: &[i32]) -> Vec<u64> {
        let limits = Limits { release: Release::V5_5_0, max_message_size: Limits::MAX_MESSAGE_SIZE };
        let store_host = Host::parse("192.168.0.9:10911").unwrap();
        let (append, flush) = (Append::default(), FlushMode::Manual);
        let options =
            WriterOptions { file_size: 1 << 20, store_host, levels: 18, append, flush, limits, multi_dispatch: false };
        let writer = CommitLogWriter::open(&root.join("commitlog"), 0, options).unwrap();
        let put = |topic: &str, queue_id: i32| {
            let given = GivenMessage { topic, queue_id, body: &[0; 1000], ..GivenMessage::default() };
            let options = PutOptions { bodies: Bodies::Decoded, park: true };
            writer.put_message(given, [], options).unwrap().phy_offset
        };
        (0..100).for_each(|_| _ = put("Other", 0));
        let places = queue_ids.iter().map(|queue_id| put("T", *queue_id)).collect();
        writer.close().unwrap();
        let options = consume_queue::WriterOptions {
            file_size: Some(2000),
            batch_file_size: Some(4600),
            delay_levels: DelayLevels::parse("1s").unwrap(),
            multi_dispatch: false,
            extension_file_size: None,
        };
        let mut queues = ConsumeQueueWriter::create(root, options).unwrap();
        let log = CommitLog::open(root.join("commitlog"), commit_log::Options::default()).unwrap();
        let mut reader = log.scan(&ScanOptions::default()).unwrap();
        while let Some(batch) = reader.next_batch().unwrap() {
            queues.append_batch(&batch).unwrap();
        }
        queues.finish().unwrap();
        places
    }

    fn read(plan: Plan, filter: &Filter) -> Vec<u64> {
        let (filter, columns, bodies) = (filter.clone(), vec![Column::PhyOffset], Bodies::Decoded);
        let (salvage, threads, batch_size) = (true, 1, BatchSize::default());
        let mut stream =
            MessageStream::new(plan, ReadOptions { filter, columns, bodies, batch_size, salvage, threads });
        let mut found = Vec::new();
        while let Some(batch) = stream.next_batch().unwrap() {
            found.extend(batch.column(0).as_primitive::<Int64Type>().values().iter().map(|at| at.cast_unsigned()));
        }
        found
    }

    #[test]
    fn a_queue_that_is_begun_while_a_read_is_planned_is_not_passed_over() {
        let root = tempfile::tempdir().unwrap();
        let places = write(root.path(), &[0, 1]);
        let location = Location::from(root.path());
        let log = Arc::new(CommitLog::open(location.join("commitlog"), commit_log::Options::default()).unwrap());
        let queues = Arc::new(Queues::new(&location, log, consume_queue::Options::default()));
        let store = Store::open(Arc::clone(&queues), StoreIndex::unused(&location)).unwrap();
        let topics = vec!["T".to_owned()];
        let filter = Filter { topics: Some(topics.iter().cloned().collect()), ..Filter::default() };
        let policy = Policy::of_stream(ScanChoice::Never, &filter, 1);
        let plan = store.plan(&filter, None, policy, &|| Ok(None)).unwrap();
        assert!(plan.pieces.iter().any(|piece| matches!(piece.way, Way::Queues(_))), "{plan:?}");
        assert_eq!(read(plan, &filter), places);
        // The second message, and its queue, came after the end of the queues was read.
        for is_sparse in [false, true] {
            let mut plan = store.plan(&filter, None, Policy::of_tasks(false, 1), &|| Ok(None)).unwrap();
            assert!(plan.plan_by_queues(&queues, &filter, &topics, places[1], is_sparse).unwrap());
            assert!(plan.pieces.iter().any(|piece| matches!(piece.way, Way::Queues(_))), "{plan:?}");
            assert_eq!(read(plan, &filter), places);
        }
    }
}
