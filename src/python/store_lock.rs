//! `StoreLock`, and the holder of a lock.

use std::fs::File;
use std::path::PathBuf;

use pyo3::prelude::*;

use super::closable::Closable;
use crate::io::Location;
use crate::io::disk::lock_directory;
use crate::io::store_lock::{StoreLock, fcntl_lock_holder};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyStoreLock>()?;
    m.add_class::<PyDirectoryLock>()?;
    m.add_function(wrap_pyfunction!(broker_lock_holder, m)?)
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
