//! Records in columns that become batches.

use arrow_array::cast::AsArray;
use arrow_array::{Array, BinaryArray, ListArray, RecordBatch, StringArray};
use arrow_schema::DataType;

use super::new_batch::{Facts, NewBatch, plain_header, put_header};
use crate::arrow::input_columns::{Get, null, times, wrong};
use crate::error::{Error, Result};
use crate::kafka::format::codec::Codec;

/// The columns of records.
pub const COLUMNS: [&str; 4] = ["key", "value", "headers", "timestamp"];

/// Records, and how they are put into batches.
#[derive(Debug)]
pub struct NewRecords<'a> {
    /// Columns `key` and `value` of binary, `headers` of list of struct of key and value, `timestamp` of timestamps or ms.
    pub records: &'a [RecordBatch],
    /// The compression of batches.
    pub codec: Codec,
    /// The level of the codec.
    pub level: Option<i32>,
    /// A batch takes records until it has this many bytes, before compression.
    pub batch_bytes: usize,
}

/// The columns of one record batch.
pub(super) struct Columns<'a> {
    keys: Option<&'a BinaryArray>,
    values: Option<&'a BinaryArray>,
    headers: Option<(&'a ListArray, &'a StringArray, &'a BinaryArray)>,
    times: Option<Get<'a>>,
}

/// A row as a record.
pub(super) struct Row<'a> {
    /// `None`: the time of the append.
    pub(super) timestamp: Option<i64>,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    /// The number of headers.
    pub(super) headers: usize,
}

impl Row<'_> {
    /// The most bytes by which the records of a batch grow, but for lengths; `headers` are the encoded ones.
    pub(super) fn bytes(&self, headers: &[u8]) -> usize {
        self.key.map_or(0, <[u8]>::len) + self.value.map_or(0, <[u8]>::len) + headers.len()
    }
}

impl<'a> Columns<'a> {
    /// The columns of a batch, which has no others than those `known`.
    pub(super) fn of(batch: &'a RecordBatch, known: &[&str]) -> Result<Self> {
        if let Some(field) = batch.schema_ref().fields().iter().find(|field| !known.contains(&field.name().as_str())) {
            let text = format!("column {}: expected {}", field.name(), known.join(", "));
            return Err(Error::InvalidArgument(text));
        }
        Ok(Self {
            keys: binary(batch, "key")?,
            values: binary(batch, "value")?,
            headers: headers(batch)?,
            times: batch.column_by_name("timestamp").map(|_| times(batch, "timestamp")).transpose()?,
        })
    }

    /// # Errors
    /// `InvalidArgument` for a header without a key.
    fn check_headers(&self, rows: usize) -> Result<()> {
        if self.headers.is_some_and(|(_, keys, _)| keys.null_count() > 0) {
            let mut encoded = Vec::new();
            (0..rows).try_for_each(|row| self.row(row, &mut encoded).map(drop))?;
        }
        Ok(())
    }

    /// Returns a row, and encodes its headers.
    ///
    /// # Errors
    /// `InvalidArgument` for a header without a key.
    pub(super) fn row(&self, row: usize, encoded: &mut Vec<u8>) -> Result<Row<'a>> {
        encoded.clear();
        let mut count = 0;
        if let Some((lists, keys, values)) = self.headers.filter(|(lists, ..)| lists.is_valid(row)) {
            let begin = usize::try_from(lists.value_offsets().get(row).copied().unwrap_or(0)).unwrap_or(0);
            count = usize::try_from(lists.value_length(row)).unwrap_or(0);
            for at in begin..begin + count {
                if keys.is_null(at) {
                    return Err(null("headers: key", row));
                }
                put_header(encoded, keys.value(at).as_bytes(), field(Some(values), at));
            }
        }
        let timestamp = self.times.as_ref().and_then(|times| times(row));
        Ok(Row { timestamp, key: field(self.keys, row), value: field(self.values, row), headers: count })
    }
}

fn binary<'a>(batch: &'a RecordBatch, name: &str) -> Result<Option<&'a BinaryArray>> {
    let Some(array) = batch.column_by_name(name).filter(|array| *array.data_type() != DataType::Null) else {
        return Ok(None);
    };
    array.as_binary_opt().map(Some).ok_or_else(|| wrong(name, array, "binary"))
}

fn headers(batch: &RecordBatch) -> Result<Option<(&ListArray, &StringArray, &BinaryArray)>> {
    let Some(array) = batch.column_by_name("headers").filter(|array| *array.data_type() != DataType::Null) else {
        return Ok(None);
    };
    let columns = array.as_list_opt::<i32>().and_then(|lists| {
        let structs = lists.values().as_struct_opt()?;
        Some((
            lists,
            structs.column_by_name("key")?.as_string_opt()?,
            structs.column_by_name("value")?.as_binary_opt()?,
        ))
    });
    columns.map(Some).ok_or_else(|| wrong("headers", array, "a list of key utf8 and value binary"))
}

fn field(array: Option<&BinaryArray>, row: usize) -> Option<&[u8]> {
    array.filter(|array| array.is_valid(row)).map(|array| array.value(row))
}

impl<'a> NewRecords<'a> {
    /// Returns the records as batches. A record without a timestamp gets `now`.
    ///
    /// # Errors
    /// `InvalidArgument` for a column of another name or type, or a header without a key.
    pub(super) fn batches(&self, now: i64) -> Result<NewBatches<'a>> {
        let columns = self.records.iter().map(|batch| {
            let columns = Columns::of(batch, &COLUMNS)?;
            columns.check_headers(batch.num_rows())?;
            Ok((columns, batch.num_rows()))
        });
        let columns = columns.collect::<Result<Vec<_>>>()?.into_iter();
        let (codec, level, batch_bytes) = (self.codec, self.level, self.batch_bytes);
        let new = NewBatch::default();
        Ok(NewBatches { columns, current: None, new, headers: Vec::new(), codec, level, batch_bytes, now })
    }
}

/// Batches that are made when they are needed.
pub(super) struct NewBatches<'a> {
    columns: std::vec::IntoIter<(Columns<'a>, usize)>,
    /// Columns, the next row, and the number of rows.
    current: Option<(Columns<'a>, usize, usize)>,
    new: NewBatch,
    headers: Vec<u8>,
    codec: Codec,
    level: Option<i32>,
    batch_bytes: usize,
    now: i64,
}

impl NewBatches<'_> {
    pub(super) fn codec(&self) -> Codec {
        self.codec
    }

    /// Replaces `batch` by the next one; `None` at the end.
    ///
    /// # Errors
    /// `InvalidArgument` if the records of a batch are too long for the codec.
    pub(super) fn next(&mut self, batch: &mut Vec<u8>) -> Result<Option<Facts>> {
        batch.clear();
        loop {
            let Some((columns, next, end)) = &mut self.current else {
                let Some((columns, rows)) = self.columns.next() else { break };
                self.current = Some((columns, 0, rows));
                continue;
            };
            while *next < *end {
                let row = columns.row(*next, &mut self.headers)?;
                if !self.new.is_empty() && self.new.size().saturating_add(row.bytes(&self.headers)) > self.batch_bytes {
                    return self.new.finish(&plain_header(), self.codec, self.level, batch).map(Some);
                }
                let timestamp = row.timestamp.unwrap_or(self.now);
                self.new.push(timestamp, row.key, row.value, (row.headers, &self.headers));
                *next += 1;
            }
            self.current = None;
        }
        if self.new.is_empty() {
            return Ok(None);
        }
        self.new.finish(&plain_header(), self.codec, self.level, batch).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kafka::write::new_batch::headers as batch_headers;

    #[test]
    fn records_fill_batches() {
        let values = BinaryArray::from_iter_values((0..10).map(|_| [7; 100]));
        let records = [RecordBatch::try_from_iter([("value", Arc::new(values) as _)]).unwrap()];
        let new = NewRecords { records: &records, codec: Codec::None, level: None, batch_bytes: 400 };
        let (mut batches, mut batch, mut counts) = (new.batches(5).unwrap(), Vec::new(), Vec::new());
        while let Some(facts) = batches.next(&mut batch).unwrap() {
            counts.extend(batch_headers(&batch).map(|(header, _)| header));
            assert_eq!(counts.last().unwrap().count, Some(facts.count));
        }
        assert_eq!(counts.iter().map(|header| header.count).collect::<Vec<_>>(), [Some(3), Some(3), Some(3), Some(1)]);
        assert!(counts.iter().all(|header| header.max_timestamp == 5 && header.size <= 400));
    }
}
