//! Repair of a partition's log: its valid batches stay at their offsets, damaged ones are left out of new segment files.
//!
//! ```text
//! valid batches --records, leader epochs--> runs of bytes | batches with restored fields | an empty batch --> X.log.cleaned --> X.log
//!                                           the replaced file stays as X.log.damaged
//! ```
//!
//! A broker deletes `.cleaned` files, so a repair that was killed leaves each segment as it was or repaired. Indexes, snapshots and leader
//! epochs are left to the recovery after it.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::load::remove_temporary_files;
use super::log::{MOST_BATCH_BYTES, new_cursor};
use super::new_batch::plain_header;
use super::producers::remove;
use super::segment::{SUFFIXES, file_path};
use super::topic_config::TopicConfig;
use crate::error::{Error, Result};
use crate::io::disk::sync_directory;
use crate::io::{FileIdentity, ReadAt, signals, usize_of};
use crate::kafka::format::batch_cursor::BatchCursor;
use crate::kafka::format::header::{HEADER_SIZE, Header, LOG_OVERHEAD, size_field};
use crate::kafka::log::Listing;
use crate::kafka::read::segment::{Segment, SegmentOptions};
use crate::kafka::read::segment_range::SegmentRange;
use crate::kafka::read::valid_batches::ValidBatches;
use crate::kafka::verify::check_records;
use crate::report::{Finding, Flaw, Kind};

/// The end of the name of a segment that was replaced.
const DAMAGED: &str = ".damaged";
/// Bytes that are copied together, and between two looks for signals.
const CHUNK: usize = 1 << 20;
/// Bytes between two calls that show the progress.
const PROGRESS: u64 = 16 << 20;
/// Byte offset of the leader epoch in a batch.
const LEADER_EPOCH_AT: u64 = 12;

/// Options of a repair.
#[derive(Clone, Copy, Debug)]
pub struct RepairOptions<'a> {
    /// The settings of the topic.
    pub config: &'a TopicConfig,
    /// Leader epochs of the partition as (epoch, first offset), in the order of their file.
    pub epochs: &'a [(i64, i64)],
    /// Offsets at which segments are missing, or the ends of segments.
    pub gaps: &'a [i64],
    /// The log ends at the first damage, as after the recovery of a broker.
    pub truncates: bool,
    /// Nothing is changed.
    pub is_dry_run: bool,
}

/// The result of a repair.
#[derive(Debug, Default)]
pub struct Repaired {
    /// Batches that are in the log afterwards.
    pub batches: u64,
    /// Their records.
    pub records: u64,
    /// Batches of which a size, a magic, a base offset or a leader epoch was restored.
    pub restored_batches: u64,
    /// Valid batches after damage that a truncation removes.
    pub truncated_batches: u64,
    /// Bytes that are no longer in the log, except those of an unfinished batch.
    pub left_out_bytes: u64,
    /// Bytes of a batch that was being written when the broker stopped.
    pub unfinished_bytes: u64,
    /// Offset after the last batch.
    pub end_offset: i64,
    /// Base offsets of the segments that change.
    pub changed: Vec<i64>,
    /// Each damage, in the order of files and offsets.
    pub findings: Vec<Finding>,
}

/// Bytes of a segment that stay.
#[derive(Clone, Copy, Debug)]
struct Run {
    begin: u64,
    end: u64,
    /// For one batch: its header, with restored fields. A batch without bytes is empty.
    header: Option<Header>,
}

/// A segment after the repair.
#[derive(Debug)]
struct Kept {
    runs: Vec<Run>,
    /// Offset after its last batch.
    end_offset: i64,
    /// The epoch of its last batch.
    epoch: Option<i32>,
}

impl Kept {
    /// The bytes that are kept of the front of a segment, if nothing else of it is.
    fn front(&self) -> Option<u64> {
        match self.runs.as_slice() {
            [] => Some(0),
            [Run { begin: 0, end, header: None }] => Some(*end),
            _ => None,
        }
    }

    fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.end - run.begin).sum()
    }
}

/// Decides what stays of a log.
struct Repair<'a> {
    ranges: &'a [SegmentRange],
    options: RepairOptions<'a>,
    cursor: BatchCursor,
    kept: Vec<Kept>,
    /// Number of the segment of the last batch that stays, and the position after it.
    reached: (usize, u64),
    /// Everything after `reached` goes.
    is_truncated: bool,
    /// The epoch of the last batch.
    epoch: Option<i32>,
    /// The last batch, if only the next one shows whether its epoch is right; true: other fields were restored.
    doubt: Option<(usize, Header, bool)>,
    repaired: Repaired,
}

impl Repair<'_> {
    /// True if no other bytes are between the last batch that stays and this one.
    fn follows(&self, number: usize, position: u64) -> bool {
        let (last, end) = self.reached;
        if number == last {
            return position == end;
        }
        let len = |number: usize| self.ranges.get(number).map_or(0, |range| range.segment.len());
        position == 0 && len(last) == end && (last + 1..number).all(|number| len(number) == 0)
    }

    fn find(&mut self, number: usize, offset: u64, flaw: Flaw) {
        if let Some(range) = self.ranges.get(number) {
            self.repaired.findings.push(Finding::new(range.segment.path(), offset, flaw));
        }
    }

    fn take(&mut self, number: usize, header: &Header, batch: &[u8]) {
        self.is_truncated |= self.options.truncates && !self.follows(number, header.position);
        if self.is_truncated {
            self.repaired.truncated_batches += 1;
            return;
        }
        match check_records(&mut self.cursor, header, batch) {
            Ok(records) => self.repaired.records += records,
            Err(flaw) => return self.find(number, header.position, flaw),
        }
        self.repaired.batches += 1;
        self.reached = (number, header.end());
        let is_restored = Header::parse(batch, header.position, header.size) != Some(*header)
            || u64::try_from(size_field(batch)).ok().map(|size| size + LOG_OVERHEAD as u64) != Some(header.size.into());
        self.settle_epoch((!header.is_legacy()).then_some(header.leader_epoch));
        let is_known = self.epoch == Some(header.leader_epoch)
            || self.recorded_epoch(header) == Some(header.leader_epoch)
            || header.is_legacy();
        if is_known {
            self.epoch = (!header.is_legacy()).then_some(header.leader_epoch);
            self.keep(number, header, is_restored);
        } else {
            self.doubt = Some((number, *header, is_restored));
        }
    }

    fn recorded_epoch(&self, header: &Header) -> Option<i32> {
        let epochs = self.options.epochs;
        let known = epochs.partition_point(|(_, first)| *first <= header.last_offset).checked_sub(1);
        known.and_then(|at| epochs.get(at)).and_then(|(epoch, _)| i32::try_from(*epoch).ok())
    }

    /// Decides about the epoch of the last batch, with that of the next one. Epochs ascend, except where a leader of another cluster
    /// went on; then more than one batch has the lower epoch.
    fn settle_epoch(&mut self, next: Option<i32>) {
        let Some((number, mut header, is_restored)) = self.doubt.take() else { return };
        let (found, recorded) = (header.leader_epoch, self.recorded_epoch(&header));
        let right = match (self.epoch, next) {
            (_, Some(next)) if next == found && found >= 0 => found,
            (Some(last), _) if recorded == Some(last) => last,
            (None, Some(next)) if recorded == Some(next) => next,
            (Some(last), next) if found < last || next.is_some_and(|next| next < found) => last,
            (None, Some(next)) if next < found || found < 0 => next,
            (Some(_), _) | (None, Some(_)) => found,
            (None, None) => found.max(0),
        };
        if right != found {
            let flaw = Flaw::new(Kind::LeaderEpoch, format_args!("{right}, as in the batches around it"), found);
            self.find(number, header.position + LEADER_EPOCH_AT, flaw);
            header.leader_epoch = right;
        }
        self.epoch = Some(right);
        self.keep(number, &header, is_restored || right != found);
    }

    fn keep(&mut self, number: usize, header: &Header, is_restored: bool) {
        let Some(kept) = self.kept.get_mut(number) else { return };
        kept.end_offset = header.last_offset.saturating_add(1);
        kept.epoch = (!header.is_legacy()).then_some(header.leader_epoch);
        self.repaired.restored_batches += u64::from(is_restored);
        match kept.runs.last_mut() {
            Some(Run { end, header: None, .. }) if *end == header.position && !is_restored => *end = header.end(),
            _ => kept.runs.push(Run {
                begin: header.position,
                end: header.end(),
                header: is_restored.then_some(*header),
            }),
        }
    }

    /// Ends each segment that lost its end, or after which one is missing, with an empty batch up to the next segment, as compaction
    /// does. Readers then know that these offsets have no records.
    fn fill_ends(&mut self) {
        let mut segments = std::mem::take(&mut self.kept);
        let mut epoch = 0;
        for (kept, pair) in segments.iter_mut().zip(self.ranges.windows(2)) {
            let [range, next] = pair else { continue };
            epoch = kept.epoch.unwrap_or(epoch);
            let end = kept.runs.last().map_or(0, |run| run.end);
            let last_offset = next.segment.base_offset() - 1;
            let is_lost = end < range.segment.len() || self.options.gaps.contains(&kept.end_offset);
            let is_short = is_lost && kept.end_offset <= last_offset;
            if is_short && i32::try_from(last_offset - kept.end_offset).is_ok() {
                let empty = Header { base_offset: kept.end_offset, last_offset, ..plain_header() };
                let header = Header { leader_epoch: self.recorded_epoch(&empty).unwrap_or(epoch), ..empty };
                kept.runs.push(Run { begin: end, end, header: Some(header) });
                kept.end_offset = last_offset + 1;
            }
        }
        self.kept = segments;
    }

    /// Reports segments that begin before the end of the one before them: a reader does not find all of their offsets.
    fn find_overlaps(&mut self) {
        for number in 1..self.ranges.len() {
            let end = self.kept.get(number - 1).map_or(0, |kept| kept.end_offset);
            let base = self.ranges.get(number).map_or(end, |range| range.segment.base_offset());
            if base < end {
                let expected =
                    format_args!("a base offset of {end} or more, where the segment before ends").to_string();
                self.find(number, 0, Flaw::new(Kind::SegmentOverlap, expected, base));
            }
        }
    }

    /// Removes what is after the last batch, and reports it.
    fn truncate(&mut self) {
        let (last, end) = self.reached;
        for number in last..self.ranges.len() {
            let (from, len) = (if number == last { end } else { 0 }, self.ranges.get(number).map(|r| r.segment.len()));
            if len.is_some_and(|len| len > from) || number > last {
                let found = format_args!("{} bytes, which are removed", len.unwrap_or(0) - from).to_string();
                self.find(
                    number,
                    from,
                    Flaw::new(Kind::FileGap, "the end of the log, as it is truncated at damage", found),
                );
            }
        }
    }
}

/// Repairs the log of a partition, or with `is_dry_run` returns what would be repaired. `progress` gets the bytes that were read.
///
/// # Errors
/// That of `progress`; an I/O error. A segment is then as it was or as it is to be.
pub fn repair(
    directory: &Path,
    options: RepairOptions<'_>,
    now: i64,
    progress: &dyn Fn(u64) -> Result<()>,
) -> Result<Repaired> {
    if !options.is_dry_run {
        remove_temporary_files(directory, options.config, now)?;
    }
    let limits = SegmentOptions { max_batch_bytes: MOST_BATCH_BYTES, ..SegmentOptions::default() };
    let listing = Listing::of(&directory.into())?;
    let logs = listing.segments.values().filter_map(|files| files.get(".log"));
    let opened = logs.map(|path| Ok(SegmentRange::whole(Arc::new(Segment::open(path, limits)?))));
    let ranges = opened.collect::<Result<Vec<_>>>()?;
    let mut repair = Repair {
        ranges: &ranges,
        options,
        cursor: new_cursor(),
        kept: ranges
            .iter()
            .map(|r| Kept { runs: Vec::new(), end_offset: r.segment.base_offset(), epoch: None })
            .collect(),
        reached: (0, 0),
        is_truncated: false,
        epoch: None,
        doubt: None,
        repaired: Repaired::default(),
    };
    let (mut batches, mut read, mut shown, mut looked) = (ValidBatches::new(&ranges), 0, 0, 0);
    batches.each(|number, header, batch| {
        repair.take(number, header, batch);
        read += batch.len() as u64;
        if read - looked >= CHUNK as u64 {
            looked = read;
            signals::look().map_err(|e| Error::io(directory, e))?;
        }
        if read - shown >= PROGRESS {
            shown = read;
            progress(read)?;
        }
        Ok(true)
    })?;
    repair.settle_epoch(None);
    let (found, unfinished) = (batches.findings, batches.unfinished);
    let whole: u64 = ranges.iter().map(|range| range.segment.len()).sum();
    let tail = unfinished.as_ref().map_or(0, |tail| ranges.last().map_or(0, |last| last.segment.len() - tail.offset));
    let without = |kept: &[Kept]| whole - tail - kept.iter().map(Kept::bytes).sum::<u64>();
    if options.truncates && (repair.is_truncated || without(&repair.kept) > 0) {
        repair.truncate();
    } else {
        repair.fill_ends();
        repair.find_overlaps();
    }
    let Repair { kept, reached: (last, _), is_truncated, mut repaired, .. } = repair;
    (repaired.left_out_bytes, repaired.unfinished_bytes) = (without(&kept), tail);
    repaired.findings.extend(found.into_iter().chain(unfinished));
    repaired.findings.sort_by(|a, b| (&a.path, a.offset).cmp(&(&b.path, b.offset)));
    let removes = options.truncates && (is_truncated || repaired.left_out_bytes > 0);
    let after = if removes { last + 1 } else { ranges.len() };
    repaired.end_offset = kept.iter().take(after).next_back().map_or(0, |kept| kept.end_offset);
    // The last ones first: if this is killed, the damage is still there for the next call.
    for (number, (range, kept)) in ranges.iter().zip(&kept).enumerate().rev() {
        let (base, len) = (range.segment.base_offset(), range.segment.len());
        let path = range.segment.path();
        if number >= after {
            repaired.changed.push(base);
            if !options.is_dry_run {
                SUFFIXES.iter().try_for_each(|suffix| remove(&file_path(directory, base, suffix)))?;
            }
        } else if kept.front() != Some(len) {
            repaired.changed.push(base);
            let is_cut_only = removes || repaired.left_out_bytes == 0;
            match kept.front().filter(|_| is_cut_only) {
                _ if options.is_dry_run => {}
                Some(end) => {
                    let file = OpenOptions::new().write(true).open(path).map_err(|e| Error::io(path, e))?;
                    file.set_len(end).and_then(|()| file.sync_all()).map_err(|e| Error::write_failed(path, e))?;
                }
                None => replace(range, &kept.runs)?,
            }
        }
    }
    if !options.is_dry_run {
        sync_directory(directory)?;
    }
    Ok(repaired)
}

/// Replaces a segment by what is kept of it.
fn replace(range: &SegmentRange, runs: &[Run]) -> Result<()> {
    let path = range.segment.path();
    let cleaned = with_end(path, ".cleaned");
    let fail = |e| Error::write_failed(&cleaned, e);
    let source = range.segment.open_source()?;
    let mut file = File::create(&cleaned).map_err(fail)?;
    let mut bytes = Vec::new();
    for run in runs {
        let mut at = run.begin;
        while at < run.end || run.begin == run.end {
            let left = usize_of(run.end - at);
            // A batch whose header changes is written at once.
            bytes.resize(if run.header.is_some() { left } else { left.min(CHUNK) }, 0);
            source.read_exact_at(&mut bytes, at).map_err(|e| Error::io(path, e))?;
            match &run.header {
                Some(header) if bytes.is_empty() => {
                    bytes.resize(HEADER_SIZE, 0);
                    header.write(&mut bytes);
                }
                Some(header) => header.write_uncovered(&mut bytes),
                None => {}
            }
            file.write_all(&bytes).map_err(fail)?;
            signals::look().map_err(|e| Error::io(path, e))?;
            at += bytes.len() as u64;
            if run.header.is_some() {
                break;
            }
        }
    }
    // Retention counts it if the records have no timestamps.
    let modified = fs::metadata(path).and_then(|found| found.modified()).map_err(|e| Error::io(path, e))?;
    file.set_modified(modified).and_then(|()| file.sync_all()).map_err(fail)?;
    keep_original(path)?;
    fs::rename(&cleaned, path).map_err(fail)
}

/// Gives a segment a second name, under which a broker ignores it.
fn keep_original(path: &Path) -> Result<()> {
    for number in 1.. {
        let name = if number == 1 { with_end(path, DAMAGED) } else { with_end(path, &format!("{DAMAGED}.{number}")) };
        match fs::hard_link(path, &name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                // A repair that was killed gave it this name.
                let identity = |path: &Path| fs::metadata(path).map(|found| FileIdentity::of(&found));
                let fail = |e| Error::io(&name, e);
                if identity(path).map_err(fail)? == identity(&name).map_err(fail)? {
                    break;
                }
            }
            // A file system without hard links.
            Err(_) => {
                let copied = fs::copy(path, &name).and_then(|_| File::open(&name)?.sync_all());
                return copied.map_err(|e| Error::write_failed(&name, e));
            }
            Ok(()) => break,
        }
    }
    Ok(())
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::kafka::compat::Compat;
    use crate::kafka::test_data::{SEVEN, hex, segment};

    fn repaired(directory: &Path, truncates: bool, is_dry_run: bool) -> Repaired {
        let config = TopicConfig::parse(&HashMap::new(), Compat::parse("3.9.2").unwrap()).unwrap();
        let options = RepairOptions { config: &config, epochs: &[], gaps: &[], truncates, is_dry_run };
        repair(directory, options, 0, &|_| Ok(())).unwrap()
    }

    #[test]
    fn a_batch_is_left_out_and_the_end_of_the_segment_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = hex(SEVEN);
        // The leader epoch of the third batch, the records of the last one.
        first[244 + 15] ^= 1;
        first[709 + 70] ^= 1;
        let path = segment(dir.path(), 100, &first, None, None);
        segment(dir.path(), 112, &[], None, None);
        let planned = repaired(path.parent().unwrap(), false, true);
        assert_eq!(std::fs::read(&path).unwrap(), first);
        let found = repaired(path.parent().unwrap(), false, false);
        let places = |of: &Repaired| of.findings.iter().map(|f| (f.offset, f.kind)).collect::<Vec<_>>();
        assert_eq!(places(&found), [(244 + 12, Kind::LeaderEpoch), (709, Kind::BatchCrc)]);
        assert_eq!(places(&planned), places(&found));
        assert_eq!((found.batches, found.restored_batches, found.left_out_bytes), (6, 1, 99));
        assert_eq!((found.changed, found.end_offset), (vec![100], 112));
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(whole[..709], hex(SEVEN)[..709]);
        let empty = Header::parse(&whole[709..], 709, 61).unwrap();
        assert_eq!((empty.base_offset, empty.last_offset, empty.count), (110, 111, Some(0)));
        assert!(empty.check_crc(&whole[709..]).is_ok());
        assert_eq!(std::fs::read(with_end(&path, DAMAGED)).unwrap(), first);
        assert_eq!(repaired(path.parent().unwrap(), false, false).changed, Vec::<i64>::new());
    }

    #[test]
    fn a_truncation_ends_the_log_at_the_damage() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = hex(SEVEN);
        first[244 + 70] ^= 1;
        let path = segment(dir.path(), 100, &first, None, None);
        let later = segment(dir.path(), 112, &[], None, None);
        let found = repaired(path.parent().unwrap(), true, false);
        assert_eq!((found.batches, found.truncated_batches, found.end_offset), (2, 4, 103));
        assert_eq!(found.changed, [112, 100]);
        assert_eq!(std::fs::read(&path).unwrap(), hex(SEVEN)[..244]);
        assert!(!later.exists());
    }
}
