//! Compute what a broker does with its log at startup: where its walk starts, where the log ends, and what is
//! dispatched again.
//!
//! Source: upstream `CommitLog#recoverNormally`, `#recoverAbnormally`, `#isMappedFileMatchedRecover`,
//! `StoreCheckpoint#getMinTimestamp`, `DefaultMessageStore#start`. Nothing is changed here. A broker with `DLedger`, or
//! with queues in `RocksDB`, follows other rules.

use crate::error::{Error, Result};
use crate::io::Location;
use crate::io::ReadAt as _;
use crate::io::disk::settle;
use crate::io::regular_file::open_file;
use crate::rocketmq::checkpoint::Timestamps;
use crate::rocketmq::commit_log::frame::{BLANK_LEN, MAGIC_BLANK, MAGIC_V1, MAGIC_V2};
use crate::rocketmq::commit_log::log::CommitLog;
use crate::rocketmq::commit_log::lookup::LookUp;
use crate::rocketmq::commit_log::scan::walk::uncommitted;
use crate::rocketmq::offset_files::{self, Gap, OffsetFile};
use crate::rocketmq::release::Release;
use crate::time_range::TimeRange;

/// This many ms are subtracted from the checkpoint.
pub(crate) const CHECKPOINT_SLACK_MS: i64 = 3000;
/// Number of files that recovery walks after a clean shutdown (4.9.3).
const FILES_OF_CLEAN_START: usize = 3;

/// The conditions at a broker's startup.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The broker was shut down cleanly: the file `abort` does not exist.
    pub last_exit_ok: bool,
    /// The store's checkpoint; zeros without one.
    pub timestamps: Timestamps,
    /// Log offset after the last message in any consume queue; -1 without messages.
    pub queue_end: i64,
    /// The broker's setting messageIndexSafe.
    pub message_index_safe: bool,
    /// The broker's release.
    pub compat: Release,
    /// After an unclean exit, bring the files of the walk to the disk and read them from there. For a caller that writes next.
    pub settle: bool,
}

/// The repairs of a broker at startup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Start of the file where the walk starts.
    pub begin: u64,
    /// The end of the log. The broker truncates the log there.
    pub end: u64,
    /// Messages from this offset on are dispatched to queues and index; `end` if there are none.
    pub dispatch: u64,
}

impl CommitLog {
    /// Returns what a broker would do with this log at startup.
    ///
    /// # Errors
    /// `Corrupt` for a writer if the name of a file does not fit; an I/O error, with the path.
    pub fn recovery(&self, start: Start) -> Result<Recovery> {
        if start.settle {
            offset_files::refuse_misnamed(&self.directories)?;
        }
        let files = self.files()?;
        let Some(first) = files.first() else {
            return Ok(Recovery { begin: 0, end: 0, dispatch: 0 });
        };
        let min = first.start;
        let queue_end = start.queue_end.max(0).cast_unsigned();
        let number = if start.last_exit_ok {
            clean_begin(&files, queue_end, start.compat)
        } else {
            self.unclean_begin(&files, start)?
        };
        let files = files.get(number..).unwrap_or_default().to_vec();
        let begin = files.first().map_or(min, |file| file.start);
        for file in files.iter().filter(|_| start.settle && !start.last_exit_ok) {
            settle(&file.path, &open_file(file.path.local()?, cfg!(windows))?)?;
        }
        let mut walk = self.walk(files, begin, u64::MAX).starting_at_begin()?;
        while walk.advance()? {}
        // If the last file is full, the walk ends at its BLANK frame, and so does the log.
        let end = match walk.stop() {
            Some(stop) if stop.refusal.is_none() => walk.last_blank().unwrap_or(stop.phy_offset),
            Some(stop) => stop.phy_offset,
            None => begin,
        };
        let dispatch = if start.last_exit_ok { queue_end.max(min) } else { begin };
        Ok(Recovery { begin, end, dispatch: dispatch.min(end) })
    }

    /// Returns the file that holds an offset, or the last one before it, and the offset in this file; without such a file the
    /// directory and the offset.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn place(&self, phy_offset: u64) -> Result<(Location, u64)> {
        let file = self.files()?.into_iter().rev().find(|file| file.start <= phy_offset);
        let outside = || (self.path().to_owned(), phy_offset);
        Ok(file.map_or_else(outside, |file| (file.path, phy_offset - file.start)))
    }

    /// Returns whether a batch that its writer never completed begins at this offset: its messages were refused.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn is_uncommitted(&self, phy_offset: u64) -> Result<bool> {
        let files = self.files()?;
        let Some(file) = files.iter().find(|file| (file.start..file.end()).contains(&phy_offset)) else {
            return Ok(false);
        };
        let Some(source) = self.open_file(file)? else { return Ok(false) };
        Ok(uncommitted(&*source, file, phy_offset - file.start)?.is_some())
    }

    /// Returns whether the only file of the log is truncated: it has no space for a BLANK frame after the last message,
    /// or its last frame is longer than the file.
    ///
    /// The length of such a file is not the length of the log's files.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn is_cut_short(&self, end_phy_offset: u64) -> Result<bool> {
        let files = self.files()?;
        let [only] = files.as_slice() else {
            return Ok(false);
        };
        let left = only.end().saturating_sub(end_phy_offset);
        if left < BLANK_LEN {
            return Ok(true);
        }
        let mut head = [[0u8; 4]; 2];
        let source = self.open.get(only, self.options.access)?;
        let read = source.read_exact_at(head.as_flattened_mut(), end_phy_offset.saturating_sub(only.start));
        read.map_err(|e| Error::io(&only.path, e))?;
        let [length, magic] = head.map(u32::from_be_bytes);
        Ok([MAGIC_V1, MAGIC_V2, MAGIC_BLANK].contains(&magic) && u64::from(length) > left)
    }

    /// Returns the newest file whose first message is known to be on the disk, with queues and index. Otherwise the
    /// first file.
    fn unclean_begin(&self, files: &[OffsetFile], start: Start) -> Result<usize> {
        let times = start.timestamps;
        let limit =
            times.physic_msg_timestamp.min(times.logics_msg_timestamp).saturating_sub(CHECKPOINT_SLACK_MS).max(0);
        let limit = if start.message_index_safe { limit.min(times.index_msg_timestamp) } else { limit };
        let mut look_up = LookUp::new(self)?;
        for (number, file) in files.iter().enumerate().rev() {
            let time = look_up.first_store_timestamp(file)?;
            if time.is_some_and(|time| time != 0 && time <= limit) {
                return Ok(number);
            }
        }
        Ok(0)
    }

    /// Returns the files, each with the store time of its first message; `None` if no message is at its beginning.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn file_times(&self) -> Result<Vec<(OffsetFile, Option<i64>)>> {
        let mut look_up = LookUp::new(self)?;
        self.files()?
            .into_iter()
            .map(|file| {
                let time = look_up.first_store_timestamp(&file)?;
                Ok((file, time))
            })
            .collect()
    }
}

impl CommitLog {
    /// Returns the ranges of the log that may hold messages of a time range, from the times of each file's first
    /// message.
    ///
    /// The broker's clock may have stepped by `slack_ms` within a file. A gap between two files belongs to the file before it.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn ranges_in_time(&self, times: TimeRange, slack_ms: i64) -> Result<Vec<(u64, u64)>> {
        let files = if times.is_all() {
            // A remote log has a request for each of them.
            self.files()?.into_iter().map(|file| (file, None)).collect()
        } else {
            self.file_times()?
        };
        let gaps = self.gaps()?;
        let missing_to = gaps.last().map_or(0, |gap| gap.end);
        let mut ranges = aside_ranges(&gaps, &files, times, slack_ms);
        for (number, (file, first)) in files.iter().enumerate() {
            let next = files.get(number + 1);
            let after = next.and_then(|(_, time)| *time);
            let end = next.map_or_else(|| file.end().max(missing_to), |(next, _)| next.start);
            let may_hold = match (first, after) {
                (Some(first), Some(after)) => {
                    let (low, high) = ((*first).min(after), (*first).max(after));
                    times.meets(low.saturating_sub(slack_ms), high.saturating_add(slack_ms))
                }
                (Some(first), None) => first.saturating_sub(slack_ms) <= times.end_ms,
                (None, _) => true,
            };
            match ranges.last_mut() {
                _ if !may_hold => {}
                Some(last) if last.1 == file.start => last.1 = end,
                _ => ranges.push((file.start, end)),
            }
        }
        Ok(ranges)
    }
}

impl CommitLog {
    /// Returns those of [`CommitLog::gaps`] whose messages may have been stored in a time range.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn gaps_in_time(&self, times: TimeRange, slack_ms: i64) -> Result<Vec<Gap>> {
        let mut gaps = self.gaps()?;
        if !gaps.is_empty() {
            let ranges = self.ranges_in_time(times, slack_ms)?;
            gaps.retain(|gap| ranges.iter().any(|(begin, end)| *begin < gap.end && gap.begin < *end));
        }
        Ok(gaps)
    }
}

/// Returns the ranges before the first file whose files were set aside and whose messages may be in a time range.
fn aside_ranges(gaps: &[Gap], files: &[(OffsetFile, Option<i64>)], times: TimeRange, slack_ms: i64) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let (begin, time) = files.first().map_or((u64::MAX, None), |(file, time)| (file.start, *time));
    let is_over = time.is_some_and(|time| times.begin_ms > time.saturating_add(slack_ms));
    for gap in gaps.iter().filter(|gap| gap.begin < begin && !is_over) {
        match ranges.last_mut() {
            Some(last) if last.1 == gap.begin => last.1 = gap.end,
            _ => ranges.push((gap.begin, gap.end)),
        }
    }
    ranges
}

fn clean_begin(files: &[OffsetFile], queue_end: u64, compat: Release) -> usize {
    if compat == Release::V4_9_3 {
        files.len().saturating_sub(FILES_OF_CLEAN_START)
    } else {
        files.iter().rposition(|file| file.start <= queue_end).unwrap_or(0)
    }
}
