//! Batches of readers whose columns of bytes are decoded.

use std::io;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::Borrowed;
use pyo3::exceptions::{PyLookupError, PyOSError};
use pyo3::prelude::*;
use pyo3_arrow::PySchema;

use super::batch_stream::Batches;
use super::signals::raise_later;
use crate::decode::{Decoders, Format};
use crate::error::{Error, Result, without_users};

/// The columns to decode with their formats.
#[derive(Default)]
pub(super) struct Formats(Vec<(String, Format)>);

impl<'py> FromPyObject<'_, 'py> for Formats {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let pairs = given.call_method0("items")?.try_iter()?.map(|pair| {
            let (column, format) = pair?.extract::<(String, Bound<'py, PyAny>)>()?;
            let format = match format.extract::<String>() {
                Ok(name) => Format::Named(name),
                Err(_) => Format::Json(format.extract::<PySchema>()?.into_inner()),
            };
            Ok((column, format))
        });
        Ok(Self(pairs.collect::<PyResult<_>>()?))
    }
}

/// Reads the schema with a number from a registry: its text, or why it has none. Python has the client.
fn read_schema(url: &str, number: u32) -> Result<std::result::Result<String, String>> {
    Python::attach(|py| {
        let module = py.import("logdex._schema_registry");
        let text = module.and_then(|module| module.call_method1("read_schema", (url, number))?.extract());
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

/// A reader, and the decoders of its columns.
pub(super) struct Decoding<R> {
    reader: R,
    decoders: Decoders,
    /// A batch that was read to see the fields of its objects.
    first: Option<RecordBatch>,
    schema: SchemaRef,
}

impl<R: Batches> Decoding<R> {
    /// # Errors
    /// `InvalidArgument` for an unknown format or column; that of the reader, if its first batch shows what to decode.
    pub(super) fn new(mut reader: R, formats: Formats) -> Result<Self> {
        let mut first = None;
        if formats.0.iter().any(|(_, format)| format.needs_sample()) {
            first = reader.next_batch()?;
            while first.as_ref().is_some_and(|batch| batch.num_rows() == 0) {
                first = reader.next_batch()?;
            }
        }
        let mut decoders = Decoders::new(formats.0, first.as_ref(), &(Arc::new(read_schema) as _))?;
        let schema = decoders.schema(&reader.schema())?;
        Ok(Self { reader, decoders, first, schema })
    }
}

impl<R: Batches> Batches for Decoding<R> {
    type Notes = R::Notes;

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let batch = match self.first.take() {
            Some(batch) => Some(batch),
            None => self.reader.next_batch()?,
        };
        batch.map(|batch| self.decoders.decode(batch)).transpose()
    }

    fn notes(&self) -> R::Notes {
        self.reader.notes()
    }
}

impl<R: Batches> Iterator for Decoding<R> {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().map_err(|e| ArrowError::ExternalError(Box::new(e))).transpose()
    }
}

impl<R: Batches> RecordBatchReader for Decoding<R> {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
