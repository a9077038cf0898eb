//! `SegmentReader`: records or batches of segments as record batches.

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::SchemaRef;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::super::batch_stream::{BatchStream, Batches};
use super::super::report;
use crate::error::Result;
use crate::kafka::{BatchReader, Finding, RecordReader};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PySegmentReader>()
}

/// What is read.
#[expect(clippy::large_enum_variant, reason = "there is one for each reader")]
pub(super) enum Reader {
    Records(RecordReader),
    Batches(BatchReader),
}

/// What is known of the way through the segments.
#[derive(Clone)]
pub(super) struct Notes {
    findings: Vec<Finding>,
    position: u64,
    bytes_read: u64,
}

impl Batches for Reader {
    type Notes = Notes;

    fn schema(&self) -> SchemaRef {
        match self {
            Self::Records(reader) => reader.schema(),
            Self::Batches(reader) => reader.schema(),
        }
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        match self {
            Self::Records(reader) => reader.next_batch(),
            Self::Batches(reader) => reader.next_batch(),
        }
    }

    fn notes(&self) -> Notes {
        let (findings, position, bytes_read) = match self {
            Self::Records(reader) => (reader.findings(), reader.position(), reader.bytes_read()),
            Self::Batches(reader) => (reader.findings(), reader.position(), reader.bytes_read()),
        };
        Notes { findings: findings.to_vec(), position, bytes_read }
    }

    fn into_stream(self) -> Box<dyn RecordBatchReader + Send> {
        match self {
            Self::Records(reader) => Box::new(reader),
            Self::Batches(reader) => Box::new(reader),
        }
    }
}

/// Records or batches of segments as record batches: an iterator, and an Arrow stream for whoever takes one.
///
/// As an iterator it releases the interpreter lock and raises `CorruptFileError` and the system's errors as they are.
#[pyclass(name = "SegmentReader", module = "logdex._core", frozen)]
pub(super) struct PySegmentReader(BatchStream<Reader>);

impl PySegmentReader {
    pub(super) fn new(reader: Reader) -> Self {
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

    /// True when it was closed, read to a table, or handed over as a stream.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.0.closed(py)
    }

    /// What was met so far and not raised, as a list of `logdex.report.Finding`: torn and zero tails, batches left out.
    #[getter]
    fn findings<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        report::findings(py, &self.0.notes(py).findings)
    }

    /// Byte offset in the segment at hand, behind the last whole batch that was read.
    #[getter]
    fn position(&self, py: Python<'_>) -> u64 {
        self.0.notes(py).position
    }

    /// Bytes of segments that were read so far.
    #[getter]
    fn bytes_read(&self, py: Python<'_>) -> u64 {
        self.0.notes(py).bytes_read
    }

    /// The next batch.
    ///
    /// Raises:
    ///     StopIteration: There is none.
    ///     CorruptFileError: Something cannot be true; the reader is at its end then.
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
