//! `write_index_rows` and `IndexRows`.

use std::sync::{Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;

use super::commit_log::PyCommitLog;
use super::report;
use crate::io::Location;
use crate::rocketmq::index_rows::{self, RowReader};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyIndexRows>()?;
    m.add_function(wrap_pyfunction!(write_index_rows, m)?)
}

/// Messages, entries, whether the last message has no entry, whether a reader continues after the end, and findings.
type Counts<'py> = (u64, u64, bool, bool, Vec<Bound<'py, PyAny>>);

/// Write the index entries of a part of the log into a file, 20 bytes each, as a sequential reader makes them.
///
/// Args:
///     log: The log.
///     begin: No message begins before this offset.
///     end: No message begins at or after it; None: no bound.
///     tags: Add entries for tags, as 5.5.0 does.
///     path: The file, which must be new.
///
/// Returns:
///     The number of messages and of entries; whether the last message has no entry; whether a sequential reader gets to a message
///     at or after `end`; and the damage of the log, as `logdex.report.Finding`.
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
fn write_index_rows<'py>(
    py: Python<'py>,
    log: &PyCommitLog,
    begin: u64,
    end: Option<u64>,
    tags: bool,
    path: Location,
) -> PyResult<Counts<'py>> {
    let log = log.inner()?;
    let counts = py.detach(|| index_rows::write_rows(&log, begin, end.unwrap_or(u64::MAX), tags, &path))?;
    let findings = report::findings(py, &counts.findings)?;
    Ok((counts.messages, counts.entries, counts.message_after, counts.continues, findings))
}

/// A range of the entries in files of `write_index_rows`, in batches as `entry_rows` returns them.
#[pyclass(name = "IndexRows", module = "logdex._core", frozen)]
pub(super) struct PyIndexRows {
    rows: Mutex<RowReader>,
    seed: Option<(i64, i64)>,
}

#[pymethods]
impl PyIndexRows {
    /// Take the entries `first` up to `last` (exclusive) of all files.
    ///
    /// Args:
    ///     files: The files in their order, each with its number of entries.
    ///     first: The number of the first entry.
    ///     last: The number after the last entry.
    ///
    /// Raises:
    ///     OSError: A file cannot be read.
    #[new]
    fn new(py: Python<'_>, files: Vec<(Location, u64)>, first: u64, last: u64) -> PyResult<Self> {
        py.detach(|| {
            let mut rows = RowReader::new(files, first.saturating_sub(1), last);
            let before = if first > 0 { rows.next_rows(1)? } else { None };
            let seed = before.and_then(|row| {
                let [offset, time] = [row.column(1), row.column(2)].map(|column| {
                    column.as_primitive_opt::<Int64Type>().and_then(|values| values.values().first().copied())
                });
                Some((offset?, time?))
            });
            Ok(Self { rows: Mutex::new(rows), seed })
        })
    }

    /// Offset and time of the entry before the first one; None if there is none.
    #[getter]
    fn seed(&self) -> Option<(i64, i64)> {
        self.seed
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let next = || self.rows.lock().unwrap_or_else(PoisonError::into_inner).next_batch();
        let batch: Option<RecordBatch> = py.detach(next)?;
        batch.map(|batch| PyRecordBatch::new(batch).into_arro3(py)).transpose()
    }
}
