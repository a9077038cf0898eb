//! Format hosts and message ids.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::arrow::columns::Piece;
use crate::io::usize_of;

/// Writes `ip:port`, or `[ip]:port` with an RFC 5952 address for IPv6. Replaces `text`.
///
/// `host` is the address (4 or 16 bytes) and the port (4 bytes), as in a frame.
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

/// Writes the broker's message id: store host and log offset in upper-case hex. Replaces `text`.
///
/// Source: upstream `MessageDecoder#createMessageId`.
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

pub(crate) fn text_of(digits: &[u8]) -> &str {
    std::str::from_utf8(digits).unwrap_or_default()
}

/// Returns the 16 upper-case hex digits of a number. The eight digits of each half are computed together.
pub(crate) fn hex(number: u64) -> [u8; 16] {
    let mut digits = [0; 16];
    let (high, low) = digits.split_at_mut(8);
    high.copy_from_slice(&hex_half(number >> 32).to_be_bytes());
    low.copy_from_slice(&hex_half(number & 0xffff_ffff).to_be_bytes());
    digits
}

/// Returns the eight hex digits of a number below 2^32. The first digit is the highest byte.
fn hex_half(number: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let halves = (number << 16 | number) & 0x0000_ffff_0000_ffff;
    let bytes = (halves << 8 | halves) & 0x00ff_00ff_00ff_00ff;
    let nibbles = (bytes << 4 | bytes) & (0x0f * ONES);
    // From 10 on a digit is a letter, 7 code points higher.
    let letters = (nibbles + 6 * ONES) >> 4 & ONES;
    nibbles + u64::from(b'0') * ONES + letters * 7
}

/// Buffer size for the longest host: an IPv6 address in brackets, and a port of ten digits with its sign.
const HOST_ROOM: usize = 64;

/// The texts of a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostText {
    key: [u64; 3],
    text: [u8; HOST_ROOM],
    text_len: usize,
    hex: [u8; HOST_ROOM],
    hex_len: usize,
}

impl HostText {
    fn new(key: [u64; 3], host: &[u8]) -> Self {
        let (mut text, mut hex) = (String::new(), String::new());
        write_host(host, &mut text);
        write_hex(host, &mut hex);
        Self { key, text: padded(&text), text_len: text.len(), hex: padded(&hex), hex_len: hex.len() }
    }

    /// Returns `ip:port`.
    pub(crate) fn text(&self) -> Piece<'_> {
        Piece { from: &self.text, len: self.text_len }
    }

    /// Returns all bytes in upper-case hex: the prefix of the host's message ids.
    pub(crate) fn hex(&self) -> Piece<'_> {
        Piece { from: &self.hex, len: self.hex_len }
    }
}

fn padded(text: &str) -> [u8; HOST_ROOM] {
    let mut padded = [0; HOST_ROOM];
    for (to, from) in padded.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    padded
}

/// A cache of host texts. The messages of a log come from few hosts.
#[derive(Debug, Default)]
pub(crate) struct HostTexts {
    /// The number of a text, by a hash of the host.
    places: Vec<usize>,
    texts: Vec<HostText>,
}

impl HostTexts {
    /// Bits of a slot number.
    const BITS: u32 = 8;
    /// Maximum number of cached texts.
    const MOST: usize = 1024;

    /// Clears the cache if it is full. Numbers returned earlier are then invalid.
    pub(crate) fn limit(&mut self) {
        self.places.resize(1 << Self::BITS, 0);
        if self.texts.len() > Self::MOST {
            self.texts.clear();
        }
    }

    /// Returns the text of this number.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> &HostText {
        const NONE: HostText =
            HostText { key: [0; 3], text: [0; HOST_ROOM], text_len: 0, hex: [0; HOST_ROOM], hex_len: 0 };
        self.texts.get(number).unwrap_or(&NONE)
    }

    /// Returns the number of the text of a host of 8 or 20 bytes.
    #[inline]
    pub(crate) fn number(&mut self, host: &[u8]) -> usize {
        let key = match host.first_chunk::<8>() {
            Some(v4) if host.len() == 8 => [u64::from_be_bytes(*v4), 0, u64::MAX],
            _ => long_key(host),
        };
        let [first, second, third] = key;
        let mixed = (first ^ second.rotate_left(23) ^ third.rotate_left(41)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = usize_of(mixed >> (u64::BITS - Self::BITS));
        let number = self.places.get(place).copied().unwrap_or(0);
        match self.texts.get(number) {
            Some(text) if text.key == key => number,
            _ => self.add(place, key, host),
        }
    }

    #[cold]
    fn add(&mut self, place: usize, key: [u64; 3], host: &[u8]) -> usize {
        self.texts.push(HostText::new(key, host));
        if let Some(number) = self.places.get_mut(place) {
            *number = self.texts.len() - 1;
        }
        self.texts.len() - 1
    }
}

#[cold]
fn long_key(host: &[u8]) -> [u64; 3] {
    let mut bytes = [0; 24];
    for (to, from) in bytes.iter_mut().zip(host) {
        *to = *from;
    }
    let mut key = [0; 3];
    for (to, from) in key.iter_mut().zip(bytes.as_chunks().0) {
        *to = u64::from_be_bytes(*from);
    }
    key
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
        let mut hosts = HostTexts::default();
        let mut texts = |host: &[u8]| {
            hosts.limit();
            let number = hosts.number(host);
            let found = hosts.get(number);
            [found.text(), found.hex()].map(|piece| String::from_utf8(piece.bytes().to_vec()).unwrap())
        };
        for round in 0..2 {
            for last in 0..=255u8 {
                for port in [5u8, 36, 37, 200] {
                    let host = [1, 2, 3, last, 0, 0, 0, port];
                    let [text, hex] = texts(&host);
                    assert_eq!(text, format!("1.2.3.{last}:{port}"), "round {round}");
                    assert_eq!(hex, format!("010203{last:02X}000000{port:02X}"));
                }
            }
            assert_eq!(texts(&V6), ["[2001:db8::2]:10911", "20010DB800000000000000000000000200002A9F"]);
        }
    }
}
