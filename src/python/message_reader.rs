//! `MessageReader`: what a scan of the log gives.

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::SchemaRef;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::batch_stream::{BatchStream, Batches};
use super::report;
use crate::error::Result;
use crate::io::FileSource;
use crate::report::Report;
use crate::rocketmq::commit_log::MessageReader;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyMessageReader>()
}

/// What is known of a scan.
#[derive(Clone)]
pub(super) struct Notes {
    end_offset: Option<u64>,
    checked: Report,
}

impl Batches for MessageReader<FileSource> {
    type Notes = Notes;

    fn schema(&self) -> SchemaRef {
        RecordBatchReader::schema(self)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        Self::next_batch(self)
    }

    fn notes(&self) -> Notes {
        Notes { end_offset: self.stop().map(|stop| stop.phy_offset), checked: self.checked().clone() }
    }

    fn into_stream(self) -> Box<dyn RecordBatchReader + Send> {
        Box::new(self)
    }
}

/// Messages as record batches: an iterator, and an Arrow stream for a consumer.
///
/// As an iterator it releases the interpreter lock and raises the system's errors as they are.
#[pyclass(name = "MessageReader", module = "logdex._core", frozen)]
pub(super) struct PyMessageReader(BatchStream<MessageReader<FileSource>>);

impl PyMessageReader {
    pub(super) fn new(reader: MessageReader<FileSource>) -> Self {
        Self(BatchStream::new(reader))
    }
}

#[pymethods]
impl PyMessageReader {
    /// The schema of the batches.
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.schema(py)
    }

    /// True when it was closed, read to a table, or handed over as a stream.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.0.closed(py)
    }

    /// Offset in the log where the scan ended; None while it goes on, and where it was handed over or closed before.
    #[getter]
    fn end_offset(&self, py: Python<'_>) -> Option<u64> {
        self.0.notes(py).end_offset
    }

    /// What was refused so far, as a `logdex.report.Report`; what a stream meets that it was handed over as is not in it.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        report::report(py, &self.0.notes(py).checked)
    }

    /// The next batch.
    ///
    /// Raises:
    ///     StopIteration: There is none.
    ///     OSError: The system refuses; the reader is at its end then.
    fn read_next_batch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.read_next_batch(py)
    }

    /// All batches that are left, as a table.
    fn read_all<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.read_all(py)
    }

    /// Let go of the files.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.next(py)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.schema_capsule(py)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.0.stream_capsule(py, requested_schema)
    }
}
