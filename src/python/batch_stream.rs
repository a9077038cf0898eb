//! Arrow streams of record batches: the common part of the readers, which are read, closed or handed over once; and `BatchStream`, whose
//! batches Python makes one by one.

use std::sync::{Arc, Mutex, MutexGuard};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::exceptions::{PyException, PyStopIteration, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyIterator, PyList};
use pyo3_arrow::{PyRecordBatch, PyRecordBatchReader, PySchema};

use super::convert::{ArrowBatch, ArrowSchema, ArrowTable};
use super::handle::{HandleMutex, lock};
use super::signals;
use crate::error::{Error, Result};

register! { class PyBatchStream }

/// A reader of record batches.
pub(super) trait Batches: RecordBatchReader + Send + 'static {
    /// The facts known so far; they outlive the reader.
    type Notes: Clone + Send;

    /// Returns the next batch, with the errors as they are.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>>;

    fn notes(&self) -> Self::Notes;
}

struct State<R: Batches> {
    reader: Option<R>,
    notes: R::Notes,
}

/// The state of an object of Python: a reader until it is closed, read to a table or handed over.
pub(super) struct BatchStream<R: Batches> {
    state: HandleMutex<State<R>>,
    schema: SchemaRef,
}

impl<R: Batches> BatchStream<R> {
    pub(super) fn new(reader: R) -> Self {
        let (schema, notes) = (reader.schema(), reader.notes());
        Self { state: HandleMutex::new(State { reader: Some(reader), notes }), schema }
    }

    /// To be taken without the interpreter lock: another thread may hold it for as long as a batch takes.
    fn lock(&self) -> Result<MutexGuard<'_, State<R>>> {
        self.state.lock()
    }

    pub(super) fn take(&self, py: Python<'_>) -> PyResult<R> {
        py.detach(|| {
            let mut state = self.lock()?;
            let reader = state.reader.take();
            if let Some(reader) = &reader {
                state.notes = reader.notes();
            }
            Ok::<_, Error>(reader)
        })?
        .ok_or_else(is_closed)
    }

    /// The facts known by now, or when the reader was closed, read to its end or handed over.
    pub(super) fn notes(&self, py: Python<'_>) -> PyResult<R::Notes> {
        Ok(py.detach(|| self.lock().map(|state| state.reader.as_ref().map_or_else(|| state.notes.clone(), R::notes)))?)
    }

    pub(super) fn schema(&self) -> ArrowSchema {
        ArrowSchema(Arc::clone(&self.schema))
    }

    /// Returns the text of `__repr__`: the class and its columns. The reader itself may be busy.
    pub(super) fn text(&self, class: &str) -> String {
        columns_text(class, &self.schema)
    }

    pub(super) fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(py.detach(|| self.lock().map(|state| state.reader.is_none()))?)
    }

    pub(super) fn close(&self, py: Python<'_>) {
        drop(self.take(py));
    }

    pub(super) fn next(&self, py: Python<'_>) -> PyResult<Option<ArrowBatch>> {
        loop {
            let batch =
                py.detach(|| self.lock()?.reader.as_mut().map(R::next_batch).transpose())?.ok_or_else(is_closed)?;
            match batch {
                // A filter passes few rows: the user may have pressed Ctrl-C meanwhile.
                Some(batch) if batch.num_rows() == 0 => py.check_signals()?,
                batch => return Ok(batch.map(ArrowBatch)),
            }
        }
    }

    pub(super) fn read_next_batch(&self, py: Python<'_>) -> PyResult<ArrowBatch> {
        self.next(py)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    pub(super) fn read_all(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        Ok(ArrowTable(self.batches(py)?, Arc::clone(&self.schema)))
    }

    /// Reads the remaining batches.
    pub(super) fn batches(&self, py: Python<'_>) -> PyResult<Vec<RecordBatch>> {
        let mut reader = self.take(py)?;
        let batches = py.detach(|| {
            let mut batches = Vec::new();
            while let Some(batch) = reader.next_batch()? {
                batches.push(batch);
            }
            self.lock()?.notes = reader.notes();
            Ok::<_, Error>(batches)
        })?;
        Ok(batches)
    }

    pub(super) fn schema_capsule<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.schema().into_pyobject(py)?.call_method0("__arrow_c_schema__")
    }

    /// Hands the reader over as an Arrow stream.
    pub(super) fn stream_capsule<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reader = self.take(py)?;
        stream_of(py, Box::new(reader), requested_schema)
    }
}

/// Returns the text of `__repr__` of a stream: the class and its columns.
pub(super) fn columns_text(class: &str, schema: &SchemaRef) -> String {
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    format!("{class}({})", names.join(", "))
}

/// Exports a reader as an Arrow stream.
pub(super) fn stream_of<'py>(
    py: Python<'py>,
    reader: Box<dyn RecordBatchReader + Send>,
    requested_schema: Option<Bound<'py, PyCapsule>>,
) -> PyResult<Bound<'py, PyAny>> {
    PyRecordBatchReader::new(reader).into_arro3(py)?.call_method1("__arrow_c_stream__", (requested_schema,))
}

/// Returns a table as a frame of another package, by a function of `logdex.arrow`.
pub(super) fn in_frame<'py>(py: Python<'py>, table: ArrowTable, function: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("logdex.arrow")?.call_method1(function, (table,))
}

pub(super) fn is_closed() -> PyErr {
    PyValueError::new_err("the reader was closed, read to a table or handed over as a stream")
}

/// Generates the methods of a class that returns record batches: its own, and those that all of them have.
macro_rules! batch_reader {
    ($class:ident { $($own:tt)* }) => {
        #[pymethods]
        impl $class {
            $($own)*

            /// The schema of the batches.
            #[getter]
            fn schema(&self) -> $crate::python::convert::ArrowSchema {
                self.0.schema()
            }

            /// True when it was closed, read to a table, or handed over as a stream.
            #[getter]
            fn closed(&self, py: Python<'_>) -> PyResult<bool> {
                self.0.closed(py)
            }

            /// Return the next batch.
            ///
            /// Raises:
            ///     StopIteration: There is no further batch.
            ///     OSError: A file cannot be read; the reader is at its end.
            ///     CorruptFileError: The reader does not pass over damage; it is at its end.
            fn read_next_batch(&self, py: Python<'_>) -> PyResult<$crate::python::convert::ArrowBatch> {
                self.0.read_next_batch(py)
            }

            /// Return the remaining batches as a table.
            fn read_all(&self, py: Python<'_>) -> PyResult<$crate::python::convert::ArrowTable> {
                self.0.read_all(py)
            }

            /// Return the remaining batches as a `pandas.DataFrame`; see `BatchStream.to_pandas`.
            ///
            /// Raises:
            ///     ImportError: pandas or pyarrow is not installed.
            fn to_pandas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                $crate::python::batch_stream::in_frame(py, self.0.read_all(py)?, "to_pandas")
            }

            /// Return the remaining batches as a `polars.DataFrame`.
            ///
            /// Raises:
            ///     ImportError: polars is not installed.
            fn to_polars<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                $crate::python::batch_stream::in_frame(py, self.0.read_all(py)?, "to_polars")
            }

            /// Return the remaining batches as an `arro3.core.Table`, which `pyarrow.table` takes without a copy.
            fn to_arrow(&self, py: Python<'_>) -> PyResult<$crate::python::convert::ArrowTable> {
                self.0.read_all(py)
            }

            /// Close the files.
            fn close(&self, py: Python<'_>) {
                self.0.close(py);
            }

            fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
                Ok(slf.get().0.text(&slf.get_type().name()?.to_string()))
            }

            fn __iter__(slf: Py<Self>) -> Py<Self> {
                slf
            }

            fn __next__(&self, py: Python<'_>) -> PyResult<Option<$crate::python::convert::ArrowBatch>> {
                self.0.next(py)
            }

            fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                self.0.schema_capsule(py)
            }

            #[pyo3(signature = (requested_schema=None))]
            fn __arrow_c_stream__<'py>(
                &self,
                py: Python<'py>,
                requested_schema: Option<Bound<'py, pyo3::types::PyCapsule>>,
            ) -> PyResult<Bound<'py, PyAny>> {
                self.0.stream_capsule(py, requested_schema)
            }
        }
    };
}
pub(super) use batch_reader;

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
    type Item = std::result::Result<RecordBatch, ArrowError>;

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
        lock(&self.batches).take()
    }

    /// The iterator. It runs without the lock, because it runs Python code.
    fn iterator<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let batches = lock(&self.batches);
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
    fn schema(&self) -> ArrowSchema {
        ArrowSchema(Arc::clone(&self.schema))
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
        lock(&self.batches).is_none()
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
    ///     StopIteration: There is no further batch.
    fn read_next_batch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.__next__(py)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// Return the remaining batches as a table.
    fn read_all(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        let iterator = self.take().ok_or_else(is_closed)?.into_bound(py);
        let batches = iterator.map(|batch| Ok(batch?.extract::<PyRecordBatch>()?.into_inner()));
        Ok(ArrowTable(batches.collect::<PyResult<Vec<_>>>()?, Arc::clone(&self.schema)))
    }

    /// Return the remaining batches as a `pandas.DataFrame`. Every column is a `pandas.ArrowDtype`, without a copy.
    ///
    /// So numbers with nulls stay integers, times stay milliseconds in UTC, and bytes and texts are not objects.
    ///
    /// Raises:
    ///     ImportError: pandas or pyarrow is not installed.
    fn to_pandas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        in_frame(py, self.read_all(py)?, "to_pandas")
    }

    /// Return the remaining batches as a `polars.DataFrame`. See `logdex.polars.scan` for a lazy frame.
    ///
    /// Raises:
    ///     ImportError: polars is not installed.
    fn to_polars<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        in_frame(py, self.read_all(py)?, "to_polars")
    }

    /// Return the remaining batches as an `arro3.core.Table`, which `pyarrow.table` takes without a copy.
    fn to_arrow(&self, py: Python<'_>) -> PyResult<ArrowTable> {
        self.read_all(py)
    }

    /// Export the schema.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.schema().into_pyobject(py)?.call_method0("__arrow_c_schema__")
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
        stream_of(py, Box::new(given), requested_schema)
    }
}
