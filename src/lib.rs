//! Reads, writes, builds, queries and repairs the files that message brokers keep on disk.
//!
//! The layers, lowest first; each uses only those named before it:
//!
//! - [`error`], [`time_range`], [`time_text`], [`java_text`], [`matcher`], [`report`]
//! - [`io`]: files: opening, creating, locking; positioned reads and writes of maps, files and bytes in memory
//! - `arrow`: building and reading the columns of Arrow batches
//! - `decompress`: decoders that both brokers' formats need
//! - `decode`: JSON, Avro and texts as typed columns
//! - [`hash_index`]: the index from message key to commit-log offset
//! - [`kafka`] and [`rocketmq`], which do not use each other: segments and their sparse indexes; commit log, consume queues,
//!   checkpoint, and the rules that turn a message into index entries
//! - `python`: the binding, enabled by the feature of that name

mod arrow;
pub mod batch_size;
#[cfg(feature = "python")]
mod decode;
mod decompress;
pub mod error;
pub mod hash_index;
pub mod io;
pub mod java_text;
pub mod kafka;
pub mod matcher;
#[cfg(feature = "python")]
mod python;
pub mod report;
pub mod rocketmq;
pub mod time_range;
pub mod time_text;
