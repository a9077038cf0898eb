//! `ConsumeQueueWriter`.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3_arrow::PyRecordBatch;

use super::report;
use crate::rocketmq::consume_queue::{ConsumeQueueWriter, DelayLevels, WriterOptions};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyConsumeQueueWriter>()
}

/// Makes the consume queues of a store anew, from the messages of its log, as a broker makes them where they are missing.
///
/// Args of `create` and the order of calls: `create`, `append_batch` for each batch of a scan with `columns`, `finish`.
#[pyclass(name = "ConsumeQueueWriter", module = "logdex._core", frozen)]
struct PyConsumeQueueWriter {
    writer: Mutex<Option<ConsumeQueueWriter>>,
}

impl PyConsumeQueueWriter {
    fn with<T>(&self, call: impl FnOnce(&mut Option<ConsumeQueueWriter>) -> crate::error::Result<T>) -> PyResult<T> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.is_none() {
            return Err(PyValueError::new_err("the writer is finished"));
        }
        Ok(call(&mut writer)?)
    }
}

#[pymethods]
impl PyConsumeQueueWriter {
    /// The message columns that `append_batch` reads.
    #[classattr]
    fn columns(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        PyTuple::new(py, ConsumeQueueWriter::COLUMNS)
    }

    /// Begin the directories `consumequeue` and `batchconsumequeue`, with extension files `consumequeue_ext` as well.
    ///
    /// Args:
    ///     directory: What they are made in; it is made where it is missing.
    ///     file_size: Bytes of a queue's file (mappedFileSizeConsumeQueue), rounded up to whole units of 20.
    ///     batch_file_size: Bytes of a batch queue's file, units of 46.
    ///     delay_levels: The broker's messageDelayLevel: units of delayed messages hold their time of delivery.
    ///     multi_dispatch: Messages go to the queues that INNER_MULTI_DISPATCH names as well (enableMultiDispatch).
    ///     extension_file_size: Bytes of an extension file (mappedFileSizeConsumeQueueExt), where tags codes and store times
    ///         go to such files (enableConsumeQueueExt); None: they do not. Their bit maps are empty, as they are unless
    ///         enableCalcFilterBitMap is set: consumers' filters stand in no log.
    ///
    /// Raises:
    ///     FileExistsError: One of them is there.
    ///     OSError: The system refuses.
    ///     ValueError: File sizes without room for a unit, or levels that are none.
    #[staticmethod]
    #[pyo3(signature = (directory, *, file_size=6_000_000, batch_file_size=13_800_000, delay_levels=DelayLevels::DEFAULT, multi_dispatch=true, extension_file_size=None))]
    fn create(
        py: Python<'_>,
        directory: PathBuf,
        file_size: u64,
        batch_file_size: u64,
        delay_levels: &str,
        multi_dispatch: bool,
        extension_file_size: Option<u64>,
    ) -> PyResult<Self> {
        let delay_levels = DelayLevels::parse(delay_levels)?;
        let options = WriterOptions { file_size, batch_file_size, delay_levels, multi_dispatch, extension_file_size };
        let writer = py.detach(|| ConsumeQueueWriter::create(&directory, options))?;
        Ok(Self { writer: Mutex::new(Some(writer)) })
    }

    /// Add the units of a batch of messages, in the order of the log.
    ///
    /// Args:
    ///     messages: An Arrow record batch with `columns`.
    ///
    /// Returns:
    ///     How many units there were. Messages that are no part of a committed transaction give none.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    ///     ValueError: A column is missing, of another type or null; or the writer is finished.
    fn append_batch(&self, py: Python<'_>, messages: PyRecordBatch) -> PyResult<usize> {
        let messages = messages.into_inner();
        py.detach(|| self.with(|writer| writer.as_mut().map_or(Ok(0), |writer| writer.append_batch(&messages))))
    }

    /// Write what is left and wait until all is on the disk.
    ///
    /// Returns:
    ///     A `logdex.report.Report`: findings where queue offsets jump, repeat, or a topic cannot name a folder.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    ///     ValueError: It was called before.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let checked = py.detach(|| self.with(|writer| writer.take().map(ConsumeQueueWriter::finish).transpose()))?;
        report::of_store(py, &checked.unwrap_or_default())
    }
}
