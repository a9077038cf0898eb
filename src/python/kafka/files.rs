//! The files of a partition: their listing and content; aborted transactions, checkpoints.

use std::collections::BTreeMap;

use pyo3::prelude::*;

use super::super::{integer, report};
use crate::io::Location;
use crate::kafka::{self, DumpOptions, Listing, SegmentFiles, checkpoint, transaction_index};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(dump_file, m)?)?;
    m.add_function(wrap_pyfunction!(aborted_transactions, m)?)?;
    m.add_function(wrap_pyfunction!(read_checkpoint, m)?)?;
    m.add_function(wrap_pyfunction!(recorded_offset, m)?)?;
    m.add_function(wrap_pyfunction!(checkpoint_text, m)?)?;
    m.add_function(wrap_pyfunction!(list_partition, m)?)?;
    m.add_function(wrap_pyfunction!(has_segments, m)?)?;
    m.add_function(wrap_pyfunction!(is_partition, m)?)?;
    m.add_function(wrap_pyfunction!(is_log_dir, m)?)
}

/// The attributes of `logdex.kafka.files.Listing`.
type Listed = (
    BTreeMap<i64, SegmentFiles>,
    BTreeMap<i64, Location>,
    Vec<Location>,
    Vec<Location>,
    Vec<Location>,
    BTreeMap<i64, String>,
);

/// List the files of a partition, as the attributes of `logdex.kafka.files.Listing`.
#[pyfunction]
fn list_partition(py: Python<'_>, directory: Location) -> PyResult<Listed> {
    let Listing { segments, snapshots, orphans, leftovers, strays, unread } = py.detach(|| Listing::of(&directory))?;
    let unread = unread.into_iter().map(|file| (file.base_offset, file.found)).collect();
    Ok((segments, snapshots, orphans, leftovers, strays, unread))
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
) -> PyResult<Bound<'_, PyAny>> {
    let dumped = py.detach(|| {
        kafka::dump(&path, DumpOptions { records, data, json }, |piece| match &write {
            Some(write) => Python::attach(|py| write.call1(py, (piece,)).map(drop)),
            None => Ok(()),
        })
    })?;
    report::report(py, &dumped)
}

/// Read the transactions that a `.txnindex` file lists.
///
/// Args:
///     path: The file; a missing one lists nothing.
///     base_offset: The base offset of its segment.
///
/// Returns:
///     (producer id, first offset, offset of the marker) each; None if the file cannot be trusted: it ends with a torn entry, or
///     an entry ends before its segment begins.
///
/// Raises:
///     OSError: The file cannot be read.
#[pyfunction]
fn aborted_transactions(
    py: Python<'_>,
    path: Location,
    #[pyo3(from_py_with = integer::base_offset)] base_offset: i64,
) -> PyResult<Option<Vec<(i64, i64, i64)>>> {
    let listed = py.detach(|| transaction_index::read_trusted(&path, base_offset))?;
    Ok(listed.map(|entries| entries.iter().map(|e| (e.producer_id, e.first_offset, e.last_offset)).collect()))
}
