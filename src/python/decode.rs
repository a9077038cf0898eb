//! Batches of readers whose columns of bytes are decoded, and the progress of the read.

use std::io;
use std::sync::{Arc, Mutex};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use pyo3::Borrowed;
use pyo3::exceptions::{PyLookupError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3_arrow::{PyRecordBatch, PySchema};

use super::batch_stream::Batches;
use super::convert;
use super::convert::{ArrowBatch, ArrowSchema};
use super::handle::lock;
use super::signals::raise_later;
use crate::batch_size::BatchSize;
use crate::decode::{Decoders, Format, Pin, Sources, with_types};
use crate::error::{Error, Result, without_users};

register! { class PyDecoder; fn sampled_columns }

/// The columns to decode with their formats.
#[derive(Default)]
pub(super) struct Formats(Vec<(String, Format)>);

impl Formats {
    /// The size of the batches of a read; `rows` is what the caller chose. The first batch may be a sample.
    pub(super) fn batch_size(&self, rows: Option<i64>) -> PyResult<BatchSize> {
        let is_sampled = self.0.iter().any(|(_, format)| format.needs_sample());
        if rows.is_none() && is_sampled { Ok(BatchSize::SAMPLE) } else { convert::batch_of_rows(rows) }
    }
}

impl<'py> FromPyObject<'_, 'py> for Formats {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let pairs = given.call_method0("items")?.try_iter()?.map(|pair| {
            let (column, format) = pair?.extract::<(String, Bound<'py, PyAny>)>()?;
            let format = if let Ok(name) = format.extract::<String>() {
                Format::Named(name)
            } else if let Ok((name, schema, is_inferred)) = format.extract::<(String, PySchema, bool)>() {
                Format::Objects { name, schema: schema.into_inner(), is_inferred }
            } else if let Ok((name, number)) = format.extract::<(String, u32)>() {
                Format::Numbered { name, number }
            } else if let Ok((name, schema)) = format.extract::<(String, PySchema)>() {
                Format::Objects { name, schema: schema.into_inner(), is_inferred: false }
            } else {
                let (name, schema) = ("json".to_owned(), format.extract::<PySchema>()?.into_inner());
                Format::Objects { name, schema, is_inferred: false }
            };
            Ok((column, format))
        });
        Ok(Self(pairs.collect::<PyResult<_>>()?))
    }
}

/// Reads the schema with a number from a registry: its text, or why it has none. Python has the client.
fn read_schema(url: &str, number: u32, kind: &str) -> Result<std::result::Result<Sources, String>> {
    Python::attach(|py| {
        let module = py.import("logdex._schema_registry");
        let text = module.and_then(|module| module.call_method1("read_schema", (url, number, kind))?.extract());
        text.map(Ok).or_else(|error: PyErr| {
            let text = error.value(py).to_string();
            if error.is_instance_of::<PyLookupError>(py) {
                return Ok(Err(text));
            }
            if !error.is_instance_of::<PyOSError>(py) {
                raise_later(error);
            }
            Err(Error::Io { path: without_users(url).into_owned().into(), source: io::Error::other(text) })
        })
    })
}

/// Return the columns whose types the formats alone do not show, so that a decoder needs a sample of them.
///
/// Args:
///     formats: As for `Decoder`.
#[pyfunction]
fn sampled_columns(formats: Formats) -> Vec<String> {
    formats.0.into_iter().filter(|(_, format)| format.needs_sample()).map(|(column, _)| column).collect()
}

/// Decodes columns of bytes of batches, as `decode=` of a read does.
///
/// Args:
///     formats: As `decode=` of `MessageStore.messages`. Besides, `(format, number)` is a format with a URL whose column has the fields of the
///         schema with this number, and `(format, schema, True)` objects that have no other fields.
///     sample: A batch with the columns of `sampled_columns`; without it these have no fields.
///     types: Other types that decoded columns get. A value that does not fit is null; None: none.
///
/// Raises:
///     ValueError: A format is unknown or its schema invalid, or the sample shows no type.
///     OSError: A schema cannot be read.
#[pyclass(name = "Decoder", module = "logdex._core", frozen)]
struct PyDecoder {
    decoders: Mutex<Decoders>,
    types: Option<SchemaRef>,
}

#[pymethods]
impl PyDecoder {
    #[new]
    #[pyo3(signature = (formats, sample=None, types=None))]
    fn new(py: Python<'_>, formats: Formats, sample: Option<PyRecordBatch>, types: Option<PySchema>) -> PyResult<Self> {
        let sample = sample.map(PyRecordBatch::into_inner);
        let decoders = py.detach(|| Decoders::new(formats.0, sample.as_ref(), &(Arc::new(read_schema) as _)))?;
        Ok(Self { decoders: Mutex::new(decoders), types: types.map(PySchema::into_inner) })
    }

    /// The facts that the formats took from the sample, by column: True for the fields of objects, or the number of a schema.
    #[getter]
    fn pins<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let pins = PyDict::new(py);
        // A decoder of another thread may hold the lock and wait for Python.
        for (column, pin, _) in py.detach(|| lock(&self.decoders).pins()) {
            match pin {
                Pin::Inferred => pins.set_item(column, true)?,
                Pin::Schema(number) => pins.set_item(column, number)?,
            }
        }
        Ok(pins)
    }

    /// The rest of each format that took something from the sample: `(format, *rest)` needs none, and the column has the same type.
    #[getter]
    fn settled<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let settled = PyDict::new(py);
        // As in `pins`.
        for (column, pin, data_type) in py.detach(|| lock(&self.decoders).pins()) {
            match (pin, data_type) {
                (Pin::Inferred, DataType::Struct(fields)) => {
                    settled.set_item(column, (ArrowSchema(Arc::new(Schema::new(fields))), true))?;
                }
                (Pin::Inferred, _) => {}
                (Pin::Schema(number), _) => settled.set_item(column, (number,))?,
            }
        }
        Ok(settled)
    }

    /// Return a batch with decoded columns, and the reasons of rows that do not decode in `body_error`.
    ///
    /// Raises:
    ///     ValueError: A column is missing or not of bytes.
    ///     OSError: A schema cannot be read.
    fn decode(&self, py: Python<'_>, batch: PyRecordBatch) -> PyResult<ArrowBatch> {
        let decoded = py.detach(|| {
            let decoded = lock(&self.decoders).decode(batch.into_inner())?;
            self.types.as_ref().map_or(Ok(decoded.clone()), |types| with_types(&decoded, types))
        });
        Ok(ArrowBatch(decoded?))
    }

    /// Return a batch whose columns are the JSON of the decoded values as bytes, each with the fields of its own schema.
    ///
    /// A column that is not of bytes was decoded before, and has no other fields.
    ///
    /// Raises:
    ///     ValueError: A column is missing.
    ///     OSError: A schema cannot be read.
    fn texts(&self, py: Python<'_>, batch: PyRecordBatch) -> PyResult<ArrowBatch> {
        Ok(ArrowBatch(py.detach(|| lock(&self.decoders).texts(batch.into_inner()))?))
    }
}

/// A reader that knows how far it is.
pub(super) trait Measured: Batches {
    /// Returns the bytes of the log that were read or passed over so far, and how many there are at most.
    ///
    /// # Errors
    /// An I/O error.
    fn progress(&mut self) -> Result<(u64, u64)>;
}

/// A reader, and the decoders of its columns.
pub(super) struct Decoding<R> {
    reader: R,
    /// Called after each batch, also an empty one, with the bytes that were read and how many there are.
    progress: Option<Py<PyAny>>,
    decoders: Decoders,
    /// A batch that was read to see the fields of its objects.
    first: Option<RecordBatch>,
    schema: SchemaRef,
}

impl<R: Measured> Decoding<R> {
    /// # Errors
    /// `InvalidArgument` for an unknown format or column; that of the reader, if its first batch shows what to decode.
    pub(super) fn new(mut reader: R, formats: Formats, progress: Option<Py<PyAny>>) -> Result<Self> {
        let mut first = None;
        if formats.0.iter().any(|(_, format)| format.needs_sample()) {
            first = next_shown(&mut reader, progress.as_ref())?;
            while first.as_ref().is_some_and(|batch| batch.num_rows() == 0) {
                first = next_shown(&mut reader, progress.as_ref())?;
            }
        }
        let mut decoders = Decoders::new(formats.0, first.as_ref(), &(Arc::new(read_schema) as _))?;
        let schema = decoders.schema(&reader.schema())?;
        Ok(Self { reader, progress, decoders, first, schema })
    }
}

/// Returns the next batch of a reader, after the progress was passed to the caller's function.
fn next_shown<R: Measured>(reader: &mut R, progress: Option<&Py<PyAny>>) -> Result<Option<RecordBatch>> {
    let batch = reader.next_batch()?;
    if let Some(progress) = progress {
        let done = reader.progress()?;
        Python::attach(|py| progress.call1(py, done)).map_err(|error| {
            raise_later(error);
            Error::InvalidArgument("the function for the progress ended the read".to_owned())
        })?;
    }
    Ok(batch)
}

impl<R: Measured> Batches for Decoding<R> {
    type Notes = R::Notes;

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let batch = match self.first.take() {
            Some(batch) => Some(batch),
            None => next_shown(&mut self.reader, self.progress.as_ref())?,
        };
        batch.map(|batch| self.decoders.decode(batch)).transpose()
    }

    fn notes(&self) -> R::Notes {
        self.reader.notes()
    }
}

impl<R: Measured> Iterator for Decoding<R> {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().map_err(|e| ArrowError::ExternalError(Box::new(e))).transpose()
    }
}

impl<R: Measured> RecordBatchReader for Decoding<R> {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
