//! Reading a segment: the walk from batch to batch, look-ups, and batches or records as Arrow record batches.

pub mod batch_columns;
pub(crate) mod batch_order;
pub(crate) mod batch_reader;
mod byte_column;
pub(crate) mod checked_index;
mod header_column;
pub(crate) mod lookup;
mod open_cache;
mod record_builder;
pub mod record_columns;
pub(crate) mod record_reader;
pub(crate) mod segment;
pub(crate) mod segment_range;
pub(crate) mod walk;
mod window;
