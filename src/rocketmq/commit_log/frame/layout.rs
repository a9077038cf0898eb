//! The layout of a frame, and the fields that can be read from its first bytes.
//!
//! ```text
//!  0 total size i32      20 queue offset i64     40 born timestamp i64
//!  4 magic i32           28 phy offset i64       48 born host      B = 8 or 20: address, port i32
//!  8 body crc i32        36 sys flag i32         48+B store timestamp i64
//! 12 queue id i32                                56+B store host   S = 8 or 20: address, port i32
//! 16 flag i32
//!
//! 56+B+S reconsume times i32
//! 60+B+S prepared transaction offset i64
//! 68+B+S body length i32, body
//!        topic length i8 (version 1) or i16 (version 2), topic
//!        properties length i16, properties
//! ```
//!
//! All integers are big-endian. A BLANK frame has only the first two fields; the rest of the file is undefined.
//! Unwritten space is zero. Source: upstream `MessageExtEncoder#encode`.

use std::io;

/// Magic of a message with a one-byte topic length (version 1).
pub const MAGIC_V1: u32 = 0xdaa3_20a7;
/// Magic of a message with a two-byte topic length (version 2), written since 5.1.0 for topics longer than 127 bytes.
pub const MAGIC_V2: u32 = 0xdaa3_20ab;
/// Magic of the frame that fills the end of a file.
pub const MAGIC_BLANK: u32 = 0xcbd4_3194;

/// Length of a BLANK frame's fields. A file always has space for them after its last message.
pub const BLANK_LEN: u64 = 8;

/// The body is compressed.
pub const COMPRESSED: i32 = 0x1;
/// The bits of the compression type (4.9.4 and later).
pub const COMPRESSION_TYPE: i32 = 0x700;
/// The two bits of the transaction type.
pub const TRANSACTION_TYPE: i32 = 0xc;
/// The transaction type of a committed message.
pub const TRANSACTION_COMMIT: i32 = 0x8;
/// The transaction type of a rolled-back message.
pub const TRANSACTION_ROLLBACK: i32 = 0xc;
/// The body is a batch of messages that share the frame (5.x).
pub const INNER_BATCH: i32 = 0x80;
/// The body is to be taken apart into messages.
pub const NEED_UNWRAP: i32 = 0x40;
/// The born host is an IPv6 address.
pub(crate) const BORN_HOST_V6: i32 = 0x10;
/// The store host is an IPv6 address.
pub(crate) const STORE_HOST_V6: i32 = 0x20;

pub(super) const BODY_CRC: usize = 8;
pub(super) const QUEUE_ID: usize = 12;
pub(super) const FLAG: usize = 16;
pub(super) const QUEUE_OFFSET: usize = 20;
pub(super) const PHY_OFFSET: usize = 28;
/// Position of the system flag, which determines the lengths of the hosts.
pub(crate) const SYS_FLAG: usize = 36;
pub(super) const BORN_TIMESTAMP: usize = 40;
pub(super) const BORN_HOST: usize = 48;
/// Bytes of the fixed fields before the body length, without hosts.
pub(crate) const BEFORE_BODY_LENGTH: usize = 68;
/// Maximum bytes of a frame up to and including the store timestamp.
pub(crate) const HEAD: usize = BORN_HOST + 20 + 8;

/// Returns whether a message has a position in a queue. Half messages and rolled-back messages have none.
pub fn is_in_queue(sys_flag: i32) -> bool {
    matches!(sys_flag & TRANSACTION_TYPE, 0 | TRANSACTION_COMMIT)
}

/// The bytes of a frame, in memory or in a file.
pub(crate) trait FrameBytes {
    /// Returns the bytes from this position on; `None` if the frame ends before.
    ///
    /// # Errors
    /// An I/O error.
    fn bytes_at<const N: usize>(&self, at: usize) -> io::Result<Option<[u8; N]>>;
}

impl FrameBytes for [u8] {
    #[inline]
    fn bytes_at<const N: usize>(&self, at: usize) -> io::Result<Option<[u8; N]>> {
        Ok(array(self, at))
    }
}

#[inline]
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[inline]
pub(super) fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    array(bytes, at).map(i32::from_be_bytes)
}

/// Returns the length of a host: address and port.
#[inline]
fn host_len(sys_flag: i32, v6: i32) -> u8 {
    if sys_flag & v6 == 0 { 8 } else { 20 }
}

/// Returns the lengths of the born host and of the store host.
#[inline]
pub(crate) fn host_lens(sys_flag: i32) -> (u8, u8) {
    (host_len(sys_flag, BORN_HOST_V6), host_len(sys_flag, STORE_HOST_V6))
}

/// Returns the size that the first bytes of a frame state; `None` if it is negative.
pub(crate) fn stated_size(head: &[u8]) -> Option<u64> {
    u64::try_from(i32_at(head, 0)?).ok()
}

/// Returns the log offset that the first bytes of a message state.
pub(crate) fn stated_phy_offset_of_head(head: &[u8]) -> Option<i64> {
    array(head, PHY_OFFSET).map(i64::from_be_bytes)
}

/// Returns the store timestamp in the first bytes of a message; `None` if the bytes are no message.
pub(crate) fn store_timestamp_of_head(head: &[u8], versions: Versions) -> Option<i64> {
    let magic = array(head, 4).map(u32::from_be_bytes)?;
    if magic != MAGIC_V1 && (magic != MAGIC_V2 || versions == Versions::V1) {
        return None;
    }
    store_timestamp_without_magic(head)
}

/// Returns the store timestamp in the first bytes of a message whose magic may be missing.
pub(crate) fn store_timestamp_without_magic(head: &[u8]) -> Option<i64> {
    let (born_host, _) = host_lens(i32_at(head, SYS_FLAG)?);
    array(head, BORN_HOST + usize::from(born_host)).map(i64::from_be_bytes)
}

/// The frame versions that count as messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// Version 1 only, as for brokers before 5.1.0: a frame of version 2 ends the log.
    V1,
    /// Versions 1 and 2.
    V1AndV2,
}
