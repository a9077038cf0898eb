//! The files of entries next to a log: offset index, time index, index of aborted transactions. Nothing here reads the log.

pub(crate) mod index_file;
pub(crate) mod offset_index;
pub(crate) mod slot_search;
pub(crate) mod sparse_index;
pub(crate) mod time_index;
pub mod transaction_index;
