//! `BatchStream`: an Arrow stream of record batches that Python makes one by one.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::exceptions::{PyException, PyStopIteration};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyIterator, PyList};
use pyo3_arrow::{PyRecordBatch, PyRecordBatchReader, PySchema, PyTable};

use super::batch_stream::{columns_text, is_closed};
use super::signals;

/// A Python iterator of record batches.
struct GivenBatches {
    schema: SchemaRef,
    /// `None` after its end or an error.
    batches: Option<Py<PyIterator>>,
}

impl GivenBatches {
    /// The next batch. Its columns must have the types of the schema, by which the consumer reads its memory.
    fn next_of(&self, batches: &mut Bound<'_, PyIterator>) -> PyResult<Option<RecordBatch>> {
        let Some(batch) = batches.next().transpose()? else { return Ok(None) };
        let batch = batch.extract::<PyRecordBatch>()?.into_inner();
        let (promised, given) = (self.schema.fields(), batch.schema_ref().fields());
        if promised.iter().map(|field| field.data_type()).eq(given.iter().map(|field| field.data_type())) {
            return Ok(Some(batch));
        }
        let text = format!("a stream of {promised:?} was given a batch of {given:?}");
        Err(pyo3::exceptions::PyTypeError::new_err(text))
    }
}

impl Iterator for GivenBatches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batches = self.batches.take()?;
        Python::attach(|py| {
            let next = self.next_of(&mut batches.bind(py).clone());
            if let Ok(Some(_)) = &next {
                self.batches = Some(batches);
            }
            let text = |error: PyErr| {
                // Keep the exception of Ctrl-C, not only its text.
                if !error.is_instance_of::<PyException>(py) {
                    signals::raise_later(error.clone_ref(py));
                }
                ArrowError::ExternalError(Box::new(error))
            };
            next.map_err(text).transpose()
        })
    }
}

impl RecordBatchReader for GivenBatches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// A stream of record batches that are made on demand: iterate over it, or pass it to a consumer of Arrow streams.
///
/// Iteration raises the original exception; an Arrow consumer gets its text.
///
/// Args:
///     schema: The schema of the batches.
///     batches: An iterator of record batches with this schema.
///     findings: A list that the iterator fills while it runs, with what it passes over.
#[pyclass(name = "BatchStream", module = "logdex._core", frozen)]
struct PyBatchStream {
    schema: SchemaRef,
    /// `None` once the stream was closed, read to a table or passed to a consumer.
    batches: Mutex<Option<Py<PyIterator>>>,
    findings: Py<PyList>,
}

impl PyBatchStream {
    fn take(&self) -> Option<Py<PyIterator>> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The iterator. It runs without the lock, because it runs Python code.
    fn iterator<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        batches.as_ref().map(|batches| batches.bind(py).clone()).ok_or_else(is_closed)
    }
}

#[pymethods]
impl PyBatchStream {
    #[new]
    #[pyo3(signature = (schema, batches, findings=None))]
    fn new(schema: PySchema, batches: &Bound<'_, PyAny>, findings: Option<Bound<'_, PyList>>) -> PyResult<Self> {
        let findings = findings.unwrap_or_else(|| PyList::empty(batches.py())).unbind();
        let batches = Mutex::new(Some(batches.try_iter()?.unbind()));
        Ok(Self { schema: schema.into_inner(), batches, findings })
    }

    /// The columns.
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        PySchema::new(Arc::clone(&self.schema)).into_arro3(py)
    }

    /// The skipped data so far, as a list of `logdex.report.Finding`; complete at the end of the batches.
    ///
    /// It is also filled after the stream was passed to a consumer.
    #[getter]
    fn findings(&self, py: Python<'_>) -> Py<PyList> {
        self.findings.clone_ref(py)
    }

    /// True if it was closed, read to a table or passed to a consumer.
    #[getter]
    fn closed(&self) -> bool {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Release the batches. A second call does nothing.
    fn close(&self) {
        drop(self.take());
    }

    fn __repr__(&self) -> String {
        columns_text("BatchStream", &self.schema)
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.iterator(py)?.next().transpose()
    }

    /// Return the next batch.
    ///
    /// Raises:
    ///     StopIteration: There is none.
    fn read_next_batch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.__next__(py)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// Return the remaining batches as a table.
    fn read_all<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let iterator = self.take().ok_or_else(is_closed)?.into_bound(py);
        let batches = iterator.map(|batch| Ok(batch?.extract::<PyRecordBatch>()?.into_inner()));
        let batches = batches.collect::<PyResult<Vec<_>>>()?;
        PyTable::try_new(batches, Arc::clone(&self.schema))?.into_arro3(py)
    }

    /// Export the schema.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.schema(py)?.call_method0("__arrow_c_schema__")
    }

    /// Export the remaining batches.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let batches = Some(self.take().ok_or_else(is_closed)?);
        let given = GivenBatches { schema: Arc::clone(&self.schema), batches };
        PyRecordBatchReader::new(Box::new(given))
            .into_arro3(py)?
            .call_method1("__arrow_c_stream__", (requested_schema,))
    }
}

/// Adds the class to the module.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyBatchStream>()
}
