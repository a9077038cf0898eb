//! Files: opening, creating and locking them, and positioned reads and writes that are the same calls whether the bytes
//! are reached by a map, by `pread`/`pwrite`, or in memory.
//!
//! - [`regular_file`]: opening files, and nothing else that has a file's name
//! - [`disk`]: creating, locking, reserving space
//! - [`location`]: where files are: a path, or a path in a store; [`locate`]: paths and URLs from users
//! - `status`: what is known of a file
//! - [`storage`]: listing and describing, local and remote; [`remote`]: stores that are not on this machine
//! - [`store_lock`]: the lock that a broker holds on its store
//! - `source`: [`ReadAt`] and [`WriteAt`], for bytes in memory as well
//! - `plain_file`, `mmap`, `file_source`: [`PlainFile`], [`FileMap`], and [`FileSource`], which is one of the two, or
//!   a remote file
//! - [`chunked_file`]: a file that is stored in compressed or encrypted chunks
//! - `first_failure`: the write or fsync that ends a writer
//! - `flush_service`: threads that flush a log that is written; `group_commit`: one flush for all puts that wait
//! - `fork`: the process that a handle belongs to
//! - `holes`: parts of a file that were never written
//! - `interruptible_mutex`: a mutex whose waiters check for signals
//! - `put_statistics`: counts and durations of puts; `meter`: their rates
//! - `process_mutex`: a mutex that a forked child need not wait for
//! - `planned_file`: a file as a plan saw it, and whether a reader has the same one
//! - `pipe`: a queue between threads
//! - `open_cache`: open files kept from one call to the next
//! - [`signals`]: handlers of signals that run while a call waits for a remote store
//! - `window`: a copy of a part of a file

pub mod chunked_file;
pub mod disk;
mod file_source;
mod first_failure;
pub(crate) mod flush_service;
pub(crate) mod fork;
mod group_commit;
mod holes;
mod interruptible_mutex;
pub mod locate;
pub mod location;
mod meter;
mod mmap;
pub(crate) mod open_cache;
pub(crate) mod pipe;
mod plain_file;
mod planned_file;
mod process_mutex;
mod put_statistics;
pub mod regular_file;
pub mod remote;
pub mod signals;
pub(crate) mod source;
pub(crate) mod status;
pub mod storage;
pub mod store_lock;
mod window;

pub use file_source::{Access, FileSource};
pub use first_failure::FirstFailure;
pub(crate) use group_commit::GroupCommit;
pub(crate) use holes::Holes;
pub(crate) use interruptible_mutex::{InterruptibleGuard, InterruptibleMutex};
pub use location::{Content, Location};
pub use meter::Meter;
pub use mmap::{FileMap, Words};
pub use plain_file::PlainFile;
pub use planned_file::PlannedFile;
pub(crate) use process_mutex::ProcessMutex;
pub use put_statistics::{PutCounter, PutStatistics};
pub use source::{ReadAt, WriteAt};
pub(crate) use source::{i64_of, u32_of, usize_of};
pub use status::FileIdentity;
pub use storage::directory_stamp;
pub(crate) use window::{Lent, Window};
