//! `CommitLogWriter`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow_array::types::TimestampMillisecondType;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyDict};
use pyo3_arrow::PyRecordBatch;
use pyo3_arrow::error::PyArrowError;

use super::commit_log::bodies;
use super::convert::{self, ArrowBatch, cast};
use super::counters::PyPutCounter;
use super::integer;
use super::messages::{PropertyTexts, message_batches, property_texts};
use super::remoting::PySends;
use super::time::times_of;
use crate::report::Report;
use crate::rocketmq::commit_log::Bodies;
use crate::rocketmq::commit_log::columns::Column;
use crate::rocketmq::commit_log::write::{
    Append, AppendMode, CommitLogWriter, FlushMode, GivenMessage, Host, Limits, PutOptions, PutResult, SentMessage,
    WriterOptions,
};
use crate::rocketmq::release::Release;
use crate::rocketmq::{offset_files, truncate};

/// Messages that were put, with their places, and messages that were refused, with the reason.
type Stored = (Vec<(ArrowBatch, ArrowBatch)>, Vec<(ArrowBatch, String)>);

/// A message of a producer, by the attributes of a Python object.
#[derive(FromPyObject)]
struct GivenObject<'py> {
    topic: PyBackedStr,
    queue_id: i32,
    flag: i32,
    sys_flag: i32,
    born_timestamp: i64,
    born_host: Option<PyBackedStr>,
    store_host: Option<PyBackedStr>,
    reconsume_times: i32,
    prepared_transaction_offset: i64,
    body: PyBackedBytes,
    properties: Bound<'py, PyDict>,
    as_java_map: bool,
    is_batch: bool,
}

impl GivenObject<'_> {
    fn message<'a>(&'a self, properties: &'a PropertyTexts) -> PyResult<SentMessage<'a>> {
        let host = |text: &Option<PyBackedStr>| text.as_deref().map(Host::parse).transpose();
        let given = GivenMessage {
            topic: &self.topic,
            queue_id: self.queue_id,
            flag: self.flag,
            sys_flag: self.sys_flag,
            born_timestamp: Some(self.born_timestamp),
            born_host: host(&self.born_host)?,
            store_timestamp: None,
            store_host: host(&self.store_host)?,
            reconsume_times: self.reconsume_times,
            prepared_transaction_offset: self.prepared_transaction_offset,
            body: &self.body,
        };
        let properties = properties.iter().map(|(name, value)| (&**name, &**value)).collect();
        Ok(SentMessage { given, properties, as_java_map: self.as_java_map, is_batch: self.is_batch })
    }
}

/// Messages of producers: plain sends of one of them, or one message or batch.
#[derive(FromPyObject)]
enum Sent<'py> {
    Plain(Bound<'py, PySends>),
    Object(GivenObject<'py>),
}

/// The queue offset, the offset in the log and the id of each message of a put; why the put was refused; or the answers to plain
/// sends, and the number of messages that were put.
#[derive(IntoPyObject)]
enum Placed<'py> {
    Places(Vec<(i64, u64, String)>),
    Refused(String),
    Answers((Bound<'py, PyBytes>, usize)),
}

register! { class PyCommitLogWriter; fn truncate_log, delete_log_file }

/// Truncate a log: delete the files that begin after its end, and clear the rest of the file that holds the end.
///
/// When this returns, the result is on the disk. A broker leaves the bytes after the end, and its next crash may bring them back.
/// The caller holds the store's lock.
///
/// Args:
///     directory: The directory of the log, or several, separated by commas.
///     end_phy_offset: The end of the log.
///     dry_run: Only count.
///
/// Returns:
///     A `logdex.report.Report` without findings. Checked: bytes_cut, in each file up to the last byte that was not zero, and
///     files_deleted, without files of zeros.
///
/// Raises:
///     OSError: An I/O error.
///     ValueError: The offset is before the log.
///
/// Source: `CommitLog#recoverNormally`, `MappedFileQueue#truncateDirtyFiles`.
#[pyfunction]
#[pyo3(signature = (directory, end_phy_offset, *, dry_run=false))]
fn truncate_log(
    py: Python<'_>,
    directory: PathBuf,
    #[pyo3(from_py_with = integer::end_phy_offset)] end_phy_offset: i64,
    dry_run: bool,
) -> PyResult<Report> {
    let wrong = |_| PyValueError::new_err(format!("end_phy_offset={end_phy_offset}: expected 0 or more"));
    let end = end_phy_offset.try_into().map_err(wrong)?;
    let truncate = if dry_run { truncate::log_truncation } else { truncate::truncate_log };
    Ok(py.detach(|| truncate(&directory, end))?)
}

/// Delete a file of a log, with a durable removal of its name. Readers of this process close it, because its space is free only then.
///
/// The caller holds the store's lock, and deletes the oldest file first.
///
/// Args:
///     path: The file.
///
/// Returns:
///     Whether there was one.
///
/// Raises:
///     OSError: An I/O error.
///
/// Source: `MappedFileQueue#deleteExpiredFileByTime`, `MappedFile#destroy`.
#[pyfunction]
fn delete_log_file(py: Python<'_>, path: PathBuf) -> PyResult<bool> {
    Ok(py.detach(|| offset_files::delete_file(&path))?)
}

/// Appends messages to a commit log, byte for byte as a broker does (upstream CommitLog#asyncPutMessage).
///
/// It neither finds the end of the log nor locks the store: `logdex.rocketmq.StoreWriter` does. Any thread may call; puts run one
/// after the other. It works only in the process that opened it.
#[pyclass(name = "CommitLogWriter", module = "logdex._core", frozen)]
struct PyCommitLogWriter {
    writer: CommitLogWriter,
}

impl Drop for PyCommitLogWriter {
    fn drop(&mut self) {
        // The thread may be in an fsync. When the interpreter ends, the writer itself waits for it.
        Python::try_attach(|py| py.detach(|| self.writer.stop()));
    }
}

#[pymethods]
impl PyCommitLogWriter {
    /// Open a log at its end. Directory and files are created when the first message is put.
    ///
    /// Args:
    ///     directory: The log's directory.
    ///     end_phy_offset: The end of the log; after it there must be only zeros.
    ///     file_size: Bytes of a file (mappedFileSizeCommitLog).
    ///     store_host: The broker, as `ip:port` or `[ipv6]:port`, of messages that name none.
    ///     levels: The number of delay levels; a higher level counts as the last one.
    ///     compat: The release of the broker whose limits hold; None: 4.9.3.
    ///     max_message_size: Bytes of the longest message (maxMessageSize).
    ///     multi_dispatch: Messages also get offsets in the queues that INNER_MULTI_DISPATCH names (enableMultiDispatch).
    ///     flush: "async": a thread flushes twice a second if there are 16 KiB or more, and everything every ten seconds;
    ///         "sync": every put waits for the disk, and one flush serves all puts that wait; "none": only `flush` flushes.
    ///     append: Where puts append: "write": to the file; "mapped": to a map of the file, which a thread has prepared; "pool": to
    ///         a buffer, which a thread commits to the file every 200 ms (transientStorePoolEnable).
    ///     warm: Bring the pages of the map of a new file into memory before they are needed (warmMapedFileEnable).
    ///     lock_memory: Lock maps or buffers in memory.
    ///
    /// Raises:
    ///     ValueError: An invalid host, a size or an end that no log has, no level, or `warm` or `lock_memory` with "write".
    #[staticmethod]
    #[pyo3(signature = (directory, *, end_phy_offset, file_size=1_073_741_824, store_host="127.0.0.1:10911", levels=18, flush="async", compat=None, max_message_size=4_194_304, multi_dispatch=false, append="write", warm=false, lock_memory=false))]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn open(
        directory: PathBuf,
        #[pyo3(from_py_with = integer::end_phy_offset)] end_phy_offset: u64,
        #[pyo3(from_py_with = integer::file_size)] file_size: u64,
        store_host: &str,
        #[pyo3(from_py_with = integer::levels)] levels: i32,
        flush: &str,
        compat: Option<&str>,
        max_message_size: usize,
        multi_dispatch: bool,
        append: &str,
        warm: bool,
        lock_memory: bool,
    ) -> PyResult<Self> {
        let flush = match flush {
            "async" => FlushMode::Async,
            "sync" => FlushMode::Sync,
            "none" => FlushMode::Manual,
            other => {
                let text = format!("flush is {other:?}; expected \"async\", \"sync\" or \"none\"");
                return Err(PyValueError::new_err(text));
            }
        };
        let mode = match append {
            "write" => AppendMode::Write,
            "mapped" => AppendMode::Mapped,
            "pool" => AppendMode::Pool,
            other => {
                let text = format!("append is {other:?}; expected \"write\", \"mapped\" or \"pool\"");
                return Err(PyValueError::new_err(text));
            }
        };
        let limits = Limits { release: convert::compat(compat)?.unwrap_or(Release::V4_9_3), max_message_size };
        let options = WriterOptions {
            file_size,
            store_host: Host::parse(store_host)?,
            levels,
            flush,
            limits,
            multi_dispatch,
            append: Append { mode, warm, lock_memory },
        };
        Ok(Self { writer: CommitLogWriter::open(&directory, end_phy_offset, options)? })
    }

    /// Set the queue offset of the next message of a queue. A queue that was never set begins with 0.
    ///
    /// Raises:
    ///     ValueError: A number below 0; or another process opened the writer.
    fn set_queue_offset(
        &self,
        topic: &str,
        #[pyo3(from_py_with = integer::queue_id)] queue_id: i32,
        #[pyo3(from_py_with = integer::queue_offset)] queue_offset: i64,
    ) -> PyResult<()> {
        Ok(self.writer.set_queue_offset(topic, queue_id, queue_offset)?)
    }

    /// Set the offsets of the next messages of queues.
    ///
    /// Args:
    ///     queues: A record batch of `topic`, `queue_id` and `queue_offset`. With `sys_flag` the rows are messages: a queue without
    ///         an offset begins with that of its first message, and messages without a place in a queue are skipped.
    ///
    /// Raises:
    ///     ValueError: A column is missing, of another type or null; a number below 0; or another process opened the writer.
    fn set_queue_offsets(&self, py: Python<'_>, queues: PyRecordBatch) -> PyResult<()> {
        let queues = queues.into_inner();
        Ok(py.detach(|| self.writer.set_queue_offsets(&queues))?)
    }

    /// Append messages.
    ///
    /// Args:
    ///     messages: Arrow data with any of the message columns, or a mapping of columns; only `topic` is needed. A column `tags`, `keys` or
    ///         `uniq_key` is the property of that name. Without `store_timestamp` it is now. Given queue offsets, offsets in the
    ///         log, ids, sizes and checksums are ignored: each message gets new ones.
    ///     body: "decoded": bodies are plain, and the compression bits of `sys_flag` are cleared; "stored": as a log holds
    ///         them.
    ///     park: Messages with a delay level (the property DELAY) go to the topic of delayed messages. False for messages that
    ///         are delivered, or were read from a log.
    ///
    /// Returns:
    ///     One row for each message, in their order: topic, queue_id, queue_offset, phy_offset, store_timestamp, msg_id, store_size.
    ///
    /// Raises:
    ///     ValueError: A row is no message, or the writer is closed; nothing was written.
    ///     TypeError: A column of another type.
    ///     OSError: An I/O error. If files cannot be created, for example on a full disk, nothing was written.
    ///     WriteFailedError: A write or an fsync failed, now or before: nothing more is written. With synchronous flush the
    ///         messages may be in the log but not on the disk.
    #[pyo3(signature = (messages, *, body="decoded", park=true))]
    fn put_messages(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        body: &str,
        park: bool,
    ) -> PyResult<ArrowBatch> {
        let options = PutOptions { bodies: bodies(body)?, park };
        let put = |batch: &RecordBatch| -> PyResult<RecordBatch> {
            let messages = of_message_types(batch)?;
            Ok(py.detach(|| self.writer.put_messages(&messages, options))?)
        };
        let placed = message_batches(messages)?.iter().map(put).collect::<PyResult<Vec<_>>>()?;
        let schema = placed.first().map_or_else(|| Arc::new(Schema::empty()), RecordBatch::schema);
        Ok(ArrowBatch(concat_batches(&schema, &placed).map_err(PyArrowError::from)?))
    }

    /// Append one message; its body is stored as it is.
    ///
    /// Args:
    ///     topic: The topic.
    ///     body: The body, perhaps compressed, by `sys_flag`.
    ///     properties: Names and values, in the order in which they are written.
    ///     queue_id: Queue of the topic.
    ///     flag: The application's flag.
    ///     sys_flag: The system's flag; the bits for IPv6 hosts are set from the hosts.
    ///     born_timestamp: Ms since the epoch; None: the store time.
    ///     born_host: The producer as `ip:port`; None: the broker.
    ///     store_timestamp: Ms since the epoch; None: now.
    ///     store_host: The broker as `ip:port`; None: the writer's.
    ///     reconsume_times: How often a consumer returned it.
    ///     prepared_transaction_offset: Offset of the half message.
    ///     park: As for `put_messages`.
    ///
    /// Returns:
    ///     topic, queue_id, queue_offset, phy_offset, store_timestamp, msg_id, store_size.
    ///
    /// Raises:
    ///     ValueError: It is no message, or the writer is closed; nothing was written.
    ///     OSError: As for `put_messages`.
    #[expect(clippy::too_many_arguments, reason = "the fields of a message")]
    #[pyo3(signature = (
        topic, body, properties, *, queue_id=0, flag=0, sys_flag=0, born_timestamp=None, born_host=None,
        store_timestamp=None, store_host=None, reconsume_times=0, prepared_transaction_offset=0, park=true
    ))]
    fn put_message(
        &self,
        py: Python<'_>,
        topic: PyBackedStr,
        body: PyBackedBytes,
        properties: Vec<(PyBackedStr, PyBackedStr)>,
        #[pyo3(from_py_with = integer::queue_id)] queue_id: i32,
        #[pyo3(from_py_with = integer::flag)] flag: i32,
        #[pyo3(from_py_with = integer::sys_flag)] sys_flag: i32,
        #[pyo3(from_py_with = integer::born_timestamp)] born_timestamp: Option<i64>,
        born_host: Option<&str>,
        #[pyo3(from_py_with = integer::store_timestamp)] store_timestamp: Option<i64>,
        store_host: Option<&str>,
        #[pyo3(from_py_with = integer::reconsume_times)] reconsume_times: i32,
        #[pyo3(from_py_with = integer::prepared_transaction_offset)] prepared_transaction_offset: i64,
        park: bool,
    ) -> PyResult<(String, i32, i64, u64, i64, String, i32)> {
        let given = GivenMessage {
            topic: &topic,
            queue_id,
            flag,
            sys_flag,
            born_timestamp,
            born_host: born_host.map(Host::parse).transpose()?,
            store_timestamp,
            store_host: store_host.map(Host::parse).transpose()?,
            reconsume_times,
            prepared_transaction_offset,
            body: &body,
        };
        let options = PutOptions { bodies: Bodies::Stored, park };
        let properties = properties.iter().map(|(name, value)| (&**name, &**value));
        let result = py.detach(|| self.writer.put_message(given, properties, options))?;
        let PutResult { topic, queue_id, queue_offset, phy_offset, store_timestamp, store_size, .. } = result;
        Ok((topic.to_owned(), queue_id, queue_offset, phy_offset, store_timestamp, result.msg_id(), store_size))
    }

    /// Append what several producers sent. Bodies are stored as they are, and messages with a delay level are parked. The messages
    /// of a batch are stored in one file, all or none. With synchronous flush one flush serves all of them.
    ///
    /// Args:
    ///     sent: `Sends`; or objects with the attributes topic, queue_id, flag, sys_flag, born_timestamp, born_host, store_host,
    ///         reconsume_times, prepared_transaction_offset, body, properties (a dict), as_java_map: whether the properties are
    ///         written in the order of Java's HashMap, and is_batch: whether the body is that of a client's batch.
    ///     flush_timeout_s: With synchronous flush, the longest time to wait for it (syncFlushTimeout); None: no limit. What
    ///         `flushed_offset` has not reached then may be lost with the power; the answers to `Sends` report it.
    ///
    /// Returns:
    ///     For each object: queue_offset, phy_offset and msg_id of its messages; or the reason, if no log takes one. For `Sends`:
    ///     the frames of the answers, and the number of messages that were put.
    ///
    /// Raises:
    ///     ValueError: A host is none, a time below 0, or the writer is closed; nothing was written.
    ///     OSError: As for `put_messages`.
    #[pyo3(signature = (sent, *, flush_timeout_s=None))]
    fn put_each<'py>(
        &self,
        py: Python<'py>,
        sent: Vec<Sent<'py>>,
        flush_timeout_s: Option<f64>,
    ) -> PyResult<Vec<Placed<'py>>> {
        let wrong = |_| PyValueError::new_err("flush_timeout_s: expected seconds, 0 or more");
        let timeout = flush_timeout_s.map(Duration::try_from_secs_f64).transpose().map_err(wrong)?;
        let texts = |each: &Sent<'_>| match each {
            Sent::Plain(_) => Ok(Vec::new()),
            Sent::Object(given) => property_texts(&given.properties),
        };
        let properties = sent.iter().map(texts).collect::<PyResult<Vec<_>>>()?;
        let mut messages = Vec::new();
        for (each, texts) in sent.iter().zip(&properties) {
            match each {
                Sent::Plain(sends) => messages.extend(sends.get().messages()),
                Sent::Object(given) => messages.push(given.message(texts)?),
            }
        }
        let results = py.detach(|| self.writer.put_each(&messages, timeout))?;
        let flushed = self.writer.flushes_puts().then(|| self.writer.flushed_offset());
        let mut results = results.as_slice();
        let mut told = Vec::with_capacity(sent.len());
        for each in &sent {
            let count = if let Sent::Plain(sends) = each { sends.get().messages().len() } else { 1 };
            let (own, rest) = results.split_at_checked(count).expect("a result for each message");
            results = rest;
            told.push(match (each, own) {
                (Sent::Plain(sends), own) => {
                    let sends = sends.get();
                    let (answers, stored) = py.detach(|| sends.answers(own, flushed));
                    Placed::Answers((PyBytes::new(py, &answers), stored))
                }
                (Sent::Object(_), [Ok(places)]) => {
                    let place = |place: &PutResult<'_>| (place.queue_offset, place.phy_offset, place.msg_id());
                    Placed::Places(places.iter().map(place).collect())
                }
                (Sent::Object(_), own) => {
                    let reason = own.iter().find_map(|put| put.as_ref().err()).map(ToString::to_string);
                    Placed::Refused(reason.unwrap_or_default())
                }
            });
        }
        Ok(told)
    }

    /// Keep the checkpoint of a store correct: lower it before a message with an earlier store time is put.
    ///
    /// Args:
    ///     path: The file; it may be missing.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn keep_checkpoint(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        Ok(py.detach(|| self.writer.keep_checkpoint(&path))?)
    }

    /// Begin a checkpoint: then dispatch, flush log and queues, and call `write_checkpoint`.
    fn begin_checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.writer.begin_checkpoint())?)
    }

    /// Write into the checkpoint the store times up to which log and queues are on the disk, without what was put since
    /// `begin_checkpoint`.
    ///
    /// Args:
    ///     store_timestamp: Store time of the last message that was dispatched, in ms; 0 for none.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn write_checkpoint(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::store_timestamp)] store_timestamp: i64,
    ) -> PyResult<()> {
        Ok(py.detach(|| self.writer.write_checkpoint(store_timestamp))?)
    }

    /// Raise the first `WriteFailedError` of a put, a flush, the flush thread or the checkpoint, if there was one.
    fn check(&self) -> PyResult<()> {
        Ok(self.writer.failure().check()?)
    }

    /// The first `WriteFailedError`, and when it was; None: none.
    #[getter]
    fn failure<'py>(&self, py: Python<'py>) -> Option<(Bound<'py, PyAny>, SystemTime)> {
        let (error, since) = self.writer.failure().get()?;
        Some((PyErr::from(error).into_value(py).into_bound(py).into_any(), since))
    }

    /// Append messages with bodies as they are stored. A row that is no message does not hold up the others.
    ///
    /// Returns:
    ///     Record batches of the messages that were put, each with their places as of `put_messages`; and each message that no log
    ///     takes, with the reason.
    ///
    /// Raises:
    ///     TypeError: A column of another type.
    ///     OSError: As for `put_messages`.
    fn put_stored(&self, py: Python<'_>, messages: PyRecordBatch) -> PyResult<Stored> {
        let messages = of_message_types(&messages.into_inner())?;
        let put = py.detach(|| self.writer.put_stored(&messages))?;
        let taken = put.taken.into_iter().map(|(messages, places)| (ArrowBatch(messages), ArrowBatch(places)));
        let refused = put.refused.into_iter().map(|(message, reason)| (ArrowBatch(message), reason));
        Ok((taken.collect(), refused.collect()))
    }

    /// Append the whole frames at the beginning of bytes that another broker wrote at the end of this log, as they are.
    ///
    /// Queue offsets are those of the frames; no queue is numbered.
    ///
    /// Args:
    ///     data: Bytes of a log from `wrote_offset` on, which may end anywhere.
    ///
    /// Returns:
    ///     The length of the frames that were appended, and the number of bytes with which the frame after them is whole, as far as
    ///     it is known: 0 if nothing is left, or if what is left is not a frame.
    ///
    /// Raises:
    ///     CorruptFileError: The data begins with no frame, or with one of another offset.
    ///     ValueError: The writer is closed.
    ///     OSError: As for `put_messages`.
    ///
    /// Source: `CommitLog#appendData`.
    fn append_frames(&self, py: Python<'_>, data: PyBackedBytes) -> PyResult<(usize, usize)> {
        Ok(py.detach(|| self.writer.append_frames(&data))?)
    }

    /// Copy everything that was put from the buffers of a pool to the files, so that readers see it.
    ///
    /// Raises:
    ///     WriteFailedError: A write or an fsync failed, now or before, also in a thread.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.writer.commit())?)
    }

    /// Wait until everything that was put is on the disk.
    ///
    /// Raises:
    ///     WriteFailedError: A write or an fsync failed, now or before, also in the thread.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.writer.flush())?)
    }

    /// The counter of the puts since the log was opened.
    #[getter]
    fn counter(&self) -> PyResult<PyPutCounter> {
        Ok(PyPutCounter(self.writer.counter()?))
    }

    /// Offset in the log after the last message.
    #[getter]
    fn wrote_offset(&self) -> u64 {
        self.writer.wrote_offset()
    }

    /// Offset in the log up to which readers see everything. With `append="pool"` later messages wait in a buffer.
    #[getter]
    fn committed_offset(&self) -> u64 {
        self.writer.committed_offset()
    }

    /// Offset in the log up to which everything is on the disk.
    #[getter]
    fn flushed_offset(&self) -> u64 {
        self.writer.flushed_offset()
    }

    /// Bytes of a file.
    #[getter]
    fn file_size(&self) -> u64 {
        self.writer.file_size()
    }

    /// The log's directory.
    #[getter]
    fn path(&self) -> PathBuf {
        self.writer.path().to_owned()
    }

    /// True after `close`.
    #[getter]
    fn closed(&self) -> bool {
        self.writer.is_closed()
    }

    /// Flush and close: later puts raise ValueError.
    ///
    /// Raises:
    ///     OSError: As `flush`; the writer is closed all the same.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.writer.close())?)
    }

    fn __repr__(&self) -> String {
        format!("CommitLogWriter({}, wrote_offset={})", self.writer.path().display(), self.writer.wrote_offset())
    }
}

/// Casts the message columns to their types; other columns stay as they are, and the put refuses them.
fn of_message_types(batch: &RecordBatch) -> PyResult<RecordBatch> {
    let mut fields = Vec::with_capacity(batch.num_columns());
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(batch.num_columns());
    for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let array = match Column::named(field.name()) {
            Some(Column::StoreTimestamp | Column::BornTimestamp) => {
                let times = times_of(array, field.name())?;
                Arc::new(times.reinterpret_cast::<TimestampMillisecondType>().with_timezone("UTC"))
            }
            Some(column) => {
                let to = column.data_type();
                if to.is_integer() && !holds_integers(array.data_type()) {
                    let text = format!("{}: expected integers, got {}", field.name(), array.data_type());
                    return Err(PyTypeError::new_err(text));
                }
                cast(array, &to, field.name())?
            }
            None => Arc::clone(array),
        };
        fields.push(Field::new(field.name(), array.data_type().clone(), true));
        arrays.push(array);
    }
    let schema = Arc::new(Schema::new(fields));
    RecordBatch::try_new(schema, arrays).map_err(|e| PyValueError::new_err(e.to_string()))
}

/// Returns whether a type holds only integers, in any encoding, or nulls. A cast of other numbers would drop their fractions.
fn holds_integers(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, values) => holds_integers(values),
        DataType::RunEndEncoded(_, values) => holds_integers(values.data_type()),
        kind => kind.is_integer() || kind.is_null(),
    }
}
