//! Decompress message bodies, up to a limit.
//!
//! Source: upstream `MessageSysFlag` and `common.compression.CompressionType`. Bit 0 of the system flag is set for a
//! compressed body. Bits 8 to 10 hold the type: 1 LZ4 frame, 2 Zstandard, 0 or 3 zlib. Producers before 4.9.4 leave 0.
//! The uncompressed length is not stored, so the output buffer grows with the decompressed data.

use std::fmt;

use zstd::zstd_safe;

use crate::decompress::{DecodeError, Inflater, Output, lz4_frame, zstd_frame};
use crate::rocketmq::commit_log::frame::COMPRESSED;

/// The reason why a body cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyError {
    /// The decompressed body is larger than the limit.
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// The bytes are not of the compression type in the system flag.
    Undecodable {
        /// Name of the compression.
        kind: &'static str,
        /// The decoder's message.
        reason: String,
    },
    /// The system flag has an unknown compression type.
    UnknownType(u8),
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { limit } => write!(f, "body of more than {limit} bytes"),
            Self::Undecodable { kind, reason } => write!(f, "body is no {kind} data: {reason}"),
            Self::UnknownType(kind) => write!(f, "body of unknown compression type {kind}"),
        }
    }
}

impl From<DecodeError> for BodyError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::TooLong { limit } => Self::TooLong { limit },
            DecodeError::Undecodable { kind, reason } => Self::Undecodable { kind, reason },
        }
    }
}

/// Decoders and their output buffer, used for all bodies.
pub struct BodyDecoder {
    output: Output,
    inflater: Option<Inflater>,
    zstd: Option<zstd_safe::DCtx<'static>>,
}

impl fmt::Debug for BodyDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyDecoder").field("limit", &self.output.limit()).finish_non_exhaustive()
    }
}

impl BodyDecoder {
    /// Bodies of more than `limit` bytes are refused.
    pub fn new(limit: usize) -> Self {
        Self { output: Output::new(limit), inflater: None, zstd: None }
    }

    /// Returns the body that the producer sent, from the stored bytes.
    ///
    /// # Errors
    /// Returns the reason why a compressed body cannot be decoded. Uncompressed bodies are never an error.
    pub fn decode<'a>(&'a mut self, stored: &'a [u8], sys_flag: i32) -> Result<&'a [u8], BodyError> {
        if sys_flag & COMPRESSED == 0 || stored.is_empty() {
            return Ok(stored);
        }
        self.output.clear();
        match (sys_flag >> 8) & 7 {
            0 | 3 => self.inflater.get_or_insert_with(Inflater::new).zlib(stored, &mut self.output),
            1 => lz4_frame::decode(stored, &mut self.output),
            2 => zstd_frame::decode(self.zstd.get_or_insert_with(zstd_safe::DCtx::create), stored, &mut self.output),
            other => return Err(BodyError::UnknownType(other.to_le_bytes()[0])),
        }?;
        Ok(self.output.filled())
    }
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
