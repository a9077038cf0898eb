//! Reads the due messages of a delay level, ready to be put under their own topics.
//!
//! Source: upstream `ScheduleMessageService#executeOnTimeup`, `#messageTimeup`, `#correctDeliverTimestamp`. A message of level
//! *n* waits in queue *n* - 1 of the topic `SCHEDULE_TOPIC_XXXX`. The tags code of its unit is the time of delivery. Delivery
//! puts the stored message again, with all its properties, under the topic and the queue that its properties name.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringArray};

use super::commit_log::columns::{Column, schema};
use super::commit_log::{Bodies, CommitLog};
use super::consume_queue::{ConsumeQueue, is_extension_address};
use super::message_columns::MessageProperties;
use super::names::SCHEDULE_TOPIC;
use crate::arrow::input_columns::{Int32s, Texts, integers, null};
use crate::error::{Error, Result};

const HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
const REAL_TOPIC: &str = "REAL_TOPIC";
const REAL_QUEUE: &str = "REAL_QID";
/// Units that are read at once.
const UNITS_A_STEP: i64 = 1_024;
/// The columns that a delivered message keeps.
const KEPT: [Column; 8] = [
    Column::BornTimestamp,
    Column::Body,
    Column::Properties,
    Column::Flag,
    Column::SysFlag,
    Column::ReconsumeTimes,
    Column::BornHost,
    Column::StoreHost,
];

/// Due messages.
#[derive(Clone, Debug)]
pub struct DueMessages {
    /// The messages to put, with bodies as they are stored; perhaps none.
    pub messages: RecordBatch,
    /// The queue offset to continue from after they are put.
    pub next_offset: i64,
    /// Messages that cannot be delivered: offset in the log, and the reason.
    pub skipped: Vec<(i64, &'static str)>,
}

/// Returns the next due messages of a delay level, at most a batch; `None` if no more are due.
///
/// # Arguments
/// `queue` is the level's queue, opened with its log. Units from queue offset `begin` on are read. A unit is due if its time is
/// not after `now`, or further ahead than the level's `delay` (both in ms).
///
/// # Errors
/// `InvalidArgument` for a queue without its log; an I/O error, with the path.
pub fn due_messages(queue: &ConsumeQueue, begin: i64, now: i64, delay: i64) -> Result<Option<DueMessages>> {
    let Some(log) = &queue.options().commit_log else {
        let text = format!("{}: expected a queue that was opened with its log", queue.path().display());
        return Err(Error::InvalidArgument(text));
    };
    // If a store lost queue files or its topic was deleted, the stored offset may have any value.
    let (min, max) = queue.bounds()?;
    let begin = begin.max(min).min(max);
    let mut units = Vec::new();
    queue.units(begin, begin.saturating_add(UNITS_A_STEP).min(max), |unit| units.push(unit))?;
    let codes: Vec<i64> = units.iter().map(|unit| unit.unit.tags_code).collect();
    let times = delivery_times(queue, &codes)?;
    let is_due = |time: &i64| *time <= now || *time > now.saturating_add(delay);
    let due = times.iter().position(|time| !is_due(time)).unwrap_or(times.len());
    let Some(units) = units.get(..due).filter(|units| !units.is_empty()) else {
        return Ok(None);
    };
    let offsets = units.iter().map(|unit| Some(unit.unit.phy_offset)).collect();
    let columns = [Column::Topic, Column::Properties, Column::Body];
    let Some(parked) = CommitLog::message_batches(log, offsets, &columns, Bodies::Stored, None).next_batch()? else {
        return Ok(None);
    };
    let units = units.get(..parked.num_rows()).unwrap_or_default();
    let next_offset = units.last().map_or(begin, |last| last.base_offset.saturating_add(1));
    let (topics, properties) = (Texts::of(&parked, "topic")?, MessageProperties::of(&parked)?);
    let (mut delivered, mut skipped) = (Vec::new(), Vec::new());
    for (row, unit) in units.iter().enumerate() {
        let phy_offset = unit.unit.phy_offset;
        let topic = properties.get(row, REAL_TOPIC).filter(|_| topics.get(row) == Some(SCHEDULE_TOPIC));
        match (topic, properties.get(row, REAL_QUEUE).and_then(queue_id)) {
            (Some(HALF_TOPIC), Some(_)) => skipped.push((phy_offset, "a half message")),
            (Some(topic), Some(queue_id)) => delivered.push((phy_offset, topic, queue_id)),
            _ => skipped.push((phy_offset, "no scheduled message")),
        }
    }
    let messages = real_messages(log, &delivered)?;
    Ok(Some(DueMessages { messages, next_offset, skipped }))
}

/// Returns the levels of a copy with the queue offset after the last delivered message of each.
///
/// # Arguments
/// `messages` were copied to the places in `copies`. `delivered` is the queue offset, by level, up to which their store had
/// delivered.
///
/// # Errors
/// `InvalidArgument` for a column that is missing, of another type, or null.
pub fn delivered_levels<S: BuildHasher>(
    messages: &RecordBatch,
    copies: &RecordBatch,
    delivered: &HashMap<i32, i64, S>,
) -> Result<HashMap<i32, i64>> {
    let (topics, queue_ids) = (Texts::of(messages, "topic")?, Int32s::of(messages, "queue_id")?);
    let (offsets, places) = (integers(messages, "queue_offset")?, integers(copies, "queue_offset")?);
    let mut levels = HashMap::new();
    for row in 0..messages.num_rows().min(copies.num_rows()) {
        if topics.get(row) != Some(SCHEDULE_TOPIC) {
            continue;
        }
        let level = queue_ids.get(row)?.saturating_add(1);
        let offset = offsets(row).ok_or_else(|| null("queue_offset", row))?;
        if delivered.get(&level).is_some_and(|end| offset < *end) {
            let next = places(row).ok_or_else(|| null("queue_offset", row))?.saturating_add(1);
            levels.entry(level).and_modify(|end: &mut i64| *end = next.max(*end)).or_insert(next);
        }
    }
    Ok(levels)
}

/// Returns the times of delivery of units: their tags codes, or those in the extension files.
///
/// Without extension files an early time that looks like an address is a time, as in a broker without `enableConsumeQueueExt`. If
/// the extension unit is lost, the message is due.
fn delivery_times(queue: &ConsumeQueue, codes: &[i64]) -> Result<Vec<i64>> {
    if queue.options().extension.is_none() || !codes.iter().copied().any(is_extension_address) {
        return Ok(codes.to_vec());
    }
    let units =
        queue.extension_units(codes.iter().map(|code| Some(*code).filter(|code| is_extension_address(*code))))?;
    let time = |(code, unit): (&i64, Option<i64>)| if is_extension_address(*code) { unit.unwrap_or(0) } else { *code };
    Ok(codes.iter().zip(units.into_iter().map(|unit| unit.map(|unit| unit.tags_code))).map(time).collect())
}

/// Returns the messages at these offsets under their own topics and queues.
fn real_messages(log: &CommitLog, delivered: &[(i64, &str, i32)]) -> Result<RecordBatch> {
    let kept = log.messages(delivered.iter().map(|(phy_offset, _, _)| Some(*phy_offset)), &KEPT, Bodies::Stored)?;
    let topics: ArrayRef = Arc::new(StringArray::from_iter_values(delivered.iter().map(|(_, topic, _)| topic)));
    let queues: ArrayRef = Arc::new(Int32Array::from_iter_values(delivered.iter().map(|(_, _, queue_id)| *queue_id)));
    let columns: Vec<Column> = [Column::Topic, Column::QueueId].into_iter().chain(KEPT).collect();
    let arrays = [topics, queues].into_iter().chain(kept.columns().iter().cloned()).collect();
    Ok(RecordBatch::try_new(schema(&columns), arrays).expect("the arrays were made for these columns"))
}

/// Returns the queue that a property names; `None` if the value is not a queue number.
fn queue_id(text: &str) -> Option<i32> {
    text.parse().ok().filter(|_| text.bytes().all(|digit| digit.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::queue_id;

    #[test]
    fn a_queue_is_a_decimal_number() {
        assert_eq!(["0", "0007", "2147483647"].map(queue_id), [Some(0), Some(7), Some(i32::MAX)]);
        assert_eq!(["", "-1", "+1", "1.0", "2147483648", "\u{663}"].map(queue_id), [None; 6]);
    }
}
