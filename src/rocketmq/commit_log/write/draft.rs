//! The frames of one put, in memory: checked, placed, and ready to be written in a few pieces.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, TimestampMillisecondArray};

use super::new_message::{GivenMessage, NewMessage};
use super::new_properties::NewProperties;
use super::queue_table::QueueTable;
use super::writer::{PutOptions, WriterOptions};
use crate::error::{Error, Result};
use crate::rocketmq::commit_log::Bodies;
use crate::rocketmq::commit_log::columns::{Column, schema};
use crate::rocketmq::commit_log::frame::{
    BLANK_LEN, COMPRESSED, COMPRESSION_TYPE, INNER_BATCH, MAGIC_BLANK, is_in_queue,
};
use crate::rocketmq::commit_log::text::write_msg_id;
use crate::rocketmq::names::{
    DELAY, INNER_BASE, INNER_NUM, LONGEST_TOPIC, MULTI_DISPATCH, MULTI_QUEUE_OFFSET, SCHEDULE_TOPIC,
    dispatched_queue_id, is_folder_name,
};

/// Frames that wait to be written.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    writer: WriterOptions,
    put: PutOptions,
    now: i64,
    frames: Frames,
    properties: NewProperties<'a>,
    text: String,
    done: Put,
}

/// Frames in the order of the log.
#[derive(Debug)]
struct Frames {
    bytes: Vec<u8>,
    /// Where in the log a run of frames begins that goes into one file, and where in `bytes`.
    pieces: Vec<(u64, usize)>,
    /// Where in the log the next frame goes.
    end: u64,
    file_size: u64,
}

/// Where messages went, a row each.
#[derive(Debug)]
pub(super) struct Put {
    topic: StringBuilder,
    queue_id: Vec<i32>,
    queue_offset: Vec<i64>,
    phy_offset: Vec<i64>,
    store_timestamp: Vec<i64>,
    msg_id: StringBuilder,
    store_size: Vec<i32>,
    /// The id that was written last, as text.
    id: String,
}

/// Where one message went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The topic: of a message that is parked, that of delayed messages.
    pub topic: String,
    /// Queue of the topic.
    pub queue_id: i32,
    /// Index in the queue.
    pub queue_offset: i64,
    /// Offset of the frame in the log.
    pub phy_offset: i64,
    /// Ms since the epoch.
    pub store_timestamp: i64,
    /// The broker's id.
    pub msg_id: String,
    /// Bytes of the frame.
    pub store_size: i32,
}

impl<'a> Draft<'a> {
    /// Begins at the end of the log; `buffer` is an empty one to be used.
    pub(super) fn new(end: u64, writer: WriterOptions, put: PutOptions, buffer: Vec<u8>, rows: usize) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        Self {
            writer,
            put,
            now,
            frames: Frames { bytes: buffer, pieces: vec![(end, 0)], end, file_size: writer.file_size },
            properties: NewProperties::default(),
            text: String::new(),
            done: Put::with_capacity(rows),
        }
    }

    /// The properties of the message that is drafted next.
    pub(super) fn properties(&mut self) -> &mut NewProperties<'a> {
        &mut self.properties
    }

    /// Drafts a message with its [`Self::properties`].
    ///
    /// # Errors
    /// `InvalidArgument` for what no frame can hold.
    pub(super) fn append(&mut self, given: GivenMessage<'a>, table: &mut QueueTable) -> Result<()> {
        let GivenMessage { mut topic, mut queue_id, mut sys_flag, .. } = given;
        if self.put.bodies == Bodies::Decoded {
            sys_flag &= !(COMPRESSED | COMPRESSION_TYPE);
        }
        if !is_folder_name(topic) || queue_id < 0 {
            let wanted = format!("1 to {LONGEST_TOPIC} bytes that can name a folder, and a queue of 0 or more");
            return Err(Error::InvalidArgument(format!("topic {topic:?}, queue {queue_id}: expected {wanted}")));
        }
        let in_queue = is_in_queue(sys_flag);
        if in_queue && (self.put.park || topic == SCHEDULE_TOPIC) {
            let level = self.delay_level()?;
            if level > 0 && topic != SCHEDULE_TOPIC {
                self.park(topic, queue_id, level);
                (topic, queue_id) = (SCHEDULE_TOPIC, level.min(self.writer.levels) - 1);
            }
        }
        let queue_offset = if in_queue { self.take_offsets(topic, queue_id, sys_flag, table)? } else { 0 };
        self.properties.write(&mut self.text)?;
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
            properties: &self.text,
        };
        let (phy_offset, store_size) = self.frames.add(&message, queue_offset)?;
        self.done.push(&message, queue_offset, phy_offset, store_size);
        Ok(())
    }

    /// The delay level, 0 where there is none.
    fn delay_level(&self) -> Result<i32> {
        let Some(level) = self.properties.get(DELAY) else { return Ok(0) };
        let wrong = || Error::InvalidArgument(format!("delay level {level:?}: expected a number"));
        level.parse().map_err(|_| wrong())
    }

    /// Turns a message into one that waits under its level (upstream `CommitLog#asyncPutMessage`).
    fn park(&mut self, topic: &'a str, queue_id: i32, level: i32) {
        if level > self.writer.levels {
            self.properties.set(DELAY, self.writer.levels.to_string());
        }
        self.properties.set("REAL_TOPIC", topic);
        self.properties.set("REAL_QID", queue_id.to_string());
        self.properties.order_as_java();
    }

    /// Gives the message its places: in its queue, in the queues that it names itself, in a batch queue for each of its
    /// messages.
    fn take_offsets(&mut self, topic: &str, queue_id: i32, sys_flag: i32, table: &mut QueueTable) -> Result<i64> {
        if sys_flag & INNER_BATCH != 0 {
            let messages = self.properties.get(INNER_NUM).and_then(|count| count.parse::<i16>().ok());
            let Some(messages) = messages.filter(|count| *count > 0) else {
                let text = "an inner batch without the number of its messages in the property INNER_NUM";
                return Err(Error::InvalidArgument(text.into()));
            };
            let base = table.take(topic, queue_id, i64::from(messages));
            self.properties.set(INNER_BASE, base.to_string());
            return Ok(base);
        }
        let offset = table.take(topic, queue_id, 1);
        if let Some(queues) = self.properties.get(MULTI_DISPATCH) {
            let place = |queue: &str| table.take(queue, dispatched_queue_id(queue, queue_id), 1);
            let offsets: Vec<String> = queues.split(',').map(place).map(|offset| offset.to_string()).collect();
            self.properties.set(MULTI_QUEUE_OFFSET, offsets.join(","));
            self.properties.order_as_java();
        }
        Ok(offset)
    }

    /// Runs of bytes that go into one file each, and their offsets in the log; none is empty.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let Frames { bytes, pieces, .. } = &self.frames;
        let ends = pieces.iter().skip(1).map(|(_, at)| *at).chain([bytes.len()]);
        let pieces =
            pieces.iter().zip(ends).map(|((offset, at), end)| (*offset, bytes.get(*at..end).unwrap_or_default()));
        pieces.filter(|(_, bytes)| !bytes.is_empty())
    }

    /// Where the log ends after it.
    pub(super) fn end(&self) -> u64 {
        self.frames.end
    }

    /// Where the messages went, and the buffer to be used again.
    pub(super) fn finish(self) -> (Put, Vec<u8>) {
        (self.done, self.frames.bytes)
    }
}

impl Frames {
    /// Adds a frame, in the next file where this one has no room for it and a BLANK frame. Gives its place and its size.
    fn add(&mut self, message: &NewMessage<'_>, queue_offset: i64) -> Result<(u64, i32)> {
        let size = message.size() as u64;
        if size + BLANK_LEN > self.file_size {
            let file_size = self.file_size;
            let text = format!("a frame of {size} bytes and {BLANK_LEN} behind it do not fit a file of {file_size}");
            return Err(Error::InvalidArgument(text));
        }
        let left = self.file_size - self.end % self.file_size;
        if size + BLANK_LEN > left {
            self.fill(left);
        }
        let phy_offset = self.end;
        // A file is shorter than 2 GiB.
        let store_size = i32::try_from(size).unwrap_or(i32::MAX);
        message.encode(store_size.unsigned_abs(), queue_offset, phy_offset, &mut self.bytes);
        self.end += size;
        Ok((phy_offset, store_size))
    }

    /// Ends the file with a BLANK frame over all that is left of it, which is zero.
    fn fill(&mut self, left: u64) {
        self.bytes.extend_from_slice(&u32::try_from(left).unwrap_or(u32::MAX).to_be_bytes());
        self.bytes.extend_from_slice(&MAGIC_BLANK.to_be_bytes());
        self.end += left;
        self.pieces.push((self.end, self.bytes.len()));
    }
}

impl Put {
    fn with_capacity(rows: usize) -> Self {
        Self {
            topic: StringBuilder::with_capacity(rows, 16 * rows),
            queue_id: Vec::with_capacity(rows),
            queue_offset: Vec::with_capacity(rows),
            phy_offset: Vec::with_capacity(rows),
            store_timestamp: Vec::with_capacity(rows),
            msg_id: StringBuilder::with_capacity(rows, 32 * rows),
            store_size: Vec::with_capacity(rows),
            id: String::new(),
        }
    }

    fn push(&mut self, message: &NewMessage<'_>, queue_offset: i64, phy_offset: u64, store_size: i32) {
        write_msg_id(message.store_host.bytes(), phy_offset, &mut self.id);
        self.topic.append_value(message.topic);
        self.queue_id.push(message.queue_id);
        self.queue_offset.push(queue_offset);
        self.phy_offset.push(phy_offset.cast_signed());
        self.store_timestamp.push(message.store_timestamp);
        self.msg_id.append_value(&self.id);
        self.store_size.push(store_size);
    }

    pub(super) fn last_store_timestamp(&self) -> Option<i64> {
        self.store_timestamp.last().copied()
    }

    /// The place of one message that was put alone.
    pub(super) fn into_placed(self) -> Placed {
        let first = |numbers: Vec<i64>| numbers.first().copied().unwrap_or_default();
        Placed {
            topic: String::from_utf8_lossy(self.topic.values_slice()).into_owned(),
            queue_id: self.queue_id.first().copied().unwrap_or_default(),
            queue_offset: first(self.queue_offset),
            phy_offset: first(self.phy_offset),
            store_timestamp: first(self.store_timestamp),
            msg_id: self.id,
            store_size: self.store_size.first().copied().unwrap_or_default(),
        }
    }

    /// A row a message, in the order in which they were put.
    pub(super) fn into_batch(mut self) -> RecordBatch {
        let times = TimestampMillisecondArray::from(self.store_timestamp).with_timezone("UTC");
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(self.topic.finish()),
            Arc::new(Int32Array::from(self.queue_id)),
            Arc::new(Int64Array::from(self.queue_offset)),
            Arc::new(Int64Array::from(self.phy_offset)),
            Arc::new(times),
            Arc::new(self.msg_id.finish()),
            Arc::new(Int32Array::from(self.store_size)),
        ];
        let columns = [
            Column::Topic,
            Column::QueueId,
            Column::QueueOffset,
            Column::PhyOffset,
            Column::StoreTimestamp,
            Column::MsgId,
            Column::StoreSize,
        ];
        RecordBatch::try_new(schema(&columns), arrays).expect("the arrays were made for these columns")
    }
}
