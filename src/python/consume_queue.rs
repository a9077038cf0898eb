//! `ConsumeQueue`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3_arrow::PyRecordBatch;

use super::commit_log::{Part, PyCommitLog, gap_parts};
use super::convert::{self, ArrowBatch};
use super::handle::Closable;
use super::integer;
use super::location;
use super::time::{self, Round};
use crate::error::Result;
use crate::io::{Location, usize_of};
use crate::report::Report;
use crate::rocketmq::consume_queue::{self, Boundary, ConsumeQueue, Kind, Options, extension_batch};
use crate::rocketmq::schedule;
use crate::rocketmq::store::Queues;
use crate::rocketmq::stored_frames::{self, Limits, QueueView, Status};

/// Return the hash of tags by which a broker filters: Java's `String.hashCode`.
#[pyfunction]
fn tags_hash(tags: &str) -> i32 {
    consume_queue::tags_hash(tags)
}

register! { class PyConsumeQueue, PyQueueView; fn tags_hash, _open_consume_queue, delivered_levels }

/// Return the delivery progress of a copy's delay levels, after a batch of messages was copied.
///
/// Args:
///     messages: An Arrow record batch with `topic`, `queue_id` and `queue_offset`, as in the store that is copied.
///     copies: A record batch with the `queue_offset` of each copy.
///     delivered: The delivery progress of the levels in the store that is copied.
///
/// Returns:
///     The queue offset after the last copy, for each level with a delivered message in the batch.
///
/// Raises:
///     ValueError: A column is missing, of another type, or null.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "arguments from Python are owned")]
fn delivered_levels(
    messages: PyRecordBatch,
    copies: PyRecordBatch,
    delivered: HashMap<i32, i64>,
) -> PyResult<HashMap<i32, i64>> {
    Ok(schedule::delivered_levels(messages.as_ref(), copies.as_ref(), &delivered)?)
}

/// Messages, the queue offset to continue from, and the messages that cannot be delivered with the reason.
type DueMessages = (ArrowBatch, i64, Vec<(i64, &'static str)>);

/// The queue of a topic, read-only: for each message its place in the commit log.
///
/// Queue offsets number the messages of the queue. Every call lists the directory, because a broker adds and deletes files. Any
/// thread may call. With compat the answers are those of that release after a clean start, faults included. Without compat, valid
/// units after a damaged unit are read as well, and filling does not count as a message.
#[pyclass(name = "ConsumeQueue", module = "logdex._core", frozen)]
pub(super) struct PyConsumeQueue {
    queue: Closable<ConsumeQueue>,
    commit_log: Option<Py<PyCommitLog>>,
    extension: Option<Location>,
    settings: Settings,
    log_end: Option<i64>,
    /// The queues of the store that it belongs to.
    owner: Option<Arc<Closable<Queues>>>,
}

/// The options of queues, as they were given.
#[derive(Clone)]
pub(super) struct Settings {
    access: String,
    compat: Option<String>,
    clock_slack_ms: i64,
}

impl Settings {
    pub(super) fn new(access: &str, compat: Option<&str>, clock_slack_ms: i64) -> Self {
        Self { access: access.to_owned(), compat: compat.map(str::to_owned), clock_slack_ms }
    }

    /// Returns the options that they mean.
    pub(super) fn options(&self) -> PyResult<Options> {
        let (access, compat) = (convert::access(&self.access)?, convert::compat(self.compat.as_deref())?);
        Ok(Options { access, compat, clock_slack_ms: self.clock_slack_ms, ..Options::default() })
    }
}

impl PyConsumeQueue {
    /// A queue that others use, too.
    pub(super) fn of(
        queue: Arc<ConsumeQueue>,
        commit_log: Py<PyCommitLog>,
        settings: Settings,
        owner: Arc<Closable<Queues>>,
    ) -> Self {
        let (path, extension) = (queue.path().clone(), queue.options().extension.clone());
        let (queue, commit_log, owner) = (Closable::of(queue, path), Some(commit_log), Some(owner));
        Self { queue, commit_log, extension, settings, log_end: None, owner }
    }

    pub(super) fn inner(&self) -> PyResult<Arc<ConsumeQueue>> {
        if let Some(owner) = &self.owner {
            owner.get()?;
        }
        self.queue.get()
    }

    /// Calls with the queue while other threads run Python.
    fn call<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&Arc<ConsumeQueue>) -> Result<T> + Send) -> PyResult<T> {
        let queue = self.inner()?;
        Ok(py.detach(|| call(&queue))?)
    }
}

/// Unpickle a queue.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
fn _open_consume_queue(
    py: Python<'_>,
    directory: Location,
    commit_log: Option<Py<PyCommitLog>>,
    extension: Option<Location>,
    access: &str,
    compat: Option<&str>,
    log_end: Option<i64>,
    clock_slack_ms: i64,
) -> PyResult<PyConsumeQueue> {
    PyConsumeQueue::open(py, directory, commit_log, extension, access, compat, log_end, clock_slack_ms, None)
}

/// The arguments that open a queue again.
type Arguments<'a> =
    (Location, Option<&'a Py<PyCommitLog>>, Option<Location>, String, Option<String>, Option<i64>, i64);

#[pymethods]
impl PyConsumeQueue {
    /// Open the directory of a queue, `consumequeue/TOPIC/QUEUE` or `batchconsumequeue/TOPIC/QUEUE` of a store.
    ///
    /// Args:
    ///     directory: The directory. In `batchconsumequeue` it is a batch queue of 5.x.
    ///     commit_log: The store's log. It shows which messages are deleted, and the times of messages.
    ///     extension: The directory of the queue's extension files, `consumequeue_ext/TOPIC/QUEUE`.
    ///     access: "auto" (by `pread`), "mmap" or "pread".
    ///     compat: The broker release whose answers are returned.
    ///     log_end: With compat: the end of the log after the broker's start (`CommitLog.recovery`); None: its max_offset.
    ///     clock_slack_ms: How far the broker's clock may have stepped back. `offset_by_time` uses it in queues of more than
    ///         65536 units.
    ///     storage_options: Options of the store of a URL, by the names of the object_store crate.
    ///
    /// Raises:
    ///     OSError: The directory cannot be read.
    #[staticmethod]
    #[pyo3(signature = (directory, *, commit_log=None, extension=None, access="auto", compat=None, log_end=None, clock_slack_ms=3_600_000, storage_options=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn open(
        py: Python<'_>,
        directory: Location,
        commit_log: Option<Py<PyCommitLog>>,
        extension: Option<Location>,
        access: &str,
        compat: Option<&str>,
        #[pyo3(from_py_with = integer::log_end)] log_end: Option<i64>,
        #[pyo3(from_py_with = integer::clock_slack_ms)] clock_slack_ms: i64,
        storage_options: Option<BTreeMap<String, String>>,
    ) -> PyResult<Self> {
        let directory = location::located(directory, storage_options);
        let settings = Settings::new(access, compat, clock_slack_ms);
        let options = Options {
            commit_log: commit_log.as_ref().map(|log| log.get().inner()).transpose()?,
            extension: extension.clone(),
            log_end,
            ..settings.options()?
        };
        let queue = py.detach(|| ConsumeQueue::open(&directory, options))?;
        Ok(Self { queue: Closable::new(queue, directory), commit_log, extension, settings, log_end, owner: None })
    }

    /// The directory.
    #[getter]
    fn path(&self) -> Location {
        self.queue.path().to_owned()
    }

    /// "plain", or "batch": one unit for several messages.
    #[getter]
    fn kind(&self) -> PyResult<&'static str> {
        Ok(match self.inner()?.kind() {
            Kind::Plain => "plain",
            Kind::Batch => "batch",
        })
    }

    /// The queue's files in the order of their offsets, without strays.
    #[getter]
    fn files(&self, py: Python<'_>) -> PyResult<Vec<Location>> {
        let files = self.call(py, |queue| queue.files())?;
        Ok(files.into_iter().map(|file| file.path).collect())
    }

    /// Length of the queue's files in bytes: the most frequent one; 0 without files.
    #[getter]
    fn file_size(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |queue| queue.file_size())
    }

    /// Queue offset of the first message that the log still has; `max_offset` if it has none.
    #[getter]
    fn min_offset(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.call(py, |queue| queue.bounds())?.0)
    }

    /// Queue offset after the last message.
    #[getter]
    fn max_offset(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.call(py, |queue| queue.bounds())?.1)
    }

    /// Offset in the commit log after the message of the last unit; -1 without a unit.
    #[getter]
    fn log_end(&self, py: Python<'_>) -> PyResult<i64> {
        self.call(py, |queue| queue.log_end())
    }

    /// Return the units of the messages from one queue offset to before another.
    ///
    /// Args:
    ///     begin: First queue offset; None: the first unit.
    ///     end: Queue offset after the last; None: all.
    ///
    /// Returns:
    ///     A record batch of `queue_offset` (int64), `phy_offset` (int64), `size` (int32) and `tags_code` (int64, as stored). The
    ///     tags code may also be the address of an extension unit, or the time of delivery of a scheduled message. A batch queue
    ///     also has `messages` (int32) and `store_timestamp`. It returns each unit that holds one of the offsets, with the
    ///     `queue_offset` of its first message. Units without a message are left out; in compat only units outside of the queue's
    ///     bounds are.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    #[pyo3(signature = (begin=None, end=None))]
    fn units(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::begin)] begin: Option<i64>,
        #[pyo3(from_py_with = integer::end)] end: Option<i64>,
    ) -> PyResult<ArrowBatch> {
        self.call(py, |queue| queue.unit_batch(begin.unwrap_or(0), end.unwrap_or(i64::MAX))).map(ArrowBatch)
    }

    /// Return the queue and its log as they are now, for many pulls at one moment.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    ///     ValueError: The queue was opened without its commit log.
    fn view(&self, py: Python<'_>) -> PyResult<PyQueueView> {
        self.call(py, |queue| QueueView::open(Arc::clone(queue))).map(PyQueueView)
    }

    /// Return the store time in ms of the message at a queue offset; None if there is none.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    ///     ValueError: The queue was opened without its commit log.
    fn store_timestamp(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::queue_offset)] queue_offset: i64,
    ) -> PyResult<Option<i64>> {
        self.call(py, |queue| stored_frames::store_timestamp(queue, queue_offset))
    }

    /// Return the number of messages from one queue offset to before another, and the bytes of their frames in the log.
    ///
    /// Args:
    ///     begin: First queue offset; None: the first unit.
    ///     end: Queue offset after the last; None: all.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    #[pyo3(signature = (begin=None, end=None))]
    fn measure(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::begin)] begin: Option<i64>,
        #[pyo3(from_py_with = integer::end)] end: Option<i64>,
    ) -> PyResult<(u64, u64)> {
        self.call(py, |queue| queue.measure(begin.unwrap_or(0), end.unwrap_or(i64::MAX)))
    }

    /// Return the extension units at these addresses, which are tags codes of units.
    ///
    /// Args:
    ///     addresses: An Arrow column or a sequence of integers.
    ///
    /// Returns:
    ///     A record batch of `tags_code` (int64), `store_timestamp` and `bit_map` (binary), one row for each address. The row is
    ///     null if the address has no unit.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    ///     ValueError: The queue was opened without its extension directory.
    ///
    /// Source: `ConsumeQueueExt`.
    fn extension_units(&self, py: Python<'_>, addresses: &Bound<'_, PyAny>) -> PyResult<ArrowBatch> {
        let addresses = convert::int64_column(addresses, "addresses")?;
        self.call(py, |queue| Ok(ArrowBatch(extension_batch(&queue.extension_units(&addresses)?))))
    }

    /// Read the next due messages of a delay level, ready to be put under their own topics.
    ///
    /// Args:
    ///     begin: Queue offset to begin at.
    ///     now: The time, ms since the epoch.
    ///     delay_ms: The delay of the level. A unit whose time is further ahead is due, too.
    ///
    /// Returns:
    ///     None if no more are due. Otherwise a record batch with bodies as they are stored, possibly without rows; the queue
    ///     offset to continue from; and the messages that cannot be delivered, each with its offset in the log and the reason.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    ///     ValueError: The queue was opened without its commit log.
    ///
    /// Source: `ScheduleMessageService#executeOnTimeup`.
    #[pyo3(signature = (begin, *, now, delay_ms))]
    fn due_messages(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::begin)] begin: i64,
        #[pyo3(from_py_with = integer::now)] now: i64,
        #[pyo3(from_py_with = integer::delay_ms)] delay_ms: i64,
    ) -> PyResult<Option<DueMessages>> {
        let due = self.call(py, |queue| schedule::due_messages(queue, begin, now, delay_ms))?;
        Ok(due.map(|due| (ArrowBatch(due.messages), due.next_offset, due.skipped)))
    }

    /// Return the queue offset of the first message of each store time or later, fast, for pictures and as a first guess.
    ///
    /// Args:
    ///     times: Milliseconds since the epoch, ascending.
    ///
    /// Returns:
    ///     The offsets. They are exact if the broker's clock never stepped back; `offset_by_time` allows for such steps.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    ///     ValueError: The queue was opened without its commit log.
    #[expect(clippy::needless_pass_by_value, reason = "arguments from Python are owned")]
    fn offsets_near_times(&self, py: Python<'_>, times: Vec<i64>) -> PyResult<Vec<i64>> {
        self.call(py, |queue| queue.offsets_near_times(&times))
    }

    /// Return the queue offset of a store time.
    ///
    /// Args:
    ///     t: Milliseconds since the epoch or an aware datetime.
    ///     boundary: "lower": the first message of that time or later, `max_offset` if there is none. "upper": the last one of
    ///         that time or earlier, `min_offset` if there is none.
    ///
    /// Returns:
    ///     The offset, by the times of the messages themselves. With compat "4.9.3", the nearest message of the file that was
    ///     chosen by the time of its last change.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    ///     ValueError: The queue was opened without its commit log.
    ///
    /// Source: `ConsumeQueue#getOffsetInQueueByTime`.
    #[pyo3(signature = (t, *, boundary="lower"))]
    fn offset_by_time(&self, py: Python<'_>, t: &Bound<'_, PyAny>, boundary: &str) -> PyResult<i64> {
        let (boundary, round) = match boundary {
            "lower" => (Boundary::Lower, Round::Up),
            "upper" => (Boundary::Upper, Round::Down),
            _ => return Err(PyValueError::new_err(format!("boundary={boundary:?}: expected \"lower\" or \"upper\""))),
        };
        let time = time::time_ms(t, round, "t")?;
        self.call(py, |queue| queue.offset_by_time(time, boundary))
    }

    /// Return the ranges of bytes between the files that no file holds, as `CommitLog.gaps` does.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn gaps(&self, py: Python<'_>) -> PyResult<Vec<Part>> {
        Ok(gap_parts(&self.call(py, |queue| queue.gaps())?))
    }

    /// Check for stray files, gaps, files of another length, and invalid units.
    ///
    /// Returns:
    ///     A `logdex.report.Report`; docs/findings.md lists the kinds.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn check_files(&self, py: Python<'_>) -> PyResult<Report> {
        self.call(py, |queue| queue.check_files())
    }

    /// True if `close` was called.
    #[getter]
    fn closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Close the files. Running calls continue.
    fn close(&self) {
        self.queue.close();
    }

    fn __enter__(slf: Py<Self>) -> PyResult<Py<Self>> {
        slf.get().inner()?;
        Ok(slf)
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, _args: &Bound<'_, PyTuple>) {
        self.close();
    }

    fn __repr__(&self) -> String {
        self.queue.text("ConsumeQueue")
    }

    fn __reduce__<'py>(&'py self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Arguments<'py>)> {
        let open = py.import("logdex._core")?.getattr("_open_consume_queue")?;
        let arguments = (
            self.path(),
            self.commit_log.as_ref(),
            self.extension.clone(),
            self.settings.access.clone(),
            self.settings.compat.clone(),
            self.log_end,
            self.settings.clock_slack_ms,
        );
        Ok((open, arguments))
    }
}

/// A queue and its log as they were when `ConsumeQueue.view` was called. Any thread may call.
#[pyclass(name = "QueueView", module = "logdex._core", frozen)]
struct PyQueueView(QueueView);

#[pymethods]
impl PyQueueView {
    /// Queue offset of the first message that the log still has, and after the last one.
    #[getter]
    fn bounds(&self) -> (i64, i64) {
        self.0.bounds()
    }

    /// Return the next messages of the queue as a broker sends them: frames as the log holds them, one after another.
    ///
    /// Args:
    ///     begin: First queue offset, within the bounds.
    ///     max_num: The most messages.
    ///     max_bytes: The most bytes of frames. The first message is always returned.
    ///     codes: Hashes of tags (`tags_hash`), an Arrow column or a sequence; other units are passed over. None: all pass.
    ///
    /// Returns:
    ///     The frames, their number, the queue offset to continue from, and a broker's status: "FOUND", "NO_MATCHED_MESSAGE",
    ///     "MESSAGE_WAS_REMOVING" or "OFFSET_FOUND_NULL". A call reads one file of the queue, as a broker does.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    ///
    /// Source: `DefaultMessageStore#getMessage`.
    #[pyo3(signature = (begin, *, max_num, max_bytes, codes=None))]
    fn pull(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::begin)] begin: i64,
        #[pyo3(from_py_with = integer::max_num)] max_num: u64,
        #[pyo3(from_py_with = integer::max_bytes)] max_bytes: u64,
        codes: Option<Bound<'_, PyAny>>,
    ) -> PyResult<(Vec<u8>, usize, i64, &'static str)> {
        let codes = codes.map(|codes| convert::int64_column(&codes, "codes")).transpose()?;
        // A hash has 32 bits: other integers match nothing.
        let codes: Option<Vec<i32>> =
            codes.map(|codes| codes.iter().flatten().filter_map(|code| i32::try_from(code).ok()).collect());
        let limits = Limits { messages: usize_of(max_num), bytes: max_bytes };
        let pulled = py.detach(|| self.0.pull(begin, limits, codes.as_deref()))?;
        let status = match pulled.status {
            Status::Found => "FOUND",
            Status::NoMatchedMessage => "NO_MATCHED_MESSAGE",
            Status::MessageWasRemoving => "MESSAGE_WAS_REMOVING",
            Status::OffsetFoundNull => "OFFSET_FOUND_NULL",
        };
        Ok((pulled.frames, pulled.messages, pulled.next_offset, status))
    }
}
