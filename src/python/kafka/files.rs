//! The files of a log directory: their content, checkpoints.

use std::collections::HashSet;

use pyo3::prelude::*;

use crate::io::Location;
use crate::kafka::{self, DumpOptions, checkpoint};
use crate::report::Report;

register! {
    fn dump_file, read_checkpoint, recorded_offset, checkpoint_text, has_segments, is_partition, list_partitions, is_log_dir
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
fn list_partitions(py: Python<'_>, log_dir: Location, topics: Option<HashSet<String>>) -> PyResult<Vec<(String, i32)>> {
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
fn recorded_offset(py: Python<'_>, path: Location, topic: &str, partition: i64) -> Option<i64> {
    py.detach(|| checkpoint::recorded_offset(&path, topic, partition))
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
