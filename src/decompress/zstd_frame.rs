//! The Zstandard frame format, by the reference library.
//!
//! It decodes into one output buffer, which serves as the window. No memory is allocated for the window size in a frame's
//! header.

use zstd::zstd_safe;

use super::{DecodeError, FIRST, Output};

/// Decodes all frames of `input`.
pub(crate) fn decode(decoder: &mut zstd_safe::DCtx<'_>, input: &[u8], output: &mut Output) -> Result<(), DecodeError> {
    output.write_whole(FIRST, |free| match decoder.decompress(free, input) {
        Ok(written) => Some(Ok(written)),
        Err(code) => {
            let reason = zstd_safe::get_error_name(code);
            let failed = || Err(DecodeError::Undecodable { kind: "Zstandard", reason: reason.to_owned() });
            (reason != OUTPUT_FULL).then(failed)
        }
    })?
}

/// The library's text of `ZSTD_error_dstSize_tooSmall`.
const OUTPUT_FULL: &str = "Destination buffer is too small";
