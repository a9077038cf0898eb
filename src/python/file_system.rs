//! File systems of Python: those of fsspec, `pyarrow.fs` and obstore, through `logdex._filesystem`.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use super::location;
use crate::io::Location;
use crate::io::remote::Objects;
use crate::io::remote::file_system::{Described, FileSystem};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(file_system_root, m)?)
}

/// Name, length (None: a directory), time of the last change in ns, `ETag`.
type Entry = (String, Option<u64>, Option<u64>, Option<String>);

/// An adapter of `logdex._filesystem`.
#[derive(Debug)]
struct Adapter(Py<PyAny>);

impl Adapter {
    /// Calls Python; each call waits for the interpreter lock.
    fn call<T>(&self, call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> io::Result<T> {
        let called = Python::try_attach(|py| call(self.0.bind(py)).map_err(io::Error::from));
        called.unwrap_or_else(|| Err(io::Error::other("the interpreter ends")))
    }
}

fn described((name, len, modified_ns, etag): Entry) -> Described {
    Described { name, len, modified: modified_ns.map(|ns| UNIX_EPOCH + Duration::from_nanos(ns)), etag }
}

impl FileSystem for Adapter {
    fn list(&self, directory: &str) -> io::Result<Vec<Described>> {
        let entries: Vec<Entry> = self.call(|adapter| adapter.call_method1("entries", (directory,))?.extract())?;
        Ok(entries.into_iter().map(described).collect())
    }

    fn status(&self, path: &str) -> io::Result<Described> {
        let entry: Entry = self.call(|adapter| adapter.call_method1("status", (path,))?.extract())?;
        Ok(described(entry))
    }

    fn read(&self, path: &str, range: Range<u64>) -> io::Result<Bytes> {
        let (begin, len) = (range.start, range.end - range.start);
        let bytes: PyBackedBytes =
            self.call(|adapter| Ok(adapter.call_method1("read", (path, begin, len))?.extract()?))?;
        Ok(Bytes::copy_from_slice(&bytes))
    }

    /// Releases the interpreter lock during a call. The thread may hold it although this crate did not take it: a consumer of an
    /// Arrow stream may hold it while it reads.
    fn wait(&self, call: &mut (dyn FnMut() + Send)) {
        if Python::try_attach(|py| py.detach(&mut *call)).is_none() {
            // The interpreter is shutting down.
            call();
        }
    }
}

/// The locations in a file system of paths with commas between; without one, as [`location::paths`].
pub(super) fn located(paths: &Bound<'_, PyAny>, filesystem: Option<&Bound<'_, PyAny>>) -> PyResult<Location> {
    let Some(filesystem) = filesystem else { return location::paths(paths) };
    paths.py().import("logdex._filesystem")?.call_method1("all_in_filesystem", (paths, filesystem))?.extract()
}

/// Return the path of the root of a file system.
///
/// Args:
///     adapter: An adapter of `logdex._filesystem`.
#[pyfunction]
fn file_system_root(adapter: Py<PyAny>) -> Location {
    Location::whole(Objects::in_file_system(Arc::new(Adapter(adapter))))
}
