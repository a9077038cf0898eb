//! A directory of index files: its names, the geometry of its files, and the open files in the broker's load order.
//!
//! - `listing`: the names of a directory, and which of them a broker takes for index files
//! - `geometry`: slots and entries, which no file stores
//! - `index_files`: the open files, which follow the directory

mod geometry;
mod index_files;
mod listing;

pub use index_files::{FilesOptions, IndexFiles};
#[cfg(feature = "python")]
pub(crate) use listing::read_committed;
pub use listing::{Entry, is_index_file_name, list};
