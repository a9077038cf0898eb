//! `QueueFollower`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyString;
use pyo3_arrow::PyRecordBatch;

use super::consume_queue::PyConsumeQueue;
use crate::rocketmq::consume_queue::QueueFollower;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyQueueFollower>()
}

fn lock<T>(follower: &Mutex<T>) -> MutexGuard<'_, T> {
    follower.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of a queue, its queue offset, offset in the log, tags, their hash, the code that the unit holds.
type OddTags = (usize, i64, i64, Option<String>, i64, i64);
/// Topic, queue, first queue offset, the one after the last, offset in the log.
type MissingUnits = (String, i32, i64, i64, i64);
/// Compares messages with the units of their queues, as the log goes by.
///
/// Calls in this order: `add` for each queue, `follow` for each batch of a scan, then what was found.
#[pyclass(name = "QueueFollower", module = "logdex._core", frozen)]
struct PyQueueFollower {
    follower: Mutex<QueueFollower>,
}

#[pymethods]
impl PyQueueFollower {
    /// Follow no queue yet.
    ///
    /// Args:
    ///     dispatched: Messages at this offset of the log or behind it may be without their unit; None: none may.
    ///     topics: Messages of other topics may be without a queue; empty: none may.
    #[new]
    #[pyo3(signature = (*, dispatched, topics))]
    fn new(dispatched: Option<i64>, topics: Vec<Bound<'_, PyString>>) -> Self {
        let topics = topics.iter().map(|topic| topic.to_string_lossy().into_owned()).collect();
        Self { follower: Mutex::new(QueueFollower::new(dispatched, topics)) }
    }

    /// Take a queue, in place of one of the same topic and number; it is opened anew for each reading.
    ///
    /// Returns:
    ///     Its number here; None where no message can name it: its topic is no text, or its number too large.
    fn add(
        &self,
        topic: &Bound<'_, PyString>,
        queue_id: &Bound<'_, PyAny>,
        queue: &PyConsumeQueue,
    ) -> PyResult<Option<usize>> {
        let (Ok(topic), Ok(queue_id)) = (topic.to_cow(), queue_id.extract()) else {
            return Ok(None);
        };
        let queue = queue.inner()?;
        Ok(Some(lock(&self.follower).add(&topic, queue_id, queue.path(), queue.options().clone())))
    }

    /// Compare a batch of messages, the next of the log, with their units.
    ///
    /// Args:
    ///     messages: An Arrow record batch with `topic`, `queue_id`, `queue_offset`, `phy_offset`, `store_size`, `sys_flag`
    ///         and `tags`.
    ///
    /// Returns:
    ///     A tuple for each unit whose tags code is not that of its message: number of the queue, queue offset, offset in the
    ///     log, tags, their hash, the code that the unit holds.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    ///     ValueError: A column is missing, of another type, or null where a message must have a value.
    ///
    /// Source: `MessageExtBrokerInner#tagsString2tagsCode`.
    fn follow(&self, py: Python<'_>, messages: PyRecordBatch) -> PyResult<Vec<OddTags>> {
        let messages = messages.into_inner();
        let odd = py.detach(|| lock(&self.follower).follow(&messages))?;
        let odd = odd.into_iter().map(|o| (o.queue, o.queue_offset, o.phy_offset, o.tags, o.expected, o.found));
        Ok(odd.collect())
    }

    /// How many messages of a queue had their unit.
    fn matched(&self, queue: usize) -> u64 {
        lock(&self.follower).matched(queue)
    }

    /// The unit of a queue offset: offset in the log and size; None where there is none.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    fn unit(&self, py: Python<'_>, queue: usize, queue_offset: i64) -> PyResult<Option<(i64, i32)>> {
        let unit = py.detach(|| lock(&self.follower).unit(queue, queue_offset))?;
        Ok(unit.map(|unit| (unit.phy_offset, unit.size)))
    }

    /// Runs of messages that lack their unit, queue by queue: topic, queue, first queue offset, the one after the last, and
    /// the first message's offset in the log.
    fn missing(&self) -> Vec<MissingUnits> {
        let follower = lock(&self.follower);
        let runs = follower.missing().cloned();
        runs.map(|run| (run.topic, run.queue_id, run.begin, run.end, run.phy_offset)).collect()
    }

    /// Messages without unit that the broker had yet to dispatch.
    #[getter]
    fn undispatched(&self) -> u64 {
        lock(&self.follower).undispatched()
    }

    /// Messages without unit whose topic was deleted.
    #[getter]
    fn without_queue(&self) -> u64 {
        lock(&self.follower).without_queue()
    }
}
