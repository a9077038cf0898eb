//! `ThreadLock`: a lock that no exception in Python leaves behind.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::errors::is_write_failure;

/// Time between two looks at a lock that another thread holds, after so many looks that only yield.
const WAIT: Duration = Duration::from_millis(1);
const YIELDS: u32 = 100;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyThreadLock>()?;
    m.add_class::<PyHeldLock>()
}

/// The thread that holds a lock, 0: none, and how often.
#[derive(Debug, Default)]
struct State {
    owner: AtomicU64,
    depth: AtomicU32,
    /// If it is kept: the first failed write or fsync in a block, and when it was.
    failure: OnceLock<(Py<PyAny>, SystemTime)>,
    keeps_failure: bool,
}

impl State {
    /// Raises the first failure again, as a copy: a traceback would keep the frames of the caller alive.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        match self.failure.get() {
            None => Ok(()),
            Some((error, _)) => Err(PyErr::from_value(copy(error.bind(py))?)),
        }
    }
}

fn copy<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    value.py().import("copy")?.call_method1("copy", (value,))
}

/// Returns a number of this thread, which no other thread of the process ever has.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// A lock that its thread may take again: `with lock():`.
///
/// Between the last line of a `with` block and the release of a lock of `threading`, a KeyboardInterrupt leaves that lock held for
/// ever. Here the block holds an object that releases the lock when it goes.
#[pyclass(name = "ThreadLock", module = "logdex._core", frozen)]
struct PyThreadLock {
    state: Arc<State>,
}

#[pymethods]
impl PyThreadLock {
    /// Create a lock that is free. With `keeps_failure` a block that raises `WriteFailedError` is the last one: the others raise it
    /// again.
    #[new]
    #[pyo3(signature = (*, keeps_failure=false))]
    fn new(keeps_failure: bool) -> Self {
        Self { state: Arc::new(State { keeps_failure, ..State::default() }) }
    }

    /// Raise the first `WriteFailedError` of a block, if it is kept; never wait for the lock.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.state.check(py)
    }

    /// The first `WriteFailedError` of a block, and when it was; None: none.
    #[getter]
    fn failure<'py>(&self, py: Python<'py>) -> Option<(Bound<'py, PyAny>, SystemTime)> {
        self.state.failure.get().map(|(error, since)| (error.bind(py).clone(), *since))
    }

    /// Return a context manager that holds the lock.
    fn hold(&self) -> PyHeldLock {
        PyHeldLock { state: Arc::clone(&self.state), holds: AtomicBool::new(false) }
    }
}

/// A `ThreadLock` while it is held.
#[pyclass(name = "HeldLock", module = "logdex._core", frozen)]
struct PyHeldLock {
    state: Arc<State>,
    holds: AtomicBool,
}

#[pymethods]
impl PyHeldLock {
    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        let (State { owner, depth, .. }, me) = (&*self.state, this_thread());
        let mut looks = 0;
        while owner.load(Ordering::Relaxed) != me
            && owner.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            looks += 1;
            py.detach(|| if looks < YIELDS { std::thread::yield_now() } else { std::thread::sleep(WAIT) });
            py.check_signals()?;
        }
        depth.fetch_add(1, Ordering::Relaxed);
        self.holds.store(true, Ordering::Relaxed);
        self.state.check(py)
    }

    #[pyo3(signature = (*error))]
    fn __exit__(&self, error: &Bound<'_, PyTuple>) -> PyResult<()> {
        let error = error.get_item(1).ok();
        let kept = match error {
            Some(error) if self.state.keeps_failure && is_write_failure(&error) => copy(&error).map(|error| {
                self.state.failure.get_or_init(|| (error.unbind(), SystemTime::now()));
            }),
            _ => Ok(()),
        };
        self.release();
        kept
    }
}

impl PyHeldLock {
    fn release(&self) {
        if self.holds.swap(false, Ordering::Relaxed) && self.state.depth.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.state.owner.store(0, Ordering::Release);
        }
    }
}

impl Drop for PyHeldLock {
    fn drop(&mut self) {
        self.release();
    }
}
