//! `StoreSealing`, `SealedStore` and `SealedFiles`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, TimestampMillisecondArray};
use arrow_schema::{DataType, TimeUnit};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;

use super::commit_log::PyCommitLog;
use super::convert;
use super::index_file::PyIndexFile;
use super::keys::{self, list_array};
use super::location::{self, PyPath};
use super::report;
use super::time;
use crate::hash_index::IndexFile;
use crate::hash_index::sealed::{Layout, NO_TIME, Row, place};
use crate::rocketmq::seal::{self, SealedStore, Sealing, Standing};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(sealed_directory, m)?)?;
    m.add_function(wrap_pyfunction!(sealed_rows, m)?)?;
    m.add_function(wrap_pyfunction!(write_sealed_keys, m)?)?;
    m.add_class::<PyStoreSealing>()?;
    m.add_class::<PySealedStore>()?;
    m.add_class::<PySealedFiles>()
}

/// Return the directory of a sealed index: `_logdex` below a directory, or the directory itself if that is its name.
#[pyfunction]
fn sealed_directory(#[pyo3(from_py_with = location::path)] out: PathBuf) -> PyPath {
    PyPath(place::directory_in(&out))
}

fn open_files(files: &[PyRef<'_, PyIndexFile>]) -> PyResult<Vec<Arc<IndexFile>>> {
    files.iter().map(|file| file.inner()).collect()
}

/// Seals a store: sorts the entries of its index files by their hashes, and writes them with a catalog.
#[pyclass(name = "StoreSealing", module = "logdex._core", frozen)]
struct PyStoreSealing {
    sealing: Mutex<Option<Sealing>>,
}

impl PyStoreSealing {
    fn with<T>(&self, call: impl FnOnce(&mut Option<Sealing>) -> Option<T>) -> PyResult<T> {
        let mut sealing = self.sealing.lock().unwrap_or_else(PoisonError::into_inner);
        call(&mut sealing).ok_or_else(|| PyValueError::new_err("the store is sealed already"))
    }
}

#[pymethods]
impl PyStoreSealing {
    /// List the files of a store.
    ///
    /// Args:
    ///     root: The store's root.
    ///     directory: The directory of the sealed index, `_logdex`.
    ///     log: The store's log.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    #[new]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = location::path)] root: PathBuf,
        #[pyo3(from_py_with = location::path)] directory: PathBuf,
        log: &PyCommitLog,
    ) -> PyResult<Self> {
        let log = log.inner()?;
        let sealing = py.detach(|| Sealing::new(&root, &directory, &log))?;
        Ok(Self { sealing: Mutex::new(Some(sealing)) })
    }

    /// Add the entries of an index file. A damaged file is left out, and becomes a finding of the report.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    fn add_index_file(&self, py: Python<'_>, log: &PyCommitLog, file: &PyIndexFile) -> PyResult<()> {
        let (log, file) = (log.inner()?, file.inner()?);
        Ok(py.detach(|| self.with(|sealing| sealing.as_mut().map(|sealing| sealing.add_index_file(&log, &file))))??)
    }

    /// Describe an index file whose rows another program sorts. Return whether it is sealed: a damaged file is left out, and becomes
    /// a finding of the report.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    fn describe_index_file(&self, py: Python<'_>, log: &PyCommitLog, file: &PyIndexFile) -> PyResult<bool> {
        let (log, file) = (log.inner()?, file.inner()?);
        let describe = |sealing: &mut Sealing| {
            sealing.describe_index_file(&log, &file)?;
            Ok::<bool, crate::error::Error>(sealing.is_sealed(&file))
        };
        Ok(py.detach(|| self.with(|sealing| sealing.as_mut().map(describe)))??)
    }

    /// Write the catalog of files of keys that another program wrote.
    ///
    /// Args:
    ///     log: The log.
    ///     files: The index files.
    ///     names: Names of the files in the directory `keys`.
    ///
    /// Returns:
    ///     A report, as `finish`.
    ///
    /// Raises:
    ///     CorruptFileError: A file has other columns, another order or compression, or rows are missing.
    ///     OSError: The system refuses.
    fn finish_with<'py>(
        &self,
        py: Python<'py>,
        log: &PyCommitLog,
        files: Vec<PyRef<'py, PyIndexFile>>,
        names: Vec<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (log, files) = (log.inner()?, open_files(&files)?);
        let sealing = self.with(Option::take)?;
        let found = py.detach(|| sealing.finish_with(&log, &files, &names))?;
        report::report(py, &found)
    }

    /// Write the sealed index.
    ///
    /// Args:
    ///     log: The log.
    ///     files: The index files.
    ///
    /// Returns:
    ///     A report that counts files and entries. Findings are index files that are not sealed.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    fn finish<'py>(
        &self,
        py: Python<'py>,
        log: &PyCommitLog,
        files: Vec<PyRef<'py, PyIndexFile>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (log, files) = (log.inner()?, open_files(&files)?);
        let sealing = self.with(Option::take)?;
        let found = py.detach(|| sealing.finish(&log, &files))?;
        report::report(py, &found)
    }
}

/// Return the rows of some entries of an index file, as `seal` sorts them.
///
/// Args:
///     log: The log, for the times.
///     file: The index file.
///     position: The first entry, from 1 on.
///     limit: The most entries.
///
/// Returns:
///     An Arrow record batch of key_hash (int32), phy_offset (int64) and store_timestamp (timestamp[ms, UTC]).
///
/// Raises:
///     OSError: The system refuses.
#[pyfunction]
fn sealed_rows<'py>(
    py: Python<'py>,
    log: &PyCommitLog,
    file: &PyIndexFile,
    position: u32,
    limit: u32,
) -> PyResult<Bound<'py, PyAny>> {
    let (log, file) = (log.inner()?, file.inner()?);
    let rows = py.detach(|| seal::rows_of(&log, &file, position, limit))?;
    let times = rows.iter().map(|row| (row.time != NO_TIME).then_some(row.time));
    let columns: [(&str, ArrayRef); 3] = [
        ("key_hash", Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.key_hash)))),
        ("phy_offset", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.offset)))),
        ("store_timestamp", Arc::new(times.collect::<TimestampMillisecondArray>().with_timezone("UTC"))),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)));
    PyRecordBatch::new(batch.map_err(|e| PyValueError::new_err(e.to_string()))?).into_arro3(py)
}

/// Write sorted rows of a store as one file of keys.
///
/// Args:
///     path: The file: a local path or an object.
///     batches: An iterator of Arrow record batches of key_hash (int32), phy_offset (int64) and store_timestamp (a timestamp in
///         UTC), in the order of a sealed index. They have to fit in memory.
///
/// Returns:
///     The number of rows. Without any no file is written.
///
/// Raises:
///     ValueError: Another column.
///     OSError: The system refuses.
#[pyfunction]
fn write_sealed_keys(
    py: Python<'_>,
    #[pyo3(from_py_with = location::path)] path: PathBuf,
    batches: &Bound<'_, PyAny>,
) -> PyResult<u64> {
    let mut rows = Vec::new();
    for batch in batches.try_iter()? {
        let batch: PyRecordBatch = batch?.extract()?;
        py.detach(|| append_rows(&batch.into_inner(), &mut rows))?;
    }
    Ok(py.detach(|| place::write_sorted(&path, &Layout::OneLog, rows))?)
}

fn append_rows(batch: &RecordBatch, rows: &mut Vec<Row>) -> PyResult<()> {
    let column = |name: &str, kind: &DataType| {
        let found = batch.column_by_name(name).ok_or_else(|| PyValueError::new_err(format!("no column {name}")))?;
        convert::cast(found, kind, name)
    };
    let hashes = column("key_hash", &DataType::Int32)?;
    let offsets = column("phy_offset", &DataType::Int64)?;
    let times = column("store_timestamp", &DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())))?;
    let hashes = hashes.as_primitive::<Int32Type>().values();
    let offsets = offsets.as_primitive::<Int64Type>().values();
    let times = times.as_primitive::<TimestampMillisecondType>().iter();
    rows.extend(hashes.iter().zip(offsets).zip(times).map(|((key_hash, offset), time)| Row {
        key_hash: *key_hash,
        part: 0,
        offset: *offset,
        time: time.unwrap_or(NO_TIME),
    }));
    Ok(())
}

/// The index files that a sealed index stands for, as they are now.
#[pyclass(name = "SealedFiles", module = "logdex._core", frozen, eq)]
#[derive(PartialEq)]
struct PySealedFiles {
    standing: Standing,
}

#[pymethods]
impl PySealedFiles {
    /// Names of the index files.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.standing.names.clone()
    }

    /// Offsets of the first and of the last message of each file that holds entries.
    #[getter]
    fn spans(&self) -> Vec<(i64, i64)> {
        self.standing.spans.clone()
    }

    /// Ranges of the log between these files, in which no message lacks an entry.
    #[getter]
    fn joints(&self) -> Vec<(i64, i64)> {
        self.standing.joints.clone()
    }

    /// Entries of these files.
    #[getter]
    fn entries(&self) -> u64 {
        self.standing.entries
    }
}

/// The sealed index of a store, open for lookups.
#[pyclass(name = "SealedStore", module = "logdex._core", frozen)]
struct PySealedStore {
    store: SealedStore,
}

#[pymethods]
impl PySealedStore {
    /// Open a sealed index.
    ///
    /// Args:
    ///     directory: Its directory, `_logdex`.
    ///     beside: Remote directories that are listed at the same time.
    ///
    /// Raises:
    ///     FileNotFoundError: There is none.
    ///     CorruptFileError: The catalog is damaged, of another version, or of a Kafka log directory.
    ///     OSError: The system refuses.
    #[staticmethod]
    #[pyo3(signature = (directory, beside=Vec::new()))]
    fn open(
        py: Python<'_>,
        #[pyo3(from_py_with = location::path)] directory: PathBuf,
        beside: Vec<PathBuf>,
    ) -> PyResult<Self> {
        Ok(Self { store: py.detach(|| SealedStore::open(&directory, &beside))? })
    }

    /// The directory.
    #[getter]
    fn directory(&self) -> PyPath {
        PyPath(self.store.directory().to_owned())
    }

    /// Slots and entries of the sealed index files; None without one.
    #[getter]
    fn geometry(&self) -> Option<(u32, u32)> {
        self.store.geometry()
    }

    /// Whether tags are indexed; None: no indexed message has any.
    #[getter]
    fn tags(&self) -> Option<bool> {
        self.store.tags()
    }

    /// Row groups that were read for lookups.
    #[getter]
    fn reads(&self) -> u64 {
        self.store.reads()
    }

    /// Return the index files that are as they were when the store was sealed.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    fn standing(&self, py: Python<'_>, index: PathBuf) -> PyResult<PySealedFiles> {
        Ok(PySealedFiles { standing: py.detach(|| self.store.standing(&index))? })
    }

    /// Let a log find its end without a read while its last file is the one that the catalog describes.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    fn tell_end(&self, py: Python<'_>, log: &PyCommitLog) -> PyResult<()> {
        let log = log.inner()?;
        if let Some(end) = py.detach(|| self.store.known_end(&log))? {
            log.know_end(end);
        }
        Ok(())
    }

    /// Find the candidates of keys.
    ///
    /// Args:
    ///     files: The files whose entries count.
    ///     keys: Keys, or whole index keys where no topic is given.
    ///     topics: One topic for all keys, or a column of them.
    ///     begin: First store time, inclusive.
    ///     end: Last store time, inclusive.
    ///
    /// Returns:
    ///     list<int64>, one row a key: commit-log offsets, newest first; null where the key or topic is null.
    ///
    /// Raises:
    ///     CorruptFileError: A file of the sealed index is damaged.
    ///     OSError: The system refuses.
    #[pyo3(signature = (files, keys, *, topics=None, begin=None, end=None))]
    fn select<'py>(
        &self,
        py: Python<'py>,
        files: &PySealedFiles,
        keys: &Bound<'py, PyAny>,
        topics: Option<&Bound<'py, PyAny>>,
        begin: Option<&Bound<'py, PyAny>>,
        end: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let keys = keys::keys(keys, topics)?;
        let range = time::time_range(begin, end)?;
        let found = py.detach(|| {
            let hashes: Vec<i32> = keys.hashes().iter().map(|hash| hash.unwrap_or(-1)).collect();
            self.store.select(&files.standing, &hashes, range)
        })?;
        list_array(py, found.into_list_array(keys.nulls().cloned()))
    }

    /// Compare the rows with the entries of the index files and with the times of the log.
    ///
    /// Args:
    ///     files: The files whose entries count.
    ///     log: The log.
    ///     index: The open index files.
    ///
    /// Returns:
    ///     A report.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    fn verify<'py>(
        &self,
        py: Python<'py>,
        files: &PySealedFiles,
        log: &PyCommitLog,
        index: Vec<PyRef<'py, PyIndexFile>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (log, index) = (log.inner()?, open_files(&index)?);
        let found = py.detach(|| self.store.verify(&files.standing, &log, &index))?;
        report::report(py, &found)
    }
}
