//! Decoders of compressed data, for the formats of both brokers.
//!
//! The uncompressed length is not stored, or it cannot be trusted. So a decoder writes into an [`Output`], which grows only
//! while the input fills it, up to a limit.

pub(crate) mod lz4_frame;
mod output;
pub(crate) mod zstd_frame;

pub(crate) use output::{DecodeError, FIRST, Output};
