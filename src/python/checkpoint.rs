//! `StoreCheckpoint`.

use pyo3::prelude::*;

use super::convert;
use super::handle::HandleMutex;
use super::time::{self, Round};
use crate::error::{Error, Result};
use crate::io::Location;
use crate::io::fork::Generation;
use crate::rocketmq::checkpoint::{StoreCheckpoint, Timestamps};

register! { class PyStoreCheckpoint; fn _open_store_checkpoint }

/// The checkpoint file of a store: the store times up to which log, queues and index were flushed, in ms.
///
/// The file is read when it is opened. In mode "r+" the times can be set; `flush` writes them and keeps the other bytes.
/// If the file is short, missing bytes are zero, in every compat, as for a broker; see `file_len`. A handle pickles by its path and
/// is a reader after unpickling.
#[pyclass(name = "StoreCheckpoint", module = "logdex._core", frozen)]
pub(super) struct PyStoreCheckpoint {
    path: Location,
    checkpoint: HandleMutex<Option<StoreCheckpoint>>,
    process: Generation,
}

impl PyStoreCheckpoint {
    /// Calls `call` without the interpreter lock: another thread may hold the checkpoint's lock while it waits for the disk.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut StoreCheckpoint) -> Result<T> + Send,
    ) -> PyResult<T> {
        // Converting the error to an exception needs the interpreter lock, so release the checkpoint's lock first.
        Ok(py.detach(|| match self.checkpoint.lock()?.as_mut() {
            Some(checkpoint) => call(checkpoint),
            None => Err(Error::InvalidArgument(format!("{} is closed", self.path.display()))),
        })?)
    }

    pub(super) fn timestamps(&self, py: Python<'_>) -> PyResult<Timestamps> {
        self.with(py, |checkpoint| Ok(checkpoint.timestamps))
    }

    fn set(
        &self,
        time: &Bound<'_, PyAny>,
        name: &str,
        field: impl FnOnce(&mut Timestamps) -> &mut i64 + Send,
    ) -> PyResult<()> {
        let py = time.py();
        let time = time::time_ms(time, Round::Down, name)?;
        self.with(py, |checkpoint| {
            if !checkpoint.is_writable() {
                return Err(Error::InvalidArgument(format!("{} is open for reading only", self.path.display())));
            }
            self.process.check_writer(&self.path)?;
            *field(&mut checkpoint.timestamps) = time;
            Ok(())
        })
    }
}

#[pymethods]
impl PyStoreCheckpoint {
    /// Open the file.
    ///
    /// Args:
    ///     path: The file, in a store named `checkpoint`.
    ///     mode: "r", or "r+" to set the times; "r+" creates a missing file, 4096 bytes of zeros.
    ///     access: "auto", "mmap" or "pread"; the few bytes are always read and written by `pread` and `pwrite`.
    ///     compat: A broker release; the answers are the same for all.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    #[staticmethod]
    #[pyo3(signature = (path, *, mode="r", access="auto", compat=None))]
    fn open(py: Python<'_>, path: Location, mode: &str, access: &str, compat: Option<&str>) -> PyResult<Self> {
        convert::access(access)?;
        convert::compat(compat)?;
        let write = convert::write_mode(mode)?;
        let checkpoint =
            py.detach(|| if write { StoreCheckpoint::open_or_create(&path) } else { StoreCheckpoint::open(&path) })?;
        Ok(Self { path, checkpoint: HandleMutex::new(Some(checkpoint)), process: Generation::current() })
    }

    /// The file.
    #[getter]
    fn path(&self) -> Location {
        self.path.clone()
    }

    fn __repr__(&self) -> String {
        format!("StoreCheckpoint({:?})", self.path.display().to_string())
    }

    /// Bytes of the file when it was opened; 4096 in a valid store.
    #[getter]
    fn file_len(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |checkpoint| Ok(checkpoint.file_len()))
    }

    /// Store time up to which the commit log was flushed, in ms.
    #[getter]
    fn physic_msg_timestamp(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.timestamps(py)?.physic_msg_timestamp)
    }

    #[setter]
    fn set_physic_msg_timestamp(&self, time: &Bound<'_, PyAny>) -> PyResult<()> {
        self.set(time, "physic_msg_timestamp", |times| &mut times.physic_msg_timestamp)
    }

    /// Store time up to which the consume queues were written, in ms.
    #[getter]
    fn logics_msg_timestamp(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.timestamps(py)?.logics_msg_timestamp)
    }

    #[setter]
    fn set_logics_msg_timestamp(&self, time: &Bound<'_, PyAny>) -> PyResult<()> {
        self.set(time, "logics_msg_timestamp", |times| &mut times.logics_msg_timestamp)
    }

    /// End time of the last index file that was full and flushed, in ms.
    #[getter]
    fn index_msg_timestamp(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.timestamps(py)?.index_msg_timestamp)
    }

    #[setter]
    fn set_index_msg_timestamp(&self, time: &Bound<'_, PyAny>) -> PyResult<()> {
        self.set(time, "index_msg_timestamp", |times| &mut times.index_msg_timestamp)
    }

    /// Write the three times and wait until they are on the disk.
    ///
    /// Raises:
    ///     ValueError: The checkpoint was opened for reading, or before a fork.
    ///     OSError: An I/O error.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |checkpoint| {
            if checkpoint.is_writable() {
                self.process.check_writer(&self.path)?;
            }
            checkpoint.flush()
        })
    }

    /// Close the file; times that were set and not flushed are lost.
    fn close(&self, py: Python<'_>) {
        // In a forked child a thread of the parent may hold the lock; then the file is closed when the process ends.
        py.detach(|| drop(self.checkpoint.lock().map(|mut checkpoint| checkpoint.take())));
    }

    fn __enter__(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        slf.get().with(py, |_| Ok(()))?;
        Ok(slf)
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Location,))> {
        self.with(py, |_| Ok(()))?;
        Ok((py.import("logdex._core")?.getattr("_open_store_checkpoint")?, (self.path(),)))
    }
}

/// The function that restores a pickled `StoreCheckpoint`.
#[pyfunction]
fn _open_store_checkpoint(py: Python<'_>, path: Location) -> PyResult<PyStoreCheckpoint> {
    PyStoreCheckpoint::open(py, path, "r", "auto", None)
}
