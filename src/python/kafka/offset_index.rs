//! `OffsetIndex`.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use arrow_array::{Array, ArrayRef, Int32Array, Int64Array, RecordBatch, RecordBatchIterator};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3_arrow::PyRecordBatchReader;

use super::super::convert;
use super::arguments::{self, check_word};
use crate::error::Result;
use crate::kafka::{Check, IndexOptions, OffsetEntry, OffsetIndex, Segment, SegmentOptions};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyOffsetIndex>()?;
    m.add_function(wrap_pyfunction!(_open_offset_index, m)?)
}

/// An open index, and the log that its entries are checked against.
struct Open {
    index: OffsetIndex,
    log: Option<Arc<Segment>>,
}

impl Open {
    fn lookup(&self, offset: i64) -> Result<OffsetEntry> {
        self.log.as_ref().map_or_else(|| Ok(self.index.lookup(offset)), |log| log.offset_entry(offset))
    }

    fn lookup_batch(&self, offsets: &Int64Array) -> Result<(Vec<i64>, Vec<i32>)> {
        let ranks = self.index.ranks(offsets.values());
        let (mut found, mut positions) = (Vec::with_capacity(ranks.len()), Vec::with_capacity(ranks.len()));
        for rank in ranks {
            let rank = usize::try_from(rank).unwrap_or(usize::MAX);
            let entry = match &self.log {
                Some(log) => log.offset_entry_before(rank)?,
                None => rank.checked_sub(1).and_then(|slot| self.index.entry(slot)).unwrap_or(self.index.front()),
            };
            found.push(entry.offset);
            positions.push(entry.position);
        }
        Ok((found, positions))
    }
}

/// The offset index of a segment: from an offset to a position in the log at or before its batch.
///
/// With check "verify" the longest prefix of entries that can be valid is taken, and, where the log lies beside the
/// index, an entry is answered only if the batch that it leads to agrees with it. With "trust" the whole file is valid,
/// as the broker takes it. The entries are read into memory when the file is opened.
///
/// Source: `OffsetIndex`; docs/formats/kafka-log.md.
#[pyclass(name = "OffsetIndex", module = "logdex.kafka", frozen)]
pub(super) struct PyOffsetIndex {
    open: RwLock<Option<Open>>,
    path: PathBuf,
    check: Check,
    access: String,
    compat: Option<String>,
    write: bool,
}

fn closed(path: &std::path::Path) -> PyErr {
    PyValueError::new_err(format!("{} is closed", path.display()))
}

impl PyOffsetIndex {
    /// To be called without the interpreter lock where `read` waits for the disk.
    fn with<T>(&self, read: impl FnOnce(&Open) -> PyResult<T>) -> PyResult<T> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        read(open.as_ref().ok_or_else(|| closed(&self.path))?)
    }

    fn with_mut<T>(&self, write: impl FnOnce(&mut OffsetIndex) -> Result<T>) -> PyResult<T> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        Ok(write(&mut open.as_mut().ok_or_else(|| closed(&self.path))?.index)?)
    }
}

/// A call that opens an index again.
type Reduced<'py> = (Bound<'py, PyAny>, (PathBuf, &'static str, String, Option<String>, i64));

/// What unpickling calls.
#[pyfunction]
fn _open_offset_index(
    py: Python<'_>,
    path: PathBuf,
    check: &str,
    access: &str,
    compat: Option<&str>,
    base_offset: i64,
) -> PyResult<PyOffsetIndex> {
    PyOffsetIndex::open(py, path, "r", check, access, compat, Some(base_offset))
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
        base_offset: Option<i64>,
    ) -> PyResult<Self> {
        let write = arguments::write_mode(mode)?;
        let check = arguments::check(check)?;
        let (access_kind, release) = (convert::access(access)?, arguments::compat(compat)?);
        let open = py.detach(|| {
            let verified = check == Check::Verify && !write && base_offset.is_none();
            let log = if verified { arguments::log_of_index(&path, ".index").map(Arc::new) } else { None };
            let log_len = log.as_ref().map(|log| log.len());
            let options = IndexOptions { write, check, access: access_kind, compat: release, base_offset, log_len };
            OffsetIndex::open(&path, &options).map(|index| Open { index, log })
        })?;
        Ok(Self {
            open: RwLock::new(Some(open)),
            path,
            check,
            access: access.to_owned(),
            compat: compat.map(str::to_owned),
            write,
        })
    }

    /// Create a file of as many whole entries as `max_bytes` has room for, and open it for appends.
    ///
    /// Raises:
    ///     FileExistsError: There is such a file.
    ///     OSError: The system refuses.
    ///     ValueError: There is no room for an entry.
    #[staticmethod]
    #[pyo3(signature = (path, base_offset, max_bytes=10_485_760, *, compat=None))]
    fn create(py: Python<'_>, path: PathBuf, base_offset: i64, max_bytes: i64, compat: Option<&str>) -> PyResult<Self> {
        arguments::compat(compat)?;
        let max = arguments::size(max_bytes, "max_bytes")?;
        let index = py.detach(|| OffsetIndex::create(&path, base_offset, max))?;
        Ok(Self {
            open: RwLock::new(Some(Open { index, log: None })),
            path,
            check: Check::Trust,
            access: "auto".to_owned(),
            compat: compat.map(str::to_owned),
            write: true,
        })
    }

    /// Where the file lies.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Offset that entries are relative to.
    #[getter]
    fn base_offset(&self) -> PyResult<i64> {
        self.with(|open| Ok(open.index.base_offset()))
    }

    /// "r" or "r+".
    #[getter]
    fn mode(&self) -> &'static str {
        if self.write { "r+" } else { "r" }
    }

    /// "verify" or "trust".
    #[getter]
    fn check(&self) -> &'static str {
        check_word(self.check)
    }

    /// Length of the file in bytes.
    #[getter]
    fn file_len(&self) -> PyResult<u64> {
        self.with(|open| Ok(open.index.file_len()))
    }

    /// Entries that the file has room for.
    #[getter]
    fn max_entries(&self) -> PyResult<u64> {
        self.with(|open| Ok(open.index.max_entries()))
    }

    /// True when there is no room for another entry. Source: `AbstractIndex#isFull`.
    #[getter]
    fn is_full(&self) -> PyResult<bool> {
        self.with(|open| Ok(open.index.is_full()))
    }

    /// Offset of the last entry; the base offset of an empty index.
    #[getter]
    fn last_offset(&self) -> PyResult<i64> {
        self.with(|open| Ok(open.index.last_offset()))
    }

    /// True after `close`.
    #[getter]
    fn closed(&self) -> bool {
        self.open.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn __len__(&self) -> PyResult<usize> {
        self.with(|open| Ok(open.index.len()))
    }

    /// Offset and position of the entry of a slot.
    ///
    /// Raises:
    ///     IndexError: There is no such slot.
    fn entry(&self, n: usize) -> PyResult<(i64, i32)> {
        self.with(|open| {
            let entry = open.index.entry(n).ok_or_else(|| {
                PyIndexError::new_err(format!(
                    "attempt to fetch the {n}th entry from index {}, which has size {}",
                    self.path.display(),
                    open.index.len()
                ))
            })?;
            Ok((entry.offset, entry.position))
        })
    }

    /// The largest entry at or below an offset.
    ///
    /// Returns:
    ///     Offset and position; the base offset and 0 where there is none.
    ///
    /// Source: `OffsetIndex#lookup`.
    fn lookup(&self, py: Python<'_>, offset: i64) -> PyResult<(i64, i32)> {
        let entry = py.detach(|| self.with(|open| Ok(open.lookup(offset)?)))?;
        Ok((entry.offset, entry.position))
    }

    /// `lookup` of each offset of an Arrow column or a sequence, as a struct column of offset and position.
    fn lookup_batch<'py>(&self, py: Python<'py>, offsets: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let offsets = convert::int64_column(offsets, "offsets")?;
        let (found, positions) = py.detach(|| self.with(|open| Ok(open.lookup_batch(&offsets)?)))?;
        let fields: Vec<(&str, ArrayRef)> =
            vec![("offset", Arc::new(Int64Array::from(found))), ("position", Arc::new(Int32Array::from(positions)))];
        arguments::struct_array(py, fields, offsets.nulls().cloned())
    }

    /// An entry whose offset is outside of a fetch of `fetch_size` bytes from `position`; None: there is none.
    ///
    /// Source: `OffsetIndex#fetchUpperBoundOffset`, with its 32-bit sum.
    fn fetch_upper_bound_offset(&self, position: i32, fetch_size: i32) -> PyResult<Option<(i64, i32)>> {
        self.with(|open| {
            let entry = open.index.fetch_upper_bound(position, fetch_size);
            Ok(entry.map(|entry| (entry.offset, entry.position)))
        })
    }

    /// All entries as record batches of offset and position.
    #[pyo3(signature = (batch_size=65_536))]
    fn entries<'py>(&self, py: Python<'py>, batch_size: i64) -> PyResult<Bound<'py, PyAny>> {
        let rows = arguments::rows(batch_size);
        if rows == 0 {
            return Err(PyValueError::new_err(format!("batch_size is 1 or more, not {batch_size}")));
        }
        let entries: Vec<OffsetEntry> =
            self.with(|open| Ok((0..open.index.len()).filter_map(|slot| open.index.entry(slot)).collect()))?;
        let schema = Arc::new(Schema::new(vec![
            Field::new("offset", DataType::Int64, true),
            Field::new("position", DataType::Int32, true),
        ]));
        let of = Arc::clone(&schema);
        let batches: Vec<std::result::Result<RecordBatch, ArrowError>> = entries
            .chunks(rows)
            .map(|chunk| {
                let offsets: Int64Array = chunk.iter().map(|entry| entry.offset).collect::<Vec<_>>().into();
                let positions: Int32Array = chunk.iter().map(|entry| entry.position).collect::<Vec<_>>().into();
                RecordBatch::try_new(Arc::clone(&of), vec![Arc::new(offsets), Arc::new(positions)])
            })
            .collect();
        PyRecordBatchReader::new(Box::new(RecordBatchIterator::new(batches, schema))).into_arro3(py)
    }

    /// Add an entry.
    ///
    /// Raises:
    ///     IndexFullError: There is no room.
    ///     ValueError: The offset is not above the last one, or too far from the base; or the file is open for reading.
    ///
    /// Source: `OffsetIndex#append`.
    fn append(&self, py: Python<'_>, offset: i64, position: i32) -> PyResult<()> {
        py.detach(|| self.with_mut(|index| index.append(offset, position)))
    }

    /// Forget entries at or above an offset; their bytes stay in the file until it is trimmed or they are overwritten.
    ///
    /// Source: `OffsetIndex#truncateTo`.
    fn truncate_to(&self, offset: i64) -> PyResult<()> {
        self.with_mut(|index| index.truncate_to(offset))
    }

    /// Give the file room for as many whole entries as `max_bytes` holds; False when it has that already.
    ///
    /// Raises:
    ///     ValueError: Entries would be cut off.
    ///
    /// Source: `AbstractIndex#resize`.
    fn resize(&self, py: Python<'_>, max_bytes: i64) -> PyResult<bool> {
        let max = arguments::size(max_bytes, "max_bytes")?;
        py.detach(|| self.with_mut(|index| index.resize(max)))
    }

    /// Cut the file behind the last entry. Source: `AbstractIndex#trimToValidSize`.
    fn trim(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.with_mut(OffsetIndex::trim))
    }

    /// The broker's own check of the entries that were taken; for its own answer open with check "trust".
    ///
    /// Raises:
    ///     CorruptFileError: The last offset is below the base, or the length is none of whole entries.
    ///
    /// Source: `OffsetIndex#sanityCheck`.
    fn sanity_check(&self) -> PyResult<()> {
        self.with(|open| Ok(open.index.sanity_check()?))
    }

    /// Look at every entry, and at the log beside the index or the one that is given. Never raises for what it finds.
    #[pyo3(signature = (log=None))]
    fn verify<'py>(&self, py: Python<'py>, log: Option<PathBuf>) -> PyResult<Bound<'py, PyAny>> {
        let base_offset = self.base_offset()?;
        let verified = py.detach(|| {
            let log = match log {
                Some(log) => Some(Segment::open(&log, SegmentOptions::default())?),
                None => arguments::log_of_index(&self.path, ".index"),
            };
            let base_offset = Some(base_offset);
            let options = IndexOptions { check: Check::Trust, base_offset, ..IndexOptions::default() };
            OffsetIndex::open(&self.path, &options)?.verify(log.as_ref())
        })?;
        arguments::report(py, &verified)
    }

    /// Wait until what was appended is on the disk.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.with(|open| Ok(open.index.flush()?)))
    }

    /// Close the handle without trimming. May be called again.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.open.write().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        let path = self.path.display().to_string();
        match self.with(|open| Ok((open.index.base_offset(), open.index.len()))) {
            Ok((base, len)) => format!("OffsetIndex({path:?}, base_offset={base}, entries={len})"),
            Err(_) => format!("OffsetIndex({path:?}, closed)"),
        }
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        let open = py.import("logdex._core")?.getattr("_open_offset_index")?;
        let base_offset = self.base_offset()?;
        Ok((open, (self.path.clone(), check_word(self.check), self.access.clone(), self.compat.clone(), base_offset)))
    }
}
