//! The range of a segment that a reader of records reads.

use std::sync::Arc;

use super::segment::Segment;
use crate::error::Result;
use crate::kafka::format::header::Header;
use crate::time_range::TimeRange;

/// Offsets of an aborted transaction, from its first record to its marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedRange {
    /// Producer of the transaction.
    pub producer_id: i64,
    /// Offset of its first record.
    pub first_offset: i64,
    /// Offset of its marker.
    pub last_offset: i64,
}

/// Aborted transactions, sorted for a quick search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AbortedRanges {
    /// In the order of producers and first offsets. The last offset of each is the largest of its producer so far.
    sorted: Vec<AbortedRange>,
}

impl From<Vec<AbortedRange>> for AbortedRanges {
    fn from(mut ranges: Vec<AbortedRange>) -> Self {
        ranges.sort_unstable_by_key(|range| (range.producer_id, range.first_offset));
        let mut before: Option<AbortedRange> = None;
        for range in &mut ranges {
            if let Some(before) = before.filter(|before| before.producer_id == range.producer_id) {
                range.last_offset = range.last_offset.max(before.last_offset);
            }
            before = Some(*range);
        }
        Self { sorted: ranges }
    }
}

impl AbortedRanges {
    /// Returns whether a range of a producer's offsets overlaps one of its transactions.
    fn overlap(&self, producer_id: i64, first_offset: i64, last_offset: i64) -> bool {
        let up_to = (producer_id, last_offset);
        let end = self.sorted.partition_point(|range| (range.producer_id, range.first_offset) <= up_to);
        let nearest = end.checked_sub(1).and_then(|at| self.sorted.get(at));
        nearest.is_some_and(|range| range.producer_id == producer_id && first_offset <= range.last_offset)
    }
}

/// A range of a segment.
#[derive(Clone, Debug)]
pub struct SegmentRange {
    /// The segment.
    pub segment: Arc<Segment>,
    /// Topic of the rows.
    pub topic: Option<String>,
    /// Partition of the rows.
    pub partition: Option<i32>,
    /// First offset.
    pub begin_offset: i64,
    /// End offset, which is not included.
    pub end_offset: i64,
    /// Byte offset of the first batch; `None`: found with the indexes.
    pub begin_position: Option<u64>,
    /// Byte offset of the end; `None`: the end of the segment.
    pub end_position: Option<u64>,
    /// Transactions whose records are skipped.
    pub aborted: AbortedRanges,
}

impl SegmentRange {
    /// A whole segment.
    pub fn whole(segment: Arc<Segment>) -> Self {
        let owner = segment.topic_partition();
        Self {
            topic: owner.map(|(topic, _)| topic.to_owned()),
            partition: owner.map(|(_, partition)| partition),
            begin_offset: i64::MIN,
            end_offset: i64::MAX,
            begin_position: None,
            end_position: None,
            aborted: AbortedRanges::default(),
            segment,
        }
    }

    /// The most bytes that a read of the range passes.
    pub(crate) fn bytes(&self) -> u64 {
        let end = self.end_position.unwrap_or_else(|| self.segment.len());
        end.saturating_sub(self.begin_position.unwrap_or(0))
    }

    /// Returns the position to begin at, as late as the indexes allow.
    pub(crate) fn begin(&self, times: TimeRange) -> Result<u64> {
        if let Some(position) = self.begin_position {
            return Ok(position);
        }
        let segment = &self.segment;
        let mut offset = self.begin_offset;
        if times.begin_ms > 0 {
            // No record up to the entry's offset is later than its timestamp, which is before the time range.
            let entry = segment.time_entry(times.begin_ms - 1)?;
            if entry.timestamp >= 0 {
                offset = offset.max(entry.offset.saturating_add(1));
            }
        }
        if offset <= segment.base_offset() {
            return Ok(0);
        }
        Ok(segment.offset_entry(offset)?.walk_from())
    }

    /// True for a batch of an aborted transaction.
    pub(crate) fn is_aborted(&self, header: &Header) -> bool {
        header.is_transactional()
            && !header.is_control()
            && self.aborted.overlap(header.producer_id, header.base_offset, header.last_offset)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range() -> impl Strategy<Value = AbortedRange> {
        (0i64..3, 0i64..40, 0i64..12).prop_map(|(producer_id, first_offset, len)| AbortedRange {
            producer_id,
            first_offset,
            last_offset: first_offset + len,
        })
    }

    proptest! {
        #[test]
        fn sorted_ranges_overlap_what_any_of_them_overlaps(
            ranges in proptest::collection::vec(range(), 0..12),
            asked in range(),
        ) {
            let expected = ranges.iter().any(|each| {
                each.producer_id == asked.producer_id
                    && each.first_offset <= asked.last_offset
                    && asked.first_offset <= each.last_offset
            });
            let overlaps = AbortedRanges::from(ranges).overlap(asked.producer_id, asked.first_offset, asked.last_offset);
            prop_assert_eq!(overlaps, expected);
        }
    }
}
