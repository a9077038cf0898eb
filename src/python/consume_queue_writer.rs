//! `ConsumeQueueWriter`.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3_arrow::PyRecordBatch;

use super::convert::ArrowBatch;
use super::handle::Finishable;
use super::{integer, location};
use crate::error::Result;
use crate::io::fork::Generation;
use crate::report::Report;
use crate::rocketmq::consume_queue::{ConsumeQueueWriter, DelayLevels, WriterOptions};

register! { class PyConsumeQueueWriter }

/// Writes the consume queues of a store from the messages of its log, as a broker does: new queues, or existing ones from their
/// ends.
///
/// The order of calls: `create` or `open`, `append_batch` for each batch of a scan with `columns`, `finish`. The writer works
/// only in the process that opened it.
#[pyclass(name = "ConsumeQueueWriter", module = "logdex._core", frozen)]
struct PyConsumeQueueWriter {
    writer: Finishable<ConsumeQueueWriter>,
    /// A forked process shares the files with its parent, and may inherit a lock that is never released.
    process: Generation,
}

impl PyConsumeQueueWriter {
    fn new(writer: ConsumeQueueWriter) -> Self {
        Self { writer: Finishable::new(writer, "the writer is finished"), process: Generation::current() }
    }

    fn check_process(&self) -> PyResult<()> {
        if self.process.is_current() {
            return Ok(());
        }
        Err(PyValueError::new_err("queues opened for writing belong to the process that opened them"))
    }

    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut ConsumeQueueWriter) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.check_process()?;
        self.writer.call(py, call)
    }
}

#[pymethods]
impl PyConsumeQueueWriter {
    /// The message columns that `append_batch` reads.
    #[classattr]
    fn columns(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        PyTuple::new(py, ConsumeQueueWriter::COLUMNS)
    }

    /// Create new queues in the directories `consumequeue` and `batchconsumequeue`. With extension files, also use
    /// `consumequeue_ext`.
    ///
    /// Args:
    ///     directory: The parent of these directories; it is created if it is missing.
    ///     file_size: Bytes of a queue's file (mappedFileSizeConsumeQueue), rounded up to whole units of 20.
    ///     batch_file_size: Bytes of a batch queue's file, units of 46.
    ///     delay_levels: The broker's messageDelayLevel: units of scheduled messages hold their time of delivery.
    ///     multi_dispatch: Messages also go to the queues that INNER_MULTI_DISPATCH names (enableMultiDispatch).
    ///     extension_file_size: Bytes of an extension file (mappedFileSizeConsumeQueueExt), which holds tags codes and store
    ///         times (enableConsumeQueueExt). None: no extension files. Bit maps are empty, as for a broker without
    ///         enableCalcFilterBitMap, because the log does not record the filters of consumers.
    ///
    /// Raises:
    ///     FileExistsError: One of these directories exists.
    ///     OSError: An I/O error.
    ///     ValueError: A file size that fits no unit, or invalid levels.
    #[staticmethod]
    #[pyo3(signature = (directory, *, file_size=6_000_000, batch_file_size=13_800_000, delay_levels=DelayLevels::DEFAULT, multi_dispatch=true, extension_file_size=None))]
    fn create(
        py: Python<'_>,
        #[pyo3(from_py_with = location::local_path)] directory: PathBuf,
        #[pyo3(from_py_with = integer::file_size)] file_size: u64,
        #[pyo3(from_py_with = integer::batch_file_size)] batch_file_size: u64,
        delay_levels: &str,
        multi_dispatch: bool,
        #[pyo3(from_py_with = integer::extension_file_size)] extension_file_size: Option<u64>,
    ) -> PyResult<Self> {
        let delay_levels = DelayLevels::parse(delay_levels)?;
        let (file_size, batch_file_size) = (Some(file_size), Some(batch_file_size));
        let options = WriterOptions { file_size, batch_file_size, delay_levels, multi_dispatch, extension_file_size };
        let writer = py.detach(|| ConsumeQueueWriter::create(&directory, options))?;
        Ok(Self::new(writer))
    }

    /// Open the queues of a store to append to them; any of the directories may be missing.
    ///
    /// Units of messages at or after `end_phy_offset` are removed: they become zero, and files without a message are deleted.
    /// Extension files are truncated as well. Filling after the last message is not a unit. A message that its queue already has is
    /// skipped.
    ///
    /// Args:
    ///     root: The root of the store.
    ///     end_phy_offset: The end of the log.
    ///     begin_phy_offset: After an unclean exit, the offset from which all messages are appended again: all files since then
    ///         are read, instead of the last three. None: the exit was clean.
    ///     file_size: As for `create`; None: the size of the existing files, else the broker's default, 6,000,000.
    ///     batch_file_size: The same for batch queues; the default is 13,800,000.
    ///     delay_levels: As for `create`.
    ///     multi_dispatch: As for `create`.
    ///     extension_file_size: As for `create`; None: the size of the existing files, else no extension files.
    ///     dry_run: Count and report the same changes without making them.
    ///
    /// Raises:
    ///     CorruptFileError: Sizes or names of a queue's files do not fit together.
    ///     LockedError: A broker holds the store.
    ///     OSError: An I/O error.
    ///     ValueError: A size that fits no unit or differs from that of the existing files; invalid levels; or the queues are in a
    ///         RocksDB of a 5.x broker.
    ///
    /// Source: `ConsumeQueue#recover`, `#truncateDirtyLogicFiles`.
    #[staticmethod]
    #[pyo3(signature = (root, *, end_phy_offset, begin_phy_offset=None, file_size=None, batch_file_size=None, delay_levels=DelayLevels::DEFAULT, multi_dispatch=true, extension_file_size=None, dry_run=false))]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn open(
        py: Python<'_>,
        root: PathBuf,
        #[pyo3(from_py_with = integer::end_phy_offset)] end_phy_offset: i64,
        #[pyo3(from_py_with = integer::begin_phy_offset)] begin_phy_offset: Option<i64>,
        #[pyo3(from_py_with = integer::file_size)] file_size: Option<u64>,
        #[pyo3(from_py_with = integer::batch_file_size)] batch_file_size: Option<u64>,
        delay_levels: &str,
        multi_dispatch: bool,
        #[pyo3(from_py_with = integer::extension_file_size)] extension_file_size: Option<u64>,
        dry_run: bool,
    ) -> PyResult<Self> {
        let delay_levels = DelayLevels::parse(delay_levels)?;
        let options = WriterOptions { file_size, batch_file_size, delay_levels, multi_dispatch, extension_file_size };
        let writer =
            py.detach(|| ConsumeQueueWriter::open(&root, end_phy_offset, begin_phy_offset, options, dry_run))?;
        Ok(Self::new(writer))
    }

    /// Check names and sizes as `open` does, without changing anything.
    ///
    /// Args:
    ///     root: The root of the store, which may be missing.
    ///     file_size: As for `open`.
    ///     batch_file_size: As for `open`.
    ///     extension_file_size: As for `open`.
    ///
    /// Returns:
    ///     Offset in the log after the last unit of any queue; -1 without units.
    ///
    /// Raises:
    ///     CorruptFileError: Sizes or names of a queue's files do not fit together.
    ///     OSError: An I/O error.
    ///     ValueError: A size that fits no unit or differs from that of the existing files.
    #[staticmethod]
    #[pyo3(signature = (root, *, file_size=None, batch_file_size=None, extension_file_size=None))]
    fn check_files(
        py: Python<'_>,
        root: PathBuf,
        #[pyo3(from_py_with = integer::file_size)] file_size: Option<u64>,
        #[pyo3(from_py_with = integer::batch_file_size)] batch_file_size: Option<u64>,
        #[pyo3(from_py_with = integer::extension_file_size)] extension_file_size: Option<u64>,
    ) -> PyResult<i64> {
        let delay_levels = DelayLevels::parse(DelayLevels::DEFAULT)?;
        let options =
            WriterOptions { file_size, batch_file_size, delay_levels, multi_dispatch: true, extension_file_size };
        Ok(py.detach(|| ConsumeQueueWriter::check_files(&root.into(), &options))?)
    }

    /// The report of `open` and all later findings, as a `logdex.report.Report`.
    ///
    /// Report: units_cut and queue_files_deleted, of `open`. One finding is units that `open` removed after a queue's end
    /// although they refer to messages of the log (see `dispatch_offset`). The others are those of `finish`.
    #[getter]
    fn report(&self, py: Python<'_>) -> PyResult<Report> {
        self.call(py, |writer| Ok(writer.checked().clone()))
    }

    /// Offset in the log after the last unit, over all queues; -1 without units.
    #[getter]
    fn log_end(&self, py: Python<'_>) -> PyResult<i64> {
        self.call(py, |writer| Ok(writer.log_end()))
    }

    /// The offset in the log from which messages must be appended so that no queue lacks one. It is `log_end`, or the end of the
    /// damaged queue that ends first. -1 is the beginning.
    #[getter]
    fn dispatch_offset(&self, py: Python<'_>) -> PyResult<i64> {
        self.call(py, |writer| Ok(writer.dispatch_offset()))
    }

    /// Return the queue offset of the next message of each queue, including batch queues.
    ///
    /// Returns:
    ///     A record batch of `topic` (utf8), `queue_id` (int32) and `queue_offset` (int64), sorted. Queues that never held a
    ///     message are left out.
    fn queue_offsets(&self, py: Python<'_>) -> PyResult<ArrowBatch> {
        self.call(py, |writer| Ok(ArrowBatch(writer.queue_offsets())))
    }

    /// Write the buffered units, so that readers see them, and wait until they are on the disk.
    ///
    /// Args:
    ///     sync: False: do not wait.
    ///     least_pages: Wait only for files with at least this many pages of 4,096 new bytes (flushConsumeQueueLeastPages).
    ///
    /// Raises:
    ///     OSError: An I/O error; units that were not written stay in the buffer.
    ///     WriteFailedError: A write or an fsync failed, now or before: nothing more is written.
    ///     ValueError: The writer is finished.
    #[pyo3(signature = (*, sync=true, least_pages=0))]
    fn flush(&self, py: Python<'_>, sync: bool, least_pages: u32) -> PyResult<()> {
        let pages = sync.then_some(least_pages);
        self.call(py, |writer| writer.flush_pages(pages))
    }

    /// Return the queues to which units were written since the last call: topic, queue id, and queue offset of the next message.
    ///
    /// Readers see these units. Queues that have only buffered units are not returned.
    ///
    /// Raises:
    ///     ValueError: The writer is finished.
    fn take_grown(&self, py: Python<'_>) -> PyResult<Vec<(String, i32, i64)>> {
        self.call(py, |writer| Ok(writer.take_grown()))
    }

    /// Add the units of a batch of messages, in the order of the log.
    ///
    /// Args:
    ///     messages: An Arrow record batch with `columns`.
    ///
    /// Returns:
    ///     The number of units. A message whose transaction is not committed has none.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    ///     ValueError: A column is missing, of another type or null; or the writer is finished.
    fn append_batch(&self, py: Python<'_>, messages: PyRecordBatch) -> PyResult<usize> {
        let messages = messages.into_inner();
        self.call(py, |writer| writer.append_batch(&messages))
    }

    /// Write the buffered units, and delete the oldest files of each queue whose messages are all gone from the log, with the
    /// extension files that are needed no more. The newest file of each queue stays.
    ///
    /// Args:
    ///     min_phy_offset: The first offset of the log.
    ///
    /// Returns:
    ///     The paths of the deleted files, sorted.
    ///
    /// Raises:
    ///     OSError: A file cannot be deleted; others may be gone.
    ///     ValueError: The writer is finished.
    ///
    /// Source: `ConsumeQueue#deleteExpiredFile`, `ConsumeQueueExt#truncateByMinAddress`.
    fn delete_expired(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::min_phy_offset)] min_phy_offset: i64,
    ) -> PyResult<Vec<PathBuf>> {
        self.call(py, |writer| writer.delete_expired(min_phy_offset))
    }

    /// Write the buffered units and wait until everything is on the disk.
    ///
    /// Returns:
    ///     A `logdex.report.Report`: findings if queue offsets jump or repeat, or if a topic cannot name a folder.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    ///     ValueError: `finish` was called before.
    fn finish(&self, py: Python<'_>) -> PyResult<Report> {
        self.check_process()?;
        self.writer.finish(py, ConsumeQueueWriter::finish)
    }
}
