//! Hosts and message ids as text.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Writes `ip:port`, an IPv6 address as `[RFC 5952]:port`, in place of what `text` held.
///
/// `host` is the address, 4 or 16 bytes, and the port, 4 bytes, as in a frame.
pub fn write_host(host: &[u8], text: &mut String) {
    text.clear();
    let Some((ip, port)) = host.split_last_chunk::<4>() else {
        return;
    };
    let port = i32::from_be_bytes(*port);
    let written = if let Ok(v4) = <[u8; 4]>::try_from(ip) {
        write!(text, "{}:{port}", Ipv4Addr::from(v4))
    } else if let Ok(v6) = <[u8; 16]>::try_from(ip) {
        write!(text, "[{}]:{port}", Ipv6Addr::from(v6))
    } else {
        Ok(())
    };
    debug_assert!(written.is_ok(), "writing to a string cannot fail");
}

/// Writes the id that the broker gives a message, in place of what `text` held: store host and offset in the log,
/// upper-case hex (upstream `MessageDecoder#createMessageId`).
pub fn write_msg_id(store_host: &[u8], phy_offset: u64, text: &mut String) {
    write_hex(store_host, text);
    text.push_str(text_of(&hex(phy_offset)));
}

fn write_hex(bytes: &[u8], text: &mut String) {
    text.clear();
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        text.push_str(text_of(&hex(u64::from_be_bytes(*word))));
    }
    if let Some(rest) = rest.first_chunk::<4>() {
        text.push_str(text_of(hex(u64::from(u32::from_be_bytes(*rest))).get(8..).unwrap_or_default()));
    }
}

pub(super) fn text_of(digits: &[u8]) -> &str {
    std::str::from_utf8(digits).unwrap_or_default()
}

/// The 16 upper-case hex digits of a number, all nibbles of a half at once.
pub(super) fn hex(number: u64) -> [u8; 16] {
    let mut digits = [0; 16];
    let (high, low) = digits.split_at_mut(8);
    high.copy_from_slice(&hex_half(number >> 32).to_be_bytes());
    low.copy_from_slice(&hex_half(number & 0xffff_ffff).to_be_bytes());
    digits
}

/// Eight digits of a number below 2^32; the first digit is the highest byte.
fn hex_half(number: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let halves = (number << 16 | number) & 0x0000_ffff_0000_ffff;
    let bytes = (halves << 8 | halves) & 0x00ff_00ff_00ff_00ff;
    let nibbles = (bytes << 4 | bytes) & (0x0f * ONES);
    // From 10 on a digit is a letter, which stands 7 places further.
    let letters = (nibbles + 6 * ONES) >> 4 & ONES;
    nibbles + u64::from(b'0') * ONES + letters * 7
}

/// A host as text.
#[derive(Clone, Debug, Default)]
pub(super) struct HostText {
    /// The bytes, with zeros behind, and how many there are.
    host: ([u64; 3], usize),
    /// `ip:port`.
    pub(super) text: String,
    /// All bytes in upper-case hex: what the ids of its messages begin with.
    pub(super) hex: String,
}

/// The texts of hosts that came before: the messages of a log come from few hosts.
#[derive(Debug)]
pub(super) struct HostTexts {
    known: Vec<HostText>,
    other: HostText,
}

impl HostTexts {
    /// Bits of a place; 256 hosts are kept.
    const BITS: u32 = 8;

    pub(super) fn new() -> Self {
        Self { known: vec![HostText::default(); 1 << Self::BITS], other: HostText::default() }
    }

    /// The text of a host of 8 or 20 bytes.
    #[inline]
    pub(super) fn of(&mut self, host: &[u8]) -> &HostText {
        let (words, rest) = host.as_chunks::<8>();
        let mut key = ([0; 3], host.len());
        for (to, word) in key.0.iter_mut().zip(words) {
            *to = u64::from_be_bytes(*word);
        }
        if let Some(rest) = rest.first_chunk::<4>() {
            key.0[2] = u64::from(u32::from_be_bytes(*rest));
        }
        let [first, second, third] = key.0;
        let mixed = (first ^ second.rotate_left(23) ^ third.rotate_left(41)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = usize::try_from(mixed >> (u64::BITS - Self::BITS)).unwrap_or(0);
        let known = self.known.get_mut(place).unwrap_or(&mut self.other);
        if known.host != key {
            known.host = key;
            write_host(host, &mut known.text);
            write_hex(host, &mut known.hex);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::{HostTexts, write_host, write_msg_id};

    const V6: [u8; 20] = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0x2a, 0x9f];

    #[test]
    fn hosts_are_ip_and_port() {
        let mut text = String::from("old");
        write_host(&[10, 1, 2, 3, 0, 0, 0x12, 0x34], &mut text);
        assert_eq!(text, "10.1.2.3:4660");
        write_host(&V6, &mut text);
        assert_eq!(text, "[2001:db8::2]:10911");
        write_host(&[], &mut text);
        assert_eq!(text, "");
    }

    #[test]
    fn ids_are_store_host_and_offset_in_hex() {
        let mut text = String::from("old");
        write_msg_id(&[192, 168, 0, 9, 0, 0, 0x2a, 0x9f], 0, &mut text);
        assert_eq!(text, "C0A8000900002A9F0000000000000000");
        write_msg_id(&V6, 0x0123_4567_89ab_cdef, &mut text);
        assert_eq!(text, "20010DB800000000000000000000000200002A9F0123456789ABCDEF");
    }

    #[test]
    fn hosts_are_told_apart_whatever_came_before() {
        let mut hosts = HostTexts::new();
        for round in 0..2 {
            for last in 0..=255u8 {
                for port in [5u8, 36] {
                    let host = [1, 2, 3, last, 0, 0, 0, port];
                    assert_eq!(hosts.of(&host).text, format!("1.2.3.{last}:{port}"), "round {round}");
                    assert_eq!(hosts.of(&host).hex, format!("010203{last:02X}000000{port:02X}"));
                }
            }
            assert_eq!(hosts.of(&V6).text, "[2001:db8::2]:10911");
        }
    }
}
