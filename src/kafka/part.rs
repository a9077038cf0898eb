//! A part of a segment, as a stream of records takes it.

use std::sync::Arc;

use super::header::Header;
use super::segment::Segment;
use crate::error::Result;
use crate::time_range::TimeRange;

/// Offsets of a transaction that was rolled back, from its first record to its marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedRange {
    /// Whose transaction.
    pub producer_id: i64,
    /// Offset of its first record.
    pub first_offset: i64,
    /// Offset of its marker.
    pub last_offset: i64,
}

/// A part of a segment.
#[derive(Clone, Debug)]
pub struct Part {
    /// The segment.
    pub segment: Arc<Segment>,
    /// Topic that the rows name.
    pub topic: Option<String>,
    /// Partition that the rows name.
    pub partition: Option<i32>,
    /// First offset.
    pub begin_offset: i64,
    /// First offset that is not wanted any more.
    pub end_offset: i64,
    /// Byte offset where a batch begins; `None`: found by the indexes.
    pub begin_position: Option<u64>,
    /// Byte offset of the end; `None`: of the segment.
    pub end_position: Option<u64>,
    /// Transactions whose records are left out.
    pub aborted: Vec<AbortedRange>,
}

impl Part {
    /// All of a segment.
    pub fn whole(segment: Arc<Segment>) -> Self {
        let owner = segment.topic_partition();
        Self {
            topic: owner.map(|(topic, _)| topic.to_owned()),
            partition: owner.map(|(_, partition)| partition),
            begin_offset: i64::MIN,
            end_offset: i64::MAX,
            begin_position: None,
            end_position: None,
            aborted: Vec::new(),
            segment,
        }
    }

    /// Where to begin: as far behind as the indexes allow.
    pub(super) fn begin(&self, times: TimeRange) -> Result<u64> {
        if let Some(position) = self.begin_position {
            return Ok(position);
        }
        let segment = &self.segment;
        let mut offset = self.begin_offset;
        if times.begin_ms > 0 {
            // No record at or before the entry's offset is later than its timestamp, which is before the range.
            let entry = segment.time_entry(times.begin_ms - 1)?;
            if entry.timestamp >= 0 {
                offset = offset.max(entry.offset.saturating_add(1));
            }
        }
        if offset <= segment.base_offset() {
            return Ok(0);
        }
        Ok(u64::try_from(segment.offset_entry(offset)?.position).unwrap_or(0))
    }

    /// True when the batch is one of a transaction that was rolled back.
    pub(super) fn is_aborted(&self, header: &Header) -> bool {
        let inside = |range: &AbortedRange| {
            range.producer_id == header.producer_id
                && range.first_offset <= header.last_offset
                && header.base_offset <= range.last_offset
        };
        header.is_transactional() && !header.is_control() && self.aborted.iter().any(inside)
    }
}
