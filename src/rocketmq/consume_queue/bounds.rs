//! Where a queue begins and ends.
//!
//! Neither is written down. A broker finds the end at a start by walking the last three files up to the first unit that
//! cannot be true, and cuts off what lies behind the end of the log (upstream `ConsumeQueue#recover`,
//! `#truncateDirtyLogicFiles`); the beginning is the first unit of the first file that leads to what the log still holds
//! (`#correctMinOffset`). Those rules are kept in compat, faults included. Without it a bad unit in between hides
//! nothing: the queue ends after the last unit that can be true, and filling is not counted as a message.

use super::queue::{ConsumeQueue, Kind, Numbered};
use super::unit::BatchUnit;
use crate::error::Result;
use crate::rocketmq::offset_files::OffsetFile;
use crate::rocketmq::release::Release;

/// Units that are looked at together.
const UNITS_AT_ONCE: u64 = 4096;

/// What of a queue is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Queue offset of the first message.
    pub(super) min: i64,
    /// Queue offset after the last message.
    pub(super) max: i64,
    /// Number of the unit after the last.
    pub(super) units: u64,
}

/// Bounds by the rule that the queue was opened with.
pub(super) fn of(queue: &ConsumeQueue, files: &[OffsetFile]) -> Result<Bounds> {
    match queue.options.compat {
        Some(compat) => of_broker(queue, files, compat),
        None => of_messages(queue, files),
    }
}

/// Number of the unit after the last one that can be true.
pub(super) fn written_end(queue: &ConsumeQueue, files: &[OffsetFile]) -> Result<u64> {
    for file in files.iter().rev() {
        let first = file.start.div_ceil(queue.unit_bytes());
        let mut before = file.end() / queue.unit_bytes();
        // From the end: most of a file may never have been written.
        while before > first {
            let begin = before.saturating_sub(UNITS_AT_ONCE).max(first);
            let mut end = 0;
            if !queue.is_unwritten(file, begin, before)? {
                queue.read_file(file, begin, before, |Numbered { number, unit }| {
                    if unit.is_valid() {
                        end = number + 1;
                    }
                    true
                })?;
            }
            if end > 0 {
                return Ok(end);
            }
            before = begin;
        }
    }
    Ok(files.first().map_or(0, |file| file.start / queue.unit_bytes()))
}

/// The first unit before `end` that `wanted` takes.
fn first(
    queue: &ConsumeQueue,
    files: &[OffsetFile],
    end: u64,
    wanted: impl Fn(BatchUnit) -> bool,
) -> Result<Option<Numbered>> {
    let mut found = None;
    for file in files {
        queue.read_file(file, 0, end, |unit| {
            if wanted(unit.unit) {
                found = Some(unit);
            }
            found.is_none()
        })?;
        if found.is_some() {
            break;
        }
    }
    Ok(found)
}

fn of_messages(queue: &ConsumeQueue, files: &[OffsetFile]) -> Result<Bounds> {
    let units = written_end(queue, files)?;
    let log_begin = log_begin(queue)?.unwrap_or(0);
    let max = max_offset(queue, files, units)?;
    let begin = first(queue, files, units, |unit| {
        unit.is_valid() && unit.unit.is_message() && unit.unit.phy_offset >= log_begin
    })?;
    Ok(Bounds { min: begin.map_or(max, |begin| begin.unit.base_offset), max, units })
}

/// Queue offset after the unit before `end`.
fn max_offset(queue: &ConsumeQueue, files: &[OffsetFile], end: u64) -> Result<i64> {
    if queue.kind() == Kind::Plain {
        return Ok(end.cast_signed());
    }
    let last = end.checked_sub(1).map(|last| queue.unit(files, last)).transpose()?.flatten();
    Ok(last.map_or(0, |last| last.unit.end_offset()))
}

fn log_begin(queue: &ConsumeQueue) -> Result<Option<i64>> {
    queue.options.commit_log.as_ref().map(|log| Ok(log.min_offset()?.cast_signed())).transpose()
}

/// COMPAT(rocketmq `ConsumeQueue#recover`, `#truncateDirtyLogicFiles`, `#correctMinOffset`).
fn of_broker(queue: &ConsumeQueue, files: &[OffsetFile], compat: Release) -> Result<Bounds> {
    let mut units = recovered_end(queue, files)?;
    let mut left: Vec<OffsetFile> =
        files.iter().filter(|file| file.start / queue.unit_bytes() <= units).cloned().collect();
    let log_end = match (queue.options.log_end, &queue.options.commit_log) {
        (None, Some(log)) => Some(log.max_offset()?.cast_signed()),
        (log_end, _) => log_end,
    };
    if let Some(log_end) = log_end {
        units = truncated_end(queue, &mut left, log_end)?;
    }
    let max = max_offset(queue, &left, units)?;
    let log_begin = log_begin(queue)?.unwrap_or(0);
    if compat != Release::V4_9_3 {
        let last = units.checked_sub(1).map(|last| queue.unit(&left, last)).transpose()?.flatten();
        if last.is_none_or(|last| last.unit.unit.phy_offset < log_begin) {
            return Ok(Bounds { min: max, max, units });
        }
    }
    // Only the first file is looked at.
    let first = first(queue, left.get(..1).unwrap_or_default(), units, |unit| unit.unit.phy_offset >= log_begin)?;
    Ok(Bounds { min: first.map_or(0, |first| first.unit.base_offset), max, units })
}

/// Where the walk over the last three files ends.
fn recovered_end(queue: &ConsumeQueue, files: &[OffsetFile]) -> Result<u64> {
    let mut end = files.first().map_or(0, |file| file.start / queue.unit_bytes());
    for file in files.get(files.len().saturating_sub(3)..).unwrap_or_default() {
        end = file.start / queue.unit_bytes();
        let mut stopped = false;
        queue.read_file(file, 0, u64::MAX, |Numbered { number, unit }| {
            stopped = !unit.is_valid();
            if !stopped {
                end = number + 1;
            }
            !stopped
        })?;
        if stopped {
            break;
        }
    }
    Ok(end)
}

/// Takes away what lies behind the end of the log. The first unit of the last file is not asked whether it can be true.
fn truncated_end(queue: &ConsumeQueue, files: &mut Vec<OffsetFile>, log_end: i64) -> Result<u64> {
    while let Some(file) = files.last() {
        let begin = file.start.div_ceil(queue.unit_bytes());
        let mut end = None;
        queue.read_file(file, 0, u64::MAX, |Numbered { number, unit }| {
            let behind = unit.unit.phy_offset >= log_end;
            let keeps = if number == begin { !behind } else { unit.is_valid() && !behind };
            if keeps {
                end = Some(number + 1);
            }
            keeps
        })?;
        match end {
            Some(end) => return Ok(end),
            None => files.pop(),
        };
    }
    Ok(0)
}
