//! Checks of a segment and of the indexes next to it. A check reports everything that it finds; only I/O errors end it.

mod batch_table;
mod index_check;
mod log_context;
mod segment_check;
mod unlisted;

pub use index_check::{VerifiableIndex, verify_index};
pub use log_context::LogContext;
pub(crate) use segment_check::check_records;
pub use unlisted::unlisted_transactions;
