//! Consume queues: for each queue of a topic, the places of its messages in the commit log.
//!
//! A queue is a sequence of files of fixed-size units ([`mod@unit`]). The number of a unit is the queue offset of its message.
//! Batch queues of 5.x hold one unit for several messages. docs/formats/rocketmq-store.md describes the format. Only
//! [`ConsumeQueueWriter`] creates or changes files.

mod check;
mod directories;
mod read;
mod tags_code;
pub mod unit;
mod write;

pub use check::{CrossCheck, StoreState, is_dispatched};
pub use directories::{WriterOptions, list_queues, list_topics};
pub(crate) use directories::{each_topic, folder, queues_of};
pub(crate) use read::ExtensionReader;
pub use read::{
    Boundary, ConsumeQueue, ExtensionUnit, Kind, Options, TopicTotals, Totals, extension_batch, is_extension_address,
    messages_near, start_of_last,
};
pub use tags_code::{DelayLevels, tags_hash};
pub use write::ConsumeQueueWriter;
