//! `TimeIndex`.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchIterator, TimestampMillisecondArray};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3_arrow::PyRecordBatchReader;

use super::super::convert::{self, Round};
use super::arguments::{self, check_word};
use crate::error::Result;
use crate::kafka::{Check, IndexOptions, Segment, SegmentOptions, TimeEntry, TimeIndex};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyTimeIndex>()?;
    m.add_function(wrap_pyfunction!(_open_time_index, m)?)
}

/// An open index, and the log that its entries are checked against.
struct Open {
    index: TimeIndex,
    log: Option<Arc<Segment>>,
}

impl Open {
    fn lookup(&self, timestamp: i64) -> Result<TimeEntry> {
        self.log.as_ref().map_or_else(|| Ok(self.index.lookup(timestamp)), |log| log.time_entry(timestamp))
    }

    fn lookup_batch(&self, timestamps: &Int64Array) -> Result<(Vec<i64>, Vec<i64>)> {
        let ranks = self.index.ranks(timestamps.values());
        let (mut found, mut offsets) = (Vec::with_capacity(ranks.len()), Vec::with_capacity(ranks.len()));
        for rank in ranks {
            let rank = usize::try_from(rank).unwrap_or(usize::MAX);
            let entry = match &self.log {
                Some(log) => log.time_entry_before(rank)?,
                None => rank.checked_sub(1).and_then(|slot| self.index.entry(slot)).unwrap_or(self.index.front()),
            };
            found.push(entry.timestamp);
            offsets.push(entry.offset);
        }
        Ok((found, offsets))
    }
}

/// The time index of a segment: from a timestamp to an offset that no later record is at or before.
///
/// With check "verify" the longest prefix of entries that can be valid is taken, and, where the log lies beside the
/// index, an entry is answered only if the batch of its offset has its timestamp. With "trust" the whole file is valid,
/// as the broker takes it. The entries are read into memory when the file is opened.
///
/// Source: `TimeIndex`; docs/formats/kafka-log.md.
#[pyclass(name = "TimeIndex", module = "logdex.kafka", frozen)]
pub(super) struct PyTimeIndex {
    open: RwLock<Option<Open>>,
    path: PathBuf,
    check: Check,
    access: String,
    compat: Option<String>,
    write: bool,
}

fn pair(entry: TimeEntry) -> (i64, i64) {
    (entry.timestamp, entry.offset)
}

fn times(milliseconds: Vec<i64>) -> TimestampMillisecondArray {
    TimestampMillisecondArray::from(milliseconds).with_timezone("UTC")
}

fn closed(path: &std::path::Path) -> PyErr {
    PyValueError::new_err(format!("{} is closed", path.display()))
}

impl PyTimeIndex {
    /// To be called without the interpreter lock where `read` waits for the disk.
    fn with<T>(&self, read: impl FnOnce(&Open) -> PyResult<T>) -> PyResult<T> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        read(open.as_ref().ok_or_else(|| closed(&self.path))?)
    }

    fn with_mut<T>(&self, write: impl FnOnce(&mut TimeIndex) -> Result<T>) -> PyResult<T> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        Ok(write(&mut open.as_mut().ok_or_else(|| closed(&self.path))?.index)?)
    }
}

/// A call that opens an index again.
type Reduced<'py> = (Bound<'py, PyAny>, (PathBuf, &'static str, String, Option<String>, i64));

/// What unpickling calls.
#[pyfunction]
fn _open_time_index(
    py: Python<'_>,
    path: PathBuf,
    check: &str,
    access: &str,
    compat: Option<&str>,
    base_offset: i64,
) -> PyResult<PyTimeIndex> {
    PyTimeIndex::open(py, path, "r", check, access, compat, Some(base_offset))
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
        base_offset: Option<i64>,
    ) -> PyResult<Self> {
        let write = arguments::write_mode(mode)?;
        let check = arguments::check(check)?;
        let (access_kind, release) = (convert::access(access)?, arguments::compat(compat)?);
        let open = py.detach(|| {
            let verified = check == Check::Verify && !write && base_offset.is_none();
            let log = if verified { arguments::log_of_index(&path, ".timeindex").map(Arc::new) } else { None };
            let log_len = log.as_ref().map(|log| log.len());
            let options = IndexOptions { write, check, access: access_kind, compat: release, base_offset, log_len };
            TimeIndex::open(&path, &options).map(|index| Open { index, log })
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
        let index = py.detach(|| TimeIndex::create(&path, base_offset, max))?;
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

    /// True when only the slot of the last entry of a segment is left. Source: `TimeIndex#isFull`.
    #[getter]
    fn is_full(&self) -> PyResult<bool> {
        self.with(|open| Ok(open.index.is_full()))
    }

    /// Timestamp and offset of the last entry; -1 and the base offset of an empty index.
    #[getter]
    fn last_entry(&self) -> PyResult<(i64, i64)> {
        self.with(|open| Ok(pair(open.index.last_entry())))
    }

    /// True after `close`.
    #[getter]
    fn closed(&self) -> bool {
        self.open.read().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn __len__(&self) -> PyResult<usize> {
        self.with(|open| Ok(open.index.len()))
    }

    /// Timestamp and offset of the entry of a slot.
    ///
    /// Raises:
    ///     IndexError: There is no such slot.
    fn entry(&self, n: usize) -> PyResult<(i64, i64)> {
        self.with(|open| {
            let entry = open.index.entry(n).ok_or_else(|| {
                PyIndexError::new_err(format!(
                    "attempt to fetch the {n}th entry from index {}, which has size {}",
                    self.path.display(),
                    open.index.len()
                ))
            })?;
            Ok(pair(entry))
        })
    }

    /// The largest entry at or below a timestamp.
    ///
    /// Returns:
    ///     Timestamp and offset; -1 and the base offset where there is none.
    ///
    /// Source: `TimeIndex#lookup`.
    fn lookup(&self, py: Python<'_>, timestamp: &Bound<'_, PyAny>) -> PyResult<(i64, i64)> {
        let timestamp = convert::time_ms(timestamp, Round::Down)?;
        py.detach(|| self.with(|open| Ok(pair(open.lookup(timestamp)?))))
    }

    /// `lookup` of each time of an Arrow column or a sequence, as a struct column of timestamp and offset.
    fn lookup_batch<'py>(&self, py: Python<'py>, timestamps: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let timestamps = convert::time_column(timestamps, "timestamps")?;
        let (found, offsets) = py.detach(|| self.with(|open| Ok(open.lookup_batch(&timestamps)?)))?;
        let fields: Vec<(&str, ArrayRef)> =
            vec![("timestamp", Arc::new(times(found))), ("offset", Arc::new(Int64Array::from(offsets)))];
        arguments::struct_array(py, fields, timestamps.nulls().cloned())
    }

    /// All entries as record batches of timestamp and offset.
    #[pyo3(signature = (batch_size=65_536))]
    fn entries<'py>(&self, py: Python<'py>, batch_size: i64) -> PyResult<Bound<'py, PyAny>> {
        let rows = arguments::rows(batch_size);
        if rows == 0 {
            return Err(PyValueError::new_err(format!("batch_size is 1 or more, not {batch_size}")));
        }
        let entries: Vec<TimeEntry> =
            self.with(|open| Ok((0..open.index.len()).filter_map(|slot| open.index.entry(slot)).collect()))?;
        let schema = Arc::new(Schema::new(vec![
            Field::new("timestamp", times(Vec::new()).data_type().clone(), true),
            Field::new("offset", DataType::Int64, true),
        ]));
        let of = Arc::clone(&schema);
        let batches: Vec<std::result::Result<RecordBatch, ArrowError>> = entries
            .chunks(rows)
            .map(|chunk| {
                let times = times(chunk.iter().map(|entry| entry.timestamp).collect());
                let offsets: Int64Array = chunk.iter().map(|entry| entry.offset).collect::<Vec<_>>().into();
                RecordBatch::try_new(Arc::clone(&of), vec![Arc::new(times), Arc::new(offsets)])
            })
            .collect();
        PyRecordBatchReader::new(Box::new(RecordBatchIterator::new(batches, schema))).into_arro3(py)
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
        offset: i64,
        skip_full_check: bool,
    ) -> PyResult<bool> {
        let timestamp = convert::time_ms(timestamp, Round::Down)?;
        py.detach(|| self.with_mut(|index| index.maybe_append(timestamp, offset, skip_full_check)))
    }

    /// Forget entries at or above an offset; their bytes stay in the file until it is trimmed or they are overwritten.
    ///
    /// Source: `TimeIndex#truncateTo`.
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
        py.detach(|| self.with_mut(TimeIndex::trim))
    }

    /// The broker's own check of the entries that were taken; for its own answer open with check "trust".
    ///
    /// Raises:
    ///     CorruptFileError: The last timestamp is below the first, the last offset below the base, or the length none of
    ///         whole entries.
    ///
    /// Source: `TimeIndex#sanityCheck`.
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
                None => arguments::log_of_index(&self.path, ".timeindex"),
            };
            let base_offset = Some(base_offset);
            let options = IndexOptions { check: Check::Trust, base_offset, ..IndexOptions::default() };
            TimeIndex::open(&self.path, &options)?.verify(log.as_ref())
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
            Ok((base, len)) => format!("TimeIndex({path:?}, base_offset={base}, entries={len})"),
            Err(_) => format!("TimeIndex({path:?}, closed)"),
        }
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        let open = py.import("logdex._core")?.getattr("_open_time_index")?;
        let base_offset = self.base_offset()?;
        Ok((open, (self.path.clone(), check_word(self.check), self.access.clone(), self.compat.clone(), base_offset)))
    }
}
