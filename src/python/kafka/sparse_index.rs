//! `OffsetIndex` and `TimeIndex`: the handle of an index, and the methods of both classes and of each.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, TryLockError};

use arrow_array::{
    Array, ArrayRef, Int32Array, Int64Array, RecordBatch, RecordBatchIterator, StructArray, TimestampMillisecondArray,
};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3_arrow::{PyArray, PyRecordBatchReader};

use super::super::time::{self, Round};
use super::super::{convert, integer, location};
use super::arguments;
use crate::error::{Error, Result};
use crate::io::fork::Generation;
use crate::io::{Location, usize_of};
use crate::kafka::{
    Check, IndexOptions, OffsetEntry, OffsetIndex, Segment, SegmentOptions, SparseIndex, TimeEntry, TimeIndex,
    VerifiableIndex, verify_index,
};
use crate::report::Report;

register! { class PyOffsetIndex, PyTimeIndex; fn _open_offset_index, _open_time_index }

/// An index with a class in Python.
pub(super) trait PyIndex: VerifiableIndex {
    /// An entry in Python.
    type Pair;

    /// Name of the class.
    const CLASS: &'static str;
    /// Name of the function that unpickling calls.
    const OPEN_AGAIN: &'static str;

    /// The last entry of the first `rank` entries that agrees with the log.
    fn entry_before(log: &Segment, rank: usize) -> Result<Self::Entry>;

    fn pair(entry: Self::Entry) -> Self::Pair;

    /// Entries as two columns.
    fn columns(entries: &[Self::Entry]) -> [(&'static str, ArrayRef); 2];
}

/// An open index, and the log that its entries are checked against.
struct Open<I> {
    index: I,
    log: Option<Arc<Segment>>,
}

impl<I: PyIndex> Open<I> {
    /// The entry of a rank.
    fn entry_before(&self, rank: usize) -> Result<I::Entry> {
        match &self.log {
            Some(log) => I::entry_before(log, rank),
            None => Ok(self.index.entry_of_rank(rank)),
        }
    }

    fn lookup(&self, target: i64) -> Result<I::Entry> {
        self.entry_before(self.index.rank(target))
    }

    fn lookup_batch(&self, targets: &[i64]) -> Result<Vec<I::Entry>> {
        let ranks = self.index.ranks(targets);
        ranks.into_iter().map(|rank| self.entry_before(usize_of(rank))).collect()
    }
}

/// A call that opens an index again.
pub(super) type Reduced<'py> = (Bound<'py, PyAny>, (Location, &'static str, String, Option<String>, Option<i64>));

/// The state of an object of Python.
pub(super) struct Handle<I> {
    open: RwLock<Option<Open<I>>>,
    path: Location,
    check: Check,
    access: String,
    compat: Option<String>,
    /// The argument of the caller; `None`: taken from the file's name.
    base_offset: Option<i64>,
    write: bool,
    process: Generation,
}

impl<I: PyIndex> Handle<I> {
    pub(super) fn open(
        py: Python<'_>,
        path: Location,
        mode: &str,
        check: &str,
        access: &str,
        compat: Option<&str>,
        base_offset: Option<i64>,
    ) -> PyResult<Self> {
        let write = convert::write_mode(mode)?;
        let check = arguments::check(check)?;
        convert::access(access)?;
        // All releases read an index alike.
        arguments::compat(compat)?;
        let open = py.detach(|| {
            // A base offset that the caller gave may not be that of the log.
            let verified = check == Check::Verify && !write && base_offset.is_none();
            let log = if verified { log_beside(&path, I::SUFFIX)?.map(Arc::new) } else { None };
            let log_len = log.as_ref().map(|log| log.len());
            let options = IndexOptions { write, check, base_offset, log_len };
            I::open(&path, &options).map(|index| Open { index, log })
        })?;
        Ok(Self {
            open: RwLock::new(Some(open)),
            path,
            check,
            access: access.to_owned(),
            compat: compat.map(str::to_owned),
            base_offset,
            write,
            process: Generation::current(),
        })
    }

    pub(super) fn create(
        py: Python<'_>,
        path: Location,
        base_offset: i64,
        max_bytes: i64,
        compat: Option<&str>,
    ) -> PyResult<Self> {
        arguments::compat(compat)?;
        let max = arguments::size(max_bytes, "max_bytes")?;
        let index = py.detach(|| I::create(&path, base_offset, max))?;
        Ok(Self {
            open: RwLock::new(Some(Open { index, log: None })),
            path,
            check: Check::Trust,
            access: "auto".to_owned(),
            compat: compat.map(str::to_owned),
            base_offset: Some(base_offset),
            write: true,
            process: Generation::current(),
        })
    }

    /// Calls `read` with the open index, without the interpreter lock: another thread may hold the index's lock while it waits
    /// for the disk.
    fn with_open<T: Send>(&self, py: Python<'_>, read: impl FnOnce(&Open<I>) -> Result<T> + Send) -> PyResult<T> {
        Ok(py.detach(|| read(self.guard()?.as_ref().ok_or_else(|| self.is_closed())?))?)
    }

    /// Calls `read` with the open index. `read` takes less time than releasing the interpreter lock.
    pub(super) fn with<T: Send>(&self, py: Python<'_>, read: impl FnOnce(&I) -> T + Send) -> PyResult<T> {
        match self.open.try_read() {
            Ok(open) => Ok(read(&open.as_ref().ok_or_else(|| self.is_closed())?.index)),
            Err(_) => self.with_open(py, |open| Ok(read(&open.index))),
        }
    }

    /// Calls `write` with the open index, without the interpreter lock.
    pub(super) fn with_mut<T: Send>(
        &self,
        py: Python<'_>,
        write: impl FnOnce(&mut I) -> Result<T> + Send,
    ) -> PyResult<T> {
        // Converting the error to an exception needs the interpreter lock, so release the index's lock first.
        Ok(py.detach(|| {
            if self.write {
                self.process.check_writer(&self.path)?;
            }
            let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
            write(&mut open.as_mut().ok_or_else(|| self.is_closed())?.index)
        })?)
    }

    /// Takes the lock for reading. In a forked child it may stay locked forever by a thread of the parent.
    fn guard(&self) -> Result<RwLockReadGuard<'_, Option<Open<I>>>> {
        if self.process.is_current() {
            return Ok(self.open.read().unwrap_or_else(PoisonError::into_inner));
        }
        match self.open.try_read() {
            Ok(open) => Ok(open),
            Err(TryLockError::Poisoned(open)) => Ok(open.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Error::InvalidArgument(format!(
                "{}: it was changed when the process was forked: open it again in the forked one",
                self.path.display()
            ))),
        }
    }

    /// Raise `ValueError` if it is closed.
    pub(super) fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |_| ())
    }

    fn is_closed(&self) -> Error {
        Error::InvalidArgument(format!("{} is closed", self.path.display()))
    }

    pub(super) fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(py.detach(|| self.guard().map(|open| open.is_none()))?)
    }

    pub(super) fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let open = if self.process.is_current() {
                self.open.write().unwrap_or_else(PoisonError::into_inner).take()
            } else {
                // A file that a thread of the parent uses stays open until the process ends.
                self.open.try_write().ok().and_then(|mut open| open.take())
            };
            drop(open);
        });
    }

    pub(super) fn path(&self) -> Location {
        self.path.clone()
    }

    pub(super) fn mode(&self) -> &'static str {
        if self.write { "r+" } else { "r" }
    }

    pub(super) fn check(&self) -> &'static str {
        arguments::check_word(self.check)
    }

    pub(super) fn entry(&self, py: Python<'_>, n: i64) -> PyResult<I::Pair> {
        let (entry, len) =
            self.with(py, |index| (usize::try_from(n).ok().and_then(|n| index.entry(n)), index.len()))?;
        entry.map(I::pair).ok_or_else(|| {
            let path = self.path.display().to_string();
            PyIndexError::new_err(format!("{path}: no entry {n}, the index has {len} entries"))
        })
    }

    pub(super) fn lookup(&self, py: Python<'_>, target: i64) -> PyResult<I::Pair> {
        // Without a log the entries are in memory. A search takes less time than releasing the interpreter lock.
        if let Ok(open) = self.open.try_read()
            && let Some(open) = open.as_ref().filter(|open| open.log.is_none())
        {
            return Ok(I::pair(open.lookup(target)?));
        }
        self.with_open(py, |open| open.lookup(target)).map(I::pair)
    }

    /// Return a struct column; null where the target is null.
    pub(super) fn lookup_batch<'py>(&self, py: Python<'py>, targets: &Int64Array) -> PyResult<Bound<'py, PyAny>> {
        let entries = self.with_open(py, |open| open.lookup_batch(targets.values()))?;
        let (fields, columns) = columns::<I>(&entries);
        let array: ArrayRef = Arc::new(StructArray::new(fields.clone(), columns, targets.nulls().cloned()));
        let field = Arc::new(Field::new("", DataType::Struct(fields), true));
        PyArray::try_new(array, field).map_err(|e| PyValueError::new_err(e.to_string()))?.into_arro3(py)
    }

    pub(super) fn entries<'py>(&self, py: Python<'py>, batch_size: i64) -> PyResult<Bound<'py, PyAny>> {
        let rows = convert::batch_size(batch_size)?;
        let entries: Vec<I::Entry> =
            self.with_open(py, |open| Ok((0..open.index.len()).filter_map(|slot| open.index.entry(slot)).collect()))?;
        let schema = Arc::new(Schema::new(columns::<I>(&[]).0));
        let of = Arc::clone(&schema);
        let batches: Vec<std::result::Result<RecordBatch, ArrowError>> =
            entries.chunks(rows).map(|chunk| RecordBatch::try_new(Arc::clone(&of), columns::<I>(chunk).1)).collect();
        PyRecordBatchReader::new(Box::new(RecordBatchIterator::new(batches, schema))).into_arro3(py)
    }

    pub(super) fn resize(&self, py: Python<'_>, max_bytes: i64) -> PyResult<bool> {
        let max = arguments::size(max_bytes, "max_bytes")?;
        self.with_mut(py, |index| index.resize(max))
    }

    pub(super) fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.with_open(py, |open| open.index.flush())
    }

    pub(super) fn verify(&self, py: Python<'_>, log: Option<Location>) -> PyResult<Report> {
        let base_offset = self.with(py, SparseIndex::base_offset)?;
        Ok(py.detach(|| {
            let log = match log {
                Some(log) => Some(Segment::open(&log, SegmentOptions::default())?),
                None => log_beside(&self.path, I::SUFFIX)?,
            };
            let base_offset = Some(base_offset);
            let options = IndexOptions { check: Check::Trust, base_offset, ..IndexOptions::default() };
            verify_index(&I::open(&self.path, &options)?, log.as_ref())
        })?)
    }

    pub(super) fn repr(&self, py: Python<'_>) -> String {
        let path = self.path.display().to_string();
        match self.with(py, |index| (index.base_offset(), index.len())) {
            Ok((base, len)) => format!("{}({path:?}, base_offset={base}, entries={len})", I::CLASS),
            Err(_) => format!("{}({path:?}, closed)", I::CLASS),
        }
    }

    pub(super) fn reduce<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        let open = py.import("logdex._core")?.getattr(I::OPEN_AGAIN)?;
        self.check_open(py)?;
        Ok((open, (self.path.clone(), self.check(), self.access.clone(), self.compat.clone(), self.base_offset)))
    }
}

/// The segment of an index, if its log is next to it.
fn log_beside(path: &Location, suffix: &str) -> crate::error::Result<Option<Segment>> {
    let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(suffix));
    let Some(name) = name else { return Ok(None) };
    match Segment::open(path.with_file_name(format!("{name}.log")), SegmentOptions::default()) {
        Err(error) if error.is_missing() => Ok(None),
        segment => segment.map(Some),
    }
}

fn columns<I: PyIndex>(entries: &[I::Entry]) -> (Fields, Vec<ArrayRef>) {
    let columns = I::columns(entries);
    let fields = columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    (fields, columns.map(|(_, array)| array).into())
}

/// Define the class of an index: the methods of both classes, and those given in braces. Names are those of the calling module.
macro_rules! sparse_index_class {
    ($(#[$doc:meta])* $class:ident($index:ty) as $name:tt, reopened by $open_again:ident { $($own:tt)* }) => {
        $(#[$doc])*
        #[pyclass(name = $name, module = "logdex.kafka", frozen)]
        pub(super) struct $class(Handle<$index>);

        /// Open an index again when it is unpickled.
        #[pyfunction]
        fn $open_again(
            py: Python<'_>,
            path: $crate::io::Location,
            check: &str,
            access: &str,
            compat: Option<&str>,
            base_offset: Option<i64>,
        ) -> PyResult<$class> {
            $class::open(py, path, "r", check, access, compat, base_offset, None)
        }

        #[pymethods]
        impl $class {
            /// Open a file for reading ("r") or for appends as well ("r+"). Nothing is created.
            ///
            /// Args:
            ///     path: The file.
            ///     mode: "r" or "r+".
            ///     check: "verify" or "trust".
            ///     access: "auto", "mmap" or "pread"; the entries are always copied by `pread` when the file is opened.
            ///     compat: A release, or None.
            ///     base_offset: What entries are relative to; by default from the file's name.
            ///     storage_options: Options of the store of a URL, by the names of the object_store crate.
            ///
            /// Raises:
            ///     LockedError: "r+" while another writer has the file open.
            ///     OSError: The file cannot be opened.
            ///     ValueError: The name has no base offset, and none is given.
            #[staticmethod]
            #[pyo3(signature = (path, *, mode="r", check="verify", access="auto", compat=None, base_offset=None, storage_options=None))]
            #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
            fn open(
                py: Python<'_>,
                path: $crate::io::Location,
                mode: &str,
                check: &str,
                access: &str,
                compat: Option<&str>,
                #[pyo3(from_py_with = integer::base_offset)] base_offset: Option<i64>,
                storage_options: Option<std::collections::BTreeMap<String, String>>,
            ) -> PyResult<Self> {
                let path = location::located(path, storage_options);
                Handle::open(py, path, mode, check, access, compat, base_offset)
                    .map(Self)
            }

            /// Create a file of as many whole entries as fit in `max_bytes`, and open it for appends.
            ///
            /// Raises:
            ///     FileExistsError: The file exists.
            ///     OSError: The file cannot be created.
            ///     ValueError: `max_bytes` is less than one entry.
            #[staticmethod]
            #[pyo3(signature = (path, base_offset, max_bytes=10_485_760, *, compat=None))]
            fn create(
                py: Python<'_>,
                #[pyo3(from_py_with = location::local_path)] path: PathBuf,
                #[pyo3(from_py_with = integer::base_offset)] base_offset: i64,
                #[pyo3(from_py_with = integer::max_bytes)] max_bytes: i64,
                compat: Option<&str>,
            ) -> PyResult<Self> {
                Handle::create(py, path.into(), base_offset, max_bytes, compat).map(Self)
            }

            /// The file.
            #[getter]
            fn path(&self) -> $crate::io::Location {
                self.0.path()
            }

            /// Offset that entries are relative to.
            #[getter]
            fn base_offset(&self, py: Python<'_>) -> PyResult<i64> {
                self.0.with(py, SparseIndex::base_offset)
            }

            /// "r" or "r+".
            #[getter]
            fn mode(&self) -> &'static str {
                self.0.mode()
            }

            /// "verify" or "trust".
            #[getter]
            fn check(&self) -> &'static str {
                self.0.check()
            }

            /// Length of the file in bytes.
            #[getter]
            fn file_len(&self, py: Python<'_>) -> PyResult<u64> {
                self.0.with(py, SparseIndex::file_len)
            }

            /// Number of entries that fit in the file.
            #[getter]
            fn max_entries(&self, py: Python<'_>) -> PyResult<u64> {
                self.0.with(py, SparseIndex::max_entries)
            }

            /// True when no entry can be added. A time index reserves one slot for the last entry of its segment.
            ///
            /// Source: `AbstractIndex#isFull`, `TimeIndex#isFull`.
            #[getter]
            fn is_full(&self, py: Python<'_>) -> PyResult<bool> {
                self.0.with(py, SparseIndex::is_full)
            }

            /// True after `close`.
            #[getter]
            fn closed(&self, py: Python<'_>) -> PyResult<bool> {
                self.0.closed(py)
            }

            fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
                self.0.with(py, SparseIndex::len)
            }

            /// Return the entry of a slot, as `lookup` does.
            ///
            /// Raises:
            ///     IndexError: There is no such slot.
            fn entry(
                &self,
                py: Python<'_>,
                #[pyo3(from_py_with = integer::n)] n: i64,
            ) -> PyResult<<$index as PyIndex>::Pair> {
                self.0.entry(py, n)
            }

            /// Return all entries as record batches of two columns.
            #[pyo3(signature = (batch_size=65_536))]
            fn entries<'py>(
                &self,
                py: Python<'py>,
                #[pyo3(from_py_with = integer::batch_size)] batch_size: i64,
            ) -> PyResult<Bound<'py, PyAny>> {
                self.0.entries(py, batch_size)
            }

            /// Drop entries at or above an offset. Their bytes stay in the file until it is trimmed or they are overwritten.
            ///
            /// Source: `OffsetIndex#truncateTo`, `TimeIndex#truncateTo`.
            fn truncate_to(
                &self,
                py: Python<'_>,
                #[pyo3(from_py_with = integer::offset)] offset: i64,
            ) -> PyResult<()> {
                self.0.with_mut(py, |index| SparseIndex::truncate_to(index, offset))
            }

            /// Resize the file to as many whole entries as fit in `max_bytes`; False if it has that size already.
            ///
            /// Raises:
            ///     ValueError: The new file would be too small for the entries.
            ///
            /// Source: `AbstractIndex#resize`.
            fn resize(
                &self,
                py: Python<'_>,
                #[pyo3(from_py_with = integer::max_bytes)] max_bytes: i64,
            ) -> PyResult<bool> {
                self.0.resize(py, max_bytes)
            }

            /// Truncate the file after the last entry. Source: `AbstractIndex#trimToValidSize`.
            fn trim(&self, py: Python<'_>) -> PyResult<()> {
                self.0.with_mut(py, SparseIndex::trim)
            }

            /// Check the entries in use as the broker does; for the broker's own answer open with check "trust".
            ///
            /// Raises:
            ///     CorruptFileError: The last offset is below the base offset, the last timestamp below the first one, or the
            ///         file does not end with a whole entry.
            ///
            /// Source: `OffsetIndex#sanityCheck`, `TimeIndex#sanityCheck`.
            fn sanity_check(&self, py: Python<'_>) -> PyResult<()> {
                Ok(self.0.with(py, SparseIndex::sanity_check)??)
            }

            /// Check every entry, and compare it with the log next to the index or the given one. Findings are never raised.
            #[pyo3(signature = (log=None))]
            fn verify(&self, py: Python<'_>, log: Option<$crate::io::Location>) -> PyResult<$crate::report::Report> {
                self.0.verify(py, log)
            }

            /// Wait until appended entries are on the disk.
            fn flush(&self, py: Python<'_>) -> PyResult<()> {
                self.0.flush(py)
            }

            /// Close the handle without trimming. May be called again.
            fn close(&self, py: Python<'_>) {
                self.0.close(py);
            }

            fn __enter__(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
                slf.get().0.check_open(py)?;
                Ok(slf)
            }

            #[pyo3(signature = (*_args))]
            fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) {
                self.close(py);
            }

            fn __repr__(&self, py: Python<'_>) -> String {
                self.0.repr(py)
            }

            fn __reduce__<'py>(
                &self,
                py: Python<'py>,
            ) -> PyResult<Reduced<'py>> {
                self.0.reduce(py)
            }

            $($own)*
        }
    };
}

impl PyIndex for OffsetIndex {
    type Pair = (i64, i32);

    const CLASS: &'static str = "OffsetIndex";
    const OPEN_AGAIN: &'static str = "_open_offset_index";

    fn entry_before(log: &Segment, rank: usize) -> Result<OffsetEntry> {
        log.offset_entry_before(rank)
    }

    fn pair(entry: OffsetEntry) -> (i64, i32) {
        (entry.offset, entry.position)
    }

    fn columns(entries: &[OffsetEntry]) -> [(&'static str, ArrayRef); 2] {
        let offsets: Int64Array = entries.iter().map(|entry| entry.offset).collect::<Vec<_>>().into();
        let positions: Int32Array = entries.iter().map(|entry| entry.position).collect::<Vec<_>>().into();
        [("offset", Arc::new(offsets)), ("position", Arc::new(positions))]
    }
}

sparse_index_class! {
    /// The offset index of a segment: from an offset to a position in the log at or before its batch.
    ///
    /// With check "verify" the longest prefix of entries that can be valid is used. If the log is next to the index, an entry
    /// is returned only if the batch that it leads to agrees with it. With "trust" the whole file is valid, as the broker
    /// takes it. The entries are read into memory when the file is opened.
    ///
    /// Source: `OffsetIndex`; docs/formats/kafka-log.md.
    PyOffsetIndex(OffsetIndex) as "OffsetIndex", reopened by _open_offset_index {
        /// Offset of the last entry; the base offset of an empty index.
        #[getter]
        fn last_offset(&self, py: Python<'_>) -> PyResult<i64> {
            self.0.with(py, OffsetIndex::last_offset)
        }

        /// Return the largest entry at or below an offset.
        ///
        /// Returns:
        ///     Offset and position; the base offset and 0 if there is none.
        ///
        /// Source: `OffsetIndex#lookup`.
        fn lookup(&self, py: Python<'_>, #[pyo3(from_py_with = integer::offset)] offset: i64) -> PyResult<(i64, i32)> {
            self.0.lookup(py, offset)
        }

        /// Call `lookup` for each offset of an Arrow column or a sequence, and return a struct column of offset and position.
        fn lookup_batch<'py>(&self, py: Python<'py>, offsets: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
            self.0.lookup_batch(py, &convert::int64_column(offsets, "offsets")?)
        }

        /// Return an entry whose offset is outside a fetch of `fetch_size` bytes from `position`; None if there is none.
        ///
        /// Source: `OffsetIndex#fetchUpperBoundOffset`, with its 32-bit sum.
        fn fetch_upper_bound_offset(
            &self,
            py: Python<'_>,
            #[pyo3(from_py_with = integer::position)] position: i32,
            #[pyo3(from_py_with = integer::fetch_size)] fetch_size: i32,
        ) -> PyResult<Option<(i64, i32)>> {
            self.0.with(py, |index| index.fetch_upper_bound(position, fetch_size).map(OffsetIndex::pair))
        }

        /// Add an entry.
        ///
        /// Raises:
        ///     IndexFullError: The file has no space for another entry.
        ///     ValueError: The offset is not above the last one, or too far from the base offset; or the file is open for
        ///         reading.
        ///
        /// Source: `OffsetIndex#append`.
        fn append(
            &self,
            py: Python<'_>,
            #[pyo3(from_py_with = integer::offset)] offset: i64,
            #[pyo3(from_py_with = integer::position)] position: i32,
        ) -> PyResult<()> {
            self.0.with_mut(py, |index| index.append(offset, position))
        }
    }
}

impl PyIndex for TimeIndex {
    type Pair = (i64, i64);

    const CLASS: &'static str = "TimeIndex";
    const OPEN_AGAIN: &'static str = "_open_time_index";

    fn entry_before(log: &Segment, rank: usize) -> Result<TimeEntry> {
        log.time_entry_before(rank)
    }

    fn pair(entry: TimeEntry) -> (i64, i64) {
        (entry.timestamp, entry.offset)
    }

    fn columns(entries: &[TimeEntry]) -> [(&'static str, ArrayRef); 2] {
        let times: TimestampMillisecondArray = entries.iter().map(|entry| entry.timestamp).collect::<Vec<_>>().into();
        let offsets: Int64Array = entries.iter().map(|entry| entry.offset).collect::<Vec<_>>().into();
        [("timestamp", Arc::new(times.with_timezone("UTC"))), ("offset", Arc::new(offsets))]
    }
}

sparse_index_class! {
    /// The time index of a segment: from a timestamp to an offset such that no later record is at or before it.
    ///
    /// With check "verify" the longest prefix of entries that can be valid is used. If the log is next to the index, an entry
    /// is returned only if the batch of its offset has its timestamp. With "trust" the whole file is valid, as the broker
    /// takes it. The entries are read into memory when the file is opened.
    ///
    /// Source: `TimeIndex`; docs/formats/kafka-log.md.
    PyTimeIndex(TimeIndex) as "TimeIndex", reopened by _open_time_index {
        /// Timestamp and offset of the last entry; -1 and the base offset of an empty index.
        #[getter]
        fn last_entry(&self, py: Python<'_>) -> PyResult<(i64, i64)> {
            self.0.with(py, |index| TimeIndex::pair(index.last_entry()))
        }

        /// Return the largest entry at or below a timestamp.
        ///
        /// Returns:
        ///     Timestamp and offset; -1 and the base offset if there is none.
        ///
        /// Source: `TimeIndex#lookup`.
        fn lookup(&self, py: Python<'_>, timestamp: &Bound<'_, PyAny>) -> PyResult<(i64, i64)> {
            self.0.lookup(py, time::time_ms(timestamp, Round::Down, "timestamp")?)
        }

        /// Call `lookup` for each time of an Arrow column or a sequence, and return a struct column of timestamp and offset.
        fn lookup_batch<'py>(&self, py: Python<'py>, timestamps: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
            self.0.lookup_batch(py, &time::time_column(timestamps, "timestamps")?)
        }

        /// Add an entry, unless the last one has its timestamp.
        ///
        /// Args:
        ///     timestamp: In ms, or a datetime.
        ///     offset: Last offset of the batch that has it.
        ///     skip_full_check: Use the slot that is reserved for the last entry of a segment.
        ///
        /// Returns:
        ///     True if it was added.
        ///
        /// Raises:
        ///     IndexFullError: The file has no space for another entry.
        ///     ValueError: The offset or the timestamp is below the last one, or the offset too far from the base offset; or
        ///         the file is open for reading.
        ///
        /// Source: `TimeIndex#maybeAppend`.
        #[pyo3(signature = (timestamp, offset, *, skip_full_check=false))]
        fn maybe_append(
            &self,
            py: Python<'_>,
            timestamp: &Bound<'_, PyAny>,
            #[pyo3(from_py_with = integer::offset)] offset: i64,
            skip_full_check: bool,
        ) -> PyResult<bool> {
            let timestamp = time::time_ms(timestamp, Round::Down, "timestamp")?;
            self.0.with_mut(py, |index| index.maybe_append(timestamp, offset, skip_full_check))
        }
    }
}
