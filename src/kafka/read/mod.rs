//! Reading a segment: the walk from batch to batch, look-ups, and batches or records as Arrow record batches.

pub mod batch_columns;
pub(crate) mod batch_order;
pub(crate) mod batch_reader;
pub(crate) mod checked_index;
mod checked_walk;
#[cfg(any(feature = "python", test))]
pub(crate) mod group_offsets;
mod header_column;
pub(crate) mod header_scan;
mod index_entries;
pub(crate) mod key_entries;
pub(crate) mod lookup;
mod parallel_records;
pub(crate) mod producer_state;
mod record_builder;
pub mod record_columns;
pub(crate) mod record_filter;
pub(crate) mod record_reader;
pub(crate) mod record_rows;
pub(crate) mod segment;
pub(crate) mod segment_range;
pub(crate) mod segment_reader;
pub(crate) mod valid_batches;
pub(crate) mod walk;
