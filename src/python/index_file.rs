//! `IndexFile`, its header and its chains, and the file that is prepared to be the next one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use pyo3_arrow::PyRecordBatchReader;

use super::convert::{self, ArrowArray};
use super::handle::{Closable, lock};
use super::keys::{self, warn_damage};
use super::time::{self, Round};
use super::{integer, location};
use crate::hash_index::{
    self, Answers, Buckets, ChainStatistics, CreateOptions, Header, IndexFile, KeySource, OpenOptions, Prepared,
    PutColumns,
};
use crate::io::{Location, u32_of};
use crate::report::Report;
use crate::rocketmq::release::Release;
use crate::rocketmq::store_parts::refuse_running_broker;
use crate::time_range::TimeRange;
use crate::time_text::TimeText;

register! { class PyIndexFile, PyIndexHeader, PyPreparedFile; fn _open_index_file, read_chain, chain_statistics }

/// One index file of a RocketMQ store: it maps a key to the commit-log offsets of its candidates.
///
/// A file has one writer and any number of readers, in this process or others. Batch calls release the interpreter lock. A
/// handle pickles by its path and options, and unpickles as a reader. In a forked child reads work, and puts raise `ValueError`.
///
/// Source: `IndexFile`; docs/formats/rocketmq-index.md.
///
/// Example:
///     >>> with IndexFile.create(path, hash_slots=10, max_entries=8) as f:
///     ...     f.put_key(index_key("T", "a"), 1000, 1_700_000_000_000)
///     ...     f.select_phy_offset(index_key("T", "a"))
///     True
///     [1000]
#[pyclass(name = "IndexFile", module = "logdex.rocketmq", frozen, weakref)]
pub(super) struct PyIndexFile {
    file: Closable<IndexFile>,
    access: String,
    compat: Option<String>,
}

impl PyIndexFile {
    fn new(file: IndexFile, access: &str, compat: Option<&str>) -> Self {
        let path = file.path().to_owned();
        Self { file: Closable::new(file, path), access: access.to_owned(), compat: compat.map(str::to_owned) }
    }

    /// A handle of an open file.
    pub(super) fn of(file: Arc<IndexFile>, access: &str, compat: Option<&str>) -> Self {
        let path = file.path().to_owned();
        Self { file: Closable::of(file, path), access: access.to_owned(), compat: compat.map(str::to_owned) }
    }

    pub(super) fn inner(&self) -> PyResult<Arc<IndexFile>> {
        self.file.get()
    }
}

/// A batch of entries, 32 bytes each, ends at 64 MiB.
const MOST_ENTRIES: u32 = (64 << 20) / 32;

/// More threads than any build can use: beyond this they wait for each other.
const MAX_THREADS: usize = 64;

/// All releases answer alike.
pub(super) fn answers(compat: Option<&str>) -> PyResult<Answers> {
    Ok(answers_of(convert::compat(compat)?))
}

pub(super) fn answers_of(compat: Option<Release>) -> Answers {
    if compat.is_some() { Answers::Broker } else { Answers::Complete }
}

/// The most hits that a caller wants of a key; `None`: all.
fn most_hits(file: &IndexFile, max_num: Option<i64>) -> PyResult<Option<usize>> {
    // COMPAT(rocketmq IndexFile#selectPhyOffset): a negative maximum is never reached from above, so nothing is read.
    convert::max_num(if file.answers() == Answers::Broker { max_num.map(|n| n.max(0)) } else { max_num })
}

#[pymethods]
impl PyIndexFile {
    /// Create a file of the full size, reserve its disk space, and open it for puts.
    ///
    /// Args:
    ///     path: The file; it must not exist.
    ///     hash_slots: S, the number of slots.
    ///     max_entries: N; the file holds N - 1 entries.
    ///     begin_timestamp: Seed: the end time of the previous file, in ms; 0: none.
    ///     begin_phy_offset: Seed: the end offset of the previous file; 0: none.
    ///     access: "auto", "mmap" or "pread".
    ///     compat: A broker release whose answers are wanted bit for bit. The bytes written are the same.
    ///     prepared: A prepared file of the same directory, geometry and access: it gets this name and these seeds. If it
    ///         does not match, it is ignored and a new file is created.
    ///
    /// Raises:
    ///     FileExistsError: The file exists.
    ///     LockedError: A broker runs on the store that the directory belongs to.
    ///     OSError: The disk is full, or another I/O error; no file is left.
    ///     ValueError: A geometry that no broker can open.
    ///
    /// Source: the constructor of `IndexFile`.
    #[staticmethod]
    #[pyo3(signature = (path, *, hash_slots=5_000_000, max_entries=20_000_000, begin_timestamp=None, begin_phy_offset=0, access="auto", compat=None, prepared=None))]
    #[pyo3(
        text_signature = "(path, *, hash_slots=5000000, max_entries=20000000, begin_timestamp=0, begin_phy_offset=0, access='auto', compat=None, prepared=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn create(
        py: Python<'_>,
        #[pyo3(from_py_with = location::local_path)] path: PathBuf,
        #[pyo3(from_py_with = integer::hash_slots)] hash_slots: i64,
        #[pyo3(from_py_with = integer::max_entries)] max_entries: i64,
        begin_timestamp: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = integer::begin_phy_offset)] begin_phy_offset: i64,
        access: &str,
        compat: Option<&str>,
        prepared: Option<&Bound<'_, PyPreparedFile>>,
    ) -> PyResult<Self> {
        let options = CreateOptions {
            geometry: convert::geometry(hash_slots, max_entries)?,
            begin_timestamp: begin_timestamp.map_or(Ok(0), |t| time::time_ms(t, Round::Down, "begin_timestamp"))?,
            begin_phy_offset,
            access: convert::access(access)?,
            answers: answers(compat)?,
        };
        py.detach(|| refuse_running_broker(&path))?;
        let ready = match prepared {
            Some(prepared) => prepared.get().publish(py, &path, options)?,
            None => None,
        };
        let file = ready.map_or_else(|| py.detach(|| IndexFile::create(&path, options)), Ok)?;
        Ok(Self::new(file, access, compat))
    }

    /// Open a file for reading ("r") or for puts as well ("r+").
    ///
    /// Reading changes no byte. Opening for puts takes the file's lock, reserves missing disk space and, unless in compat,
    /// repairs what a crash left: whole entries that were not counted or linked.
    ///
    /// Args:
    ///     path: The file.
    ///     mode: "r" or "r+".
    ///     hash_slots: S. If neither it nor `max_entries` is given, both are inferred from the content.
    ///     max_entries: N.
    ///     access: "auto", "mmap" or "pread".
    ///     compat: A broker release whose answers are wanted bit for bit.
    ///     last_exit_ok: False after a crash of the machine: the slots are rebuilt from the entries, up to the first
    ///         impossible one; with "r" in memory only.
    ///     storage_options: Options of the store of a URL, by the names of the object_store crate.
    ///
    /// Raises:
    ///     GeometryError: The geometry is not given, and none or several match the content.
    ///     CorruptFileError: "r+" on a file that is shorter than its geometry, or whose count is above it.
    ///     BlockingIOError: "r+" while another writer has the file.
    ///     LockedError: "r+" while a broker runs on the store.
    ///     OSError: An I/O error.
    #[staticmethod]
    #[pyo3(signature = (path, *, mode="r", hash_slots=None, max_entries=None, access="auto", compat=None, last_exit_ok=true, storage_options=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn open(
        py: Python<'_>,
        path: Location,
        mode: &str,
        #[pyo3(from_py_with = integer::hash_slots)] hash_slots: Option<i64>,
        #[pyo3(from_py_with = integer::max_entries)] max_entries: Option<i64>,
        access: &str,
        compat: Option<&str>,
        last_exit_ok: bool,
        storage_options: Option<BTreeMap<String, String>>,
    ) -> PyResult<Self> {
        let path = location::located(path, storage_options);
        let options = OpenOptions {
            write: convert::write_mode(mode)?,
            geometry: convert::wanted_geometry(hash_slots, max_entries)?,
            access: convert::access(access)?,
            answers: answers(compat)?,
            last_exit_ok,
        };
        let open = || {
            if options.write {
                refuse_running_broker(&path)?;
            }
            IndexFile::open(&path, options)
        };
        Ok(Self::new(py.detach(open)?, access, compat))
    }

    /// Open an index file that is in memory, for reading.
    ///
    /// Args:
    ///     data: The bytes of the file, which are copied.
    ///     name: Its name, for messages and findings.
    ///     hash_slots: As for `open`.
    ///     max_entries: As for `open`.
    ///     compat: As for `open`.
    ///
    /// Raises:
    ///     GeometryError: As for `open`.
    ///     CorruptFileError: As for `open`.
    #[staticmethod]
    #[pyo3(signature = (data, *, name="00000000000000000", hash_slots=None, max_entries=None, compat=None))]
    fn from_bytes(
        py: Python<'_>,
        data: &[u8],
        name: &str,
        #[pyo3(from_py_with = integer::hash_slots)] hash_slots: Option<i64>,
        #[pyo3(from_py_with = integer::max_entries)] max_entries: Option<i64>,
        compat: Option<&str>,
    ) -> PyResult<Self> {
        let path = location::in_memory(name, data)?;
        Self::open(py, path, "r", hash_slots, max_entries, "auto", compat, true, None)
    }

    /// Put one key.
    ///
    /// Args:
    ///     key: The whole index key, `topic#key`.
    ///     phy_offset: Where the message begins in the commit log.
    ///     store_timestamp: The store time, in ms or as a datetime.
    ///
    /// Returns:
    ///     False if the file is full; then nothing is changed.
    ///
    /// Source: `IndexFile#putKey`.
    fn put_key(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = integer::phy_offset)] phy_offset: i64,
        store_timestamp: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let time = time::time_ms(store_timestamp, Round::Down, "store_timestamp")?;
        let (file, hash) = (self.inner()?, keys::key_hash(key)?);
        // One put takes less time than releasing the interpreter lock, but a batch of another thread may take seconds.
        match file.try_put_hash(hash, phy_offset, time)? {
            Some(put) => Ok(put),
            None => Ok(py.detach(|| file.put_hash(hash, phy_offset, time))?),
        }
    }

    /// Put a batch of keys.
    ///
    /// Args:
    ///     keys: Whole index keys, or keys where `topics` is given: an Arrow column or a sequence.
    ///     phy_offsets: Commit-log offsets, as many.
    ///     store_timestamps: Store times, as many: integers in ms, timestamps or datetimes.
    ///     topics: One topic for all keys, or a column of them.
    ///     start: The first row to put.
    ///     threads: Number of threads; the bytes are the same. Useful from tens of thousands of rows on. Readers see up to 8,192
    ///         puts at once, or up to 32 with one thread. A killed process leaves at most as many puts without links;
    ///         opening for puts repairs them. If a thread cannot be started, the other threads do its work.
    ///
    /// Returns:
    ///     Rows put, counted from `start`; fewer than given only if the file became full.
    ///
    /// Raises:
    ///     ValueError: A null, columns of different lengths, or a bad number of threads; then nothing is put.
    #[pyo3(signature = (keys, phy_offsets, store_timestamps, *, topics=None, start=0, threads=1))]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn put_batch(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        phy_offsets: &Bound<'_, PyAny>,
        store_timestamps: &Bound<'_, PyAny>,
        topics: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = integer::start)] start: i64,
        #[pyo3(from_py_with = integer::threads)] threads: i64,
    ) -> PyResult<usize> {
        let start =
            usize::try_from(start).map_err(|_| PyValueError::new_err(format!("start={start}: expected 0 or more")))?;
        let threads = usize::try_from(threads)
            .ok()
            .filter(|threads| (1..=MAX_THREADS).contains(threads))
            .ok_or_else(|| PyValueError::new_err(format!("threads={threads}: expected 1 to {MAX_THREADS}")))?;
        let file = self.inner()?;
        let keys = keys::keys(keys, topics)?;
        if let Some(row) = keys.first_null() {
            return Err(PyValueError::new_err(format!("row {row} has no key; no row was put")));
        }
        let phy_offsets = convert::int64_column(phy_offsets, "phy_offsets")?;
        let times = time::time_column(store_timestamps, "store_timestamps")?;
        let columns = PutColumns {
            keys: &keys,
            phy_offsets: convert::values(&phy_offsets, "phy_offset")?,
            store_timestamps: convert::values(&times, "store_timestamp")?,
        };
        Ok(py.detach(|| file.put_batch_threads(&columns, start, threads))?)
    }

    /// Return the commit-log offsets of the candidates of one key, newest first.
    ///
    /// Only a hash of the key is stored: a candidate may belong to another key.
    ///
    /// Args:
    ///     key: The whole index key, `topic#key`.
    ///     max_num: The most hits; `None`: all.
    ///     begin: First store time, inclusive. By default no message stored inside the range is missed, although the file
    ///         stores whole seconds; in compat the broker's rule holds.
    ///     end: Last store time, inclusive.
    ///
    /// Source: `IndexFile#selectPhyOffset`.
    #[pyo3(signature = (key, max_num=None, begin=None, end=None))]
    fn select_phy_offset<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = integer::max_num)] max_num: Option<i64>,
        begin: Option<&Bound<'py, PyAny>>,
        end: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let file = self.inner()?;
        let range = time::time_range(begin, end)?;
        let (hash, most) = (keys::key_hash(key)?, most_hits(&file, max_num)?);
        if let Some(hits) = file.select_short(hash, most, range)? {
            return PyList::new(py, hits);
        }
        let (hits, damage) = py.detach(|| file.select(hash, most, range))?;
        warn_damage(py, damage.map(|damage| (file.path().to_owned(), damage)))?;
        PyList::new(py, hits)
    }

    /// Find the candidates of each key of a batch: like `select_phy_offset` for each key, but many times faster, because tens
    /// of keys are looked up at a time.
    ///
    /// Args:
    ///     keys: Whole index keys, or keys where `topics` is given: an Arrow column or a sequence.
    ///     topics: One topic for all keys, or a column of them.
    ///     max_num: The most hits per key; `None`: all.
    ///     begin: First store time, inclusive.
    ///     end: Last store time, inclusive.
    ///
    /// Returns:
    ///     list<int64>, one row per key, newest first; null where the key is null.
    #[pyo3(signature = (keys, *, topics=None, max_num=None, begin=None, end=None))]
    fn select_batch(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        topics: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = integer::max_num)] max_num: Option<i64>,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<ArrowArray> {
        let file = self.inner()?;
        let keys = keys::keys(keys, topics)?;
        let range = time::time_range(begin, end)?;
        let max_num = most_hits(&file, max_num)?;
        let (answer, damage) = py.detach(|| {
            keys::select(&keys, |asked, hits| {
                let damage = file.select_batch(asked, 0..asked.len(), max_num, range, hits)?;
                Ok(damage.map(|damage| (file.path().to_owned(), damage)))
            })
        })?;
        warn_damage(py, damage)?;
        Ok(answer)
    }

    /// Return whether the file can hold messages stored from `begin` to `end`, by its header.
    ///
    /// By default false only if the range misses the header's times by more than `clock_slack_ms`; in compat the broker's
    /// own test. Source: `IndexFile#isTimeMatched`.
    #[pyo3(signature = (begin, end, clock_slack_ms=3_600_000))]
    fn is_time_matched(
        &self,
        py: Python<'_>,
        begin: &Bound<'_, PyAny>,
        end: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = integer::clock_slack_ms)] clock_slack_ms: i64,
    ) -> PyResult<bool> {
        let range = TimeRange {
            begin_ms: time::time_ms(begin, Round::Up, "begin")?,
            end_ms: time::time_ms(end, Round::Down, "end")?,
        };
        let file = self.inner()?;
        Ok(location::waiting(py, file.path(), || file.is_time_matched(range, clock_slack_ms))?)
    }

    /// The current header.
    #[getter]
    fn header(&self, py: Python<'_>) -> PyResult<PyIndexHeader> {
        let file = self.inner()?;
        Ok(location::waiting(py, file.path(), || file.header())?.into())
    }

    /// S, the number of slots.
    #[getter]
    fn hash_slots(&self) -> PyResult<u32> {
        Ok(self.inner()?.geometry().hash_slots())
    }

    /// N; the file holds N - 1 entries.
    #[getter]
    fn max_entries(&self) -> PyResult<u32> {
        Ok(self.inner()?.geometry().max_entries())
    }

    /// The path of the file.
    #[getter]
    fn path(&self) -> Location {
        self.file.path().to_owned()
    }

    /// "r" or "r+".
    #[getter]
    fn mode(&self) -> PyResult<&'static str> {
        Ok(if self.inner()?.is_writable() { "r+" } else { "r" })
    }

    /// The way to read the bytes: "mmap" or "pread".
    #[getter]
    fn access(&self) -> PyResult<&'static str> {
        Ok(if self.inner()?.is_mapped() { "mmap" } else { "pread" })
    }

    /// True after `close`.
    #[getter]
    fn closed(&self) -> bool {
        self.file.is_closed()
    }

    /// True if no further entry can be put.
    #[getter]
    fn is_full(&self, py: Python<'_>) -> PyResult<bool> {
        let file = self.inner()?;
        Ok(location::waiting(py, file.path(), || file.is_full())?)
    }

    /// Disk space reserved for puts, in bytes; 0 for a reader.
    #[getter]
    fn reserved_bytes(&self) -> PyResult<u64> {
        Ok(self.inner()?.reserved_bytes())
    }

    /// The number of entries.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let file = self.inner()?;
        Ok(location::waiting(py, file.path(), || file.len())? as usize)
    }

    /// Return all entries in the order of their positions.
    ///
    /// Returns:
    ///     An Arrow stream: position i32, hash_slot i32, key_hash i32, phy_offset i64, store_timestamp timestamp[ms,
    ///     UTC] (whole seconds, except for the first entry), prev_index i32.
    #[pyo3(signature = (batch_size=65_536))]
    fn entries<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = integer::batch_size)] batch_size: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let file = self.inner()?;
        let limit = u32_of(convert::batch_size(batch_size)?).min(MOST_ENTRIES);
        PyRecordBatchReader::new(hash_index::entry_batches(file, limit)).into_arro3(py)
    }

    /// Check the whole file for impossible content. Linear; never raises for findings.
    ///
    /// Kinds of findings: docs/findings.md.
    fn verify(&self, py: Python<'_>) -> PyResult<Report> {
        self.file.call(py, IndexFile::verify)
    }

    /// Write the whole file to disk and wait for it. Source: `IndexFile#flush`.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.file.call(py, IndexFile::flush)
    }

    /// Close the handle. A call in another thread ends first. A second call does nothing.
    pub(super) fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.file.close()));
    }

    fn __enter__(slf: Py<Self>) -> PyResult<Py<Self>> {
        slf.get().inner()?;
        Ok(slf)
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let path = self.file.path().display().to_string();
        match self.inner() {
            Ok(file) => format!(
                "IndexFile({path:?}, mode={:?}, hash_slots={}, max_entries={}, entries={})",
                if file.is_writable() { "r+" } else { "r" },
                file.geometry().hash_slots(),
                file.geometry().max_entries(),
                location::waiting(py, file.path(), || file.len()).map_or_else(|e| e.to_string(), |n| n.to_string()),
            ),
            Err(_) => format!("IndexFile({path:?}, closed)"),
        }
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let file = self.inner()?;
        let open = py.import("logdex._core")?.getattr("_open_index_file")?;
        let arguments = (
            self.path(),
            file.geometry().hash_slots(),
            file.geometry().max_entries(),
            &self.access,
            &self.compat,
            file.last_exit_ok(),
        );
        Ok((open, arguments.into_pyobject(py)?))
    }
}

/// Open a pickled `IndexFile`.
#[pyfunction]
fn _open_index_file(
    py: Python<'_>,
    path: Location,
    hash_slots: i64,
    max_entries: i64,
    access: &str,
    compat: Option<&str>,
    last_exit_ok: bool,
) -> PyResult<PyIndexFile> {
    PyIndexFile::open(py, path, "r", Some(hash_slots), Some(max_entries), access, compat, last_exit_ok, None)
}

/// A handle is shared between threads.
const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<PyIndexFile>();
};

/// The 40-byte header of an index file, as it was when it was read.
#[pyclass(name = "IndexHeader", module = "logdex.rocketmq", frozen, eq, hash, get_all)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct PyIndexHeader {
    /// Store time of the first entry in milliseconds; before it the seed, or 0.
    begin_timestamp: i64,
    /// Store time of the last entry put in milliseconds; before it the seed, or 0.
    end_timestamp: i64,
    /// Commit-log offset of the first entry; before it the seed, or 0.
    begin_phy_offset: i64,
    /// Commit-log offset of the last entry put; before it the seed, or 0.
    end_phy_offset: i64,
    /// Puts that found their slot empty. For information only: brokers up to 4.7.0 count every put.
    hash_slot_count: i32,
    /// Position of the next entry: entries + 1; 0 on disk before the first put or flush.
    index_count: i32,
}

#[pymethods]
impl PyIndexHeader {
    /// Return the fields as a table, for a notebook.
    fn _repr_html_(&self) -> String {
        let times = [self.begin_timestamp, self.end_timestamp].map(|time| TimeText(time).to_string());
        let numbers = [self.begin_phy_offset, self.end_phy_offset].map(|offset| offset.to_string());
        let counts = [self.hash_slot_count, self.index_count].map(|count| count.to_string());
        let names = ["begin", "end", "begin_phy_offset", "end_phy_offset", "hash_slot_count", "index_count"];
        let values = times.into_iter().chain(numbers).chain(counts);
        let rows = names.iter().zip(values).map(|(name, value)| format!("<tr><th>{name}</th><td>{value}</td></tr>"));
        format!("<table>{}</table>", rows.collect::<String>())
    }

    fn __repr__(&self) -> String {
        format!(
            "IndexHeader(begin_timestamp={}, end_timestamp={}, begin_phy_offset={}, end_phy_offset={}, \
             hash_slot_count={}, index_count={})",
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_phy_offset,
            self.end_phy_offset,
            self.hash_slot_count,
            self.index_count
        )
    }
}

impl From<Header> for PyIndexHeader {
    fn from(h: Header) -> Self {
        Self {
            begin_timestamp: h.begin_timestamp,
            end_timestamp: h.end_timestamp,
            begin_phy_offset: h.begin_phy_offset,
            end_phy_offset: h.end_phy_offset,
            hash_slot_count: h.hash_slot_count,
            index_count: h.index_count.max(1), // IndexHeader#load
        }
    }
}

/// The next index file of a directory: a thread creates it without a name, extends it and brings it into memory.
///
/// It becomes a file of the directory when it is passed to `IndexFile.create`. Until then no other process can open it, and
/// `close` or the end of the process removes it. If the system has no files without a name, nothing is prepared. It does not
/// pickle, and a forked process cannot use it.
#[pyclass(name = "PreparedFile", module = "logdex._core", frozen)]
pub(super) struct PyPreparedFile {
    prepared: Mutex<Option<Prepared>>,
}

impl PyPreparedFile {
    pub(super) fn publish(&self, py: Python<'_>, path: &Path, options: CreateOptions) -> PyResult<Option<IndexFile>> {
        let publish = || match &mut *lock(&self.prepared) {
            Some(prepared) => prepared.publish(path, options),
            None => Ok(None),
        };
        Ok(py.detach(publish)?)
    }
}

#[pymethods]
impl PyPreparedFile {
    /// Start to prepare a file. If no thread can be started or the thread fails, `IndexFile.create` creates the file itself.
    ///
    /// Args:
    ///     directory: The directory of the file.
    ///     hash_slots: S, the number of slots.
    ///     max_entries: N; the file holds N - 1 entries.
    ///     access: "auto", "mmap" or "pread".
    ///
    /// Raises:
    ///     ValueError: A geometry that no broker can open.
    #[staticmethod]
    #[pyo3(signature = (directory, *, hash_slots, max_entries, access="auto"))]
    fn start(directory: PathBuf, hash_slots: i64, max_entries: i64, access: &str) -> PyResult<Self> {
        let geometry = convert::geometry(hash_slots, max_entries)?;
        let prepared = Prepared::start(&directory, geometry, convert::access(access)?);
        Ok(Self { prepared: Mutex::new(Some(prepared)) })
    }

    /// Discard a file that is not published: the thread ends, and the disk space is free again.
    fn close(&self, py: Python<'_>) {
        let close = || lock(&self.prepared).take();
        py.detach(|| drop(close()));
    }
}

/// Position, hash of the key, offset in the log, stored time difference in s, position of the next older entry.
type Link = (u32, i32, i64, i32, i32);

/// Slot, position of its newest entry, links, number of entries, and what ends the chain early.
type Chain = (u32, i32, Vec<Link>, u32, Option<String>);

/// Follow the chain of a hash in an index file, as the bytes have it.
///
/// Args:
///     file: The index file.
///     key_hash: Hash of the index key.
///     max_links: The most entries to return.
///
/// Returns:
///     The slot; the position of its newest entry, as stored; a tuple for each entry, newest first: position, hash of the
///     key, offset in the log, time difference in s, position of the next older entry; the number of entries; and what ends
///     the chain before its last entry, or None.
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
fn read_chain(py: Python<'_>, file: &PyIndexFile, key_hash: i32, max_links: usize) -> PyResult<Chain> {
    let file = file.inner()?;
    let chain = py.detach(|| file.chain(key_hash, max_links))?;
    let links = chain.links.into_iter();
    let links = links.map(|(at, entry)| (at, entry.key_hash, entry.phy_offset, entry.time_diff, entry.prev_index));
    Ok((chain.slot, chain.slot_value, links.collect(), chain.length, chain.broken_by))
}

/// Slots by the length of their chain, entries by region, begin and entries of each time bucket, number of different hashes.
type Statistics = (BTreeMap<u32, u64>, Vec<u64>, Vec<(i64, u64)>, u64);

/// Bytes of an entry, for the progress.
const ENTRY_LEN: u64 = 20;

/// Count the entries of index files. Linear; needs 4 bytes of memory for each slot and entry of a file.
///
/// Args:
///     files: The index files.
///     time_buckets: The most buckets of equal length over the store times of all files.
///     regions: Number of equal parts of the slots.
///     progress: Called after each file with the finished bytes, and the total.
///
/// Returns:
///     A dict: chain length (0: empty) to number of slots; a list: entries in each region of the slots; a list: begin in ms and
///     entries of each time bucket, up to the last one that has any; the number of different key hashes of each file, added up.
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
#[pyo3(signature = (files, *, time_buckets, regions, progress=None))]
#[expect(clippy::needless_pass_by_value, reason = "arguments from Python are owned")]
fn chain_statistics(
    py: Python<'_>,
    files: Vec<Py<PyIndexFile>>,
    time_buckets: u32,
    regions: u32,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Statistics> {
    let files = files.iter().map(|file| file.get().inner()).collect::<PyResult<Vec<_>>>()?;
    let buckets = py.detach(|| Buckets::over(&files, time_buckets, regions))?;
    let mut total = ChainStatistics { regions: vec![0; regions as usize], ..ChainStatistics::default() };
    let lengths = files.iter().map(|file| Ok(u64::from(file.len()?))).collect::<PyResult<Vec<_>>>()?;
    let mut entries = 0;
    for (file, length) in files.iter().zip(&lengths) {
        total.add(&py.detach(|| file.chain_statistics(buckets))?);
        entries += length;
        if let Some(progress) = progress {
            progress.call1((entries * ENTRY_LEN, lengths.iter().sum::<u64>() * ENTRY_LEN))?;
        }
    }
    let begins = (0..).map(|number| buckets.begin_ms.saturating_add(number * buckets.width_ms));
    Ok((total.chains, total.regions, begins.zip(total.times).collect(), total.distinct_hashes))
}
