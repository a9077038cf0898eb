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
pub use directories::{WriterOptions, list_queues};
pub use read::{Boundary, ConsumeQueue, ExtensionUnit, Kind, Options, extension_batch, is_extension_address};
pub use tags_code::DelayLevels;
pub use write::ConsumeQueueWriter;
