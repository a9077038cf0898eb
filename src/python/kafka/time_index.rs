//! `TimeIndex`.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, TimestampMillisecondArray};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::super::integer;
use super::super::time::{self, Round};
use super::sparse_index::{Handle, Reduced, Shown};
use crate::error::Result;
use crate::kafka::{Segment, SparseIndex, TimeEntry, TimeIndex};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyTimeIndex>()?;
    m.add_function(wrap_pyfunction!(_open_time_index, m)?)
}

impl Shown for TimeIndex {
    const CLASS: &'static str = "TimeIndex";
    const OPEN_AGAIN: &'static str = "_open_time_index";

    fn entry_before(log: &Segment, rank: usize) -> Result<TimeEntry> {
        log.time_entry_before(rank)
    }

    fn columns(entries: &[TimeEntry]) -> [(&'static str, ArrayRef); 2] {
        let times: TimestampMillisecondArray = entries.iter().map(|entry| entry.timestamp).collect::<Vec<_>>().into();
        let offsets: Int64Array = entries.iter().map(|entry| entry.offset).collect::<Vec<_>>().into();
        [("timestamp", Arc::new(times.with_timezone("UTC"))), ("offset", Arc::new(offsets))]
    }
}

fn pair(entry: TimeEntry) -> (i64, i64) {
    (entry.timestamp, entry.offset)
}

/// The time index of a segment: from a timestamp to an offset that no later record is at or before.
///
/// With check "verify" the longest prefix of entries that can be valid is taken, and, where the log lies beside the
/// index, an entry is answered only if the batch of its offset has its timestamp. With "trust" the whole file is valid,
/// as the broker takes it. The entries are read into memory when the file is opened.
///
/// Source: `TimeIndex`; docs/formats/kafka-log.md.
#[pyclass(name = "TimeIndex", module = "logdex.kafka", frozen)]
pub(super) struct PyTimeIndex(Handle<TimeIndex>);

/// What unpickling calls.
#[pyfunction]
fn _open_time_index(
    py: Python<'_>,
    path: PathBuf,
    check: &str,
    access: &str,
    compat: Option<&str>,
    base_offset: Option<i64>,
) -> PyResult<PyTimeIndex> {
    PyTimeIndex::open(py, path, "r", check, access, compat, base_offset)
}

#[pymethods]
impl PyTimeIndex {
    /// Open a file for reading ("r") or for appends as well ("r+"). Nothing is created.
    ///
    /// Args:
    ///     path: The file.
    ///     mode: "r" or "r+".
    ///     check: "verify" or "trust".
    ///     access: "auto", "mmap" or "pread", for the one pass at opening.
    ///     compat: A release, or None.
    ///     base_offset: What entries are relative to; by default from the name.
    ///
    /// Raises:
    ///     BlockingIOError: "r+" while another writer has the file.
    ///     OSError: The system refuses.
    ///     ValueError: The name has no base offset, and none is given.
    #[staticmethod]
    #[pyo3(signature = (path, *, mode="r", check="verify", access="auto", compat=None, base_offset=None))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        mode: &str,
        check: &str,
        access: &str,
        compat: Option<&str>,
        #[pyo3(from_py_with = integer::base_offset)] base_offset: Option<i64>,
    ) -> PyResult<Self> {
        Handle::open(py, path, mode, check, access, compat, base_offset).map(Self)
    }

    /// Create a file of as many whole entries as `max_bytes` has room for, and open it for appends.
    ///
    /// Raises:
    ///     FileExistsError: There is such a file.
    ///     OSError: The system refuses.
    ///     ValueError: There is no room for an entry.
    #[staticmethod]
    #[pyo3(signature = (path, base_offset, max_bytes=10_485_760, *, compat=None))]
    fn create(
        py: Python<'_>,
        path: PathBuf,
        #[pyo3(from_py_with = integer::base_offset)] base_offset: i64,
        #[pyo3(from_py_with = integer::max_bytes)] max_bytes: i64,
        compat: Option<&str>,
    ) -> PyResult<Self> {
        Handle::create(py, path, base_offset, max_bytes, compat).map(Self)
    }

    /// Where the file lies.
    #[getter]
    fn path(&self) -> PathBuf {
        self.0.path.clone()
    }

    /// Offset that entries are relative to.
    #[getter]
    fn base_offset(&self) -> PyResult<i64> {
        self.0.with(|index| Ok(index.base_offset()))
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
    fn file_len(&self) -> PyResult<u64> {
        self.0.with(|index| Ok(index.file_len()))
    }

    /// Entries that the file has room for.
    #[getter]
    fn max_entries(&self) -> PyResult<u64> {
        self.0.with(|index| Ok(index.max_entries()))
    }

    /// True when only the slot of the last entry of a segment is left. Source: `TimeIndex#isFull`.
    #[getter]
    fn is_full(&self) -> PyResult<bool> {
        self.0.with(|index| Ok(index.is_full()))
    }

    /// Timestamp and offset of the last entry; -1 and the base offset of an empty index.
    #[getter]
    fn last_entry(&self) -> PyResult<(i64, i64)> {
        self.0.with(|index| Ok(pair(index.last_entry())))
    }

    /// True after `close`.
    #[getter]
    fn closed(&self) -> bool {
        self.0.closed()
    }

    fn __len__(&self) -> PyResult<usize> {
        self.0.with(|index| Ok(index.len()))
    }

    /// Timestamp and offset of the entry of a slot.
    ///
    /// Raises:
    ///     IndexError: There is no such slot.
    fn entry(&self, #[pyo3(from_py_with = integer::n)] n: i64) -> PyResult<(i64, i64)> {
        self.0.entry(n).map(pair)
    }

    /// The largest entry at or below a timestamp.
    ///
    /// Returns:
    ///     Timestamp and offset; -1 and the base offset where there is none.
    ///
    /// Source: `TimeIndex#lookup`.
    fn lookup(&self, py: Python<'_>, timestamp: &Bound<'_, PyAny>) -> PyResult<(i64, i64)> {
        self.0.lookup(py, time::time_ms(timestamp, Round::Down, "timestamp")?).map(pair)
    }

    /// `lookup` of each time of an Arrow column or a sequence, as a struct column of timestamp and offset.
    fn lookup_batch<'py>(&self, py: Python<'py>, timestamps: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.0.lookup_batch(py, &time::time_column(timestamps, "timestamps")?)
    }

    /// All entries as record batches of timestamp and offset.
    #[pyo3(signature = (batch_size=65_536))]
    fn entries<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = integer::batch_size)] batch_size: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.0.entries(py, batch_size)
    }

    /// Add an entry, unless the last one has its timestamp.
    ///
    /// Args:
    ///     timestamp: In ms, or a datetime.
    ///     offset: Last offset of the batch that has it.
    ///     skip_full_check: Give away the slot that is kept for the last entry of a segment.
    ///
    /// Returns:
    ///     True when it was added.
    ///
    /// Raises:
    ///     IndexFullError: There is no room.
    ///     ValueError: The offset or the timestamp is below the last one, or the offset too far from the base; or the file
    ///         is open for reading.
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
        py.detach(|| self.0.with_mut(|index| index.maybe_append(timestamp, offset, skip_full_check)))
    }

    /// Forget entries at or above an offset; their bytes stay in the file until it is trimmed or they are overwritten.
    ///
    /// Source: `TimeIndex#truncateTo`.
    fn truncate_to(&self, #[pyo3(from_py_with = integer::offset)] offset: i64) -> PyResult<()> {
        self.0.with_mut(|index| index.truncate_to(offset))
    }

    /// Give the file room for as many whole entries as `max_bytes` holds; False when it has that already.
    ///
    /// Raises:
    ///     ValueError: Entries would be cut off.
    ///
    /// Source: `AbstractIndex#resize`.
    fn resize(&self, py: Python<'_>, #[pyo3(from_py_with = integer::max_bytes)] max_bytes: i64) -> PyResult<bool> {
        self.0.resize(py, max_bytes)
    }

    /// Cut the file behind the last entry. Source: `AbstractIndex#trimToValidSize`.
    fn trim(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.with_mut(SparseIndex::trim))
    }

    /// The broker's own check of the entries that were taken; for its own answer open with check "trust".
    ///
    /// Raises:
    ///     CorruptFileError: The last timestamp is below the first, the last offset below the base, or the length none of
    ///         whole entries.
    ///
    /// Source: `TimeIndex#sanityCheck`.
    fn sanity_check(&self) -> PyResult<()> {
        self.0.with(|index| Ok(index.sanity_check()?))
    }

    /// Look at every entry, and at the log beside the index or the one that is given. Never raises for what it finds.
    #[pyo3(signature = (log=None))]
    fn verify<'py>(&self, py: Python<'py>, log: Option<PathBuf>) -> PyResult<Bound<'py, PyAny>> {
        self.0.verify(py, log)
    }

    /// Wait until what was appended is on the disk.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.with(|index| Ok(index.flush()?)))
    }

    /// Close the handle without trimming. May be called again.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    fn __enter__(slf: Py<Self>) -> PyResult<Py<Self>> {
        slf.get().0.check_open()?;
        Ok(slf)
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        self.0.repr()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        self.0.reduce(py)
    }
}
