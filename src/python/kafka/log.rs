//! `PartitionLog`: the segments of a partition as one log.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;

use super::super::handle::{Closable, lock};
use super::super::{convert, integer};
use super::arguments;
use super::segment::{PyLogSegment, PySlice};
use crate::error::Result;
use crate::io::Location;
use crate::kafka::log::{self, Listing, Part, ReadRange, SegmentFiles, Special};
use crate::kafka::{Log, LogView, PartitionOptions, Segment};
use crate::report::Finding;

register! { class PyPartitionLog; fn list_partition }

/// Producer, first offset, offset of the marker.
type PyAborted = (i64, i64, i64);
/// The attributes of `logdex.kafka.files.Listing`.
type Listed = (
    BTreeMap<i64, SegmentFiles>,
    BTreeMap<i64, Location>,
    Vec<Location>,
    Vec<Location>,
    Vec<Location>,
    BTreeMap<i64, String>,
);
/// First offset, the offset after the last one, and the finding, of each missing segment; the gaps that compaction left.
type PyMissing = (Vec<(i64, i64, Finding)>, u64);
/// A timestamp with its offset, and findings.
type PyTimed = (Option<(i64, i64)>, Vec<Finding>);
/// The bytes of a fetch, and findings.
type PyFetched = (PySlice, Vec<Finding>);

fn listed(listing: &Listing) -> Listed {
    let Listing { segments, snapshots, orphans, leftovers, strays, unread } = listing;
    let unread = unread.iter().map(|file| (file.base_offset, file.found.clone())).collect();
    (segments.clone(), snapshots.clone(), orphans.clone(), leftovers.clone(), strays.clone(), unread)
}

/// List the files of a partition, as the attributes of `logdex.kafka.files.Listing`; no segment is opened.
#[pyfunction]
fn list_partition(py: Python<'_>, directory: Location) -> PyResult<Listed> {
    Ok(listed(&py.detach(|| Listing::of(&directory))?))
}

/// A partition's log. Each call lists the directory again, unless it is pinned.
#[pyclass(name = "PartitionLog", module = "logdex._core", frozen)]
pub(in crate::python) struct PyPartitionLog {
    log: Closable<Log>,
    /// The objects of its segments by base offset, which close with the log.
    handles: Mutex<HashMap<i64, Py<PyLogSegment>>>,
    topic: String,
    partition: i32,
    access: String,
    compat: Option<String>,
}

impl PyPartitionLog {
    fn of(&self, log: Log) -> Self {
        Self {
            log: Closable::new(log, self.log.path().clone()),
            handles: Mutex::default(),
            topic: self.topic.clone(),
            partition: self.partition,
            access: self.access.clone(),
            compat: self.compat.clone(),
        }
    }

    pub(in crate::python) fn inner(&self) -> PyResult<Arc<Log>> {
        self.log.get()
    }

    fn with<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&LogView) -> Result<T> + Send) -> PyResult<T> {
        self.log.call(py, |log| call(&*log.view()?))
    }

    /// Returns the object of an open segment.
    fn handle(&self, py: Python<'_>, segment: &Arc<Segment>) -> PyResult<Py<PyLogSegment>> {
        let mut known = lock(&self.handles);
        if let Some(handle) = known.get(&segment.base_offset()).filter(|handle| handle.get().is_of(segment)) {
            return Ok(handle.clone_ref(py));
        }
        let (access, compat) = (&self.access, self.compat.as_deref());
        let handle = PyLogSegment::of(Arc::clone(segment), &self.topic, self.partition, access, compat);
        let handle = Py::new(py, handle)?;
        known.insert(segment.base_offset(), handle.clone_ref(py));
        Ok(handle)
    }
}

#[pymethods]
impl PyPartitionLog {
    /// Open a partition's directory. Nothing is read yet. The options are those of `logdex.kafka.Log.open`.
    #[staticmethod]
    #[pyo3(signature = (directory, *, topic, partition, check, access, compat, max_batch_bytes))]
    fn open(
        directory: Location,
        topic: String,
        #[pyo3(from_py_with = integer::partition)] partition: i32,
        check: Option<&str>,
        access: &str,
        compat: Option<&str>,
        #[pyo3(from_py_with = integer::max_batch_bytes)] max_batch_bytes: i64,
    ) -> PyResult<Self> {
        let options = PartitionOptions {
            topic: topic.clone(),
            partition,
            check: check.map(arguments::check).transpose()?,
            access: convert::access(access)?,
            compat: arguments::compat(compat)?,
            max_batch_bytes: arguments::batch_limit(max_batch_bytes)?,
        };
        let log = Log::open(&directory, options)?;
        Ok(Self {
            log: Closable::new(log, directory),
            handles: Mutex::default(),
            topic,
            partition,
            access: access.to_owned(),
            compat: compat.map(str::to_owned),
        })
    }

    /// Return the log with the segments that it has now.
    fn pinned(&self, py: Python<'_>) -> PyResult<Self> {
        Ok(self.of(self.log.call(py, Log::pinned)?))
    }

    /// The segments, by ascending base offset.
    #[getter]
    fn segments(&self, py: Python<'_>) -> PyResult<Vec<Py<PyLogSegment>>> {
        let segments = self.with(py, |log| Ok(log.segments().to_vec()))?;
        segments.iter().map(|segment| self.handle(py, segment)).collect()
    }

    /// The files of the directory, as the attributes of `logdex.kafka.files.Listing`.
    fn listing(&self, py: Python<'_>) -> PyResult<Listed> {
        self.with(py, |log| Ok(listed(log.listing())))
    }

    /// The first offset.
    #[getter]
    fn log_start_offset(&self, py: Python<'_>) -> PyResult<i64> {
        self.with(py, LogView::start)
    }

    /// The offset after the last whole batch.
    #[getter]
    fn log_end_offset(&self, py: Python<'_>) -> PyResult<i64> {
        self.with(py, LogView::end)
    }

    /// The offset below which every transaction has ended.
    #[getter]
    fn last_stable_offset(&self, py: Python<'_>) -> PyResult<i64> {
        self.with(py, LogView::last_stable_offset)
    }

    /// True if the index of aborted transactions of the last segment does not count: the broker did not stop cleanly.
    #[getter]
    fn after_crash(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |log| Ok(log.is_after_crash()))
    }

    /// Return `log_end_offset`, or an offset before it if damage at the end of the log hides the rest.
    fn readable_end(&self, py: Python<'_>) -> PyResult<i64> {
        self.with(py, LogView::readable_end)
    }

    /// Find the bytes that a fetch returns, and the missing segments that it passed over; None at the end of the log.
    fn read(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::offset)] offset: i64,
        #[pyo3(from_py_with = integer::max_bytes)] max_bytes: i64,
        min_one_message: bool,
    ) -> PyResult<Option<PyFetched>> {
        let Some((segment, fetched, passed)) = self.with(py, |log| log.read(offset, max_bytes, min_one_message))?
        else {
            return Ok(None);
        };
        Ok(Some((PySlice::new(self.handle(py, &segment)?, fetched), passed)))
    }

    /// Find the first record at or after a time in ms, and the missing segments that may hold an earlier one.
    ///
    /// `special`: the times of `ListOffsetsRequest` that are no times are answered.
    fn offset_for_timestamp(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::timestamp)] timestamp: i64,
        special: bool,
    ) -> PyResult<PyTimed> {
        let special = Special::of(timestamp).filter(|_| special);
        self.with(py, |log| {
            if let Some(special) = special {
                return Ok((log.special_offset(special)?, Vec::new()));
            }
            let (found, passed) = log.offset_for_timestamp(timestamp)?;
            Ok((found.map(|found| (found.timestamp, found.offset)), passed))
        })
    }

    /// Return the aborted transactions with records in [begin_offset, end_offset), by the offsets of their markers.
    fn aborted_transactions(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::begin_offset)] begin_offset: Option<i64>,
        #[pyo3(from_py_with = integer::end_offset)] end_offset: Option<i64>,
    ) -> PyResult<Vec<PyAborted>> {
        self.with(py, |log| {
            let begin = begin_offset.map_or_else(|| log.start(), Ok)?;
            let aborted = log.aborted_between(begin, end_offset.unwrap_or(i64::MAX))?;
            Ok(aborted.iter().map(|each| (each.producer_id, each.first_offset, each.last_offset)).collect())
        })
    }

    /// Return the segments that are missing in [begin_offset, end_offset), and the number of gaps that compaction left. An unknown
    /// end is 2^63 - 1.
    fn missing(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::begin_offset)] begin_offset: i64,
        #[pyo3(from_py_with = integer::end_offset)] end_offset: i64,
    ) -> PyResult<PyMissing> {
        let missing = self.with(py, |log| log.missing(begin_offset.max(log.start()?), end_offset))?;
        let found = missing.segments.into_iter().map(|each| (each.begin_offset, each.end_offset, each.finding));
        Ok((found.collect(), missing.compacted))
    }

    /// Plan a read, as parts for `read_records`: (segment, begin_offset, end_offset, aborted) each, or a `Finding`.
    ///
    /// Args:
    ///     begin_offset: First offset; None: the start of the log.
    ///     end_offset: The offset after the last one; None: the end of the log.
    ///     begin: Each segment is read from its first record at or after this time, in ms, on.
    ///     committed: Leave out aborted transactions, and end before the first open one.
    ///     most: The most parts to return; None: all.
    #[pyo3(signature = (begin_offset=None, end_offset=None, begin=None, *, committed=false, most=None))]
    fn parts<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = integer::begin_offset)] begin_offset: Option<i64>,
        #[pyo3(from_py_with = integer::end_offset)] end_offset: Option<i64>,
        begin: Option<i64>,
        committed: bool,
        most: Option<usize>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let read = ReadRange {
            begin_offset: begin_offset.unwrap_or(0),
            end_offset: end_offset.unwrap_or(i64::MAX),
            begin_ms: begin,
            is_committed: committed,
        };
        let parts = self.with(py, |log| log.plan(read, most.unwrap_or(usize::MAX)))?;
        let parts = parts.into_iter().map(|part| match part {
            Part::Range(range, aborted) => {
                let end = Some(range.end_offset).filter(|end| *end != i64::MAX);
                let aborted: Vec<PyAborted> =
                    aborted.iter().map(|each| (each.producer_id, each.first_offset, each.last_offset)).collect();
                let segment = self.handle(py, &range.segment)?;
                Ok((segment, range.begin_offset, end, aborted).into_pyobject(py)?.into_any())
            }
            Part::Missing(finding) => finding.into_pyobject(py),
        });
        parts.collect()
    }

    /// Cut offsets into pieces: at segments, and in large segments at entries of their indexes.
    ///
    /// Args:
    ///     begin: The first offset.
    ///     end: The offset after the last one.
    ///     piece_bytes: About how many bytes a piece may have.
    ///
    /// Returns:
    ///     A tuple for each piece: its first offset, the offset after its last one, its bytes, and the base offset of its segment.
    fn cut(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::begin)] begin: i64,
        #[pyo3(from_py_with = integer::end)] end: i64,
        #[pyo3(from_py_with = integer::piece_bytes)] piece_bytes: u64,
    ) -> PyResult<Vec<(i64, i64, u64, i64)>> {
        let pieces = self.with(py, |view| log::cut_segments(view.segments(), begin, end, piece_bytes))?;
        Ok(pieces.into_iter().map(|piece| (piece.begin, piece.end, piece.size, piece.base_offset)).collect())
    }

    /// Close the log and its segments. Running calls and readers go on.
    fn close(&self) {
        if let Some(log) = self.log.close() {
            log.close();
        }
        let handles = std::mem::take(&mut *lock(&self.handles));
        for handle in handles.values() {
            handle.get().close();
        }
    }

    fn __repr__(&self) -> String {
        self.log.text("PartitionLog")
    }
}
