//! `QueueReader`: the messages of consume queues, in the order of the log.

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
use crate::rocketmq::queue_stream::{QueuePart, QueueStream, StreamOptions};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyQueueReader>()
}

/// The place that a stream reached, and the reason for an early end.
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

        /// The reason for an end before the end of the range; None without one.
        #[getter]
        fn fault(&self, py: Python<'_>) -> PyResult<Option<String>> {
            Ok(self.0.notes(py)?.fault)
        }
    }
}
