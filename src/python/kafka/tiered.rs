//! Log directories that are joined with remote storage.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pyo3::prelude::*;

use super::super::location::{StorageOptions, located};
use crate::io::Location;
use crate::kafka::tiered::{self, Sources};

register! { fn join_tiered, holds_tiered, is_tiered }

/// Join a log directory with the segments that brokers moved to remote storage.
///
/// Args:
///     log_dir: The log directory, located; None: remote storage alone.
///     tiered: Where the plugin stores segments: a path or URL.
///     keys: Private keys in PEM, or the paths of such files, by the name of their key pair; "" is for all others.
///     storage_options: Options of the store of a URL.
///     below: A path below the log directory.
///
/// Returns:
///     The path of a log directory with the files of both, or that below it.
///
/// Raises:
///     ValueError: A directory that no known plugin wrote, or an invalid key.
///     OSError: A directory or the file of a key cannot be read.
#[pyfunction]
#[pyo3(signature = (log_dir, tiered, keys, storage_options, below=""))]
fn join_tiered(
    py: Python<'_>,
    log_dir: Option<Location>,
    tiered: Location,
    keys: BTreeMap<String, PathBuf>,
    storage_options: StorageOptions,
    below: &str,
) -> PyResult<Location> {
    // Options are for URLs, and the log directory may be one.
    let remote = located(tiered, storage_options);
    let keys = keys.into_iter().map(|(name, key)| (name, key.to_string_lossy().into_owned())).collect();
    let sources = Sources { local: log_dir, remote, keys };
    sources.local.iter().chain([&sources.remote]).for_each(Location::refresh);
    let joined = py.detach(|| tiered::join(sources))?;
    Ok(if below.is_empty() { joined } else { joined.join(below) })
}

/// Return whether a directory holds segments as a plugin for remote storage stores them.
#[pyfunction]
fn holds_tiered(py: Python<'_>, directory: Location) -> PyResult<bool> {
    Ok(py.detach(|| tiered::holds_segments(&directory))?)
}

/// Return whether a path is that of a log directory that is joined with remote storage, or below one.
#[pyfunction]
fn is_tiered(path: Location) -> bool {
    tiered::sources(&path).is_some()
}
