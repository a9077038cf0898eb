//! The versions of frames.

/// Which frames are messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// Version 1 only, as brokers before 5.1.0: a frame of version 2 ends the log.
    V1,
    /// Both.
    V1AndV2,
}
