//! The key index: from a message key to the commit-log offsets of its candidates. RocketMQ's `IndexFile` format.
//!
//! ```text
//! header 40 B | slots, 4 B each | entries, 20 B each
//!             | slot[h % S] -----> newest entry --prev--> older --prev--> 0
//! ```
//!
//! One writer at a time, any number of readers, in this process or others. The format is written down in
//! docs/formats/rocketmq-index.md; [`IndexFile`] is the way in.

mod bytes;
mod cold;
mod compat;
#[cfg(test)]
mod crash_tests;
mod entry;
mod file;
mod header;
mod hits;
mod infer;
#[cfg(test)]
mod kernel_tests;
mod kernels;
mod key_hash;
mod lanes;
mod layout;
mod lookup;
mod open;
mod prepared;
mod put;
mod put_batch;
mod relink;
mod select;
mod text_keys;
mod verify;

#[cfg(feature = "python")]
pub(crate) use bytes::infer_geometry;
pub use compat::Compat;
pub use entry::Entry;
pub use file::IndexFile;
pub use header::Header;
pub use hits::Hits;
pub use kernels::Kernel;
pub use key_hash::{KeySource, carry_utf8, finish, key_hash, key_hash_of_units, key_hash_of_utf8};
pub use layout::Geometry;
pub use lookup::{newest_first, select_files};
pub use open::{CreateOptions, OpenOptions};
pub use prepared::Prepared;
pub use put::PutColumns;
pub use select::Damage;
pub use text_keys::TextKeys;
pub use verify::{Checked, Finding};
