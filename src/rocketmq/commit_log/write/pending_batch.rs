//! The messages of one put before they are written: checked, numbered, parked, and encoded as frames.

use std::time::{SystemTime, UNIX_EPOCH};

use super::frames::Frames;
use super::new_message::{GivenMessage, NewMessage};
use super::new_properties::NewProperties;
use super::options::{PutOptions, WriterOptions};
use super::put_result::PutResult;
use super::queue_table::QueueTable;
use crate::error::{Error, Result};
use crate::io::i64_of;
use crate::rocketmq::commit_log::Bodies;
use crate::rocketmq::commit_log::frame::{COMPRESSED, COMPRESSION_TYPE, INNER_BATCH, is_in_queue};
use crate::rocketmq::names::{
    DELAY, INNER_BASE, INNER_NUM, MULTI_DISPATCH, MULTI_QUEUE_OFFSET, SCHEDULE_TOPIC, dispatched_queue_id,
};

/// Encodes messages as frames that are written together.
#[derive(Debug)]
pub(super) struct PendingBatch<'s, 'a> {
    writer: WriterOptions,
    put: PutOptions,
    now: i64,
    frames: &'s mut Frames,
    table: &'s mut QueueTable,
    properties: NewProperties<'a>,
    /// The properties of the current message, as text.
    text: &'s mut String,
    /// Store times of the earliest message and of the last one.
    store_timestamps: Option<(i64, i64)>,
}

impl<'s, 'a> PendingBatch<'s, 'a> {
    /// Begins with `frames`, which begin at the end of the log.
    pub(super) fn new(
        writer: WriterOptions,
        put: PutOptions,
        frames: &'s mut Frames,
        table: &'s mut QueueTable,
        text: &'s mut String,
    ) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64_of(since.as_millis());
        Self { writer, put, now, frames, table, properties: NewProperties::default(), text, store_timestamps: None }
    }

    /// The properties of the next message.
    pub(super) fn properties(&mut self) -> &mut NewProperties<'a> {
        &mut self.properties
    }

    /// Adds a message with its [`Self::properties`].
    ///
    /// # Errors
    /// `InvalidArgument` for a message that no frame can hold.
    pub(super) fn append(&mut self, given: GivenMessage<'a>) -> Result<PutResult<'a>> {
        self.append_parked_if(self.put.park, given)
    }

    /// Adds a message as [`Self::append`], but does not park it.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub(super) fn append_unparked(&mut self, given: GivenMessage<'a>) -> Result<PutResult<'a>> {
        self.append_parked_if(false, given)
    }

    /// # Errors
    /// `InvalidArgument` if the frames of a batch are longer together than the longest message (upstream
    /// `MessageExtEncoder#encode`).
    pub(super) fn check_size(&self, places: &[PutResult<'_>]) -> Result<()> {
        let size: u64 = places.iter().map(|place| u64::from(place.store_size.unsigned_abs())).sum();
        let most = self.writer.limits.max_message_size as u64;
        if size > most {
            return Err(Error::InvalidArgument(format!("a batch of {size} bytes: expected at most {most}")));
        }
        Ok(())
    }

    fn append_parked_if(&mut self, park: bool, given: GivenMessage<'a>) -> Result<PutResult<'a>> {
        let GivenMessage { mut topic, mut queue_id, mut sys_flag, .. } = given;
        if self.put.bodies == Bodies::Decoded {
            sys_flag &= !(COMPRESSED | COMPRESSION_TYPE);
        }
        self.writer.limits.check_topic(topic)?;
        if queue_id < 0 {
            return Err(Error::InvalidArgument(format!(
                "topic {topic:?}: expected a queue of 0 or more, found {queue_id}"
            )));
        }
        let in_queue = is_in_queue(sys_flag);
        if in_queue && (park || topic == SCHEDULE_TOPIC) {
            let level = self.delay_level()?;
            if level > 0 && topic != SCHEDULE_TOPIC {
                self.park(topic, queue_id, level);
                (topic, queue_id) = (SCHEDULE_TOPIC, level.min(self.writer.levels) - 1);
            }
        }
        let queue_offset = if in_queue { self.take_offsets(topic, queue_id, sys_flag)? } else { 0 };
        self.properties.write(self.text)?;
        let store_timestamp = given.store_timestamp.unwrap_or(self.now);
        let store_host = given.store_host.unwrap_or(self.writer.store_host);
        let message = NewMessage {
            topic,
            queue_id,
            flag: given.flag,
            sys_flag,
            born_timestamp: given.born_timestamp.unwrap_or(store_timestamp),
            born_host: given.born_host.unwrap_or(store_host),
            store_timestamp,
            store_host,
            reconsume_times: given.reconsume_times,
            prepared_transaction_offset: given.prepared_transaction_offset,
            body: given.body,
            properties: self.text,
        };
        self.writer.limits.check(&message)?;
        let (phy_offset, store_size) = self.frames.add(&message, queue_offset)?;
        let earliest = self.store_timestamps.map_or(store_timestamp, |(earliest, _)| earliest.min(store_timestamp));
        self.store_timestamps = Some((earliest, store_timestamp));
        Ok(PutResult { topic, queue_id, queue_offset, phy_offset, store_timestamp, store_host, store_size })
    }

    /// Adds messages that belong together, all or none: into one file, as the broker puts a client's batch (upstream
    /// `DefaultAppendMessageCallback#doAppend`). `fill` adds them; it is called again if they did not fit the file.
    ///
    /// # Errors
    /// `InvalidArgument` for a message that no frame can hold, and for messages that no file holds together.
    pub(super) fn append_together(
        &mut self,
        mut fill: impl FnMut(&mut Self) -> Result<Vec<PutResult<'a>>>,
    ) -> Result<Vec<PutResult<'a>>> {
        let (frames, taken, times) = (self.frames.mark(), self.table.taken(), self.store_timestamps);
        let is_in_one_file = |batch: &Self, places: &[PutResult<'_>]| {
            places.first().is_none_or(|first| batch.frames.is_in_last_file(first.phy_offset))
        };
        let mut places = fill(self);
        if places.as_ref().is_ok_and(|places| !is_in_one_file(self, places)) {
            self.frames.back_to(frames);
            self.table.undo_to(taken);
            self.frames.next_file();
            places = fill(self).and_then(|places| {
                if is_in_one_file(self, &places) {
                    return Ok(places);
                }
                Err(Error::InvalidArgument(format!("{} messages: expected a batch that fits one file", places.len())))
            });
        }
        if places.is_err() {
            self.frames.back_to(frames);
            self.table.undo_to(taken);
            self.store_timestamps = times;
        }
        places
    }

    /// The delay level; 0 without one.
    fn delay_level(&self) -> Result<i32> {
        let Some(level) = self.properties.get(DELAY) else { return Ok(0) };
        let wrong = || Error::InvalidArgument(format!("delay level {level:?}: expected a number"));
        level.parse().map_err(|_| wrong())
    }

    /// Turns a message into a parked one (upstream `CommitLog#asyncPutMessage`).
    fn park(&mut self, topic: &'a str, queue_id: i32, level: i32) {
        if level > self.writer.levels {
            self.properties.set(DELAY, self.writer.levels.to_string());
        }
        self.properties.set("REAL_TOPIC", topic);
        self.properties.set("REAL_QID", queue_id.to_string());
        self.properties.order_as_java();
    }

    /// Takes the queue offsets of a message: in its own queue, and in the queues that it names. An inner batch takes one for each of
    /// its messages.
    fn take_offsets(&mut self, topic: &str, queue_id: i32, sys_flag: i32) -> Result<i64> {
        if sys_flag & INNER_BATCH != 0 {
            let messages = self.properties.get(INNER_NUM).and_then(|count| count.parse::<i16>().ok());
            let Some(messages) = messages.filter(|count| *count > 0) else {
                let text = "property INNER_NUM: expected the number of messages of the inner batch";
                return Err(Error::InvalidArgument(text.into()));
            };
            let base = self.table.take(topic, queue_id, i64::from(messages));
            self.properties.set(INNER_BASE, base.to_string());
            return Ok(base);
        }
        let offset = self.table.take(topic, queue_id, 1);
        if self.writer.multi_dispatch
            && let Some(queues) = self.properties.get(MULTI_DISPATCH)
        {
            let place = |queue: &str| self.table.take(queue, dispatched_queue_id(queue, queue_id), 1);
            let offsets: Vec<String> = queues.split(',').map(place).map(|offset| offset.to_string()).collect();
            self.properties.set(MULTI_QUEUE_OFFSET, offsets.join(","));
            self.properties.order_as_java();
        }
        Ok(offset)
    }

    /// Stores times of the earliest message and of the last one.
    pub(super) fn store_timestamps(&self) -> Option<(i64, i64)> {
        self.store_timestamps
    }
}
