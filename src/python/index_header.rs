//! `IndexHeader` and the rows of `IndexFile.entries`.

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, Int64Builder, TimestampMillisecondBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use pyo3::prelude::*;

use crate::error::{Error, Result};
use crate::hash_index::{Header, IndexFile};

/// The 40 bytes at the head of an index file, as they were when it was read.
#[pyclass(name = "IndexHeader", module = "logdex.rocketmq", frozen, eq, hash, get_all)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct PyIndexHeader {
    /// Store time of the first entry in milliseconds; before it the seed, or 0.
    begin_timestamp: i64,
    /// Store time of the last entry put in milliseconds; before it the seed, or 0.
    end_timestamp: i64,
    /// Commit-log offset of the first entry; before it the seed, or 0.
    begin_phy_offset: i64,
    /// Commit-log offset of the last entry put; before it the seed, or 0.
    end_phy_offset: i64,
    /// Puts that found their slot empty. For information only: brokers up to 4.7.0 count every put.
    hash_slot_count: i32,
    /// Position of the next entry: entries + 1; 0 on disk before the first put or flush.
    index_count: i32,
}

#[pymethods]
impl PyIndexHeader {
    fn __repr__(&self) -> String {
        format!(
            "IndexHeader(begin_timestamp={}, end_timestamp={}, begin_phy_offset={}, end_phy_offset={}, \
             hash_slot_count={}, index_count={})",
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_phy_offset,
            self.end_phy_offset,
            self.hash_slot_count,
            self.index_count
        )
    }
}

impl From<Header> for PyIndexHeader {
    fn from(h: Header) -> Self {
        Self {
            begin_timestamp: h.begin_timestamp,
            end_timestamp: h.end_timestamp,
            begin_phy_offset: h.begin_phy_offset,
            end_phy_offset: h.end_phy_offset,
            hash_slot_count: h.hash_slot_count,
            index_count: h.index_count.max(1), // IndexHeader#load
        }
    }
}

pub(super) fn entries_schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new("position", DataType::Int32, true),
        Field::new("hash_slot", DataType::Int32, true),
        Field::new("key_hash", DataType::Int32, true),
        Field::new("phy_offset", DataType::Int64, true),
        Field::new("store_timestamp", time, true),
        Field::new("prev_index", DataType::Int32, true),
    ]))
}

#[expect(clippy::cast_possible_wrap, reason = "positions and slots are below 2^31")]
pub(super) fn entries_batch(file: &IndexFile, schema: &SchemaRef, position: u32, limit: u32) -> Result<RecordBatch> {
    let header = file.header()?;
    let entries = file.read_entries(position, limit)?;
    let rows = entries.len();
    let mut ints = [(); 4].map(|()| Int32Builder::with_capacity(rows));
    let mut offsets = Int64Builder::with_capacity(rows);
    let mut times = TimestampMillisecondBuilder::with_capacity(rows).with_timezone("UTC");
    let [positions, slots, hashes, links] = &mut ints;
    for (position, entry) in (position..).zip(&entries) {
        positions.append_value(position as i32);
        slots.append_value(file.geometry().slot_of(entry.key_hash) as i32);
        hashes.append_value(entry.key_hash);
        offsets.append_value(entry.phy_offset);
        times.append_value(file.shown_time(&header, position, entry));
        links.append_value(entry.prev_index);
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(positions.finish()),
        Arc::new(slots.finish()),
        Arc::new(hashes.finish()),
        Arc::new(offsets.finish()),
        Arc::new(times.finish()),
        Arc::new(links.finish()),
    ];
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(|e| Error::InvalidArgument(e.to_string()))
}
