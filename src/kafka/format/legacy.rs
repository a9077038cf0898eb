//! Messages of magic 0 and 1, and message sets inside a compressed message. Source: `LegacyRecord`,
//! `AbstractLegacyRecordBatch`.
//!
//! The value of a compressed message, the wrapper, is a message set. Offsets inside are absolute in magic 0. In magic 1 they
//! are relative, and the wrapper has the offset of the last message.

use super::codec::{Codec, Decoder};
use super::header::{Header, LEAST_SIZE, LOG_OVERHEAD, TimestampType};
use super::record::Span;
use crate::report::{Flaw, Kind};

/// A message with its offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    offset: i64,
    /// The bytes from the checksum on.
    bytes: &'a [u8],
    magic: i8,
    timestamp: i64,
    /// Length and bytes; the length of null is negative.
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

/// Takes a field: its length, and its bytes. A negative length: null.
fn field<'a>(bytes: &mut &'a [u8]) -> Option<(i32, &'a [u8])> {
    let len = i32::from_be_bytes(*take(bytes)?);
    let (field, rest) = bytes.split_at_checked(usize::try_from(len).unwrap_or(0))?;
    *bytes = rest;
    Some((len.max(-1), field))
}

impl<'a> Message<'a> {
    /// Parses the first message of `set`, and returns its size as well. `Ok(None)` at the end of the set, which may be inside a
    /// message.
    fn first(set: &'a [u8]) -> Result<Option<(Self, usize)>, Flaw> {
        let mut rest = set;
        let (Some(offset), Some(size)) = (take(&mut rest), take(&mut rest)) else { return Ok(None) };
        let size = i32::from_be_bytes(*size);
        let Some(len) = usize::try_from(size).ok().filter(|_| size >= LEAST_SIZE) else {
            return Err(flaw(format_args!("a message of {size} bytes")));
        };
        let Some(bytes) = rest.get(..len) else { return Ok(None) };
        let message = Self::parse(i64::from_be_bytes(*offset), bytes);
        let message = message.ok_or_else(|| flaw("a message with a key or value longer than itself"))?;
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

    /// Returns the record of a message that begins at byte `at`.
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
    /// The number to add to offsets; `None` if they are absolute, or if there is no wrapper.
    base: Option<i64>,
    wrapped: bool,
}

impl Set {
    /// Opens a batch. A wrapper is decompressed into `decoder`.
    pub(crate) fn open(header: &Header, batch: &[u8], decoder: &mut Decoder) -> Result<Self, Flaw> {
        if header.magic < 0 {
            return Err(Flaw::new(Kind::BatchMagic, "a magic of 0, 1 or 2", header.magic));
        }
        let codec = header.codec()?;
        if codec == Codec::None {
            return Ok(Self::default());
        }
        if codec == Codec::Zstd {
            return Err(flaw("codec zstd, which they cannot have"));
        }
        let wrapper = Message::first(batch)?.filter(|(message, _)| message.value.0 >= 0);
        let value =
            wrapper.map(|(message, _)| message.value.1).ok_or_else(|| flaw("a compressed message without a value"))?;
        decoder.decode(codec, value, header.magic)?;
        let mut set = decoder.decoded();
        let mut last = None;
        while let Some((message, size)) = Message::first(set)? {
            if message.attributes() & 7 != 0 {
                return Err(flaw("a compressed message inside a compressed message set"));
            }
            last = Some(message.offset);
            set = set.get(size..).unwrap_or_default();
        }
        let last = last.ok_or_else(|| flaw("a compressed message set without messages"))?;
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

    /// True if the messages are in the decoder, not in the batch.
    pub(crate) fn is_wrapped(&self) -> bool {
        self.wrapped
    }

    /// Returns the record at byte `at` and its size; `None` at the end.
    pub(crate) fn next(&self, header: &Header, bytes: &[u8], at: usize) -> Result<Option<(Span, usize)>, Flaw> {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some((message, size)) = Message::first(rest)? else {
            return if self.wrapped || rest.is_empty() { Ok(None) } else { Err(flaw("part of a message")) };
        };
        let offset = self.base.map_or(message.offset, |base| base.wrapping_add(message.offset));
        let timestamp = match (message.magic, header.timestamp_type()) {
            (0, _) => -1,
            (_, TimestampType::LogAppend) if self.wrapped => header.max_timestamp,
            _ => message.timestamp,
        };
        let span = message.span(at, offset, timestamp).ok_or_else(|| flaw("a message at more than 4 GiB"))?;
        Ok(Some((span, size)))
    }
}
