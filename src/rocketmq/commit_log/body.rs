//! Bodies: what a producer compressed is decompressed, up to a limit.
//!
//! Source of the rules: upstream `MessageSysFlag` and `common.compression.CompressionType`. Bit 0 of the system flag
//! says that a body is compressed, bits 8 to 10 how: 1 LZ4 frame, 2 Zstandard, 0 or 3 zlib (0 is what producers before
//! 4.9.4 left there). The uncompressed length is not stored, so the output grows as far as the input really fills it.
//!
//! Zstandard is decoded into one output buffer, which is the window as well: no memory is set apart for the window that
//! a frame's header asks for. The same holds for the blocks of an LZ4 frame.

use std::fmt;

use flate2::{Decompress, FlushDecompress, Status};
use zstd::zstd_safe;

use super::frame::COMPRESSED;
use super::lz4;
pub use super::output::BodyError;
use super::output::{FIRST, Output};

/// Decoders and their output buffer, used for body after body.
pub struct BodyDecoder {
    output: Output,
    zlib: Option<Decompress>,
    zstd: Option<zstd_safe::DCtx<'static>>,
}

impl fmt::Debug for BodyDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyDecoder").field("limit", &self.output.limit).finish_non_exhaustive()
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
            1 => lz4::decode(stored, &mut self.output),
            2 => zstd(self.zstd.get_or_insert_with(zstd_safe::DCtx::create), stored, &mut self.output),
            other => Err(BodyError::UnknownType(other.to_le_bytes()[0])),
        }?;
        Ok(self.output.filled())
    }
}

fn zlib(decoder: &mut Decompress, stored: &[u8], output: &mut Output) -> Result<(), BodyError> {
    let fail = |reason: &str| BodyError::Undecodable { kind: "zlib", reason: reason.to_owned() };
    decoder.reset(true);
    let mut rest = stored;
    loop {
        // Twice as much each time.
        let more = output.filled().len().max(1);
        let (_, room) = output.room(more);
        let (before_in, before_out) = (decoder.total_in(), decoder.total_out());
        let status = decoder
            .decompress(rest, room, FlushDecompress::None)
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

fn zstd(decoder: &mut zstd_safe::DCtx<'_>, stored: &[u8], output: &mut Output) -> Result<(), BodyError> {
    let mut more = FIRST;
    loop {
        let (_, room) = output.room(more);
        let len = room.len();
        match decoder.decompress(room, stored) {
            Ok(produced) => return output.add(produced),
            Err(code) => {
                let reason = zstd_safe::get_error_name(code);
                if reason != OUTPUT_FULL {
                    return Err(BodyError::Undecodable { kind: "Zstandard", reason: reason.to_owned() });
                }
                if len > output.limit {
                    return Err(output.too_long());
                }
                more = len.saturating_mul(4);
            }
        }
    }
}

/// What the library calls `ZSTD_error_dstSize_tooSmall`.
const OUTPUT_FULL: &str = "Destination buffer is too small";

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
