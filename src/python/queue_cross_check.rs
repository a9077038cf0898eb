//! `QueueCrossCheck`.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyString;
use pyo3_arrow::PyRecordBatch;

use super::commit_log::PyCommitLog;
use super::report;
use crate::error::{Error, Result};
use crate::io::Location;
use crate::rocketmq::consume_queue::{CrossCheck, Options, StoreState};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyQueueCrossCheck>()
}

/// Compares the consume queues of a store with the messages of its log.
///
/// The order of calls: `check` for each batch of a salvaging scan, then `finish`.
#[pyclass(name = "QueueCrossCheck", module = "logdex._core", frozen)]
struct PyQueueCrossCheck {
    check: Mutex<Option<CrossCheck>>,
}

impl PyQueueCrossCheck {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Option<CrossCheck>) -> Result<T> + Send,
    ) -> PyResult<T> {
        // An error becomes an exception after the lock is released.
        Ok(py.detach(|| {
            let mut check = self.check.lock().unwrap_or_else(PoisonError::into_inner);
            if check.is_none() {
                return Err(Error::InvalidArgument("the check is finished".to_owned()));
            }
            call(&mut check)
        })?)
    }
}

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
        Ok(Self { check: Mutex::new(Some(check)) })
    }

    /// The number of queues.
    #[getter]
    fn queues(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |check| Ok(check.as_ref().map_or(0, CrossCheck::queues)))
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
        self.with(py, |check| check.as_mut().map_or(Ok(()), |check| check.check(&messages)))
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
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let found = self.with(py, |check| check.take().map(CrossCheck::finish).transpose())?;
        report::report(py, &found.unwrap_or_default())
    }
}
