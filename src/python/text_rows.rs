//! Rows of a batch, and times, as text; the number of rows with each value.

use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3_arrow::{PyRecordBatch, PySchema};

use super::convert;
use super::handle::{Raised, lock};
use super::integer;

use crate::arrow::text_rows;
use crate::arrow::value_counts::{ValueCounts, value_counts as counts_of};
use crate::error::{Error, Result};
use crate::time_text::{self as times, Zone};

register! { fn json_lines, text_lines, format_rows, format_columns, csv_names, csv_lines, distinct, value_counts, time_text, parse_time }

/// Write rows of messages or records as JSON lines, in ASCII; docs/guides/read.md describes the values.
///
/// `write` is called with bytes, in pieces of about 256 KiB, which may end anywhere.
#[pyfunction]
fn json_lines(py: Python<'_>, batch: PyRecordBatch, write: Py<PyAny>) -> PyResult<()> {
    let batch = batch.into_inner();
    let write = |piece: &str| Python::attach(|py| write.call1(py, (PyBytes::new(py, piece.as_bytes()),)).map(drop));
    py.detach(|| text_rows::json_lines(&batch, write))
}

/// The clocks of a time zone do not change within a quarter of an hour that begins at a whole one.
const QUARTER_S: i64 = 900;

/// Calls with a time zone, which Python knows: a function that returns the offset from UTC in seconds at a time in seconds.
pub(super) fn with_zone<T>(zone: Option<Py<PyAny>>, call: impl FnOnce(Zone<'_>) -> Result<T>) -> PyResult<T> {
    let Some(zone) = zone else { return Ok(call(None)?) };
    let raised = Raised::default();
    let last = Mutex::new((i64::MIN, 0));
    let offset = |time_ms: i64| {
        let begin = time_ms.div_euclid(1_000 * QUARTER_S) * QUARTER_S;
        let mut last = lock(&last);
        if last.0 != begin {
            let asked = Python::attach(|py| zone.call1(py, (begin,))?.extract::<i32>(py));
            // The exception is raised at the end of the call.
            *last = (begin, i64::from(raised.keep(asked, "the time zone is invalid").unwrap_or_default()) * 1_000);
        }
        last.1
    };
    let answer = call(Some(&offset));
    raised.check(answer)
}

/// Write rows of messages or records as lines for people. Line breaks are escaped; other control characters are not.
///
/// Args:
///     batch: The rows.
///     write: Called with pieces of about 256 KiB, of whole lines.
///     labelled: Print each column of the batch with its name.
///     zone: Returns the offset of a time zone from UTC in seconds, at a time in seconds; None: UTC.
#[pyfunction]
#[pyo3(signature = (batch, write, *, labelled=false, zone=None))]
fn text_lines(
    py: Python<'_>,
    batch: PyRecordBatch,
    write: Py<PyAny>,
    labelled: bool,
    zone: Option<Py<PyAny>>,
) -> PyResult<()> {
    let (batch, raised) = (batch.into_inner(), Raised::default());
    let write =
        |piece: &str| raised.keep(Python::attach(|py| write.call1(py, (piece,)).map(drop)), "the caller cannot write");
    let written = py.detach(|| with_zone(zone, |zone| text_rows::text_lines::<Error>(&batch, labelled, zone, write)));
    raised.check(Ok(()))?;
    written
}

/// Write rows of messages or records in a format that a user wrote.
///
/// Args:
///     batch: The rows, with the columns of the format.
///     row_format: The format; docs/guides/read.md describes it.
///     write: Called with bytes, in pieces of about 256 KiB, of whole rows.
///     zone: As for `text_lines`.
///
/// Raises:
///     ValueError: A letter or an escape is unknown, with those that are known; or the rows do not have a column.
#[pyfunction]
#[pyo3(signature = (batch, row_format, write, *, zone=None))]
fn format_rows(
    py: Python<'_>,
    batch: PyRecordBatch,
    row_format: &str,
    write: Py<PyAny>,
    zone: Option<Py<PyAny>>,
) -> PyResult<()> {
    let (batch, raised) = (batch.into_inner(), Raised::default());
    let names: Vec<&str> = batch.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
    let format = text_rows::RowFormat::parse(row_format, &names)?;
    let write = |piece: &[u8]| {
        let written = Python::attach(|py| write.call1(py, (PyBytes::new(py, piece),)).map(drop));
        raised.keep(written, "the caller cannot write")
    };
    let written = py.detach(|| with_zone(zone, |zone| text_rows::format_rows::<Error>(&batch, &format, zone, write)));
    raised.check(Ok(()))?;
    written
}

/// Return the names of the columns that a format shows, each once. `names` are those of the rows; a name in braces need not be one.
///
/// Raises:
///     ValueError: A letter or an escape is unknown, with those that are known.
#[pyfunction]
fn format_columns(row_format: &str, names: Vec<String>) -> PyResult<Vec<String>> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let format = text_rows::RowFormat::parse(row_format, &names)?;
    Ok(format.columns().into_iter().map(str::to_owned).collect())
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

/// Return the most frequent values of a column with their number of rows, and the number of different values. Nulls are not counted.
///
/// Args:
///     column: Texts, bytes, numbers or times in ms.
///     limit: The most values.
///     separator: A letter that separates values in a text; empty ones are not counted.
///     step: Numbers and times stand for the multiple of it, the largest one up to them.
///
/// Raises:
///     ValueError: A column of another type.
#[pyfunction]
#[pyo3(signature = (column, *, limit, separator=None, step=None))]
fn value_counts<'py>(
    py: Python<'py>,
    column: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = integer::limit)] limit: u64,
    separator: Option<char>,
    #[pyo3(from_py_with = integer::step)] step: Option<i64>,
) -> PyResult<(Bound<'py, PyAny>, usize)> {
    let (column, limit) = (convert::any_column(column, "column")?, limit.try_into().unwrap_or(usize::MAX));
    Ok(match py.detach(|| counts_of(&column, limit, separator, step))? {
        ValueCounts::Texts(rows, number) => (rows.into_pyobject(py)?, number),
        ValueCounts::Numbers(rows, number) => (rows.into_pyobject(py)?, number),
        ValueCounts::Bytes(rows, number) => {
            let rows: Vec<_> = rows.iter().map(|(bytes, rows)| (PyBytes::new(py, bytes), rows)).collect();
            (rows.into_pyobject(py)?, number)
        }
    })
}

/// Return a time in ms as ISO 8601, or the number if its year has not four digits; None for None. `zone` is as for `text_lines`.
#[pyfunction]
#[pyo3(signature = (time_ms, *, zone=None))]
fn time_text(time_ms: Option<i64>, zone: Option<Py<PyAny>>) -> PyResult<Option<String>> {
    with_zone(zone, |zone| Ok(time_ms.map(|time_ms| times::zoned_text(time_ms, zone))))
}

/// Return the ms of a time that a user wrote: epoch milliseconds, ISO 8601, an age such as -2h, `now`, `today`, `yesterday`, or a
/// time of today such as 11:30.
///
/// A date, also as 20261121, is its first millisecond, or with `end` its last. Fractions of a millisecond are rounded into the
/// range. What has no zone of its own is in `zone`, which is as for `text_lines`.
///
/// Raises:
///     ValueError: Another text; a number before 1990, with its readings as milliseconds and as seconds.
#[pyfunction]
#[pyo3(signature = (text, *, now, end=false, zone=None))]
fn parse_time(text: &str, now: i64, end: bool, zone: Option<Py<PyAny>>) -> PyResult<i64> {
    with_zone(zone, |zone| times::parse_time(text, now, end, zone).map_err(Error::InvalidArgument))
}
