//! The hash of an index key: Java's `String.hashCode` made non-negative.
//!
//! `String.hashCode` runs over UTF-16 code units: `h = 31 * h + unit`, wrapping in 32 bits. `IndexFile#indexKeyHashMethod`
//! then takes the absolute value, and 0 for `i32::MIN`, which has none. A character outside the basic plane counts as
//! two units. The sum runs from left to right, so the hash of `topic#` can be continued with the key.

/// Index keys that are hashed in blocks.
pub trait KeySource: Sync {
    /// Number of keys.
    fn len(&self) -> usize;

    /// True if there is no key.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hashes the keys from `start` on, as many as `hashes` can hold.
    fn hash_block(&self, start: usize, hashes: &mut [i32]);
}

impl<T: AsRef<str> + Sync> KeySource for [T] {
    fn len(&self) -> usize {
        <[T]>::len(self)
    }

    fn hash_block(&self, start: usize, hashes: &mut [i32]) {
        for (hash, key) in hashes.iter_mut().zip(self.iter().skip(start)) {
            *hash = key_hash(key.as_ref());
        }
    }
}

/// Hashes of a whole index key (`topic#key`), 0 or more. Source: `IndexFile#indexKeyHashMethod`.
///
/// ```
/// use logdex::hash_index::key_hash;
/// assert_eq!(key_hash("TopicTest#MessageKey"), 638_347_386);
/// assert_eq!(key_hash("polygenelubricants"), 0); // hashCode is i32::MIN
/// ```
pub fn key_hash(key: &str) -> i32 {
    key_hash_of_utf8(key.as_bytes())
}

/// Hashes of a key given as UTF-8 bytes, decoded as Java would where they are malformed.
pub fn key_hash_of_utf8(key: &[u8]) -> i32 {
    finish(carry_utf8(0, key))
}

/// Hashes of a key given as UTF-16 code units, including lone surrogates.
pub fn key_hash_of_units(units: impl IntoIterator<Item = u16>) -> i32 {
    finish(units.into_iter().fold(0, step))
}

/// Converts a `hashCode` to a key hash: the absolute value, or 0 for `i32::MIN`.
#[inline]
pub fn finish(hash_code: i32) -> i32 {
    hash_code.wrapping_abs().max(0)
}

pub(super) fn step(hash: i32, unit: u16) -> i32 {
    hash.wrapping_mul(31).wrapping_add(i32::from(unit))
}

/// Continues a `hashCode` with UTF-8 bytes.
///
/// Plain ASCII is hashed eight bytes at a time, in the same pass that detects whether it is ASCII.
#[inline]
pub fn carry_utf8(hash: i32, bytes: &[u8]) -> i32 {
    const NOT_ASCII: u64 = 0x8080_8080_8080_8080;
    let (words, rest) = bytes.as_chunks::<8>();
    let mut carried = hash;
    let mut seen = 0;
    for word in words {
        let word = u64::from_le_bytes(*word);
        seen |= word;
        carried = carried.wrapping_mul(POWER_8).wrapping_add(hash_of_eight(word));
    }
    for &byte in rest {
        seen |= u64::from(byte);
        carried = step(carried, u16::from(byte));
    }
    if seen & NOT_ASCII == 0 { carried } else { carry_text(hash, bytes) }
}

const POWER_4: i32 = 31i32.pow(4);
const POWER_8: i32 = POWER_4.wrapping_mul(POWER_4);

/// `b0 * 31^7 + ... + b7` of eight bytes, `b0` in the lowest: neighbours are joined to pairs in lanes of 16 bits, pairs
/// to fours in lanes of 32 bits. No lane overflows: 255 * 32 < 2^16, and 255 * 32 * 962 < 2^32.
#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "lanes of a word")]
fn hash_of_eight(word: u64) -> i32 {
    const BYTES: u64 = 0x00ff_00ff_00ff_00ff;
    const PAIRS: u64 = 0x0000_ffff_0000_ffff;
    let pairs = (word & BYTES) * 31 + (word >> 8 & BYTES);
    let fours = (pairs & PAIRS) * 961 + (pairs >> 16 & PAIRS);
    (fours as u32 as i32).wrapping_mul(POWER_4).wrapping_add((fours >> 32) as i32)
}

#[cold]
fn carry_text(hash: i32, bytes: &[u8]) -> i32 {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.encode_utf16().fold(hash, step),
        Err(_) => crate::java_text::decode_utf8(bytes).encode_utf16().fold(hash, step),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn naive(key: &str) -> i32 {
        let code = key.encode_utf16().fold(0i32, |h, unit| h.wrapping_mul(31).wrapping_add(i32::from(unit)));
        if code == i32::MIN { 0 } else { code.abs() }
    }

    #[test]
    fn hashes_are_those_of_the_broker() {
        // docs/formats/rocketmq-index.md, "Key hash": computed by the real class.
        for (key, hash) in [
            ("", 0),
            ("\0", 0),
            ("a", 97),
            ("Aa", 2112),
            ("BB", 2112),
            ("AaTopic#BB", 10_606_476),
            ("BBTopic#Aa", 10_606_476),
            ("TopicTest#order-1001", 1_043_804_929),
            ("\u{8ba2}\u{5355}#\u{7f16}\u{53f7}", 710_961_615),
            ("TopicTest#caf\u{e9}", 1_656_227_037),
            ("TopicTest#cafe\u{301}", 196_566_082),
            ("\u{1f600}", 1_772_899),
            ("TopicTest#\u{20000}", 4_515_138),
            ("polygenelubricants", 0),
            ("TopicTest#tbaekxa", 0),
            ("TopicTest#tzhulrtb", 2_107_026_679),
            ("TopicTest#be0m2hrq", 2_107_026_679),
        ] {
            assert_eq!(key_hash(key), hash, "{key:?}");
        }
        assert_eq!(key_hash_of_units([0xd83d]), 55_357);
    }

    #[test]
    fn surrogates_in_utf8_form_hash_as_java_decodes_them() {
        assert_eq!(key_hash_of_utf8(b"\xed\xa0\x80"), key_hash("\u{fffd}"));
    }

    proptest! {
        #[test]
        fn every_way_agrees_with_the_naive_hash(topic in ".{0,40}", key in ".{0,60}") {
            let whole = format!("{topic}#{key}");
            prop_assert_eq!(key_hash(&whole), naive(&whole));
            prop_assert_eq!(key_hash_of_units(whole.encode_utf16()), naive(&whole));
            let carried = carry_utf8(carry_utf8(carry_utf8(0, topic.as_bytes()), b"#"), key.as_bytes());
            prop_assert_eq!(finish(carried), naive(&whole));
        }
    }
}
