//! Checks of a segment and of the indexes beside it. A check reports everything that it finds; only the system's errors end it.

mod batch_table;
mod in_log;
mod index_check;
mod segment_check;

pub use in_log::InLog;
pub use index_check::{VerifiableIndex, verify_index};
