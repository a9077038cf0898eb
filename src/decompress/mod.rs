//! Decoders of compressed data that both brokers' formats hold.
//!
//! The length of what comes out is not stored, or not to be trusted: a decoder writes into an [`Output`], which grows only
//! as far as the input fills it, and never beyond its limit.

pub(crate) mod lz4_frame;
mod output;
pub(crate) mod zstd_frame;

pub(crate) use output::{FIRST, Output};

/// Why data cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// More than the limit of bytes would come out.
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// The bytes are not in the format.
    Undecodable {
        /// Name of the compression.
        kind: &'static str,
        /// What the decoder says.
        reason: String,
    },
}
