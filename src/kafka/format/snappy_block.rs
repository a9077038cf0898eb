//! One Snappy block, with the matches that the C++ library finds: a broker's library has it inside.
//!
//! Other encoders hash differently and write other blocks of the same data. Source: `snappy::internal::CompressFragment`, without the
//! instructions for CRC-32C, which the broker's builds do not use.

use super::varint;

/// The longest input: positions in the table have 16 bits.
pub(crate) const MOST: usize = 1 << 16;
const TABLE_BITS: u32 = 14;
const LEAST_TABLE: usize = 256;
/// Bytes at the end in which no match begins.
const MARGIN: usize = 15;

/// The last position of each hash of four bytes.
struct Table {
    positions: Vec<u16>,
    mask: usize,
}

impl Table {
    fn new(len: usize) -> Self {
        let most = 1 << TABLE_BITS;
        let size = if len > most { most } else { len.next_power_of_two().max(LEAST_TABLE) };
        Self { positions: vec![0; size], mask: size - 1 }
    }

    /// Returns the position of the hash of these bytes, and replaces it.
    #[expect(clippy::cast_possible_truncation, reason = "positions are below 2^16")]
    fn swap(&mut self, bytes: u32, position: usize) -> usize {
        let hash = bytes.wrapping_mul(0x1e35_a7bd) >> (u32::BITS - TABLE_BITS);
        let known =
            self.positions.get_mut(hash as usize & self.mask).map(|slot| std::mem::replace(slot, position as u16));
        known.map_or(0, usize::from)
    }
}

fn load(input: &[u8], at: usize) -> u32 {
    input.get(at..).and_then(|rest| rest.first_chunk().copied()).map_or(0, u32::from_le_bytes)
}

/// Appends the block of an input of at most [`MOST`] bytes.
pub(crate) fn encode(input: &[u8], out: &mut Vec<u8>) {
    varint::put_unsigned(out, input.len() as u64);
    let emitted = matches(input, out);
    literal(input.get(emitted..).unwrap_or_default(), out);
}

/// Appends literals and copies, and returns the position after them.
fn matches(input: &[u8], out: &mut Vec<u8>) -> usize {
    let Some(limit) = input.len().checked_sub(MARGIN) else { return 0 };
    let mut table = Table::new(input.len());
    let mut at = 0;
    loop {
        let emitted = at;
        at += 1;
        let Some((found, mut candidate)) = next_match(input, at, limit, &mut table) else { return emitted };
        literal(input.get(emitted..found).unwrap_or_default(), out);
        at = found;
        loop {
            let (left, right) = (input.get(candidate..).unwrap_or_default(), input.get(at..).unwrap_or_default());
            let len = left.iter().zip(right).take_while(|(left, right)| left == right).count();
            copy(at - candidate, len, out);
            at += len;
            if at >= limit {
                return at;
            }
            table.swap(load(input, at - 1), at - 1);
            let bytes = load(input, at);
            candidate = table.swap(bytes, at);
            if load(input, candidate) != bytes {
                break;
            }
        }
    }
}

/// Returns the next position at or after `at` whose four bytes have a match, and the match.
fn next_match(input: &[u8], mut at: usize, limit: usize, table: &mut Table) -> Option<(usize, usize)> {
    // The longer nothing is found, the larger the steps.
    let mut skip = 32;
    loop {
        let step = skip >> 5;
        skip += step;
        if at + step > limit {
            return None;
        }
        let bytes = load(input, at);
        let candidate = table.swap(bytes, at);
        if load(input, candidate) == bytes {
            return Some((at, candidate));
        }
        at += step;
    }
}

#[expect(clippy::cast_possible_truncation, reason = "lengths below 2^16, byte by byte")]
fn literal(bytes: &[u8], out: &mut Vec<u8>) {
    let Some(last) = bytes.len().checked_sub(1) else { return };
    match last {
        0..60 => out.push((last << 2) as u8),
        60..256 => out.extend([60 << 2, last as u8]),
        _ => out.extend([61 << 2, last as u8, (last >> 8) as u8]),
    }
    out.extend(bytes);
}

fn copy(offset: usize, mut len: usize, out: &mut Vec<u8>) {
    while len >= 68 {
        short_copy(offset, 64, out);
        len -= 64;
    }
    if len > 64 {
        short_copy(offset, 60, out);
        len -= 60;
    }
    short_copy(offset, len, out);
}

#[expect(clippy::cast_possible_truncation, reason = "an offset below 2^16, byte by byte")]
fn short_copy(offset: usize, len: usize, out: &mut Vec<u8>) {
    if len < 12 && offset < 2048 {
        out.extend([1 | ((len - 4) << 2) as u8 | (offset >> 3 & 0xe0) as u8, offset as u8]);
    } else {
        out.extend([2 | ((len - 1) << 2) as u8, offset as u8, (offset >> 8) as u8]);
    }
}
