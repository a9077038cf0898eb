//! `ReadPlan` and `MessageStream`: the plan of a read, cut into pieces for tasks, or read in the order of the log.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple};

use super::batch_stream::{BatchStream, Batches, batch_reader};
use super::commit_log::PyCommitLog;
use super::integer;
use super::planned_log::PyPlannedLog;
use super::report;
use crate::error::{Error, Result};
use crate::report::Finding;
use crate::rocketmq::commit_log::PlannedLog;
use crate::rocketmq::store::{MessageStream, Plan, Queues, ScanChoice, TaskPiece};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyReadPlan>()?;
    m.add_class::<PyMessageStream>()
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
    let raised = Mutex::new(None);
    let known = || {
        let Some(known_topics) = &known_topics else { return Ok(None) };
        Python::attach(|py| known_topics.call0(py)?.extract(py)).map_err(|error| {
            *raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            Error::InvalidArgument("the topics of the store are not known".to_owned())
        })
    };
    let answer = py.detach(|| call(&known));
    if let Some(error) = raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    Ok(answer?)
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
    fn gaps<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        report::findings(py, &py.detach(|| self.plan.gaps())?)
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

/// The messages of a store that pass a filter, in the order of the log, as record batches: an iterator, and an Arrow stream.
#[pyclass(name = "MessageStream", module = "logdex._core", frozen)]
pub(super) struct PyMessageStream(BatchStream<MessageStream>);

impl PyMessageStream {
    pub(super) fn new(stream: MessageStream) -> Self {
        Self(BatchStream::new(stream))
    }
}

batch_reader! {
    PyMessageStream {
        /// Return the missing and damaged places that were passed over, and the texts for the log of the program, without the first
        /// ones of each.
        fn news<'py>(
            &self,
            py: Python<'py>,
            findings: usize,
            texts: usize,
        ) -> PyResult<(Vec<Bound<'py, PyAny>>, Vec<String>)> {
            let notes = self.0.notes(py)?;
            let found = notes.findings.get(findings..).unwrap_or_default();
            Ok((report::findings(py, found)?, notes.texts.get(texts..).unwrap_or_default().to_vec()))
        }

        /// The requested topics that have queues, as far as they were looked up.
        #[getter]
        fn queued_topics(&self, py: Python<'_>) -> PyResult<Vec<String>> {
            Ok(self.0.notes(py)?.queued_topics.iter().cloned().collect())
        }
    }
}
