//! Zig-zag integers of variable length: 7 bits a byte, the lowest first. Source: `ByteUtils#readVarint`, `#readVarlong`.
//!
//! Encodings that are longer than necessary are accepted, and bits beyond the type's are dropped, as the broker does.

/// The remaining bytes. Every call returns `None` if the bytes end before the number does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    /// Source: `ByteUtils#readVarint`, of at most five bytes.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "bits beyond the type's are dropped")]
    pub(crate) fn varint(&mut self) -> Option<i32> {
        let value = self.unsigned(5)? as u32;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// Source: `ByteUtils#readVarlong`, of at most ten bytes.
    #[inline]
    pub(crate) fn varlong(&mut self) -> Option<i64> {
        let value = self.unsigned(10)?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// Returns the bits of a number of at most `most` bytes.
    #[inline]
    pub(crate) fn unsigned(&mut self, most: u32) -> Option<u64> {
        // Nearly all numbers of a record take one or two bytes.
        match *self.rest {
            [first, ref rest @ ..] if first < 0x80 => {
                self.rest = rest;
                Some(u64::from(first))
            }
            [first, second, ref rest @ ..] if second < 0x80 => {
                self.rest = rest;
                Some(u64::from(first & 0x7f) | u64::from(second) << 7)
            }
            _ => {
                let value;
                (value, self.rest) = long(self.rest, most)?;
                Some(value)
            }
        }
    }
}

/// Appends a number of any width in as few bytes as possible. Source: `ByteUtils#writeVarint`, `#writeVarlong`.
#[inline]
pub(crate) fn put(out: &mut Vec<u8>, value: i64) {
    put_unsigned(out, (value << 1 ^ value >> 63).cast_unsigned());
}

/// The bytes that [`put`] appends.
#[inline]
pub(crate) fn len(value: i64) -> usize {
    let bits = u64::BITS - (value << 1 ^ value >> 63).cast_unsigned().leading_zeros();
    (bits.max(1).div_ceil(7)) as usize
}

/// Appends a number that is not zig-zag.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "seven bits")]
pub(crate) fn put_unsigned(out: &mut Vec<u8>, mut left: u64) {
    while left >= 0x80 {
        out.push((left & 0x7f | 0x80) as u8);
        left >>= 7;
    }
    out.push(left as u8);
}

/// The slow path. It takes and returns the remaining bytes by value: by reference, all cursors would be in memory.
#[inline(never)]
fn long(mut rest: &[u8], most: u32) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for number in 0..most {
        let byte;
        (byte, rest) = rest.split_first()?;
        value |= u64::from(byte & 0x7f) << (7 * number);
        if *byte < 0x80 {
            return Some((value, rest));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn varints_of_the_broker() {
        for (text, value) in [
            ("00", 0),
            ("01", -1),
            ("02", 1),
            ("03", -2),
            ("7e", 63),
            ("8001", 64),
            ("7f", -64),
            ("8101", -65),
            ("fe7f", 8191),
            ("808001", 8192),
            ("feffffff0f", i32::MAX),
            ("ffffffff0f", i32::MIN),
            // Longer than necessary, and with bits beyond the type's.
            ("8000", 0),
            ("ffffffff7f", i32::MIN),
        ] {
            let bytes = hex(text);
            let mut cursor = Cursor::new(&bytes);
            assert_eq!(cursor.varint(), Some(value), "{text}");
            assert!(cursor.rest.is_empty());
            let mut shortest = Vec::new();
            put(&mut shortest, value.into());
            assert!(shortest == bytes || ["8000", "ffffffff7f"].contains(&text), "{text}");
        }
        for text in ["", "80", "ffffffff", "ffffffffff", "8080808080"] {
            assert_eq!(Cursor::new(&hex(text)).varint(), None, "{text}");
        }
    }

    #[test]
    fn varlongs_of_the_broker() {
        let time = 1_700_000_000_000;
        for (text, value) in [
            ("80a0abfef962", time),
            ("ff9fabfef962", -time),
            ("feffffffffffffffff01", i64::MAX),
            ("ffffffffffffffffff01", i64::MIN),
        ] {
            let bytes = hex(text);
            let mut cursor = Cursor::new(&bytes);
            assert_eq!(cursor.varlong(), Some(value), "{text}");
            let mut written = Vec::new();
            put(&mut written, value);
            assert_eq!(written, bytes, "{text}");
            assert!(cursor.rest.is_empty());
        }
        assert_eq!(Cursor::new(&[0xff; 12]).varlong(), None, "no end");
    }
}
