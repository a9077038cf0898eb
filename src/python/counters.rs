//! `PutCounter` and `Meter`: what a writer or a server did.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;

use super::handle::lock;
use crate::io::{Meter, PutCounter, PutStatistics};

register! { class PyMeter, PyPutCounter }

/// Counts of the last ten minutes.
#[pyclass(name = "Meter", module = "logdex._core", frozen)]
#[derive(Default)]
struct PyMeter {
    meter: Mutex<Meter>,
}

#[pymethods]
impl PyMeter {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Count.
    fn add(&self, count: u64) {
        lock(&self.meter).add(count);
    }

    /// The rates a second over the last 10, 60 and 600 whole seconds, or since the start if that is more recent.
    #[getter]
    fn rates(&self) -> [f64; 3] {
        lock(&self.meter).rates()
    }
}

/// Messages, bytes, rates, the longest put in ms, and messages by the duration of their put.
type Statistics = (u64, u64, [f64; 3], f64, Vec<u64>);

/// Counts of the puts of one writer or several.
#[pyclass(name = "PutCounter", module = "logdex._core", frozen)]
pub(super) struct PyPutCounter(pub(super) Arc<PutCounter>);

#[pymethods]
impl PyPutCounter {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    /// The puts so far: messages, bytes, messages a second in the last 10, 60 and 600 s, the milliseconds of the longest put, and
    /// the messages by the duration of their put: below 1, 10, 50, 100, 200 and 500 ms, 1, 2, 3, 4, 5 and 10 s, and all others.
    #[getter]
    fn statistics(&self) -> Statistics {
        let PutStatistics { messages, bytes, longest, durations, meter } = self.0.statistics();
        (messages, bytes, meter.rates(), longest.as_secs_f64() * 1e3, durations.to_vec())
    }
}
