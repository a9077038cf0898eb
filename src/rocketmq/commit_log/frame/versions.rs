//! The versions of message frames.

/// The frame versions that count as messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// Version 1 only, as for brokers before 5.1.0: a frame of version 2 ends the log.
    V1,
    /// Versions 1 and 2.
    V1AndV2,
}
