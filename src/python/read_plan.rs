//! The plan of a read, cut into pieces for tasks, or read in the order of the log; and files as a plan saw them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::Arc;

use arrow_array::RecordBatch;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple};

use super::batch_stream::{BatchStream, Batches, batch_reader};
use super::commit_log::{PyCommitLog, Settings};
use super::decode::{Decoding, Measured};
use super::handle::{Closable, Raised};
use super::{convert, integer};
use crate::error::Result;
use crate::io::storage::{self, Identity};
use crate::io::{Location, PlannedFile};
use crate::report::Finding;
use crate::rocketmq::commit_log::{Lost, PlannedLog};
use crate::rocketmq::store::{MessageStream, Plan, Queues, ScanChoice, TaskPiece};

register! {
    class PyReadPlan, PyMessageStream, PyPlannedLog;
    fn _planned_log, plan_log, plan_files, planned_file_faults
}

/// Parses "auto", True or False.
pub(super) fn scan_choice(value: &Bound<'_, PyAny>) -> PyResult<ScanChoice> {
    match value.cast::<PyBool>() {
        Ok(choice) => Ok(if choice.is_true() { ScanChoice::Always } else { ScanChoice::Never }),
        Err(_) if value.extract::<&str>().is_ok_and(|word| word == "auto") => Ok(ScanChoice::Auto),
        Err(_) => Err(PyValueError::new_err(format!("scan={}: expected \"auto\", True or False", value.repr()?))),
    }
}

/// Calls with a function that asks Python for the topics of the store, while other threads run.
pub(super) fn with_known_topics<T: Send>(
    py: Python<'_>,
    known_topics: Option<Py<PyAny>>,
    call: impl FnOnce(&(dyn Fn() -> Result<Option<Vec<String>>> + Sync)) -> Result<T> + Send,
) -> PyResult<T> {
    let raised = Raised::default();
    let known = || {
        let Some(known_topics) = &known_topics else { return Ok(None) };
        let topics = Python::attach(|py| known_topics.call0(py)?.extract(py));
        raised.keep(topics, "the topics of the store are not known")
    };
    let answer = py.detach(|| call(&known));
    raised.check(answer)
}

/// The plan of a read, for tasks.
#[pyclass(name = "ReadPlan", module = "logdex._core", frozen)]
pub(super) struct PyReadPlan {
    pub(super) plan: Plan,
    pub(super) queues: Arc<Queues>,
}

/// The arguments of the pieces of a plan, by their kind: of queues, at offsets, and of the log.
type Pieces<'py> = (Vec<Bound<'py, PyTuple>>, Vec<Bound<'py, PyTuple>>, Vec<Bound<'py, PyTuple>>);

#[pymethods]
impl PyReadPlan {
    /// About how many bytes of the log are read.
    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(py.detach(|| self.plan.bytes())?)
    }

    /// Texts for the log of the program.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.plan.notes.clone()
    }

    /// Return the missing parts of the log that may hold a match, as findings.
    fn gaps(&self, py: Python<'_>) -> PyResult<Vec<Finding>> {
        Ok(py.detach(|| self.plan.gaps())?)
    }

    /// Cut the plan into pieces of about `piece_bytes` bytes.
    ///
    /// Args:
    ///     log: The log of the store.
    ///     piece_bytes: Bytes of a piece.
    ///
    /// Returns:
    ///     Parts of queues: topic, queue id, directory, first unit, unit after the last, range of the log as two offsets, about how many
    ///     bytes, and the ranges that no file of the log holds. Messages at known offsets: the offsets, about how many bytes, and the
    ///     plan of their files. Parts of the log: the first offset, the one after the last, and the plan of the file.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn cut<'py>(
        &self,
        py: Python<'py>,
        log: &PyCommitLog,
        #[pyo3(from_py_with = integer::piece_bytes)] piece_bytes: u64,
    ) -> PyResult<Pieces<'py>> {
        let (mut queued, mut at_offsets, mut scanned) = (Vec::new(), Vec::new(), Vec::new());
        let mut last: Option<(Arc<PlannedLog>, Py<PyPlannedLog>)> = None;
        for piece in py.detach(|| self.plan.cut(&self.queues, piece_bytes))? {
            let bytes = piece.bytes();
            match piece {
                TaskPiece::Queue(piece) => {
                    let ((first, end), (begin, after)) = (piece.units.units, piece.units.range);
                    let missing = PyTuple::new(py, &piece.missing)?;
                    let place = (piece.topic, piece.queue_id, piece.directory);
                    queued
                        .push((place.0, place.1, place.2, first, end, begin, after, bytes, missing).into_pyobject(py)?);
                }
                TaskPiece::Offsets(offsets, planned) => {
                    let planned = PyPlannedLog::new(planned, log);
                    at_offsets.push((PyTuple::new(py, &offsets)?, bytes, planned).into_pyobject(py)?);
                }
                TaskPiece::Log((begin, end), planned) => {
                    // Pieces of one file share a plan.
                    let shared = last.take().filter(|(of, _)| Arc::ptr_eq(of, &planned));
                    let (planned, object) = match shared {
                        Some(shared) => shared,
                        None => (Arc::clone(&planned), Py::new(py, PyPlannedLog::new(planned, log))?),
                    };
                    scanned.push((begin, end, object.clone_ref(py)).into_pyobject(py)?);
                    last = Some((planned, object));
                }
            }
        }
        Ok((queued, at_offsets, scanned))
    }
}

/// The state of a stream.
#[derive(Clone)]
pub(super) struct Notes {
    findings: Vec<Finding>,
    texts: Vec<String>,
    queued_topics: Arc<BTreeSet<String>>,
}

impl Batches for MessageStream {
    type Notes = Notes;

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        Self::next_batch(self)
    }

    fn notes(&self) -> Notes {
        let plan = self.plan();
        let queued_topics = Arc::clone(&plan.queued_topics);
        Notes { findings: self.findings().to_vec(), texts: plan.notes.clone(), queued_topics }
    }
}

impl Measured for MessageStream {
    fn progress(&mut self) -> Result<(u64, u64)> {
        Self::progress(self)
    }
}

/// The messages of a store that pass a filter, in the order of the log, as record batches: an iterator, and an Arrow stream.
#[pyclass(name = "MessageStream", module = "logdex._core", frozen)]
pub(super) struct PyMessageStream(BatchStream<Decoding<MessageStream>>);

impl PyMessageStream {
    pub(super) fn new(stream: Decoding<MessageStream>) -> Self {
        Self(BatchStream::new(stream))
    }
}

batch_reader! {
    PyMessageStream {
        /// Return the missing and damaged places that were passed over, and the texts for the log of the program, without the first
        /// ones of each.
        fn news(&self, py: Python<'_>, findings: usize, texts: usize) -> PyResult<(Vec<Finding>, Vec<String>)> {
            let notes = self.0.notes(py)?;
            Ok((notes.findings.into_iter().skip(findings).collect(), notes.texts.into_iter().skip(texts).collect()))
        }

        /// The requested topics that have queues, as far as they were looked up.
        #[getter]
        fn queued_topics(&self, py: Python<'_>) -> PyResult<Vec<String>> {
            Ok(self.0.notes(py)?.queued_topics.iter().cloned().collect())
        }
    }
}

/// Path, length, CRC-32 of the first 64 bytes if they are written, and `ETag`.
type Planned = (OsString, u64, Option<u32>, Option<String>);

/// Files of a commit log that a reader needs, as a plan saw them: `plan_log` and `ReadPlan.cut` return it.
///
/// It pickles, so that a process on another machine can open these files, or report which of them it lacks.
#[pyclass(name = "PlannedLog", module = "logdex._core", frozen)]
pub(super) struct PyPlannedLog {
    planned: Arc<PlannedLog>,
    directory: Location,
    settings: Settings,
}

impl PyPlannedLog {
    pub(super) fn new(planned: Arc<PlannedLog>, log: &PyCommitLog) -> Self {
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
