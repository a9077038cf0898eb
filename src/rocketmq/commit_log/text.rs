//! Hosts and message ids as text.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

const HEX: &[u8; 16] = b"0123456789ABCDEF";
/// Longest id: an IPv6 address, a port and an offset in hex.
const ID: usize = 56;

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
    text.clear();
    let mut hex = [0u8; ID];
    let mut len = 0;
    for (pair, byte) in hex.chunks_exact_mut(2).zip(store_host.iter().copied().chain(phy_offset.to_be_bytes())) {
        if let [high, low] = pair {
            *high = HEX.get(usize::from(byte >> 4)).copied().unwrap_or_default();
            *low = HEX.get(usize::from(byte & 15)).copied().unwrap_or_default();
        }
        len += 2;
    }
    text.push_str(std::str::from_utf8(hex.get(..len).unwrap_or_default()).unwrap_or_default());
}

/// The text of the last host, because most messages of a log come from few hosts.
#[derive(Debug, Default)]
pub(super) struct HostText {
    host: Vec<u8>,
    text: String,
}

impl HostText {
    pub(super) fn of(&mut self, host: &[u8]) -> &str {
        if self.host != host || self.text.is_empty() {
            self.host.clear();
            self.host.extend_from_slice(host);
            write_host(host, &mut self.text);
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::{HostText, write_host, write_msg_id};

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
    fn last_host_is_kept() {
        let mut hosts = HostText::default();
        for _ in 0..2 {
            assert_eq!(hosts.of(&[1, 2, 3, 4, 0, 0, 0, 5]), "1.2.3.4:5");
            assert_eq!(hosts.of(&V6), "[2001:db8::2]:10911");
        }
    }
}
