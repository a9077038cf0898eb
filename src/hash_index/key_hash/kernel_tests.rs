//! Every kernel of this machine against the definition of the hash, on random keys and on those made to hurt.

use proptest::prelude::*;

use super::java_hash::{KeySource, carry_utf8, finish, key_hash_of_utf8, step};
use super::kernels::{Kernel, on_page_edges};
use super::text_keys::TextKeys;

/// The definition: UTF-16 units one by one, over topic and key as one text.
fn defined(before: &str, key: &[u8]) -> i32 {
    let text = crate::java_text::decode_utf8(key);
    finish(before.encode_utf16().chain(text.encode_utf16()).fold(0, step))
}

/// A column of keys, the first of them at byte `skip`.
fn column(keys: &[Vec<u8>], skip: usize) -> (Vec<u8>, Vec<i32>) {
    let mut text = vec![b'x'; skip];
    let mut ends = vec![i32::try_from(skip).unwrap()];
    for key in keys {
        text.extend_from_slice(key);
        ends.push(i32::try_from(text.len()).unwrap());
    }
    (text, ends)
}

fn check(before: &str, keys: &[Vec<u8>], text: &[u8], ends: &[i32]) {
    let column = TextKeys { carry: carry_utf8(0, before.as_bytes()), text, ends };
    let expected: Vec<i32> = keys.iter().map(|key| defined(before, key)).collect();
    for kernel in Kernel::available() {
        let mut hashes = vec![-1; keys.len()];
        column.hash_with(kernel, 0, &mut hashes);
        assert_eq!(hashes, expected, "{kernel:?} behind {before:?}");
    }
}

/// Keys of every length from 0 to 300: digits that differ from place to place.
fn of_all_lengths() -> Vec<Vec<u8>> {
    (0..=300usize)
        .map(|len| (0..len).map(|at| b'!' + u8::try_from((at * 7 + len * 31) % 94).unwrap()).collect())
        .collect()
}

#[test]
fn there_is_a_vector_kernel_where_the_wheels_run() {
    let all: Vec<Kernel> = Kernel::available().collect();
    assert!(all.contains(&Kernel::Swar) && all.contains(&Kernel::Scalar));
    assert_eq!(Kernel::best(), all[0]);
    #[cfg(target_arch = "x86_64")]
    assert!(all.contains(&Kernel::Sse2));
    #[cfg(target_arch = "x86_64")]
    assert_eq!(all.contains(&Kernel::Avx2), std::arch::is_x86_feature_detected!("avx2"));
}

#[test]
fn keys_of_every_length_at_every_place() {
    let keys = of_all_lengths();
    for skip in [0, 1, 15, 16, 17, 31, 32, 33, 64] {
        let (text, ends) = column(&keys, skip);
        check("", &keys, &text, &ends);
        check("TopicTest#", &keys, &text, &ends);
    }
    let mut turned = keys;
    turned.reverse();
    let (text, ends) = column(&turned, 0);
    check("\u{8ba2}\u{5355}#", &turned, &text, &ends);
}

#[test]
fn one_letter_that_is_not_ascii_at_every_place() {
    for letter in ["\u{e9}", "\u{4e2d}", "\u{1f600}", "\u{80}", "\u{7ff}", "\u{fffd}"] {
        for len in [1, 15, 16, 31, 32, 33, 63, 64, 100] {
            let keys: Vec<Vec<u8>> =
                (0..len).map(|at| [&vec![b'k'; at], letter.as_bytes(), &vec![b'z'; len - at]].concat()).collect();
            let (text, ends) = column(&keys, 0);
            check("T#", &keys, &text, &ends);
        }
    }
}

#[test]
fn malformed_text_hashes_as_java_decodes_it() {
    let bad: [&[u8]; 6] = [b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xe4\xb8", b"\xf0\x9f\x98", b"\x80"];
    let keys: Vec<Vec<u8>> = bad
        .iter()
        .flat_map(|bad| [bad.to_vec(), [&b"k".repeat(40), *bad].concat(), [*bad, &b"k".repeat(40)].concat()])
        .collect();
    let (text, ends) = column(&keys, 0);
    check("T#", &keys, &text, &ends);
}

#[test]
fn hashes_without_an_absolute_value_are_0() {
    let keys: Vec<Vec<u8>> = vec![b"polygenelubricants".to_vec(); 40];
    let (text, ends) = column(&keys, 32);
    check("", &keys, &text, &ends);
    let carried: Vec<Vec<u8>> = vec![b"tbaekxa".to_vec(); 40];
    let (text, ends) = column(&carried, 32);
    check("TopicTest#", &carried, &text, &ends);
    assert_eq!(defined("TopicTest#", b"tbaekxa"), 0);
}

#[test]
fn no_byte_outside_the_column_is_read() {
    for len in 0..=100 {
        let keys: Vec<Vec<u8>> = of_all_lengths().into_iter().skip(len).step_by(len + 1).take(7).collect();
        let (text, ends) = column(&keys, 0);
        on_page_edges(&text, |text| check("T#", &keys, text, &ends));
    }
}

#[test]
fn ends_that_lead_out_of_the_text_make_empty_keys() {
    let text = b"0123456789".repeat(10);
    let empty = finish(carry_utf8(0, b"T#"));
    for ends in [[0, 10, 20, 30, 101], [0, 10, 5, 20, 30], [-1, 10, 20, 30, 40], [i32::MIN, 0, i32::MAX, -7, 3]] {
        let keys = TextKeys { carry: carry_utf8(0, b"T#"), text: &text, ends: &ends };
        for kernel in Kernel::available() {
            let mut hashes = [-1; 4];
            keys.hash_with(kernel, 0, &mut hashes);
            for (hash, ends) in hashes.iter().zip(ends.windows(2)) {
                let inside = (0..=ends[1]).contains(&ends[0]) && ends[1] <= 100;
                let [begin, end] = [ends[0], ends[1]].map(|end| usize::try_from(end).unwrap_or(0));
                let key = if inside { &text[begin..end] } else { b"" };
                let expected = finish(carry_utf8(carry_utf8(0, b"T#"), key));
                assert_eq!(*hash, expected, "{kernel:?} {ends:?}");
                assert!(inside || *hash == empty);
            }
        }
    }
    let none = TextKeys { carry: 0, text: &text, ends: &[] };
    assert!(none.is_empty());
    let mut untouched = [-1; 3];
    none.hash_block(0, &mut untouched);
    TextKeys { carry: 0, text: &text, ends: &[0, 10] }.hash_block(2, &mut untouched);
    assert_eq!(untouched, [-1; 3], "there are no such keys");
}

proptest! {
    #[test]
    fn every_kernel_agrees_with_the_definition(
        before in prop_oneof![Just(String::new()), ".{0,12}"],
        keys in prop::collection::vec(
            prop_oneof![
                6 => "[ -~]{0,80}".prop_map(String::into_bytes),
                1 => "[ -~]{0,300}".prop_map(String::into_bytes),
                2 => ".{0,40}".prop_map(String::into_bytes),
                1 => prop::collection::vec(any::<u8>(), 0..60),
            ],
            0..120,
        ),
        skip in 0usize..70,
        start in 0usize..40,
    ) {
        let (text, ends) = column(&keys, skip);
        check(&before, &keys, &text, &ends);

        // A part of the column, each key after a text of its own.
        let start = start.min(keys.len());
        let whole = TextKeys { carry: 0, text: &text, ends: &ends };
        let carries: Vec<i32> = (start..keys.len()).map(|row| carry_utf8(0, format!("t{}#", row % 3).as_bytes())).collect();
        let mut hashes = vec![-1; carries.len()];
        whole.hash_behind(&carries, start, &mut hashes);
        for (hash, row) in hashes.iter().zip(start..) {
            prop_assert_eq!(*hash, defined(&format!("t{}#", row % 3), &keys[row]));
        }
        let mut plain = vec![-1; keys.len() - start];
        whole.hash_block(start, &mut plain);
        for (hash, key) in plain.iter().zip(&keys[start..]) {
            prop_assert_eq!(*hash, key_hash_of_utf8(key));
        }
    }
}
