//! `Queues`: the consume queues of a store.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::Int64Array;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};

use super::closable::Closable;
use super::commit_log::{Part, PyCommitLog, gap_parts};
use super::consume_queue::{PyConsumeQueue, Settings};
use super::convert;
use super::integer;
use crate::io::Location;
use crate::rocketmq::consume_queue::ConsumeQueue;
use crate::rocketmq::store::Queues;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyQueues>()
}

/// Topics, log offsets, and gaps with their findings: see `totals`.
type QueueTotals<'py> = (Vec<(String, u64, i64, Option<u64>)>, Bound<'py, PyAny>, Vec<Part<'py>>);

/// The consume queues of a store. Recently used queues stay open.
#[pyclass(name = "Queues", module = "logdex._core", frozen)]
pub(super) struct PyQueues {
    queues: Arc<Closable<Queues>>,
    log: Py<PyCommitLog>,
    settings: Settings,
}

impl PyQueues {
    pub(super) fn inner(&self) -> PyResult<Arc<Queues>> {
        self.queues.get()
    }

    /// Returns a queue for Python, which is closed with the queues of the store.
    fn handle(&self, py: Python<'_>, queue: Arc<ConsumeQueue>) -> PyConsumeQueue {
        PyConsumeQueue::of(queue, self.log.clone_ref(py), self.settings.clone(), Arc::clone(&self.queues))
    }
}

/// The topics of an argument. A text that is not valid Unicode is no topic.
fn names(topics: Option<Bound<'_, PyAny>>) -> PyResult<Option<Vec<String>>> {
    let Some(topics) = topics else { return Ok(None) };
    let mut names = Vec::new();
    for topic in topics.try_iter()? {
        if let Ok(name) = topic?.cast::<PyString>()?.to_cow() {
            names.push(name.into_owned());
        }
    }
    Ok(Some(names))
}

#[pymethods]
impl PyQueues {
    /// Use the queues of a store. Nothing is read.
    ///
    /// Args:
    ///     root: The root of the store.
    ///     commit_log: Its log.
    ///     access: "auto" (by `pread`), "mmap" or "pread".
    ///     compat: The broker release whose answers are returned.
    ///     clock_slack_ms: How far the broker's clock may have stepped back, in ms.
    #[new]
    #[pyo3(signature = (root, commit_log, *, access="auto", compat=None, clock_slack_ms=3_600_000))]
    fn new(
        root: Location,
        commit_log: Py<PyCommitLog>,
        access: &str,
        compat: Option<&str>,
        #[pyo3(from_py_with = integer::clock_slack_ms)] clock_slack_ms: i64,
    ) -> PyResult<Self> {
        let settings = Settings::new(access, compat, clock_slack_ms);
        let log = commit_log.get().inner()?;
        let queues = Queues::new(&root, log, settings.options()?);
        Ok(Self { queues: Arc::new(Closable::new(queues, root)), log: commit_log, settings })
    }

    /// Return whether the queues are files: a 5.x broker may keep them in a RocksDB in the same directory.
    fn is_readable(&self, py: Python<'_>) -> PyResult<bool> {
        let queues = self.inner()?;
        Ok(py.detach(|| queues.is_readable())?)
    }

    /// Return the directories of the queues of these topics, or of all, by topic and queue id. Directories without files are left out.
    #[pyo3(signature = (topics=None))]
    fn directories(
        &self,
        py: Python<'_>,
        topics: Option<Bound<'_, PyAny>>,
    ) -> PyResult<HashMap<(String, i32), Vec<Location>>> {
        let (queues, topics) = (self.inner()?, names(topics)?);
        Ok(py.detach(|| queues.directories(topics.as_deref()))?.into_iter().collect())
    }

    /// Return the topics that have a queue, sorted.
    fn topics(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let queues = self.inner()?;
        Ok(py.detach(|| queues.topics())?)
    }

    /// Count the messages of these topics, or of all, in one pass over the directories.
    ///
    /// Args:
    ///     topics: Only queues of these topics; None: all.
    ///     measure: Add up the bytes of the messages in the log; this reads all units.
    ///
    /// Returns:
    ///     Topic, queues, messages and measured bytes (else None) of each topic, sorted. The log offsets of the first and last
    ///     message of each queue (int64). The ranges of bytes that are missing between the files of a queue, each with its finding.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    #[pyo3(signature = (topics=None, *, measure=false))]
    fn totals<'py>(
        &self,
        py: Python<'py>,
        topics: Option<Bound<'_, PyAny>>,
        measure: bool,
    ) -> PyResult<QueueTotals<'py>> {
        let (queues, topics, threads) = (self.inner()?, names(topics)?, convert::threads(None)?);
        let found = py.detach(|| queues.totals(topics.as_deref(), measure, threads))?;
        let rows = found.topics.into_iter().map(|each| (each.topic, each.queues, each.messages, each.bytes)).collect();
        let ends = convert::arro3_array(py, Arc::new(Int64Array::from(found.ends)))?;
        Ok((rows, ends, gap_parts(py, &found.gaps)?))
    }

    /// Open the queue of a directory.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn open(&self, py: Python<'_>, directory: Location) -> PyResult<PyConsumeQueue> {
        let queues = self.inner()?;
        let queue = py.detach(|| queues.open(&directory))?;
        Ok(self.handle(py, queue))
    }

    /// Open the queue of a topic.
    ///
    /// Raises:
    ///     FileNotFoundError: It has no files.
    fn queue(
        &self,
        py: Python<'_>,
        topic: Bound<'_, PyString>,
        queue_id: Bound<'_, PyInt>,
    ) -> PyResult<PyConsumeQueue> {
        let (queues, queue_id) = (self.inner()?, queue_id.to_string());
        let topic = topic.to_string_lossy().into_owned();
        let queue = py.detach(|| queues.queue(&topic, &queue_id))?;
        Ok(self.handle(py, queue))
    }

    /// Return the log offset of the first of the last `num` units of some queues together; None without units.
    ///
    /// Args:
    ///     num: The number of units.
    ///     topics: Only queues of these topics; None: all.
    ///     queue_id: Only this queue of each topic.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn start_of_last(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::num)] num: i64,
        topics: Option<Bound<'_, PyAny>>,
        queue_id: Option<i64>,
    ) -> PyResult<Option<u64>> {
        let (queues, topics) = (self.inner()?, names(topics)?);
        Ok(py.detach(|| queues.start_of_last(num, topics.as_deref(), queue_id))?)
    }

    /// Return the sizes of the files as keywords of `ConsumeQueueWriter.create`; unknown ones are left out.
    fn file_sizes(&self, py: Python<'_>) -> PyResult<HashMap<&'static str, u64>> {
        let queues = self.inner()?;
        let sizes = py.detach(|| queues.file_sizes())?;
        let names = ["file_size", "batch_file_size", "extension_file_size"];
        Ok(names.into_iter().zip(sizes).filter_map(|(name, size)| Some((name, size?))).collect())
    }

    /// Close the queues. A call in another thread ends first. A second call does nothing.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.queues.close()));
    }
}
