//! Messages of magic 0 and 1, and message sets inside of a compressed one. Source: `LegacyRecord`,
//! `AbstractLegacyRecordBatch`.
//!
//! A wrapper's value is a compressed message set. Offsets inside are absolute in magic 0 and relative in magic 1, where the
//! wrapper has the offset of the last one.

use super::codec::{Codec, Decoder};
use super::header::{Header, LEAST_SIZE, LOG_OVERHEAD, TimestampType};
use super::record::Span;
use crate::kafka::finding::{Flaw, Kind};

/// A message with the offset and size before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    offset: i64,
    /// From the checksum on.
    bytes: &'a [u8],
    magic: i8,
    timestamp: i64,
    /// Lengths, below 0 for null, and bytes.
    key: (i32, &'a [u8]),
    value: (i32, &'a [u8]),
}

fn flaw(found: impl std::fmt::Display) -> Flaw {
    Flaw::new(Kind::Records, "messages of magic 0 or 1", found)
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(head)
}

/// Bytes behind their length, and what follows them. A negative length, which says null, has none.
fn field<'a>(bytes: &mut &'a [u8]) -> Option<(i32, &'a [u8])> {
    let len = i32::from_be_bytes(*take(bytes)?);
    let (field, rest) = bytes.split_at_checked(usize::try_from(len).unwrap_or(0))?;
    *bytes = rest;
    Some((len.max(-1), field))
}

impl<'a> Message<'a> {
    /// The first message of `set`, and its size. `Ok(None)` where the set ends, perhaps inside of a message.
    fn first(set: &'a [u8]) -> Result<Option<(Self, usize)>, Flaw> {
        let mut rest = set;
        let (Some(offset), Some(size)) = (take(&mut rest), take(&mut rest)) else { return Ok(None) };
        let size = i32::from_be_bytes(*size);
        let Some(len) = usize::try_from(size).ok().filter(|_| size >= LEAST_SIZE) else {
            return Err(flaw(format_args!("a message of {size} bytes")));
        };
        let Some(bytes) = rest.get(..len) else { return Ok(None) };
        let message = Self::parse(i64::from_be_bytes(*offset), bytes);
        let message = message.ok_or_else(|| flaw("a message whose lengths do not fit into it"))?;
        Ok(Some((message, LOG_OVERHEAD + len)))
    }

    fn parse(offset: i64, bytes: &'a [u8]) -> Option<Self> {
        let mut rest = bytes;
        take::<4>(&mut rest)?;
        let [magic] = *take(&mut rest)?;
        let magic = i8::from_be_bytes([magic]);
        take::<1>(&mut rest)?;
        let timestamp = if magic == 0 { -1 } else { i64::from_be_bytes(*take(&mut rest)?) };
        let key = field(&mut rest)?;
        let value = field(&mut rest)?;
        Some(Self { offset, bytes, magic, timestamp, key, value })
    }

    fn attributes(&self) -> u8 {
        self.bytes.get(5).copied().unwrap_or(0)
    }

    /// The record, where the message begins at byte `at`.
    fn span(&self, at: usize, offset: i64, timestamp: i64) -> Option<Span> {
        let stored = self.bytes.first_chunk().copied().map_or(0, u32::from_be_bytes);
        let is_valid = crc32fast::hash(self.bytes.get(4..).unwrap_or_default()) == stored;
        let key_at = at + LOG_OVERHEAD + if self.magic == 0 { 10 } else { 18 };
        let value_at = key_at + self.key.1.len() + 4;
        Some(Span {
            offset,
            timestamp,
            key: (u32::try_from(key_at).ok()?, self.key.0),
            value: (u32::try_from(value_at).ok()?, self.value.0),
            crc: stored,
            is_valid,
            ..Span::default()
        })
    }
}

/// The messages of a batch of magic 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Set {
    /// What is added to the offsets inside; `None` where they are absolute, or there is no wrapper.
    base: Option<i64>,
    wrapped: bool,
}

impl Set {
    /// Looks into a batch; a wrapper is decompressed into `decoder`.
    pub(crate) fn open(header: &Header, batch: &[u8], decoder: &mut Decoder) -> Result<Self, Flaw> {
        if header.magic < 0 {
            return Err(Flaw::new(Kind::BatchMagic, "a magic of 0, 1 or 2", header.magic));
        }
        let codec = header.codec()?;
        if codec == Codec::None {
            return Ok(Self::default());
        }
        if codec == Codec::Zstd {
            return Err(flaw("zstd, which they do not know"));
        }
        let wrapper = Message::first(batch)?.filter(|(message, _)| message.value.0 >= 0);
        let value =
            wrapper.map(|(message, _)| message.value.1).ok_or_else(|| flaw("a compressed set without a value"))?;
        decoder.decode(codec, value, header.magic)?;
        let mut set = decoder.decoded();
        let mut last = None;
        while let Some((message, size)) = Message::first(set)? {
            if message.attributes() & 7 != 0 {
                return Err(flaw("a compressed message inside of a compressed set"));
            }
            last = Some(message.offset);
            set = set.get(size..).unwrap_or_default();
        }
        let last = last.ok_or_else(|| flaw("a compressed set without a message"))?;
        let base = match (header.magic, header.last_offset) {
            (0, _) => None,
            // COMPAT(kafka AbstractLegacyRecordBatch): some clients sent wrappers of offset 0.
            (_, 0) => Some(0),
            (_, wrapper) if wrapper < last => {
                return Err(flaw(format_args!("a wrapper of offset {wrapper}, with {last} inside")));
            }
            (_, wrapper) => wrapper.checked_sub(last),
        };
        Ok(Self { base, wrapped: true })
    }

    /// True when the messages are in the decoder, not in the batch.
    pub(crate) fn is_wrapped(&self) -> bool {
        self.wrapped
    }

    /// The record at byte `at`, and its size; `None` at the end.
    pub(crate) fn next(&self, header: &Header, bytes: &[u8], at: usize) -> Result<Option<(Span, usize)>, Flaw> {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some((message, size)) = Message::first(rest)? else {
            return if self.wrapped || rest.is_empty() { Ok(None) } else { Err(flaw("less than one")) };
        };
        let offset = self.base.map_or(message.offset, |base| base.wrapping_add(message.offset));
        let timestamp = match (message.magic, header.timestamp_type()) {
            (0, _) => -1,
            (_, TimestampType::LogAppend) if self.wrapped => header.max_timestamp,
            _ => message.timestamp,
        };
        let span = message.span(at, offset, timestamp).ok_or_else(|| flaw("a message too far behind"))?;
        Ok(Some((span, size)))
    }
}
