//! Reads, writes, builds, queries and mends the files that message brokers keep on disk.
//!
//! The floors, lowest first; each stands only on those named before it:
//!
//! - [`error`], [`time_range`], [`java_text`]
//! - [`disk`]: files on disk: opening, creating, locking, reserving space
//! - [`store_lock`]: the lock that a broker holds on its store
//! - [`source`]: positioned reads from a map, from a file, or from bytes in memory
//! - [`mmap`]: mapped files; with the hash kernels of the index, the only unsafe code
//! - `decompress`: decoders that both brokers' formats need
//! - [`hash_index`]: the index from message key to commit-log offset
//! - [`kafka`]: segments and their sparse indexes
//! - [`rocketmq`]: commit log, checkpoint and the rules that turn a message into index entries
//! - `python`: the binding, behind the feature of that name

mod decompress;
pub mod disk;
pub mod error;
pub mod hash_index;
pub mod java_text;
pub mod kafka;
pub mod mmap;
#[cfg(feature = "python")]
mod python;
pub mod rocketmq;
pub mod source;
pub mod store_lock;
pub mod time_range;
