//! The check of a segment against the rest of its log: the segment before it, the leader epochs, and the indexes of a closed
//! segment, which must exist and be trimmed.

use crate::error::{Error, Result};
use crate::io::storage;
use crate::io::{Access, FileSource, ReadAt};
use crate::io::{Location, usize_of};
use crate::kafka::format::header::NO_TIMESTAMP;
use crate::kafka::index::index_file::{Check, IndexOptions};
use crate::kafka::index::sparse_index::SparseIndex;
use crate::kafka::index::{offset_index, offset_index::OffsetIndex, time_index, time_index::TimeIndex};
use crate::kafka::read::segment::Segment;
use crate::report::{Finding, Flaw, Kind};

/// Byte offset of the leader epoch in a batch.
const LEADER_EPOCH_AT: u64 = 12;

/// The data that a segment is checked against.
#[derive(Clone, Copy, Debug)]
pub struct LogContext<'a> {
    /// Leader epochs of the partition as (epoch, first offset), in the order of their file.
    pub epochs: &'a [(i64, i64)],
    /// End offset of the segment before it; `None` without one.
    pub previous_end: Option<i64>,
    /// Another segment follows, so that the broker closed this one.
    pub is_closed: bool,
    /// The offset index, if there is one.
    pub offset_index: Option<&'a Location>,
    /// The time index, if there is one.
    pub time_index: Option<&'a Location>,
}

impl Segment {
    /// Checks the segment against its log. Return the findings and the end offset of the segment.
    ///
    /// # Errors
    /// An I/O error.
    pub fn verify_in_log(&self, log: &LogContext<'_>) -> Result<(Vec<Finding>, i64)> {
        let mut findings = Vec::new();
        self.check_indexes(log, &mut findings)?;
        if let Some(end) = log.previous_end.filter(|end| self.base_offset() < *end) {
            let expected = format_args!("a base offset of {end} or more, where the segment before ends").to_string();
            findings.push(Finding::new(self.path(), 0, Flaw::new(Kind::SegmentOverlap, expected, self.base_offset())));
        }
        let (mut end, mut largest) = (log.previous_end, NO_TIMESTAMP);
        self.each_header(|header| {
            largest = largest.max(header.max_timestamp);
            end = Some(end.unwrap_or(0).max(header.last_offset.saturating_add(1)));
            let known = log.epochs.partition_point(|(_, first)| *first <= header.last_offset).checked_sub(1);
            // Messages of magic 0 and 1 have no epoch. The leaders before the first line of the file are not recorded.
            if let Some((epoch, first)) = known.and_then(|at| log.epochs.get(at))
                && header.leader_epoch >= 0
                && i64::from(header.leader_epoch) != *epoch
            {
                let expected = format_args!("{epoch}, which leads from offset {first} on").to_string();
                let flaw = Flaw::new(Kind::LeaderEpoch, expected, header.leader_epoch);
                findings.push(Finding::new(self.path(), header.position.saturating_add(LEADER_EPOCH_AT), flaw));
            }
            Ok(())
        })?;
        if let Some(path) = log.time_index.filter(|_| log.is_closed && largest >= 0) {
            findings.extend(self.check_end_of_times(path, largest)?);
        }
        Ok((findings, end.unwrap_or(self.base_offset())))
    }

    /// Reports missing indexes, and indexes of a closed segment that are not trimmed.
    fn check_indexes(&self, log: &LogContext<'_>, findings: &mut Vec<Finding>) -> Result<()> {
        let indexes = [
            (log.offset_index, OffsetIndex::SUFFIX, "an offset index", offset_index::ENTRY_SIZE, 1),
            // One entry of zeros may be valid here: timestamp 0 at the first offset.
            (log.time_index, TimeIndex::SUFFIX, "a time index", time_index::ENTRY_SIZE, 2),
        ];
        for (path, suffix, what, entry_size, least) in indexes {
            match (path, log.is_closed) {
                // When a broker starts, it rebuilds a missing offset index, but creates an empty time index.
                (None, _) if !self.is_empty() => {
                    let flaw = Flaw::new(Kind::FileMissing, what, "none");
                    findings.push(Finding::new(&self.beside(suffix), 0, flaw));
                }
                (Some(path), true) => findings.extend(unused_slots(path, entry_size as u64, least)?),
                (None, _) | (Some(_), false) => {}
            }
        }
        Ok(())
    }

    /// Compares the last entry of the time index with the largest timestamp of the batches.
    fn check_end_of_times(&self, path: &Location, largest: i64) -> Result<Option<Finding>> {
        let options =
            IndexOptions { check: Check::Trust, base_offset: Some(self.base_offset()), ..IndexOptions::default() };
        let index = match TimeIndex::open(path, &options) {
            Ok(index) => index,
            // Other checks report both.
            Err(Error::Corrupt { .. } | Error::Io { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let last = index.len().checked_sub(1).and_then(|slot| index.entry(slot));
        if last.is_some_and(|entry| entry.timestamp == largest) {
            return Ok(None);
        }
        let at = index.len().saturating_sub(1) * time_index::ENTRY_SIZE;
        let expected = format_args!("the segment's largest timestamp, {largest}").to_string();
        let found = last.map_or_else(|| "no entry".to_owned(), |entry| entry.timestamp.to_string());
        Ok(Some(Finding::new(path, at as u64, Flaw::new(Kind::TimeIndexEnd, expected, found))))
    }
}

/// Reports the last slot of an index if it is zeros.
fn unused_slots(path: &Location, entry_size: u64, least: u64) -> Result<Option<Finding>> {
    let io = |e| Error::io(path, e);
    let whole = match storage::status(path) {
        Ok(found) => found.len / entry_size,
        // Deleted since it was listed.
        Err(error) if error.is_missing() => return Ok(None),
        Err(error) => return Err(error),
    };
    if whole < least {
        return Ok(None);
    }
    let at = (whole - 1) * entry_size;
    let mut entry = vec![0; usize_of(entry_size)];
    match FileSource::open(path, Access::Pread)?.read_exact_at(&mut entry, at).map_err(io) {
        // The check of the index reports it.
        Err(Error::Corrupt { .. }) => return Ok(None),
        read => read?,
    }
    let flaw = || {
        Flaw::new(Kind::IndexTail, "an index that is trimmed to its entries, as in every segment but the last", "zeros")
    };
    Ok(entry.iter().all(|byte| *byte == 0).then(|| Finding::new(path, at, flaw())))
}
