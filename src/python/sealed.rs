//! `StoreSealing`, `SealedStore` and `SealedFiles`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, BinaryArray, Int32Array, RecordBatch};
use arrow_schema::DataType;
use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3_arrow::PyRecordBatch;

use super::commit_log::PyCommitLog;
use super::convert;
use super::index_file::PyIndexFile;
use super::keys::{self, list_array};
use super::location::{self, PyPath};
use super::report;
use super::time;
use crate::hash_index::IndexFile;
use crate::hash_index::sealed::{Layout, Packed, Row, Sample, place, unpack};
use crate::io::fork::Generation;
use crate::rocketmq::seal::{self, FileFacts, SealedStore, Sealing, Standing};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(sealed_directory, m)?)?;
    m.add_function(wrap_pyfunction!(expect_catalog, m)?)?;
    m.add_function(wrap_pyfunction!(describe_index_file, m)?)?;
    m.add_function(wrap_pyfunction!(packed_rows, m)?)?;
    m.add_function(wrap_pyfunction!(write_packed_keys, m)?)?;
    m.add_function(wrap_pyfunction!(discard_packed_keys, m)?)?;
    m.add_class::<PyStoreSealing>()?;
    m.add_class::<PySealedStore>()?;
    m.add_class::<PySealedFiles>()
}

/// Return the directory of a sealed index: `_logdex` below a directory, or the directory itself if that is its name.
#[pyfunction]
fn sealed_directory(#[pyo3(from_py_with = location::path)] out: PathBuf) -> PyPath {
    PyPath(place::directory_in(&out))
}

/// Begin to read the catalog in a remote directory, so that opening it in the next second needs no request. A local path is left out.
#[pyfunction]
fn expect_catalog(py: Python<'_>, directory: PathBuf) {
    py.detach(|| place::expect_catalog(&directory));
}

fn open_files(files: &[PyRef<'_, PyIndexFile>]) -> PyResult<Vec<Arc<IndexFile>>> {
    files.iter().map(|file| file.inner()).collect()
}

/// Seals a store: sorts the entries of its index files by their hashes, and writes them with a catalog.
#[pyclass(name = "StoreSealing", module = "logdex._core", frozen)]
struct PyStoreSealing {
    sealing: Mutex<Option<Sealing>>,
    process: Generation,
}

impl PyStoreSealing {
    /// Calls `call` without the interpreter lock: another thread may hold the sealing's lock while it reads a file.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Option<Sealing>) -> Option<T> + Send,
    ) -> PyResult<T> {
        self.process.check_writer(Path::new("the sealed index"))?;
        py.detach(|| call(&mut self.sealing.lock().unwrap_or_else(PoisonError::into_inner)))
            .ok_or_else(|| PyValueError::new_err("the store is sealed already"))
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
        Ok(Self { sealing: Mutex::new(Some(sealing)), process: Generation::current() })
    }

    /// Add the entries of an index file. A damaged file is left out, and becomes a finding of the report.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    fn add_index_file(&self, py: Python<'_>, log: &PyCommitLog, file: &PyIndexFile) -> PyResult<()> {
        let (log, file) = (log.inner()?, file.inner()?);
        Ok(self.with(py, |sealing| sealing.as_mut().map(|sealing| sealing.add_index_file(&log, &file)))??)
    }

    /// Add what `describe_index_file` returned of an index file, whose rows other processes sort.
    fn add_facts(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = location::path)] path: PathBuf,
        facts: PyFacts,
    ) -> PyResult<()> {
        let (rows, hashes, offsets, timestamps, geometry, last_of_file) = facts;
        let facts = FileFacts { sample: Sample { rows, hashes }, offsets, timestamps, geometry, last_of_file };
        self.with(py, |sealing| sealing.as_mut().map(|sealing| sealing.add_facts(&path, facts)))
    }

    /// Return the first hashes of the ranges into which other processes sort the rows, but for the first range.
    fn bounds(&self, py: Python<'_>) -> PyResult<Vec<i32>> {
        self.with(py, |sealing| sealing.as_ref().map(Sealing::bounds))
    }

    /// Write the catalog of files of keys that other processes wrote.
    ///
    /// Args:
    ///     log: The log.
    ///     files: The index files.
    ///     written: What `write_packed_keys` returned in all tasks.
    ///
    /// Returns:
    ///     A report, as `finish`.
    ///
    /// Raises:
    ///     CorruptFileError: Rows are missing.
    ///     OSError: The system refuses.
    fn finish_with<'py>(
        &self,
        py: Python<'py>,
        log: &PyCommitLog,
        files: Vec<PyRef<'py, PyIndexFile>>,
        written: Vec<Vec<u8>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (log, files) = (log.inner()?, open_files(&files)?);
        let sealing = self.with(py, Option::take)?;
        let written = written.into_iter().map(Bytes::from).collect();
        let found = py.detach(|| sealing.finish_with(&log, &files, written))?;
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
        let sealing = self.with(py, Option::take)?;
        let found = py.detach(|| sealing.finish(&log, &files))?;
        report::report(py, &found)
    }
}

/// What a catalog needs of an index file: see [`FileFacts`].
type PyFacts = (u64, Vec<i32>, (i64, i64), (i64, i64), (u32, u32), Vec<(u64, i64)>);

/// Read and check an index file, for `StoreSealing.add_facts` in another process.
///
/// Args:
///     log: The log.
///     file: The index file.
///
/// Returns:
///     Facts, or None if it cannot be sealed, and a report that says why.
///
/// Raises:
///     OSError: The system refuses.
#[pyfunction]
fn describe_index_file<'py>(
    py: Python<'py>,
    log: &PyCommitLog,
    file: &PyIndexFile,
) -> PyResult<(Option<PyFacts>, Bound<'py, PyAny>)> {
    let (log, file) = (log.inner()?, file.inner()?);
    let (facts, found) = py.detach(|| seal::describe_index_file(&log, &file))?;
    let facts = facts.map(|facts| {
        let Sample { rows, hashes } = facts.sample;
        (rows, hashes, facts.offsets, facts.timestamps, facts.geometry, facts.last_of_file)
    });
    Ok((facts, report::report(py, &found)?))
}

/// Return the rows of some entries of an index file, packed by ranges of their hashes.
///
/// Args:
///     log: The log, for the times.
///     file: The index file.
///     position: The first entry, from 1 on.
///     limit: The most entries.
///     bounds: The first hashes of all ranges but the first, ascending.
///
/// Returns:
///     An Arrow record batch of range (int32) and rows (binary), of which each has many index entries.
///
/// Raises:
///     OSError: The system refuses.
#[pyfunction]
fn packed_rows<'py>(
    py: Python<'py>,
    log: &PyCommitLog,
    file: &PyIndexFile,
    position: u32,
    limit: u32,
    bounds: Vec<i32>,
) -> PyResult<Bound<'py, PyAny>> {
    let (log, file) = (log.inner()?, file.inner()?);
    packed_batch(py, &py.detach(|| seal::packed_rows_of(&log, &file, position, limit, &bounds))?)
}

/// An Arrow record batch of range (int32) and rows (binary).
pub(super) fn packed_batch<'py>(py: Python<'py>, packed: &[Packed]) -> PyResult<Bound<'py, PyAny>> {
    let columns: [(&str, ArrayRef); 2] = [
        ("range", Arc::new(Int32Array::from_iter_values(packed.iter().map(|(range, _)| *range)))),
        ("rows", Arc::new(BinaryArray::from_iter_values(packed.iter().map(|(_, rows)| rows)))),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)));
    PyRecordBatch::new(batch.map_err(|e| PyValueError::new_err(e.to_string()))?).into_arro3(py)
}

/// Write packed rows as files of keys, one for each range.
///
/// Args:
///     directory: The directory of the sealed index, `_logdex`.
///     name: How the names of the files begin.
///     attempt: How they end, so that two attempts of a task write different files.
///     batches: An iterator of Arrow record batches, as `packed_rows` returns them. The rows have to fit in memory.
///     partitions: Of a Kafka log directory: the partitions of `LogSealing`.
///
/// Returns:
///     The description of each file, for `finish_with`.
///
/// Raises:
///     ValueError: Another column.
///     OSError: The system refuses.
#[pyfunction]
#[pyo3(signature = (directory, name, attempt, batches, partitions=None))]
fn write_packed_keys<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = location::path)] directory: PathBuf,
    name: &str,
    attempt: i64,
    batches: &Bound<'_, PyAny>,
    partitions: Option<Vec<(String, i32)>>,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let mut ranges = BTreeMap::new();
    for batch in batches.try_iter()? {
        let batch: PyRecordBatch = batch?.extract()?;
        py.detach(|| unpack_rows(&batch.into_inner(), &mut ranges))?;
    }
    let layout = partitions.map_or(Layout::OneLog, Layout::Partitions);
    let written = py.detach(|| place::write_packed(&directory, name, attempt, &layout, ranges))?;
    Ok(written.iter().map(|bytes| PyBytes::new(py, bytes)).collect())
}

/// Delete the files of keys of a job that failed.
///
/// Args:
///     directory: The directory of the sealed index, `_logdex`.
///     name: How the names of the files begin.
///
/// Raises:
///     OSError: The system refuses.
#[pyfunction]
fn discard_packed_keys(
    py: Python<'_>,
    #[pyo3(from_py_with = location::path)] directory: PathBuf,
    name: &str,
) -> PyResult<()> {
    Ok(py.detach(|| place::discard(&directory, name))?)
}

fn unpack_rows(batch: &RecordBatch, ranges: &mut BTreeMap<i32, Vec<Row>>) -> PyResult<()> {
    let column = |name: &str, kind: &DataType| {
        let found = batch.column_by_name(name).ok_or_else(|| PyValueError::new_err(format!("no column {name}")))?;
        convert::cast(found, kind, name)
    };
    let (numbers, rows) = (column("range", &DataType::Int32)?, column("rows", &DataType::LargeBinary)?);
    for (range, packed) in numbers.as_primitive::<Int32Type>().values().iter().zip(rows.as_binary::<i64>()) {
        unpack(packed.unwrap_or_default(), ranges.entry(*range).or_default())?;
    }
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

    /// True if the storage returned an `ETag`, which changes with the content, for the files of the log.
    #[getter]
    fn has_etags(&self) -> bool {
        self.store.has_etags()
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

    /// Set the end of a log, as long as its last file is the one in the catalog. With an `ETag` nothing is read; else the log is
    /// read from the last message on.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    fn tell_end(&self, py: Python<'_>, log: &PyCommitLog) -> PyResult<()> {
        let log = log.inner()?;
        Ok(py.detach(|| self.store.tell_end(&log))?)
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
