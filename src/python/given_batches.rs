//! An Arrow stream of record batches that a Python iterator yields.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyIterator};
use pyo3_arrow::{PyRecordBatch, PyRecordBatchReader, PySchema};

/// A Python iterator of record batches.
struct GivenBatches {
    schema: SchemaRef,
    /// `None` after its end, or an error.
    batches: Option<Py<PyIterator>>,
}

impl GivenBatches {
    /// The next batch. Its columns must have the types of the schema, because a consumer reads its memory by them.
    fn next_of(&self, batches: &mut Bound<'_, PyIterator>) -> PyResult<Option<RecordBatch>> {
        let Some(batch) = batches.next().transpose()? else { return Ok(None) };
        let batch = batch.extract::<PyRecordBatch>()?.into_inner();
        let (promised, given) = (self.schema.fields(), batch.schema_ref().fields());
        if promised.iter().map(|field| field.data_type()).eq(given.iter().map(|field| field.data_type())) {
            return Ok(Some(batch));
        }
        let text = format!("batch of a stream: expected the columns {promised:?}, got {given:?}");
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
            next.map_err(|error| ArrowError::ExternalError(Box::new(error))).transpose()
        })
    }
}

impl RecordBatchReader for GivenBatches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Export record batches as an Arrow stream. Each is made when it is asked for.
///
/// Args:
///     schema: Their schema.
///     batches: Iterator of record batches.
///     `requested_schema`: As in the PyCapsule interface.
///
/// Returns:
///     A capsule. An exception of the iterator ends the stream with its text.
#[pyfunction]
fn stream_capsule<'py>(
    schema: PySchema,
    batches: Bound<'py, PyIterator>,
    requested_schema: Option<Bound<'py, PyCapsule>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = batches.py();
    let given = GivenBatches { schema: schema.into_inner(), batches: Some(batches.unbind()) };
    PyRecordBatchReader::new(Box::new(given)).into_arro3(py)?.call_method1("__arrow_c_stream__", (requested_schema,))
}

/// Add the function to the module.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(stream_capsule, m)?)
}
