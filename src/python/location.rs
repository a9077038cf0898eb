//! Paths and URLs from Python, paths for Python, and file systems of Python: those of fsspec, `pyarrow.fs` and obstore.
//!
//! A parameter of the type [`Location`] takes a path or URL, and is read with the options that a `RemotePath` has. Use
//! `#[pyo3(from_py_with = location::local_path)]` before a path that is written.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyIterator, PyList};

use crate::error::Result;
use crate::io::remote::file_system::{Described, FileSystem};
use crate::io::remote::{self, Objects, upload};
use crate::io::storage::{self, Entry, Kind, Status};
use crate::io::{Location, locate};
use crate::kafka::tiered;

register! {
    class PyRemotePath;
    fn parse_local_path, py_locate, locate_all, locate_beside, join_directories, without_secrets, expect_lists,
    expect_heads, forget_lists, put_remote, upload_file, delete_remote, file_system_root
}

/// Options of a store, by name.
pub(super) type StorageOptions = Option<BTreeMap<String, String>>;

impl FromPyObject<'_, '_> for Location {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(known) = value.cast::<PyRemotePath>() {
            return Ok(known.get().0.clone());
        }
        Ok(locate::locate(&value.extract::<PathBuf>()?, &[])?)
    }
}

impl<'py> IntoPyObject<'py> for Location {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        if self.is_remote() {
            return Ok(Bound::new(py, PyRemotePath(self))?.into_any());
        }
        self.as_path().into_pyobject(py)
    }
}

/// The same path, read with these options if there are any. Stores that are not of other machines have none.
pub(super) fn located(path: Location, storage_options: StorageOptions) -> Location {
    path.with_options(&storage_options.unwrap_or_default().into_iter().collect())
}

/// The local path that a path or URL means.
pub(super) fn local_path(value: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    Ok(locate::local_path(&value.extract::<PathBuf>()?)?)
}

/// The locations of several paths or URLs with commas between.
pub(super) fn paths(value: &Bound<'_, PyAny>) -> PyResult<Location> {
    if value.is_instance_of::<PyRemotePath>() {
        return value.extract();
    }
    Ok(locate::locate_all(&value.extract::<PathBuf>()?, &[])?)
}

/// The locations in a file system of paths with commas between; without one, as [`paths`].
pub(super) fn in_file_system(
    locations: &Bound<'_, PyAny>,
    filesystem: Option<&Bound<'_, PyAny>>,
) -> PyResult<Location> {
    let Some(filesystem) = filesystem else { return paths(locations) };
    locations.py().import("logdex._filesystem")?.call_method1("all_in_filesystem", (locations, filesystem))?.extract()
}

/// Return the local path that a path or a `file:` URL means.
///
/// Raises:
///     ValueError: A URL with another scheme, or an invalid one; nothing was created.
#[pyfunction]
#[pyo3(name = "local_path")]
fn parse_local_path(#[pyo3(from_py_with = local_path)] path: PathBuf) -> PathBuf {
    path
}

/// Return the path that a path or URL means, for reading. Earlier listings of a remote store are requested again.
///
/// Args:
///     path: A local path, or a URL.
///     storage_options: Options of the store of a URL, by the names of the object_store crate. They belong to the returned path.
///         None: those of the path if it has any; else a URL is read with the options of the environment.
///
/// Raises:
///     ValueError: A URL with an unknown scheme, or an invalid one.
#[pyfunction]
#[pyo3(name = "locate", signature = (path, storage_options=None))]
fn py_locate(path: Location, storage_options: StorageOptions) -> Location {
    let located = located(path, storage_options);
    located.refresh();
    located
}

/// Return the path of several paths or URLs with commas between; it is shown with commas between.
///
/// Raises:
///     ValueError: As `locate`.
#[pyfunction]
#[pyo3(signature = (paths, storage_options=None))]
fn locate_all(#[pyo3(from_py_with = paths)] paths: Location, storage_options: StorageOptions) -> Location {
    located(paths, storage_options)
}

/// Return the path of a path or URL. Without options, those of a store or of its remote storage apply.
///
/// Raises:
///     ValueError: As `locate`.
#[pyfunction]
#[pyo3(signature = (root, path, storage_options=None))]
fn locate_beside(root: Location, path: &Bound<'_, PyAny>, storage_options: StorageOptions) -> PyResult<Location> {
    if path.is_instance_of::<PyRemotePath>() {
        return Ok(py_locate(path.extract()?, storage_options));
    }
    let options = storage_options.unwrap_or_default().into_iter().collect();
    Ok(locate::beside(&root, &path.extract::<PathBuf>()?, &options)?)
}

/// Return several directories as one path, which is shown with commas between; of one, that one.
#[pyfunction]
fn join_directories(directories: Vec<Location>) -> Location {
    Location::several(directories)
}

/// Return a text without the user names and passwords of URLs. Bytes that are not UTF-8 become replacement characters.
#[pyfunction]
fn without_secrets(text: PathBuf) -> String {
    crate::error::without_users(&text.to_string_lossy()).into_owned()
}

/// Begin to list several remote directories at the same time, so that the next seconds need no request for them. Local paths are left out.
#[pyfunction]
fn expect_lists(py: Python<'_>, directories: Vec<Location>) {
    py.detach(|| remote::expect_lists(&directories));
}

/// Note that the heads of remote files will be read, so that the first read requests all. Local paths are left out.
#[pyfunction]
fn expect_heads(py: Python<'_>, files: Vec<Location>) {
    py.detach(|| remote::expect_heads(&files));
}

/// Forget what was listed in the store of a path, because other processes wrote for this one.
#[pyfunction]
fn forget_lists(path: Location) {
    path.forget_listings();
}

/// Write a small object as a whole.
///
/// Args:
///     path: The object.
///     content: Its bytes.
///     replaces: The `ETag` of the object that it replaces; None: there must be none.
///
/// Raises:
///     FileExistsError: Another object is at the path.
///     OSError: The store refuses.
#[pyfunction]
#[pyo3(signature = (path, content, *, replaces=None))]
fn put_remote(py: Python<'_>, path: Location, content: Vec<u8>, replaces: Option<String>) -> PyResult<()> {
    Ok(py.detach(|| upload::put(path.writable()?, &path, content, replaces))?)
}

/// Copy a local file to an object, which is there as a whole or not at all.
///
/// Raises:
///     OSError: The file cannot be read, or the store refuses.
#[pyfunction]
fn upload_file(py: Python<'_>, file: PathBuf, path: Location) -> PyResult<()> {
    Ok(py.detach(|| upload::upload(&file, path.writable()?, &path))?)
}

/// Delete an object, or all objects below a directory. What is not there is deleted already.
///
/// Raises:
///     OSError: The store refuses.
#[pyfunction]
fn delete_remote(py: Python<'_>, path: Location) -> PyResult<()> {
    Ok(py.detach(|| upload::delete(path.writable()?, &path))?)
}

/// Call a function that may wait for a remote file, while other threads run. A local file takes less time than that.
pub(super) fn waiting<T: Send>(py: Python<'_>, path: &Location, call: impl FnOnce() -> T + Send) -> T {
    if path.is_remote() { py.detach(call) } else { call() }
}

/// A file in memory.
pub(super) fn in_memory(name: &str, data: &[u8]) -> PyResult<Location> {
    let files = Objects::in_memory([(name.to_owned(), Bytes::copy_from_slice(data))])?;
    Ok(Location::whole(files).join(name))
}

/// A path in a store that is not on this machine, with the methods of `pathlib.Path` that read.
///
/// It holds its store with the options of it, and is pickled with them, so that another process can read it. `str` and `repr`,
/// which users read, have the URL only.
#[pyclass(name = "RemotePath", module = "logdex._core", frozen, eq, ord, hash)]
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PyRemotePath(pub(super) Location);

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The numbers of `os.stat_result` for a kind of file.
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;

impl PyRemotePath {
    fn status(&self, py: Python<'_>) -> PyResult<Option<Status>> {
        Ok(py.detach(|| storage::existing(&self.0))?)
    }
}

#[pymethods]
impl PyRemotePath {
    fn __fspath__(&self) -> String {
        text(&self.0)
    }

    fn __str__(&self) -> String {
        text(&self.0)
    }

    fn __repr__(&self) -> String {
        format!("RemotePath({:?})", text(&self.0))
    }

    fn __truediv__(&self, below: std::path::PathBuf) -> Self {
        Self(self.0.join(below))
    }

    /// Pickle it with all that another process needs.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let core = py.import("logdex._core")?;
        let of = |name: &str| core.getattr(name);
        if let Some((sources, below)) = tiered::sources(&self.0) {
            let keys: std::collections::BTreeMap<_, _> = sources.keys.iter().cloned().collect();
            let made = (sources.local.clone(), sources.remote.clone(), keys, py.None(), text(below));
            return Ok((of("join_tiered")?, made.into_pyobject(py)?.into_any()));
        }
        if !self.0.parts().is_empty() {
            return Ok((of("join_directories")?, (self.0.parts().to_vec(),).into_pyobject(py)?.into_any()));
        }
        if !self.0.objects().is_some_and(crate::io::remote::Objects::is_of_machines) {
            let shown = text(&self.0);
            let advice = "only this process has its store; open it in each process";
            return Err(PyTypeError::new_err(format!(
                "{shown}: a path of filesystem= or of bytes is not pickled: {advice}"
            )));
        }
        Ok((of("locate")?, (text(&self.0), self.storage_options()).into_pyobject(py)?.into_any()))
    }

    /// The options of the store, by name.
    #[getter]
    fn storage_options(&self) -> std::collections::BTreeMap<String, String> {
        self.0.objects().map(|objects| objects.options().iter().cloned().collect()).unwrap_or_default()
    }

    /// The last part.
    #[getter]
    fn name(&self) -> String {
        self.0.file_name().map(|name| text(Path::new(name))).unwrap_or_default()
    }

    /// The ending of the last part, with its dot.
    #[getter]
    fn suffix(&self) -> String {
        self.0.extension().map(|ending| format!(".{}", text(Path::new(ending)))).unwrap_or_default()
    }

    /// The directory; that of the whole store is its own.
    #[getter]
    fn parent(&self) -> Self {
        Self(self.0.parent().unwrap_or_else(|| self.0.clone()))
    }

    /// The directories above, up to that of the whole store.
    #[getter]
    fn parents(&self) -> Vec<Self> {
        std::iter::successors(self.0.parent(), Location::parent).map(Self).collect()
    }

    /// Return the same path with another last part.
    fn with_name(&self, name: &str) -> Self {
        Self(self.0.with_file_name(name))
    }

    /// Return the same path with another ending.
    fn with_suffix(&self, suffix: &str) -> Self {
        Self(self.0.with_extension(suffix.trim_start_matches('.')))
    }

    /// Return the path itself: no directory is the current one.
    fn absolute(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Return the path itself: no store has links.
    fn resolve(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Return true.
    #[expect(clippy::unused_self, reason = "as pathlib.Path")]
    fn is_absolute(&self) -> bool {
        true
    }

    /// Return mode, length and times; the time of a directory is now, since no store keeps it.
    ///
    /// Raises:
    ///     OSError: There is nothing, or the store cannot be reached.
    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let found = py.detach(|| storage::status(&self.0))?;
        let mode = if found.kind == Kind::Directory { S_IFDIR } else { S_IFREG };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let ns = found.modified_ns().map_or(now, |ns| u128::try_from(ns).unwrap_or_default());
        #[expect(clippy::cast_precision_loss, reason = "as Python has them")]
        let (whole, exact) = (ns / 1_000_000_000, ns as f64 / 1e9);
        let numbers = [u128::from(mode), 0, 0, 1, 0, 0, u128::from(found.len), whole, whole, whole];
        let all = PyList::new(py, numbers)?;
        [exact; 3].iter().try_for_each(|time| all.append(time))?;
        [ns; 3].iter().try_for_each(|time| all.append(time))?;
        py.import("os")?.getattr("stat_result")?.call1((all,))
    }

    /// Return whether it is a directory.
    fn is_dir(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.status(py)?.is_some_and(|found| found.kind == Kind::Directory))
    }

    /// Return whether it is a file.
    fn is_file(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.status(py)?.is_some_and(|found| found.kind == Kind::File))
    }

    /// Return whether there is a file or a directory.
    fn exists(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.status(py)?.is_some())
    }

    /// Return what is in a directory by name: the path of each, and its length; None for a directory.
    ///
    /// Raises:
    ///     OSError: There is no such directory, or the store cannot be reached.
    fn entries(&self, py: Python<'_>) -> PyResult<Vec<(Location, Option<u64>)>> {
        Ok(py.detach(|| {
            // What was deleted since it was listed is left out.
            let described = |entry: Entry| {
                let status = entry.status()?;
                Ok(status.map(|status| (entry.path, Some(status.len).filter(|_| status.kind != Kind::Directory))))
            };
            let mut entries = storage::list(&self.0)?;
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            entries.into_iter().map(described).filter_map(Result::transpose).collect::<Result<_>>()
        })?)
    }

    /// Return an iterator of the paths in a directory.
    ///
    /// Raises:
    ///     OSError: As `entries`.
    fn iterdir<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let paths: Vec<Location> = self.entries(py)?.into_iter().map(|(path, _)| path).collect();
        paths.into_pyobject(py)?.try_iter()
    }

    /// Return an iterator of the paths below that match the parts of a pattern.
    ///
    /// Raises:
    ///     OSError: The store cannot be reached.
    fn glob<'py>(&self, py: Python<'py>, pattern: &str) -> PyResult<Bound<'py, PyIterator>> {
        let matches = py.import("fnmatch")?.getattr("fnmatchcase")?;
        let mut found = vec![self.0.clone()];
        for part in pattern.split('/') {
            let mut next = Vec::new();
            for directory in found.into_iter().map(Self) {
                let entries = if directory.is_dir(py)? { directory.entries(py)? } else { Vec::new() };
                for (path, _) in entries {
                    if matches.call1((path.file_name().unwrap_or_default(), part))?.extract()? {
                        next.push(path);
                    }
                }
            }
            found = next;
        }
        found.into_pyobject(py)?.try_iter()
    }
}

/// Name, length (None: a directory), time of the last change in ns, `ETag`.
type GivenEntry = (String, Option<u64>, Option<u64>, Option<String>);

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

fn described((name, len, modified_ns, etag): GivenEntry) -> Described {
    Described { name, len, modified: modified_ns.map(|ns| UNIX_EPOCH + Duration::from_nanos(ns)), etag }
}

impl FileSystem for Adapter {
    fn list(&self, directory: &str) -> io::Result<Vec<Described>> {
        let entries: Vec<GivenEntry> = self.call(|adapter| adapter.call_method1("entries", (directory,))?.extract())?;
        Ok(entries.into_iter().map(described).collect())
    }

    fn status(&self, path: &str) -> io::Result<Described> {
        let entry: GivenEntry = self.call(|adapter| adapter.call_method1("status", (path,))?.extract())?;
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

/// Return the path of the root of a file system.
///
/// Args:
///     adapter: An adapter of `logdex._filesystem`.
#[pyfunction]
fn file_system_root(adapter: Py<PyAny>) -> Location {
    Location::whole(Objects::in_file_system(Arc::new(Adapter(adapter))))
}
