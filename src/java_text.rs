//! Text as Java reads it from bytes: `new String(bytes, UTF_8)`.
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

/// How many bytes after the `ED` that `part` points at inside `bytes` belong to the same encoded surrogate.
fn surrogate_tail_at(bytes: &[u8], part: &[u8]) -> u8 {
    let at = part.as_ptr().addr() - bytes.as_ptr().addr();
    match bytes.get(at + 1..) {
        Some([0xa0..=0xbf, 0x80..=0xbf, ..]) => 2,
        Some([0xa0..=0xbf, ..]) => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::decode_utf8;

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
