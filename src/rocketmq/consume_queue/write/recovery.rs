//! Opens an existing queue for writing: finds its end and truncates it there.
//!
//! As at a broker's start, the last three files are walked up to the first invalid unit (upstream `ConsumeQueue#recover`). Units
//! of messages after the end of the log are removed (`#truncateDirtyLogicFiles`). There are differences:
//!
//! - After an unclean exit all files since the checkpoint are walked, because a power loss may have lost any page of them, or a
//!   whole file. A broker reads the last three, and dispatches nothing before the queue's end.
//! - If the last unit may be torn at the edge of a lost sector, it is written again ([`RecoveredQueue::doubtful`]).
//! - Removed units become zero and files without a message are deleted. So no later start can read a removed unit, or count a
//!   unit of zeros.
//! - Filling after the last message is not a unit. If a queue holds only filling, a broker assumes that it ends at 2 GiB of the log.
//! - A unit whose extension unit is missing ends the queue ([`ExtensionCheck`]).
//! - A unit is stale if it refers to an earlier offset than the unit before it: it is left over from an earlier truncation.
//! - If units after the end refer to messages of the log, the queue lost units. This is a finding.

use std::path::Path;

use super::extension::ExtensionCheck;
use super::queue::QueueEnd;
use crate::error::{Error, Result};
use crate::io::disk::settle;
use crate::io::regular_file::open_file;
use crate::report::{self, Report};
use crate::rocketmq::consume_queue::read::{
    ConsumeQueue, Kind, Numbered, Options, describe, is_extension_address, offset_of,
};
use crate::rocketmq::consume_queue::unit::BatchUnit;
use crate::rocketmq::offset_files::OffsetFile;
use crate::rocketmq::truncate::{Truncated, truncate_files, truncation, written_len};

/// The number of files that a start walks.
const WALKED: usize = 3;
/// The smallest part of a file that a power loss loses.
const SECTOR: u64 = 512;
/// Position and length of the tags code in a unit.
const TAGS_CODE_AT: u64 = 12;
const TAGS_CODE_LEN: u64 = 8;

/// The result of opening a queue.
#[derive(Debug)]
pub(super) struct RecoveredQueue {
    /// The end of the queue.
    pub(super) end: QueueEnd,
    /// Address of the extension unit of the last message with one.
    pub(super) address: Option<i64>,
    /// Units of messages that were removed.
    pub(super) units_cut: u64,
    pub(super) truncated: Truncated,
    /// The queue lost units of messages before the end of the log.
    pub(super) is_damaged: bool,
    /// The last unit, after an unclean exit, if the edge of a sector is inside its tags code. The end is before it.
    pub(super) doubtful: Option<BatchUnit>,
}

impl RecoveredQueue {
    /// Finds the end of the queue in a directory and truncates it there, unless it is a dry run. `extension` is the directory of its
    /// extension files, which may be missing. After an unclean exit all messages from the offset `dispatched` on are dispatched
    /// again.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(super) fn open(
        directory: &Path,
        extension: &Path,
        file_size: u64,
        log_end: i64,
        dispatched: Option<i64>,
        dry_run: bool,
        checked: &mut Report,
    ) -> Result<Self> {
        let queue = ConsumeQueue::open(directory, Options::default())?;
        let files = queue.files()?;
        let mut extension = ExtensionCheck::open(extension)?;
        let first = match dispatched {
            None => files.len(),
            Some(dispatched) => first_since(&queue, &files, dispatched)?,
        };
        for file in files.iter().skip(first).filter(|_| !dry_run) {
            settle(&file.path, &open_file(&file.path, cfg!(windows))?)?;
        }
        let from = first.min(files.len().saturating_sub(WALKED));
        let (walk, mut last) = find_end(&queue, &files, from, file_size, log_end, &mut extension)?;
        let doubtful = last.filter(|last| dispatched.is_some_and(|begin| may_be_torn(&queue, *last, file_size, begin)));
        let before = match doubtful.and_then(|last| last.number.checked_sub(1)) {
            Some(before) => {
                queue.unit(&files, before)?.filter(|unit| unit.unit.is_valid() && unit.unit.unit.is_message())
            }
            None => None,
        };
        last = before.or(last);
        let doubtful = doubtful.filter(|_| before.is_some()).map(|last| last.unit);
        let number = last.map_or(0, |last| last.number + 1);
        let end = QueueEnd {
            position: number * queue.unit_bytes(),
            next: last.map_or(-1, |_| number.cast_signed()),
            expected: doubtful.map_or_else(|| expected(queue.kind(), &walk, last), |unit| unit.base_offset),
            log_end: last.map_or(-1, |last| last.unit.unit.end()),
        };
        let behind = number + u64::from(doubtful.is_some());
        let (units_cut, is_damaged) = look_behind(&queue, &files, behind, &walk, log_end, checked)?;
        let truncated = if dry_run {
            truncation(&files, end.position)?
        } else {
            let truncated = truncate_files(&files, end.position)?;
            extend_last(&files, end.position, file_size)?;
            truncated
        };
        Ok(Self { end, address: walk.address, units_cut, truncated, is_damaged, doubtful })
    }
}

/// The result of a walk.
#[derive(Clone, Copy, Debug)]
struct Walk {
    /// The last unit of a message.
    last: Option<Numbered>,
    address: Option<i64>,
    /// Number of the unit after the last valid one, filling included.
    end: u64,
    /// The unit that ended the walk; `None` at the end of the last file, or of a file that is too short.
    stop: Option<Numbered>,
    /// True if that unit has no extension unit of its own.
    is_unextended: bool,
    /// The file that ended the walk would begin here, if it were there.
    missing: Option<u64>,
    is_whole: bool,
}

/// Returns the number of the first file with units of messages at or after an offset of the log, or of the file before it.
fn first_since(queue: &ConsumeQueue, files: &[OffsetFile], phy_offset: i64) -> Result<usize> {
    for (number, file) in files.iter().enumerate().rev() {
        let unit = queue.unit(files, file.start.div_ceil(queue.unit_bytes()))?.map(|first| first.unit);
        if unit.is_some_and(|unit| unit.is_valid() && unit.unit.is_message() && unit.unit.phy_offset < phy_offset) {
            return Ok(number);
        }
    }
    Ok(0)
}

/// Returns whether the edge of a sector is inside the tags code of a unit that was written since the last checkpoint. If the
/// sector after it is lost, the unit seems valid.
fn may_be_torn(queue: &ConsumeQueue, last: Numbered, file_size: u64, dispatched: i64) -> bool {
    let at = last.number * queue.unit_bytes() % file_size + TAGS_CODE_AT;
    let edge = at.next_multiple_of(SECTOR);
    queue.kind() == Kind::Plain
        && last.unit.unit.phy_offset >= dispatched
        && !is_extension_address(last.unit.unit.tags_code)
        && at < edge
        && edge < at + TAGS_CODE_LEN
}

fn find_end(
    queue: &ConsumeQueue,
    files: &[OffsetFile],
    from: usize,
    file_size: u64,
    log_end: i64,
    extension: &mut ExtensionCheck,
) -> Result<(Walk, Option<Numbered>)> {
    let mut from = from;
    let mut walk = walk(queue, files.get(from..).unwrap_or_default(), file_size, log_end, extension)?;
    let mut last = walk.last;
    while last.is_none() && from > 0 {
        from -= 1;
        let earlier = self::walk(queue, files.get(from..=from).unwrap_or_default(), file_size, log_end, extension)?;
        last = earlier.last;
        if earlier.is_whole {
            walk.address = earlier.address;
        } else {
            walk = earlier;
        }
    }
    Ok((walk, last))
}

fn walk(
    queue: &ConsumeQueue,
    files: &[OffsetFile],
    file_size: u64,
    log_end: i64,
    extension: &mut ExtensionCheck,
) -> Result<Walk> {
    let end = extension.end();
    let walk = walk_once(queue, files, file_size, log_end, extension)?;
    // If an address was used twice, the queue ends at or after the first unit that refers to it.
    if extension.end() < end { walk_once(queue, files, file_size, log_end, extension) } else { Ok(walk) }
}

fn walk_once(
    queue: &ConsumeQueue,
    files: &[OffsetFile],
    file_size: u64,
    log_end: i64,
    extension: &mut ExtensionCheck,
) -> Result<Walk> {
    let begin = files.first().map_or(0, |file| file.start / queue.unit_bytes());
    let mut walk =
        Walk { last: None, address: None, end: begin, stop: None, is_unextended: false, missing: None, is_whole: true };
    let mut before = 0;
    extension.restart();
    let mut next = None;
    for file in files {
        walk.missing = next.filter(|start| *start != file.start);
        next = Some(file.start + file_size);
        walk.is_whole = walk.missing.is_none();
        if !walk.is_whole {
            break;
        }
        let mut failed = None;
        queue.read_file(file, 0, u64::MAX, |unit| {
            if !is_in_order(unit.unit, before, log_end) {
                walk.stop = Some(unit);
                return false;
            }
            match extension.is_valid(unit.unit.unit.tags_code) {
                Ok(true) => {}
                Ok(false) => {
                    (walk.stop, walk.is_unextended) = (Some(unit), true);
                    return false;
                }
                Err(error) => {
                    failed = Some(error);
                    return false;
                }
            }
            walk.end = unit.number + 1;
            if unit.unit.unit.is_message() {
                before = unit.unit.unit.end();
                walk.last = Some(unit);
                walk.address =
                    Some(unit.unit.unit.tags_code).filter(|code| is_extension_address(*code)).or(walk.address);
            }
            true
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        walk.is_whole = walk.stop.is_none() && file.len == file_size;
        if !walk.is_whole {
            break;
        }
    }
    Ok(walk)
}

/// Returns true for filling, and for a message of the log after the previous one.
fn is_in_order(unit: BatchUnit, before: i64, log_end: i64) -> bool {
    let is_in_log = unit.unit.phy_offset >= before && unit.unit.end() <= log_end;
    unit.is_valid() && (unit.unit.is_pre_blank() || is_in_log)
}

/// Returns the queue offset of the next message; -1 if the queue does not show it.
fn expected(kind: Kind, walk: &Walk, last: Option<Numbered>) -> i64 {
    match (kind, last) {
        // If filling or removed messages end the queue, their offsets are reused.
        (Kind::Plain, _) if walk.end > 0 => walk.end.cast_signed(),
        (Kind::Plain, _) => -1,
        (Kind::Batch, Some(last)) => last.unit.end_offset(),
        (Kind::Batch, None) => walk.stop.filter(|stop| stop.unit.is_valid()).map_or(-1, |stop| stop.unit.base_offset),
    }
}

/// Checks the units that will be removed. Counts the units of messages after the end of the log, and returns whether there are
/// others.
fn look_behind(
    queue: &ConsumeQueue,
    files: &[OffsetFile],
    number: u64,
    walk: &Walk,
    log_end: i64,
    checked: &mut Report,
) -> Result<(u64, bool)> {
    let position = number * queue.unit_bytes();
    let (mut cut, mut damage, mut before) = (0, None, walk.last.map_or(0, |last| last.unit.unit.end()));
    for file in files.iter().filter(|file| file.end() > position) {
        let begin = position.saturating_sub(file.start);
        let data = written_len(&file.path, begin)?;
        let end = (file.start + begin + data).div_ceil(queue.unit_bytes());
        queue.read_file(file, number, end, |found| {
            let unit = found.unit.unit;
            if !found.unit.is_valid() {
                let is_zero = unit.phy_offset == 0 && unit.size == 0 && unit.tags_code == 0;
                damage = damage.or((!is_zero).then_some((file, found, before)));
            } else if unit.end() > log_end {
                cut += u64::from(unit.is_message());
                before = before.max(unit.phy_offset);
            } else if unit.is_message() {
                damage = damage.or(Some((file, found, before)));
            }
            true
        })?;
    }
    let Some((file, found, before)) = damage else {
        return Ok((cut, false));
    };
    if let Some(missing) = walk.missing {
        checked.find(&file.path, 0, report::Kind::FileGap, format!("a file that begins at {missing}"), file.start);
        return Ok((cut, true));
    }
    let stop = walk.stop.filter(|stop| !stop.unit.is_valid() || walk.is_unextended);
    let holds = |at: u64| files.iter().find(|file| file.start <= at && at < file.end());
    let place = stop.and_then(|stop| Some((stop, holds(stop.number * queue.unit_bytes())?)));
    if let Some((stop, file)) = place {
        let at = stop.number * queue.unit_bytes() - file.start;
        if walk.is_unextended {
            let extension = offset_of(stop.unit.unit.tags_code);
            let expected = format!("the tags code at {extension} in the extension files");
            checked.find(&file.path, at, report::Kind::QueueTags, expected, "none, or one of another message");
        } else {
            let expected = "an offset of 0 or more and a size above 0";
            checked.find(&file.path, at, report::Kind::QueueUnit, expected, describe(stop.unit.unit));
        }
    } else {
        let at = found.number * queue.unit_bytes() - file.start;
        let expected = format!("a message at offset {before} or behind");
        checked.find(&file.path, at, report::Kind::QueueOrder, expected, describe(found.unit.unit));
    }
    Ok((cut, true))
}

/// Checks that all files of a queue, listed with their whole lengths, have one size; the last one may be shorter.
pub(super) fn check_files(files: &[OffsetFile], file_size: u64) -> Result<()> {
    for file in files {
        if file.start % file_size != 0 {
            let expected = format!("a name that is a multiple of {file_size}");
            return Err(Error::corrupt(&file.path, 0, expected, file.start.to_string()));
        }
        let len = file.len;
        if len > file_size {
            let expected = format!("{file_size} bytes, as most files here");
            return Err(Error::corrupt(&file.path, file_size, expected, format!("{len} bytes")));
        }
    }
    Ok(())
}

/// Extends the last file to its whole length.
fn extend_last(files: &[OffsetFile], position: u64, file_size: u64) -> Result<()> {
    let last = files.iter().rfind(|file| file.start < position);
    let Some(file) = last.filter(|file| file.len < file_size) else {
        return Ok(());
    };
    let opened = open_file(&file.path, true)?;
    opened.set_len(file_size).and_then(|()| opened.sync_all()).map_err(|e| Error::io(&file.path, e))
}
