//! The writing side of the commit log: messages are encoded, placed, and brought to the disk.
//!
//! ```text
//! batch of messages --PutColumns--> NewMessage --encode--> frames --CommitLogWriter--> LogFiles --flush--> disk
//!                                                             ^ queue offset, offset in the log, store time
//! ```
//!
//! The bytes are the broker's (upstream `CommitLog#asyncPutMessage`, `DefaultAppendMessageCallback#doAppend`). What
//! differs is what a failure leaves: all rows of a batch are checked, and all files that it takes are there with their
//! space, before its first byte is written; a failed flush is an error and flushes again. Finding the end of a log after a
//! crash, dispatch and delivery of delayed messages are the caller's policy.

mod draft;
mod flush_service;
mod frames;
mod host;
mod log_files;
mod new_message;
mod new_properties;
mod placed;
mod put_columns;
mod queue_table;
mod shared;
mod vouched;
mod writer;

pub use host::Host;
pub use new_message::GivenMessage;
pub use placed::Placed;
pub use writer::{CommitLogWriter, FlushMode, PutOptions, WriterOptions};

#[cfg(test)]
mod tests;
