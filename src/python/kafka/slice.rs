//! `Slice`.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::reader::PySegmentReader;
use super::segment::PyLogSegment;
use crate::kafka::Fetched;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PySlice>()
}

/// A part of a segment that begins with a batch, as a fetch returns it. It may end inside of a batch.
#[pyclass(name = "Slice", module = "logdex.kafka", frozen)]
pub(super) struct PySlice {
    /// The segment.
    #[pyo3(get)]
    segment: Py<PyLogSegment>,
    /// The first byte in the `.log` file.
    #[pyo3(get)]
    position: u64,
    /// Length in bytes.
    #[pyo3(get)]
    size: u64,
    /// Whether the first batch is longer than `size`.
    #[pyo3(get)]
    first_entry_incomplete: bool,
}

impl PySlice {
    pub(super) fn new(segment: Py<PyLogSegment>, fetched: Fetched) -> Self {
        let Fetched { position, size, first_entry_incomplete } = fetched;
        Self { segment, position, size, first_entry_incomplete }
    }
}

#[pymethods]
impl PySlice {
    /// Read the headers of the whole batches; see `LogSegment.batches`.
    fn batches(&self, py: Python<'_>) -> PyResult<PySegmentReader> {
        self.segment.get().batches_between(py, self.position, self.position.saturating_add(self.size))
    }

    /// Read the bytes.
    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.segment.get().bytes_at(py, self.position, self.size)
    }

    fn __repr__(&self) -> String {
        let Self { position, size, first_entry_incomplete, .. } = self;
        let incomplete = if *first_entry_incomplete { "True" } else { "False" };
        format!("Slice(position={position}, size={size}, first_entry_incomplete={incomplete})")
    }
}
