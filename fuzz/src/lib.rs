//! Code of several fuzz targets: limited memory, files to read, and mutations that a checksum does not stop.

pub mod frames;
pub mod kafka;
mod memory;
mod scratch;

pub use scratch::Scratch;

/// The big-endian integer at a position; 0 if the bytes end before it.
pub(crate) fn i32_at(bytes: &[u8], at: usize) -> i32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).copied().map_or(0, i32::from_be_bytes)
}

/// Stores bytes at a position, as many as fit.
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(to) = bytes.get_mut(at..).and_then(|b| b.get_mut(..value.len())) {
        to.copy_from_slice(value);
    }
}

/// Mutates one of the pieces that `bytes` consists of, and has `repair` make its lengths and checksums right; it is told where
/// the piece begins.
///
/// `pieces` are where each begins, and where the last one ends. The new length of all.
pub(crate) fn mutate_piece(
    data: &mut [u8],
    (size, max_size): (usize, usize),
    pieces: &[usize],
    seed: u32,
    repair: impl Fn(&mut [u8], usize),
) -> usize {
    let [.., _, _] = pieces else { return libfuzzer_sys::fuzzer_mutate(data, size, max_size) };
    let at = seed as usize / 8 % (pieces.len() - 1);
    let (begin, end) = (pieces[at], pieces[at + 1]);
    let behind = data[end..size].to_vec();
    let most = max_size - begin - behind.len();
    let mut piece = data[begin..end].to_vec();
    piece.resize(most.max(end - begin), 0);
    let len = libfuzzer_sys::fuzzer_mutate(&mut piece, end - begin, most);
    piece.truncate(len);
    repair(&mut piece, begin);
    data[begin..begin + len].copy_from_slice(&piece);
    data[begin + len..begin + len + behind.len()].copy_from_slice(&behind);
    begin + len + behind.len()
}
