//! The fields of a frame that was found good: where each begins, and what it holds.

use super::layout::{
    BEFORE_BODY_LENGTH, BODY_CRC, BORN_HOST, BORN_TIMESTAMP, FLAG, MAGIC_V2, PHY_OFFSET, QUEUE_ID, QUEUE_OFFSET,
    SYS_FLAG, array, host_lens, i16_at, i32_at,
};
use crate::arrow::byte_column::Piece;

/// The lengths of a frame that was found good.
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
    /// Bytes of the whole frame.
    pub fn total(self) -> u32 {
        self.total
    }

    /// The lengths of the fields, if they fill `frame` exactly.
    #[inline]
    pub(super) fn of(frame: &[u8], total: u32, magic: u32) -> Option<Self> {
        let (born_host, store_host) = host_lens(i32_at(frame, SYS_FLAG)?);
        let body_length_at = BEFORE_BODY_LENGTH + usize::from(born_host) + usize::from(store_host);
        // The broker takes a negative body or properties length for 0, and fails on a negative topic length.
        let body = u32::try_from(i32_at(frame, body_length_at)?).unwrap_or(0);
        let topic_length_at = (body_length_at + 4).checked_add(body as usize)?;
        let (topic, topic_length) = if magic == MAGIC_V2 {
            (i16_at(frame, topic_length_at)?, 2u8)
        } else {
            (i16::from(array::<1>(frame, topic_length_at).map(i8::from_be_bytes)?), 1)
        };
        let topic = u16::try_from(topic).ok()?;
        let properties_length_at = topic_length_at + usize::from(topic_length) + usize::from(topic);
        let properties = u16::try_from(i16_at(frame, properties_length_at)?).unwrap_or(0);
        let end = properties_length_at + 2 + usize::from(properties);
        (end == frame.len()).then_some(Self { total, born_host, store_host, topic_length, topic, properties, body })
    }
}

/// The checksum of a whole frame, as its property `__CRC32#` holds it and as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PropCrc {
    /// In the property; `None` where that is no number.
    pub stored: Option<u32>,
    /// Of the frame's bytes.
    pub computed: u32,
}

/// The property that ends a frame whose broker adds a checksum (5.x, enabledAppendPropCRC), before its ten digits.
const PROP_CRC_NAME: &[u8] = b"__CRC32#\x01";
/// Bytes of that property: name, digits, separator.
const PROP_CRC_LEN: usize = PROP_CRC_NAME.len() + 11;

/// The checksum of a body as the broker stores it: CRC-32 without its highest bit.
#[inline]
pub fn body_crc(body: &[u8]) -> u32 {
    crc32fast::hash(body) & 0x7fff_ffff
}

/// A message frame in memory.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// May go on behind the frame.
    bytes: &'a [u8],
    layout: Layout,
}

impl<'a> Frame<'a> {
    /// The frame that `check` found at the beginning of `bytes`; nothing when `bytes` is another frame.
    #[inline]
    pub fn new(bytes: &'a [u8], layout: Layout) -> Self {
        Self { bytes: if bytes.len() < layout.total as usize { &[] } else { bytes }, layout }
    }

    /// The bytes of the frame alone, and where its fields are.
    pub(in crate::rocketmq) fn into_parts(self) -> (&'a [u8], Layout) {
        (self.slice(0, self.layout.total as usize), self.layout)
    }

    // `check` made sure that every field is inside; the fallbacks below never come into play.

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

    /// So many bytes from here on, and what stands behind them.
    #[inline]
    fn piece(&self, at: usize, len: usize) -> Piece<'a> {
        Piece { from: self.bytes.get(at..).unwrap_or_default(), len }
    }

    /// Where in the frame the topic begins.
    #[inline]
    fn topic_at(&self) -> usize {
        self.after_hosts() + 16 + self.layout.body as usize + usize::from(self.layout.topic_length)
    }

    /// Bytes of the whole frame.
    pub fn store_size(&self) -> i32 {
        self.layout.total.cast_signed()
    }

    /// Magic: version 1 or 2.
    pub fn magic(&self) -> u32 {
        self.i32(4).cast_unsigned()
    }

    /// Checksum of the stored body.
    #[inline]
    pub fn body_crc(&self) -> i32 {
        self.i32(BODY_CRC)
    }

    /// Queue of the topic.
    pub fn queue_id(&self) -> i32 {
        self.i32(QUEUE_ID)
    }

    /// The application's flag.
    pub fn flag(&self) -> i32 {
        self.i32(FLAG)
    }

    /// Index of the message in its queue.
    pub fn queue_offset(&self) -> i64 {
        self.i64(QUEUE_OFFSET)
    }

    /// The offset in the log that the frame itself states. A broker never compares it with the true one.
    pub fn stated_phy_offset(&self) -> i64 {
        self.i64(PHY_OFFSET)
    }

    /// Bits for compression, transactions, hosts and batches.
    pub fn sys_flag(&self) -> i32 {
        self.i32(SYS_FLAG)
    }

    /// The producer's time, ms since the epoch.
    pub fn born_timestamp(&self) -> i64 {
        self.i64(BORN_TIMESTAMP)
    }

    /// The producer: 4 or 16 bytes of address, 4 of port.
    pub fn born_host(&self) -> &'a [u8] {
        self.slice(BORN_HOST, usize::from(self.layout.born_host))
    }

    /// The broker's time, ms since the epoch.
    pub fn store_timestamp(&self) -> i64 {
        self.i64(self.store_host_at() - 8)
    }

    /// The broker: 4 or 16 bytes of address, 4 of port.
    pub fn store_host(&self) -> &'a [u8] {
        self.slice(self.store_host_at(), usize::from(self.layout.store_host))
    }

    /// The checksum of the whole frame, where a broker of 5.x added one at its end (upstream
    /// `MessageDecoder#createCrc32`): decimal digits, the lowest first.
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

    /// How often a consumer gave it back.
    pub fn reconsume_times(&self) -> i32 {
        self.i32(self.after_hosts())
    }

    /// Offset of the half message that a transaction began with.
    pub fn prepared_transaction_offset(&self) -> i64 {
        self.i64(self.after_hosts() + 4)
    }

    /// The body as it is stored, perhaps compressed.
    #[inline]
    pub fn stored_body(&self) -> &'a [u8] {
        self.slice(self.after_hosts() + 16, self.layout.body as usize)
    }

    /// The topic's bytes.
    #[inline]
    pub fn topic(&self) -> &'a [u8] {
        self.topic_piece().bytes()
    }

    /// The same.
    #[inline]
    pub(crate) fn topic_piece(&self) -> Piece<'a> {
        self.piece(self.topic_at(), usize::from(self.layout.topic))
    }

    /// The bytes of all properties.
    pub fn properties(&self) -> &'a [u8] {
        self.properties_piece().bytes()
    }

    /// The same.
    pub(crate) fn properties_piece(&self) -> Piece<'a> {
        let begin = self.topic_at() + usize::from(self.layout.topic) + 2;
        self.piece(begin, usize::from(self.layout.properties))
    }
}
