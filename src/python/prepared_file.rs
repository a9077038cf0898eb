//! `PreparedFile`.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use super::convert;
use crate::hash_index::{CreateOptions, IndexFile, Prepared};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyPreparedFile>()
}

/// The next index file of a directory, on its way: created without a name, grown and brought into memory by a thread.
///
/// It becomes a file of the directory when it is given to `IndexFile.create`; until then nobody can meet it, and nothing
/// is left of it by `close` or by the end of the process. Where the system has no files without a name, nothing is
/// prepared. It does not pickle; a forked process has no use of it.
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
    /// Begin to prepare a file.
    ///
    /// Args:
    ///     directory: Where it will be.
    ///     hash_slots: S, the number of slots.
    ///     max_entries: N; the file holds N - 1 entries.
    ///     access: "auto", "mmap" or "pread".
    ///
    /// Raises:
    ///     OSError: The system gives no thread. What the thread meets, say a full disk, is told by `IndexFile.create`.
    ///     ValueError: A geometry that no broker can open.
    #[staticmethod]
    #[pyo3(signature = (directory, *, hash_slots, max_entries, access="auto"))]
    fn start(directory: PathBuf, hash_slots: i64, max_entries: i64, access: &str) -> PyResult<Self> {
        let geometry = convert::geometry(hash_slots, max_entries)?;
        let prepared = Prepared::start(&directory, geometry, convert::access(access)?)?;
        Ok(Self { prepared: Mutex::new(Some(prepared)) })
    }

    /// Give up what is not published: the thread ends, and the disk space is free again.
    fn close(&self, py: Python<'_>) {
        let close = || self.prepared.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(close()));
    }
}
