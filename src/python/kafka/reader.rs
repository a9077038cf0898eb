//! `SegmentReader`: records or batches of segments as record batches.

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::SchemaRef;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::super::batch_stream::{BatchStream, Batches};
use super::super::report;
use crate::error::Result;
use crate::kafka::SegmentReader;
use crate::report::Finding;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PySegmentReader>()
}

/// What is known of the way through the segments.
#[derive(Clone)]
pub(in super::super) struct Notes {
    findings: Vec<Finding>,
    position: u64,
    bytes_read: u64,
}

impl Batches for SegmentReader {
    type Notes = Notes;

    fn schema(&self) -> SchemaRef {
        RecordBatchReader::schema(self)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        self.next_batch()
    }

    fn notes(&self) -> Notes {
        Notes { findings: self.findings().to_vec(), position: self.position(), bytes_read: self.bytes_read() }
    }

    fn into_stream(self) -> Box<dyn RecordBatchReader + Send> {
        Box::new(self)
    }
}

/// Records or batches of segments as record batches: an iterator and an Arrow stream.
///
/// The iterator releases the interpreter lock. It raises `CorruptFileError` for damage and `OSError` for the system's errors.
#[pyclass(name = "SegmentReader", module = "logdex._core", frozen)]
pub(super) struct PySegmentReader(BatchStream<SegmentReader>);

impl PySegmentReader {
    pub(super) fn new(reader: SegmentReader) -> Self {
        Self(BatchStream::new(reader))
    }
}

#[pymethods]
impl PySegmentReader {
    /// The schema of the batches.
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.schema(py)
    }

    /// True after `close`, `read_all`, or after it was passed on as a stream.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.0.closed(py)
    }

    /// Findings so far that were not raised, as a list of `logdex.report.Finding`: torn and zero tails, skipped batches.
    #[getter]
    fn findings<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        report::findings(py, &self.0.notes(py).findings)
    }

    /// Byte offset in the current segment, after the last whole batch that was read.
    #[getter]
    fn position(&self, py: Python<'_>) -> u64 {
        self.0.notes(py).position
    }

    /// Bytes of segments that were read so far.
    #[getter]
    fn bytes_read(&self, py: Python<'_>) -> u64 {
        self.0.notes(py).bytes_read
    }

    /// Return the next batch.
    ///
    /// Raises:
    ///     StopIteration: There is no further batch.
    ///     CorruptFileError: A segment is damaged; the reader is at its end.
    ///     OSError: A file cannot be read; the reader is at its end.
    fn read_next_batch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.read_next_batch(py)
    }

    /// Return the remaining batches as a table.
    fn read_all<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.read_all(py)
    }

    /// Close the files.
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
