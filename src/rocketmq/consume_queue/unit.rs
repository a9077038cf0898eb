//! Units of the queues.
//!
//! ```text
//! plain, 20 bytes        batch (5.x), 46 bytes
//!  0 phy offset i64       0 phy offset i64      20 store timestamp i64    36 messages i16
//!  8 size i32             8 size i32            28 base queue offset i64  38 compacted offset i32, -1
//! 12 tags code i64       12 tags code i64                                 42 zero
//! ```
//!
//! Big-endian. Units that were never written are zero. If a queue does not begin at the start of its first file, that file begins
//! with *pre-blank* units: offset 0, size 2147483647, tags code 0 (upstream `ConsumeQueue#fillPreBlank`).

/// Bytes of a unit of a plain queue.
pub const UNIT_LEN: usize = 20;
/// Bytes of a unit of a batch queue.
pub const BATCH_UNIT_LEN: usize = 46;
/// Bytes of a plain queue's file by default (`mappedFileSizeConsumeQueue`).
pub(super) const FILE_SIZE: u64 = 6_000_000;
/// Bytes of a batch queue's file by default (`mapperFileSizeBatchConsumeQueue`).
pub(super) const BATCH_FILE_SIZE: u64 = 13_800_000;

/// The filling before the first message of a queue.
pub const PRE_BLANK: Unit = Unit { phy_offset: 0, size: i32::MAX, tags_code: 0 };

/// The place of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Offset of the frame in the commit log.
    pub phy_offset: i64,
    /// Bytes of the frame.
    pub size: i32,
    /// Hash of the tags. A scheduled message has its time of delivery here, and a queue with extension files an extension
    /// address.
    pub tags_code: i64,
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    bytes.get(at..).and_then(|b| b.first_chunk().copied()).map_or(0, i64::from_be_bytes)
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    bytes.get(at..).and_then(|b| b.first_chunk().copied()).map_or(0, i32::from_be_bytes)
}

impl Unit {
    /// Reads the first 20 bytes; bytes that are missing are zero.
    pub fn parse(bytes: &[u8]) -> Self {
        Self { phy_offset: i64_at(bytes, 0), size: i32_at(bytes, 8), tags_code: i64_at(bytes, 12) }
    }

    /// The bytes of the unit.
    pub fn encode(self) -> [u8; UNIT_LEN] {
        let mut bytes = [0; UNIT_LEN];
        let (phy_offset, rest) = bytes.split_at_mut(8);
        let (size, tags_code) = rest.split_at_mut(4);
        phy_offset.copy_from_slice(&self.phy_offset.to_be_bytes());
        size.copy_from_slice(&self.size.to_be_bytes());
        tags_code.copy_from_slice(&self.tags_code.to_be_bytes());
        bytes
    }

    /// Returns whether a broker accepts the unit: an offset of 0 or more and a size above 0.
    pub fn is_valid(self) -> bool {
        self.phy_offset >= 0 && self.size > 0
    }

    /// Returns whether the unit is filling.
    pub fn is_pre_blank(self) -> bool {
        self == PRE_BLANK
    }

    /// Returns whether the unit refers to a message.
    pub fn is_message(self) -> bool {
        self.is_valid() && !self.is_pre_blank()
    }

    /// Offset in the log after the frame.
    pub fn end(self) -> i64 {
        self.phy_offset.saturating_add(i64::from(self.size))
    }
}

/// The place of several messages in one frame (5.x).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchUnit {
    /// The fields of a plain unit.
    pub unit: Unit,
    /// Store time of the frame.
    pub store_timestamp: i64,
    /// Queue offset of the first message.
    pub base_offset: i64,
    /// Messages in the frame.
    pub messages: i16,
}

impl BatchUnit {
    /// Reads the first 46 bytes; bytes that are missing are zero.
    pub fn parse(bytes: &[u8]) -> Self {
        let messages = bytes.get(36..).and_then(|b| b.first_chunk().copied()).map_or(0, i16::from_be_bytes);
        Self { unit: Unit::parse(bytes), store_timestamp: i64_at(bytes, 20), base_offset: i64_at(bytes, 28), messages }
    }

    /// The bytes of the unit.
    pub fn encode(self) -> [u8; BATCH_UNIT_LEN] {
        let mut bytes = [0; BATCH_UNIT_LEN];
        let fields = [
            self.unit.encode().as_slice(),
            &self.store_timestamp.to_be_bytes(),
            &self.base_offset.to_be_bytes(),
            &self.messages.to_be_bytes(),
            &(-1i32).to_be_bytes(),
        ]
        .concat();
        for (to, from) in bytes.iter_mut().zip(fields) {
            *to = from;
        }
        bytes
    }

    /// Returns whether a broker accepts the unit.
    pub fn is_valid(self) -> bool {
        self.unit.is_valid() && self.base_offset >= 0 && self.messages > 0
    }

    /// Queue offset after the last message.
    pub fn end_offset(self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.messages))
    }
}
