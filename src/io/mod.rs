//! Files: opening, creating and locking them, and positioned reads and writes that are the same calls whether the bytes
//! are reached by a map, by `pread`/`pwrite`, or in memory.
//!
//! - [`regular_file`]: opening files, and nothing else that has a file's name
//! - [`disk`]: creating, locking, reserving space
//! - [`location`]: paths and URLs from users
//! - [`store_lock`]: the lock that a broker holds on its store
//! - `source`: [`ReadAt`] and [`WriteAt`], for bytes in memory as well
//! - `plain_file`, `mmap`, `file_source`: [`PlainFile`], [`MappedFile`], and [`FileSource`], which is one of the two
//! - `file_identity`: what distinguishes a file from another one that took its name
//! - `first_failure`: the write or fsync that ends a writer
//! - `holes`: parts of a file that were never written
//! - `planned_file`: a file as a plan saw it, and whether a reader has the same one
//! - [`own_parts`]: the check that a directory that is written has no part elsewhere
//! - `open_cache`: open files kept from one call to the next
//! - `window`: a copy of a part of a file

pub mod disk;
mod file_identity;
mod file_source;
mod first_failure;
mod holes;
pub mod location;
mod mmap;
pub(crate) mod open_cache;
pub mod own_parts;
mod plain_file;
mod planned_file;
pub mod regular_file;
mod source;
pub mod store_lock;
mod window;

pub use file_identity::FileIdentity;
pub use file_source::{Access, FileSource};
pub use first_failure::FirstFailure;
pub(crate) use holes::Holes;
pub use mmap::{MappedFile, Words};
pub use plain_file::PlainFile;
pub use planned_file::PlannedFile;
pub use source::{ReadAt, WriteAt};
pub(crate) use window::Window;
