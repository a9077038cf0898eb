//! The fields of a valid frame: their positions and values.

use std::io;

use super::layout::{
    BEFORE_BODY_LENGTH, BODY_CRC, BORN_HOST, BORN_TIMESTAMP, FLAG, FrameBytes, MAGIC_V2, PHY_OFFSET, QUEUE_ID,
    QUEUE_OFFSET, SYS_FLAG, array, host_lens, i32_at,
};
use crate::arrow::columns::Piece;

/// The lengths of a valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    total: u32,
    born_host: u8,
    store_host: u8,
    topic_length: u8,
    topic: u16,
    properties: u16,
    body: u32,
}

impl Layout {
    /// Length of the frame in bytes.
    pub fn total(self) -> u32 {
        self.total
    }

    /// Returns the lengths of the fields, if they add up to `total`.
    ///
    /// # Errors
    /// An I/O error, if the frame is in a file.
    #[inline]
    pub(crate) fn of<B: FrameBytes + ?Sized>(frame: &B, total: u32, magic: u32) -> io::Result<Option<Self>> {
        macro_rules! field {
            ($at:expr) => {
                match frame.bytes_at($at)? {
                    Some(bytes) => bytes,
                    None => return Ok(None),
                }
            };
        }
        let (born_host, store_host) = host_lens(i32::from_be_bytes(field!(SYS_FLAG)));
        let body_length_at = BEFORE_BODY_LENGTH + usize::from(born_host) + usize::from(store_host);
        // The broker reads a negative body or properties length as 0. It fails on a negative topic length.
        let body = u32::try_from(i32::from_be_bytes(field!(body_length_at))).unwrap_or(0);
        let Some(topic_length_at) = (body_length_at + 4).checked_add(body as usize) else {
            return Ok(None);
        };
        let (topic, topic_length) = if magic == MAGIC_V2 {
            (i16::from_be_bytes(field!(topic_length_at)), 2u8)
        } else {
            (i16::from(i8::from_be_bytes(field!(topic_length_at))), 1)
        };
        let Ok(topic) = u16::try_from(topic) else {
            return Ok(None);
        };
        let properties_length_at = topic_length_at + usize::from(topic_length) + usize::from(topic);
        let properties = u16::try_from(i16::from_be_bytes(field!(properties_length_at))).unwrap_or(0);
        let end = properties_length_at + 2 + usize::from(properties);
        let layout = Self { total, born_host, store_host, topic_length, topic, properties, body };
        Ok((end == total as usize).then_some(layout))
    }
}

/// The checksum of a frame: stored in its property `__CRC32#`, and computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropCrc {
    /// The value of the property; `None` if it is not a number.
    pub stored: Option<u32>,
    /// The checksum of the frame's bytes.
    pub computed: u32,
}

/// The name of the checksum property at the end of a frame (5.x, enabledAppendPropCRC). Ten digits follow.
const PROP_CRC_NAME: &[u8] = b"__CRC32#\x01";
/// Length of that property: name, digits, separator.
const PROP_CRC_LEN: usize = PROP_CRC_NAME.len() + 11;

/// Returns the checksum of a body as the broker stores it: CRC-32 without its highest bit.
#[inline]
pub fn body_crc(body: &[u8]) -> u32 {
    crc32fast::hash(body) & 0x7fff_ffff
}

/// A message frame in memory.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// May be longer than the frame.
    bytes: &'a [u8],
    layout: Layout,
}

impl<'a> Frame<'a> {
    /// Returns the frame that `check` found at the beginning of `bytes`. If `bytes` is too short, the frame is empty.
    #[inline]
    pub fn new(bytes: &'a [u8], layout: Layout) -> Self {
        Self { bytes: if bytes.len() < layout.total as usize { &[] } else { bytes }, layout }
    }

    /// Returns the bytes of the frame, and the positions of its fields.
    pub(in crate::rocketmq) fn into_parts(self) -> (&'a [u8], Layout) {
        (self.slice(0, self.layout.total as usize), self.layout)
    }

    // `check` made sure that all fields are inside the frame, so the fallbacks below are never used.

    #[inline]
    fn slice(&self, at: usize, len: usize) -> &'a [u8] {
        self.bytes.get(at..).and_then(|b| b.get(..len)).unwrap_or_default()
    }

    #[inline]
    fn i32(&self, at: usize) -> i32 {
        i32_at(self.bytes, at).unwrap_or_default()
    }

    #[inline]
    fn i64(&self, at: usize) -> i64 {
        array(self.bytes, at).map_or(0, i64::from_be_bytes)
    }

    #[inline]
    fn store_host_at(&self) -> usize {
        BORN_HOST + usize::from(self.layout.born_host) + 8
    }

    #[inline]
    fn after_hosts(&self) -> usize {
        self.store_host_at() + usize::from(self.layout.store_host)
    }

    /// Returns this number of bytes from here, and the bytes after them.
    #[inline]
    fn piece(&self, at: usize, len: usize) -> Piece<'a> {
        Piece { from: self.bytes.get(at..).unwrap_or_default(), len }
    }

    /// Returns the position of the topic in the frame.
    #[inline]
    fn topic_at(&self) -> usize {
        self.after_hosts() + 16 + self.layout.body as usize + usize::from(self.layout.topic_length)
    }

    /// Returns the length of the frame in bytes, to be added to an offset.
    pub(crate) fn total(&self) -> u64 {
        u64::from(self.layout.total)
    }

    /// Returns the length of the frame in bytes.
    pub fn store_size(&self) -> i32 {
        self.layout.total.cast_signed()
    }

    /// Returns the magic: version 1 or 2.
    pub fn magic(&self) -> u32 {
        self.i32(4).cast_unsigned()
    }

    /// Returns the checksum of the stored body.
    #[inline]
    pub fn body_crc(&self) -> i32 {
        self.i32(BODY_CRC)
    }

    /// Returns the queue id.
    pub fn queue_id(&self) -> i32 {
        self.i32(QUEUE_ID)
    }

    /// Returns the application's flag.
    pub fn flag(&self) -> i32 {
        self.i32(FLAG)
    }

    /// Returns the index of the message in its queue.
    pub fn queue_offset(&self) -> i64 {
        self.i64(QUEUE_OFFSET)
    }

    /// Returns the log offset that the frame states. A broker never compares it with the real one.
    pub fn stated_phy_offset(&self) -> i64 {
        self.i64(PHY_OFFSET)
    }

    /// Returns the system flag: bits for compression, transactions, hosts and batches.
    pub fn sys_flag(&self) -> i32 {
        self.i32(SYS_FLAG)
    }

    /// Returns the producer's time in ms since the epoch.
    pub fn born_timestamp(&self) -> i64 {
        self.i64(BORN_TIMESTAMP)
    }

    /// Returns the producer's host: 4 or 16 bytes of address, 4 of port.
    pub fn born_host(&self) -> &'a [u8] {
        self.slice(BORN_HOST, usize::from(self.layout.born_host))
    }

    /// Returns the broker's time in ms since the epoch.
    pub fn store_timestamp(&self) -> i64 {
        self.i64(self.store_host_at() - 8)
    }

    /// Returns the broker's host: 4 or 16 bytes of address, 4 of port.
    pub fn store_host(&self) -> &'a [u8] {
        self.slice(self.store_host_at(), usize::from(self.layout.store_host))
    }

    /// Returns the checksum of the frame, if a 5.x broker appended one (upstream `MessageDecoder#createCrc32`).
    ///
    /// It is stored as decimal digits, the lowest first.
    pub fn prop_crc(&self) -> Option<PropCrc> {
        let (_, property) = self.properties().split_last_chunk::<PROP_CRC_LEN>()?;
        let [digits @ .., 2] = property.strip_prefix(PROP_CRC_NAME)? else {
            return None;
        };
        let value = |digits: &[u8]| {
            let digit = |byte: &u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
            digits.iter().rev().try_fold(0, |sum, byte| Some(sum * 10 + digit(byte)?))
        };
        let stored = value(digits).and_then(|value: u64| u32::try_from(value).ok());
        let covered = self.slice(0, (self.layout.total as usize).saturating_sub(PROP_CRC_LEN));
        Some(PropCrc { stored, computed: body_crc(covered) })
    }

    /// Returns how often consumers returned the message.
    pub fn reconsume_times(&self) -> i32 {
        self.i32(self.after_hosts())
    }

    /// Returns the offset of the transaction's half message.
    pub fn prepared_transaction_offset(&self) -> i64 {
        self.i64(self.after_hosts() + 4)
    }

    /// Returns the body as stored, which may be compressed.
    #[inline]
    pub fn stored_body(&self) -> &'a [u8] {
        self.slice(self.after_hosts() + 16, self.layout.body as usize)
    }

    /// Returns the bytes of the topic.
    #[inline]
    pub fn topic(&self) -> &'a [u8] {
        self.topic_piece().bytes()
    }

    /// Returns the topic as a piece.
    #[inline]
    pub(crate) fn topic_piece(&self) -> Piece<'a> {
        self.piece(self.topic_at(), usize::from(self.layout.topic))
    }

    /// Returns the bytes of all properties.
    pub fn properties(&self) -> &'a [u8] {
        self.properties_piece().bytes()
    }

    /// Returns the properties as a piece.
    pub(crate) fn properties_piece(&self) -> Piece<'a> {
        let begin = self.topic_at() + usize::from(self.layout.topic) + 2;
        self.piece(begin, usize::from(self.layout.properties))
    }
}
