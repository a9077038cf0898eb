//! Paths and URLs from Python, and paths for Python.
//!
//! A parameter of the type [`Location`] takes a path or URL, and is read with the options that a `RemotePath` has. Use
//! `#[pyo3(from_py_with = location::local_path)]` before a path that is written.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use pyo3::prelude::*;

use super::remote_path::PyRemotePath;
use crate::io::remote::{self, Objects, upload};
use crate::io::{Location, locate};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(parse_local_path, m)?)?;
    m.add_function(wrap_pyfunction!(py_locate, m)?)?;
    m.add_function(wrap_pyfunction!(locate_all, m)?)?;
    m.add_function(wrap_pyfunction!(locate_beside, m)?)?;
    m.add_function(wrap_pyfunction!(join_directories, m)?)?;
    m.add_function(wrap_pyfunction!(without_secrets, m)?)?;
    m.add_function(wrap_pyfunction!(expect_lists, m)?)?;
    m.add_function(wrap_pyfunction!(expect_heads, m)?)?;
    m.add_function(wrap_pyfunction!(forget_lists, m)?)?;
    m.add_function(wrap_pyfunction!(put_remote, m)?)?;
    m.add_function(wrap_pyfunction!(upload_file, m)?)?;
    m.add_function(wrap_pyfunction!(delete_remote, m)?)
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
