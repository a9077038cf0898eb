//! The files of a log directory: their content, checkpoints; and log directories that are joined with remote storage.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use pyo3::prelude::*;

use super::super::location::{StorageOptions, located};
use crate::io::Location;
use crate::kafka::tiered::{self, Sources};
use crate::kafka::{self, DumpOptions, checkpoint};
use crate::report::Report;

register! {
    fn dump_file, read_checkpoint, recorded_offset, checkpoint_text, has_segments, is_partition, list_partitions, is_log_dir,
    join_tiered, holds_tiered, is_tiered
}

/// Return whether a path is a directory with a `.log` file.
#[pyfunction]
fn has_segments(py: Python<'_>, directory: Location) -> PyResult<bool> {
    Ok(py.detach(|| kafka::has_segments(&directory))?)
}

/// Return whether a directory is a partition's, which may have lost its segments, and not only named like one.
#[pyfunction]
fn is_partition(py: Python<'_>, directory: Location) -> PyResult<bool> {
    Ok(py.detach(|| kafka::is_partition(&directory))?)
}

/// Return the partitions of some topics in a log directory as (topic, partition), sorted; without those that a broker renamed.
#[pyfunction]
#[pyo3(signature = (log_dir, topics=None))]
fn list_partitions(
    py: Python<'_>,
    log_dir: Location,
    topics: Option<BTreeSet<String>>,
) -> PyResult<Vec<(String, i32)>> {
    Ok(py.detach(|| kafka::log::partitions(&log_dir, topics.as_ref()))?)
}

/// Return whether a directory is a log directory: it holds a partition, or a checkpoint that only a log directory has.
#[pyfunction]
fn is_log_dir(py: Python<'_>, directory: Location) -> PyResult<bool> {
    Ok(py.detach(|| kafka::is_log_dir(&directory))?)
}

/// Read a text checkpoint: (topic, partition, offset) of each line, or (None, leader epoch, first offset) without topics.
///
/// A missing or empty file has no lines.
///
/// Raises:
///     CorruptFileError: Another version, count or line; or no file.
///     OSError: An I/O error.
#[pyfunction]
#[pyo3(signature = (path, *, has_topic))]
fn read_checkpoint(py: Python<'_>, path: Location, has_topic: bool) -> PyResult<Vec<checkpoint::Line>> {
    Ok(py.detach(|| checkpoint::read(&path, has_topic))?)
}

/// Return the text of a checkpoint from its lines: topic and partition, or None and an epoch; then an offset.
#[pyfunction]
fn checkpoint_text(lines: Vec<checkpoint::Line>) -> String {
    checkpoint::text(lines.into_iter())
}

/// Return the offset of a partition in a checkpoint of offsets; None if it has none, or if the file is missing or not valid.
#[pyfunction]
fn recorded_offset(py: Python<'_>, path: Location, topic: &str, partition: i64) -> PyResult<Option<i64>> {
    Ok(py.detach(|| checkpoint::recorded_offset(&path, topic, partition))?)
}

/// Write the content of a file of a segment, or of a snapshot of KRaft's metadata, as lines.
///
/// Args:
///     path: The file.
///     write: Called with pieces of about 256 KiB, of text with whole lines; None: nothing is written.
///     records: Show the records of a log, not only its batches.
///     data: Show their keys and values.
///     json: JSON lines; otherwise text as kafka-dump-log prints it.
///
/// Returns:
///     A report of what is wrong with the file; `entries` is the number of lines.
///
/// Raises:
///     OSError: The file cannot be read.
///     ValueError: Another file.
///
/// Source: `DumpLogSegments`.
#[pyfunction]
#[pyo3(signature = (path, write=None, *, records=false, data=false, json=false))]
fn dump_file(
    py: Python<'_>,
    path: Location,
    write: Option<Py<PyAny>>,
    records: bool,
    data: bool,
    json: bool,
) -> PyResult<Report> {
    py.detach(|| {
        kafka::dump(&path, DumpOptions { records, data, json }, |piece| match &write {
            Some(write) => Python::attach(|py| write.call1(py, (piece,)).map(drop)),
            None => Ok(()),
        })
    })
}

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
