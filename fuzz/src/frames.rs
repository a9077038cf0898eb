//! Frames of the commit log: their positions, and the repair of their lengths and checksums.

use crate::{i32_at, mutate_piece, put};

const MAGICS: [i32; 2] = [0xdaa3_20a7_u32.cast_signed(), 0xdaa3_20ab_u32.cast_signed()];

/// Mutates bytes of a log: anywhere, or in one frame, whose lengths and checksum are then corrected.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    if seed.is_multiple_of(4) {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    }
    let pieces = begins(&data[..size]);
    mutate_piece(data, (size, max_size), &pieces, seed, repair)
}

/// The beginning of each frame, by their sizes, and the end of the last one.
fn begins(log: &[u8]) -> Vec<usize> {
    let mut begins = vec![0];
    let mut at = 0;
    while let Some(size) = usize::try_from(i32_at(log, at)).ok().filter(|size| *size >= 8 && at + size <= log.len()) {
        at += size;
        begins.push(at);
    }
    begins
}

/// Corrects size, offset, length of the properties and checksum, if the bytes are a frame.
fn repair(frame: &mut [u8], begin: usize) {
    put(frame, 0, &i32::try_from(frame.len()).unwrap_or(0).to_be_bytes());
    put(frame, 28, &(begin as u64).to_be_bytes());
    let magic = i32_at(frame, 4);
    let sys_flag = i32_at(frame, 36);
    let hosts = [0x10, 0x20].map(|v6| if sys_flag & v6 == 0 { 8 } else { 20 }).iter().sum::<usize>();
    let body_at = 72 + hosts;
    let body = usize::try_from(i32_at(frame, body_at - 4)).unwrap_or(0);
    let Some(stored) = frame.get(body_at..).and_then(|b| b.get(..body)) else { return };
    let crc = (crc32fast::hash(stored) & 0x7fff_ffff).to_be_bytes();
    put(frame, 8, &crc);
    let topic_at = body_at + body;
    let topic = match MAGICS.iter().position(|known| *known == magic) {
        Some(0) => 1 + frame.get(topic_at).map_or(0, |len| usize::from(*len)),
        Some(_) => 2 + usize::try_from(i32_at(frame, topic_at) >> 16).unwrap_or(0),
        None => return,
    };
    let left = frame.len().saturating_sub(topic_at + topic + 2);
    put(frame, topic_at + topic, &i16::try_from(left).unwrap_or(0).to_be_bytes());
}
