//! Consume queues: for each queue of a topic, where its messages lie in the commit log.
//!
//! A queue is a sequence of files of fixed-size units ([`mod@unit`]); the number of a unit is the queue offset of its
//! message. Batch queues of 5.x hold one unit for several messages. What is written here is written down in
//! docs/formats/rocketmq-store.md. Reading changes nothing; [`ConsumeQueueWriter`] makes queues anew, or writes on
//! behind their ends.

mod batch;
mod batch_blocks;
mod batch_time_lookup;
mod bounds;
mod extension;
mod extension_check;
mod extension_writer;
mod follow;
mod opened_queue;
mod queue;
mod store_queues;
mod tags_code;
mod time_lookup;
pub mod unit;
mod writer;
mod written_files;
mod written_queue;

pub use batch::extension_batch;
pub use extension::{ExtensionUnit, is_extension_address};
pub use follow::{MissingUnits, OddTags, QueueFollower};
pub use queue::{ConsumeQueue, Kind, Options};
pub use tags_code::DelayLevels;
pub use time_lookup::Boundary;
pub use writer::{ConsumeQueueWriter, WriterOptions};
