//! One frame of the commit log: its layout, and the check that decides whether a broker would take it.
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
//! All integers are big-endian. A BLANK frame has only the first two fields; what follows it to the end of the file is
//! anything. Space that was never written is zero. Source of the rules: upstream `CommitLog#checkMessageAndReturnSize`
//! and `MessageExtEncoder#encode`.

use super::buffers::Piece;
use super::properties;

/// First four bytes after the size of a message with a one-byte topic length.
pub const MAGIC_V1: u32 = 0xdaa3_20a7;
/// The same with a two-byte topic length, written since 5.1.0 for topics longer than 127 bytes.
pub const MAGIC_V2: u32 = 0xdaa3_20ab;
/// Magic of the frame that fills the end of a file.
pub const MAGIC_BLANK: u32 = 0xcbd4_3194;

/// The body is compressed.
pub const COMPRESSED: i32 = 0x1;
/// The two bits of the transaction type.
pub const TRANSACTION_TYPE: i32 = 0xc;
/// The transaction type of a message that was committed.
pub const TRANSACTION_COMMIT: i32 = 0x8;
/// The transaction type of a message that was rolled back.
pub const TRANSACTION_ROLLBACK: i32 = 0xc;
/// The body is a batch of messages that share the frame (5.x).
pub const INNER_BATCH: i32 = 0x80;
/// The born host is an IPv6 address.
const BORN_HOST_V6: i32 = 0x10;
/// The store host is an IPv6 address.
const STORE_HOST_V6: i32 = 0x20;

const BODY_CRC: usize = 8;
const QUEUE_ID: usize = 12;
const FLAG: usize = 16;
const QUEUE_OFFSET: usize = 20;
const PHY_OFFSET: usize = 28;
/// Where the flag stands that says how long the hosts are.
pub(super) const SYS_FLAG: usize = 36;
const BORN_TIMESTAMP: usize = 40;
const BORN_HOST: usize = 48;
/// Bytes of the fixed fields before the body length, without the hosts.
pub(super) const BEFORE_BODY_LENGTH: usize = 68;

/// The topic whose `DELAY` property the broker parses while it checks a frame.
const SCHEDULE_TOPIC: &[u8] = b"SCHEDULE_TOPIC_XXXX";

/// Which frames are messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// Version 1 only, as brokers before 5.1.0: a frame of version 2 ends the log.
    V1,
    /// Both.
    V1AndV2,
}

/// Why a frame is refused. A broker ends its walk of the log at such a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Nothing was written here: the regular end of the log.
    Unwritten,
    /// No magic of a message or of a BLANK frame.
    Magic(u32),
    /// The file ends within the frame.
    CutOff,
    /// The lengths of the fields do not add up to the size.
    Size {
        /// The size that the frame states.
        stated: i32,
    },
    /// The body is not the one the checksum was made of.
    BodyCrc {
        /// The checksum in the frame.
        stored: u32,
        /// The checksum of the body.
        computed: u32,
    },
    /// A delayed message whose level is no number.
    DelayLevel,
}

/// What stands at a place of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A message.
    Message(Layout),
    /// The rest of the file is filling.
    Blank,
    /// The walk of the log ends here.
    Refused(Refusal),
}

/// So many bytes are needed to tell what stands there; the file has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs(pub usize);

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
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn i16_at(bytes: &[u8], at: usize) -> Option<i16> {
    array(bytes, at).map(i16::from_be_bytes)
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    array(bytes, at).map(i32::from_be_bytes)
}

/// Length of a host: address and port.
fn host_len(sys_flag: i32, v6: i32) -> u8 {
    if sys_flag & v6 == 0 { 8 } else { 20 }
}

/// Lengths of the born host and of the store host.
pub(super) fn host_lens(sys_flag: i32) -> (u8, u8) {
    (host_len(sys_flag, BORN_HOST_V6), host_len(sys_flag, STORE_HOST_V6))
}

/// The size that the first bytes of a frame state; `None` below 0.
pub(super) fn stated_size(head: &[u8]) -> Option<u64> {
    u64::try_from(i32_at(head, 0)?).ok()
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

/// Bytes of a frame up to and with the store timestamp, however long the hosts are.
pub(super) const HEAD: usize = BORN_HOST + 20 + 8;

/// The offset that the message states whose first bytes these are.
pub(super) fn stated_phy_offset_of_head(head: &[u8]) -> Option<i64> {
    array(head, PHY_OFFSET).map(i64::from_be_bytes)
}

/// The store timestamp of the message whose first bytes these are; `None` where they are no message's.
pub(super) fn store_timestamp_of_head(head: &[u8], versions: Versions) -> Option<i64> {
    let magic = array(head, 4).map(u32::from_be_bytes)?;
    if magic != MAGIC_V1 && (magic != MAGIC_V2 || versions == Versions::V1) {
        return None;
    }
    let (born_host, _) = host_lens(i32_at(head, SYS_FLAG)?);
    array(head, BORN_HOST + usize::from(born_host)).map(i64::from_be_bytes)
}

/// The checksum of a body as the broker stores it: CRC-32 without its highest bit.
pub fn body_crc(body: &[u8]) -> u32 {
    crc32fast::hash(body) & 0x7fff_ffff
}

/// Checks the frame that begins `bytes`, as a broker does when it walks the log.
///
/// `available` is the number of bytes from here to the end of the file; `bytes` may hold fewer.
///
/// # Errors
/// The number of bytes without which there is no telling; never more than `available`.
pub fn check(bytes: &[u8], available: u64, versions: Versions) -> Result<Found, Needs> {
    check_with(bytes, available, versions, true)
}

/// As [`check`], with a look at the body's checksum or without.
///
/// # Errors
/// As [`check`].
#[inline]
pub fn check_with(bytes: &[u8], available: u64, versions: Versions, crc: bool) -> Result<Found, Needs> {
    if available < 8 {
        return Ok(Found::Refused(Refusal::CutOff));
    }
    let (Some(total), Some(magic)) = (i32_at(bytes, 0), array(bytes, 4).map(u32::from_be_bytes)) else {
        return Err(Needs(8));
    };
    match magic {
        MAGIC_V1 => {}
        MAGIC_V2 if versions == Versions::V1AndV2 => {}
        MAGIC_BLANK => return Ok(Found::Blank),
        0 => return Ok(Found::Refused(Refusal::Unwritten)),
        other => return Ok(Found::Refused(Refusal::Magic(other))),
    }
    let Ok(size) = u32::try_from(total) else {
        return Ok(Found::Refused(Refusal::Size { stated: total }));
    };
    if u64::from(size) > available {
        return Ok(Found::Refused(Refusal::CutOff));
    }
    let frame = bytes.get(..size as usize).ok_or(Needs(size as usize))?;
    let Some(layout) = layout(frame, size, magic) else {
        return Ok(Found::Refused(Refusal::Size { stated: total }));
    };
    Ok(refusal(&Frame { bytes: frame, layout }, crc).map_or(Found::Message(layout), Found::Refused))
}

/// The lengths of the fields, if they fill `frame` exactly.
#[inline]
fn layout(frame: &[u8], total: u32, magic: u32) -> Option<Layout> {
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
    (end == frame.len()).then_some(Layout { total, born_host, store_host, topic_length, topic, properties, body })
}

/// What a broker holds against a frame whose lengths are right.
#[inline]
fn refusal(frame: &Frame<'_>, crc: bool) -> Option<Refusal> {
    let (stored, body) = (frame.body_crc().cast_unsigned(), frame.stored_body());
    // The checksum of an empty body is never looked at.
    if crc && !body.is_empty() {
        let computed = body_crc(body);
        if stored != computed {
            return Some(Refusal::BodyCrc { stored, computed });
        }
    }
    if frame.topic() == SCHEDULE_TOPIC && !has_level(frame) {
        return Some(Refusal::DelayLevel);
    }
    None
}

/// True unless the delay level is no number.
#[cold]
fn has_level(frame: &Frame<'_>) -> bool {
    let text = crate::java_text::decode_utf8(frame.properties());
    let level = properties::parse(&text).into_iter().rfind(|(name, _)| *name == "DELAY");
    level.is_none_or(|(_, level)| level.parse::<i32>().is_ok())
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
    pub fn new(bytes: &'a [u8], layout: Layout) -> Self {
        Self { bytes: if bytes.len() < layout.total as usize { &[] } else { bytes }, layout }
    }

    // `check` made sure that every field is inside; the fallbacks below never come into play.

    fn slice(&self, at: usize, len: usize) -> &'a [u8] {
        self.bytes.get(at..).and_then(|b| b.get(..len)).unwrap_or_default()
    }

    fn i32(&self, at: usize) -> i32 {
        i32_at(self.bytes, at).unwrap_or_default()
    }

    fn i64(&self, at: usize) -> i64 {
        array(self.bytes, at).map_or(0, i64::from_be_bytes)
    }

    fn store_host_at(&self) -> usize {
        BORN_HOST + usize::from(self.layout.born_host) + 8
    }

    fn after_hosts(&self) -> usize {
        self.store_host_at() + usize::from(self.layout.store_host)
    }

    /// So many bytes from here on, and what stands behind them.
    fn piece(&self, at: usize, len: usize) -> Piece<'a> {
        Piece { from: self.bytes.get(at..).unwrap_or_default(), len }
    }

    /// Where in the frame the topic begins.
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
    pub fn stored_body(&self) -> &'a [u8] {
        self.slice(self.after_hosts() + 16, self.layout.body as usize)
    }

    /// The topic's bytes.
    pub fn topic(&self) -> &'a [u8] {
        self.topic_piece().bytes()
    }

    /// The same.
    pub(super) fn topic_piece(&self) -> Piece<'a> {
        self.piece(self.topic_at(), usize::from(self.layout.topic))
    }

    /// The bytes of all properties.
    pub fn properties(&self) -> &'a [u8] {
        self.properties_piece().bytes()
    }

    /// The same.
    pub(super) fn properties_piece(&self) -> Piece<'a> {
        let begin = self.topic_at() + usize::from(self.layout.topic) + 2;
        self.piece(begin, usize::from(self.layout.properties))
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
