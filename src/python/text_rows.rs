//! Rows of a batch, and times, as text.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3_arrow::{PyRecordBatch, PySchema};

use super::convert;

use crate::arrow::text_rows;
use crate::time_text as times;

register! { fn json_lines, text_lines, csv_names, csv_lines, distinct, time_text, parse_time }

/// Write rows of messages or records as JSON lines, in ASCII; docs/guides/read.md describes the values.
///
/// `write` is called with bytes, in pieces of about 256 KiB, which may end anywhere.
#[pyfunction]
fn json_lines(py: Python<'_>, batch: PyRecordBatch, write: Py<PyAny>) -> PyResult<()> {
    let batch = batch.into_inner();
    let write = |piece: &str| Python::attach(|py| write.call1(py, (PyBytes::new(py, piece.as_bytes()),)).map(drop));
    py.detach(|| text_rows::json_lines(&batch, write))
}

/// Write rows of messages or records as lines for people. Line breaks are escaped; other control characters are not.
///
/// `write` is called with pieces of about 256 KiB, of whole lines.
#[pyfunction]
fn text_lines(py: Python<'_>, batch: PyRecordBatch, write: Py<PyAny>) -> PyResult<()> {
    let batch = batch.into_inner();
    py.detach(|| text_rows::text_lines(&batch, |piece| Python::attach(|py| write.call1(py, (piece,)).map(drop))))
}

/// Return the line of names of a CSV file.
#[pyfunction]
fn csv_names(schema: PySchema) -> String {
    text_rows::csv_names(&schema.into_inner())
}

/// Return rows of messages or records as lines of CSV.
#[pyfunction]
fn csv_lines(py: Python<'_>, batch: PyRecordBatch) -> PyResult<String> {
    let batch = batch.into_inner();
    Ok(py.detach(|| text_rows::csv_lines(&batch))?)
}

/// Return the numbers of an ascending column, each once.
#[pyfunction]
fn distinct(column: &Bound<'_, PyAny>) -> PyResult<Vec<i64>> {
    let mut numbers = convert::int64_column(column, "column")?.values().to_vec();
    numbers.dedup();
    Ok(numbers)
}

/// Return a time in ms as ISO 8601 in UTC, or the number if its year has not four digits; None for None.
#[pyfunction]
fn time_text(time_ms: Option<i64>) -> Option<String> {
    time_ms.map(|time_ms| times::TimeText(time_ms).to_string())
}

/// Return the ms of a time that a user wrote: epoch milliseconds, ISO 8601 (UTC if it has no zone), or an age such as -2h.
///
/// A date, also as 20261121, is its first millisecond, or with `end` its last. Fractions of a millisecond are rounded into the
/// range.
///
/// Raises:
///     ValueError: Another text; a number before 1990, with its readings as milliseconds and as seconds.
#[pyfunction]
#[pyo3(signature = (text, *, now, end=false))]
fn parse_time(text: &str, now: i64, end: bool) -> PyResult<i64> {
    times::parse_time(text, now, end).map_err(PyValueError::new_err)
}
