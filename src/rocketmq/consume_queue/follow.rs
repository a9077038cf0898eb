//! Messages against the units of their queues, as the log goes by: every message has its unit.
//!
//! Messages of a queue come in the order of its units, so of each queue only the next units are in memory.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;

use super::batch_blocks::BatchBlocks;
use super::extension::is_extension_address;
use super::queue::{ConsumeQueue, Kind, Options};
use super::unit::{BatchUnit, Unit};
use crate::arrow::input_columns::{Int32s, Texts, integers, null};
use crate::error::Result;
use crate::hash_index::carry_utf8;
use crate::rocketmq::commit_log::frame::is_in_queue;
use crate::rocketmq::names::SCHEDULE_TOPIC;

/// The most units of a queue that are read ahead.
const AHEAD: usize = 8_192;
/// The fewest.
const FEWEST_AHEAD: usize = 256;
/// There may be many thousands of queues: so many units are in memory together, unless each has its fewest.
const IN_MEMORY: usize = 1 << 20;

/// Numbers of queues by topic and queue.
#[derive(Debug, Default)]
struct Numbers(HashMap<String, HashMap<i64, usize>>);

impl Numbers {
    fn get(&self, topic: &str, queue_id: i64) -> Option<usize> {
        self.0.get(topic)?.get(&queue_id).copied()
    }

    fn insert(&mut self, topic: &str, queue_id: i64, number: usize) {
        self.0.entry(topic.to_owned()).or_default().insert(queue_id, number);
    }

    fn len(&self) -> usize {
        self.0.values().map(HashMap::len).sum()
    }
}

/// One queue, and the units of it that come next.
#[derive(Debug)]
struct Followed {
    directory: PathBuf,
    options: Options,
    /// Of a batch queue: where its queue offsets stand.
    blocks: BatchBlocks,
    /// By queue offset; of units with the same one the last counts.
    units: Vec<BatchUnit>,
    /// The queue offsets whose units were read.
    begin: i64,
    end: i64,
    matched: u64,
}

impl Followed {
    /// Opened for each reading: there may be too many queues to keep their files open.
    fn open(&self) -> Result<ConsumeQueue> {
        ConsumeQueue::open(&self.directory, self.options.clone())
    }

    fn unit(&mut self, queue_offset: i64, ahead: usize) -> Result<Option<Unit>> {
        if !(self.begin..self.end).contains(&queue_offset) {
            self.units.clear();
            self.begin = queue_offset;
            self.end = queue_offset.saturating_add(i64::try_from(ahead).unwrap_or(i64::MAX));
            let queue = self.open()?;
            let units = &mut self.units;
            if queue.kind() == Kind::Batch && self.options.compat.is_none() {
                self.blocks.units(&queue, self.begin, self.end, |unit| units.push(unit))?;
            } else {
                queue.units(self.begin, self.end, |unit| units.push(unit))?;
            }
            self.units.sort_by_key(|unit| unit.base_offset);
            self.units.dedup_by(|later, kept| {
                let is_same = later.base_offset == kept.base_offset;
                if is_same {
                    *kept = *later;
                }
                is_same
            });
        }
        // Nearly always at its place; not where units are missing or hold several messages.
        let place = usize::try_from(queue_offset.wrapping_sub(self.begin)).unwrap_or(usize::MAX);
        let is_it = |unit: &&BatchUnit| unit.base_offset == queue_offset;
        let unit = self.units.get(place).filter(is_it).or_else(|| {
            let after = self.units.partition_point(|unit| unit.base_offset <= queue_offset);
            self.units.get(after.checked_sub(1)?).filter(is_it)
        });
        Ok(unit.map(|unit| unit.unit))
    }
}

/// Messages one after another of a queue that lack their unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingUnits {
    /// The topic that the messages name.
    pub topic: String,
    /// The queue that they name.
    pub queue_id: i32,
    /// Queue offset of the first.
    pub begin: i64,
    /// Queue offset after the last.
    pub end: i64,
    /// Where the first lies in the log.
    pub phy_offset: i64,
}

/// A unit whose tags code is not that of its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OddTags {
    /// Row of the message in its batch.
    pub row: usize,
    /// The queue, as [`QueueFollower::add`] numbered it.
    pub queue: usize,
    /// Queue offset of the unit.
    pub queue_offset: i64,
    /// Where the message lies in the log.
    pub phy_offset: i64,
    /// The message's tags.
    pub tags: Option<String>,
    /// Their hash.
    pub expected: i64,
    /// What the unit holds.
    pub found: i64,
}

/// Compares the messages of a log with the units of its queues.
#[derive(Debug, Default)]
pub struct QueueFollower {
    queues: Vec<Followed>,
    numbers: Numbers,
    dispatched: Option<i64>,
    topics: HashSet<String>,
    missing: Vec<Vec<MissingUnits>>,
    numbers_missing: Numbers,
    undispatched: u64,
    without_queue: u64,
}

impl QueueFollower {
    /// Follows no queue yet.
    ///
    /// A message at `dispatched` or behind it may be without its unit, and so may one of a topic that has no queue and is not
    /// in `topics`, unless these are empty.
    pub fn new(dispatched: Option<i64>, topics: HashSet<String>) -> Self {
        Self { dispatched, topics, ..Self::default() }
    }

    /// Takes a queue, instead of one of the same topic and number that it has, and gives its number here.
    pub fn add(&mut self, topic: &str, queue_id: i64, directory: &Path, options: Options) -> usize {
        let number = self.queues.len();
        let directory = directory.to_owned();
        let (blocks, units) = (BatchBlocks::default(), Vec::new());
        self.queues.push(Followed { directory, options, blocks, units, begin: 0, end: 0, matched: 0 });
        self.numbers.insert(topic, queue_id, number);
        number
    }

    fn ahead(&self) -> usize {
        (IN_MEMORY / self.numbers.len().max(1)).clamp(FEWEST_AHEAD, AHEAD)
    }

    /// Compares a batch of messages, the next of the log, with their units; gives the units with odd tags by their rows.
    ///
    /// # Errors
    /// `InvalidArgument` for a column that is missing, of another type, or null; the system's error, with the path.
    pub fn follow(&mut self, messages: &RecordBatch) -> Result<Vec<OddTags>> {
        let (topics, texts_of_tags) = (Texts::of(messages, "topic")?, Texts::of(messages, "tags")?);
        let (queue_ids, sizes) = (Int32s::of(messages, "queue_id")?, Int32s::of(messages, "store_size")?);
        let sys_flags = Int32s::of(messages, "sys_flag")?;
        let (queue_offsets, phy_offsets) = (integers(messages, "queue_offset")?, integers(messages, "phy_offset")?);
        let ahead = self.ahead();
        let (mut odd, mut extended) = (Vec::new(), Vec::new());
        for row in 0..messages.num_rows() {
            if !is_in_queue(sys_flags.get(row)?) {
                continue;
            }
            let topic = topics.get(row).ok_or_else(|| null("topic", row))?;
            let queue_id = queue_ids.get(row)?;
            let queue_offset = queue_offsets(row).ok_or_else(|| null("queue_offset", row))?;
            let phy_offset = phy_offsets(row).ok_or_else(|| null("phy_offset", row))?;
            let size = sizes.get(row)?;
            let number = self.numbers.get(topic, i64::from(queue_id));
            let queue = number.and_then(|number| Some((number, self.queues.get_mut(number)?)));
            let Some((number, queue)) = queue else {
                self.miss(topic, queue_id, queue_offset, phy_offset, true);
                continue;
            };
            let unit = queue.unit(queue_offset, ahead)?;
            let Some(unit) = unit.filter(|unit| (unit.phy_offset, unit.size) == (phy_offset, size)) else {
                self.miss(topic, queue_id, queue_offset, phy_offset, false);
                continue;
            };
            queue.matched += 1;
            // There the code is the time of delivery, by a table of levels that the store does not hold.
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
            let found = OddTags { row, queue: number, queue_offset, phy_offset, tags, expected, found };
            let list = if is_extension_address(found.found) { &mut extended } else { &mut odd };
            list.push(found);
        }
        self.keep_odd(&mut extended)?;
        odd.append(&mut extended);
        odd.sort_by_key(|odd| odd.row);
        Ok(odd)
    }

    /// Leaves out those whose tags code stands in the extension files. An address that leads nowhere is odd.
    fn keep_odd(&self, extended: &mut Vec<OddTags>) -> Result<()> {
        extended.sort_by_key(|odd| odd.queue);
        let mut kept = Vec::new();
        for of_queue in extended.chunk_by(|a, b| a.queue == b.queue) {
            let queue = of_queue.first().and_then(|odd| self.queues.get(odd.queue));
            let codes = match queue {
                Some(queue) if queue.options.extension.is_some() => {
                    queue.open()?.extension_units(of_queue.iter().map(|odd| Some(odd.found)))?
                }
                _ => Vec::new(),
            };
            let codes =
                codes.iter().map(|unit| unit.as_ref().map(|unit| unit.tags_code)).chain(std::iter::repeat(None));
            kept.extend(
                of_queue
                    .iter()
                    .zip(codes)
                    .filter(|(odd, code)| *code != Some(odd.expected))
                    .map(|(odd, _)| odd.clone()),
            );
        }
        *extended = kept;
        Ok(())
    }

    fn miss(&mut self, topic: &str, queue_id: i32, queue_offset: i64, phy_offset: i64, no_queue: bool) {
        if self.dispatched.is_some_and(|dispatched| phy_offset >= dispatched) {
            self.undispatched += 1;
        } else if no_queue && !self.topics.is_empty() && !self.topics.contains(topic) {
            self.without_queue += 1;
        } else {
            let number = self.numbers_missing.get(topic, i64::from(queue_id)).unwrap_or_else(|| {
                self.numbers_missing.insert(topic, i64::from(queue_id), self.missing.len());
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

    /// How many messages of a queue had their unit; 0 of one that is not there.
    pub fn matched(&self, queue: usize) -> u64 {
        self.queues.get(queue).map_or(0, |queue| queue.matched)
    }

    /// The unit of a queue offset.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn unit(&mut self, queue: usize, queue_offset: i64) -> Result<Option<Unit>> {
        let ahead = self.ahead();
        self.queues.get_mut(queue).map_or(Ok(None), |queue| queue.unit(queue_offset, ahead))
    }

    /// The messages that lack their unit: queue by queue, in the order in which the first of each was met.
    pub fn missing(&self) -> impl Iterator<Item = &MissingUnits> {
        self.missing.iter().flatten()
    }

    /// Messages without unit that the broker had yet to dispatch.
    pub fn undispatched(&self) -> u64 {
        self.undispatched
    }

    /// Messages without unit whose topic was deleted.
    pub fn without_queue(&self) -> u64 {
        self.without_queue
    }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
