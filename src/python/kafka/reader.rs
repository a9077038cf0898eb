//! `SegmentReader`: records or batches of segments as record batches.

use std::sync::{Mutex, MutexGuard, PoisonError};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::SchemaRef;
use pyo3::exceptions::{PyStopIteration, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3_arrow::{PyRecordBatch, PyRecordBatchReader, PySchema, PyTable};

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

impl Reader {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        match self {
            Self::Records(reader) => reader.next_batch(),
            Self::Batches(reader) => reader.next_batch(),
        }
    }

    fn findings(&self) -> &[Finding] {
        match self {
            Self::Records(reader) => reader.findings(),
            Self::Batches(reader) => reader.findings(),
        }
    }

    fn position(&self) -> u64 {
        match self {
            Self::Records(reader) => reader.position(),
            Self::Batches(reader) => reader.position(),
        }
    }

    fn bytes_read(&self) -> u64 {
        match self {
            Self::Records(reader) => reader.bytes_read(),
            Self::Batches(reader) => reader.bytes_read(),
        }
    }

    fn schema(&self) -> SchemaRef {
        match self {
            Self::Records(reader) => reader.schema(),
            Self::Batches(reader) => reader.schema(),
        }
    }

    fn into_stream(self) -> Box<dyn RecordBatchReader + Send> {
        match self {
            Self::Records(reader) => Box::new(reader),
            Self::Batches(reader) => Box::new(reader),
        }
    }
}

/// The reader, and what is known of it once it was given away or read to its end.
struct State {
    reader: Option<Reader>,
    findings: Vec<Finding>,
    position: u64,
    bytes_read: u64,
}

impl State {
    fn note(&mut self) {
        if let Some(reader) = &self.reader {
            self.findings = reader.findings().to_vec();
            (self.position, self.bytes_read) = (reader.position(), reader.bytes_read());
        }
    }
}

/// Records or batches of segments as record batches: an iterator, and an Arrow stream for whoever takes one.
///
/// As an iterator it releases the interpreter lock and raises `CorruptFileError` and the system's errors as they are.
#[pyclass(name = "SegmentReader", module = "logdex._core", frozen)]
pub(super) struct PySegmentReader {
    state: Mutex<State>,
    schema: SchemaRef,
}

impl PySegmentReader {
    pub(super) fn new(reader: Reader) -> Self {
        let schema = reader.schema();
        let state = State { reader: Some(reader), findings: Vec::new(), position: 0, bytes_read: 0 };
        Self { state: Mutex::new(state), schema }
    }

    /// To be taken without the interpreter lock: another thread may hold it for as long as a batch takes.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, py: Python<'_>) -> PyResult<Reader> {
        py.detach(|| {
            let mut state = self.lock();
            state.note();
            state.reader.take()
        })
        .ok_or_else(closed)
    }
}

fn closed() -> PyErr {
    PyValueError::new_err("the reader was closed, read to a table or handed over as a stream")
}

#[pymethods]
impl PySegmentReader {
    /// The schema of the batches.
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        PySchema::new(SchemaRef::clone(&self.schema)).into_arro3(py)
    }

    /// True when it was closed, read to a table, or handed over as a stream.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        py.detach(|| self.lock().reader.is_none())
    }

    /// What was met so far and not raised, as a list of `logdex.report.Finding`: torn and zero tails, batches left out.
    #[getter]
    fn findings<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let findings = py.detach(|| {
            let mut state = self.lock();
            state.note();
            state.findings.clone()
        });
        report::findings_in_segments(py, &findings)
    }

    /// Byte offset in the segment at hand, behind the last whole batch that was read.
    #[getter]
    fn position(&self, py: Python<'_>) -> u64 {
        py.detach(|| {
            let mut state = self.lock();
            state.note();
            state.position
        })
    }

    /// Bytes of segments that were read so far.
    #[getter]
    fn bytes_read(&self, py: Python<'_>) -> u64 {
        py.detach(|| {
            let mut state = self.lock();
            state.note();
            state.bytes_read
        })
    }

    /// The next batch.
    ///
    /// Raises:
    ///     StopIteration: There is none.
    ///     CorruptFileError: Something cannot be true; the reader is at its end then.
    ///     OSError: The system refuses; the reader is at its end then.
    fn read_next_batch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.__next__(py)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// All batches that are left, as a table.
    fn read_all<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut reader = self.take(py)?;
        let (batches, reader) = py.detach(move || {
            let mut batches = Vec::new();
            while let Some(batch) = reader.next_batch()? {
                batches.push(batch);
            }
            Ok::<_, crate::error::Error>((batches, reader))
        })?;
        py.detach(|| {
            let mut state = self.lock();
            state.findings = reader.findings().to_vec();
            (state.position, state.bytes_read) = (reader.position(), reader.bytes_read());
        });
        PyTable::try_new(batches, SchemaRef::clone(&self.schema))?.into_arro3(py)
    }

    /// Let go of the files.
    fn close(&self, py: Python<'_>) {
        drop(self.take(py));
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let batch = py.detach(|| self.lock().reader.as_mut().map(Reader::next_batch)).ok_or_else(closed)??;
        batch.map(|batch| PyRecordBatch::new(batch).into_arro3(py)).transpose()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.schema(py)?.call_method0("__arrow_c_schema__")
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reader = self.take(py)?.into_stream();
        PyRecordBatchReader::new(reader).into_arro3(py)?.call_method1("__arrow_c_stream__", (requested_schema,))
    }
}
