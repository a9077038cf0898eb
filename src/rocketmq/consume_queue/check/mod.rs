//! Checking queues: each by itself, and against the messages of the log.

mod cross_check;

pub use cross_check::{MissingUnits, OddTags, QueueFollower};
