//! Index entries of messages: made, counted, kept as rows, recovered from the log, and compared with it.

use std::sync::{Arc, Mutex};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array, ArrayRef, RecordBatch, UInt64Array, new_null_array};
use arrow_schema::{DataType, Field, Schema};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;

use super::commit_log::PyCommitLog;
use super::convert::{self, ArrowBatch, log_offset};
use super::handle::lock;
use super::index_file::PyIndexFile;
use super::{keys, time};
use crate::hash_index::{self, EntryRows, IndexFile};
use crate::io::Location;
use crate::report::Finding;
use crate::rocketmq;
use crate::rocketmq::index_cross_check::{IndexCrossCheck, Lead};
use crate::rocketmq::index_entries::INDEXED_COLUMNS;
use crate::rocketmq::index_recovery;
use crate::rocketmq::index_rows::{self, RowReader};

register! {
    class PyEntryRows, PyIndexRows, PyIndexCrossCheck;
    fn message_columns, index_entries, indexed_messages, last_message, split_cut_off, entry_rows, write_index_rows,
    index_holds_tags, index_lacks_entries, missing_index_entries, unput_entries
}

/// Return the columns of a batch of messages that an index needs, in the types of a scan.
///
/// Args:
///     messages: An Arrow record batch. Columns may be missing; others are left out.
///
/// Raises:
///     TypeError: A column has a type whose conversion would change values, such as fractions of numbers.
///     ValueError: A value does not fit into the type.
#[pyfunction]
fn message_columns(messages: PyRecordBatch) -> PyResult<ArrowBatch> {
    let messages = messages.into_inner();
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for name in INDEXED_COLUMNS {
        if let Some(column) = messages.column_by_name(name) {
            let column = message_column(name, convert::plain(Arc::clone(column))?)?;
            fields.push(Field::new(name, column.data_type().clone(), true));
            columns.push(column);
        }
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).try_into()
}

fn message_column(name: &str, column: ArrayRef) -> PyResult<ArrayRef> {
    let kind = column.data_type().clone();
    let wrong = |expected: &str| PyTypeError::new_err(format!("column {name}: expected {expected}, found {kind}"));
    if name == "store_timestamp" {
        if !kind.is_null() && !kind.is_integer() && !matches!(kind, DataType::Timestamp(..)) {
            return Err(wrong("times or integers"));
        }
        let times = time::times_of(&column, name)?.reinterpret_cast::<TimestampMillisecondType>();
        return Ok(Arc::new(times.with_timezone("UTC")));
    }
    let wanted = match name {
        "phy_offset" => DataType::Int64,
        "sys_flag" => DataType::Int32,
        _ => DataType::Utf8,
    };
    match &kind {
        DataType::Null => Ok(new_null_array(&wanted, column.len())),
        kind if wanted.is_integer() && !kind.is_integer() => Err(wrong("integers")),
        kind if wanted == DataType::Utf8 && !is_text(kind) => Err(wrong("text")),
        _ => convert::cast(&column, &wanted, name),
    }
}

fn is_text(kind: &DataType) -> bool {
    matches!(
        kind,
        DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
    )
}

/// Return the index entries of a batch of messages, by the rules of the broker's dispatcher.
///
/// Args:
///     messages: An Arrow record batch with `topic`, `phy_offset`, `store_timestamp`, `sys_flag`, `uniq_key`, `keys`,
///         and with `tags` if tags are wanted.
///     end_phy_offset: Messages before it are left out; it moves to each message that has an entry.
///     tags: Add an entry for `T#` and the whole tags text as well, as 5.5.0 does.
///
/// Returns:
///     A record batch of `topic`, `key`, `phy_offset`, `store_timestamp`, and `row`, the number of the message in
///     `messages`. In order: the unique key, each of the space-separated keys, the tags. Rolled-back messages have none.
///
/// Raises:
///     ValueError: A column is missing, of another type, or null where a message must have a value.
///
/// Source: `IndexService#buildIndex`.
#[pyfunction]
#[pyo3(signature = (messages, *, end_phy_offset, tags=false))]
fn index_entries(py: Python<'_>, messages: PyRecordBatch, end_phy_offset: i64, tags: bool) -> PyResult<ArrowBatch> {
    let messages = messages.into_inner();
    Ok(ArrowBatch(py.detach(|| rocketmq::index_entries::index_entries(&messages, end_phy_offset, tags))?))
}

/// Count the messages of a batch that have index entries.
///
/// Args:
///     messages: As for `index_entries`.
///     tags: As for `index_entries`.
///
/// Raises:
///     ValueError: As for `index_entries`.
#[pyfunction]
#[pyo3(signature = (messages, *, tags))]
fn indexed_messages(py: Python<'_>, messages: PyRecordBatch, tags: bool) -> PyResult<usize> {
    let messages = messages.into_inner();
    Ok(py.detach(|| rocketmq::index_entries::indexed_messages(&messages, tags))?)
}

/// The offset in the log after the last message of a batch, and its store time in ms; None without messages.
///
/// Args:
///     messages: An Arrow record batch with `phy_offset`, `store_size` and `store_timestamp`.
///
/// Raises:
///     ValueError: A column is missing, of another type, or null.
#[pyfunction]
fn last_message(messages: PyRecordBatch) -> PyResult<Option<(i64, i64)>> {
    Ok(rocketmq::message_columns::last_message(messages.as_ref())?)
}

/// Split a batch of a salvaging scan into valid messages and those that a broker truncated before.
///
/// Args:
///     messages: An Arrow record batch with `phy_offset` and `suspect`.
///
/// Returns:
///     The valid messages, in batches without copies; the offset and the column `suspect` of each truncated one; and how many
///     messages are older than one before them.
///
/// Raises:
///     ValueError: A column is missing, of another type, or null.
#[pyfunction]
fn split_cut_off(messages: PyRecordBatch) -> PyResult<SplitMessages> {
    let (valid, cut_off, back_in_time) = rocketmq::commit_log::split_cut_off(messages.as_ref())?;
    Ok((valid.into_iter().map(ArrowBatch).collect(), cut_off, back_in_time))
}

type SplitMessages = (Vec<ArrowBatch>, Vec<(i64, String)>, usize);

/// Return index entries with the hash of the key instead of topic and key: 20 bytes each.
///
/// Args:
///     topic: Topics: an Arrow column or a sequence, like all four.
///     key: Keys, without topics.
///     phy_offset: Commit-log offsets.
///     store_timestamp: Store times: integers in ms, timestamps or datetimes, which are rounded down.
///
/// Returns:
///     A record batch of `key_hash` (int32), `phy_offset` (int64) and `store_timestamp` (int64, ms).
///
/// Raises:
///     TypeError: A column is of another type.
///     ValueError: A value is null, or the columns differ in length.
#[pyfunction]
fn entry_rows<'py>(
    py: Python<'py>,
    topic: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
    phy_offset: &Bound<'py, PyAny>,
    store_timestamp: &Bound<'py, PyAny>,
) -> PyResult<ArrowBatch> {
    let (topics, keys) = (keys::text_column(topic, "topic")?, keys::text_column(key, "key")?);
    let offsets = convert::int64_column(phy_offset, "phy_offset")?;
    let times = time::time_column(store_timestamp, "store_timestamp")?;
    let nulls = [
        ("topic", topics.as_array().null_count()),
        ("key", keys.as_array().null_count()),
        ("phy_offset", offsets.null_count()),
        ("store_timestamp", times.null_count()),
    ];
    if let Some((name, _)) = nulls.iter().find(|(_, nulls)| *nulls > 0) {
        return Err(PyValueError::new_err(format!("cannot index a row whose {name} is null")));
    }
    let keys = keys::joined(keys, topics)?;
    let hashes = py.detach(|| keys.hashes());
    if offsets.len() != hashes.len() || times.len() != hashes.len() {
        let text = format!(
            "the columns differ in length: key {}, phy_offset {}, store_timestamp {}",
            hashes.len(),
            offsets.len(),
            times.len()
        );
        return Err(PyValueError::new_err(text));
    }
    Ok(ArrowBatch(hash_index::entry_rows(hashes, offsets, times)))
}

/// Index entries that a task holds, as `entry_rows` returns them. Any thread may call.
#[pyclass(name = "EntryRows", module = "logdex._core", frozen)]
pub(super) struct PyEntryRows(Mutex<EntryRows>);

impl PyEntryRows {
    fn with<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&mut EntryRows) -> T + Send) -> T {
        py.detach(|| call(&mut lock(&self.0)))
    }
}

#[pymethods]
impl PyEntryRows {
    /// Hold no entries yet.
    #[new]
    fn new() -> Self {
        Self(Mutex::default())
    }

    /// Add the entries of a batch that `entry_rows` returned.
    ///
    /// Raises:
    ///     ValueError: The batch has other columns.
    fn add(&self, py: Python<'_>, rows: PyRecordBatch) -> PyResult<()> {
        let batch = rows.into_inner();
        let columns = || {
            let hashes = batch.column_by_name("key_hash")?.as_primitive_opt::<Int32Type>()?;
            let offsets = batch.column_by_name("phy_offset")?.as_primitive_opt::<Int64Type>()?;
            Some((hashes, offsets, batch.column_by_name("store_timestamp")?.as_primitive_opt::<Int64Type>()?))
        };
        let (hashes, offsets, times) =
            columns().ok_or_else(|| PyValueError::new_err("rows: expected the columns of entry_rows"))?;
        self.with(py, |rows| rows.add(hashes.values(), offsets.values(), times.values()));
        Ok(())
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.with(py, |rows| rows.len())
    }

    /// True if no offset is below the one before it.
    #[getter]
    fn is_ordered(&self, py: Python<'_>) -> bool {
        self.with(py, |rows| rows.is_ordered())
    }

    /// The least and the greatest commit-log offset, and the same of the store times; None without entries.
    #[getter]
    fn spans(&self, py: Python<'_>) -> Option<((i64, i64), (i64, i64))> {
        self.with(py, |rows| rows.spans())
    }

    /// Return the entries in the order of their offsets, in batches. Entries of one offset keep their order.
    fn sorted(&self, py: Python<'_>) -> Vec<ArrowBatch> {
        self.with(py, |rows| rows.sorted().map(ArrowBatch).collect())
    }
}

/// Messages, entries, whether the last message has no entry, whether a reader continues after the end, and findings.
type Counts = (u64, u64, bool, bool, Vec<Finding>);

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
fn write_index_rows(
    py: Python<'_>,
    log: &PyCommitLog,
    begin: u64,
    end: Option<u64>,
    tags: bool,
    path: Location,
) -> PyResult<Counts> {
    let log = log.inner()?;
    let counts = py.detach(|| index_rows::write_rows(&log, begin, end.unwrap_or(u64::MAX), tags, &path))?;
    Ok((counts.messages, counts.entries, counts.message_after, counts.continues, counts.findings))
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

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<ArrowBatch>> {
        Ok(py.detach(|| lock(&self.rows).next_batch())?.map(ArrowBatch))
    }
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
    let [begin, end] = [begin, end].map(|at| log_offset(Some(at), 0));
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
) -> PyResult<Vec<ArrowBatch>> {
    let (log, files, newest) = (log.inner()?, open_files(&files)?, newest.inner()?);
    let missing = py.detach(|| {
        let begin = index_recovery::doubtful_offset(&newest)?;
        let last = log_offset(Some(newest.header()?.end_phy_offset), 0);
        index_recovery::missing_entries(&log, &files, begin, last.saturating_add(1), tags)
    })?;
    missing.iter().map(|(entries, rows)| take(entries, rows)).collect()
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
) -> PyResult<ArrowBatch> {
    let (entries, files) = (entries.into_inner(), open_files(&files)?);
    let rows = py.detach(|| index_recovery::unput_rows(&files, &entries, end_phy_offset))?;
    take(&entries, &rows)
}

fn take(entries: &RecordBatch, rows: &[usize]) -> PyResult<ArrowBatch> {
    let rows: UInt64Array = rows.iter().map(|row| Some(*row as u64)).collect();
    arrow_select::take::take_record_batch(entries, &rows).try_into()
}

/// Number of the file, offset in the log, hash of the key, position in the file.
type Entry = (usize, i64, i32, u32);

fn entry(file: usize, lead: Lead) -> Entry {
    (file, lead.phy_offset, lead.key_hash, lead.position)
}

/// Compares the keys of messages with the entries of index files, during a scan of the log.
///
/// Calls in this order: `check` for each batch of the scan, `check_rest` for each file until none is left, then the results.
#[pyclass(name = "IndexCrossCheck", module = "logdex._core", frozen)]
struct PyIndexCrossCheck {
    check: Mutex<IndexCrossCheck>,
}

impl PyIndexCrossCheck {
    /// Calls while other threads run Python: another thread may hold the lock while it reads the log.
    fn with<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&mut IndexCrossCheck) -> T + Send) -> T {
        py.detach(|| call(&mut lock(&self.check)))
    }
}

#[pymethods]
impl PyIndexCrossCheck {
    /// Begin with the first entries of the files.
    ///
    /// Args:
    ///     files: Open files.
    ///     tags: The index holds tags, too.
    ///     log_begin: Entries that lead before this offset of the log are skipped.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    #[new]
    #[pyo3(signature = (files, *, tags, log_begin))]
    fn new(py: Python<'_>, files: Vec<PyRef<'_, PyIndexFile>>, tags: bool, log_begin: i64) -> PyResult<Self> {
        let files = open_files(&files)?;
        Ok(Self { check: Mutex::new(py.detach(|| IndexCrossCheck::new(files, tags, log_begin))?) })
    }

    /// Compare the keys of the next batch of messages with the entries that lead to them.
    ///
    /// Args:
    ///     messages: An Arrow record batch with the columns that `index_entries` reads, `tags` among them.
    ///
    /// Returns:
    ///     A tuple for each entry that leads to no message with such a key: number of the file, offset in the log, hash of the
    ///     key, position in the file.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    ///     ValueError: A column is missing, of another type, or null where a message must have a value.
    fn check(&self, py: Python<'_>, messages: PyRecordBatch) -> PyResult<Vec<Entry>> {
        let messages = messages.into_inner();
        let wrong = self.with(py, |check| check.check(&messages))?;
        Ok(wrong.into_iter().map(|(file, lead)| entry(file, lead)).collect())
    }

    /// Look up the messages of entries of a file that were out of order.
    ///
    /// The keys that the entries may lead to no longer count as missing.
    ///
    /// Args:
    ///     log: The log.
    ///     file: Number of the file.
    ///     most: The most entries to take.
    ///
    /// Returns:
    ///     How many entries were taken, 0 when none is left; and a tuple as of `check` for each that leads to no message with
    ///     such a key.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn check_rest(&self, py: Python<'_>, log: &PyCommitLog, file: usize, most: usize) -> PyResult<(usize, Vec<Entry>)> {
        let log = log.inner()?;
        let (taken, wrong) = self.with(py, |check| check.check_rest(file, most, &log))?;
        Ok((taken, wrong.into_iter().map(|lead| entry(file, lead)).collect()))
    }

    /// Entries that led to what the log holds or should hold.
    #[getter]
    fn followed(&self, py: Python<'_>) -> u64 {
        self.with(py, |check| check.followed())
    }

    /// The number of keys without an entry, of messages at an offset of the log or after it.
    fn missing_from(&self, py: Python<'_>, phy_offset: i64) -> usize {
        self.with(py, |check| check.missing_from(phy_offset))
    }

    /// The keys of messages before an offset of the log that have no entry; None: of all messages.
    ///
    /// Returns:
    ///     A tuple for each, in the order of the log: the message's offset, topic, key.
    fn missing_before(&self, py: Python<'_>, phy_offset: Option<i64>) -> Vec<(i64, String, String)> {
        self.with(py, |check| {
            check.missing_before(phy_offset).map(|missing| (missing.phy_offset, missing.topic, missing.key)).collect()
        })
    }
}
