//! Finds the queue offset of a store time in a batch queue, in compat: as a 5.x broker searches.
//!
//! COMPAT(rocketmq `BatchConsumeQueue#getOffsetInQueueByTime`, `#binarySearchRight`): the times are those in the units. The
//! search differs from that of other queues, and from its own documentation. A time after the last unit returns that unit and not
//! the end. A time between two units returns the later one for [`Boundary::Upper`], too. If there is none, the result is the
//! beginning.

use super::queue::{Boundary, Bounds, ConsumeQueue};
use crate::error::Result;
use crate::rocketmq::consume_queue::unit::BatchUnit;
use crate::rocketmq::offset_files::OffsetFile;

/// Units by their numbers.
struct Units<'a> {
    queue: &'a ConsumeQueue,
    files: &'a [OffsetFile],
}

impl Units<'_> {
    fn get(&self, number: u64) -> Result<BatchUnit> {
        let nothing = BatchUnit::parse(&[]);
        Ok(self.queue.unit(self.files, number)?.map_or(nothing, |unit| unit.unit))
    }
}

/// Returns the queue offset of a store time in ms.
pub(super) fn offset_by_time(
    queue: &ConsumeQueue,
    files: &[OffsetFile],
    bounds: Bounds,
    time: i64,
    boundary: Boundary,
) -> Result<i64> {
    let units = Units { queue, files };
    let Some((first, end)) = file_of_time(&units, bounds, time)? else {
        return Ok(bounds.min);
    };
    let last = units.get(end - 1)?;
    let found = if time >= last.store_timestamp {
        Some(last.base_offset)
    } else {
        let found = halve(&units, first, end - 1, time, boundary)?;
        found.map(|number| units.get(number).map(|unit| unit.base_offset)).transpose()?
    };
    Ok(found.unwrap_or(-1).clamp(bounds.min, bounds.max))
}

/// Returns the numbers of the units of the file to search, the last excluded. This is the last file if it begins in time, else
/// the file that begins latest among those that do, else the first file.
fn file_of_time(units: &Units<'_>, bounds: Bounds, time: i64) -> Result<Option<(u64, u64)>> {
    let len = units.queue.unit_bytes();
    let mut chosen: Option<(i64, (u64, u64))> = None;
    let mut before = None;
    for file in units.files {
        let numbers = (file.start / len, bounds.units.min(file.end() / len));
        if numbers.0 >= numbers.1 {
            continue;
        }
        let begin = units.get(numbers.0)?.store_timestamp;
        before.get_or_insert(numbers);
        let is_last = numbers.1 == bounds.units;
        if begin <= time && (is_last || chosen.is_none_or(|(latest, _)| begin >= latest)) {
            chosen = Some((begin, numbers));
        }
    }
    Ok(chosen.map(|(_, numbers)| numbers).or(before))
}

/// The number of a unit between `left` and `right`, both included.
fn halve(units: &Units<'_>, left: u64, right: u64, time: i64, boundary: Boundary) -> Result<Option<u64>> {
    let (mut left, mut right) = (left, right);
    while left <= right {
        let middle = left + (right - left) / 2;
        let found = units.get(middle)?.store_timestamp;
        if middle == left || middle == right {
            if found >= time {
                return Ok(Some(middle));
            }
            if middle == right {
                return Ok(None);
            }
            left = middle + 1;
            continue;
        }
        match boundary {
            Boundary::Lower if found < time => left = middle + 1,
            Boundary::Lower => right = middle,
            Boundary::Upper if found <= time => left = middle,
            Boundary::Upper => right = middle - 1,
        }
    }
    Ok(None)
}
