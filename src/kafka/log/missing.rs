//! The offsets of a log that no segment holds.
//!
//! A broker rolls a segment at the offset after the last one, so the next base offset is where the segment before ends. Only
//! compaction removes offsets from the middle of a log. Everything else that does is the loss of a file.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::io::Location;
use crate::kafka::read::batch_order::{BatchOrder, lowest_offset};
use crate::kafka::read::segment::{Segment, if_exists};
use crate::kafka::read::walk::{Reads, Tail, Walk};
use crate::report::{Finding, Flaw, Kind};

/// A segment that is not read, and what is there in its place: a compressed log, an index whose log is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The base offset.
    pub base_offset: i64,
    /// The finding, in words.
    pub found: String,
}

/// The offsets between two segments, or before the first one or after the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gap {
    /// Number of the segment after it.
    next: usize,
    begin: i64,
    /// The offset after the last one; `i64::MAX`: not known.
    end: i64,
}

/// A segment that is missing from a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingSegment {
    /// Number of the segment after it.
    pub next: usize,
    /// Its first offset.
    pub begin_offset: i64,
    /// The offset after its last one; `i64::MAX`: unknown.
    pub end_offset: i64,
    /// The finding to report.
    pub finding: Finding,
}

/// The missing part of a range of offsets of a log.
#[derive(Clone, Debug, Default)]
pub struct Missing {
    /// The missing segments, in ascending order.
    pub segments: Vec<MissingSegment>,
    /// The number of gaps that compaction left.
    pub compacted: u64,
}

impl Missing {
    /// Looks for gaps in the offsets [begin, end) of the segments of a log, which are in ascending order.
    ///
    /// Gaps of a log that is known to be compacted, or has gaps inside its segments, are counted only, unless a file that is
    /// not read has their offsets.
    ///
    /// # Errors
    /// An I/O error.
    pub fn between(
        directory: &Location,
        segments: &[Arc<Segment>],
        unread: &[Unread],
        (begin, end): (i64, i64),
        is_compacted: bool,
    ) -> Result<Self> {
        let mut missing = Self::default();
        let mut is_compacted = is_compacted.then_some(true);
        for gap in gaps(segments, unread, begin, end)? {
            let there = unread.iter().find(|file| (gap.begin..gap.end).contains(&file.base_offset));
            if there.is_none() {
                let compacted = match is_compacted {
                    Some(known) => known,
                    None => any_has_gaps(segments)?,
                };
                is_compacted = Some(compacted);
                if compacted {
                    missing.compacted += 1;
                    continue;
                }
            }
            let before = gap.next.checked_sub(1).and_then(|number| segments.get(number));
            let found = match (there, before) {
                (Some(unread), _) => unread.found.clone(),
                (None, Some(before)) if before.base_offset() == gap.begin => "an empty file".to_owned(),
                (None, _) => "none".to_owned(),
            };
            let expected = if gap.end == i64::MAX {
                format!("a segment with the offsets from {} on", gap.begin)
            } else {
                format!("a segment with the offsets {} to {}", gap.begin, gap.end - 1)
            };
            let path = directory.join(format!("{:020}.log", gap.begin));
            let finding = Finding::new(&path, 0, Flaw::new(Kind::FileGap, expected, found));
            let Gap { next, begin: begin_offset, end: end_offset } = gap;
            missing.segments.push(MissingSegment { next, begin_offset, end_offset, finding });
        }
        Ok(missing)
    }
}

fn gaps(segments: &[Arc<Segment>], unread: &[Unread], begin: i64, end: i64) -> Result<Vec<Gap>> {
    let mut gaps = Vec::new();
    let first = segments.first().map_or(i64::MAX, |segment| segment.base_offset());
    let unread = || unread.iter().map(|file| file.base_offset);
    if let Some(before) = unread().filter(|base| *base < first).min() {
        gaps.push(Gap { next: 0, begin: before, end: first });
    }
    for ((next, segment), following) in (1..).zip(segments).zip(segments.iter().skip(1)) {
        let next_base = following.base_offset();
        if segment.base_offset() < end
            && begin < next_base
            && let Some(ends_at) = segment.ends_below(next_base)?
        {
            gaps.push(Gap { next, begin: ends_at, end: next_base });
        }
    }
    if let Some(last) = segments.last()
        && let Some(after) = unread().filter(|base| *base > last.base_offset()).min()
    {
        gaps.push(Gap { next: segments.len(), begin: after, end: i64::MAX });
    }
    gaps.retain(|gap| gap.begin < end && begin < gap.end);
    Ok(gaps)
}

/// Returns whether offsets are missing inside a segment, as only compaction leaves them.
pub(crate) fn any_has_gaps(segments: &[Arc<Segment>]) -> Result<bool> {
    for segment in segments {
        if segment.has_gaps()? {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Segment {
    /// Returns the offset after the last batch if it is below the next segment; `None` also for a segment that does not end with
    /// a valid batch, which other checks report, or that is gone.
    fn ends_below(&self, next_base: i64) -> Result<Option<i64>> {
        if self.is_empty() {
            return Ok(Some(self.base_offset()));
        }
        let io = |e| Error::io(self.path(), e);
        let ended = || {
            let entry = self.offset_entry_before(self.offset_index()?.len())?;
            let source = self.source()?;
            let mut walk = Walk::new(Reads::Headers, entry.walk_from(), self.len());
            let (mut order, mut last) = (BatchOrder::new(self.base_offset()), None);
            let tail = loop {
                match walk.next(source.as_ref()).map_err(io)? {
                    Ok(header) => {
                        order.check(&header);
                        last = Some(header);
                    }
                    Err(tail) => break tail,
                }
            };
            let Some(end) = order.last().map(|offset| offset.saturating_add(1)).filter(|end| *end < next_base) else {
                return Ok(None);
            };
            let is_valid = match last {
                Some(header) => walk.check_crc(source.as_ref(), &header).map_err(io)?.is_ok(),
                None => false,
            };
            Ok((is_valid && tail == Tail::End).then_some(end))
        };
        match if_exists(ended()) {
            Ok(end) => Ok(end.flatten()),
            Err(Error::Corrupt { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether offsets are missing between or inside its batches, as only compaction leaves them.
    fn has_gaps(&self) -> Result<bool> {
        let (mut next, mut found) = (self.base_offset(), false);
        let mut order = BatchOrder::new(self.base_offset());
        if_exists(self.each_header(|header| {
            let length = header.last_offset.saturating_sub(lowest_offset(header)).saturating_add(1);
            let has_fewer = header.count.is_some_and(|count| i64::from(count) < length);
            // The header of a compressed set of magic 0 or 1 does not have its first offset.
            let is_set = header.is_legacy() && header.codec_id() != 0;
            found |= order.check(header).is_none() && (has_fewer || (!is_set && lowest_offset(header) > next));
            next = header.last_offset.saturating_add(1);
            Ok(())
        }))?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::read::segment::SegmentOptions;
    use crate::kafka::test_data::{EMPTIED, PLAIN, SEVEN, hex, segment};

    fn missing(segments: &[(i64, &str)], unread: &[(i64, &str)], range: (i64, i64)) -> Vec<(usize, String)> {
        let dir = tempfile::tempdir().unwrap();
        let opened: Vec<_> = segments
            .iter()
            .map(|(base, bytes)| {
                let path = segment(dir.path(), *base, &hex(bytes), None, None);
                Arc::new(Segment::open(&path, SegmentOptions::default()).unwrap())
            })
            .collect();
        let unread: Vec<_> =
            unread.iter().map(|(base, name)| Unread { base_offset: *base, found: (*name).to_owned() }).collect();
        let found = Missing::between(&dir.path().into(), &opened, &unread, range, false).unwrap();
        found
            .segments
            .into_iter()
            .map(|MissingSegment { next, finding, .. }| (next, format!("{}: {}", finding.expected, finding.found)))
            .collect()
    }

    const ALL: (i64, i64) = (0, i64::MAX);

    #[test]
    fn offsets_between_two_segments_are_missing() {
        let log = [(100, SEVEN), (1000, PLAIN)];
        let gap = (1, "a segment with the offsets 112 to 999: none".to_owned());
        for range in [ALL, (150, 151), (100, 113)] {
            assert_eq!(missing(&log, &[], range), std::slice::from_ref(&gap));
        }
        assert_eq!(missing(&log, &[], (100, 112)), []);
        assert_eq!(missing(&log, &[], (1000, i64::MAX)), []);
        assert_eq!(missing(&[(1000, PLAIN)], &[], ALL), []);
    }

    #[test]
    fn an_empty_segment_in_the_middle_has_lost_its_offsets() {
        let found = missing(&[(900, ""), (1000, PLAIN)], &[], ALL);
        assert_eq!(found, [(1, "a segment with the offsets 900 to 999: an empty file".to_owned())]);
    }

    #[test]
    fn compaction_leaves_gaps() {
        let log = [(100, SEVEN), (700, EMPTIED), (1000, PLAIN)];
        assert_eq!(missing(&log, &[], ALL), []);
        let found = missing(&log, &[(800, "800.log.gz")], ALL);
        assert_eq!(found, [(2, "a segment with the offsets 710 to 999: 800.log.gz".to_owned())]);
    }

    #[test]
    fn a_file_that_is_not_read_extends_the_log() {
        let found = missing(&[(1000, PLAIN)], &[(0, "0.log.gz"), (1003, "1003.log.gz")], ALL);
        let expected = [
            (0, "a segment with the offsets 0 to 999: 0.log.gz".to_owned()),
            (1, "a segment with the offsets from 1003 on: 1003.log.gz".to_owned()),
        ];
        assert_eq!(found, expected);
        assert_eq!(missing(&[], &[(7, "7.log.gz")], ALL).len(), 1);
    }
}
