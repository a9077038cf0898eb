//! Rows of a batch as text, for files and programs.

use pyo3::prelude::*;
use pyo3_arrow::{PyRecordBatch, PySchema};

use crate::arrow::text_rows;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(json_lines, m)?)?;
    m.add_function(wrap_pyfunction!(csv_names, m)?)?;
    m.add_function(wrap_pyfunction!(csv_lines, m)?)
}

/// Return rows of messages or records as JSON lines, in ASCII; docs/guides/read.md describes the values.
#[pyfunction]
fn json_lines(py: Python<'_>, batch: PyRecordBatch) -> PyResult<String> {
    let batch = batch.into_inner();
    Ok(py.detach(|| text_rows::json_lines(&batch))?)
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
