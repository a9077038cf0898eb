//! Checks of a leader before it appends: batches get their offsets, in place where the bytes allow it, else re-encoded.
//!
//! Source: `LogValidator`.

use std::path::Path;

use super::given_batches::GivenBatches;
use super::new_batch::{Facts, LOG_APPEND_TIME, NewBatch, put_headers};
use super::refusal::Refusal;
use super::topic_config::TopicConfig;
use crate::error::Result;
use crate::kafka::format::batch_cursor::BatchCursor;
use crate::kafka::format::codec::Codec;
use crate::kafka::format::header::{Header, NO_TIMESTAMP, TimestampType};
use crate::kafka::format::record::{Span, Wants, field};

/// The sender of batches. Source: `AppendOrigin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A producer.
    Client,
    /// A coordinator of groups or transactions, which also writes markers.
    Coordinator,
    /// The leader of the partition: this is a follower, and offsets are kept.
    Replication,
}

/// Options for appending batches.
#[derive(Clone, Copy, Debug)]
pub struct AppendOptions {
    /// The epoch of the leader, which a follower takes as the largest one.
    pub leader_epoch: i32,
    /// The sender of the batches.
    pub origin: Origin,
    /// Markers have the epoch after that of their transaction (`transaction.version` 2). Releases before 4.0 do not have it.
    pub markers_bump_epochs: bool,
    /// The caller has compared the checksums of the batches.
    pub has_checksums_compared: bool,
}

impl AppendOptions {
    /// Batches of a sender, whose markers have the epochs of their transactions.
    pub fn of(origin: Origin, leader_epoch: i32) -> Self {
        Self { leader_epoch, origin, markers_bump_epochs: false, has_checksums_compared: false }
    }
}

/// Attributes that stay when they are rewritten: codec, transaction, control, delete horizon.
const KEPT_ATTRIBUTES: i16 = 0x77;

/// The input of the checks.
#[derive(Debug)]
pub(super) struct Validator<'a> {
    config: &'a TopicConfig,
    log: &'a Path,
    origin: Origin,
    leader_epoch: i32,
    now: i64,
    /// Offset of the first record.
    first_offset: i64,
    source: Codec,
}

/// Batches that may be appended.
#[derive(Debug)]
pub(super) struct Validated {
    pub(super) bytes: Vec<u8>,
    pub(super) max_timestamp: i64,
    /// Offset after the last record.
    pub(super) next_offset: i64,
    /// The batches may be larger than those that were sent.
    pub(super) was_encoded: bool,
}

/// A summary of the records of one append.
#[derive(Debug, Default)]
struct Records {
    count: i64,
    max_timestamp: Option<i64>,
    /// Their offsets count from 0.
    is_dense: bool,
    invalid: Option<Refusal>,
}

impl<'a> Validator<'a> {
    pub(super) fn new(
        config: &'a TopicConfig,
        log: &'a Path,
        options: AppendOptions,
        first_offset: i64,
        source: Codec,
        now: i64,
    ) -> Self {
        let AppendOptions { origin, leader_epoch, .. } = options;
        Self { config, log, origin, leader_epoch, now, first_offset, source }
    }

    /// # Errors
    /// `Refused`.
    pub(super) fn validate(&self, given: &[u8], cursor: &mut BatchCursor) -> Result<Validated> {
        let target = self.config.compression.unwrap_or(self.source);
        let batches: Vec<(Header, &[u8])> = GivenBatches::new(given, self.log).collect::<Result<_>>()?;
        let Some((first, _)) = batches.first() else {
            return Err(Refusal::INVALID_RECORD.because("no batch"));
        };
        if batches.len() > 1 && (!first.is_legacy() || self.source != Codec::None) {
            return Err(Refusal::INVALID_RECORD.because(format_args!("{} batches, expected one", batches.len())));
        }
        let is_plain = self.source == Codec::None && target == Codec::None;
        let is_plain_marker = self.source == Codec::None && first.is_control();
        let mut in_place = !first.is_legacy() && (self.source == target || is_plain_marker);
        let mut records = Records { is_dense: true, ..Records::default() };
        for (header, batch) in &batches {
            self.check_batch(first, header)?;
            self.each(cursor, header, batch, |span, _| self.check_record(header, span, &mut records))?;
        }
        if let Some(refusal) = records.invalid {
            return Err(refusal.because("one or more records have an invalid timestamp or no key"));
        }
        if in_place && !is_plain && !records.is_dense {
            // COMPAT(kafka LogValidator): the keys and values to encode again were skipped.
            if self.source != Codec::None {
                return Err(Refusal::UNSUPPORTED_OPERATION.because("compressed records whose offsets have gaps"));
            }
            in_place = false;
        }
        let max_timestamp =
            if self.config.log_append_time { self.now } else { records.max_timestamp.unwrap_or(NO_TIMESTAMP) };
        let next_offset = self.first_offset + records.count;
        let bytes = if in_place {
            self.rewritten(first, given, next_offset - 1, max_timestamp)
        } else {
            self.encoded(cursor, &batches, target)?
        };
        Ok(Validated { bytes, max_timestamp, next_offset, was_encoded: !in_place })
    }

    /// Returns whether [`Self::validate`] would return the bytes of a batch that [`NewBatch`] finished, but for its offset and epoch.
    pub(super) fn takes_as_is(&self, facts: &Facts) -> bool {
        let config = self.config;
        config.compression.is_none_or(|target| target == self.source)
            && !config.log_append_time
            && !(config.compacts && facts.has_null_key)
            && facts.timestamps.is_none_or(|(least, largest)| self.is_timely(least) && self.is_timely(largest))
    }

    fn is_timely(&self, timestamp: i64) -> bool {
        let (now, timestamp) = (i128::from(self.now), i128::from(timestamp));
        now - timestamp <= self.config.timestamp_before_max_ms.into()
            && timestamp - now <= self.config.timestamp_after_max_ms.into()
    }

    fn each(
        &self,
        cursor: &mut BatchCursor,
        header: &Header,
        batch: &[u8],
        mut take: impl FnMut(&Span, &[u8]),
    ) -> Result<()> {
        let mut headers_fit = true;
        let read = cursor.each(header, batch, Wants::All, |span, bytes| {
            headers_fit &= header.is_legacy() || span.each_header(bytes, |_, _| ()).is_some();
            take(span, bytes);
            true
        });
        let read = read.map_err(|flaw| format!("expected {}, found {}", flaw.expected, flaw.found));
        let read =
            read.and_then(|()| headers_fit.then_some(()).ok_or_else(|| "headers that cannot be read".to_owned()));
        read.map_err(|text| Refusal::INVALID_RECORD.because(format_args!("{}: {text}", self.log.display())))
    }

    /// Source: `#validateBatch`.
    fn check_batch(&self, first: &Header, header: &Header) -> Result<()> {
        let refuse = |text: String| Err(Refusal::INVALID_RECORD.because(text));
        if header.magic != first.magic {
            return refuse(format!("batches of magic {} and {}", first.magic, header.magic));
        }
        if self.origin != Origin::Client {
            return Ok(());
        }
        if let Some(count) = header.count {
            let offsets = header.last_offset - header.base_offset + 1;
            if offsets <= 0 || count <= 0 || offsets != i64::from(count) {
                return refuse(format!("a batch of {count} records with {offsets} offsets"));
            }
        }
        if header.is_control() {
            return refuse("clients cannot write control records".to_owned());
        }
        if header.producer_id >= 0 && header.base_sequence < 0 {
            return refuse(format!("sequence number {} of producer {}", header.base_sequence, header.producer_id));
        }
        Ok(())
    }

    /// Source: `#validateRecord`.
    fn check_record(&self, header: &Header, span: &Span, records: &mut Records) {
        let config = self.config;
        let has_bad_time = if !config.log_append_time && span.timestamp != NO_TIMESTAMP {
            !self.is_timely(span.timestamp)
        } else {
            header.timestamp_type() == TimestampType::LogAppend
        };
        if header.is_legacy() && header.codec_id() != 0 && !span.is_valid {
            records.invalid = Some(Refusal::CORRUPT_RECORD);
        }
        if config.compacts && span.key.1 < 0 {
            records.invalid = records.invalid.or(Some(Refusal::RECORD_VALIDATION));
        } else if has_bad_time && records.invalid != Some(Refusal::CORRUPT_RECORD) {
            records.invalid = Some(Refusal::RECORD_VALIDATION_TIMESTAMP);
        }
        records.is_dense &= span.offset == records.count;
        records.count += 1;
        if header.magic > 0 {
            records.max_timestamp = records.max_timestamp.max(Some(span.timestamp));
        }
    }

    /// Returns the batch with its offsets and timestamps. Source: `DefaultRecordBatch#setLastOffset`, `#setMaxTimestamp`.
    fn rewritten(&self, first: &Header, given: &[u8], last_offset: i64, max_timestamp: i64) -> Vec<u8> {
        let mut bytes = given.to_vec();
        let base_offset = last_offset - (first.last_offset - first.base_offset);
        let is_append_time = first.timestamp_type() == TimestampType::LogAppend;
        if is_append_time != self.config.log_append_time || max_timestamp != first.max_timestamp {
            let attributes = first.attributes & KEPT_ATTRIBUTES;
            let header = Header {
                base_offset,
                last_offset,
                leader_epoch: self.leader_epoch,
                attributes: attributes | if self.config.log_append_time { LOG_APPEND_TIME } else { 0 },
                max_timestamp,
                ..*first
            };
            header.write(&mut bytes);
        } else {
            Header::write_place(&mut bytes, base_offset, self.leader_epoch);
        }
        bytes
    }

    /// Returns one new batch of all records. Source: `#buildRecordsAndAssignOffsets`, `#convertAndAssignOffsetsNonCompressed`.
    fn encoded(&self, cursor: &mut BatchCursor, batches: &[(Header, &[u8])], target: Codec) -> Result<Vec<u8>> {
        let (mut new, mut headers, mut out) = (NewBatch::default(), Vec::new(), Vec::new());
        for (header, batch) in batches {
            self.each(cursor, header, batch, |span, bytes| {
                let count = put_headers(&mut headers, header, span, bytes);
                new.push(span.timestamp, field(span.key, bytes), field(span.value, bytes), (count, &headers));
            })?;
        }
        let Some((first, _)) = batches.first() else { return Ok(out) };
        let attributes = if self.config.log_append_time { LOG_APPEND_TIME } else { 0 };
        let like = Header {
            base_offset: self.first_offset,
            leader_epoch: self.leader_epoch,
            attributes: attributes | if first.is_transactional() { super::new_batch::TRANSACTIONAL } else { 0 },
            max_timestamp: self.now,
            ..*first
        };
        new.finish(&like, target, self.config.level(target), &mut out)?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::Path;

    use super::*;
    use crate::kafka::compat::Compat;
    use crate::kafka::write::log::new_cursor;
    use crate::kafka::write::new_batch::plain_header;

    /// Timestamps and keys of records.
    type Rows<'a> = &'a [(i64, Option<&'a [u8]>)];

    const ROWS: [Rows<'_>; 6] = [
        &[(1_000, Some(b"k"))],
        &[(1_000, Some(b"k")), (900, None), (1_100, Some(b""))],
        &[(NO_TIMESTAMP, Some(b"k")), (i64::MAX, Some(b"k"))],
        &[(NO_TIMESTAMP, Some(b"k"))],
        &[(i64::MIN, Some(b"k")), (7, Some(b"k"))],
        &[(5_000, Some(b"k")), (1_000, Some(b"k"))],
    ];
    const SETTINGS: [(&str, &str); 7] = [
        ("segment.bytes", "1000"),
        ("compression.type", "lz4"),
        ("compression.type", "uncompressed"),
        ("message.timestamp.type", "LogAppendTime"),
        ("cleanup.policy", "compact"),
        ("message.timestamp.before.max.ms", "50"),
        ("message.timestamp.after.max.ms", "50"),
    ];

    #[test]
    fn a_new_batch_is_taken_as_validated() {
        let (mut cursor, mut taken) = (new_cursor(), 0);
        for setting in SETTINGS {
            let settings = HashMap::from([(setting.0.to_owned(), setting.1.to_owned())]);
            let config = TopicConfig::parse(&settings, Compat::parse("3.9.2").unwrap()).unwrap();
            for (rows, codec) in ROWS.iter().flat_map(|rows| [(rows, Codec::None), (rows, Codec::Lz4)]) {
                let (mut new, mut batch) = (NewBatch::default(), Vec::new());
                for (timestamp, key) in *rows {
                    new.push(*timestamp, *key, Some(b"value"), (0, &[]));
                }
                let facts = new.finish(&plain_header(), codec, None, &mut batch).unwrap();
                let options = AppendOptions::of(Origin::Client, 3);
                let validator = Validator::new(&config, Path::new("t-0"), options, 40, codec, 1_000);
                let validated = validator.validate(&batch, &mut cursor);
                Header::write_place(&mut batch, 40, 3);
                let is_same = validated.is_ok_and(|validated| {
                    validated.bytes == batch
                        && validated.max_timestamp == facts.max_timestamp()
                        && validated.next_offset == 40 + i64::from(facts.count)
                });
                assert_eq!(validator.takes_as_is(&facts), is_same, "{setting:?} {codec:?} {rows:?}");
                taken += usize::from(is_same);
            }
        }
        assert!((1..SETTINGS.len() * ROWS.len() * 2).contains(&taken), "{taken}");
    }
}
