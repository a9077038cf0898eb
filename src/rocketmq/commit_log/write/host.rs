//! A host as a frame holds it: address and port.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::error::{Error, Result};

/// Bytes of an IPv6 address and a port.
const LONGEST: usize = 20;
/// Bytes of an IPv4 address and a port.
const SHORTEST: usize = 8;

/// 4 or 16 bytes of address and 4 of port, big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Host {
    /// Reads `ip:port` or `[ipv6]:port`, the text that [`super::super::text::write_host`] writes.
    ///
    /// # Errors
    /// `InvalidArgument` for anything else; names are not looked up.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || Error::InvalidArgument(format!("host {text:?}: expected ip:port or [ipv6]:port"));
        let (ip, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port: i32 = port.parse().map_err(|_| wrong())?;
        let v6 = ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']'));
        let (bytes, len) = match v6 {
            Some(v6) => (joined(&v6.parse::<Ipv6Addr>().map_err(|_| wrong())?.octets(), port), LONGEST),
            None => (joined(&ip.parse::<Ipv4Addr>().map_err(|_| wrong())?.octets(), port), SHORTEST),
        };
        Ok(Self { bytes, len })
    }

    /// Address and port.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// True for an IPv6 address.
    pub fn is_v6(&self) -> bool {
        self.len == LONGEST
    }
}

fn joined(ip: &[u8], port: i32) -> [u8; LONGEST] {
    let mut bytes = ip.iter().copied().chain(port.to_be_bytes());
    std::array::from_fn(|_| bytes.next().unwrap_or_default())
}
