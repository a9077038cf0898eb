//! Compute a broker's recovery of the log at startup.

pub(crate) mod recovery;
