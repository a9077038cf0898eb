//! `PreparedFile`.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use super::convert;
use crate::hash_index::{CreateOptions, IndexFile, Prepared};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyPreparedFile>()
}

/// The next index file of a directory: a thread creates it without a name, extends it and brings it into memory.
///
/// It becomes a file of the directory when it is passed to `IndexFile.create`. Until then no other process can open it, and
/// `close` or the end of the process removes it. If the system has no files without a name, nothing is prepared. It does not
/// pickle, and a forked process cannot use it.
#[pyclass(name = "PreparedFile", module = "logdex._core", frozen)]
pub(super) struct PyPreparedFile {
    prepared: Mutex<Option<Prepared>>,
}

impl PyPreparedFile {
    pub(super) fn publish(&self, py: Python<'_>, path: &Path, options: CreateOptions) -> PyResult<Option<IndexFile>> {
        let publish = || match &mut *self.prepared.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(prepared) => prepared.publish(path, options),
            None => Ok(None),
        };
        Ok(py.detach(publish)?)
    }
}

#[pymethods]
impl PyPreparedFile {
    /// Start to prepare a file. If no thread can be started or the thread fails, `IndexFile.create` creates the file itself.
    ///
    /// Args:
    ///     directory: The directory of the file.
    ///     hash_slots: S, the number of slots.
    ///     max_entries: N; the file holds N - 1 entries.
    ///     access: "auto", "mmap" or "pread".
    ///
    /// Raises:
    ///     ValueError: A geometry that no broker can open.
    #[staticmethod]
    #[pyo3(signature = (directory, *, hash_slots, max_entries, access="auto"))]
    fn start(directory: PathBuf, hash_slots: i64, max_entries: i64, access: &str) -> PyResult<Self> {
        let geometry = convert::geometry(hash_slots, max_entries)?;
        let prepared = Prepared::start(&directory, geometry, convert::access(access)?);
        Ok(Self { prepared: Mutex::new(Some(prepared)) })
    }

    /// Discard a file that is not published: the thread ends, and the disk space is free again.
    fn close(&self, py: Python<'_>) {
        let close = || self.prepared.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(close()));
    }
}
