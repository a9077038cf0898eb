//! One record of a batch of magic 2, after decompression. Source: `DefaultRecord#readFrom`.
//!
//! ```text
//! length varint | attributes i8 | timestampDelta varlong | offsetDelta varint | key | value | headerCount varint | headers
//! key, value: length varint (negative: null), bytes        header: key (never null), value
//! ```

use super::header::{Header, TimestampType};
use super::varint::Cursor;
use crate::arrow::columns::Place;
use crate::report::{Flaw, Kind};

/// The smallest record: seven numbers of one byte.
pub(crate) const LEAST_RECORD: usize = 7;

/// A record: positions in the bytes of its batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) key: Place,
    pub(crate) value: Place,
    /// Position and length of all headers, which are not parsed yet.
    pub(crate) headers: (u32, u32),
    pub(crate) header_count: u32,
    /// Offsets after the first record of the batch.
    pub(crate) delta: i32,
    /// Magic 0 and 1: the stored checksum.
    pub(crate) crc: u32,
    /// Magic 0 and 1: the stored checksum is that of the bytes.
    pub(crate) is_valid: bool,
}

/// Step over the next field and return its place. The cursor's bytes end at position `end`.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as for `parse`")]
#[expect(clippy::cast_possible_truncation, reason = "a batch has at most 2^31 bytes, so places in it fit")]
fn place(cursor: &mut Cursor<'_>, end: usize) -> Option<Place> {
    let len = cursor.varint()?;
    let at = end - cursor.rest.len();
    if let Ok(len) = usize::try_from(len) {
        cursor.rest = cursor.rest.get(len..)?;
    }
    Some((at as u32, len))
}

/// Returns the bytes of a key or value; `None` for null.
#[inline]
pub(crate) fn field((at, len): Place, bytes: &[u8]) -> Option<&[u8]> {
    let len = usize::try_from(len).ok()?;
    bytes.get(at as usize..)?.get(..len)
}

impl Span {
    /// Length of key, value and headers in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        let len = |field: Place| usize::try_from(field.1).unwrap_or(0);
        len(self.key) + len(self.value) + self.headers.1 as usize
    }

    /// Calls `take` with the places of each header's key and value in `bytes`. `None` if the bytes are not headers.
    #[inline]
    pub(crate) fn each_header(&self, bytes: &[u8], mut take: impl FnMut(Place, Place)) -> Option<()> {
        let (at, len) = (self.headers.0 as usize, self.headers.1 as usize);
        let end = at + len;
        let mut cursor = Cursor::new(bytes.get(at..end)?);
        for _ in 0..self.header_count {
            let (key, value) = (place(&mut cursor, end)?, place(&mut cursor, end)?);
            if key.1 < 0 {
                return None;
            }
            take(key, value);
        }
        cursor.rest.is_empty().then_some(())
    }
}

/// The headers of a record do not fit its length and count.
pub(crate) fn unreadable_headers() -> Flaw {
    Flaw::new(Kind::Records, "headers of a record", "bytes that are not headers")
}

/// The parts of a record that a reader needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// Offset and timestamp: the rest is skipped by the record's length.
    Times,
    /// All parts.
    All,
}

/// Parses the next record of records of `size` bytes; `None` if the bytes are not a record.
#[inline(always)]
#[expect(clippy::inline_always, reason = "otherwise the span is copied through memory field by field")]
#[expect(clippy::cast_possible_truncation, reason = "a batch has at most 2^31 bytes, so places in it fit")]
pub(crate) fn parse(cursor: &mut Cursor<'_>, size: usize, header: &Header, wants: Wants) -> Option<Span> {
    let len = usize::try_from(cursor.varint()?).ok()?;
    let (record, rest) = cursor.rest.split_at_checked(len)?;
    cursor.rest = rest;
    let end = size - rest.len();
    let mut body = Cursor::new(record);
    body.byte()?;
    let timestamp_delta = body.varlong()?;
    let delta = body.varint()?;
    let mut span = Span {
        offset: header.base_offset.wrapping_add(i64::from(delta)),
        timestamp: if header.timestamp_type() == TimestampType::LogAppend {
            header.max_timestamp
        } else {
            header.base_timestamp.wrapping_add(timestamp_delta)
        },
        delta,
        ..Span::default()
    };
    if wants == Wants::All {
        span.key = place(&mut body, end)?;
        span.value = place(&mut body, end)?;
        let count = usize::try_from(body.varint()?).ok()?;
        // A header has at least two bytes.
        if count > body.rest.len() || (count == 0 && !body.rest.is_empty()) {
            return None;
        }
        span.headers = ((end - body.rest.len()) as u32, body.rest.len() as u32);
        span.header_count = count as u32;
    }
    Some(span)
}
