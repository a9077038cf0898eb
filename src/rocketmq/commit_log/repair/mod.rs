//! What a broker does to a log when it starts, and the truncation that follows.

pub(crate) mod recovery;
pub(crate) mod truncate;
