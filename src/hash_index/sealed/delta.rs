//! `DELTA_BINARY_PACKED` of Parquet in the one form that files of keys have: blocks of 128 values, in two halves.
//!
//! ```text
//! header   varint 128, varint 2, varint number of values, zigzag first value
//! block    zigzag least difference, width of each half (1 byte), each half in 8 * width bytes
//! half     64 differences above the least one, lowest bits first
//! ```
//!
//! The last half is filled up with zeros. Differences wrap.

/// Values of a block.
const BLOCK: usize = 2 * HALF;
/// Values of a miniblock.
const HALF: usize = 64;
/// Bytes that hold 8 values of any width.
const WINDOW: usize = 72;

pub(super) fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

pub(super) fn put_zigzag(number: i64, out: &mut Vec<u8>) {
    put_varint(((number << 1) ^ (number >> 63)).cast_unsigned(), out);
}

pub(super) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}

pub(super) fn take_zigzag(bytes: &mut &[u8]) -> Option<i64> {
    let number = take_varint(bytes)?;
    Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
}

/// Appends the encoded values.
pub(super) fn encode(values: &[i64], out: &mut Vec<u8>) {
    put_varint(BLOCK as u64, out);
    put_varint(2, out);
    put_varint(values.len() as u64, out);
    put_zigzag(values.first().copied().unwrap_or(0), out);
    let mut differences = [0; BLOCK];
    let mut before = values.first().copied().unwrap_or(0);
    for block in values.get(1..).unwrap_or_default().chunks(BLOCK) {
        let mut least = i64::MAX;
        for (difference, value) in differences.iter_mut().zip(block) {
            *difference = value.wrapping_sub(before);
            before = *value;
            least = least.min(*difference);
        }
        differences.iter_mut().skip(block.len()).for_each(|rest| *rest = least);
        put_zigzag(least, out);
        for each in &mut differences {
            *each = each.wrapping_sub(least);
        }
        let halves = differences.as_chunks::<HALF>().0;
        let width = |half: &[i64; HALF]| {
            u64::BITS - half.iter().fold(0, |all, each| all | each.cast_unsigned()).leading_zeros()
        };
        out.extend(halves.iter().map(|half| width(half).to_le_bytes()[0]));
        for half in halves {
            pack(half.iter().map(|each| each.cast_unsigned()), width(half), out);
        }
    }
}

/// Appends values of a width in bits, lowest bits first. The last byte is filled up with zeros.
pub(super) fn pack(values: impl Iterator<Item = u64>, width: u32, out: &mut Vec<u8>) {
    let (mut word, mut used) = (0u64, 0);
    for value in values {
        word |= value << used;
        used += width;
        if used >= u64::BITS {
            out.extend_from_slice(&word.to_le_bytes());
            used -= u64::BITS;
            word = if used == 0 { 0 } else { value >> (width - used) };
        }
    }
    out.extend(word.to_le_bytes().iter().take(used.div_ceil(8) as usize));
}

/// Replaces `out` with the `count` values that a page starts with. `None` if the page is in another form.
pub(super) fn decode<T: Copy + Default>(
    mut page: &[u8],
    count: usize,
    convert: impl Fn(i64) -> T + Copy,
    out: &mut Vec<T>,
) -> Option<()> {
    let header = [take_varint(&mut page)?, take_varint(&mut page)?, take_varint(&mut page)?];
    if header != [BLOCK as u64, 2, count as u64] {
        return None;
    }
    let mut value = take_zigzag(&mut page)?;
    out.clear();
    out.resize(1 + count.saturating_sub(1).next_multiple_of(BLOCK), T::default());
    let (first, rest) = out.split_first_mut()?;
    *first = convert(value);
    for block in rest.as_chunks_mut::<BLOCK>().0 {
        let least = take_zigzag(&mut page)?;
        let (widths, rest) = page.split_first_chunk::<2>()?;
        page = rest;
        for (width, half) in widths.iter().zip(block.as_chunks_mut::<HALF>().0) {
            let held;
            (held, page) = (page, page.get(HALF / 8 * usize::from(*width)..)?);
            let next = |difference: u64| {
                value = value.wrapping_add(least).wrapping_add(difference.cast_signed());
                convert(value)
            };
            unpack(held, *width, half.as_chunks_mut().0, next)?;
        }
    }
    out.truncate(count);
    Some(())
}

/// Fills `out` with what `convert` makes of values of a width in bits. `None` for a width above 64.
pub(super) fn unpack<T>(bytes: &[u8], width: u8, out: &mut [[T; 8]], convert: impl FnMut(u64) -> T) -> Option<()> {
    macro_rules! of_width {
        ($($known:literal)*) => {
            match width {
                $($known => unpack_width::<$known, T>(bytes, out, convert),)*
                _ => return None,
            }
        };
    }
    of_width!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
        33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64);
    Some(())
}

/// The loop has fixed shifts and no branch.
fn unpack_width<const WIDTH: usize, T>(bytes: &[u8], out: &mut [[T; 8]], mut convert: impl FnMut(u64) -> T) {
    let mut last = [0; WINDOW];
    for (eight, number) in out.iter_mut().zip(0..) {
        let bytes = bytes.get(number * WIDTH..).unwrap_or_default();
        let window = bytes.first_chunk::<WINDOW>().unwrap_or_else(|| {
            // The end of the bytes is near.
            last = [0; WINDOW];
            last.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
            &last
        });
        *eight = std::array::from_fn(|place| {
            let (at, shift) = (place * WIDTH / 8, place * WIDTH % 8);
            let low = window.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u64::from_le_bytes) >> shift;
            // Values of 58 bits and more may end in a ninth byte.
            let high = window.get(at + 8).copied().map_or(0, u64::from);
            let value = if shift + WIDTH > 64 { low | high << (64 - shift) } else { low };
            convert(if WIDTH == 64 { value } else { value & ((1 << WIDTH) - 1) })
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_have_known_bytes() {
        let mut bytes = Vec::new();
        // Differences 1, 1, 3, -1, 0: the least is -1, and the others are 2, 2, 4, 0, 1 above it, in 3 bits.
        encode(&[7, 8, 9, 12, 11, 11], &mut bytes);
        let mut expected = vec![0x80, 0x01, 0x02, 0x06, 0x0e, 0x01, 0x03, 0x00, 0b0001_0010, 0b0001_0001];
        // Padding: 59 differences of -1 are zeros. The other half needs no bits.
        expected.resize(8 + 24, 0);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn values_of_every_width_come_back() {
        let mut state = 1u64;
        for width in 0..=64u32 {
            for count in [0, 1, 2, 128, 129, 130, 1_024] {
                let mut values = Vec::new();
                for _ in 0..count {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let mixed = state ^ (state >> 29);
                    values.push(if width == 0 { 5 } else { (mixed >> (64 - width)).cast_signed() });
                }
                let mut bytes = Vec::new();
                encode(&values, &mut bytes);
                let mut found = Vec::new();
                decode(&bytes, count, |value| value, &mut found).unwrap();
                assert_eq!(found, values, "{width} {count}");
                // A cut page is an error, and other counts too.
                for len in [0, 3, bytes.len().saturating_sub(1)] {
                    assert!(len == bytes.len() || decode(&bytes[..len], count, |value| value, &mut found).is_none());
                }
                assert!(decode(&bytes, count + 1, |value| value, &mut found).is_none());
            }
        }
    }

    #[test]
    fn hostile_bytes_are_an_error_or_values() {
        let mut whole = Vec::new();
        encode(&(0..300).map(|number| number * number).collect::<Vec<_>>(), &mut whole);
        let mut found = Vec::new();
        for place in 0..whole.len() {
            for byte in [0, 0x40, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[place] = byte;
                let decoded = decode(&bytes, 300, |value| value, &mut found);
                assert!(decoded.is_none() || found.len() == 300);
            }
        }
    }
}
