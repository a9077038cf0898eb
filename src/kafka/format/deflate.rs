//! The deflate of zlib itself: its successors compress differently.

use std::ffi::{c_int, c_uint};
use std::io;
use std::mem::MaybeUninit;

use libz_sys as z;

/// Raw streams have no header; the window is the largest.
const RAW: c_int = -15;
const MEMORY_LEVEL: c_int = 8;

/// Appends a raw stream.
#[expect(unsafe_code, reason = "no crate has a safe call of zlib next to another implementation of it")]
pub(crate) fn raw(input: &[u8], level: c_int, out: &mut Vec<u8>) -> io::Result<()> {
    let too_long = |_| io::Error::from(io::ErrorKind::FileTooLarge);
    let failed = || io::Error::other("zlib: deflate failed");
    let begin = out.len();
    let mut stream = MaybeUninit::<z::z_stream>::zeroed();
    let stream = stream.as_mut_ptr();
    // SAFETY: `deflateInit2_` replaces the null allocators of the zeroed struct, which is only used through this pointer and
    // does not move. Input and output are valid for the lengths that are passed; `deflateBound` bytes are enough for one call.
    // The state is freed on every path after `deflateInit2_` succeeded.
    unsafe {
        let (version, size) = (z::zlibVersion(), c_int::try_from(size_of::<z::z_stream>()).map_err(too_long)?);
        if z::deflateInit2_(stream, level, z::Z_DEFLATED, RAW, MEMORY_LEVEL, z::Z_DEFAULT_STRATEGY, version, size)
            != z::Z_OK
        {
            return Err(failed());
        }
        let bound = z::deflateBound(stream, input.len().try_into().unwrap_or(0));
        out.resize(begin + usize::try_from(bound).unwrap_or(0), 0);
        let (_, space) = out.split_at_mut(begin);
        let (Ok(input_len), Ok(space_len)) = (c_uint::try_from(input.len()), c_uint::try_from(space.len())) else {
            z::deflateEnd(stream);
            return Err(io::ErrorKind::FileTooLarge.into());
        };
        (*stream).next_in = input.as_ptr().cast_mut();
        (*stream).avail_in = input_len;
        (*stream).next_out = space.as_mut_ptr();
        (*stream).avail_out = space_len;
        let ended = z::deflate(stream, z::Z_FINISH);
        let written = space_len - (*stream).avail_out;
        z::deflateEnd(stream);
        if ended != z::Z_STREAM_END {
            return Err(failed());
        }
        out.truncate(begin + written as usize);
    }
    Ok(())
}
