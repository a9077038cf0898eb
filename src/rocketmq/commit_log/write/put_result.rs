//! Where messages went.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, TimestampMillisecondArray};

use super::host::Host;
use crate::rocketmq::commit_log::columns::{Column, schema};
use crate::rocketmq::commit_log::text::write_msg_id;

/// Where one message went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed<'a> {
    /// The topic: of a message that is parked, that of delayed messages.
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

impl Placed<'_> {
    /// The broker's id of it.
    pub fn msg_id(&self) -> String {
        let mut id = String::with_capacity(2 * (self.store_host.bytes().len() + 8));
        write_msg_id(self.store_host.bytes(), self.phy_offset, &mut id);
        id
    }
}

/// Where the messages of a batch went, a row each.
#[derive(Debug)]
pub(super) struct PlacedColumns {
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

impl PlacedColumns {
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

    pub(super) fn push(&mut self, placed: Placed<'_>) {
        write_msg_id(placed.store_host.bytes(), placed.phy_offset, &mut self.id);
        self.topic.append_value(placed.topic);
        self.queue_id.push(placed.queue_id);
        self.queue_offset.push(placed.queue_offset);
        self.phy_offset.push(placed.phy_offset.cast_signed());
        self.store_timestamp.push(placed.store_timestamp);
        self.msg_id.append_value(&self.id);
        self.store_size.push(placed.store_size);
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
