//! Kafka's partition logs: segments of record batches, and the two sparse indexes next to them.
//!
//! ```text
//! <topic>-<partition>/
//!     00000000000000000100.log         record batches, nothing else          [`read`]
//!     00000000000000000100.index       (last offset, position) of 8 bytes    [`OffsetIndex`]
//!     00000000000000000100.timeindex   (max timestamp, offset) of 12 bytes   [`TimeIndex`]
//!     00000000000000000100.txnindex    aborted transactions of 34 bytes      [`transaction_index`]
//!     00000000000000000200.snapshot    producers' state                      [`producer_snapshot`]
//! ```
//!
//! All integers are big-endian. Reading creates and changes nothing. docs/formats/kafka-log.md describes the format.
//!
//! Each package uses only those before it:
//!
//! - [`mod@format`]: the bytes of batches and records, codecs, names, snapshots
//! - [`index`]: the files of entries
//! - [`read`]: the walk over batches, look-ups, record batches
//! - `log`: the segments of a partition as one sequence of records
//! - [`tiered`]: segments in remote storage, joined with those on the broker's disk
//! - `verify`: findings in a segment and its indexes
//! - `recover`: the valid part of a segment, and its indexes rebuilt
//! - `dump`: the content of a file as lines
//! - `write`: a partition's log that is written as a broker writes it
//! - [`seal`]: the keys of all records, sorted by their hashes
//! - `key_index`: index files for the keys of a partition
//! - `find`: records by key

mod compat;
#[cfg(any(feature = "python", test))]
mod dump;
#[cfg(any(feature = "python", test))]
pub mod find;
pub mod format;
pub mod index;
#[cfg(any(feature = "python", test))]
pub mod key_index;
pub mod log;
pub mod read;
mod recover;
pub mod seal;
#[cfg(test)]
mod test_data;
pub mod tiered;
mod verify;
pub mod write;

pub use compat::Compat;
#[cfg(any(feature = "python", test))]
pub use dump::{DumpOptions, dump};
pub use format::checkpoint;
pub use format::codec::Codec;
pub use format::control_record;
#[cfg(any(feature = "python", test))]
pub use format::internal_record::with_json;
pub use format::key_partition::key_partition;
pub use format::names::{base_offset, topic_partition};
pub use format::producer_snapshot;
pub use index::index_file::{Check, IndexOptions};
pub use index::offset_index::{OffsetEntry, OffsetIndex};
pub use index::sparse_index::SparseIndex;
pub use index::time_index::{TimeEntry, TimeIndex};
pub use index::transaction_index;
pub use log::{Log, LogView, PartitionOptions, has_segments, is_log_dir, is_partition};
pub use read::batch_reader::BatchScan;
#[cfg(any(feature = "python", test))]
pub use read::group_offsets::GroupOffsets;
pub use read::key_entries::{key_entries, key_text};
pub use read::lookup::{Fetched, TimedOffset, Translated};
pub use read::producer_state::ProducerState;
pub use read::record_filter::KeyFilter;
pub use read::record_reader::RecordScan;
pub use read::record_rows::{RecordRow, record_batch};
pub use read::segment::{Segment, SegmentOptions};
pub use read::segment_range::{AbortedRange, AbortedRanges, SegmentRange};
pub use read::segment_reader::{OnError, SegmentReader, UnreadOffsets};
pub use read::{batch_columns, record_columns};
pub use recover::{Recovered, topic_ids};
pub use verify::{LogContext, VerifiableIndex, unlisted_transactions, verify_index};

/// Segments and indexes are shared between threads, readers move between them.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    const fn moved<T: Send>() {}
    shared::<Segment>();
    shared::<OffsetIndex>();
    shared::<TimeIndex>();
    moved::<SegmentReader>();
};

#[cfg(test)]
mod corruption_tests;
