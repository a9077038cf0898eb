//! Totals of the queues of a store by topic, read in one pass over their directories, for stores with many thousand queues.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::queue::{ConsumeQueue, Kind, Options, bounds_in};
use crate::error::Result;
use crate::io::Location;
use crate::rocketmq::consume_queue::directories::{each_topic, queues_of};
use crate::rocketmq::offset_files::{self, Gap, Listing};

/// Totals of the queues of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicTotals {
    /// The topic.
    pub topic: String,
    /// Number of queues.
    pub queues: u64,
    /// Number of messages.
    pub messages: i64,
    /// Bytes of their frames in the log, if the units were measured.
    pub bytes: Option<u64>,
}

/// Number of messages in a queue, and the bytes of their frames.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    messages: i64,
    bytes: u64,
}

/// Totals of the queues of a store.
#[derive(Debug, Default)]
pub struct Totals {
    /// Totals by topic, sorted.
    pub topics: Vec<TopicTotals>,
    /// Offsets in the log of the first and the last message of each queue.
    pub ends: Vec<i64>,
    /// The missing ranges of bytes between the files of a queue and of files that were set aside.
    pub gaps: Vec<Gap>,
}

impl Totals {
    /// Reads the queues of these topics, or of all, in some folders of a store. A batch queue hides the plain queue with the same
    /// number. If the frames are measured, all units are read.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn read(
        folders: &[Location],
        topics: Option<&[String]>,
        options: &Options,
        measure: bool,
        threads: usize,
    ) -> Result<Self> {
        // One listing of the log serves all queues.
        let log = options.commit_log.as_ref().map(|log| log.pinned()).transpose()?;
        let log_end = match (&log, options.compat) {
            (Some(log), Some(_)) if options.log_end.is_none() => Some(log.max_offset()?.cast_signed()),
            _ => options.log_end,
        };
        let options = Options { commit_log: log.map(Arc::new), log_end, ..options.clone() };
        let parts = each_topic(folders, topics, threads, |topic, directories| {
            Self::of_topic(topic, directories, &options, measure)
        })?;
        let mut all = Self::default();
        for part in parts {
            all.topics.extend(part.topics);
            all.ends.extend(part.ends);
            all.gaps.extend(part.gaps);
        }
        Ok(all)
    }

    fn of_topic(topic: &str, places: &[Location], options: &Options, measure: bool) -> Result<Self> {
        let mut found = Self::default();
        let mut queues: BTreeMap<i32, (Kind, Held)> = BTreeMap::new();
        for directory in places {
            let mut places = queues_of(topic, directory)?;
            // A directory listing is unordered.
            places.sort_by_key(|place| place.queue_id);
            for place in places {
                let files = match offset_files::list_if_any(&place.directory) {
                    // The broker deleted it after the parent directory was listed.
                    Err(error) if error.is_missing() => None,
                    listed => listed?,
                };
                let Some(files) = files else { continue };
                let queue = ConsumeQueue::listed(&place.directory, options.clone());
                let held = found.add(&queue, &files, measure)?;
                match queues.entry(place.queue_id) {
                    Entry::Vacant(entry) => _ = entry.insert((queue.kind(), held)),
                    Entry::Occupied(mut entry) if queue.kind() == Kind::Batch => _ = entry.insert((Kind::Batch, held)),
                    Entry::Occupied(_) => {}
                }
            }
        }
        if !queues.is_empty() {
            let messages = queues.values().fold(0i64, |sum, (_, held)| sum.saturating_add(held.messages));
            let bytes = queues.values().fold(0u64, |sum, (_, held)| sum.saturating_add(held.bytes));
            let (topic, queues, bytes) = (topic.to_owned(), queues.len() as u64, measure.then_some(bytes));
            found.topics.push(TopicTotals { topic, queues, messages, bytes });
        }
        Ok(found)
    }

    /// Adds the ends and gaps of a queue, and returns its totals.
    fn add(&mut self, queue: &ConsumeQueue, files: &Listing, measure: bool) -> Result<Held> {
        self.gaps.extend(queue.gaps_of(files));
        let mut open = None;
        let bounds = bounds_in(queue, files, &mut open)?;
        let messages = bounds.max.saturating_sub(bounds.min).max(0);
        let last = bounds.max.saturating_sub(1);
        for at in [bounds.min, last].iter().take(usize::try_from(messages).unwrap_or(2)) {
            self.ends.extend(queue.unit_at(files, bounds, *at, &mut open)?.map(|unit| unit.unit.phy_offset));
        }
        let bytes = if measure { queue.measure(bounds.min, bounds.max)?.1 } else { 0 };
        Ok(Held { messages, bytes })
    }
}
