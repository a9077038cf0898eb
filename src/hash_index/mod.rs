//! The key index: from a message key to the commit-log offsets of its candidates. RocketMQ's `IndexFile` format.
//!
//! ```text
//! header 40 B | slots, 4 B each | entries, 20 B each
//!             | slot[h % S] -----> newest entry --prev--> older --prev--> 0
//! ```
//!
//! One writer at a time, any number of readers, in this process or others. The format is described in
//! docs/formats/rocketmq-index.md; [`IndexFile`] is the entry point.
//!
//! The packages, lowest first; each uses only those named before it:
//!
//! - `format`: header, entries and geometry
//! - `key_hash`: the hash of a key
//! - `write`: puts
//! - `read`: lookups
//! - `repair`: checks, recovery after a crash, inference of the geometry
//! - `file`: the open file
//! - `directory`: the open files of a directory
//! - `sealed`: the entries of many files, sorted

pub mod directory;
mod file;
mod format;
mod key_hash;
mod read;
mod repair;
pub mod sealed;
mod write;

pub use file::chains::{Buckets, Chain, ChainStatistics};
pub use file::cold::are_samples_cold;
pub use file::entry_batches::{entry_batches, entry_schema};
pub use file::index_file::IndexFile;
pub use file::lookup::{newest_first, select_files};
pub use file::open::{CreateOptions, OpenOptions};
pub use file::prepared::Prepared;
pub use format::answers::Answers;
pub use format::entry::Entry;
pub use format::geometry::Geometry;
pub use format::header::Header;
pub use key_hash::java_hash::{KeySource, carry_utf8, finish, key_hash, key_hash_of_units, key_hash_of_utf8};
pub use key_hash::kernels::Kernel;
pub use key_hash::key_columns::{KeyColumn, Keys, Topics};
pub use key_hash::text_keys::TextKeys;
pub use read::hits::Hits;
pub use read::select::Damage;
pub use write::entry_rows::{EntryRows, entry_rows};
pub use write::put::PutColumns;
