//! The consume queues of a store: `Queues`, `QueueReader`, which reads their messages in the order of the log, and `QueueCrossCheck`.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};
use pyo3_arrow::PyRecordBatch;

use super::batch_stream::{BatchStream, Batches, batch_reader};
use super::commit_log::{Part, PyCommitLog, bodies, columns, gap_parts};
use super::consume_queue::{PyConsumeQueue, Settings};
use super::convert::{self, ArrowArray, log_offset};
use super::handle::{Closable, Finishable};
use super::integer;
use super::messages::PyMessageFilter;
use crate::error::Result;
use crate::io::Location;
use crate::report::{Finding, Report};
use crate::rocketmq::consume_queue::{ConsumeQueue, CrossCheck, Options, StoreState};
use crate::rocketmq::queue_stream::{QueuePart, QueueStream, StreamOptions};
use crate::rocketmq::store::Queues;

register! { class PyQueues, PyQueueReader, PyQueueCrossCheck }

/// Topics, log offsets, and gaps with their findings: see `totals`.
type QueueTotals = (Vec<(String, u64, i64, Option<u64>)>, ArrowArray, Vec<Part>);

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
        self.queues.call(py, Queues::is_readable)
    }

    /// Return the directories of the queues of these topics, or of all, by topic and queue id. Directories without files are left out.
    #[pyo3(signature = (topics=None))]
    fn directories(
        &self,
        py: Python<'_>,
        topics: Option<Bound<'_, PyAny>>,
    ) -> PyResult<HashMap<(String, i32), Vec<Location>>> {
        let topics = names(topics)?;
        let found = self.queues.call(py, |queues| queues.directories(topics.as_deref()))?;
        Ok(found.into_iter().collect())
    }

    /// Return the topics that have a queue, sorted.
    fn topics(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.queues.call(py, Queues::topics)
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
    fn totals(&self, py: Python<'_>, topics: Option<Bound<'_, PyAny>>, measure: bool) -> PyResult<QueueTotals> {
        let (topics, threads) = (names(topics)?, convert::threads(None)?);
        let found = self.queues.call(py, |queues| queues.totals(topics.as_deref(), measure, threads))?;
        let rows = found.topics.into_iter().map(|each| (each.topic, each.queues, each.messages, each.bytes)).collect();
        Ok((rows, ArrowArray(Arc::new(Int64Array::from(found.ends))), gap_parts(&found.gaps)))
    }

    /// Open the queue of a directory.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn open(&self, py: Python<'_>, directory: Location) -> PyResult<PyConsumeQueue> {
        let queue = self.queues.call(py, |queues| queues.open(&directory))?;
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
        let (topic, queue_id) = (topic.to_string_lossy().into_owned(), queue_id.to_string());
        let queue = self.queues.call(py, |queues| queues.queue(&topic, &queue_id))?;
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
        let topics = names(topics)?;
        self.queues.call(py, |queues| queues.start_of_last(num, topics.as_deref(), queue_id))
    }

    /// Return the sizes of the files as keywords of `ConsumeQueueWriter.create`; unknown ones are left out.
    fn file_sizes(&self, py: Python<'_>) -> PyResult<HashMap<&'static str, u64>> {
        let sizes = self.queues.call(py, Queues::file_sizes)?;
        let names = ["file_size", "batch_file_size", "extension_file_size"];
        Ok(names.into_iter().zip(sizes).filter_map(|(name, size)| Some((name, size?))).collect())
    }

    /// Close the queues. A call in another thread ends first. A second call does nothing.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.queues.close()));
    }
}

/// The place that a stream reached, the reason for an early end, and the bodies that could not be searched.
#[derive(Clone)]
pub(super) struct Notes {
    position: u64,
    fault: Option<String>,
    unsearched: Vec<Finding>,
}

impl Batches for QueueStream {
    type Notes = Notes;

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        Self::next_batch(self)
    }

    fn notes(&self) -> Notes {
        let fault = self.fault().map(str::to_owned);
        Notes { position: self.position(), fault, unsearched: self.unsearched() }
    }
}

/// A part of a queue: topic, queue id, queue, first queue offset and the one after the last. None: as far as the times of
/// the filter reach.
type GivenPart<'py> = (Bound<'py, PyString>, i64, PyRef<'py, PyConsumeQueue>, Option<i64>, Option<i64>);

/// The messages of parts of queues, in the order of the log: an iterator of record batches, and an Arrow stream.
///
/// Each unit must lead to its message, and no message between two units may be missing. Where a queue turns out to be damaged
/// the reader ends at `position`, before which it missed nothing, and `fault` is the reason.
#[pyclass(name = "QueueReader", module = "logdex._core", frozen)]
pub(super) struct PyQueueReader(BatchStream<QueueStream>);

batch_reader! {
    PyQueueReader {
        /// Read messages from queues.
        ///
        /// Args:
        ///     log: The log of the store.
        ///     parts: A tuple for each part: topic, queue id, queue, first queue offset, queue offset after the last; without
        ///         one of them as far as the times of the filter reach.
        ///     begin_phy_offset: No message begins before it; None: the start of the log.
        ///     end_phy_offset: No message begins at or after it; None: no bound.
        ///     columns: Names of message columns; all where not given.
        ///     body: "decoded" or "stored".
        ///     batch_size: The most rows of a batch, which ends earlier at 64 MiB; None: 8,192, or fewer in 3 MiB.
        ///     selection: Which of the messages are returned.
        ///     threads: Number of threads that read and decode; None: as many as there are processors, at most 4. With more than one,
        ///         batches may end before `batch_size`.
        ///
        /// Raises:
        ///     OSError: An I/O error; raised by the reader, too.
        ///     ValueError: An unknown column or word.
        #[new]
        #[pyo3(signature = (log, parts, *, begin_phy_offset=None, end_phy_offset=None, columns=None, body="decoded", batch_size=None, selection=None, threads=1))]
        #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
        fn new(
            py: Python<'_>,
            log: &PyCommitLog,
            parts: Vec<GivenPart<'_>>,
            #[pyo3(from_py_with = integer::begin_phy_offset)] begin_phy_offset: Option<i64>,
            #[pyo3(from_py_with = integer::end_phy_offset)] end_phy_offset: Option<i64>,
            columns: Option<&Bound<'_, PyAny>>,
            body: &str,
            #[pyo3(from_py_with = integer::batch_size)] batch_size: Option<i64>,
            selection: Option<&Bound<'_, PyMessageFilter>>,
            #[pyo3(from_py_with = integer::threads)] threads: Option<i64>,
        ) -> PyResult<Self> {
            let log = log.inner()?;
            let options = StreamOptions {
                begin_phy_offset: log_offset(begin_phy_offset, 0),
                end_phy_offset: log_offset(end_phy_offset, u64::MAX),
                columns: self::columns(columns)?,
                bodies: bodies(body)?,
                batch_size: convert::batch_of_rows(batch_size)?,
                filter: PyMessageFilter::of(selection),
                threads: convert::threads(threads)?,
            };
            let mut given = Vec::with_capacity(parts.len());
            for (topic, queue_id, queue, first, last) in parts {
                given.push((topic.to_string_lossy().into_owned(), queue_id, queue.inner()?, first, last));
            }
            let stream = py.detach(|| {
                let mut parts = Vec::with_capacity(given.len());
                for (topic, queue_id, queue, first, last) in given {
                    parts.push(match (first, last) {
                        (Some(begin), Some(end)) => QueuePart { topic, queue_id, queue, begin, end },
                        _ => QueuePart::matching(queue, topic, queue_id, &options.filter)?,
                    });
                }
                QueueStream::new(&log, parts, options)
            })?;
            Ok(Self(BatchStream::new(stream)))
        }

        /// Offset in the log before which no message of the parts is missing; the end of the range once all was read.
        #[getter]
        fn position(&self, py: Python<'_>) -> PyResult<u64> {
            Ok(self.0.notes(py)?.position)
        }

        /// The bodies so far that could not be searched for the pattern of a selection, as a list of `logdex.report.Finding`.
        #[getter]
        fn unsearched(&self, py: Python<'_>) -> PyResult<Vec<Finding>> {
            Ok(self.0.notes(py)?.unsearched)
        }

        /// The reason for an end before the end of the range; None without one.
        #[getter]
        fn fault(&self, py: Python<'_>) -> PyResult<Option<String>> {
            Ok(self.0.notes(py)?.fault)
        }
    }
}

/// Compares the consume queues of a store with the messages of its log.
///
/// The order of calls: `check` for each batch of a salvaging scan, then `finish`.
#[pyclass(name = "QueueCrossCheck", module = "logdex._core", frozen)]
struct PyQueueCrossCheck(Finishable<CrossCheck>);

#[pymethods]
impl PyQueueCrossCheck {
    /// List the queues of a store and check their files.
    ///
    /// Args:
    ///     root: The root of the store.
    ///     log: Its log.
    ///     unclean: The store is open for writing, or was not closed: the last messages may lack their units.
    ///     dispatched_by_queue: The writer dispatches queue by queue, so each queue may end at another message.
    ///     topics: The topics of the store's configuration; messages of other topics may lack their queue. Empty: unknown.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    #[new]
    #[pyo3(signature = (root, log, *, unclean, dispatched_by_queue, topics))]
    fn new(
        py: Python<'_>,
        root: Location,
        log: &PyCommitLog,
        unclean: bool,
        dispatched_by_queue: bool,
        topics: Vec<Bound<'_, PyString>>,
    ) -> PyResult<Self> {
        let topics = topics.iter().map(|topic| topic.to_string_lossy().into_owned()).collect();
        let state = StoreState { is_unclean: unclean, is_dispatched_by_queue: dispatched_by_queue, topics };
        let (access, compat) = log.reading()?;
        let options = Options { access, compat, ..Options::default() };
        let log = log.inner()?;
        let check = py.detach(|| CrossCheck::open(&root, log, &options, state))?;
        Ok(Self(Finishable::new(check, "the check is finished")))
    }

    /// The number of queues.
    #[getter]
    fn queues(&self, py: Python<'_>) -> PyResult<usize> {
        self.0.call(py, |check| Ok(check.queues()))
    }

    /// Compare a batch of messages, the next one of the log, with their units. Without queues nothing is compared.
    ///
    /// Args:
    ///     messages: An Arrow record batch with `topic`, `queue_id`, `queue_offset`, `phy_offset`, `store_size`, `sys_flag`
    ///         and `tags`.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    ///     ValueError: A column is missing, of another type, or null where a message must have a value; or the check is
    ///         finished.
    ///
    /// Source: `MessageExtBrokerInner#tagsString2tagsCode`.
    fn check(&self, py: Python<'_>, messages: PyRecordBatch) -> PyResult<()> {
        let messages = messages.into_inner();
        self.0.call(py, |check| check.check(&messages))
    }

    /// Check the units that no message had, and report the messages without a unit.
    ///
    /// Returns:
    ///     A `logdex.report.Report`. Checked: files, units, queues, units_followed, messages_not_dispatched and
    ///     messages_of_deleted_topics.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    ///     ValueError: It was called before.
    fn finish(&self, py: Python<'_>) -> PyResult<Report> {
        self.0.finish(py, CrossCheck::finish)
    }
}
