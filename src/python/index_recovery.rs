//! Recovery of an index from its log.

use std::sync::Arc;

use arrow_array::{RecordBatch, UInt64Array};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;

use super::commit_log::PyCommitLog;
use super::index_file::PyIndexFile;
use crate::hash_index::IndexFile;
use crate::rocketmq::index_recovery;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(index_holds_tags, m)?)?;
    m.add_function(wrap_pyfunction!(index_lacks_entries, m)?)?;
    m.add_function(wrap_pyfunction!(missing_index_entries, m)?)?;
    m.add_function(wrap_pyfunction!(unput_entries, m)?)
}

pub(super) fn open_files(files: &[PyRef<'_, PyIndexFile>]) -> PyResult<Vec<Arc<IndexFile>>> {
    files.iter().map(|file| file.inner()).collect()
}

/// Return whether index files hold the tags of the messages of a log, as 5.5.0 writes them.
///
/// The newest file whose messages have tags decides.
///
/// Returns:
///     None if no message that the files lead to has tags, as far as the log is read for this (64 MiB).
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
fn index_holds_tags(py: Python<'_>, log: &PyCommitLog, files: Vec<PyRef<'_, PyIndexFile>>) -> PyResult<Option<bool>> {
    let (log, files) = (log.inner()?, open_files(&files)?);
    Ok(py.detach(|| index_recovery::holds_tags(&log, &files))?)
}

/// Return whether an entry of the messages of a range of the log, tags aside, is in none of the files.
///
/// Args:
///     log: The log.
///     files: Open index files.
///     begin: No message begins before it.
///     end: No message begins at or after it.
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
fn index_lacks_entries(
    py: Python<'_>,
    log: &PyCommitLog,
    files: Vec<PyRef<'_, PyIndexFile>>,
    begin: i64,
    end: i64,
) -> PyResult<bool> {
    let (log, files) = (log.inner()?, open_files(&files)?);
    let [begin, end] = [begin, end].map(|at| u64::try_from(at).unwrap_or(0));
    Ok(py.detach(|| index_recovery::lacks_entries(&log, &files, begin, end))?)
}

/// Return the entries of the last messages of an index that are in none of its files.
///
/// After a crash the last entries of the newest file may be incomplete. The messages from the first of these on, up to the
/// last one that the file names, are read again.
///
/// Args:
///     log: The log.
///     files: Open index files.
///     newest: The file that leads furthest into the log.
///     tags: The index holds tags, too.
///
/// Returns:
///     Record batches as of `index_entries`, in the order of the log.
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
#[pyo3(signature = (log, files, newest, *, tags))]
fn missing_index_entries<'py>(
    py: Python<'py>,
    log: &PyCommitLog,
    files: Vec<PyRef<'py, PyIndexFile>>,
    newest: &PyIndexFile,
    tags: bool,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let (log, files, newest) = (log.inner()?, open_files(&files)?, newest.inner()?);
    let missing = py.detach(|| {
        let begin = index_recovery::doubtful_offset(&newest)?;
        let last = u64::try_from(newest.header()?.end_phy_offset).unwrap_or(0);
        index_recovery::missing_entries(&log, &files, begin, last.saturating_add(1), tags)
    })?;
    missing.iter().map(|(entries, rows)| take(py, entries, rows)).collect()
}

/// Return the index entries that were not put yet, if putting them was interrupted.
///
/// Args:
///     entries: A record batch as of `index_entries`.
///     files: Open index files.
///     end_phy_offset: Offset of the message of the newest entry in the files. Of later messages nothing was put, of
///         earlier ones all entries.
///
/// Raises:
///     OSError: An I/O error.
///     ValueError: A column is missing, of another type, or null.
#[pyfunction]
#[pyo3(signature = (entries, files, *, end_phy_offset))]
fn unput_entries<'py>(
    py: Python<'py>,
    entries: PyRecordBatch,
    files: Vec<PyRef<'py, PyIndexFile>>,
    end_phy_offset: i64,
) -> PyResult<Bound<'py, PyAny>> {
    let (entries, files) = (entries.into_inner(), open_files(&files)?);
    let rows = py.detach(|| index_recovery::unput_rows(&files, &entries, end_phy_offset))?;
    take(py, &entries, &rows)
}

fn take<'py>(py: Python<'py>, entries: &RecordBatch, rows: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    let rows: UInt64Array = rows.iter().map(|row| Some(*row as u64)).collect();
    let taken = arrow_select::take::take_record_batch(entries, &rows);
    PyRecordBatch::new(taken.map_err(|e| PyValueError::new_err(e.to_string()))?).into_arro3(py)
}
