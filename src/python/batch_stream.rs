//! The common part of the classes that return record batches: they are read, closed or handed over, once.

use std::sync::{Arc, MutexGuard};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::SchemaRef;
use pyo3::exceptions::{PyStopIteration, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3_arrow::{PyRecordBatch, PyRecordBatchReader, PySchema, PyTable};

use super::handle_mutex::HandleMutex;
use crate::error::{Error, Result};

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

    pub(super) fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        PySchema::new(Arc::clone(&self.schema)).into_arro3(py)
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

    pub(super) fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        loop {
            let batch =
                py.detach(|| self.lock()?.reader.as_mut().map(R::next_batch).transpose())?.ok_or_else(is_closed)?;
            match batch {
                // A filter passes few rows: the user may have pressed Ctrl-C meanwhile.
                Some(batch) if batch.num_rows() == 0 => py.check_signals()?,
                batch => return batch.map(|batch| PyRecordBatch::new(batch).into_arro3(py)).transpose(),
            }
        }
    }

    pub(super) fn read_next_batch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.next(py)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    pub(super) fn read_all<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        PyTable::try_new(self.batches(py)?, Arc::clone(&self.schema))?.into_arro3(py)
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
        self.schema(py)?.call_method0("__arrow_c_schema__")
    }

    /// Hands the reader over as an Arrow stream.
    pub(super) fn stream_capsule<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let reader = self.take(py)?;
        PyRecordBatchReader::new(Box::new(reader))
            .into_arro3(py)?
            .call_method1("__arrow_c_stream__", (requested_schema,))
    }
}

/// Returns the text of `__repr__` of a stream: the class and its columns.
pub(super) fn columns_text(class: &str, schema: &SchemaRef) -> String {
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    format!("{class}({})", names.join(", "))
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
            fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                self.0.schema(py)
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

            fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
                Ok(slf.get().0.text(&slf.get_type().name()?.to_string()))
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
                requested_schema: Option<Bound<'py, pyo3::types::PyCapsule>>,
            ) -> PyResult<Bound<'py, PyAny>> {
                self.0.stream_capsule(py, requested_schema)
            }
        }
    };
}
pub(super) use batch_reader;
