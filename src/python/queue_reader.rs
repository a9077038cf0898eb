//! `QueueReader`: the messages of consume queues, in the order of the log.

use std::sync::Arc;

use arrow_array::RecordBatch;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::batch_stream::{BatchStream, Batches, batch_reader};
use super::commit_log::{PyCommitLog, bodies, columns, log_offset};
use super::consume_queue::PyConsumeQueue;
use super::convert;
use super::integer;
use super::message_filter::PyMessageFilter;
use crate::error::Result;
use crate::io::Location;
use crate::rocketmq::consume_queue::{Boundary, ConsumeQueue, Options};
use crate::rocketmq::queue_stream::{self, QueuePart, QueueStream, StreamOptions};
use crate::time_range::TimeRange;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyQueueReader>()?;
    m.add_function(wrap_pyfunction!(certain_range, m)?)?;
    m.add_function(wrap_pyfunction!(dispatched_end, m)?)
}

/// How far a stream came, and why it ended early.
#[derive(Clone)]
pub(super) struct Notes {
    position: u64,
    fault: Option<String>,
}

impl Batches for QueueStream {
    type Notes = Notes;

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        Self::next_batch(self)
    }

    fn notes(&self) -> Notes {
        Notes { position: self.position(), fault: self.fault().map(str::to_owned) }
    }
}

/// A part of a queue: topic, queue id, queue, first queue offset and the one after the last. None: as far as the times of
/// the filter reach.
type Part<'py> = (Bound<'py, PyString>, i64, PyRef<'py, PyConsumeQueue>, Option<i64>, Option<i64>);

/// The messages of parts of queues, in the order of the log: an iterator of record batches, and an Arrow stream.
///
/// Each unit must lead to its message, and no message between two units may be missing. Where a queue turns out to be damaged
/// the reader ends at `position`, before which it missed nothing, and `fault` says why.
#[pyclass(name = "QueueReader", module = "logdex._core", frozen)]
pub(super) struct PyQueueReader(BatchStream<QueueStream>);

/// The queue offsets of the messages in a range of time.
fn in_times(queue: &ConsumeQueue, times: TimeRange, first: Option<i64>, last: Option<i64>) -> Result<(i64, i64)> {
    let (min, max) = match (first, last) {
        (Some(first), Some(last)) => return Ok((first, last)),
        _ => queue.bounds()?,
    };
    let begin = if times.begin_ms == i64::MIN { min } else { queue.offset_by_time(times.begin_ms, Boundary::Lower)? };
    let end = if times.end_ms == i64::MAX {
        max
    } else {
        max.min(queue.offset_by_time(times.end_ms, Boundary::Upper)?.saturating_add(1))
    };
    Ok((first.unwrap_or(begin), last.unwrap_or(end)))
}

batch_reader! {
    PyQueueReader {
        /// Read messages from queues.
        ///
        /// Args:
        ///     log: The log of the store.
        ///     parts: A tuple for each part: topic, queue id, queue, first queue offset, queue offset after the last; None: as far
        ///         as the times of the filter reach.
        ///     begin_phy_offset: No message begins before it; None: the start of the log.
        ///     end_phy_offset: No message begins at or after it; None: no bound.
        ///     columns: Names of message columns; all where not given.
        ///     body: "decoded" or "stored".
        ///     batch_size: Rows of a batch; it ends earlier at 64 MiB.
        ///     selection: Which of the messages are returned.
        ///     threads: Number of threads that read and decode; None: as many as there are processors, at most 4. With more than one,
        ///         batches may end before `batch_size`.
        ///
        /// Raises:
        ///     OSError: An I/O error; raised by the reader, too.
        ///     ValueError: An unknown column or word.
        #[new]
        #[pyo3(signature = (log, parts, *, begin_phy_offset=None, end_phy_offset=None, columns=None, body="decoded", batch_size=8_192, selection=None, threads=1))]
        #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
        fn new(
            py: Python<'_>,
            log: &PyCommitLog,
            parts: Vec<Part<'_>>,
            #[pyo3(from_py_with = integer::begin_phy_offset)] begin_phy_offset: Option<i64>,
            #[pyo3(from_py_with = integer::end_phy_offset)] end_phy_offset: Option<i64>,
            columns: Option<&Bound<'_, PyAny>>,
            body: &str,
            #[pyo3(from_py_with = integer::batch_size)] batch_size: i64,
            selection: Option<&Bound<'_, PyMessageFilter>>,
            #[pyo3(from_py_with = integer::threads)] threads: Option<i64>,
        ) -> PyResult<Self> {
            let log = log.inner()?;
            let options = StreamOptions {
                begin_phy_offset: log_offset(begin_phy_offset, 0),
                end_phy_offset: log_offset(end_phy_offset, u64::MAX),
                columns: self::columns(columns)?,
                bodies: bodies(body)?,
                batch_size: usize::try_from(batch_size).unwrap_or(0),
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
                    let (begin, end) = in_times(&queue, options.filter.times, first, last)?;
                    parts.push(QueuePart { topic, queue_id, queue, begin, end });
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

        /// Why the reader ended before the end of the range; None where it did not.
        #[getter]
        fn fault(&self, py: Python<'_>) -> PyResult<Option<String>> {
            Ok(self.0.notes(py)?.fault)
        }
    }
}

/// Return the range of the log whose messages these queues cover, as (begin, end), if no file at their ends is missing.
///
/// Before and after it, a queue may lack messages: its first files may have been lost, or the file after its last, full one.
///
/// Args:
///     log: The log of the store.
///     parts: The queues, as for `QueueReader`.
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
fn certain_range(py: Python<'_>, log: &PyCommitLog, parts: Vec<Part<'_>>) -> PyResult<(u64, u64)> {
    let log = log.inner()?;
    let mut queues = Vec::with_capacity(parts.len());
    for (topic, queue_id, queue, ..) in parts {
        let topic = topic.to_string_lossy().into_owned();
        queues.push(QueuePart { topic, queue_id, queue: queue.inner()?, begin: 0, end: 0 });
    }
    Ok(py.detach(|| queue_stream::certain_range(&log, &queues))?)
}

/// Return the offset in the log up to which queues lead: the end of the message of the farthest last unit that leads to its
/// message.
///
/// Args:
///     log: The log of the store.
///     folders: `consumequeue` and `batchconsumequeue` of a store; each may be missing.
///     topics: Only queues of these topics; None: all.
///     access: "auto", "mmap" or "pread".
///     compat: A broker release whose answers are wanted.
///     threads: Number of threads that read the queues; None: as many as there are processors, at most 4.
///
/// Returns:
///     The offset; None where no unit leads to its message.
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
#[pyo3(signature = (log, folders, topics=None, *, access="auto", compat=None, threads=1))]
fn dispatched_end(
    py: Python<'_>,
    log: &PyCommitLog,
    folders: Vec<Location>,
    topics: Option<Vec<String>>,
    access: &str,
    compat: Option<&str>,
    #[pyo3(from_py_with = integer::threads)] threads: Option<i64>,
) -> PyResult<Option<u64>> {
    let log = log.inner()?;
    let (access, compat) = (convert::access(access)?, convert::compat(compat)?);
    let threads = convert::threads(threads)?;
    let options = Options { access, compat, commit_log: Some(Arc::clone(&log)), ..Options::default() };
    Ok(py.detach(|| queue_stream::dispatched_end(&log, &folders, topics.as_deref(), &options, threads))?)
}
