//! Read the log in the order of its offsets: the walk over frames, the filter, and the stream of record batches.

pub(crate) mod block_reader;
pub(crate) mod filter;
pub(crate) mod parallel;
pub(crate) mod reader;
pub(crate) mod salvage;
pub(crate) mod walk;
pub(crate) mod window;
