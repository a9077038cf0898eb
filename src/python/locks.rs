//! Locks: `ThreadLock`, which no exception in Python leaves held, and the locks of stores and directories.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::errors::is_write_failure;
use super::handle::Closable;
use crate::io::Location;
use crate::io::disk::lock_directory;
use crate::io::fork::Generation;
use crate::io::store_lock::{StoreLock, fcntl_lock_holder};

register! { class PyThreadLock, PyHeldLock, PyStoreLock, PyDirectoryLock; fn fork_generation, broker_lock_holder }

/// Time between two attempts to take a lock that another thread holds, after this many attempts that only yield.
const WAIT: Duration = Duration::from_millis(1);
const YIELDS: u32 = 100;

/// Return a number that a fork changes in the child. A handle that writes or has threads stores it and compares it.
#[pyfunction]
fn fork_generation() -> u32 {
    Generation::current().number()
}

/// The thread that holds a lock (0: none) and its process, and how often.
#[derive(Debug, Default)]
struct State {
    /// The number of the thread in the lower half, the fork generation of the process in the upper one.
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
fn this_thread() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local! {
        static NUMBER: u32 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// Returns the owner of a lock that this thread takes. A thread that forks is the same thread in the child.
fn this_owner() -> u64 {
    u64::from(Generation::current().number()) << 32 | u64::from(this_thread())
}

fn is_same_thread(owner: u64, other: u64) -> bool {
    owner & u64::from(u32::MAX) == other & u64::from(u32::MAX)
}

/// Returns whether a lock can be taken from its owner: it is free, or the owner is a thread of the process that forked this one.
fn is_free(owner: u64, me: u64) -> bool {
    owner == 0 || owner >> 32 != me >> 32
}

/// A lock that its thread may take again: `with lock():`.
///
/// Between the last line of a `with` block and the release of a lock of `threading`, a KeyboardInterrupt leaves that lock held for
/// ever. Here the block holds an object that releases the lock when it goes.
///
/// A process that is forked while another thread holds the lock does not wait for it, as that thread is not there. What the lock
/// protects must be right after each step of the block.
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
        PyHeldLock { state: Arc::clone(&self.state), holds: AtomicU64::new(0) }
    }
}

/// A `ThreadLock` while it is held.
#[pyclass(name = "HeldLock", module = "logdex._core", frozen)]
struct PyHeldLock {
    state: Arc<State>,
    /// The owner that took it; 0: not taken.
    holds: AtomicU64,
}

#[pymethods]
impl PyHeldLock {
    fn __enter__(&self, py: Python<'_>) -> PyResult<()> {
        let (State { owner, depth, .. }, me) = (&*self.state, this_owner());
        let mut looks = 0;
        let holder = loop {
            let now = owner.load(Ordering::Relaxed);
            if now != 0 && is_same_thread(now, me) {
                break now;
            }
            if is_free(now, me) && owner.compare_exchange(now, me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                depth.store(0, Ordering::Relaxed);
                break me;
            }
            looks += 1;
            py.detach(|| if looks < YIELDS { std::thread::yield_now() } else { std::thread::sleep(WAIT) });
            py.check_signals()?;
        };
        depth.fetch_add(1, Ordering::Relaxed);
        self.holds.store(holder, Ordering::Relaxed);
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
        let State { owner, depth, .. } = &*self.state;
        let held = self.holds.swap(0, Ordering::Relaxed);
        // A process that was forked may have taken it from a thread that is not there.
        if held != 0 && owner.load(Ordering::Relaxed) == held && depth.fetch_sub(1, Ordering::Relaxed) == 1 {
            owner.store(0, Ordering::Release);
        }
    }
}

impl Drop for PyHeldLock {
    fn drop(&mut self) {
        self.release();
    }
}

/// The lock that a broker holds on its store while it runs.
#[pyclass(name = "StoreLock", module = "logdex._core", frozen)]
struct PyStoreLock {
    lock: Closable<StoreLock>,
}

#[pymethods]
impl PyStoreLock {
    /// Take the lock of a store, which excludes brokers and other writers in all processes of this machine.
    ///
    /// Args:
    ///     path: The file `lock` in the root of the store; created if it is missing.
    ///
    /// Raises:
    ///     LockedError: A broker or another writer has it.
    ///     OSError: The file cannot be opened or locked.
    ///
    /// Source: `DefaultMessageStore#start`.
    #[staticmethod]
    fn take(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let lock = py.detach(|| StoreLock::take(&path))?;
        Ok(Self { lock: Closable::new(lock, path.into()) })
    }

    /// The file.
    #[getter]
    fn path(&self) -> PathBuf {
        self.lock.path().to_path_buf()
    }

    /// True after `release`.
    #[getter]
    fn closed(&self) -> bool {
        self.lock.is_closed()
    }

    /// Release the lock; a second call does nothing. In a forked child the parent keeps the lock.
    fn release(&self) {
        self.lock.close();
    }

    fn __repr__(&self) -> String {
        format!("StoreLock({:?})", self.lock.path().display().to_string())
    }
}

/// Restricts a directory to one writing service at a time, without a file of its own. Where the system has no lock of a directory,
/// the lock of each file in it must suffice.
#[pyclass(name = "DirectoryLock", module = "logdex._core", frozen)]
struct PyDirectoryLock {
    lock: Closable<Option<File>>,
}

#[pymethods]
impl PyDirectoryLock {
    /// Take the lock; raise `LockedError` if another service writes to the directory.
    #[new]
    fn new(directory: PathBuf) -> PyResult<Self> {
        let lock = lock_directory(&directory)?;
        Ok(Self { lock: Closable::new(lock, directory.into()) })
    }

    /// Release the lock. A second call does nothing.
    fn release(&self) {
        self.lock.close();
    }
}

/// Return the process that holds a broker's lock on a file (`fcntl`, as Java's `FileLock` takes it), or `None`.
///
/// 0: the operating system does not name the process. This process: it holds a `StoreLock` of the file. A missing file is not locked.
#[pyfunction]
fn broker_lock_holder(py: Python<'_>, path: Location) -> PyResult<Option<u32>> {
    Ok(py.detach(|| fcntl_lock_holder(path.local()?))?)
}
