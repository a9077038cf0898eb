//! `ProducerState`.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use crate::kafka::ProducerState;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyProducerState>()
}

/// Open transactions of a partition's producers, carried from segment to segment by `LogSegment.recover`.
#[pyclass(name = "ProducerState", module = "logdex._core", frozen)]
pub(super) struct PyProducerState {
    state: Mutex<ProducerState>,
}

impl PyProducerState {
    pub(super) fn with<T>(&self, use_state: impl FnOnce(&mut ProducerState) -> T) -> T {
        use_state(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[pymethods]
impl PyProducerState {
    #[new]
    fn new() -> Self {
        Self { state: Mutex::default() }
    }
}
