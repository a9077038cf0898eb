//! `key_entries` and `key_text`: the entries of a key index.

use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;

use crate::kafka;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(key_entries, m)?)?;
    m.add_function(wrap_pyfunction!(key_text, m)?)
}

/// Return the index entries of a batch of records: topic, key, phy_offset (the record's offset) and store_timestamp.
///
/// Args:
///     records: A batch with the columns topic, key, offset and timestamp, and headers if `header` is given.
///     header: The name of a header whose values are indexed beside the keys.
#[pyfunction]
#[pyo3(signature = (records, header=None))]
fn key_entries<'py>(py: Python<'py>, records: PyRecordBatch, header: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
    let records = records.into_inner();
    let entries = py.detach(|| kafka::key_entries(&records, header))?;
    PyRecordBatch::new(entries).into_arro3(py)
}

/// Return the text of a key in the index: the key itself if it is UTF-8, otherwise its hexadecimal digits.
#[pyfunction]
fn key_text(key: &[u8]) -> String {
    kafka::key_text(key).into_owned()
}
