//! Verdicts on candidates, and columns of messages as Python lists.

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array, ArrayRef, MapArray, RecordBatch, StringArray};
use arrow_schema::{DataType, TimeUnit};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use pyo3_arrow::PyRecordBatch;

use super::commit_log::PyCommitLog;
use super::time;
use crate::rocketmq::candidates;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(judge_candidates, m)?)?;
    m.add_function(wrap_pyfunction!(message_lists, m)?)
}

/// Return for each offset what its message is to a key.
///
/// Args:
///     log: The log.
///     phy_offsets: Offsets in the log.
///     topic: The requested topic.
///     key: The requested key; "T#" and the tags of a message count as one of its keys.
///     begin: First store time, inclusive.
///     end: Last store time, inclusive.
///
/// Returns:
///     "match", "out-of-range", "other-key" or "other-topic" (with the same hash), "stale-entry" (no key of the message has
///     the hash); where no message begins "expired", "cut-off", "missing-file", "beyond-log" or "damaged".
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
#[pyo3(signature = (log, phy_offsets, topic, key, *, begin=None, end=None))]
fn judge_candidates(
    py: Python<'_>,
    log: &PyCommitLog,
    phy_offsets: Vec<i64>,
    topic: &str,
    key: &str,
    begin: Option<&Bound<'_, PyAny>>,
    end: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<&'static str>> {
    let (log, times) = (log.inner()?, time::time_range(begin, end)?);
    Ok(py.detach(|| candidates::judge(&log, &phy_offsets, topic, key, times))?)
}

/// Return rows of a batch of messages as one Python list for each column: times in ms, properties as dicts.
///
/// Args:
///     batch: A record batch of message columns.
///     begin: The first row.
///     end: The row after the last.
///
/// Raises:
///     ValueError: There are no such rows.
///     TypeError: A column has a type that no message column has.
#[pyfunction]
fn message_lists(py: Python<'_>, batch: PyRecordBatch, begin: usize, end: usize) -> PyResult<Vec<Bound<'_, PyList>>> {
    lists(py, &batch.into_inner(), begin, end)
}

pub(super) fn lists<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
    begin: usize,
    end: usize,
) -> PyResult<Vec<Bound<'py, PyList>>> {
    if begin > end || end > batch.num_rows() {
        let text = format!("rows: expected 0 <= begin <= end <= {}, got {begin} and {end}", batch.num_rows());
        return Err(PyValueError::new_err(text));
    }
    let rows = batch.slice(begin, end - begin);
    rows.columns().iter().map(|column| column_list(py, column)).collect()
}

fn column_list<'py>(py: Python<'py>, column: &ArrayRef) -> PyResult<Bound<'py, PyList>> {
    match column.data_type() {
        DataType::Utf8 => text_list(py, column.as_string()),
        DataType::Binary => PyList::new(py, column.as_binary::<i32>().iter().map(|b| b.map(|b| PyBytes::new(py, b)))),
        DataType::Int32 => PyList::new(py, column.as_primitive::<Int32Type>()),
        DataType::Int64 => PyList::new(py, column.as_primitive::<Int64Type>()),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            PyList::new(py, column.as_primitive::<TimestampMillisecondType>())
        }
        DataType::Map(..) => property_list(py, column.as_map()),
        kind => Err(PyTypeError::new_err(format!("expected a message column, got one of type {kind}"))),
    }
}

/// Texts of a column. Neighbours that are equal are one object.
fn text_list<'py>(py: Python<'py>, column: &StringArray) -> PyResult<Bound<'py, PyList>> {
    let mut last: Option<(&str, Bound<'py, PyString>)> = None;
    let texts = column.iter().map(|text| {
        let text = text?;
        let object = match &last {
            Some((same, object)) if *same == text => object.clone(),
            _ => PyString::new(py, text),
        };
        last = Some((text, object.clone()));
        Some(object)
    });
    PyList::new(py, texts.collect::<Vec<_>>())
}

/// A text and its object.
type Seen<'a, 'py> = (&'a str, Bound<'py, PyString>);

/// Properties of a column as dicts. Names and values that are equal in neighbours are one object.
fn property_list<'py>(py: Python<'py>, column: &MapArray) -> PyResult<Bound<'py, PyList>> {
    let (names, values) = (column.keys().as_string_opt::<i32>(), column.values().as_string_opt::<i32>());
    let (Some(names), Some(values)) = (names, values) else {
        return Err(PyTypeError::new_err("properties: expected a map of utf8 to utf8"));
    };
    let mut seen: Vec<[Seen<'_, 'py>; 2]> = Vec::new();
    let list = PyList::empty(py);
    for (row, ends) in column.value_offsets().windows(2).enumerate() {
        let [begin, end] = [0, 1].map(|end| ends.get(end).and_then(|at| usize::try_from(*at).ok()).unwrap_or(0));
        let dict = PyDict::new(py);
        for (number, at) in (begin..end).filter(|_| column.is_valid(row)).enumerate() {
            let texts = [names.value(at), values.value(at)];
            if number == seen.len() {
                seen.push(texts.map(|text| (text, PyString::new(py, text))));
            }
            let Some(known) = seen.get_mut(number) else { continue };
            for (known, text) in known.iter_mut().zip(texts) {
                if known.0 != text {
                    *known = (text, PyString::new(py, text));
                }
            }
            let [(_, name), (_, value)] = &*known;
            dict.set_item(name, values.is_valid(at).then_some(value))?;
        }
        list.append(dict)?;
    }
    Ok(list)
}
