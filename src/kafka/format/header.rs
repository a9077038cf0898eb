//! The header of a batch, which is read without its records.
//!
//! ```text
//! magic 2                                    magic 0 and 1: every message is a batch
//!  0 baseOffset i64                           0 offset i64, of the last message inside
//!  8 batchLength i32, of the rest             8 size i32, of the rest
//! 12 partitionLeaderEpoch i32                12 crc u32, CRC-32 from 16 on
//! 16 magic i8                                16 magic i8
//! 17 crc u32, CRC-32C from 21 on             17 attributes i8
//! 21 attributes i16                          18 timestamp i64 (magic 1)
//! 23 lastOffsetDelta i32                        key, value: length i32, bytes
//! 27 baseTimestamp i64
//! 35 maxTimestamp i64
//! 43 producerId i64
//! 51 producerEpoch i16
//! 53 baseSequence i32
//! 57 recordsCount i32
//! 61 records
//! ```

use super::codec::Codec;
use crate::io::u32_of;
use crate::report::{Flaw, Kind};

/// The timestamp of a record or an index that has none.
pub(crate) const NO_TIMESTAMP: i64 = -1;
/// Bytes before those that the size field counts.
pub(crate) const LOG_OVERHEAD: usize = OVERHEAD as usize;
const OVERHEAD: u32 = 12;
/// Bytes up to and including the magic: enough to find the next batch.
pub(crate) const UP_TO_MAGIC: usize = 17;
/// The smallest value of the size field.
pub(crate) const LEAST_SIZE: i32 = 14;
/// Bytes before the records of magic 2.
pub const HEADER_SIZE: usize = 61;
/// Bytes before the key of magic 0 and 1.
const LEGACY_HEADER: [usize; 2] = [18, 26];
/// The first byte that the checksum covers.
const CRC_FROM: usize = 21;
const LEGACY_CRC_FROM: usize = 16;

/// The clock of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    /// No timestamp: messages of magic 0.
    None,
    /// The producer's clock.
    Create,
    /// The broker's clock, when it appended the batch.
    LogAppend,
}

impl TimestampType {
    /// The number in the consumer protocol.
    pub fn id(self) -> i32 {
        match self {
            Self::None => -1,
            Self::Create => 0,
            Self::LogAppend => 1,
        }
    }
}

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Byte offset in the log.
    pub position: u64,
    /// Length of the whole batch in bytes.
    pub size: u32,
    /// The format: 0, 1 or 2; a larger number is read as 2, as the broker does.
    pub magic: i8,
    /// Offset of the first record. Magic 0 and 1: offset of the last message, as `last_offset`.
    pub base_offset: i64,
    /// Offset of the last record.
    pub last_offset: i64,
    /// The checksum as stored.
    pub crc: u32,
    /// All attribute bits.
    pub attributes: i16,
    /// The base of record timestamps, or the delete horizon. Magic 0 and 1: as `max_timestamp`.
    pub base_timestamp: i64,
    /// The largest timestamp of the records; -1: none.
    pub max_timestamp: i64,
    /// -1: none.
    pub producer_id: i64,
    /// -1: none.
    pub producer_epoch: i16,
    /// -1: none.
    pub base_sequence: i32,
    /// Number of records that the header states; `None` for magic 0 and 1.
    pub count: Option<i32>,
    /// -1: unknown.
    pub leader_epoch: i32,
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|b| b.first_chunk()).copied().unwrap_or([0; N])
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    if let Some(to) = bytes.get_mut(at..at + N) {
        to.copy_from_slice(&field);
    }
}

/// The size field as stored, from the first bytes of a batch.
pub(crate) fn size_field(head: &[u8]) -> i32 {
    i32::from_be_bytes(field(head, 8))
}

/// The length of a whole batch, from its size field; `None` for a size that no batch has.
pub(crate) fn batch_size(stated: i32) -> Option<u32> {
    u32::try_from(stated).ok().filter(|_| stated >= LEAST_SIZE).map(|size| size + OVERHEAD)
}

/// The format, from the first bytes of a batch.
pub(crate) fn magic(head: &[u8]) -> i8 {
    i8::from_be_bytes(field(head, 16))
}

/// The size field of a whole batch. Batches of 2^31 bytes are refused before one is written.
fn stated_size(batch: &[u8]) -> [u8; 4] {
    u32_of(batch.len().saturating_sub(LOG_OVERHEAD)).to_be_bytes()
}

/// Bytes that [`Header::parse`] needs of a batch of this format.
pub(crate) fn needed(magic: i8) -> usize {
    match magic {
        2.. => HEADER_SIZE,
        0 => LEGACY_HEADER[0],
        _ => LEGACY_HEADER[1],
    }
}

impl Header {
    /// Parses the header of a batch of `size` bytes; `None` if the batch is too small for its format.
    pub(crate) fn parse(head: &[u8], position: u64, size: u32) -> Option<Self> {
        let magic = magic(head);
        let needed = needed(magic);
        if head.len() < needed || (size as usize) < needed {
            return None;
        }
        let offset = i64::from_be_bytes(field(head, 0));
        if magic < 2 {
            let timestamp = if magic == 0 { NO_TIMESTAMP } else { i64::from_be_bytes(field(head, 18)) };
            return Some(Self {
                position,
                size,
                magic,
                base_offset: offset,
                last_offset: offset,
                crc: u32::from_be_bytes(field(head, 12)),
                attributes: i16::from(u8::from_be_bytes(field(head, 17))),
                base_timestamp: timestamp,
                max_timestamp: timestamp,
                producer_id: -1,
                producer_epoch: -1,
                base_sequence: -1,
                count: None,
                leader_epoch: -1,
            });
        }
        Some(Self {
            position,
            size,
            magic,
            base_offset: offset,
            last_offset: offset.wrapping_add(i64::from(i32::from_be_bytes(field(head, 23)))),
            crc: u32::from_be_bytes(field(head, 17)),
            attributes: i16::from_be_bytes(field(head, 21)),
            base_timestamp: i64::from_be_bytes(field(head, 27)),
            max_timestamp: i64::from_be_bytes(field(head, 35)),
            producer_id: i64::from_be_bytes(field(head, 43)),
            producer_epoch: i16::from_be_bytes(field(head, 51)),
            base_sequence: i32::from_be_bytes(field(head, 53)),
            count: Some(i32::from_be_bytes(field(head, 57))),
            leader_epoch: i32::from_be_bytes(field(head, 12)),
        })
    }

    /// Writes the header of a batch of magic 2 over its first bytes, with the checksum of all of its bytes. `bytes` is the whole
    /// batch. Source: `DefaultRecordBatch#writeHeader`.
    pub(crate) fn write(&self, bytes: &mut [u8]) {
        put(bytes, 0, self.base_offset.to_be_bytes());
        let size = stated_size(bytes);
        put(bytes, 8, size);
        put(bytes, 12, self.leader_epoch.to_be_bytes());
        put(bytes, 16, self.magic.to_be_bytes());
        put(bytes, 21, self.attributes.to_be_bytes());
        put(bytes, 23, self.last_offset_delta().to_be_bytes());
        put(bytes, 27, self.base_timestamp.to_be_bytes());
        put(bytes, 35, self.max_timestamp.to_be_bytes());
        put(bytes, 43, self.producer_id.to_be_bytes());
        put(bytes, 51, self.producer_epoch.to_be_bytes());
        put(bytes, 53, self.base_sequence.to_be_bytes());
        put(bytes, 57, self.count.unwrap_or(0).to_be_bytes());
        let crc = crc_fast::crc32_iscsi(bytes.get(CRC_FROM..).unwrap_or_default());
        put(bytes, 17, crc.to_be_bytes());
    }

    /// Writes base offset and leader epoch, which the checksum does not cover.
    pub(crate) fn write_place(bytes: &mut [u8], base_offset: i64, leader_epoch: i32) {
        put(bytes, 0, base_offset.to_be_bytes());
        put(bytes, 12, leader_epoch.to_be_bytes());
    }

    /// Writes all that the checksum does not cover over the first bytes of a whole batch of magic 2.
    pub(crate) fn write_uncovered(&self, bytes: &mut [u8]) {
        let size = stated_size(bytes);
        put(bytes, 8, size);
        Self::write_place(bytes, self.base_offset, self.leader_epoch);
        Self::write_magic(bytes, self.magic);
    }

    /// Writes the magic, which the checksum does not cover either.
    pub(crate) fn write_magic(bytes: &mut [u8], magic: i8) {
        put(bytes, 16, magic.to_be_bytes());
    }

    /// Byte offset of the end of the batch.
    pub fn end(&self) -> u64 {
        self.position + u64::from(self.size)
    }

    /// True for a message set of magic 0 or 1.
    pub fn is_legacy(&self) -> bool {
        self.magic < 2
    }

    /// Number of the codec: the low three bits of the attributes.
    pub fn codec_id(&self) -> u8 {
        self.attributes.to_le_bytes()[0] & 7
    }

    /// The codec of the records.
    pub(crate) fn codec(&self) -> Result<Codec, Flaw> {
        Codec::from_id(self.codec_id())
            .ok_or_else(|| Flaw::new(Kind::Records, "codec 0 to 4", format!("codec {}", self.codec_id())))
    }

    /// The clock of the timestamps.
    pub fn timestamp_type(&self) -> TimestampType {
        match (self.magic, self.attributes & 8) {
            (0, _) => TimestampType::None,
            (_, 0) => TimestampType::Create,
            _ => TimestampType::LogAppend,
        }
    }

    /// True for a batch of a transaction.
    pub fn is_transactional(&self) -> bool {
        !self.is_legacy() && self.attributes & 0x10 != 0
    }

    /// True for a batch of control records, which consumers do not see.
    pub fn is_control(&self) -> bool {
        !self.is_legacy() && self.attributes & 0x20 != 0
    }

    /// The time from which compaction may remove the batch's tombstones and markers.
    pub fn delete_horizon(&self) -> Option<i64> {
        (!self.is_legacy() && self.attributes & 0x40 != 0).then_some(self.base_timestamp)
    }

    /// Sequence number of the record `delta` offsets after the first. Source: `DefaultRecordBatch#incrementSequence`.
    pub fn sequence(&self, delta: i32) -> i32 {
        if self.base_sequence < 0 {
            return -1;
        }
        let sum = i64::from(self.base_sequence) + i64::from(delta);
        // Sequence numbers wrap to 0.
        let wrapped = if sum > i64::from(i32::MAX) { sum - i64::from(i32::MAX) - 1 } else { sum };
        i32::try_from(wrapped).unwrap_or(-1)
    }

    /// The last offset, counted from the base offset: a field of 32 bits.
    #[expect(clippy::cast_possible_truncation, reason = "`last_offset` is the base offset and a number of 32 bits")]
    pub(crate) fn last_offset_delta(&self) -> i32 {
        self.last_offset.wrapping_sub(self.base_offset) as i32
    }

    /// Sequence number of the last record.
    pub fn last_sequence(&self) -> i32 {
        self.sequence(self.last_offset_delta())
    }

    /// Checks that the batch is within the limit of its reader.
    pub(crate) fn check_size(&self, limit: usize) -> Result<(), Flaw> {
        if self.size as usize <= limit {
            return Ok(());
        }
        let expected = format_args!("a batch of at most {limit} bytes").to_string();
        Err(Flaw::new(Kind::BatchSize, expected, format_args!("{} bytes", self.size)))
    }

    /// The first byte that the checksum covers.
    pub(crate) fn crc_from(&self) -> usize {
        if self.is_legacy() { LEGACY_CRC_FROM } else { CRC_FROM }
    }

    /// Compares the stored checksum with that of the batch's bytes.
    pub(crate) fn check_crc(&self, batch: &[u8]) -> Result<(), Flaw> {
        let covered = batch.get(self.crc_from()..).unwrap_or_default();
        self.compare_crc(if self.is_legacy() { crc32fast::hash(covered) } else { crc_fast::crc32_iscsi(covered) })
    }

    pub(crate) fn compare_crc(&self, computed: u32) -> Result<(), Flaw> {
        if computed == self.crc {
            return Ok(());
        }
        Err(Flaw::new(
            Kind::BatchCrc,
            format_args!("crc {computed:08x}, that of the bytes"),
            format_args!("{:08x}", self.crc),
        ))
    }
}

#[cfg(test)]
#[path = "header_tests.rs"]
mod tests;
