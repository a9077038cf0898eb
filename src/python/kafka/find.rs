//! `find_records`, and the indexes that it uses: `SealedLogs` and `KeyIndex`.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;

use super::super::keys::log_notes;
use super::super::{convert, time};
use super::log::PyPartitionLog;
use crate::error::Result;
use crate::io::Location;
use crate::kafka::find::{self, Indexes, KeyQuery, PartitionFound};
use crate::kafka::key_index::{KeyIndex, KeySettings};
use crate::kafka::seal::SealedLogs;
use crate::kafka::{LogView, record_columns};
use crate::report::{Finding, Report};

register! { class PySealedLogs, PyKeyIndex; fn find_records, read_key_settings, check_key_index }

/// Opens the segments that some logs have now.
fn views(py: Python<'_>, logs: &[PyRef<'_, PyPartitionLog>]) -> PyResult<Vec<Arc<LogView>>> {
    let logs = logs.iter().map(|log| log.inner()).collect::<PyResult<Vec<_>>>()?;
    Ok(py.detach(|| logs.iter().map(|log| log.view()).collect::<Result<_>>())?)
}

/// The sealed index of a log directory, open for lookups. If a file of it turns out to be damaged, it is not used any more.
#[pyclass(name = "SealedLogs", module = "logdex._core", frozen)]
struct PySealedLogs {
    logs: Arc<SealedLogs>,
}

#[pymethods]
impl PySealedLogs {
    /// Open a sealed index.
    ///
    /// Args:
    ///     directory: Its directory, `_logdex`.
    ///
    /// Raises:
    ///     FileNotFoundError: There is none.
    ///     CorruptFileError: The catalog is damaged, of another version, or of a RocketMQ store.
    ///     OSError: An I/O error.
    #[staticmethod]
    fn open(py: Python<'_>, directory: Location) -> PyResult<Self> {
        Ok(Self { logs: Arc::new(py.detach(|| SealedLogs::open(&directory))?) })
    }

    /// Row groups that were read for lookups.
    #[getter]
    fn reads(&self) -> u64 {
        self.logs.reads()
    }

    /// Return what is sealed of some partitions, for people; None if it is not used any more.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn words(&self, py: Python<'_>, logs: Vec<PyRef<'_, PyPartitionLog>>) -> PyResult<Option<String>> {
        let logs = views(py, &logs)?;
        Ok(py.detach(|| self.logs.words(&logs)))
    }

    /// Compare the rows with the records of the segments that are as they were.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn verify(&self, py: Python<'_>, logs: Vec<PyRef<'_, PyPartitionLog>>) -> PyResult<Report> {
        let logs = views(py, &logs)?;
        Ok(py.detach(|| self.logs.verify(&logs))?)
    }

    fn __repr__(&self) -> String {
        format!("SealedLogs({:?})", self.logs.directory().display().to_string())
    }
}

/// A key index, open for searches. The index files of a partition are opened at its first search.
#[pyclass(name = "KeyIndex", module = "logdex._core", frozen)]
struct PyKeyIndex {
    index: Arc<KeyIndex>,
}

#[pymethods]
impl PyKeyIndex {
    /// Use the directory that `build_key_index` wrote.
    #[new]
    fn new(directory: Location) -> Self {
        Self { index: Arc::new(KeyIndex::new(&directory)) }
    }

    fn __repr__(&self) -> String {
        format!("KeyIndex({:?})", self.index.directory().display().to_string())
    }
}

/// Read the settings of a partition's key index: `hash_slots`, `max_entries` and `header`; None without an index.
///
/// Raises:
///     CorruptFileError: Their file has other content.
///     OSError: An I/O error.
#[pyfunction]
fn read_key_settings(py: Python<'_>, directory: Location) -> PyResult<Option<(u32, u32, Option<String>)>> {
    let settings = py.detach(|| KeySettings::read(&directory))?;
    Ok(settings.map(|KeySettings { geometry, header }| (geometry.hash_slots(), geometry.max_entries(), header)))
}

/// Check that all files of a partition's key index are whole: a truncated file would silently shorten an answer.
///
/// Raises:
///     CorruptFileError: A file has another length.
///     OSError: An I/O error.
#[pyfunction]
fn check_key_index(py: Python<'_>, directory: Location) -> PyResult<()> {
    py.detach(|| KeySettings::read(&directory)?.map_or(Ok(()), |settings| settings.check_files(&directory)))?;
    Ok(())
}

/// The attributes of a `logdex.kafka.find.PartitionStep`.
type Step = (i32, i64, i64, usize, usize, i64, Vec<i64>, usize, Vec<(i64, i64)>);
/// Batches, the number of a batch and a row for each record, whether there are more, rejected candidates, partitions, findings.
type PyFound<'py> = (Vec<Bound<'py, PyAny>>, Vec<(usize, usize)>, bool, usize, Vec<Step>, Vec<Finding>);

/// Find the records of a topic that carry a key.
///
/// Args:
///     logs: The partitions that are searched, of one topic.
///     key: The key, or the value of the header.
///     header: The name of a header; None: the record's key is compared.
///     begin: First timestamp.
///     end: Last timestamp.
///     columns: The columns of the batches; with offset and timestamp.
///     max_num: The most records; None: all.
///     sealed: The sealed index of the log directory. It stands for the segments that are as they were.
///     index: A key index. Offsets that neither index covers are scanned.
///
/// Returns:
///     Batches; a number of a batch and of a row in it for each record, newest first; whether there are more; the number of candidates
///     with another key; what was done in each partition; and the findings.
///
/// Raises:
///     CorruptFileError: The key index is damaged.
///     OSError: An I/O error.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
#[pyo3(signature = (logs, key, *, header, begin, end, columns, max_num, sealed, index))]
fn find_records<'py>(
    py: Python<'py>,
    logs: Vec<PyRef<'py, PyPartitionLog>>,
    key: Vec<u8>,
    header: Option<String>,
    begin: Option<&Bound<'py, PyAny>>,
    end: Option<&Bound<'py, PyAny>>,
    columns: &Bound<'py, PyAny>,
    max_num: Option<usize>,
    sealed: Option<PyRef<'py, PySealedLogs>>,
    index: Option<PyRef<'py, PyKeyIndex>>,
) -> PyResult<PyFound<'py>> {
    let query = KeyQuery {
        value: key,
        header,
        times: time::bounds(begin, end)?,
        columns: record_columns::Column::choose(convert::column_names(Some(columns))?.as_deref())?,
        max_num,
        threads: convert::threads(None)?,
    };
    let logs = views(py, &logs)?;
    let (sealed, keys) = (sealed.map(|each| Arc::clone(&each.logs)), index.map(|each| Arc::clone(&each.index)));
    let (found, notes) = py.detach(|| {
        let indexes = Indexes { sealed: sealed.as_deref(), keys: keys.as_deref() };
        (find::find(&logs, indexes, &query), indexes.take_notes())
    });
    log_notes(py, notes)?;
    let found = found?;
    let batches = found.batches.into_iter().map(|batch| PyRecordBatch::new(batch).into_arro3(py).map(Bound::into_any));
    let rejected = found.partitions.iter().map(|each| each.rejected).sum();
    let steps = found.partitions.into_iter().map(step).collect();
    Ok((batches.collect::<PyResult<_>>()?, found.rows, found.is_truncated, rejected, steps, found.findings))
}

fn step(found: PartitionFound) -> Step {
    let PartitionFound {
        partition,
        begin_offset,
        end_offset,
        sealed,
        indexed,
        scanned,
        rejected: _,
        offsets,
        missing,
        unread,
    } = found;
    let unread = unread.into_iter().collect();
    (partition, begin_offset, end_offset, sealed, indexed, scanned, offsets, missing, unread)
}
