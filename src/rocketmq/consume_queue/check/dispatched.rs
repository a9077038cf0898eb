//! Checks whether the queues of a store have the unit of a message.

use crate::arrow::input_columns::{Int32s, Texts, integers};
use crate::error::Result;
use crate::io::Location;
use crate::io::storage;
use crate::rocketmq::commit_log::columns::Column;
use crate::rocketmq::commit_log::{CommitLog, ScanOptions};
use crate::rocketmq::consume_queue::directories::folder;
use crate::rocketmq::consume_queue::read::{ConsumeQueue, Kind, Options};
use crate::rocketmq::names::is_folder_name;

/// Returns whether a message begins at this offset of the log, and its queue in the store at `root` has its unit.
///
/// # Errors
/// An I/O error, with the path.
pub fn is_dispatched(root: &Location, log: &CommitLog, phy_offset: u64) -> Result<bool> {
    let scan = ScanOptions {
        begin_phy_offset: phy_offset,
        end_phy_offset: phy_offset.saturating_add(1),
        columns: vec![Column::Topic, Column::QueueId, Column::QueueOffset],
        ..ScanOptions::default()
    };
    let Some(message) = log.scan(&scan)?.next_batch()?.filter(|batch| batch.num_rows() == 1) else {
        return Ok(false);
    };
    let (topic, queue_id) = (Texts::of(&message, "topic")?.get(0), Int32s::of(&message, "queue_id")?.get(0)?);
    let (Some(topic), Some(queue_offset)) = (topic, integers(&message, "queue_offset")?(0)) else {
        return Ok(false);
    };
    for kind in [Kind::Batch, Kind::Plain] {
        let directory = root.join(folder(kind)).join(topic).join(queue_id.to_string());
        if is_folder_name(topic) && storage::exists(&root.join(folder(kind)))? {
            storage::expect_list(&directory);
        }
        if is_folder_name(topic) && storage::is_directory(&directory)? {
            let mut is_found = false;
            let queue = ConsumeQueue::open(&directory, Options::default())?;
            queue.units(queue_offset, queue_offset.saturating_add(1), |unit| {
                is_found |= u64::try_from(unit.unit.phy_offset) == Ok(phy_offset);
            })?;
            if is_found {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
