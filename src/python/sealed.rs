//! The sealed index: `Sealing` and its sources, `SealedStore` and `SealedFiles` of RocketMQ.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, BinaryArray, Int32Array, RecordBatch};
use arrow_schema::DataType;
use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;

use super::commit_log::PyCommitLog;
use super::convert::{self, ArrowArray, ArrowBatch};
use super::handle::lock;
use super::index_entries::open_files;
use super::index_file::PyIndexFile;
use super::kafka::PyLogSegment;
use super::keys;
use super::time;
use crate::hash_index::sealed::sealing::EncodedFacts;
use crate::hash_index::sealed::{Facts, Layout, Packed, PackedRows, Row, Sealing, Source, place, unpack};
use crate::io::Location;
use crate::io::fork::Generation;
use crate::kafka::seal::{self as kafka, Partition, SegmentSource};
use crate::report::Report;
use crate::rocketmq::seal::{self as rocketmq, IndexSource, SealedStore, UnchangedFiles};

register! {
    class PySealing, PySealSource, PyPackedRows, PySealedStore, PySealedFiles;
    fn sealed_directory, expect_catalog, write_packed_keys, discard_packed_keys
}

/// Return the directory of a sealed index: `_logdex` below a directory, or the directory itself if that is its name.
#[pyfunction]
fn sealed_directory(out: Location) -> Location {
    place::directory_in(&out)
}

/// Begin to read the catalog in a remote directory, so that opening it in the next second needs no request. A local path is left out.
#[pyfunction]
fn expect_catalog(py: Python<'_>, directory: Location) {
    py.detach(|| place::expect_catalog(&directory));
}

/// Seals a store or a log directory: sorts its entries by their hashes, and writes them with a catalog.
#[pyclass(name = "Sealing", module = "logdex._core", frozen)]
struct PySealing {
    sealing: Mutex<Option<Sealing>>,
    process: Generation,
}

impl PySealing {
    fn new(sealing: Sealing) -> Self {
        Self { sealing: Mutex::new(Some(sealing)), process: Generation::current() }
    }

    /// Calls `call` without the interpreter lock: another thread may hold the sealing's lock while it reads a file.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Option<Sealing>) -> Option<T> + Send,
    ) -> PyResult<T> {
        self.process.check_writer(Path::new("the sealed index"))?;
        py.detach(|| call(&mut lock(&self.sealing))).ok_or_else(|| PyValueError::new_err("it is sealed already"))
    }
}

#[pymethods]
impl PySealing {
    /// List the files of a RocketMQ store.
    ///
    /// Args:
    ///     root: The store's root.
    ///     directory: The directory of the sealed index, `_logdex`.
    ///     log: The store's log.
    ///     files: The index files.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    #[staticmethod]
    fn of_store(
        py: Python<'_>,
        root: Location,
        directory: Location,
        log: &PyCommitLog,
        files: Vec<PyRef<'_, PyIndexFile>>,
    ) -> PyResult<Self> {
        let (log, files) = (log.inner()?, open_files(&files)?);
        Ok(Self::new(py.detach(|| rocketmq::sealing(&root, &directory, log, files))?))
    }

    /// List the files of a Kafka log directory.
    ///
    /// Args:
    ///     log_dir: The log directory.
    ///     directory: The directory of the sealed index, `_logdex`.
    ///     partitions: Topics and numbers of all partitions.
    ///     header: The name of a header whose values are sealed next to the keys.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    #[staticmethod]
    #[pyo3(signature = (log_dir, directory, partitions, header=None))]
    fn of_logs(
        py: Python<'_>,
        log_dir: Location,
        directory: Location,
        partitions: Vec<Partition>,
        header: Option<String>,
    ) -> PyResult<Self> {
        Ok(Self::new(py.detach(|| kafka::sealing(&log_dir, &directory, partitions, header))?))
    }

    /// Add the entries of a source. A damaged source is left out, and becomes a finding of the report.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn add(&self, py: Python<'_>, source: &PySealSource) -> PyResult<()> {
        Ok(self.with(py, |sealing| sealing.as_mut().map(|sealing| sealing.add(&*source.source)))??)
    }

    /// Add what `SealSource.describe` returned in another process, whose rows other processes sort.
    ///
    /// Raises:
    ///     CorruptFileError: It is something else.
    fn add_facts(&self, py: Python<'_>, facts: EncodedFacts) -> PyResult<()> {
        let facts = Facts::decode(facts)?;
        self.with(py, |sealing| sealing.as_mut().map(|sealing| sealing.add_facts(facts)))
    }

    /// The partitions of a log directory, by their numbers; None for a store.
    #[getter]
    fn partitions(&self, py: Python<'_>) -> PyResult<Option<Vec<Partition>>> {
        let partitions = |sealing: &Sealing| match sealing.layout() {
            Layout::OneLog => None,
            Layout::Partitions(partitions) => Some(partitions.clone()),
        };
        self.with(py, |sealing| sealing.as_ref().map(partitions))
    }

    /// Return the first hashes of the ranges into which other processes sort the rows, but for the first range.
    fn bounds(&self, py: Python<'_>) -> PyResult<Vec<i32>> {
        self.with(py, |sealing| sealing.as_ref().map(Sealing::bounds))
    }

    /// Write the sealed index.
    ///
    /// Args:
    ///     written: What `write_packed_keys` returned in all tasks, if other processes sorted the rows.
    ///
    /// Returns:
    ///     A report that counts sources and entries. Findings are damage, and sources that are not sealed.
    ///
    /// Raises:
    ///     CorruptFileError: Rows are missing.
    ///     OSError: An I/O error.
    #[pyo3(signature = (written=None))]
    fn finish(&self, py: Python<'_>, written: Option<Vec<Vec<u8>>>) -> PyResult<Report> {
        let sealing = self.with(py, Option::take)?;
        let written = written.map(|written| written.into_iter().map(Bytes::from).collect());
        Ok(py.detach(|| sealing.finish(written))?)
    }
}

/// A file whose entries are sealed: an index file, or a segment.
#[pyclass(name = "SealSource", module = "logdex._core", frozen)]
struct PySealSource {
    source: Box<dyn Source>,
}

#[pymethods]
impl PySealSource {
    /// Use an index file, and the log that has the times of its messages.
    #[staticmethod]
    fn index_file(log: &PyCommitLog, file: &PyIndexFile) -> PyResult<Self> {
        Ok(Self { source: Box::new(IndexSource { log: log.inner()?, file: file.inner()? }) })
    }

    /// Use a segment.
    ///
    /// Args:
    ///     partition: Topic and number.
    ///     part: The number of the partition in `Sealing.partitions`.
    ///     segment: The segment.
    ///     following: The next one, where its records end.
    ///     header: The name of a header whose values are sealed next to the keys.
    #[staticmethod]
    #[pyo3(signature = (partition, part, segment, following=None, header=None))]
    fn segment(
        partition: Partition,
        part: u32,
        segment: &PyLogSegment,
        following: Option<&PyLogSegment>,
        header: Option<String>,
    ) -> PyResult<Self> {
        let (segment, next) = (segment.inner()?, following.map(PyLogSegment::inner).transpose()?);
        Ok(Self { source: Box::new(SegmentSource { partition, part, segment, next, header }) })
    }

    /// Read and check the source, for `Sealing.add_facts` in another process.
    ///
    /// Returns:
    ///     Facts, the last of which is the end of its parts, or None if it cannot be sealed; and a report with the reason.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn describe(&self, py: Python<'_>) -> PyResult<(Option<EncodedFacts>, Report)> {
        let (facts, found) = py.detach(|| self.source.read(None))?;
        Ok((facts.map(Facts::encode).transpose()?, found))
    }

    /// Return the rows of a part, packed by ranges of their hashes.
    ///
    /// Args:
    ///     begin: The first entry of an index file, from 1 on. A segment is read from its start.
    ///     end: The end: of entries, or of offsets.
    ///     bounds: The first hashes of all ranges but the first, ascending.
    ///
    /// Returns:
    ///     An iterator of Arrow record batches of range (int32) and rows (binary), of which each has many index entries.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn packed(&self, py: Python<'_>, begin: i64, end: i64, bounds: Vec<i32>) -> PyResult<PyPackedRows> {
        let rows = py.detach(|| PackedRows::new(&*self.source, begin..end, bounds))?;
        Ok(PyPackedRows { rows: Mutex::new(rows) })
    }
}

/// The packed rows of a source: an iterator of record batches.
#[pyclass(name = "PackedRows", module = "logdex._core", frozen)]
struct PyPackedRows {
    rows: Mutex<PackedRows>,
}

#[pymethods]
impl PyPackedRows {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<ArrowBatch>> {
        let packed = py.detach(|| lock(&self.rows).next_rows())?;
        packed.as_deref().map(packed_batch).transpose()
    }
}

/// An Arrow record batch of range (int32) and rows (binary).
fn packed_batch(packed: &[Packed]) -> PyResult<ArrowBatch> {
    let columns: [(&str, ArrayRef); 2] = [
        ("range", Arc::new(Int32Array::from_iter_values(packed.iter().map(|(range, _)| *range)))),
        ("rows", Arc::new(BinaryArray::from_iter_values(packed.iter().map(|(_, rows)| rows)))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).try_into()
}

/// Write packed rows as files of keys, one for each range.
///
/// Args:
///     directory: The directory of the sealed index, `_logdex`.
///     name: How the names of the files begin.
///     attempt: How they end, so that two attempts of a task write different files.
///     batches: An iterator of Arrow record batches, as `SealSource.packed` returns them. The rows have to fit in memory.
///     partitions: Of a Kafka log directory: `Sealing.partitions`.
///
/// Returns:
///     The description of each file, for `Sealing.finish`.
///
/// Raises:
///     ValueError: Another column.
///     OSError: An I/O error.
#[pyfunction]
#[pyo3(signature = (directory, name, attempt, batches, partitions=None))]
fn write_packed_keys(
    py: Python<'_>,
    directory: Location,
    name: &str,
    attempt: i64,
    batches: &Bound<'_, PyAny>,
    partitions: Option<Vec<(String, i32)>>,
) -> PyResult<Vec<Vec<u8>>> {
    let mut ranges = BTreeMap::new();
    for batch in batches.try_iter()? {
        let batch: PyRecordBatch = batch?.extract()?;
        py.detach(|| unpack_rows(&batch.into_inner(), &mut ranges))?;
    }
    let layout = partitions.map_or(Layout::OneLog, Layout::Partitions);
    let written = py.detach(|| place::write_packed(&directory, name, attempt, &layout, ranges))?;
    Ok(written.into_iter().collect())
}

/// Delete the files of keys of a job that failed.
///
/// Args:
///     directory: The directory of the sealed index, `_logdex`.
///     name: How the names of the files begin.
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
fn discard_packed_keys(py: Python<'_>, directory: Location, name: &str) -> PyResult<()> {
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
pub(super) struct PySealedFiles {
    pub(super) unchanged: UnchangedFiles,
}

#[pymethods]
impl PySealedFiles {
    /// Names of the index files.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.unchanged.names.clone()
    }

    /// Entries of these files.
    #[getter]
    fn entries(&self) -> u64 {
        self.unchanged.entries
    }
}

/// The sealed index of a store, open for lookups.
#[pyclass(name = "SealedStore", module = "logdex._core", frozen)]
pub(super) struct PySealedStore {
    store: Arc<SealedStore>,
}

impl PySealedStore {
    pub(super) fn inner(&self) -> Arc<SealedStore> {
        Arc::clone(&self.store)
    }
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
    ///     OSError: An I/O error.
    #[staticmethod]
    #[pyo3(signature = (directory, beside=Vec::new()))]
    fn open(py: Python<'_>, directory: Location, beside: Vec<Location>) -> PyResult<Self> {
        Ok(Self { store: Arc::new(py.detach(|| SealedStore::open(&directory, &beside))?) })
    }

    /// The directory.
    #[getter]
    fn directory(&self) -> Location {
        self.store.directory().to_owned()
    }

    /// Slots and entries of the sealed index files; None without one.
    #[getter]
    fn geometry(&self) -> Option<(u32, u32)> {
        self.store.geometry()
    }

    /// Row groups that were read for lookups.
    #[getter]
    fn reads(&self) -> u64 {
        self.store.reads()
    }

    /// Return the index files that are as they were when the store was sealed.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn unchanged_files(&self, py: Python<'_>, index: Location) -> PyResult<PySealedFiles> {
        Ok(PySealedFiles { unchanged: py.detach(|| self.store.unchanged_files(&index))? })
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
    ///     OSError: An I/O error.
    #[pyo3(signature = (files, keys, *, topics=None, begin=None, end=None))]
    fn select(
        &self,
        py: Python<'_>,
        files: &PySealedFiles,
        keys: &Bound<'_, PyAny>,
        topics: Option<&Bound<'_, PyAny>>,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<ArrowArray> {
        let keys = keys::keys(keys, topics)?;
        let range = time::time_range(begin, end)?;
        let found = py.detach(|| {
            let hashes = keys.hashes();
            let hashes: Vec<i32> = match keys.nulls() {
                None => hashes.values().to_vec(),
                Some(_) => hashes.iter().map(|hash| hash.unwrap_or(-1)).collect(),
            };
            self.store.select(&files.unchanged, &hashes, range)
        })?;
        Ok(ArrowArray(Arc::new(found.into_list_array(keys.nulls().cloned()))))
    }
}
