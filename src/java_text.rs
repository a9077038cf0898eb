//! Text as Java reads it: `new String(bytes, UTF_8)`, and `Long.parseLong`.
//!
//! Well-formed UTF-8 is the same everywhere. Malformed bytes become U+FFFD, one for each maximal part that could have
//! begun a character, as in Rust and Python, with one exception: `ED` followed by `A0` to `BF` begins a surrogate, which
//! no character is. Java takes the two or three bytes together for one U+FFFD; elsewhere each is one.

use std::borrow::Cow;

/// Decodes UTF-8 as Java does.
///
/// ```
/// use logdex::java_text::decode_utf8;
/// assert_eq!(decode_utf8(b"k\xed\xa0\x80"), "k\u{fffd}");
/// assert_eq!(decode_utf8(b"k\xc0\x80"), "k\u{fffd}\u{fffd}");
/// ```
pub fn decode_utf8(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(decode_malformed(bytes)),
    }
}

#[cold]
fn decode_malformed(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut surrogate_tail = 0; // bytes of an encoded surrogate that its first U+FFFD already stands for
    for chunk in bytes.utf8_chunks() {
        if !chunk.valid().is_empty() {
            surrogate_tail = 0;
        }
        text.push_str(chunk.valid());
        match chunk.invalid() {
            [] => {}
            [0xed] => {
                text.push('\u{fffd}');
                surrogate_tail = surrogate_tail_at(bytes, chunk.invalid());
            }
            _ if surrogate_tail > 0 => surrogate_tail -= 1,
            _ => text.push('\u{fffd}'),
        }
    }
    text
}

/// The number of bytes after the `ED` that `part` points at inside `bytes` belong to the same encoded surrogate.
fn surrogate_tail_at(bytes: &[u8], part: &[u8]) -> u8 {
    let at = part.as_ptr().addr() - bytes.as_ptr().addr();
    match bytes.get(at + 1..) {
        Some([0xa0..=0xbf, 0x80..=0xbf, ..]) => 2,
        Some([0xa0..=0xbf, ..]) => 1,
        _ => 0,
    }
}

/// The zero of each script with decimal digits among the UTF-16 units that are characters of their own.
const ZEROS: [u32; 37] = [
    0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50, 0xed0,
    0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40, 0x1c50, 0xa620,
    0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10,
];

/// Parses a decimal number of 64 bits as Java's `Long.parseLong`, which takes the digits of any script.
///
/// ```
/// use logdex::java_text::parse_long;
/// assert_eq!(parse_long("-\u{662}\u{660}"), Some(-20));
/// assert_eq!(parse_long("1 "), None);
/// ```
pub fn parse_long(text: &str) -> Option<i64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let ascii = |c: char| match c {
        '-' | '+' => Some(c),
        _ => {
            let zero = ZEROS.into_iter().find(|zero| (*zero..*zero + 10).contains(&u32::from(c)))?;
            char::from_digit(u32::from(c) - zero, 10)
        }
    };
    text.chars().map(ascii).collect::<Option<String>>()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{decode_utf8, parse_long};

    #[test]
    fn numbers_are_those_that_java_parses() {
        for (text, number) in [
            ("100", Some(100)),
            ("+5", Some(5)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("\u{662}0", Some(20)),
            ("", None),
            ("+", None),
            ("--1", None),
            ("1_0", None),
            ("\u{1d7ce}", None),
            ("\u{b2}", None),
        ] {
            assert_eq!(parse_long(text), number, "{text}");
        }
    }

    #[test]
    fn malformed_bytes_are_replaced_as_java_does() {
        for (bytes, text) in [
            (&b"plain"[..], "plain"),
            (b"\xed\xa0\x80", "\u{fffd}"),
            (b"a\xed\xa0\x80\xed\xb0\x80b", "a\u{fffd}\u{fffd}b"),
            (b"\xed\xa0", "\u{fffd}"),
            (b"\xed\xa0A", "\u{fffd}A"),
            (b"\xed\xa0\xc3\xa9", "\u{fffd}\u{e9}"),
            (b"\xed\x80", "\u{fffd}"),
            (b"\xed\xa0\x80\x80", "\u{fffd}\u{fffd}"),
            (b"\xf0\x9f\x98", "\u{fffd}"),
            (b"\xe4\xbd", "\u{fffd}"),
            (b"\xc0\x80", "\u{fffd}\u{fffd}"),
            (b"\xff", "\u{fffd}"),
            (b"\xf4\x90\x80\x80", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(decode_utf8(bytes), text, "{bytes:02x?}");
        }
    }
}
