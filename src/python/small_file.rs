//! Files that Python reads or writes as a whole or syncs, and the check of a directory before it is written.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::io::Location;
use crate::io::{disk, regular_file, storage};
use crate::rocketmq::store_parts;

register! { fn read_file, replace_file, directory_stamp, sync_file, make_directory, sync_directory, check_own_parts }

/// Return the content of a small file of a store or log directory, or its first bytes.
///
/// Args:
///     path: The file. A pipe in its place is not waited for.
///     first_bytes: Return at most this many bytes.
///
/// Raises:
///     CorruptFileError: The file is longer than 64 MiB, and `first_bytes` was not given.
///     OSError: An I/O error; or the path is a directory, pipe, socket or device.
#[pyfunction]
#[pyo3(signature = (path, first_bytes=None))]
fn read_file(py: Python<'_>, path: Location, first_bytes: Option<u64>) -> PyResult<Bound<'_, PyBytes>> {
    let content = py.detach(|| storage::read_file(&path, first_bytes))?;
    Ok(PyBytes::new(py, &content))
}

/// Write a file under a temporary name and rename it, so that a crash leaves the old or the new content. The caller calls
/// `sync_directory`.
///
/// Raises:
///     OSError: An I/O error; the file has its old content.
#[pyfunction]
fn replace_file(py: Python<'_>, path: PathBuf, content: PyBackedBytes) -> PyResult<()> {
    Ok(py.detach(|| disk::replace_file(&path, &content))?)
}

/// Return a text that changes when names are added to a directory or removed from it, or another directory takes its place.
///
/// Args:
///     directory: The directory, which may be missing.
///     files: The text also changes when a file is replaced or has another length.
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
#[pyo3(signature = (directory, *, files=false))]
fn directory_stamp(py: Python<'_>, directory: Location, files: bool) -> PyResult<String> {
    Ok(py.detach(|| crate::io::directory_stamp(&directory, files))?)
}

/// Call fsync on a file, after extending it to a length with zeros. A longer file keeps its length.
///
/// Raises:
///     OSError: An I/O error; or the path is a link or anything else but a regular file.
#[pyfunction]
#[pyo3(signature = (path, least_bytes=0))]
fn sync_file(py: Python<'_>, path: PathBuf, least_bytes: u64) -> PyResult<()> {
    Ok(py.detach(|| regular_file::sync_file(&path, least_bytes))?)
}

/// Create a directory and the missing ones above it, with durable names.
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
fn make_directory(py: Python<'_>, directory: PathBuf) -> PyResult<()> {
    Ok(py.detach(|| disk::create_directory(&directory))?)
}

/// Call fsync on a directory, where the system supports it.
///
/// Raises:
///     WriteFailedError: It fails.
///     OSError: It cannot be opened.
#[pyfunction]
fn sync_directory(py: Python<'_>, directory: PathBuf) -> PyResult<()> {
    Ok(py.detach(|| disk::sync_directory(&directory))?)
}

/// Check, before something is written, that a directory has no part elsewhere: below it there are only directories and regular
/// files, and no directory has the name of a file. The directory itself may be a link, or be missing.
///
/// Args:
///     directory: The directory.
///     levels: How many levels below it its files are; None: it is the root of a RocketMQ store.
///
/// Raises:
///     OSError: The first such path; or another I/O error.
#[pyfunction]
#[pyo3(signature = (directory, levels=None))]
fn check_own_parts(py: Python<'_>, directory: PathBuf, levels: Option<usize>) -> PyResult<()> {
    Ok(py.detach(|| match levels {
        None => store_parts::check_parts(&directory),
        Some(levels) => regular_file::check_directory(&directory, levels),
    })?)
}
