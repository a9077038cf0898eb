//! The bytes of a log: batches, their records and codecs, names of files, snapshots of producers. Nothing here opens a segment.

pub(crate) mod batch_cursor;
pub mod checkpoint;
pub(crate) mod codec;
pub mod control_record;
pub(crate) mod deflate;
pub(crate) mod encoder;
pub(crate) mod fields;
pub mod header;
#[cfg(any(feature = "python", test))]
pub mod internal_record;
pub(crate) mod key_partition;
pub(crate) mod legacy;
pub(crate) mod names;
pub mod producer_snapshot;
pub(crate) mod record;
pub(crate) mod snappy_block;
pub(crate) mod varint;
