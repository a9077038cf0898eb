//! `RecoveredSegment`.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::kafka::Recovered;
use crate::report::Finding;

register! { class PyRecoveredSegment }

/// The part of a segment that a broker would keep after a crash: the length of the log, and the rebuilt indexes. Nothing was written.
///
/// Source: `LogSegment#recover`.
#[pyclass(name = "RecoveredSegment", module = "logdex._core", frozen)]
pub(super) struct PyRecoveredSegment {
    recovered: Recovered,
}

impl PyRecoveredSegment {
    pub(super) fn new(recovered: Recovered) -> Self {
        Self { recovered }
    }
}

#[pymethods]
impl PyRecoveredSegment {
    /// Length of the valid part of the log in bytes.
    #[getter]
    fn valid_bytes(&self) -> u64 {
        self.recovered.valid_bytes
    }

    /// Bytes after it, which the broker truncates.
    #[getter]
    fn truncated_bytes(&self) -> u64 {
        self.recovered.truncated_bytes
    }

    /// Number of batches in the valid part.
    #[getter]
    fn batches(&self) -> u64 {
        self.recovered.batches
    }

    /// The rebuilt `.index`, trimmed.
    #[getter]
    fn offset_index<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.recovered.offset_index)
    }

    /// The rebuilt `.timeindex`, trimmed.
    #[getter]
    fn time_index<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.recovered.time_index)
    }

    /// The rebuilt `.txnindex`; None if there was no such file and no transaction was aborted.
    #[getter]
    fn transaction_index<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.recovered.transaction_index.as_ref().map(|bytes| PyBytes::new(py, bytes))
    }

    /// The largest timestamp and the last offset of the first batch that has it; -1 and the base offset without any.
    #[getter]
    fn max_timestamp(&self) -> (i64, i64) {
        (self.recovered.max_timestamp.timestamp, self.recovered.max_timestamp.offset)
    }

    /// Offset after the last batch.
    #[getter]
    fn next_offset(&self) -> i64 {
        self.recovered.next_offset
    }

    /// The reason for an end of the valid part before the end of the log: a list of `logdex.report.Finding`.
    #[getter]
    fn findings(&self) -> Vec<Finding> {
        self.recovered.findings.clone()
    }

    fn __repr__(&self) -> String {
        let Recovered { valid_bytes, truncated_bytes, batches, .. } = &self.recovered;
        format!("RecoveredSegment(valid_bytes={valid_bytes}, truncated_bytes={truncated_bytes}, batches={batches})")
    }
}
