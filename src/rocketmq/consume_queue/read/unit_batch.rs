//! Units as record batches.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, Int32Builder, Int64Builder, TimestampMillisecondBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema};

use super::extension::ExtensionUnit;
use super::queue::{ConsumeQueue, Kind};
use crate::error::Result;
use crate::rocketmq::commit_log::columns::timestamp_type;

/// Returns a record batch of named columns.
pub(crate) fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields: Vec<Field> =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).expect("the fields were made from the columns")
}

impl ConsumeQueue {
    /// Returns the units of [`Self::units`] as a record batch: `queue_offset`, `phy_offset`, `size`, `tags_code`; of a batch queue
    /// also `messages` and `store_timestamp`.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn unit_batch(&self, begin: i64, end: i64) -> Result<RecordBatch> {
        let (mut queue_offset, mut phy_offset) = (Int64Builder::new(), Int64Builder::new());
        let (mut size, mut tags_code) = (Int32Builder::new(), Int64Builder::new());
        let mut messages = Int32Builder::new();
        let mut time = TimestampMillisecondBuilder::new().with_data_type(timestamp_type());
        let batched = self.kind() == Kind::Batch;
        self.units(begin, end, |unit| {
            queue_offset.append_value(unit.base_offset);
            phy_offset.append_value(unit.unit.phy_offset);
            size.append_value(unit.unit.size);
            tags_code.append_value(unit.unit.tags_code);
            if batched {
                messages.append_value(i32::from(unit.messages));
                time.append_value(unit.store_timestamp);
            }
        })?;
        let mut columns: Vec<(&str, ArrayRef)> = vec![
            ("queue_offset", Arc::new(queue_offset.finish())),
            ("phy_offset", Arc::new(phy_offset.finish())),
            ("size", Arc::new(size.finish())),
            ("tags_code", Arc::new(tags_code.finish())),
        ];
        if batched {
            columns.push(("messages", Arc::new(messages.finish())));
            columns.push(("store_timestamp", Arc::new(time.finish())));
        }
        Ok(batch(columns))
    }
}

/// Returns extension units as a record batch of `tags_code`, `store_timestamp` and `bit_map`; `None` is a row of nulls.
pub fn extension_batch(units: &[Option<ExtensionUnit>]) -> RecordBatch {
    let mut tags_code = Int64Builder::new();
    let mut time = TimestampMillisecondBuilder::new().with_data_type(timestamp_type());
    let mut bit_map = BinaryBuilder::new();
    for unit in units {
        let unit = unit.as_ref();
        tags_code.append_option(unit.map(|unit| unit.tags_code));
        time.append_option(unit.map(|unit| unit.store_timestamp));
        bit_map.append_option(unit.map(|unit| unit.bit_map.as_slice()));
    }
    batch(vec![
        ("tags_code", Arc::new(tags_code.finish())),
        ("store_timestamp", Arc::new(time.finish())),
        ("bit_map", Arc::new(bit_map.finish())),
    ])
}
