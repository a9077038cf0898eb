//! Columns of a batch of messages that the dispatch and index rules read.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, MapArray, RecordBatch, StringArray};

use super::commit_log::property_map::entries;
use crate::arrow::input_columns::{Get, Int32s, Texts, column, integers, null, times, wrong};
use crate::error::Result;

/// Returns the offset in the log after the last message of a batch, and its store time in ms; `None` without messages.
///
/// # Errors
/// `InvalidArgument` for a column that is missing, of another type, or null.
pub fn last_message(messages: &RecordBatch) -> Result<Option<(i64, i64)>> {
    let Some(row) = messages.num_rows().checked_sub(1) else {
        return Ok(None);
    };
    let phy_offset = integers(messages, "phy_offset")?(row).ok_or_else(|| null("phy_offset", row))?;
    let time = times(messages, "store_timestamp")?(row).ok_or_else(|| null("store_timestamp", row))?;
    Ok(Some((phy_offset.saturating_add(i64::from(Int32s::of(messages, "store_size")?.get(row)?)), time)))
}

/// The column of properties.
pub(super) struct MessageProperties<'a> {
    map: &'a MapArray,
    names: &'a StringArray,
    values: &'a StringArray,
}

impl<'a> MessageProperties<'a> {
    pub(super) fn of(messages: &'a RecordBatch) -> Result<Self> {
        let array = column(messages, "properties")?;
        let texts = |column: &'a ArrayRef| column.as_string_opt::<i32>();
        let map = array.as_map_opt().and_then(|map| Some((map, texts(map.keys())?, texts(map.values())?)));
        let (map, names, values) = map.ok_or_else(|| wrong("properties", array, "a map of utf8"))?;
        Ok(Self { map, names, values })
    }

    /// Returns a property of a row. If a name occurs twice, the last value counts, as in a broker.
    pub(super) fn get(&self, row: usize, name: &str) -> Option<&'a str> {
        let at = entries(self.map, row).rev().find(|&at| self.names.value(at) == name)?;
        self.values.is_valid(at).then(|| self.values.value(at))
    }
}

/// The columns from which the units of a queue are built.
pub(super) struct MessageColumns<'a> {
    topic: Texts<'a>,
    tags: Texts<'a>,
    queue_id: Int32s<'a>,
    sys_flag: Int32s<'a>,
    store_size: Int32s<'a>,
    queue_offset: Get<'a>,
    phy_offset: Get<'a>,
    store_timestamp: Get<'a>,
    properties: MessageProperties<'a>,
}

impl<'a> MessageColumns<'a> {
    pub(super) fn of(messages: &'a RecordBatch) -> Result<Self> {
        Ok(Self {
            topic: Texts::of(messages, "topic")?,
            tags: Texts::of(messages, "tags")?,
            queue_id: Int32s::of(messages, "queue_id")?,
            sys_flag: Int32s::of(messages, "sys_flag")?,
            store_size: Int32s::of(messages, "store_size")?,
            queue_offset: integers(messages, "queue_offset")?,
            phy_offset: integers(messages, "phy_offset")?,
            store_timestamp: times(messages, "store_timestamp")?,
            properties: MessageProperties::of(messages)?,
        })
    }

    pub(super) fn topic(&self, row: usize) -> Result<&'a str> {
        self.topic.get(row).ok_or_else(|| null("topic", row))
    }

    pub(super) fn tags(&self, row: usize) -> Option<&'a str> {
        self.tags.get(row)
    }

    pub(super) fn queue_id(&self, row: usize) -> Result<i32> {
        self.queue_id.get(row)
    }

    pub(super) fn sys_flag(&self, row: usize) -> Result<i32> {
        self.sys_flag.get(row)
    }

    pub(super) fn store_size(&self, row: usize) -> Result<i32> {
        self.store_size.get(row)
    }

    pub(super) fn queue_offset(&self, row: usize) -> Result<i64> {
        (self.queue_offset)(row).ok_or_else(|| null("queue_offset", row))
    }

    pub(super) fn phy_offset(&self, row: usize) -> Result<i64> {
        (self.phy_offset)(row).ok_or_else(|| null("phy_offset", row))
    }

    pub(super) fn store_timestamp(&self, row: usize) -> Result<i64> {
        (self.store_timestamp)(row).ok_or_else(|| null("store_timestamp", row))
    }

    /// See [`MessageProperties::get`].
    pub(super) fn property(&self, row: usize, name: &str) -> Option<&'a str> {
        self.properties.get(row, name)
    }
}
