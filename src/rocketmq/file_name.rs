//! File names of the commit log and of the consume queues: the offset of the first byte, 20 decimal digits.

/// Digits of a name.
const DIGITS: usize = 20;

/// Returns the name of the file whose first byte has this offset (upstream `UtilAll#offset2FileName`).
///
/// ```
/// assert_eq!(logdex::rocketmq::file_name::of_offset(1 << 30), "00000000001073741824");
/// ```
pub fn of_offset(offset: u64) -> String {
    format!("{offset:020}")
}

/// Returns the offset of a name, or `None` for a stray file.
///
/// A name is exactly 20 ASCII digits and at most `i64::MAX`, as the broker writes it. The broker itself accepts any number, and
/// does not start if a name is not a number.
pub fn parse(name: &str) -> Option<u64> {
    if name.len() != DIGITS || !name.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    name.parse().ok().filter(|offset| i64::try_from(*offset).is_ok())
}

/// Returns the offset at the start of the name of a renamed or compressed file, such as one that ends in `.gz`.
pub fn parse_beginning(name: &str) -> Option<u64> {
    parse(name.get(..DIGITS)?).filter(|_| !name.as_bytes().get(DIGITS).is_some_and(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::{of_offset, parse, parse_beginning};

    #[test]
    fn a_file_that_was_set_aside_keeps_its_offset() {
        for name in ["00000000000000065536", "00000000000000065536.gz", "00000000000000065536_old"] {
            assert_eq!(parse_beginning(name), Some(65_536), "{name}");
        }
        for name in ["", "0.gz", "000000000000000655360", "99999999999999999999.gz", "x00000000000000065536"] {
            assert_eq!(parse_beginning(name), None, "{name}");
        }
    }

    #[test]
    fn names_round_trip() {
        for offset in [0, 1, 65536, 1 << 30, i64::MAX.unsigned_abs()] {
            assert_eq!(parse(&of_offset(offset)), Some(offset));
        }
        assert_eq!(of_offset(0), "00000000000000000000");
    }

    #[test]
    fn strays_are_no_offsets() {
        for name in [
            "",
            ".DS_Store",
            "0",
            "0000000000000000000",
            "000000000000000000000",
            "+0000000000000000001",
            "0000000000000000000a",
            "09223372036854775808",
            "99999999999999999999",
            "0000000000000000 000",
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
