//! A batch of records that are given one by one.

use std::sync::Arc;

use arrow_array::TimestampMillisecondArray;
use arrow_array::{ArrayRef, BinaryArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::DataType;

use super::header_column;
use super::record_columns::{Column, schema};
use crate::error::Result;

/// A record whose key, value and header values are of type `B`.
#[derive(Clone, Debug)]
pub struct RecordRow<B> {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Offset.
    pub offset: i64,
    /// Time in milliseconds.
    pub timestamp: i64,
    /// The clock of the timestamp.
    pub timestamp_type: i32,
    /// Key, or `None`.
    pub key: Option<B>,
    /// Value, or `None`.
    pub value: Option<B>,
    /// Names and values.
    pub headers: Vec<(String, Option<B>)>,
}

/// Returns records as a batch of the columns that are read by default.
///
/// # Errors
/// None for records that fit in one batch.
pub fn record_batch<B: AsRef<[u8]>>(rows: &[RecordRow<B>]) -> Result<RecordBatch> {
    let headers: Vec<_> = rows.iter().flat_map(|row| &row.headers).collect();
    let lengths = OffsetBuffer::from_lengths(rows.iter().map(|row| row.headers.len()));
    let columns = Column::choose::<&str>(None)?;
    let arrays = columns.iter().map(|column| -> Option<ArrayRef> {
        Some(match column {
            Column::Key => Arc::new(rows.iter().map(|row| row.key.as_ref()).collect::<BinaryArray>()),
            Column::Value => Arc::new(rows.iter().map(|row| row.value.as_ref()).collect::<BinaryArray>()),
            Column::Topic => Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.topic))),
            Column::Partition => Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.partition))),
            Column::Offset => Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.offset))),
            Column::Timestamp => {
                let times = TimestampMillisecondArray::from_iter_values(rows.iter().map(|row| row.timestamp));
                Arc::new(times.with_data_type(column.data_type()))
            }
            Column::TimestampType => Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.timestamp_type))),
            Column::Headers => {
                let item = header_column::item();
                let DataType::Struct(fields) = item.data_type() else { return None };
                let keys = StringArray::from_iter_values(headers.iter().map(|(key, _)| key));
                let values: BinaryArray = headers.iter().map(|(_, value)| value.as_ref()).collect();
                let pairs = StructArray::new(fields.clone(), vec![Arc::new(keys), Arc::new(values)], None);
                let valid: NullBuffer = rows.iter().map(|row| !row.headers.is_empty()).collect::<Vec<_>>().into();
                Arc::new(ListArray::new(item, lengths.clone(), Arc::new(pairs), Some(valid)))
            }
            _ => return None,
        })
    });
    let arrays = arrays.collect::<Option<Vec<_>>>().expect("the default columns have no others");
    Ok(RecordBatch::try_new(schema(&columns, false), arrays).expect("the columns have the types of the schema"))
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;

    use super::*;

    #[test]
    fn rows_become_columns() {
        let row = |key: Option<&'static [u8]>, headers| RecordRow {
            topic: "orders".to_owned(),
            partition: 3,
            offset: 7,
            timestamp: -1,
            timestamp_type: 1,
            key,
            value: None,
            headers,
        };
        let batch = record_batch(&[
            row(Some(b"k"), vec![("h".to_owned(), None), ("i".to_owned(), Some(&b"v"[..]))]),
            row(None, vec![]),
        ]);
        let batch = batch.unwrap();
        assert_eq!(batch.schema(), schema(&Column::ALL[..8], false));
        assert_eq!(batch.column(0).as_binary::<i32>().iter().collect::<Vec<_>>(), [Some(&b"k"[..]), None]);
        assert_eq!(batch.column(7).null_count(), 1);
        assert_eq!(batch.column(7).as_list::<i32>().value(0).len(), 2);
        assert_eq!(record_batch::<Vec<u8>>(&[]).unwrap().num_rows(), 0);
    }
}
