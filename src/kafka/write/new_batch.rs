//! A batch that is built here: records that are re-encoded, or that never were in a batch. Source: `MemoryRecordsBuilder`.

use std::path::Path;

use crate::error::{Error, Result};
use crate::kafka::format::codec::Codec;
use crate::kafka::format::encoder;
use crate::kafka::format::header::{HEADER_SIZE, Header, NO_TIMESTAMP};
use crate::kafka::format::record::{Span, field};
use crate::kafka::format::varint::put;

/// Bits of the attributes.
pub(super) const LOG_APPEND_TIME: i16 = 8;
pub(super) const TRANSACTIONAL: i16 = 0x10;
pub(super) const CONTROL: i16 = 0x20;

/// Records that become a batch.
#[derive(Debug, Default)]
pub(super) struct NewBatch {
    /// The encoded records.
    records: Vec<u8>,
    count: i32,
    base_timestamp: i64,
    max_timestamp: Option<i64>,
    record: Vec<u8>,
}

impl NewBatch {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of a batch of these records that is not compressed.
    pub(super) fn size(&self) -> usize {
        HEADER_SIZE + self.records.len()
    }

    pub(super) fn max_timestamp(&self) -> i64 {
        self.max_timestamp.unwrap_or(NO_TIMESTAMP)
    }

    /// Adds a record; `headers` are encoded by [`put_header`]. Source: `DefaultRecord#writeTo`.
    pub(super) fn push(&mut self, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>, headers: (usize, &[u8])) {
        self.push_at(self.count.into(), timestamp, key, value, headers);
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
        if self.count == 0 {
            self.base_timestamp = timestamp;
        }
        self.max_timestamp = Some(self.max_timestamp().max(timestamp));
        self.record.clear();
        self.record.push(0);
        put(&mut self.record, timestamp.wrapping_sub(self.base_timestamp));
        put(&mut self.record, offset_delta);
        put_field(&mut self.record, key);
        put_field(&mut self.record, value);
        put_length(&mut self.record, headers.0);
        self.record.extend(headers.1);
        put_length(&mut self.records, self.record.len());
        self.records.extend(&self.record);
        self.count += 1;
    }

    /// Appends the batch to `out`, and empties this. Of `like`, the fields that records do not decide are taken: offset, epochs,
    /// producer, the timestamp type, and for the time of the append the largest timestamp. The offsets of the records are dense.
    ///
    /// # Errors
    /// `InvalidArgument` if the records are too long for the codec.
    pub(super) fn finish(&mut self, like: &Header, codec: Codec, level: Option<i32>, out: &mut Vec<u8>) -> Result<()> {
        let last_offset = like.base_offset + i64::from(self.count) - 1;
        self.finish_up_to(&Header { last_offset, ..*like }, codec, level, out)
    }

    /// As [`Self::finish`], with the last offset of `like`.
    pub(super) fn finish_up_to(
        &mut self,
        like: &Header,
        codec: Codec,
        level: Option<i32>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let begin = out.len();
        out.resize(begin + HEADER_SIZE, 0);
        encoder::encode(codec, level, &self.records, out).map_err(|error| {
            Error::InvalidArgument(format!(
                "{} bytes of records with codec {}: {error}",
                self.records.len(),
                codec.name()
            ))
        })?;
        let is_append_time = like.attributes & LOG_APPEND_TIME != 0;
        let header = Header {
            magic: 2,
            attributes: like.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL) | codec as i16,
            base_timestamp: self.base_timestamp,
            max_timestamp: if is_append_time { like.max_timestamp } else { self.max_timestamp() },
            count: Some(self.count),
            ..*like
        };
        header.write(out.get_mut(begin..).unwrap_or_default());
        self.records.clear();
        (self.count, self.max_timestamp) = (0, None);
        Ok(())
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
            put_length(out, bytes.len());
            out.extend(bytes);
        }
    }
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    put(out, i64::try_from(length).unwrap_or(i64::MAX));
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
