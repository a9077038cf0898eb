//! A partition's log, read only: the segments of its directory as one sequence of records.
//!
//! - `listing`: the files of the directory
//! - `open`: the open log, and its segments at one moment
//! - `missing`: offsets that no segment holds
//! - `offsets`: first and last offsets, and look-ups by offset and by time
//! - `transactions`: aborted and open transactions
//! - `plan`: the plan of a read: the segments that it needs, and what is missing between them
//! - `pieces`: a range of offsets, cut for tasks of a cluster

pub(crate) mod listing;
mod missing;
mod offsets;
mod open;
mod pieces;
mod plan;
mod transactions;

pub use listing::{Listing, SegmentFiles, has_segments, is_log_dir, is_partition, partitions};
pub(crate) use missing::any_has_gaps;
pub use missing::{Missing, MissingSegment};
pub use offsets::{FetchedOf, Special};
pub use open::{Log, LogView, PartitionOptions};
pub use pieces::{Piece, cut_segments};
pub use plan::{Part, ReadRange};
