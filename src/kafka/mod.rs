//! Kafka's partition logs: segments of record batches, and the two sparse indexes beside them.
//!
//! ```text
//! <topic>-<partition>/
//!     00000000000000000100.log         record batches, nothing else          [`walk`], [`records`]
//!     00000000000000000100.index       (last offset, position) of 8 bytes    [`OffsetIndex`]
//!     00000000000000000100.timeindex   (max timestamp, offset) of 12 bytes   [`TimeIndex`]
//!     00000000000000000100.txnindex    aborted transactions of 34 bytes      [`transaction_index`]
//!     00000000000000000200.snapshot    producers' state                      [`snapshot`]
//! ```
//!
//! All integers are big-endian. Reading creates and changes nothing. Which segment to read is the caller's affair: there
//! is no partition here, only one segment at a time. The format is written down in docs/formats/kafka-log.md.

mod attested;
pub mod batch_columns;
mod batch_reader;
mod byte_column;
mod codec;
mod compat;
mod file_name;
mod finding;
pub mod header;
mod header_column;
mod index_file;
mod kept;
mod legacy;
mod lookup;
mod offset_index;
mod order;
mod part;
mod producers;
mod record;
mod record_builder;
pub mod record_columns;
mod record_reader;
mod records;
mod recover;
mod search;
mod segment;
pub mod snapshot;
mod sparse_index;
#[cfg(test)]
mod test_data;
mod time_index;
pub mod transaction_index;
mod varint;
mod verify;
pub mod walk;
mod window;

pub use batch_reader::{BatchReader, BatchScan};
pub use compat::Compat;
pub use file_name::{base_offset, topic_partition};
pub use finding::{Finding, Kind, OnError};
pub use index_file::{Check, IndexOptions};
pub use lookup::{Fetched, TimedOffset, Translated};
pub use offset_index::{OffsetEntry, OffsetIndex};
pub use part::{AbortedRange, AbortedRanges, Part};
pub use producers::ProducerState;
pub use record_reader::{RecordReader, RecordScan};
pub use recover::Recovered;
pub use segment::{Segment, SegmentOptions};
pub use sparse_index::SparseIndex;
pub use time_index::{TimeEntry, TimeIndex};
pub use verify::Verified;

/// Segments and indexes are shared between threads, readers move between them.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    const fn moved<T: Send>() {}
    shared::<Segment>();
    shared::<OffsetIndex>();
    shared::<TimeIndex>();
    moved::<RecordReader>();
    moved::<BatchReader>();
};

#[cfg(test)]
mod corruption_tests;
