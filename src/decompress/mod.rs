//! Decoders of compressed data, for the formats of both brokers.
//!
//! The uncompressed length is not stored, or it cannot be trusted. So a decoder writes into an [`Output`], which grows only
//! while the input fills it, up to a limit.

/// The compressions that bodies and batches may have.
#[cfg_attr(not(feature = "python"), expect(dead_code, reason = "for `logdex --version`"))]
pub(crate) const CODECS: [&str; 5] = ["gzip", "lz4", "snappy", "zlib", "zstd"];

mod deflate;
pub(crate) mod lz4_frame;
mod output;
pub(crate) mod zstd_frame;

pub(crate) use deflate::Inflater;
pub(crate) use output::{DecodeError, FIRST, Output};
