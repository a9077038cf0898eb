//! `MessageReader`: what a scan of the log gives.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatchReader;
use arrow_schema::SchemaRef;
use pyo3::exceptions::{PyStopIteration, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3_arrow::{PyRecordBatch, PyRecordBatchReader, PySchema, PyTable};

use super::report;
use crate::mmap::FileSource;
use crate::rocketmq::commit_log::MessageReader;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyMessageReader>()
}

/// Messages as record batches: an iterator, and an Arrow stream for whoever takes one.
///
/// As an iterator it releases the interpreter lock and raises the system's errors as they are.
#[pyclass(name = "MessageReader", module = "logdex._core", frozen)]
pub(super) struct PyMessageReader {
    reader: Mutex<Option<MessageReader<FileSource>>>,
    schema: SchemaRef,
}

impl PyMessageReader {
    pub(super) fn new(reader: MessageReader<FileSource>) -> Self {
        let schema = reader.schema();
        Self { reader: Mutex::new(Some(reader)), schema }
    }

    /// To be taken without the interpreter lock: another thread may hold it for as long as a batch takes.
    fn lock(&self) -> MutexGuard<'_, Option<MessageReader<FileSource>>> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, py: Python<'_>) -> PyResult<MessageReader<FileSource>> {
        py.detach(|| self.lock().take()).ok_or_else(closed)
    }
}

fn closed() -> PyErr {
    PyValueError::new_err("the reader was closed, read to a table or handed over as a stream")
}

#[pymethods]
impl PyMessageReader {
    /// The schema of the batches.
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        PySchema::new(Arc::clone(&self.schema)).into_arro3(py)
    }

    /// True when it was closed, read to a table, or handed over as a stream.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        py.detach(|| self.lock().is_none())
    }

    /// Offset in the log where the scan ended; None while it goes on, and after the reader was handed over as a stream.
    #[getter]
    fn end_offset(&self, py: Python<'_>) -> Option<u64> {
        py.detach(|| self.lock().as_ref().and_then(|reader| reader.stop().map(|stop| stop.phy_offset)))
    }

    /// What was refused so far, as a `logdex.report.Report`; empty after the reader was handed over as a stream.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let checked = py.detach(|| self.lock().as_ref().map(|reader| reader.checked().clone()));
        report::of_store(py, &checked.unwrap_or_default())
    }

    /// The next batch.
    ///
    /// Raises:
    ///     StopIteration: There is none.
    ///     OSError: The system refuses; the reader is at its end then.
    fn read_next_batch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.__next__(py)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// All batches that are left, as a table.
    fn read_all<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut reader = self.take(py)?;
        let batches = py.detach(|| {
            let mut batches = Vec::new();
            while let Some(batch) = reader.next_batch()? {
                batches.push(batch);
            }
            Ok::<_, crate::error::Error>(batches)
        })?;
        PyTable::try_new(batches, Arc::clone(&self.schema))?.into_arro3(py)
    }

    /// Let go of the files.
    fn close(&self, py: Python<'_>) {
        drop(py.detach(|| self.lock().take()));
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let batch = py.detach(|| self.lock().as_mut().map(MessageReader::next_batch)).ok_or_else(closed)??;
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
        let reader: Box<dyn RecordBatchReader + Send> = Box::new(self.take(py)?);
        PyRecordBatchReader::new(reader).into_arro3(py)?.call_method1("__arrow_c_stream__", (requested_schema,))
    }
}
