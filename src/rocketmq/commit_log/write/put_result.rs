//! The places of messages that were put.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, TimestampMillisecondArray};

use super::host::Host;
use crate::rocketmq::commit_log::columns::{Column, schema};
use crate::rocketmq::commit_log::text::write_msg_id;

/// The place of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutResult<'a> {
    /// The topic; for a parked message that of delayed messages.
    pub topic: &'a str,
    /// Queue of the topic.
    pub queue_id: i32,
    /// Index in the queue.
    pub queue_offset: i64,
    /// Offset of the frame in the log.
    pub phy_offset: u64,
    /// Ms since the epoch.
    pub store_timestamp: i64,
    /// The broker.
    pub store_host: Host,
    /// Bytes of the frame.
    pub store_size: i32,
}

impl PutResult<'_> {
    /// The broker's message id.
    pub fn msg_id(&self) -> String {
        let mut id = String::with_capacity(2 * (self.store_host.bytes().len() + 8));
        write_msg_id(self.store_host.bytes(), self.phy_offset, &mut id);
        id
    }
}

/// The places of the messages of a batch, one row for each.
#[derive(Debug)]
pub(super) struct PutResultColumns {
    topic: StringBuilder,
    queue_id: Vec<i32>,
    queue_offset: Vec<i64>,
    phy_offset: Vec<i64>,
    store_timestamp: Vec<i64>,
    msg_id: StringBuilder,
    store_size: Vec<i32>,
    /// A buffer for ids.
    id: String,
}

impl PutResultColumns {
    pub(super) fn with_capacity(rows: usize) -> Self {
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

    pub(super) fn push(&mut self, result: PutResult<'_>) {
        write_msg_id(result.store_host.bytes(), result.phy_offset, &mut self.id);
        self.topic.append_value(result.topic);
        self.queue_id.push(result.queue_id);
        self.queue_offset.push(result.queue_offset);
        self.phy_offset.push(result.phy_offset.cast_signed());
        self.store_timestamp.push(result.store_timestamp);
        self.msg_id.append_value(&self.id);
        self.store_size.push(result.store_size);
    }

    /// Returns one row for each message, in the order in which they were put.
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
