//! `OffsetIndex`.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, Int64Array};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::super::{convert, integer};
use super::sparse_index::{Handle, Reduced, Shown};
use crate::error::Result;
use crate::kafka::{OffsetEntry, OffsetIndex, Segment, SparseIndex};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyOffsetIndex>()?;
    m.add_function(wrap_pyfunction!(_open_offset_index, m)?)
}

impl Shown for OffsetIndex {
    const CLASS: &'static str = "OffsetIndex";
    const OPEN_AGAIN: &'static str = "_open_offset_index";

    fn entry_before(log: &Segment, rank: usize) -> Result<OffsetEntry> {
        log.offset_entry_before(rank)
    }

    fn columns(entries: &[OffsetEntry]) -> [(&'static str, ArrayRef); 2] {
        let offsets: Int64Array = entries.iter().map(|entry| entry.offset).collect::<Vec<_>>().into();
        let positions: Int32Array = entries.iter().map(|entry| entry.position).collect::<Vec<_>>().into();
        [("offset", Arc::new(offsets)), ("position", Arc::new(positions))]
    }
}

fn pair(entry: OffsetEntry) -> (i64, i32) {
    (entry.offset, entry.position)
}

/// The offset index of a segment: from an offset to a position in the log at or before its batch.
///
/// With check "verify" the longest prefix of entries that can be valid is taken, and, where the log lies beside the
/// index, an entry is answered only if the batch that it leads to agrees with it. With "trust" the whole file is valid,
/// as the broker takes it. The entries are read into memory when the file is opened.
///
/// Source: `OffsetIndex`; docs/formats/kafka-log.md.
#[pyclass(name = "OffsetIndex", module = "logdex.kafka", frozen)]
pub(super) struct PyOffsetIndex(Handle<OffsetIndex>);

/// What unpickling calls.
#[pyfunction]
fn _open_offset_index(
    py: Python<'_>,
    path: PathBuf,
    check: &str,
    access: &str,
    compat: Option<&str>,
    base_offset: Option<i64>,
) -> PyResult<PyOffsetIndex> {
    PyOffsetIndex::open(py, path, "r", check, access, compat, base_offset)
}

#[pymethods]
impl PyOffsetIndex {
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

    /// True when there is no room for another entry. Source: `AbstractIndex#isFull`.
    #[getter]
    fn is_full(&self) -> PyResult<bool> {
        self.0.with(|index| Ok(index.is_full()))
    }

    /// Offset of the last entry; the base offset of an empty index.
    #[getter]
    fn last_offset(&self) -> PyResult<i64> {
        self.0.with(|index| Ok(index.last_offset()))
    }

    /// True after `close`.
    #[getter]
    fn closed(&self) -> bool {
        self.0.closed()
    }

    fn __len__(&self) -> PyResult<usize> {
        self.0.with(|index| Ok(index.len()))
    }

    /// Offset and position of the entry of a slot.
    ///
    /// Raises:
    ///     IndexError: There is no such slot.
    fn entry(&self, #[pyo3(from_py_with = integer::n)] n: i64) -> PyResult<(i64, i32)> {
        self.0.entry(n).map(pair)
    }

    /// The largest entry at or below an offset.
    ///
    /// Returns:
    ///     Offset and position; the base offset and 0 where there is none.
    ///
    /// Source: `OffsetIndex#lookup`.
    fn lookup(&self, py: Python<'_>, #[pyo3(from_py_with = integer::offset)] offset: i64) -> PyResult<(i64, i32)> {
        self.0.lookup(py, offset).map(pair)
    }

    /// `lookup` of each offset of an Arrow column or a sequence, as a struct column of offset and position.
    fn lookup_batch<'py>(&self, py: Python<'py>, offsets: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.0.lookup_batch(py, &convert::int64_column(offsets, "offsets")?)
    }

    /// An entry whose offset is outside of a fetch of `fetch_size` bytes from `position`; None: there is none.
    ///
    /// Source: `OffsetIndex#fetchUpperBoundOffset`, with its 32-bit sum.
    fn fetch_upper_bound_offset(
        &self,
        #[pyo3(from_py_with = integer::position)] position: i32,
        #[pyo3(from_py_with = integer::fetch_size)] fetch_size: i32,
    ) -> PyResult<Option<(i64, i32)>> {
        self.0.with(|index| Ok(index.fetch_upper_bound(position, fetch_size).map(pair)))
    }

    /// All entries as record batches of offset and position.
    #[pyo3(signature = (batch_size=65_536))]
    fn entries<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = integer::batch_size)] batch_size: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.0.entries(py, batch_size)
    }

    /// Add an entry.
    ///
    /// Raises:
    ///     IndexFullError: There is no room.
    ///     ValueError: The offset is not above the last one, or too far from the base; or the file is open for reading.
    ///
    /// Source: `OffsetIndex#append`.
    fn append(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::offset)] offset: i64,
        #[pyo3(from_py_with = integer::position)] position: i32,
    ) -> PyResult<()> {
        py.detach(|| self.0.with_mut(|index| index.append(offset, position)))
    }

    /// Forget entries at or above an offset; their bytes stay in the file until it is trimmed or they are overwritten.
    ///
    /// Source: `OffsetIndex#truncateTo`.
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
    ///     CorruptFileError: The last offset is below the base, or the length is none of whole entries.
    ///
    /// Source: `OffsetIndex#sanityCheck`.
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
