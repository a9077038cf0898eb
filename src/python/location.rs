//! Paths and URLs from Python, and paths for Python.
//!
//! Use the functions as `#[pyo3(from_py_with = location::path)]` before a path that a user passes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::error::{Result, shown};
use crate::io::location;
use crate::io::mounts::{self, is_mounted};
use crate::io::remote::memory::MemoryFiles;
use crate::io::remote::{self, is_remote, roots, upload};
use crate::io::storage::{self, Entry, Kind, Status};
use crate::kafka::tiered;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(parse_local_path, m)?)?;
    m.add_function(wrap_pyfunction!(locate, m)?)?;
    m.add_function(wrap_pyfunction!(locate_all, m)?)?;
    m.add_function(wrap_pyfunction!(storage_options, m)?)?;
    m.add_function(wrap_pyfunction!(unmarked, m)?)?;
    m.add_function(wrap_pyfunction!(remote_status, m)?)?;
    m.add_function(wrap_pyfunction!(expect_lists, m)?)?;
    m.add_function(wrap_pyfunction!(expect_heads, m)?)?;
    m.add_function(wrap_pyfunction!(expect_ends, m)?)?;
    m.add_function(wrap_pyfunction!(list_remote, m)?)?;
    m.add_function(wrap_pyfunction!(forget_lists, m)?)?;
    m.add_function(wrap_pyfunction!(put_remote, m)?)?;
    m.add_function(wrap_pyfunction!(upload_file, m)?)?;
    m.add_function(wrap_pyfunction!(delete_remote, m)?)
}

/// A path for Python: a `pathlib.Path`, or a `RemotePath`, which has the methods for reading.
pub(super) struct PyPath(pub(super) PathBuf);

impl<'py> IntoPyObject<'py> for PyPath {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        static REMOTE_PATH: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        if is_remote(&self.0) {
            let class = REMOTE_PATH.import(py, "logdex._files", "RemotePath")?;
            return class.call1((self.0.into_os_string(),));
        }
        Ok(self.0.into_pyobject(py)?.into_any())
    }
}

fn given(storage_options: Option<BTreeMap<String, String>>) -> Option<roots::Options> {
    storage_options.map(|options| options.into_iter().collect())
}

/// The path that a path or URL means, for reading with these options.
pub(super) fn located(path: &Path, storage_options: Option<BTreeMap<String, String>>) -> PyResult<PathBuf> {
    let options = given(storage_options);
    if let Some(options) = options.as_ref().filter(|options| is_mounted(path) && !options.is_empty()) {
        return Ok(mounts::moved(path, &tiered::remount(options)?));
    }
    Ok(location::locate(path, options.as_ref())?)
}

/// The paths of several paths or URLs with commas between.
pub(super) fn located_all(paths: &Path, storage_options: Option<BTreeMap<String, String>>) -> PyResult<PathBuf> {
    Ok(location::locate_all(paths, given(storage_options).as_ref())?)
}

/// The path in this process of one that came from another, with the options that it had there.
pub(super) fn relocated(path: PathBuf, storage_options: &BTreeMap<String, String>) -> PyResult<PathBuf> {
    if is_remote(&path) { located(&path, Some(storage_options.clone())) } else { Ok(path) }
}

/// As [`relocated`], of several paths with commas between.
pub(super) fn relocated_all(paths: PathBuf, storage_options: &BTreeMap<String, String>) -> PyResult<PathBuf> {
    if is_remote(&paths) { located_all(&paths, Some(storage_options.clone())) } else { Ok(paths) }
}

/// The local path that a path or URL means.
pub(super) fn local_path(value: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    Ok(location::local_path(&value.extract::<PathBuf>()?)?)
}

/// The path that a path or URL means, for reading.
pub(super) fn path(value: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    Ok(location::locate(&value.extract::<PathBuf>()?, None)?)
}

/// As [`path`], where `None` is allowed.
pub(super) fn optional_path(value: &Bound<'_, PyAny>) -> PyResult<Option<PathBuf>> {
    if value.is_none() { Ok(None) } else { path(value).map(Some) }
}

/// The paths of several paths or URLs with commas between.
pub(super) fn paths(value: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    Ok(location::locate_all(&value.extract::<PathBuf>()?, None)?)
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

/// Return the path that a path or URL means, for reading. What was listed of a remote store before is asked again.
///
/// Args:
///     path: A local path, or a URL.
///     storage_options: Options of the store of a URL, by the names of the object_store crate. They belong to the returned path
///         and are kept until the process ends. None: a URL is read with the options of the environment.
///
/// Raises:
///     ValueError: A URL with an unknown scheme, or an invalid one.
#[pyfunction]
#[pyo3(signature = (path, storage_options=None))]
fn locate(path: PathBuf, storage_options: Option<BTreeMap<String, String>>) -> PyResult<PyPath> {
    remote::refresh();
    located(&path, storage_options).map(PyPath)
}

/// Return the paths of several paths or URLs with commas between, as one text with commas between.
///
/// Raises:
///     ValueError: As `locate`.
#[pyfunction]
#[pyo3(signature = (paths, storage_options=None))]
fn locate_all(paths: PathBuf, storage_options: Option<BTreeMap<String, String>>) -> PyResult<std::ffi::OsString> {
    located_all(&paths, storage_options).map(Into::into)
}

/// Return the options that a remote path was located with, or the path of a log directory that is joined with remote storage.
#[pyfunction]
fn storage_options(path: PathBuf) -> BTreeMap<String, String> {
    mounts::options(&path).unwrap_or_else(|| roots::options(&path)).into_iter().collect()
}

/// Return a path or message without the marks of remote paths, which stand for their options, and without passwords in URLs.
/// Bytes that are not UTF-8 become replacement characters.
#[pyfunction]
fn unmarked(path: PathBuf) -> String {
    shown(&path)
}

/// Whether it is a directory, its length in bytes, and the time of its last change in ns (None: unknown).
type Described = (bool, u64, Option<u128>);

fn described(found: &Status) -> Described {
    let modified = found.modified.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).map(|since| since.as_nanos());
    (found.kind == Kind::Directory, found.len, modified)
}

/// Describe what is at a remote path.
///
/// Raises:
///     OSError: There is nothing, or the store cannot be asked.
#[pyfunction]
fn remote_status(py: Python<'_>, path: PathBuf) -> PyResult<Described> {
    Ok(described(&py.detach(|| storage::status(&path))?))
}

/// List a remote directory by name: what is at each path.
///
/// Raises:
///     OSError: There is no such directory, or the store cannot be asked.
#[pyfunction]
fn list_remote(py: Python<'_>, directory: PathBuf) -> PyResult<Vec<(PyPath, Described)>> {
    Ok(py.detach(|| {
        // What was deleted since it was listed is left out.
        let described = |entry: Entry| Ok(entry.status()?.map(|status| (PyPath(entry.path), described(&status))));
        let mut entries = storage::list(&directory)?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries.into_iter().map(described).filter_map(Result::transpose).collect::<Result<_>>()
    })?)
}

/// Forget what was listed in remote stores, because other processes wrote for this one.
#[pyfunction]
fn forget_lists(py: Python<'_>) {
    py.detach(remote::forget_listings);
}

/// Begin to list several remote directories at the same time, so that the next seconds need no request for them. Local paths are left out.
#[pyfunction]
fn expect_lists(py: Python<'_>, directories: Vec<PathBuf>) {
    py.detach(|| remote::expect_lists(&directories));
}

/// Note that the heads of remote files will be read, so that the first read asks for all. Local paths are left out.
#[pyfunction]
fn expect_heads(py: Python<'_>, files: Vec<PathBuf>) {
    py.detach(|| remote::expect_heads(&files));
}

/// Note that the last bytes of remote files will be read, so that the first read asks for all. Local paths are left out.
#[pyfunction]
fn expect_ends(py: Python<'_>, files: Vec<PathBuf>) {
    py.detach(|| remote::expect_ends(&files));
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
fn put_remote(py: Python<'_>, path: PathBuf, content: Vec<u8>, replaces: Option<String>) -> PyResult<()> {
    Ok(py.detach(|| upload::put(&path, content, replaces))?)
}

/// Copy a local file to an object, which is there as a whole or not at all.
///
/// Raises:
///     OSError: The file cannot be read, or the store refuses.
#[pyfunction]
fn upload_file(py: Python<'_>, file: PathBuf, path: PathBuf) -> PyResult<()> {
    Ok(py.detach(|| upload::upload(&file, &path))?)
}

/// Delete an object, or all objects below a directory. What is not there is deleted already.
///
/// Raises:
///     OSError: The store refuses.
#[pyfunction]
fn delete_remote(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    Ok(py.detach(|| upload::delete(&path))?)
}

/// Call what may wait for a remote file, and let other threads run meanwhile. A local file takes less time than that.
pub(super) fn waiting<T: Send>(py: Python<'_>, path: &Path, call: impl FnOnce() -> T + Send) -> T {
    if is_remote(path) { py.detach(call) } else { call() }
}

/// A file in memory, and its path.
pub(super) fn in_memory(name: &str, data: &[u8]) -> PyResult<(Option<Arc<MemoryFiles>>, PathBuf)> {
    let files = MemoryFiles::keep([(name.to_owned(), Bytes::copy_from_slice(data))])?;
    let path = files.path(name);
    Ok((Some(Arc::new(files)), path))
}

/// Paths for Python.
pub(super) fn python_paths(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Vec<PyPath> {
    paths.into_iter().map(|path| PyPath(path.as_ref().to_owned())).collect()
}
