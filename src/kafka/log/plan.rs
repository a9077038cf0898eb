//! The plan of a read: the segments that it needs, the offsets to read of each, and what is missing between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::open::LogView;
use crate::error::{Error, Result};
use crate::kafka::read::segment::Segment;
use crate::kafka::read::segment_range::{AbortedRange, SegmentRange};
use crate::report::Finding;

/// The records that a reader wants.
#[derive(Clone, Copy, Debug)]
pub struct ReadRange {
    /// First offset; before the start of the log: its start.
    pub begin_offset: i64,
    /// The offset after the last one.
    pub end_offset: i64,
    /// Each segment is read from its first record at or after this time in ms on, or left out if it has none. Timestamps need not
    /// ascend.
    pub begin_ms: Option<i64>,
    /// Leave out aborted transactions, and end before the first open one.
    pub is_committed: bool,
}

impl ReadRange {
    /// The offsets [begin, end), committed or not.
    pub fn offsets(begin_offset: i64, end_offset: i64) -> Self {
        Self { begin_offset, end_offset, begin_ms: None, is_committed: false }
    }
}

/// A step of a read.
#[derive(Clone, Debug)]
pub enum Part {
    /// Offsets of a segment.
    Range(SegmentRange, Vec<AbortedRange>),
    /// A segment that is missing at this place.
    Missing(Finding),
}

impl LogView {
    /// Plans a read, and returns at most `most` parts of it.
    ///
    /// # Errors
    /// `Corrupt`; an I/O error.
    pub fn plan(&self, read: ReadRange, most: usize) -> Result<Vec<Part>> {
        let first = read.begin_offset.max(self.start()?);
        let mut last = read.end_offset;
        // By the number of each segment from that of a transaction's first record to that of its marker.
        let mut aborted = BTreeMap::<usize, Vec<AbortedRange>>::new();
        if read.is_committed {
            last = last.min(self.last_stable_offset()?);
            if first < last {
                for (marked, entry) in self.aborted_from(first, last)? {
                    let range = AbortedRange {
                        producer_id: entry.producer_id,
                        first_offset: entry.first_offset,
                        last_offset: entry.last_offset,
                    };
                    for number in self.index_of(entry.first_offset)..=marked {
                        aborted.entry(number).or_default().push(range);
                    }
                }
            }
        }
        let mut parts = Vec::new();
        if first >= last {
            return Ok(parts);
        }
        let mut missing = self.missing(first, last)?.segments.into_iter().peekable();
        let ends = self.segments.iter().skip(1).map(|segment| segment.base_offset()).chain([i64::MAX]);
        for (number, (segment, next)) in self.segments.iter().zip(ends).enumerate().skip(self.index_of(first)) {
            while let Some(each) = missing.next_if(|each| each.next <= number) {
                parts.push(Part::Missing(each.finding));
            }
            if parts.len() >= most || segment.base_offset() >= last {
                break;
            }
            // A record belongs to the segment with the largest base at or below the record's offset.
            let high = last.min(next);
            let low = first_at(segment, read.begin_ms, first.max(segment.base_offset()))?;
            let Some(low) = low.filter(|low| *low < high) else { continue };
            let mut omitted = aborted.remove(&number).unwrap_or_default();
            omitted.retain(|each| each.last_offset >= low && each.first_offset < high);
            parts.push(Part::Range(
                SegmentRange { begin_offset: low, end_offset: high, ..self.range(segment) },
                omitted,
            ));
        }
        parts.extend(missing.map(|each| Part::Missing(each.finding)));
        parts.truncate(most);
        Ok(parts)
    }

    /// Plans a read without the missing segments, which the caller reports.
    #[cfg(any(feature = "python", test))]
    pub(crate) fn ranges(&self, begin_offset: i64, end_offset: i64) -> Result<Vec<SegmentRange>> {
        let parts = self.plan(ReadRange::offsets(begin_offset, end_offset), usize::MAX)?;
        let ranges = parts.into_iter().filter_map(|part| match part {
            Part::Range(range, _) => Some(range),
            Part::Missing(_) => None,
        });
        Ok(ranges.collect())
    }
}

/// Returns the first offset of a segment from `low` on with a timestamp at or after `begin_ms`; `None` if it has none.
fn first_at(segment: &Arc<Segment>, begin_ms: Option<i64>, low: i64) -> Result<Option<i64>> {
    let Some(begin_ms) = begin_ms else { return Ok(Some(low)) };
    // Control records count: a read may return them, and to skip one costs little.
    match segment.offset_for_timestamp(begin_ms, low, true) {
        Ok(found) => Ok(found.map(|found| found.offset)),
        // The reader decides what damage means.
        Err(Error::Corrupt { .. }) => Ok(Some(low)),
        Err(error) => Err(error),
    }
}
