//! Bodies: what a producer compressed is decompressed, up to a limit.
//!
//! Source of the rules: upstream `MessageSysFlag` and `common.compression.CompressionType`. Bit 0 of the system flag
//! says that a body is compressed, bits 8 to 10 how: 1 LZ4 frame, 2 Zstandard, 0 or 3 zlib (0 is what producers before
//! 4.9.4 left there). The uncompressed length is not stored, so the output grows as far as the input really fills it.

use std::fmt;

use flate2::{Decompress, FlushDecompress, Status};
use zstd::zstd_safe;

use crate::decompress::{DecodeError, Output, lz4_frame, zstd_frame};
use crate::rocketmq::commit_log::frame::COMPRESSED;

/// Why a body cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyError {
    /// More than the limit of bytes would come out.
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// The bytes are not what the system flag says.
    Undecodable {
        /// Name of the compression.
        kind: &'static str,
        /// What the decoder says.
        reason: String,
    },
    /// The system flag names a compression that does not exist.
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

/// Decoders and their output buffer, used for body after body.
pub struct BodyDecoder {
    output: Output,
    zlib: Option<Decompress>,
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
        Self { output: Output::new(limit), zlib: None, zstd: None }
    }

    /// The body that a producer sent, from the bytes that are stored.
    ///
    /// # Errors
    /// Why there is none. A body that is stored as it was sent always is one.
    pub fn decode<'a>(&'a mut self, stored: &'a [u8], sys_flag: i32) -> Result<&'a [u8], BodyError> {
        if sys_flag & COMPRESSED == 0 || stored.is_empty() {
            return Ok(stored);
        }
        self.output.clear();
        match (sys_flag >> 8) & 7 {
            0 | 3 => zlib(self.zlib.get_or_insert_with(|| Decompress::new(true)), stored, &mut self.output),
            1 => lz4_frame::decode(stored, &mut self.output),
            2 => zstd_frame::decode(self.zstd.get_or_insert_with(zstd_safe::DCtx::create), stored, &mut self.output),
            other => return Err(BodyError::UnknownType(other.to_le_bytes()[0])),
        }?;
        Ok(self.output.filled())
    }
}

fn zlib(decoder: &mut Decompress, stored: &[u8], output: &mut Output) -> Result<(), DecodeError> {
    let fail = |reason: &str| DecodeError::Undecodable { kind: "zlib", reason: reason.to_owned() };
    decoder.reset(true);
    let mut rest = stored;
    loop {
        // Twice as much each time.
        let more = output.filled().len().max(1);
        let (_, free) = output.free(more);
        let (before_in, before_out) = (decoder.total_in(), decoder.total_out());
        let status = decoder
            .decompress(rest, free, FlushDecompress::None)
            .map_err(|e| fail(e.message().unwrap_or("not in the format")))?;
        let consumed = usize::try_from(decoder.total_in() - before_in).unwrap_or(usize::MAX);
        let produced = usize::try_from(decoder.total_out() - before_out).unwrap_or(usize::MAX);
        rest = rest.get(consumed..).unwrap_or_default();
        output.add(produced)?;
        if status == Status::StreamEnd {
            return Ok(());
        }
        if consumed == 0 && produced == 0 {
            return Err(fail("it ends before its end"));
        }
    }
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
