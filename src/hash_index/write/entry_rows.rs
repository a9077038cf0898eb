//! Entries in memory, 20 bytes each, with the hash instead of topic and key: so a task can hold the entries of a whole file.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};

/// Rows of a batch of [`EntryRows::sorted`].
const BATCH_ROWS: usize = 65_536;

/// The least and the greatest value of a column.
pub(crate) type Span = (i64, i64);

/// Entries in the order in which they came, without nulls.
#[derive(Debug, Default)]
pub struct EntryRows {
    rows: Vec<(i32, i64, i64)>,
    is_unordered: bool,
}

/// Returns entries as a record batch: `key_hash` (int32), `phy_offset` and `store_timestamp` (int64).
pub fn entry_rows(key_hash: Int32Array, phy_offset: Int64Array, store_timestamp: Int64Array) -> RecordBatch {
    let columns: [(&str, DataType, ArrayRef); 3] = [
        ("key_hash", DataType::Int32, Arc::new(key_hash)),
        ("phy_offset", DataType::Int64, Arc::new(phy_offset)),
        ("store_timestamp", DataType::Int64, Arc::new(store_timestamp)),
    ];
    let fields: Vec<Field> = columns.iter().map(|(name, kind, _)| Field::new(*name, kind.clone(), true)).collect();
    let columns = columns.into_iter().map(|(_, _, column)| column).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("the columns are as long as the caller's batch")
}

impl EntryRows {
    /// Adds entries: their columns, of the same length.
    pub fn add(&mut self, key_hash: &[i32], phy_offset: &[i64], store_timestamp: &[i64]) {
        let times = phy_offset.iter().zip(store_timestamp);
        for (hash, (offset, time)) in key_hash.iter().zip(times) {
            self.is_unordered |= self.rows.last().is_some_and(|(_, last, _)| last > offset);
            self.rows.push((*hash, *offset, *time));
        }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns whether no offset is below the one before it.
    pub fn is_ordered(&self) -> bool {
        !self.is_unordered
    }

    /// Returns the spans of the offsets and of the store times; `None` without entries.
    pub fn spans(&self) -> Option<(Span, Span)> {
        let span =
            |of: fn(&(i32, i64, i64)) -> i64| Some((self.rows.iter().map(of).min()?, self.rows.iter().map(of).max()?));
        Some((span(|row| row.1)?, span(|row| row.2)?))
    }

    /// Returns the entries in the order of their offsets. Entries of one offset keep their order.
    pub fn sorted(&mut self) -> impl Iterator<Item = RecordBatch> {
        self.rows.sort_by_key(|row| row.1);
        self.is_unordered = false;
        self.rows.chunks(BATCH_ROWS).map(|rows| {
            entry_rows(
                rows.iter().map(|row| row.0).collect::<Vec<_>>().into(),
                rows.iter().map(|row| row.1).collect::<Vec<_>>().into(),
                rows.iter().map(|row| row.2).collect::<Vec<_>>().into(),
            )
        })
    }
}
