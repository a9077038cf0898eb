//! First and last offsets of a log, and look-ups by offset and by time.
//!
//! Source: `UnifiedLog#fetchOffsetByTimestamp`, `#searchOffsetInLocalLog`, `LocalLog#read`, `ListOffsetsRequest`.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use super::open::LogView;
use crate::error::{Error, Result};
use crate::kafka::read::lookup::{Fetched, TimedOffset};
use crate::kafka::read::segment::Segment;
use crate::report::Finding;

const LOG_START: &str = "log-start-offset-checkpoint";
/// The timestamp of an answer that has none.
const NONE: i64 = -1;

/// The bytes of a fetch with their segment, and the missing segments that were passed over.
pub type FetchedOf = (Arc<Segment>, Fetched, Vec<Finding>);

/// The times of `ListOffsetsRequest` that are no times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// The end of the log.
    Latest,
    /// Its start, also on this disk.
    Earliest,
    /// The record with the largest timestamp.
    MaxTimestamp,
    /// The end in remote storage, which is unknown.
    LatestTiered,
}

impl Special {
    /// Returns the meaning of a number; `None` for a time.
    pub fn of(time_ms: i64) -> Option<Self> {
        match time_ms {
            -1 => Some(Self::Latest),
            -2 | -4 => Some(Self::Earliest),
            -3 => Some(Self::MaxTimestamp),
            -5 => Some(Self::LatestTiered),
            _ => None,
        }
    }
}

impl LogView {
    /// Returns the first offset: the base of the first segment, also of one whose file is not read, or a later one if records were
    /// deleted.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn start(&self) -> Result<i64> {
        let unread = self.listing.unread.iter().map(|file| file.base_offset);
        let first = self.segments.first().map(|segment| segment.base_offset()).into_iter().chain(unread).min();
        Ok(first.unwrap_or(0).max(self.recorded(LOG_START)?.unwrap_or(0)))
    }

    /// Returns the offset after the last whole batch.
    ///
    /// # Errors
    /// `Corrupt` if the last segment cannot be walked to its end; an I/O error.
    pub fn end(&self) -> Result<i64> {
        self.segments.last().map_or(Ok(0), |segment| segment.next_offset())
    }

    /// Returns [`Self::end`], or an offset before it if damage at the end of the log hides the rest.
    ///
    /// # Errors
    /// An I/O error.
    pub fn readable_end(&self) -> Result<i64> {
        self.segments.last().map_or(Ok(0), |segment| segment.readable_end())
    }

    /// Returns the number of the segment for an offset: the last with a base at or below it, else 0.
    pub(super) fn index_of(&self, offset: i64) -> usize {
        self.segments.partition_point(|segment| segment.base_offset() <= offset).saturating_sub(1)
    }

    /// Returns the segments from that of an offset on.
    pub(super) fn segments_from(&self, offset: i64) -> &[Arc<Segment>] {
        self.segments.get(self.index_of(offset)..).unwrap_or_default()
    }

    /// Finds the bytes that a fetch returns, of one segment, from the batch of an offset on; `None` at the end of the log.
    ///
    /// In a gap the bytes begin after it. Findings are the missing segments that it passed over.
    ///
    /// # Errors
    /// `InvalidArgument` for an offset before the start or after the end; `Corrupt`; an I/O error.
    pub fn read(&self, offset: i64, max_bytes: i64, min_one_message: bool) -> Result<Option<FetchedOf>> {
        let (start, end) = (self.start()?, self.end()?);
        if !(start..=end).contains(&offset) {
            let directory = self.directory.display();
            let text = format!("{directory}: offset {offset} is out of range, expected {start} to {end}");
            return Err(Error::InvalidArgument(text));
        }
        if offset == end {
            return Ok(None);
        }
        for (number, segment) in self.segments_from(offset).iter().enumerate() {
            if let Some(fetched) = segment.read(offset, max_bytes, None, min_one_message)? {
                let passed = if number == 0 { Vec::new() } else { self.passed_over(offset, segment.base_offset())? };
                return Ok(Some((Arc::clone(segment), fetched, passed)));
            }
        }
        Ok(None)
    }

    /// Returns the missing segments in [begin, end).
    fn passed_over(&self, begin: i64, end: i64) -> Result<Vec<Finding>> {
        let missing = self.missing(begin.max(self.start()?), end)?;
        Ok(missing.segments.into_iter().map(|each| each.finding).collect())
    }

    /// Returns timestamp and offset for a special time.
    ///
    /// # Errors
    /// `Corrupt`; an I/O error.
    pub fn special_offset(&self, special: Special) -> Result<Option<(i64, i64)>> {
        match special {
            Special::Latest => Ok(Some((NONE, self.end()?))),
            Special::Earliest => Ok(Some((NONE, self.start()?))),
            Special::LatestTiered => Ok(Some((NONE, NONE))),
            Special::MaxTimestamp => Ok(self.newest()?.map(|found| (found.timestamp, found.offset))),
        }
    }

    /// Finds the first record, by offset, with a timestamp at or after a time; and the missing segments that may hold an earlier
    /// one. With a release the answer is its broker's.
    ///
    /// # Errors
    /// `Corrupt`; an I/O error.
    pub fn offset_for_timestamp(&self, time_ms: i64) -> Result<(Option<TimedOffset>, Vec<Finding>)> {
        let start = self.start()?;
        if self.options.compat.is_some() {
            // Only the first segment that may reach the time is searched; a marker counts as a record.
            for segment in &self.segments {
                if largest(segment)? >= time_ms {
                    return Ok((segment.offset_for_timestamp(time_ms, start, true)?, Vec::new()));
                }
            }
            return Ok((None, Vec::new()));
        }
        // A segment's own index shows quickly that it ends before that time.
        for segment in self.segments_from(start) {
            if let Some(found) = segment.offset_for_timestamp(time_ms, start, false)? {
                let before = self.index_of(found.offset).checked_sub(1).and_then(|number| self.segments.get(number));
                let begin = before.map_or(0, |segment| segment.base_offset());
                return Ok((Some(found), self.passed_over(begin, found.offset)?));
            }
        }
        Ok((None, Vec::new()))
    }

    /// Finds the first record with the largest timestamp, by the headers of all batches.
    ///
    /// COMPAT(kafka `UnifiedLog#fetchOffsetByTimestamp`): a broker uses its time indexes instead, which have markers as well.
    fn newest(&self) -> Result<Option<TimedOffset>> {
        let is_broker = self.options.compat.is_some();
        let start = self.start()?;
        let mut newest: Option<(i64, &Segment)> = None;
        for segment in if is_broker { &self.segments } else { self.segments_from(start) } {
            let time =
                if is_broker { segment.max_timestamp()?.timestamp } else { segment.largest_data_timestamp(start)? };
            // The first of equals.
            if newest.is_none_or(|(largest, _)| time > largest) {
                newest = Some((time, segment));
            }
        }
        let Some((time, segment)) = newest.filter(|(time, _)| *time != NONE) else { return Ok(None) };
        segment.offset_for_timestamp(time, if is_broker { segment.base_offset() } else { start }, is_broker)
    }
}

/// COMPAT(kafka `LogSegment#largestTimestamp`): without any timestamp the file's modification time is taken.
fn largest(segment: &Segment) -> Result<i64> {
    let timestamp = segment.max_timestamp()?.timestamp;
    let modified = segment.status().modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let modified = modified.and_then(|since| i64::try_from(since.as_millis()).ok());
    Ok(if timestamp >= 0 { timestamp } else { modified.unwrap_or(timestamp) })
}
