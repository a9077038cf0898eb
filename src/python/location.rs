//! Paths and URLs from Python.
//!
//! Use the functions as `#[pyo3(from_py_with = location::local_path)]` before a path that a user passes.

use std::path::PathBuf;

use pyo3::prelude::*;

use crate::io::location;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(parse_local_path, m)?)?;
    m.add_function(wrap_pyfunction!(parse_local_paths, m)?)
}

/// The local path that a path or URL means.
pub(super) fn local_path(value: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    Ok(location::local_path(&value.extract::<PathBuf>()?)?)
}

/// As [`local_path`], where `None` is allowed.
pub(super) fn optional_local_path(value: &Bound<'_, PyAny>) -> PyResult<Option<PathBuf>> {
    if value.is_none() { Ok(None) } else { local_path(value).map(Some) }
}

/// The local paths of several paths or URLs with commas between.
pub(super) fn local_paths(value: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    Ok(location::local_paths(&value.extract::<PathBuf>()?)?)
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

/// Return the local paths of several paths or URLs with commas between, as one text with commas between.
///
/// Raises:
///     ValueError: As `local_path`.
#[pyfunction]
#[pyo3(name = "local_paths")]
fn parse_local_paths(#[pyo3(from_py_with = local_paths)] paths: PathBuf) -> std::ffi::OsString {
    paths.into()
}
