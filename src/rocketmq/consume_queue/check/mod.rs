//! Checks queues: each by itself, and against the messages of the log.

mod cross_check;
mod dispatched;

pub use cross_check::{CrossCheck, StoreState};
pub use dispatched::is_dispatched;
