//! Batches of messages: index entries and the columns that they need, the last message, messages that were truncated.

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
use crate::rocketmq::index_entries::INDEXED_COLUMNS;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("INDEXED_COLUMNS", PyTuple::new(m.py(), INDEXED_COLUMNS)?)?;
    m.add_function(wrap_pyfunction!(message_columns, m)?)?;
    m.add_function(wrap_pyfunction!(index_entries, m)?)?;
    m.add_function(wrap_pyfunction!(indexed_messages, m)?)?;
    m.add_function(wrap_pyfunction!(last_message, m)?)?;
    m.add_function(wrap_pyfunction!(split_cut_off, m)?)
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
fn message_columns(py: Python<'_>, messages: PyRecordBatch) -> PyResult<Bound<'_, PyAny>> {
    let messages = messages.into_inner();
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for name in INDEXED_COLUMNS {
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

/// Count the messages of a batch that have index entries.
///
/// Args:
///     messages: As for `index_entries`.
///     tags: As for `index_entries`.
///
/// Raises:
///     ValueError: As for `index_entries`.
#[pyfunction]
#[pyo3(signature = (messages, *, tags))]
fn indexed_messages(py: Python<'_>, messages: PyRecordBatch, tags: bool) -> PyResult<usize> {
    let messages = messages.into_inner();
    Ok(py.detach(|| rocketmq::index_entries::indexed_messages(&messages, tags))?)
}

/// The offset in the log after the last message of a batch, and its store time in ms; None without messages.
///
/// Args:
///     messages: An Arrow record batch with `phy_offset`, `store_size` and `store_timestamp`.
///
/// Raises:
///     ValueError: A column is missing, of another type, or null.
#[pyfunction]
fn last_message(messages: PyRecordBatch) -> PyResult<Option<(i64, i64)>> {
    Ok(rocketmq::message_columns::last_message(messages.as_ref())?)
}

/// Split a batch of a salvaging scan into valid messages and those that a broker truncated before.
///
/// Args:
///     messages: An Arrow record batch with `phy_offset` and `suspect`.
///
/// Returns:
///     The valid messages, in batches without copies; the offset and the column `suspect` of each truncated one; and how many
///     messages are older than one before them.
///
/// Raises:
///     ValueError: A column is missing, of another type, or null.
#[pyfunction]
fn split_cut_off(py: Python<'_>, messages: PyRecordBatch) -> PyResult<SplitMessages<'_>> {
    let (valid, cut_off, back_in_time) = rocketmq::commit_log::split_cut_off(messages.as_ref())?;
    let valid = valid.into_iter().map(|batch| PyRecordBatch::new(batch).into_arro3(py)).collect::<PyResult<_>>()?;
    Ok((valid, cut_off, back_in_time))
}

type SplitMessages<'py> = (Vec<Bound<'py, PyAny>>, Vec<(i64, String)>, usize);
