//! What a reader does with what is wrong in a segment.

pub(crate) use crate::report::Flaw;
pub use crate::report::{Finding, Kind};

/// What a reader does at something that cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// Ends with an error.
    Raise,
    /// Notes it and goes on behind the batch, where there is a way on.
    Skip,
    /// Notes it and ends the segment.
    Stop,
}
