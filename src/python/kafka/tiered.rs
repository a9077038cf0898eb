//! Log directories that are joined with remote storage.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pyo3::prelude::*;

use super::super::location::{PyPath, located};
use crate::io::remote;
use crate::kafka::tiered::{self, Location};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(join_tiered, m)?)?;
    m.add_function(wrap_pyfunction!(holds_tiered, m)?)
}

/// Join a log directory with the segments that brokers moved to remote storage.
///
/// Args:
///     log_dir: The log directory, located; None: remote storage alone.
///     tiered: Where the plugin stores segments: a path or URL.
///     keys: Private keys in PEM, or the paths of such files, by the name of their key pair; "" is for all others.
///     storage_options: Options of the store of a URL.
///
/// Returns:
///     The path of a log directory with the files of both.
///
/// Raises:
///     ValueError: A directory that no known plugin wrote, or a key that is none.
///     OSError: A directory or the file of a key cannot be read.
#[pyfunction]
fn join_tiered(
    py: Python<'_>,
    log_dir: Option<PathBuf>,
    tiered: PathBuf,
    keys: BTreeMap<String, PathBuf>,
    storage_options: Option<BTreeMap<String, String>>,
) -> PyResult<PyPath> {
    remote::refresh();
    // Options are for URLs, and the log directory may be one.
    let location = Location { local: log_dir, remote: located(&tiered, storage_options)? };
    let keys: Vec<_> = keys.into_iter().map(|(name, key)| (name, key.to_string_lossy().into_owned())).collect();
    Ok(py.detach(|| tiered::mount(&location, &keys)).map(PyPath)?)
}

/// Return whether a directory holds segments as a plugin for remote storage stores them.
#[pyfunction]
fn holds_tiered(py: Python<'_>, directory: PathBuf) -> PyResult<bool> {
    Ok(py.detach(|| tiered::holds_segments(&directory))?)
}
