//! `ProducerState`.

use std::sync::Mutex;

use pyo3::prelude::*;

use super::super::handle::lock;
use crate::io::Location;
use crate::kafka::ProducerState;

register! { class PyProducerState }

/// Open transactions of a partition's producers, carried from segment to segment by `LogSegment.recover`.
#[pyclass(name = "ProducerState", module = "logdex._core", frozen)]
pub(super) struct PyProducerState {
    state: Mutex<ProducerState>,
}

impl PyProducerState {
    /// Must be called without the interpreter lock: another thread may hold the state's lock while it reads a segment.
    pub(super) fn with<T>(&self, use_state: impl FnOnce(&mut ProducerState) -> T) -> T {
        use_state(&mut lock(&self.state))
    }
}

#[pymethods]
impl PyProducerState {
    #[new]
    fn new() -> Self {
        Self { state: Mutex::default() }
    }

    /// Read the open transactions from a `.snapshot` file.
    ///
    /// Raises:
    ///     CorruptFileError: The snapshot is damaged.
    ///     OSError: The file cannot be read.
    #[staticmethod]
    fn of_snapshot(py: Python<'_>, path: Location) -> PyResult<Self> {
        Ok(Self { state: Mutex::new(py.detach(|| ProducerState::of_snapshot(&path))?) })
    }

    /// The first offset of the open transactions; None when none is open.
    #[getter]
    fn first_open_offset(&self, py: Python<'_>) -> Option<i64> {
        py.detach(|| self.with(|state| state.first_open_offset()))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let offset = self.first_open_offset(py).map_or_else(|| "None".to_owned(), |offset| offset.to_string());
        format!("ProducerState(first_open_offset={offset})")
    }
}
