//! One record of a batch of magic 2, after decompression. Source: `DefaultRecord#readFrom`.
//!
//! ```text
//! length varint | attributes i8 | timestampDelta varlong | offsetDelta varint | key | value | headerCount varint | headers
//! key, value: length varint (negative: null), bytes        header: key (never null), value
//! ```

use super::header::{Header, TimestampType};
use super::varint::Cursor;

/// The smallest record: seven numbers of one byte.
pub(super) const LEAST_RECORD: usize = 7;

/// A record as it lies in its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) offset: i64,
    pub(super) timestamp: i64,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    pub(super) headers: Headers<'a>,
    /// Slots after the first of the batch.
    pub(super) delta: i32,
    /// Magic 0 and 1: the stored checksum, and whether it is that of the bytes.
    pub(super) crc: Option<(u32, bool)>,
}

/// The headers of a record, of which only the number was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Headers<'a> {
    pub(super) count: usize,
    pub(super) bytes: &'a [u8],
}

impl<'a> Headers<'a> {
    /// Gives key and value of each to `take`; `None` when the bytes are no headers.
    #[inline]
    pub(super) fn each(&self, mut take: impl FnMut(&'a [u8], Option<&'a [u8]>)) -> Option<()> {
        let mut cursor = Cursor::new(self.bytes);
        for _ in 0..self.count {
            let key = cursor.nullable()??;
            let value = cursor.nullable()?;
            take(key, value);
        }
        cursor.rest.is_empty().then_some(())
    }
}

/// Which parts of a record are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// Offset and timestamp: the rest is stepped over by the record's length.
    Times,
    /// All of it.
    All,
}

/// Reads the next record; `None` when the bytes are none.
#[inline]
pub(super) fn parse<'a>(cursor: &mut Cursor<'a>, header: &Header, wants: Wants) -> Option<Record<'a>> {
    let len = usize::try_from(cursor.varint()?).ok()?;
    let mut body = Cursor::new(cursor.take(len)?);
    body.byte()?;
    let timestamp_delta = body.varlong()?;
    let delta = body.varint()?;
    let mut record = Record {
        offset: header.base_offset.wrapping_add(i64::from(delta)),
        timestamp: match header.timestamp_type() {
            TimestampType::LogAppend => header.max_timestamp,
            _ => header.base_timestamp.wrapping_add(timestamp_delta),
        },
        key: None,
        value: None,
        headers: Headers::default(),
        delta,
        crc: None,
    };
    if wants == Wants::All {
        record.key = body.nullable()?;
        record.value = body.nullable()?;
        let count = usize::try_from(body.varint()?).ok()?;
        // A header takes two bytes at least.
        if count > body.rest.len() || (count == 0 && !body.rest.is_empty()) {
            return None;
        }
        record.headers = Headers { count, bytes: body.rest };
    }
    Some(record)
}
