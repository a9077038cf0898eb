//! The sealed key index: the entries of many index files, sorted by key hash, in Parquet files that answer a lookup with one read.
//!
//! - `rows`: entries in sorted order, with a bound on memory
//! - `sealing`: from the files of a broker to the sealed index
//! - `delta`: the encoding of numbers
//! - `keys_file`: the files of sorted rows; a row group is what one lookup reads
//! - `catalog`: the files of the store, and the row groups of the files of rows
//! - `lookup`: from key hashes to candidates
//! - `check`: the rows against those that they were made from
//! - `place`: the directory `_logdex`
//!
//! The format is described in docs/formats/sealed.md.

pub mod catalog;
pub mod check;
mod delta;
pub mod keys_file;
pub mod lookup;
pub mod place;
pub mod rows;
pub mod sealing;
mod table;

pub use catalog::{Catalog, KeysFile, StoreFile};
pub use keys_file::{Group, Layout};
pub use lookup::SealedKeys;
pub use rows::{NO_TIME, Packed, Row, Rows, Sample, unpack};
pub use sealing::{Blocks, Draft, Facts, Notes, PackedRows, Sealing, Source, Take};
