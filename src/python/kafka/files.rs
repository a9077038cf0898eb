//! The files of a partition: their listing; aborted transactions, snapshots of producers, checkpoints.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, TimestampMillisecondArray};
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;

use super::super::integer;
use crate::kafka::{self, Listing, SegmentFiles, checkpoint, producer_snapshot, transaction_index};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(read_transaction_index, m)?)?;
    m.add_function(wrap_pyfunction!(aborted_transactions, m)?)?;
    m.add_function(wrap_pyfunction!(read_checkpoint, m)?)?;
    m.add_function(wrap_pyfunction!(recorded_offset, m)?)?;
    m.add_function(wrap_pyfunction!(list_partition, m)?)?;
    m.add_function(wrap_pyfunction!(has_segments, m)?)?;
    m.add_function(wrap_pyfunction!(is_partition, m)?)?;
    m.add_function(wrap_pyfunction!(read_producer_snapshot, m)?)
}

fn batch<'py>(py: Python<'py>, columns: Vec<(&str, ArrayRef)>) -> PyResult<Bound<'py, PyAny>> {
    let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
        .map_err(|e| pyo3::exceptions::PyValueError::new_err(e.to_string()))?;
    PyRecordBatch::new(batch).into_arro3(py)
}

/// The attributes of `logdex.kafka.files.Listing`.
type Listed = (
    BTreeMap<i64, SegmentFiles>,
    BTreeMap<i64, PathBuf>,
    Vec<PathBuf>,
    Vec<PathBuf>,
    Vec<PathBuf>,
    BTreeMap<i64, String>,
);

/// List the files of a partition, as the attributes of `logdex.kafka.files.Listing`.
#[pyfunction]
fn list_partition(py: Python<'_>, directory: PathBuf) -> PyResult<Listed> {
    let Listing { segments, snapshots, orphans, leftovers, strays, unread } = py.detach(|| Listing::of(&directory))?;
    let unread = unread.into_iter().map(|file| (file.base_offset, file.name)).collect();
    Ok((segments, snapshots, orphans, leftovers, strays, unread))
}

/// Return whether a path is a directory with a `.log` file.
#[pyfunction]
fn has_segments(py: Python<'_>, directory: PathBuf) -> PyResult<bool> {
    Ok(py.detach(|| kafka::has_segments(&directory))?)
}

/// Return whether a directory is a partition's, which may have lost its segments, and not only named like one.
#[pyfunction]
fn is_partition(py: Python<'_>, directory: PathBuf) -> PyResult<bool> {
    Ok(py.detach(|| kafka::is_partition(&directory))?)
}

/// Read a text checkpoint: (topic, partition, offset) of each line, or (None, leader epoch, first offset) without topics.
///
/// A missing or empty file has no lines.
///
/// Raises:
///     CorruptFileError: Another version, count or line; or no file.
///     OSError: The system refuses.
#[pyfunction]
#[pyo3(signature = (path, *, has_topic))]
fn read_checkpoint(py: Python<'_>, path: PathBuf, has_topic: bool) -> PyResult<Vec<checkpoint::Line>> {
    Ok(py.detach(|| checkpoint::read(&path, has_topic))?)
}

/// Return the offset of a partition in a checkpoint of offsets; None if it has none, or if the file is missing or not valid.
#[pyfunction]
fn recorded_offset(py: Python<'_>, path: PathBuf, topic: &str, partition: i64) -> Option<i64> {
    py.detach(|| checkpoint::recorded_offset(&path, topic, partition))
}

/// Read a `.txnindex` file.
///
/// Returns:
///     A record batch of version, producerId, firstOffset, lastOffset (of the marker) and lastStableOffset, and how many
///     bytes of a torn entry follow the last whole one.
///
/// Raises:
///     OSError: The system refuses.
///
/// Source: `TransactionIndex#iterable`.
#[pyfunction]
fn read_transaction_index(py: Python<'_>, path: PathBuf) -> PyResult<(Bound<'_, PyAny>, u64)> {
    let (entries, left) = py.detach(|| transaction_index::read(&path))?;
    let longs = |value: fn(&transaction_index::AbortedTransaction) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(entries.iter().map(value)))
    };
    let versions = Int32Array::from_iter_values(entries.iter().map(|e| i32::from(e.version)));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("version", Arc::new(versions)),
        ("producerId", longs(|e| e.producer_id)),
        ("firstOffset", longs(|e| e.first_offset)),
        ("lastOffset", longs(|e| e.last_offset)),
        ("lastStableOffset", longs(|e| e.last_stable_offset)),
    ];
    Ok((batch(py, columns)?, left))
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
    path: PathBuf,
    #[pyo3(from_py_with = integer::base_offset)] base_offset: i64,
) -> PyResult<Option<Vec<(i64, i64, i64)>>> {
    let listed = py.detach(|| transaction_index::read_trusted(&path, base_offset))?;
    Ok(listed.map(|entries| entries.iter().map(|e| (e.producer_id, e.first_offset, e.last_offset)).collect()))
}

/// Read a `.snapshot` file of the producers' state.
///
/// Returns:
///     A record batch, one row a producer.
///
/// Raises:
///     CorruptFileError: Another version, checksum or length.
///     OSError: The system refuses.
///
/// Source: `ProducerStateManager#readSnapshot`.
#[pyfunction]
fn read_producer_snapshot(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let producers = py.detach(|| producer_snapshot::read(&path))?;
    let longs = |value: fn(&producer_snapshot::ProducerEntry) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(producers.iter().map(value)))
    };
    let ints = |value: fn(&producer_snapshot::ProducerEntry) -> i32| -> ArrayRef {
        Arc::new(Int32Array::from_iter_values(producers.iter().map(value)))
    };
    let times = TimestampMillisecondArray::from_iter_values(producers.iter().map(|p| p.timestamp));
    let open: Int64Array = producers.iter().map(|p| p.current_txn_first_offset).collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("producerId", longs(|p| p.producer_id)),
        ("producerEpoch", ints(|p| i32::from(p.producer_epoch))),
        ("lastSequence", ints(|p| p.last_sequence)),
        ("lastOffset", longs(|p| p.last_offset)),
        ("offsetDelta", ints(|p| p.offset_delta)),
        ("timestamp", Arc::new(times.with_timezone("UTC"))),
        ("coordinatorEpoch", ints(|p| p.coordinator_epoch)),
        ("currentTxnFirstOffset", Arc::new(open)),
    ];
    batch(py, columns)
}
