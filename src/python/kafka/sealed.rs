//! `LogSealing` and `SealedLogs`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::super::location::{self, PyPath};
use super::super::sealed::packed_batch;
use super::super::{report, time};
use super::segment::PyLogSegment;
use crate::hash_index::key_hash_of_utf8;
use crate::io::fork::Generation;
use crate::kafka::Segment;
use crate::kafka::seal::{self, LogSealing, Offsets, PackedSegment, Partition, SealedLogs, SegmentFacts};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(describe_segment, m)?)?;
    m.add_class::<PyLogSealing>()?;
    m.add_class::<PyPackedSegment>()?;
    m.add_class::<PySealedLogs>()
}

/// A partition, and its segments by ascending base offset.
type PyLog<'py> = (Partition, Vec<PyRef<'py, PyLogSegment>>);

fn segments_of(segments: &[PyRef<'_, PyLogSegment>]) -> PyResult<Vec<Arc<Segment>>> {
    segments.iter().map(|segment| segment.inner()).collect()
}

fn logs_of(logs: Vec<PyLog<'_>>) -> PyResult<Vec<(Partition, Vec<Arc<Segment>>)>> {
    logs.into_iter().map(|(partition, segments)| Ok((partition, segments_of(&segments)?))).collect()
}

/// Seals a log directory: sorts the keys of its records by their hashes, and writes them with a catalog.
#[pyclass(name = "LogSealing", module = "logdex._core", frozen)]
struct PyLogSealing {
    sealing: Mutex<Option<LogSealing>>,
    process: Generation,
}

impl PyLogSealing {
    /// Calls `call` without the interpreter lock: another thread may hold the sealing's lock while it reads a file.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Option<LogSealing>) -> Option<T> + Send,
    ) -> PyResult<T> {
        self.process.check_writer(Path::new("the sealed index"))?;
        py.detach(|| call(&mut self.sealing.lock().unwrap_or_else(PoisonError::into_inner)))
            .ok_or_else(|| PyValueError::new_err("the log directory is sealed already"))
    }
}

#[pymethods]
impl PyLogSealing {
    /// List the files of a log directory.
    ///
    /// Args:
    ///     log_dir: The log directory.
    ///     directory: The directory of the sealed index, `_logdex`.
    ///     partitions: Topics and numbers of all partitions.
    ///     header: The name of a header whose values are sealed beside the keys.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    #[new]
    #[pyo3(signature = (log_dir, directory, partitions, header=None))]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = location::path)] log_dir: PathBuf,
        #[pyo3(from_py_with = location::path)] directory: PathBuf,
        partitions: Vec<Partition>,
        header: Option<String>,
    ) -> PyResult<Self> {
        let sealing = py.detach(|| LogSealing::new(&log_dir, &directory, partitions, header))?;
        Ok(Self { sealing: Mutex::new(Some(sealing)), process: Generation::current() })
    }

    /// Add the keys of a segment, whose records end where the `following` one begins. A damaged segment is left out, and its damage
    /// becomes a finding of the report.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    fn add_segment(
        &self,
        py: Python<'_>,
        partition: Partition,
        segment: &PyLogSegment,
        following: Option<&PyLogSegment>,
    ) -> PyResult<()> {
        let (segment, next) = (segment.inner()?, following.map(PyLogSegment::inner).transpose()?);
        let add = |sealing: &mut LogSealing| sealing.add_segment(&partition, &segment, next.as_ref());
        Ok(self.with(py, |sealing| sealing.as_mut().map(add))??)
    }

    /// The partitions, by their numbers in packed rows.
    #[getter]
    fn partitions(&self, py: Python<'_>) -> PyResult<Vec<Partition>> {
        self.with(py, |sealing| sealing.as_ref().map(|sealing| sealing.partitions().to_vec()))
    }

    /// Add what `describe_segment` returned of a segment, whose rows other processes sort.
    ///
    /// Raises:
    ///     CorruptFileError: It is something else.
    fn add_facts(&self, py: Python<'_>, facts: PyFacts) -> PyResult<()> {
        let facts = SegmentFacts::decode(Path::new("facts of a segment"), facts)?;
        self.with(py, |sealing| sealing.as_mut().map(|sealing| sealing.add_facts(facts)))
    }

    /// Return the first hashes of the ranges into which other processes sort the rows, but for the first range.
    fn bounds(&self, py: Python<'_>) -> PyResult<Vec<i32>> {
        self.with(py, |sealing| sealing.as_ref().map(LogSealing::bounds))
    }

    /// Write the catalog of files of keys that other processes wrote.
    ///
    /// Args:
    ///     written: What `write_packed_keys` returned in all tasks.
    ///
    /// Returns:
    ///     A report, as `finish`.
    ///
    /// Raises:
    ///     CorruptFileError: Rows are missing.
    ///     OSError: The system refuses.
    fn finish_with<'py>(&self, py: Python<'py>, written: Vec<Vec<u8>>) -> PyResult<Bound<'py, PyAny>> {
        let sealing = self.with(py, Option::take)?;
        let written = written.into_iter().map(Bytes::from).collect();
        let found = py.detach(|| sealing.finish_with(written))?;
        report::report(py, &found)
    }

    /// Write the sealed index.
    ///
    /// Returns:
    ///     A report that counts segments and entries. Findings are damage, and segments that are not sealed.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let sealing = self.with(py, Option::take)?;
        let found = py.detach(|| sealing.finish())?;
        report::report(py, &found)
    }
}

/// What a catalog needs of a segment: see [`SegmentFacts::encode`].
type PyFacts = (Vec<u8>, Vec<i32>, i64);

/// Read a segment, for `LogSealing.add_facts` in another process.
///
/// Args:
///     partition: Topic and number.
///     segment: The segment.
///     following: The next one, where its records end.
///     header: The name of a header whose values are sealed beside the keys.
///
/// Returns:
///     Facts, or None if it cannot be sealed, and a report that says why.
///
/// Raises:
///     OSError: The system refuses.
#[pyfunction]
#[pyo3(signature = (partition, segment, following=None, header=None))]
fn describe_segment<'py>(
    py: Python<'py>,
    partition: Partition,
    segment: &PyLogSegment,
    following: Option<&PyLogSegment>,
    header: Option<&str>,
) -> PyResult<(Option<PyFacts>, Bound<'py, PyAny>)> {
    let (segment, next) = (segment.inner()?, following.map(PyLogSegment::inner).transpose()?);
    let (facts, found) = py.detach(|| seal::describe_segment(&partition, &segment, next.as_ref(), header))?;
    Ok((facts.map(SegmentFacts::encode).transpose()?, report::report(py, &found)?))
}

/// The rows of a segment, packed by ranges of their hashes: an iterator of record batches, as `packed_rows` returns one.
#[pyclass(name = "PackedSegment", module = "logdex._core", frozen)]
struct PyPackedSegment {
    rows: Mutex<PackedSegment>,
}

#[pymethods]
impl PyPackedSegment {
    /// Open a segment that is whole.
    ///
    /// Args:
    ///     partition: Topic and number.
    ///     part: The number of the partition in `LogSealing.partitions`.
    ///     segment: The segment.
    ///     end_offset: The end of its rows, the last of the facts of `describe_segment`.
    ///     bounds: The first hashes of all ranges but the first, ascending.
    ///     header: The name of a header whose values are sealed beside the keys.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    #[new]
    #[pyo3(signature = (partition, part, segment, end_offset, bounds, header=None))]
    fn new(
        py: Python<'_>,
        partition: Partition,
        part: u32,
        segment: &PyLogSegment,
        end_offset: i64,
        bounds: Vec<i32>,
        header: Option<String>,
    ) -> PyResult<Self> {
        let segment = segment.inner()?;
        let rows = py.detach(|| PackedSegment::open(partition, part, &segment, end_offset, header, bounds))?;
        Ok(Self { rows: Mutex::new(rows) })
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let packed = py.detach(|| self.rows.lock().unwrap_or_else(PoisonError::into_inner).next_rows())?;
        packed.map(|packed| packed_batch(py, &packed)).transpose()
    }
}

/// The sealed index of a log directory, open for lookups.
#[pyclass(name = "SealedLogs", module = "logdex._core", frozen)]
struct PySealedLogs {
    logs: SealedLogs,
}

#[pymethods]
impl PySealedLogs {
    /// Open a sealed index.
    ///
    /// Args:
    ///     directory: Its directory, `_logdex`.
    ///
    /// Raises:
    ///     FileNotFoundError: There is none.
    ///     CorruptFileError: The catalog is damaged, of another version, or of a RocketMQ store.
    ///     OSError: The system refuses.
    #[staticmethod]
    fn open(py: Python<'_>, #[pyo3(from_py_with = location::path)] directory: PathBuf) -> PyResult<Self> {
        Ok(Self { logs: py.detach(|| SealedLogs::open(&directory))? })
    }

    /// The directory.
    #[getter]
    fn directory(&self) -> PyPath {
        PyPath(self.logs.directory().to_owned())
    }

    /// The header whose values are sealed beside the keys; None: the keys only.
    #[getter]
    fn header(&self) -> Option<&str> {
        self.logs.header()
    }

    /// Row groups that were read for lookups.
    #[getter]
    fn reads(&self) -> u64 {
        self.logs.reads()
    }

    /// Count the segments of a partition that are as they were when they were sealed, and their entries.
    fn entries(&self, partition: Partition, segments: Vec<PyRef<'_, PyLogSegment>>) -> PyResult<(u64, u64)> {
        Ok(self.logs.entries(&partition, &segments_of(&segments)?))
    }

    /// Find the candidates of a key in some partitions.
    ///
    /// Args:
    ///     key: The index key, `topic#key`.
    ///     logs: ((topic, number), segments) of each partition.
    ///     begin: First timestamp, inclusive.
    ///     end: Last timestamp, inclusive.
    ///
    /// Returns:
    ///     For each partition the ranges of offsets that are sealed, ascending, and the candidates in them, newest first.
    ///
    /// Raises:
    ///     CorruptFileError: A file of the sealed index is damaged.
    ///     OSError: The system refuses.
    #[pyo3(signature = (key, logs, *, begin=None, end=None))]
    fn select(
        &self,
        py: Python<'_>,
        key: &str,
        logs: Vec<PyLog<'_>>,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Vec<(Vec<Offsets>, Vec<i64>)>> {
        let (logs, times) = (logs_of(logs)?, time::time_range(begin, end)?);
        let hash = key_hash_of_utf8(key.as_bytes());
        let covered: Vec<(Partition, Vec<Offsets>)> = logs
            .into_iter()
            .map(|(partition, segments)| {
                let covered = self.logs.covered(&partition, &segments);
                (partition, covered)
            })
            .collect();
        let found = py.detach(|| self.logs.select(hash, times, &covered))?;
        Ok(covered.into_iter().map(|(_, covered)| covered).zip(found).collect())
    }

    /// Compare the rows with the records of the segments that are as they were.
    ///
    /// Args:
    ///     logs: ((topic, number), segments) of each partition.
    ///
    /// Returns:
    ///     A report.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    fn verify<'py>(&self, py: Python<'py>, logs: Vec<PyLog<'py>>) -> PyResult<Bound<'py, PyAny>> {
        let logs = logs_of(logs)?;
        let found = py.detach(|| self.logs.verify(&logs))?;
        report::report(py, &found)
    }
}
