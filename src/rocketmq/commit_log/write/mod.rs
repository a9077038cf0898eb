//! Writing the commit log: messages are numbered, encoded, appended and flushed.
//!
//! ```text
//! batch of messages --PutColumns--> NewMessage --encode--> frames --CommitLogWriter--> MappedFileQueue --flush--> disk
//!                                                             ^ queue offset, offset in the log, store time
//! ```
//!
//! The bytes are the broker's (upstream `CommitLog#asyncPutMessage`, `DefaultAppendMessageCallback#doAppend`). Failures differ:
//! all rows of a batch are checked, and all its files exist with their space reserved, before the first byte is written. After a
//! failed write or fsync every later put and flush returns that error ([`crate::io::FirstFailure`]). The caller finds the end of
//! a log after a crash, dispatches, and delivers delayed messages.
//!
//! A slave appends the frames that its master wrote as they are (upstream `CommitLog#appendData`).

mod allocate_mapped_file_service;
mod checkpoint_guard;
mod frames;
mod host;
mod limits;
mod mapped_file;
mod mapped_file_queue;
mod new_message;
mod new_properties;
mod options;
mod pending_batch;
mod put_columns;
mod put_result;
mod queue_table;
mod sent_message;
mod shared;
mod transient_store_pool;
mod whole_frames;
mod writer;

pub use host::Host;
pub use limits::Limits;
pub use new_message::{GivenMessage, message_frame};
pub use new_properties::property_entries;
pub use options::{Append, AppendMode, FlushMode, PutOptions, WriterOptions};
pub use put_result::PutResult;
pub use sent_message::SentMessage;
pub use writer::{CommitLogWriter, StoredPut};

#[cfg(test)]
mod tests;
