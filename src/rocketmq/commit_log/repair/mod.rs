//! What a broker does to a log when it starts.

pub(crate) mod recovery;
