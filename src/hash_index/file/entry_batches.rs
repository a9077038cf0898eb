//! All entries of a file as record batches.

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, Int64Builder, TimestampMillisecondBuilder};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::error::{Error, Result};
use crate::hash_index::file::index_file::IndexFile;

/// Returns a reader of all entries of a file in the order of their positions, `limit` rows a batch.
pub fn entry_batches(file: Arc<IndexFile>, limit: u32) -> Box<dyn RecordBatchReader + Send> {
    let schema = entry_schema();
    let mut position = 1;
    let batches = std::iter::from_fn({
        let schema = Arc::clone(&schema);
        move || match batch(&file, &schema, position, limit) {
            Ok(batch) if batch.num_rows() == 0 => None,
            Ok(batch) => {
                #[expect(clippy::cast_possible_truncation, reason = "at most `limit` rows")]
                let rows = batch.num_rows() as u32;
                position += rows;
                Some(Ok(batch))
            }
            Err(e) => Some(Err(ArrowError::ExternalError(Box::new(e)))),
        }
    });
    Box::new(RecordBatchIterator::new(batches, schema))
}

/// Returns the schema of [`entry_batches`].
pub fn entry_schema() -> SchemaRef {
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
fn batch(file: &IndexFile, schema: &SchemaRef, position: u32, limit: u32) -> Result<RecordBatch> {
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
