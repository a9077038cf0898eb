//! zlib and gzip streams: whole ones by libdeflate, in three quarters of the time of zlib-rs; what it refuses by zlib-rs, which says
//! why, or decodes it.

use std::fmt;
use std::io::Read;

use flate2::bufread::MultiGzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use libdeflater::{DecompressionError, Decompressor};
use memchr::memmem;

use super::{DecodeError, FIRST, Output};
use crate::io::usize_of;

/// The beginning of each gzip stream (RFC 1952).
const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
/// The space that is tried first, in lengths of the input.
const USUAL_GROWTH: usize = 4;

/// A decoder that is used for many streams.
pub(crate) struct Inflater(Decompressor);

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflater").finish_non_exhaustive()
    }
}

impl Inflater {
    pub(crate) fn new() -> Self {
        Self(Decompressor::new())
    }

    /// Decodes a zlib stream. What follows it is ignored.
    pub(crate) fn zlib(&mut self, input: &[u8], output: &mut Output) -> Result<(), DecodeError> {
        if decodes(input, output, |free| self.0.zlib_decompress(input, free))? {
            return Ok(());
        }
        zlib_pieces(input, output)
    }

    /// Decodes a gzip stream, or several joined ones.
    pub(crate) fn gzip(&mut self, input: &[u8], output: &mut Output) -> Result<(), DecodeError> {
        // libdeflate does not tell where the first stream ends.
        let is_one = memmem::find(input.get(1..).unwrap_or_default(), &GZIP_MAGIC).is_none();
        let decode = |free: &mut [u8]| match (self.0.gzip_decompress(input, free)?, input.last_chunk::<4>()) {
            (len, Some(stated)) if len == u32::from_le_bytes(*stated) as usize => Ok(len),
            _ => Err(DecompressionError::BadData),
        };
        if is_one && decodes(input, output, decode)? {
            return Ok(());
        }
        gzip_pieces(input, output)
    }
}

/// Decodes a whole stream; returns false if it is refused.
fn decodes(
    input: &[u8],
    output: &mut Output,
    mut decode: impl FnMut(&mut [u8]) -> Result<usize, DecompressionError>,
) -> Result<bool, DecodeError> {
    let first = input.len().saturating_mul(USUAL_GROWTH).max(FIRST);
    let written = output.write_whole(first, |free| match decode(free) {
        Ok(len) => Some(Ok(len)),
        Err(DecompressionError::InsufficientSpace) => None,
        Err(DecompressionError::BadData) => Some(Err(())),
    })?;
    Ok(written.is_ok())
}

fn zlib_pieces(input: &[u8], output: &mut Output) -> Result<(), DecodeError> {
    let fail = |reason: &str| DecodeError::Undecodable { kind: "zlib", reason: reason.to_owned() };
    let (mut decoder, mut rest) = (Decompress::new(true), input);
    loop {
        // Double the buffer each time.
        let more = output.filled().len().max(1);
        let (_, free) = output.free(more);
        let (before_in, before_out) = (decoder.total_in(), decoder.total_out());
        let status = decoder
            .decompress(rest, free, FlushDecompress::Finish)
            .map_err(|e| fail(e.message().unwrap_or("not in the format")))?;
        let consumed = usize_of(decoder.total_in() - before_in);
        let produced = usize_of(decoder.total_out() - before_out);
        rest = rest.get(consumed..).unwrap_or_default();
        output.add(produced)?;
        if status == Status::StreamEnd {
            return Ok(());
        }
        if consumed == 0 && produced == 0 {
            return Err(fail("the data is truncated"));
        }
    }
}

fn gzip_pieces(input: &[u8], output: &mut Output) -> Result<(), DecodeError> {
    let mut decoder = MultiGzDecoder::new(input);
    loop {
        // Twice as many bytes each time.
        let more = output.filled().len().max(FIRST);
        let (_, free) = output.free(more);
        let read = decoder.read(free).map_err(|e| DecodeError::Undecodable { kind: "gzip", reason: e.to_string() })?;
        if read == 0 {
            return Ok(());
        }
        output.add(read)?;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 200_000;

    type Decoded = Result<Vec<u8>, DecodeError>;

    /// Decodes a stream by both libraries, and by zlib-rs alone.
    fn both(input: &[u8], is_gzip: bool) -> (Decoded, Decoded) {
        let (mut output, mut pieces, mut inflater) = (Output::new(LIMIT), Output::new(LIMIT), Inflater::new());
        let by_pieces = if is_gzip { gzip_pieces(input, &mut pieces) } else { zlib_pieces(input, &mut pieces) };
        let decoded = if is_gzip { inflater.gzip(input, &mut output) } else { inflater.zlib(input, &mut output) };
        (decoded.map(|()| output.filled().to_vec()), by_pieces.map(|()| pieces.filled().to_vec()))
    }

    fn stream(data: &[u8], is_gzip: bool, level: u32) -> Vec<u8> {
        let level = flate2::Compression::new(level);
        if is_gzip {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(data).unwrap();
            return encoder.finish().unwrap();
        }
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn joined_streams_are_whole_and_trailing_bytes_are_as_before() {
        for (data, other) in [(&b"one "[..], &b"two"[..]), (b"same", b"same"), (b"", b"more")] {
            let joined = [stream(data, true, 6), stream(other, true, 9)].concat();
            let (decoded, by_pieces) = both(&joined, true);
            assert_eq!(decoded.as_deref(), Ok([data, other].concat().as_slice()));
            assert_eq!(decoded, by_pieces);
        }
        for is_gzip in [false, true] {
            for tail in [&b"x"[..], b"\0\0\0\0", b"\x1f\x8b\x08 and more"] {
                let (decoded, by_pieces) = both(&[&stream(b"body", is_gzip, 6), tail].concat(), is_gzip);
                assert_eq!(decoded, by_pieces, "{tail:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn both_libraries_agree(
            words in prop::collection::vec("[a-f]{1,9}", 0..300),
            repeats in 1_usize..200,
            is_gzip in any::<bool>(),
            level in 0_u32..10,
            flips in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..), 0..3),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let mut input = stream(words.concat().repeat(repeats).as_bytes(), is_gzip, level);
            for (at, bits) in flips {
                let at = at.index(input.len());
                input[at] ^= bits;
            }
            if let Some(cut) = cut {
                input.truncate(cut.index(input.len()));
            }
            let (decoded, by_pieces) = both(&input, is_gzip);
            // A damaged stream may be too long before it is wrong.
            let is_too_long = matches!(decoded, Err(DecodeError::TooLong { .. }));
            prop_assert!(decoded == by_pieces || (is_too_long && by_pieces.is_err()), "{decoded:?} {by_pieces:?}");
        }
    }
}
