//! `index_entries`, and the message columns that it needs.

use std::sync::Arc;

use arrow_array::types::TimestampMillisecondType;
use arrow_array::{ArrayRef, RecordBatch, new_null_array};
use arrow_schema::{DataType, Field, Schema};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3_arrow::PyRecordBatch;

use super::{convert, time};
use crate::rocketmq;

/// The message columns that an index needs.
const COLUMNS: [&str; 7] = ["topic", "phy_offset", "store_timestamp", "uniq_key", "keys", "tags", "sys_flag"];

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("INDEXED_COLUMNS", PyTuple::new(m.py(), COLUMNS)?)?;
    m.add_function(wrap_pyfunction!(message_columns, m)?)?;
    m.add_function(wrap_pyfunction!(index_entries, m)?)
}

/// Return the columns of a batch of messages that an index needs, in the types of a scan.
///
/// Args:
///     messages: An Arrow record batch. Columns may be missing; others are left out.
///
/// Raises:
///     TypeError: A column has a type whose conversion would change values, such as fractions of numbers.
///     ValueError: A value does not fit into the type.
#[pyfunction]
fn message_columns<'py>(py: Python<'py>, messages: PyRecordBatch) -> PyResult<Bound<'py, PyAny>> {
    let messages = messages.into_inner();
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for name in COLUMNS {
        if let Some(column) = messages.column_by_name(name) {
            let column = message_column(name, convert::plain(Arc::clone(column))?)?;
            fields.push(Field::new(name, column.data_type().clone(), true));
            columns.push(column);
        }
    }
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns);
    PyRecordBatch::new(batch.map_err(|e| PyValueError::new_err(e.to_string()))?).into_arro3(py)
}

fn message_column(name: &str, column: ArrayRef) -> PyResult<ArrayRef> {
    let kind = column.data_type().clone();
    let wrong = |expected: &str| PyTypeError::new_err(format!("column {name}: expected {expected}, found {kind}"));
    if name == "store_timestamp" {
        if !kind.is_null() && !kind.is_integer() && !matches!(kind, DataType::Timestamp(..)) {
            return Err(wrong("times or integers"));
        }
        let times = time::times_of(&column, name)?.reinterpret_cast::<TimestampMillisecondType>();
        return Ok(Arc::new(times.with_timezone("UTC")));
    }
    let wanted = match name {
        "phy_offset" => DataType::Int64,
        "sys_flag" => DataType::Int32,
        _ => DataType::Utf8,
    };
    match &kind {
        DataType::Null => Ok(new_null_array(&wanted, column.len())),
        kind if wanted.is_integer() && !kind.is_integer() => Err(wrong("integers")),
        kind if wanted == DataType::Utf8 && !is_text(kind) => Err(wrong("text")),
        _ => convert::cast(&column, &wanted, name),
    }
}

fn is_text(kind: &DataType) -> bool {
    matches!(
        kind,
        DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
    )
}

/// Return the index entries of a batch of messages, by the rules of the broker's dispatcher.
///
/// Args:
///     messages: An Arrow record batch with `topic`, `phy_offset`, `store_timestamp`, `sys_flag`, `uniq_key`, `keys`,
///         and with `tags` if tags are wanted.
///     end_phy_offset: Messages before it are left out; it moves to each message that has an entry.
///     tags: Add an entry for `T#` and the whole tags text as well, as 5.5.0 does.
///
/// Returns:
///     A record batch of `topic`, `key`, `phy_offset`, `store_timestamp`, and `row`, the number of the message in
///     `messages`. In order: the unique key, each of the space-separated keys, the tags. Rolled-back messages have none.
///
/// Raises:
///     ValueError: A column is missing, of another type, or null where a message must have a value.
///
/// Source: `IndexService#buildIndex`.
#[pyfunction]
#[pyo3(signature = (messages, *, end_phy_offset, tags=false))]
fn index_entries(
    py: Python<'_>,
    messages: PyRecordBatch,
    end_phy_offset: i64,
    tags: bool,
) -> PyResult<Bound<'_, PyAny>> {
    let messages = messages.into_inner();
    let entries = py.detach(|| rocketmq::index_entries::index_entries(&messages, end_phy_offset, tags))?;
    PyRecordBatch::new(entries).into_arro3(py)
}
