//! `PlannedLog`, the pieces of a log, and index files as a plan saw them.

use std::ffi::OsString;
use std::sync::Arc;

use pyo3::prelude::*;

use super::closable::Closable;
use super::commit_log::{PyCommitLog, Settings};
use super::consume_queue::PyConsumeQueue;
use super::convert;
use super::integer;
use crate::error::Result;
use crate::io::Location;
use crate::io::PlannedFile;
use crate::io::storage::{self, Identity};
use crate::rocketmq::commit_log::{Lost, PlannedLog};
use crate::rocketmq::log_pieces::{self, Units};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyPlannedLog>()?;
    m.add_function(wrap_pyfunction!(_planned_log, m)?)?;
    m.add_function(wrap_pyfunction!(plan_log, m)?)?;
    m.add_function(wrap_pyfunction!(cut_log, m)?)?;
    m.add_function(wrap_pyfunction!(cut_queue, m)?)?;
    m.add_function(wrap_pyfunction!(plan_files, m)?)?;
    m.add_function(wrap_pyfunction!(planned_file_faults, m)?)
}

/// Path, length, CRC-32 of the first 64 bytes if they are written, and `ETag`.
type Planned = (OsString, u64, Option<u32>, Option<String>);

/// Files of a commit log that a reader needs, as a plan saw them: `plan_log` and `cut_log` return it.
///
/// It pickles, so that a process on another machine can open these files, or say which of them it lacks.
#[pyclass(name = "PlannedLog", module = "logdex._core", frozen)]
pub(super) struct PyPlannedLog {
    planned: Arc<PlannedLog>,
    directory: Location,
    settings: Settings,
}

impl PyPlannedLog {
    fn new(planned: Arc<PlannedLog>, log: &PyCommitLog) -> Self {
        Self { planned, directory: log.directory(), settings: log.settings().clone() }
    }
}

/// [`Lost`] for Python.
type PyLost = (Location, String, String);

fn python_lost(lost: Vec<Lost>) -> Vec<PyLost> {
    lost.into_iter().collect()
}

/// The arguments that make a plan again.
type Reduced<'py> = (Bound<'py, PyAny>, (Location, Settings, Vec<Planned>, u64, Option<u64>));

/// Unpickle a plan. Its files are in the directory's store.
#[pyfunction]
fn _planned_log(
    directory: Location,
    settings: Settings,
    files: Vec<Planned>,
    last_file: u64,
    last_message: Option<u64>,
) -> PyPlannedLog {
    let files = files
        .into_iter()
        .map(|(path, len, head, etag)| PlannedFile { path: directory.at(path.into()), len, head, etag })
        .collect();
    PyPlannedLog { planned: Arc::new(PlannedLog { files, last_file, last_message }), directory, settings }
}

#[pymethods]
impl PyPlannedLog {
    /// Open the log of these files, with the options of the planned one. The directory is not listed.
    ///
    /// Returns:
    ///     The log, without files that are missing, shorter, or other ones; and what is lost: the path, what was planned, and what
    ///     is there. If the last message of the log was planned but is not there, that is the last of them.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn open(&self, py: Python<'_>) -> PyResult<(PyCommitLog, Vec<PyLost>)> {
        let options = self.settings.options()?;
        let (log, lost) = py.detach(|| self.planned.open(&self.directory, options))?;
        Ok((PyCommitLog::new(Closable::new(log, self.directory.clone()), self.settings.clone()), python_lost(lost)))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        let make = py.import("logdex._core")?.getattr("_planned_log")?;
        let plan = &self.planned;
        let of_file = |file: &PlannedFile| (file.path.as_os_str().to_owned(), file.len, file.head, file.etag.clone());
        let files: Vec<Planned> = plan.files.iter().map(of_file).collect();
        let directory = self.directory.clone();
        Ok((make, (directory, self.settings.clone(), files, plan.last_file, plan.last_message)))
    }
}

/// Return what a reader in another process needs of the files that hold some offsets.
///
/// Args:
///     log: The log.
///     phy_offsets: The offsets; None: all files.
///
/// Raises:
///     OSError: The directory or a file cannot be read.
#[pyfunction]
#[pyo3(signature = (log, phy_offsets=None))]
fn plan_log(py: Python<'_>, log: &PyCommitLog, phy_offsets: Option<&Bound<'_, PyAny>>) -> PyResult<PyPlannedLog> {
    let inner = log.inner()?;
    let column = phy_offsets.map(|offsets| convert::int64_column(offsets, "phy_offsets")).transpose()?;
    let offsets: Option<Vec<u64>> =
        column.map(|column| column.iter().flatten().filter_map(|offset| u64::try_from(offset).ok()).collect());
    let planned = py.detach(|| inner.plan(offsets.as_deref()))?;
    Ok(PyPlannedLog::new(Arc::new(planned), log))
}

/// Cut ranges of a log into pieces: at its files, and larger files where messages of some queues begin.
///
/// Args:
///     log: The log.
///     ranges: Ranges of offsets, ascending.
///     piece_bytes: About how many bytes a piece may have.
///     queues: Queues that propose where to cut; without any, files stay whole.
///
/// Returns:
///     A tuple for each piece, in ascending order: its first offset, the offset after its last one, and the plan of its file.
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
fn cut_log(
    py: Python<'_>,
    log: &PyCommitLog,
    ranges: Vec<(u64, u64)>,
    #[pyo3(from_py_with = integer::piece_bytes)] piece_bytes: u64,
    queues: Vec<PyRef<'_, PyConsumeQueue>>,
) -> PyResult<Vec<(u64, u64, Py<PyPlannedLog>)>> {
    let inner = log.inner()?;
    let queues = queues.iter().map(|queue| queue.inner()).collect::<PyResult<Vec<_>>>()?;
    let pieces = py.detach(|| log_pieces::cut_log(&inner, &ranges, piece_bytes, &queues))?;
    let mut found: Vec<(u64, u64, Py<PyPlannedLog>)> = Vec::with_capacity(pieces.len());
    let mut last: Option<Arc<PlannedLog>> = None;
    for ((begin, end), planned) in pieces {
        // Pieces of one file share a plan.
        let shared = found.last().filter(|_| last.as_ref().is_some_and(|last| Arc::ptr_eq(last, &planned)));
        let object = match shared {
            Some((_, _, object)) => object.clone_ref(py),
            None => Py::new(py, PyPlannedLog::new(Arc::clone(&planned), log))?,
        };
        last = Some(planned);
        found.push((begin, end, object));
    }
    Ok(found)
}

/// Cut units of a queue into about as many pieces, which follow each other in the log. Damaged units are cut less.
///
/// Args:
///     log: The log of the queue.
///     queue: The queue.
///     place: Its topic and queue id.
///     units: The first unit, and the one after the last.
///     phy_offsets: The range of the log to which these units lead.
///     pieces: The number of pieces.
///
/// Returns:
///     A tuple for each piece: the first unit, the one after the last, and the range of the log, as two offsets.
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
fn cut_queue(
    py: Python<'_>,
    log: &PyCommitLog,
    queue: &PyConsumeQueue,
    place: (String, i64),
    units: (i64, i64),
    phy_offsets: (u64, u64),
    pieces: i64,
) -> PyResult<Vec<(i64, i64, u64, u64)>> {
    let (log, queue) = (log.inner()?, queue.inner()?);
    let whole = Units { units, range: phy_offsets };
    let found = py.detach(|| log_pieces::cut_queue(&log, &queue, (&place.0, place.1), whole, pieces))?;
    Ok(found.into_iter().map(|Units { units, range }| (units.0, units.1, range.0, range.1)).collect())
}

/// Return what a plan sees of files whose first bytes may change: path, length, and the `ETag` of an object.
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
fn plan_files(py: Python<'_>, files: Vec<Location>) -> PyResult<Vec<(Location, u64, Option<String>)>> {
    let planned =
        py.detach(|| files.iter().map(|path| Ok((path, storage::status(path)?))).collect::<Result<Vec<_>>>())?;
    let described = planned.into_iter().map(|(path, found)| {
        let etag = if let Identity::Remote(etag) = found.identity { etag } else { None };
        (path.clone(), found.len, etag)
    });
    Ok(described.collect())
}

/// Compare files with what a plan saw. A file on a disk may have grown.
///
/// Args:
///     files: What `plan_files` returned.
///
/// Returns:
///     A tuple for each other file: the path, what was planned, and what is there.
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
fn planned_file_faults(py: Python<'_>, files: Vec<(Location, u64, Option<String>)>) -> PyResult<Vec<PyLost>> {
    let faults = py.detach(|| {
        let planned = files.into_iter().map(|(path, len, etag)| PlannedFile { path, len, head: None, etag });
        let faults = planned.map(|file| Ok(file.fault()?.map(|found| (file.path.clone(), file.expected(), found))));
        faults.filter_map(Result::transpose).collect::<Result<Vec<_>>>()
    })?;
    Ok(python_lost(faults))
}
