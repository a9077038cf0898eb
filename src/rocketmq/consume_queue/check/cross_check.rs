//! Cross-check of the queues of a store with its log: every message must have a unit, and every unit a message.
//!
//! ```text
//! scan of the log --check--> units of each message: there, and with its tags code?
//!                  --finish--> units of no message, and messages without a unit
//! ```
//!
//! The units of a queue are in the order of its messages, so only the next units of each queue are in memory.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::RecordBatch;

use crate::arrow::input_columns::{Int32s, Texts, integers, null};
use crate::error::Result;
use crate::hash_index::carry_utf8;
use crate::io::{Location, i64_of, storage, usize_of};
use crate::report::{self, Report};
use crate::rocketmq::commit_log::columns::Column;
use crate::rocketmq::commit_log::frame::is_in_queue;
use crate::rocketmq::commit_log::{Bodies, CommitLog};
use crate::rocketmq::consume_queue::directories::{
    EXTENSION_FOLDER, QueueDirectory, folder, holds_database, holds_entries, queues,
};
use crate::rocketmq::consume_queue::read::{BatchBlocks, ConsumeQueue, Kind, Options, is_extension_address};
use crate::rocketmq::consume_queue::unit::{BatchUnit, Unit};
use crate::rocketmq::names::{MULTI_DISPATCH, MULTI_QUEUE_OFFSET, SCHEDULE_TOPIC, dispatched_queue_id};

/// The most units of a queue that are read ahead.
const AHEAD: usize = 8_192;
/// The fewest units of a queue that are read ahead.
const FEWEST_AHEAD: usize = 256;
/// The most units in memory, over all queues. Each queue may have its fewest: there may be many thousands of queues.
const IN_MEMORY: usize = 1 << 20;
/// Units that are compared with their messages at once.
const UNITS_A_STEP: i64 = if cfg!(test) { 2 } else { 8_192 };

/// Numbers by topic and queue.
#[derive(Debug, Default)]
struct Numbers(HashMap<String, HashMap<i32, usize>>);

impl Numbers {
    fn get(&self, topic: &str, queue_id: i32) -> Option<usize> {
        self.0.get(topic)?.get(&queue_id).copied()
    }

    fn insert(&mut self, topic: &str, queue_id: i32, number: usize) {
        self.0.entry(topic.to_owned()).or_default().insert(queue_id, number);
    }
}

/// One queue, and its next units.
#[derive(Debug)]
struct Followed {
    topic: String,
    queue_id: i32,
    directory: Location,
    options: Options,
    /// The places of queue offsets in a batch queue.
    blocks: BatchBlocks,
    /// Sorted by queue offset. Of units with the same offset the last one counts.
    units: Vec<BatchUnit>,
    /// The range of queue offsets that was read.
    begin: i64,
    end: i64,
    /// Number of messages whose unit was found.
    matched: i64,
}

impl Followed {
    fn new(queue: QueueDirectory, options: Options) -> Self {
        let QueueDirectory { topic, queue_id, directory } = queue;
        let (blocks, units) = (BatchBlocks::default(), Vec::new());
        Self { topic, queue_id, directory, options, blocks, units, begin: 0, end: 0, matched: 0 }
    }

    /// Opens the queue for one read: a store may have too many queues to keep their files open.
    fn open(&self) -> Result<ConsumeQueue> {
        ConsumeQueue::open(&self.directory, self.options.clone())
    }

    fn read(&mut self, queue: &ConsumeQueue, begin: i64, end: i64) -> Result<()> {
        (self.begin, self.end) = (begin, end);
        self.units.clear();
        let units = &mut self.units;
        if queue.kind() == Kind::Batch && self.options.compat.is_none() {
            self.blocks.units(queue, begin, end, |unit| units.push(unit))?;
        } else {
            queue.units(begin, end, |unit| units.push(unit))?;
        }
        self.units.sort_by_key(|unit| unit.base_offset);
        self.units.dedup_by(|later, kept| {
            let is_same = later.base_offset == kept.base_offset;
            if is_same {
                *kept = *later;
            }
            is_same
        });
        Ok(())
    }

    fn unit(&mut self, queue_offset: i64, ahead: usize) -> Result<Option<Unit>> {
        if !(self.begin..self.end).contains(&queue_offset) {
            let end = queue_offset.saturating_add(i64_of(ahead));
            self.read(&self.open()?, queue_offset, end)?;
        }
        // Usually the unit is at this place, unless units are missing or hold several messages.
        let place = usize_of(queue_offset.wrapping_sub(self.begin).cast_unsigned());
        let is_it = |unit: &&BatchUnit| unit.base_offset == queue_offset;
        let unit = self.units.get(place).filter(is_it).or_else(|| {
            let after = self.units.partition_point(|unit| unit.base_offset <= queue_offset);
            self.units.get(after.checked_sub(1)?).filter(is_it)
        });
        Ok(unit.map(|unit| unit.unit))
    }

    /// Returns the file and the byte of a unit. Units of a batch queue are not numbered, so its directory is returned.
    fn place(&self, queue_offset: i64) -> Result<(Location, u64)> {
        let queue = self.open()?;
        if queue.kind() == Kind::Batch {
            return Ok((self.directory.clone(), 0));
        }
        let at = queue_offset.unsigned_abs().saturating_mul(queue.unit_bytes());
        let file = queue.files()?.into_iter().rev().find(|file| file.start <= at);
        Ok(file.map_or_else(|| (self.directory.clone(), at), |file| (file.path, at - file.start)))
    }

    fn find(&self, report: &mut Report, at: i64, kind: report::Kind, expected: String, found: String) -> Result<()> {
        let (path, offset) = self.place(at)?;
        report.find(&path, offset, kind, expected, found);
        Ok(())
    }
}

/// Consecutive messages of a queue that lack their unit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MissingUnits {
    topic: String,
    queue_id: i32,
    /// Queue offset of the first.
    begin: i64,
    /// Queue offset after the last.
    end: i64,
    /// Offset of the first in the log.
    phy_offset: i64,
}

/// A unit whose tags code differs from that of its message.
#[derive(Clone, Debug)]
struct WrongTags {
    row: usize,
    queue: usize,
    queue_offset: i64,
    phy_offset: i64,
    tags: Option<String>,
    expected: i64,
    found: i64,
}

/// The state in which the writer left the store.
#[derive(Clone, Debug, Default)]
pub struct StoreState {
    /// True if the store is open for writing, or was not closed. The last messages may then lack their units.
    pub is_unclean: bool,
    /// True if the writer dispatches queue by queue, as logdex does. Each queue may then end at another message.
    pub is_dispatched_by_queue: bool,
    /// The topics in the store's configuration. Messages of other topics may lack their queue. Empty: unknown.
    pub topics: HashSet<String>,
}

/// Compares the queues of a store with the messages of its log.
#[derive(Debug)]
pub struct CrossCheck {
    root: Location,
    log: Arc<CommitLog>,
    state: StoreState,
    queues: Vec<Followed>,
    numbers: Numbers,
    /// Offset in the log that the dispatch has reached, at least.
    dispatched: Option<i64>,
    missing: Vec<Vec<MissingUnits>>,
    numbers_missing: Numbers,
    undispatched: i64,
    without_queue: i64,
    report: Report,
}

impl CrossCheck {
    /// Lists the queues of the store in `root` and checks their files. `options` control how queues are read.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn open(root: &Location, log: Arc<CommitLog>, options: &Options, state: StoreState) -> Result<Self> {
        let (queues, numbers) = (Vec::new(), Numbers::default());
        let mut check = Self {
            root: root.to_owned(),
            log,
            state,
            queues,
            numbers,
            dispatched: None,
            missing: Vec::new(),
            numbers_missing: Numbers::default(),
            undispatched: 0,
            without_queue: 0,
            report: Report::default(),
        };
        let mut log_end = 0;
        for kind in [Kind::Plain, Kind::Batch] {
            let folder = folder(kind);
            if holds_database(root, folder)? {
                continue;
            }
            for queue in queues_in(root, folder)? {
                let extension = root.join(EXTENSION_FOLDER).join(&queue.topic).join(queue.queue_id.to_string());
                let extension = storage::if_directory(extension)?;
                let options = Options { extension, commit_log: Some(Arc::clone(&check.log)), ..options.clone() };
                let followed = Followed::new(queue, options);
                let opened = followed.open()?;
                check.report.add(opened.check_files()?);
                log_end = log_end.max(opened.last_unit()?.map_or(0, |last| last.unit.end()));
                check.add(followed);
            }
        }
        // The last messages may not be dispatched yet.
        check.dispatched = check.state.is_unclean.then_some(log_end);
        Ok(check)
    }

    fn add(&mut self, queue: Followed) {
        if let Some(known) = self.numbers.get(&queue.topic, queue.queue_id).and_then(|at| self.queues.get_mut(at)) {
            *known = queue;
            return;
        }
        self.numbers.insert(&queue.topic, queue.queue_id, self.queues.len());
        self.queues.push(queue);
    }

    /// The number of queues.
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    fn ahead(&self) -> usize {
        (IN_MEMORY / self.queues.len().max(1)).clamp(FEWEST_AHEAD, AHEAD)
    }

    /// Compares a batch of messages, the next one of the log, with their units. Without queues nothing is compared.
    ///
    /// # Errors
    /// `InvalidArgument` for a column that is missing, of another type, or null; an I/O error, with the path.
    pub fn check(&mut self, messages: &RecordBatch) -> Result<()> {
        if self.queues.is_empty() {
            return Ok(());
        }
        let (topics, texts_of_tags) = (Texts::of(messages, "topic")?, Texts::of(messages, "tags")?);
        let (queue_ids, sizes) = (Int32s::of(messages, "queue_id")?, Int32s::of(messages, "store_size")?);
        let sys_flags = Int32s::of(messages, "sys_flag")?;
        let (queue_offsets, phy_offsets) = (integers(messages, "queue_offset")?, integers(messages, "phy_offset")?);
        let ahead = self.ahead();
        let (mut wrong, mut extended) = (Vec::new(), Vec::new());
        for row in 0..messages.num_rows() {
            if !is_in_queue(sys_flags.get(row)?) {
                continue;
            }
            let topic = topics.get(row).ok_or_else(|| null("topic", row))?;
            let queue_id = queue_ids.get(row)?;
            let queue_offset = queue_offsets(row).ok_or_else(|| null("queue_offset", row))?;
            let phy_offset = phy_offsets(row).ok_or_else(|| null("phy_offset", row))?;
            let size = sizes.get(row)?;
            let number = self.numbers.get(topic, queue_id);
            let Some((number, queue)) = number.and_then(|number| Some((number, self.queues.get_mut(number)?))) else {
                self.miss(topic, queue_id, queue_offset, phy_offset, true);
                continue;
            };
            let unit = queue.unit(queue_offset, ahead)?;
            let Some(unit) = unit.filter(|unit| (unit.phy_offset, unit.size) == (phy_offset, size)) else {
                self.miss(topic, queue_id, queue_offset, phy_offset, false);
                continue;
            };
            queue.matched += 1;
            // The tags code of a scheduled message is its time of delivery. The store does not hold the table of levels.
            if topic == SCHEDULE_TOPIC {
                continue;
            }
            let tags = texts_of_tags.get(row);
            let expected = i64::from(carry_utf8(0, tags.unwrap_or_default().as_bytes()));
            let found = unit.tags_code;
            if found == expected {
                continue;
            }
            let tags = tags.map(str::to_owned);
            let list = if is_extension_address(found) { &mut extended } else { &mut wrong };
            list.push(WrongTags { row, queue: number, queue_offset, phy_offset, tags, expected, found });
        }
        self.resolve_addresses(&mut extended)?;
        wrong.append(&mut extended);
        wrong.sort_by_key(|wrong| wrong.row);
        for wrong in wrong {
            let Some(queue) = self.queues.get(wrong.queue) else { continue };
            let tags = wrong.tags.map_or_else(|| "no tags".to_owned(), |tags| format!("tags {}", quoted(&tags)));
            let expected = format!("tags code {} of {tags}, for the message at {}", wrong.expected, wrong.phy_offset);
            queue.find(
                &mut self.report,
                wrong.queue_offset,
                report::Kind::QueueTags,
                expected,
                wrong.found.to_string(),
            )?;
        }
        Ok(())
    }

    /// Leaves out the units whose tags code is in the extension files. An address without a unit stays.
    fn resolve_addresses(&self, extended: &mut Vec<WrongTags>) -> Result<()> {
        extended.sort_by_key(|wrong| wrong.queue);
        let mut kept = Vec::new();
        for of_queue in extended.chunk_by(|a, b| a.queue == b.queue) {
            let queue = of_queue.first().and_then(|wrong| self.queues.get(wrong.queue));
            let codes = match queue {
                Some(queue) if queue.options.extension.is_some() => {
                    queue.open()?.extension_units(of_queue.iter().map(|wrong| Some(wrong.found)))?
                }
                _ => Vec::new(),
            };
            let codes = codes.iter().map(|unit| unit.as_ref().map(|unit| unit.tags_code));
            let codes = codes.chain(std::iter::repeat(None));
            let wrong = of_queue.iter().zip(codes).filter(|(wrong, code)| *code != Some(wrong.expected));
            kept.extend(wrong.map(|(wrong, _)| wrong.clone()));
        }
        *extended = kept;
        Ok(())
    }

    fn miss(&mut self, topic: &str, queue_id: i32, queue_offset: i64, phy_offset: i64, no_queue: bool) {
        let topics = &self.state.topics;
        if self.dispatched.is_some_and(|dispatched| phy_offset >= dispatched) {
            self.undispatched += 1;
        } else if no_queue && !topics.is_empty() && !topics.contains(topic) {
            self.without_queue += 1;
        } else {
            let number = self.numbers_missing.get(topic, queue_id).unwrap_or_else(|| {
                self.numbers_missing.insert(topic, queue_id, self.missing.len());
                self.missing.push(Vec::new());
                self.missing.len() - 1
            });
            let Some(runs) = self.missing.get_mut(number) else {
                return;
            };
            match runs.last_mut() {
                Some(last) if last.end == queue_offset => last.end = last.end.saturating_add(1),
                _ => {
                    let (topic, end) = (topic.to_owned(), queue_offset.saturating_add(1));
                    runs.push(MissingUnits { topic, queue_id, begin: queue_offset, end, phy_offset });
                }
            }
        }
    }

    /// Checks the units without a message, and reports the messages without a unit.
    ///
    /// Counts `queues`, `units_followed`, and, if there are any, `messages_not_dispatched` and `messages_of_deleted_topics`.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn finish(mut self) -> Result<Report> {
        let mut units = 0;
        for mut queue in std::mem::take(&mut self.queues) {
            units += self.check_units(&mut queue)?;
            self.queues.push(queue);
        }
        for run in std::mem::take(&mut self.missing).into_iter().flatten() {
            if self.state.is_dispatched_by_queue && self.is_not_dispatched_yet(&run)? {
                self.undispatched += run.end - run.begin;
            } else {
                self.report_missing(&run)?;
            }
        }
        let mut count = |name, number: i64| self.report.count(name, number.unsigned_abs());
        count("queues", i64_of(self.queues.len()));
        count("units_followed", units);
        if self.undispatched > 0 {
            count("messages_not_dispatched", self.undispatched);
        }
        if self.without_queue > 0 {
            count("messages_of_deleted_topics", self.without_queue);
        }
        Ok(self.report)
    }

    /// Compares the units of a queue with the log, unless each of them already had its message. Returns their number.
    fn check_units(&mut self, queue: &mut Followed) -> Result<i64> {
        let opened = queue.open()?;
        let (begin, end) = opened.bounds()?;
        if opened.kind() == Kind::Plain && queue.matched == end - begin {
            return Ok(queue.matched);
        }
        let (log_begin, log_end) = (self.log.min_offset()?.cast_signed(), self.log.max_offset()?.cast_signed());
        let files = opened.files()?;
        let (mut count, mut at) = (0, begin);
        while at < end {
            // Nothing is between two files, whose names may be any numbers.
            let written = match opened.kind() {
                Kind::Plain => Some(opened.written_from(&files, at)),
                Kind::Batch => queue.blocks.written_from(&opened, at)?,
            };
            let Some(written) = written.filter(|written| *written < end) else { break };
            at = written;
            let next = at.saturating_add(UNITS_A_STEP).min(end);
            queue.read(&opened, at, next)?;
            let mut units = std::mem::take(&mut queue.units);
            (queue.begin, queue.end) = (0, 0);
            // A batch unit may begin in the previous step.
            units.retain(|unit| unit.base_offset >= at || at == begin);
            count += i64_of(units.len());
            // Messages before the log were deleted with it.
            units.retain(|unit| unit.unit.phy_offset >= log_begin);
            self.check_messages(queue, &units, log_end)?;
            at = next;
        }
        Ok(count)
    }

    /// Compares units with the messages that they refer to.
    fn check_messages(&mut self, queue: &Followed, units: &[BatchUnit], log_end: i64) -> Result<()> {
        let columns = [Column::Topic, Column::QueueId, Column::QueueOffset, Column::StoreSize];
        let offsets = units.iter().map(|unit| Some(unit.unit.phy_offset));
        let messages = self.log.messages(offsets, &columns, Bodies::Stored)?;
        let (topics, queue_ids) = (Texts::of(&messages, "topic")?, Int32s::of(&messages, "queue_id")?);
        let (queue_offsets, sizes) = (integers(&messages, "queue_offset")?, Int32s::of(&messages, "store_size")?);
        for (row, unit) in units.iter().enumerate() {
            let Unit { phy_offset, size, .. } = unit.unit;
            let at = unit.base_offset;
            let found = match topics.get(row) {
                None if phy_offset >= log_end => "the end of the log".to_owned(),
                None => "no valid message".to_owned(),
                Some(topic) => {
                    let message = (topic, queue_ids.get(row)?, queue_offsets(row).unwrap_or(-1), sizes.get(row)?);
                    if message == (queue.topic.as_str(), queue.queue_id, at, size)
                        || message.3 == size && self.is_dispatched_to(queue, at, phy_offset)?
                    {
                        continue;
                    }
                    let (topic, queue_id, queue_offset, size) = message;
                    format!(
                        "a message of {}, queue {queue_id}, queue offset {queue_offset}, size {size}",
                        quoted(topic)
                    )
                }
            };
            let (topic, queue_id) = (quoted(&queue.topic), queue.queue_id);
            let expected = format!("message {at} of {topic}, queue {queue_id}, size {size}, at offset {phy_offset}");
            queue.find(&mut self.report, at, report::Kind::QueueMessage, expected, found)?;
        }
        Ok(())
    }

    /// Returns whether a message of another topic names this queue and this queue offset itself (multi-dispatch).
    fn is_dispatched_to(&self, queue: &Followed, queue_offset: i64, phy_offset: i64) -> Result<bool> {
        let found =
            u64::try_from(phy_offset).ok().map(|phy_offset| self.log.message(phy_offset)).transpose()?.flatten();
        let Some(message) = found else {
            return Ok(false);
        };
        let texts = |name| {
            let property = message.properties.iter().rev().find(|(known, _)| known == name);
            property.map_or("", |(_, value)| value.as_str()).split(',')
        };
        let offset = queue_offset.to_string();
        let is_named = texts(MULTI_DISPATCH).zip(texts(MULTI_QUEUE_OFFSET)).any(|pair| pair == (&queue.topic, &offset));
        Ok(is_named && dispatched_queue_id(&queue.topic, message.queue_id) == queue.queue_id)
    }

    /// Returns whether messages are after the end of their queue, which may have grown since they were compared.
    fn is_not_dispatched_yet(&mut self, run: &MissingUnits) -> Result<bool> {
        let number = self.numbers.get(&run.topic, run.queue_id);
        let Some(queue) = number.and_then(|number| self.queues.get_mut(number)) else {
            return Ok(true);
        };
        let opened = queue.open()?;
        let written = run.end.min(opened.bounds()?.1);
        if written <= run.begin {
            return Ok(true);
        }
        queue.read(&opened, run.begin, written)?;
        let is_whole = i64::try_from(queue.units.len()).is_ok_and(|count| count == written - run.begin);
        Ok(is_whole && queue.units.first().is_some_and(|first| first.unit.phy_offset == run.phy_offset))
    }

    fn report_missing(&mut self, run: &MissingUnits) -> Result<()> {
        let MissingUnits { topic, queue_id, begin, end, phy_offset } = run;
        self.report.count("messages_without_unit", u64::try_from(end - begin).unwrap_or(1));
        let expected = match end - begin {
            1 => format!("unit {begin} for a message of the log, from offset {phy_offset}"),
            count => {
                format!("units {begin} to {} for {count} messages of the log, from offset {phy_offset}", end - 1)
            }
        };
        let ahead = self.ahead();
        let number = self.numbers.get(topic, *queue_id);
        let Some(queue) = number.and_then(|number| self.queues.get_mut(number)) else {
            let directory = self.root.join(folder(Kind::Plain)).join(topic).join(queue_id.to_string());
            self.report.find(&directory, 0, report::Kind::QueueMissing, expected, "no queue");
            return Ok(());
        };
        let found = queue.unit(*begin, ahead)?.map_or_else(
            || "nothing".to_owned(),
            |unit| format!("a unit for offset {}, size {}", unit.phy_offset, unit.size),
        );
        queue.find(&mut self.report, *begin, report::Kind::QueueMissing, expected, found)
    }
}

/// The queues in a folder that hold files: a deleted topic leaves empty directories.
fn queues_in(root: &Location, folder: &str) -> Result<Vec<QueueDirectory>> {
    let mut found = Vec::new();
    for queue in queues(root, folder)? {
        if holds_entries(&queue.directory)? {
            found.push(queue);
        }
    }
    Ok(found)
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.escape_debug())
}

#[cfg(test)]
#[path = "cross_check_tests.rs"]
mod tests;
