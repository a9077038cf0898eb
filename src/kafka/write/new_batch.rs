//! A batch that is built here: records that are re-encoded, or that never were in a batch. Source: `MemoryRecordsBuilder`.

use std::path::Path;

use crate::error::{Error, Result};
use crate::io::i64_of;
use crate::kafka::format::codec::Codec;
use crate::kafka::format::encoder;
use crate::kafka::format::header::{HEADER_SIZE, Header, NO_TIMESTAMP};
use crate::kafka::format::record::{Span, field};
use crate::kafka::format::varint::{self, put};

/// Bits of the attributes.
pub(super) const LOG_APPEND_TIME: i16 = 8;
pub(super) const TRANSACTIONAL: i16 = 0x10;
pub(super) const CONTROL: i16 = 0x20;

/// Records that become a batch.
#[derive(Debug)]
pub(super) struct NewBatch {
    /// Room for the header, and the encoded records.
    bytes: Vec<u8>,
    base_timestamp: i64,
    facts: Facts,
}

/// Facts of the records of a batch, which a leader checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// The number of records, whose offsets are dense.
    pub(super) count: i32,
    /// The least and largest timestamp, of those that are not [`NO_TIMESTAMP`].
    pub(super) timestamps: Option<(i64, i64)>,
    /// A record has no key.
    pub(super) has_null_key: bool,
}

impl Facts {
    const NONE: Self = Self { count: 0, timestamps: None, has_null_key: false };

    pub(super) fn max_timestamp(&self) -> i64 {
        self.timestamps.map_or(NO_TIMESTAMP, |(_, max)| max.max(NO_TIMESTAMP))
    }
}

impl Default for NewBatch {
    fn default() -> Self {
        Self { bytes: vec![0; HEADER_SIZE], base_timestamp: 0, facts: Facts::NONE }
    }
}

impl NewBatch {
    pub(super) fn is_empty(&self) -> bool {
        self.facts.count == 0
    }

    /// The number of records.
    pub(super) fn count(&self) -> i32 {
        self.facts.count
    }

    /// Bytes of a batch of these records that is not compressed.
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a record; `headers` are encoded by [`put_header`]. Source: `DefaultRecord#writeTo`.
    pub(super) fn push(&mut self, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>, headers: (usize, &[u8])) {
        self.push_at(self.facts.count.into(), timestamp, key, value, headers);
    }

    /// Adds a record with its offset after the first one of the batch.
    pub(super) fn push_at(
        &mut self,
        offset_delta: i64,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: (usize, &[u8]),
    ) {
        let facts = &mut self.facts;
        if facts.count == 0 {
            self.base_timestamp = timestamp;
        }
        if timestamp != NO_TIMESTAMP {
            let (least, largest) = facts.timestamps.unwrap_or((timestamp, timestamp));
            facts.timestamps = Some((least.min(timestamp), largest.max(timestamp)));
        }
        facts.has_null_key |= key.is_none();
        facts.count += 1;
        let timestamp_delta = timestamp.wrapping_sub(self.base_timestamp);
        let numbers = varint::len(timestamp_delta) + varint::len(offset_delta) + varint::len(length(headers.0));
        // The attributes are one byte.
        let size = 1 + numbers + field_size(key) + field_size(value) + headers.1.len();
        let out = &mut self.bytes;
        out.reserve(varint::len(length(size)) + size);
        put(out, length(size));
        out.push(0);
        put(out, timestamp_delta);
        put(out, offset_delta);
        put_field(out, key);
        put_field(out, value);
        put(out, length(headers.0));
        out.extend_from_slice(headers.1);
    }

    /// Appends the batch to `out`, and empties this. Of `like`, the fields that records do not decide are taken: offset, epochs,
    /// producer, the timestamp type, and for the time of the append the largest timestamp. The offsets of the records are dense.
    ///
    /// # Errors
    /// `InvalidArgument` if the records are too long for the codec.
    pub(super) fn finish(
        &mut self,
        like: &Header,
        codec: Codec,
        level: Option<i32>,
        out: &mut Vec<u8>,
    ) -> Result<Facts> {
        let last_offset = like.base_offset + i64::from(self.count()) - 1;
        self.finish_up_to(&Header { last_offset, ..*like }, codec, level, out)
    }

    /// As [`Self::finish`], with the last offset of `like`.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub(super) fn finish_up_to(
        &mut self,
        like: &Header,
        codec: Codec,
        level: Option<i32>,
        out: &mut Vec<u8>,
    ) -> Result<Facts> {
        let (begin, facts) = (out.len(), std::mem::replace(&mut self.facts, Facts::NONE));
        if codec == Codec::None && out.is_empty() {
            // The buffers change places, so that the records are not copied again.
            std::mem::swap(&mut self.bytes, out);
        } else {
            let records = self.bytes.get(HEADER_SIZE..).unwrap_or_default();
            out.resize(begin + HEADER_SIZE, 0);
            encoder::encode(codec, level, records, out).map_err(|error| {
                let (size, codec) = (records.len(), codec.name());
                Error::InvalidArgument(format!("{size} bytes of records with codec {codec}: {error}"))
            })?;
        }
        self.bytes.clear();
        self.bytes.resize(HEADER_SIZE, 0);
        let is_append_time = like.attributes & LOG_APPEND_TIME != 0;
        let header = Header {
            magic: 2,
            attributes: like.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL) | codec as i16,
            base_timestamp: self.base_timestamp,
            max_timestamp: if is_append_time { like.max_timestamp } else { facts.max_timestamp() },
            count: Some(facts.count),
            ..*like
        };
        header.write(out.split_at_mut(begin).1);
        Ok(facts)
    }
}

/// Encodes a header of a record.
pub(super) fn put_header(out: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    put_field(out, Some(key));
    put_field(out, value);
}

/// Encodes the headers of a record again, and returns their number. Headers that cannot be read end there; the caller has checked
/// them.
pub(super) fn put_headers(out: &mut Vec<u8>, batch: &Header, record: &Span, bytes: &[u8]) -> usize {
    out.clear();
    if batch.is_legacy() {
        return 0;
    }
    _ = record.each_header(bytes, |key, value| {
        put_header(out, field(key, bytes).unwrap_or_default(), field(value, bytes));
    });
    record.header_count as usize
}

fn put_field(out: &mut Vec<u8>, field: Option<&[u8]>) {
    match field {
        None => put(out, -1),
        Some(bytes) => {
            put(out, length(bytes.len()));
            out.extend_from_slice(bytes);
        }
    }
}

fn field_size(field: Option<&[u8]>) -> usize {
    field.map_or(1, |bytes| varint::len(length(bytes.len())) + bytes.len())
}

fn length(length: usize) -> i64 {
    i64_of(length)
}

/// The header of a batch without producer, offset and epoch.
pub(super) fn plain_header() -> Header {
    Header {
        position: 0,
        size: 0,
        magic: 2,
        base_offset: 0,
        last_offset: 0,
        crc: 0,
        attributes: 0,
        base_timestamp: NO_TIMESTAMP,
        max_timestamp: NO_TIMESTAMP,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        count: Some(0),
        leader_epoch: -1,
    }
}

/// Returns the batches in bytes that are whole and valid, as they are in memory.
pub(super) fn headers(bytes: &[u8]) -> impl Iterator<Item = (Header, &[u8])> {
    super::given_batches::GivenBatches::new(bytes, Path::new("")).map_while(Result::ok)
}
