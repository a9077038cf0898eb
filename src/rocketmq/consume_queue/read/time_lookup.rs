//! Finds the queue offset of a store time.
//!
//! The times are those of the messages, read from the log. A queue of up to [`READ_WHOLE`] units is read whole, so the answer
//! does not depend on the broker's clock. A longer queue is searched by bisection. The answer is still exact if the clock stepped
//! back by at most `clock_slack_ms`.

use std::cell::RefCell;
use std::time::UNIX_EPOCH;

use super::batch_time_lookup;
use super::queue::{Boundary, Bounds, ConsumeQueue, Kind, bounds_of};
use crate::error::{Error, Result};
use crate::io::{i64_of, storage};
use crate::rocketmq::commit_log::StoreTimes;
use crate::rocketmq::offset_files::OffsetFile;
use crate::rocketmq::release::Release;

/// A queue of up to this many units is read whole, in about ten milliseconds.
const READ_WHOLE: u64 = 65_536;

/// The units of a queue and the times of their messages.
struct Times<'a> {
    queue: &'a ConsumeQueue,
    files: &'a [OffsetFile],
    log: RefCell<StoreTimes<'a>>,
}

impl Times<'_> {
    /// Returns the store time of a unit's message; `None` if the message does not exist or was deleted.
    fn of(&self, number: u64) -> Result<Option<i64>> {
        let Some(unit) = self.queue.unit(self.files, number)?.filter(|unit| unit.unit.unit.is_message()) else {
            return Ok(None);
        };
        self.log.borrow_mut().of(unit.unit.unit.phy_offset, unit.unit.unit.size)
    }

    /// Returns the first unit from `number` on, before `end`, whose time is known.
    fn from(&self, number: u64, end: u64) -> Result<Option<(u64, i64)>> {
        for number in number..end {
            if let Some(time) = self.of(number)? {
                return Ok(Some((number, time)));
            }
        }
        Ok(None)
    }

    /// Returns the first number in `begin..end` from which on no time is below `time`, provided that times never fall.
    fn halve(&self, begin: u64, end: u64, time: i64) -> Result<u64> {
        let (mut low, mut high) = (begin, end);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.from(middle, high)? {
                Some((number, found)) if found < time => low = number + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }
}

impl ConsumeQueue {
    /// Returns the queue offset of a store time in ms.
    ///
    /// # Errors
    /// `InvalidArgument` without a commit log; an I/O error, with the path.
    pub fn offset_by_time(&self, time: i64, boundary: Boundary) -> Result<i64> {
        let Some(log) = &self.options.commit_log else {
            let text = format!("{}: expected a queue that was opened with its commit log", self.path().display());
            return Err(Error::InvalidArgument(text));
        };
        let files = self.files()?;
        let bounds = bounds_of(self, &files)?;
        if self.options.compat.is_some() && self.kind() == Kind::Batch {
            return batch_time_lookup::offset_by_time(self, &files, bounds, time, boundary);
        }
        let times = Times { queue: self, files: &files, log: RefCell::new(log.store_times()?) };
        if self.options.compat == Some(Release::V4_9_3) {
            return nearest(&times, bounds, time);
        }
        let begin = files.first().map_or(0, |file| file.start / self.unit_bytes());
        let slack = if self.options.compat.is_some() { 0 } else { self.options.clock_slack_ms.max(0) };
        let whole = self.options.compat.is_none() && bounds.units.saturating_sub(begin) <= READ_WHOLE;
        let found = match boundary {
            Boundary::Lower => {
                let (low, high) = if whole {
                    (begin, bounds.units)
                } else {
                    // No earlier message can come after a message of this time. If the clock stepped back, a later one may come
                    // before it.
                    let high = times.halve(begin, bounds.units, time)?;
                    (times.halve(begin, high, time.saturating_sub(slack))?, high)
                };
                first_from(&times, low, high, time)?.unwrap_or(high)
            }
            Boundary::Upper => {
                let after = time.saturating_add(1);
                let (low, high) = if whole {
                    (begin, bounds.units)
                } else {
                    let low = times.halve(begin, bounds.units, after)?;
                    (low, times.halve(low, bounds.units, after.saturating_add(slack))?)
                };
                match last_up_to(&times, low, high, time)? {
                    Some(found) => found,
                    None if low > begin => low - 1,
                    None => return Ok(bounds.min),
                }
            }
        };
        let offset = match self.unit(&files, found)? {
            Some(unit) if found < bounds.units => unit.unit.base_offset,
            _ => bounds.max,
        };
        Ok(offset.clamp(bounds.min, bounds.max))
    }
}

impl ConsumeQueue {
    /// Returns for each of these ascending store times in ms the queue offset of the first message of that time or later, if the
    /// broker's clock never stepped back. Otherwise it is near that message.
    ///
    /// # Errors
    /// `InvalidArgument` without a commit log; an I/O error, with the path.
    pub fn offsets_near_times(&self, store_times: &[i64]) -> Result<Vec<i64>> {
        let Some(log) = &self.options.commit_log else {
            let text = format!("{}: expected a queue that was opened with its commit log", self.path().display());
            return Err(Error::InvalidArgument(text));
        };
        let files = self.files()?;
        let bounds = bounds_of(self, &files)?;
        let times = Times { queue: self, files: &files, log: RefCell::new(log.store_times()?) };
        let mut low = files.first().map_or(0, |file| file.start / self.unit_bytes());
        let mut found = Vec::with_capacity(store_times.len());
        for time in store_times {
            low = times.halve(low, bounds.units, *time)?;
            let unit = if low < bounds.units { self.unit(&files, low)? } else { None };
            found.push(unit.map_or(bounds.max, |unit| unit.unit.base_offset).clamp(bounds.min, bounds.max));
        }
        Ok(found)
    }
}

fn first_from(times: &Times<'_>, low: u64, high: u64, time: i64) -> Result<Option<u64>> {
    let mut at = low;
    while let Some((number, found)) = times.from(at, high)? {
        if found >= time {
            return Ok(Some(number));
        }
        at = number + 1;
    }
    Ok(None)
}

fn last_up_to(times: &Times<'_>, low: u64, high: u64, time: i64) -> Result<Option<u64>> {
    for number in (low..high).rev() {
        if times.of(number)?.is_some_and(|found| found <= time) {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// The time of a file's last change, in ms.
fn changed_ms(file: &OffsetFile) -> Result<i64> {
    let Some(changed) = storage::status(&file.path)?.modified else { return Ok(0) };
    Ok(match changed.duration_since(UNIX_EPOCH) {
        Ok(after) => i64_of(after.as_millis()),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    })
}

/// COMPAT(rocketmq `ConsumeQueue#getOffsetInQueueByTime` 4.9.3): the file is chosen by the time of its last change. The nearest
/// message in this file is returned, never the end.
fn nearest(times: &Times<'_>, bounds: Bounds, time: i64) -> Result<i64> {
    let unit_bytes = times.queue.unit_bytes();
    let files: Vec<&OffsetFile> =
        times.files.iter().filter(|file| file.start / unit_bytes < bounds.units || file.start == 0).collect();
    let mut chosen = None;
    for file in &files {
        chosen = Some(*file);
        if changed_ms(file)? >= time {
            break;
        }
    }
    let Some(file) = chosen else {
        return Ok(0);
    };
    let first = (file.start / unit_bytes).cast_signed();
    let end = bounds.units.min(file.end() / unit_bytes).cast_signed();
    let (mut low, mut high) = (bounds.min.max(first), end - 1);
    if end <= first {
        return Ok(0);
    }
    let (mut left, mut right) = ((None, None), None);
    while low <= high {
        let middle = first + (low - first).midpoint(high - first);
        let Some(unit) = times.queue.unit(times.files, middle.cast_unsigned())? else {
            return Ok(0);
        };
        let phy_offset = unit.unit.unit.phy_offset;
        if phy_offset < times.log.borrow().begin() {
            low = middle + 1;
            left.0 = Some(middle);
            continue;
        }
        match times.log.borrow_mut().of(phy_offset, unit.unit.unit.size)? {
            None => return Ok(0),
            Some(found) if found == time => return Ok(middle),
            Some(found) if found > time => {
                high = middle - 1;
                right = Some((middle, found));
            }
            Some(found) => {
                low = middle + 1;
                left = (Some(middle), Some(found));
            }
        }
    }
    // The broker counts bytes, and -1 means not found: one byte before the file is the unit before it.
    let none = if first == 0 { 0 } else { first - 1 };
    Ok(match (left, right) {
        ((_, None), right) => right.map_or(none, |(place, _)| place),
        ((left, Some(_)), None) => left.unwrap_or(none),
        ((left, Some(before)), Some((place, after))) => {
            if time.abs_diff(before) > time.abs_diff(after) {
                place
            } else {
                left.unwrap_or(none)
            }
        }
    })
}
