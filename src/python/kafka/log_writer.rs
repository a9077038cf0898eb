//! `LogWriter`.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, BinaryArray, ListArray, RecordBatch, StringArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields, Schema};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyType};

use super::super::convert::cast;
use super::super::counters::PyPutCounter;
use super::super::handle::{Raised, lock};
use super::super::integer;
use super::super::messages::{cells, given_batches};
use super::super::time::{self, time_column, times_of};
use super::{arguments, records};
use crate::error::Error;
use crate::io::{Location, usize_of};
use crate::kafka::write::{
    AppendOptions, AppendResult, COLUMNS, Chunk, LogOptions, LogService, LogWriter, NewRecords, NewTopic, Offsets,
    Origin, RepairOptions, Repaired, Replica, TopicConfig, Transactions, now_ms, repair, with_topics,
};
use crate::kafka::{self, AbortedRange, Compat};
use crate::report::Finding;

register! { class PyLogWriter; fn repair_log, transactions_before, bootstrap_with_topics, topic_ids }

/// Producer, first offset, last offset.
type PyAborted = (i64, i64, i64);
/// The cut, aborted transactions, open ones with the epochs of their producers, producers and epochs of committed ones.
type PyTransactions = (Option<i64>, Vec<PyAborted>, Vec<(PyAborted, i16)>, Vec<(i64, i16)>);

/// Calls `run` with a function that calls a Python function with a number of bytes. What that raises is the error.
fn shown<T>(
    progress: Option<&Py<PyAny>>,
    run: impl FnOnce(&(dyn Fn(u64) -> Result<(), Error> + Sync)) -> PyResult<T>,
) -> PyResult<T> {
    let raised = Raised::default();
    let result = run(&|bytes| {
        let Some(progress) = progress else { return Ok(()) };
        raised.keep(Python::attach(|py| progress.call1(py, (bytes,))).map(drop), "the caller ended it")
    });
    raised.check(Ok(())).and(result)
}

/// What `repair_log` returns.
type PyRepaired = (HashMap<&'static str, u64>, Vec<Finding>, i64, Vec<i64>);

/// Leave damaged batches out of the log of a partition, in new segments; replaced segments keep their bytes as `.log.damaged`.
///
/// Args:
///     partition_dir: The directory.
///     epochs: Leader epochs as (epoch, first offset), in the order of their file.
///     gaps: Offsets at which segments are missing, or the ends of segments.
///     truncate: The log ends at the first damage.
///     dry_run: Change nothing.
///     progress: Called with the bytes that were read.
///
/// Returns:
///     Counts by name; the damage; the offset after the last batch; the base offsets of the segments that change.
///
/// Raises:
///     WriteFailedError: A write or an fsync failed.
///     OSError: An I/O error.
#[pyfunction]
#[pyo3(signature = (partition_dir, *, epochs, gaps, truncate, dry_run, progress=None))]
fn repair_log(
    py: Python<'_>,
    partition_dir: PathBuf,
    epochs: Vec<(i64, i64)>,
    gaps: Vec<i64>,
    truncate: bool,
    dry_run: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<PyRepaired> {
    let config = TopicConfig::parse(&HashMap::new(), wanted_compat(None)?)?;
    let options =
        RepairOptions { config: &config, epochs: &epochs, gaps: &gaps, truncates: truncate, is_dry_run: dry_run };
    let repaired = shown(progress.as_ref(), |show| {
        Ok(py.detach(|| repair(&partition_dir, options, now_ms(), &|bytes| show(bytes)))?)
    })?;
    let Repaired { batches, records, restored_batches, truncated_batches, left_out_bytes, unfinished_bytes, .. } =
        repaired;
    let counts = HashMap::from([
        ("batches", batches),
        ("records", records),
        ("restored_batches", restored_batches),
        ("truncated_batches", truncated_batches),
        ("left_out_bytes", left_out_bytes),
        ("unfinished_bytes", unfinished_bytes),
    ]);
    Ok((counts, repaired.findings, repaired.end_offset, repaired.changed))
}

/// Read the transactions of a log up to a moment.
///
/// Args:
///     parts: (segment, begin_offset, end_offset, aborted) each, as for `read_records`; findings among them are passed over.
///     as_of: The last timestamp, in ms; None: the end of the log counts.
///
/// Returns:
///     The first offset after the moment (None: none); the aborted transactions; the open ones, each with the epoch of its producer;
///     producers and epochs of the markers of committed ones.
#[pyfunction]
fn transactions_before(
    py: Python<'_>,
    parts: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = integer::as_of)] as_of: Option<i64>,
) -> PyResult<PyTransactions> {
    let (ranges, _) = records::planned(py, parts)?;
    let found = py.detach(|| Transactions::before(&ranges, as_of.unwrap_or(i64::MAX)))?;
    let of = |range: &AbortedRange| (range.producer_id, range.first_offset, range.last_offset);
    let open = found.open.iter().map(|(range, epoch)| (of(range), *epoch)).collect();
    Ok((found.cut, found.aborted.iter().map(of).collect(), open, found.committed))
}

/// Name, id, number of partitions, settings.
type PyNewTopic = (String, String, i32, Vec<(String, String)>);

/// Read the ids of topics from a broker's copy of the cluster's metadata: its newest snapshot, and the records after it. Damaged
/// batches are skipped.
///
/// Args:
///     partition_dir: The directory `__cluster_metadata-0`. If it does not exist, there are no ids.
///
/// Returns:
///     Ids by topic, in 22 letters of URL-safe base64.
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
fn topic_ids(py: Python<'_>, partition_dir: Location) -> PyResult<BTreeMap<String, String>> {
    Ok(py.detach(|| kafka::topic_ids(&partition_dir))?)
}

/// Return the content of a `bootstrap.checkpoint`, which `kafka-storage format` wrote, with topics that the broker has.
///
/// Args:
///     path: The file.
///     topics: Name, id, number of partitions and settings each.
///     node_id: The number of the broker.
///     directory_id: `directory.id` of its log directory.
///     next_producer_id: An id above those of all producers of the topics.
///
/// Raises:
///     CorruptFileError: The file is not a whole snapshot.
///     ValueError: An invalid id.
///     OSError: An I/O error.
#[pyfunction]
#[pyo3(signature = (path, topics, *, node_id, directory_id, next_producer_id))]
fn bootstrap_with_topics(
    py: Python<'_>,
    path: PathBuf,
    topics: Vec<PyNewTopic>,
    node_id: i32,
    directory_id: String,
    next_producer_id: i64,
) -> PyResult<Vec<u8>> {
    let topics: Vec<_> = topics
        .into_iter()
        .map(|(name, id, partitions, settings)| NewTopic { name, id, partitions, settings })
        .collect();
    let replica = Replica { node: node_id, directory: directory_id };
    Ok(py.detach(|| {
        let bytes = std::fs::read(&path).map_err(|e| Error::io(&path, e))?;
        with_topics(&path, &bytes, &topics, &replica, next_producer_id, now_ms())
    })?)
}

/// A file, and a position, length and number of records in it.
type PyChunk<'py> = (Location, Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Counts of records, of whole and of encoded batches, and of bytes; findings; producers and epochs of committed transactions; an id
/// above those of all producers.
type PyCopied = ((u64, u64, u64, u64), Vec<Finding>, Vec<(i64, i16)>, i64);

/// Writes one partition directory, byte for byte as a Kafka 3.9.2 or 4.3.1 broker does; a broker can load it after `close`.
///
/// Open it with `LogWriter.open`. Any thread may call it. While it is open, no other writer can open the directory, and no broker
/// must run on it; readers (`Log`) can. It works only in the process that opened it, and does not pickle. If it is neither closed
/// nor abandoned, the files stay as a killed broker leaves them. Source: `UnifiedLog`.
///
/// Example:
///     >>> import tempfile
///     >>> from logdex.kafka import Log, LogWriter
///     >>> directory = tempfile.mkdtemp() + "/orders-0"
///     >>> with LogWriter.open(directory) as writer:
///     ...     writer.append({"key": [b"k1", b"k2"], "value": [b"one", None]}).last_offset
///     1
///     >>> Log.open(directory).log_end_offset
///     2
#[pyclass(name = "LogWriter", module = "logdex._core", frozen)]
struct PyLogWriter {
    /// Stops before the writer is dropped.
    service: Mutex<Option<LogService>>,
    writer: Arc<LogWriter>,
    clock: Option<Py<PyAny>>,
}

impl PyLogWriter {
    fn now(&self, py: Python<'_>) -> PyResult<i64> {
        match &self.clock {
            Some(clock) => integer::integer(&clock.bind(py).call0()?, "clock"),
            None => Ok(now_ms()),
        }
    }

    /// Calls the writer without the GIL.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&LogWriter, i64) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let now = self.now(py)?;
        Ok(py.detach(|| call(&self.writer, now))?)
    }

    fn offsets(&self, py: Python<'_>) -> PyResult<Offsets> {
        Ok(py.detach(|| self.writer.offsets())?)
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| drop(lock(&self.service).take()));
    }
}

// A `logdex.kafka.writer.AppendResult`.
into_python!(AppendResult, |result, py| {
    static RESULT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let AppendResult { first_offset, last_offset, max_timestamp, log_append_time } = result;
    RESULT.import(py, "logdex.kafka.writer", "AppendResult")?.call1((
        first_offset,
        last_offset,
        max_timestamp,
        log_append_time,
    ))
});

/// The release whose rules count.
pub(super) fn wanted_compat(word: Option<&str>) -> PyResult<Compat> {
    arguments::compat(Some(word.unwrap_or("3.9.2")))?.ok_or_else(|| PyValueError::new_err("compat"))
}

pub(super) fn settings(config: Option<HashMap<String, Bound<'_, PyAny>>>) -> PyResult<HashMap<String, String>> {
    let text = |value: Bound<'_, PyAny>| -> PyResult<String> {
        let text = value.str()?.extract::<String>()?;
        // Kafka's words for them.
        Ok(if value.is_instance_of::<PyBool>() { text.to_ascii_lowercase() } else { text })
    };
    config.unwrap_or_default().into_iter().map(|(name, value)| Ok((name, text(value)?))).collect()
}

fn header_fields() -> Fields {
    Fields::from(vec![Field::new("key", DataType::Utf8, true), Field::new("value", DataType::Binary, true)])
}

fn header_type() -> DataType {
    DataType::List(Arc::new(Field::new("item", DataType::Struct(header_fields()), true)))
}

/// A column of a record from a sequence of values.
pub(super) fn column(name: &str, values: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    match name {
        "timestamp" => Ok(Arc::new(time_column(values, name)?)),
        "headers" => {
            let rows = cells(name, "pairs of a text and bytes", values, |row| {
                row.extract::<Option<Vec<(PyBackedStr, Option<PyBackedBytes>)>>>()
            })?;
            let pairs = rows.iter().flatten().flatten();
            let (keys, values): (Vec<&str>, Vec<Option<&[u8]>>) =
                pairs.map(|(key, value)| (&**key, value.as_deref())).unzip();
            let (keys, values) = (StringArray::from(keys), BinaryArray::from_opt_vec(values));
            let structs = StructArray::new(header_fields(), vec![Arc::new(keys), Arc::new(values)], None);
            let lengths = rows.iter().map(|row| row.as_ref().map_or(0, Vec::len));
            let nulls = rows.iter().map(Option::is_some).collect::<NullBuffer>();
            let item = Arc::new(Field::new("item", DataType::Struct(header_fields()), true));
            let lists = ListArray::new(item, OffsetBuffer::from_lengths(lengths), Arc::new(structs), Some(nulls));
            Ok(Arc::new(lists))
        }
        _ if COLUMNS.contains(&name) => {
            let bytes = cells(name, "bytes", values, |value| Ok(value.extract::<Option<PyBackedBytes>>()?))?;
            Ok(Arc::new(bytes.iter().map(Option::as_deref).collect::<BinaryArray>()))
        }
        _ => Err(PyValueError::new_err(format!("column {name}: expected {}", COLUMNS.join(", ")))),
    }
}

/// The columns of records, with the types that the writer takes.
pub(super) fn of_record_types(batch: &RecordBatch) -> PyResult<RecordBatch> {
    let mut columns = Vec::<(Field, ArrayRef)>::new();
    for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let array = match field.name().as_str() {
            "key" | "value" => cast(array, &DataType::Binary, field.name())?,
            "headers" if !array.data_type().is_null() => cast(array, &header_type(), field.name())?,
            "topic" if !array.data_type().is_null() => cast(array, &DataType::Utf8, field.name())?,
            "partition" if !array.data_type().is_null() => cast(array, &DataType::Int32, field.name())?,
            "timestamp" => Arc::new(times_of(array, field.name())?),
            _ => Arc::clone(array),
        };
        columns.push((Field::new(field.name(), array.data_type().clone(), true), array));
    }
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let schema = Arc::new(Schema::new(fields));
    RecordBatch::try_new_with_options(schema, arrays, &options).map_err(|e| PyValueError::new_err(e.to_string()))
}

#[pymethods]
impl PyLogWriter {
    /// Open a partition directory for writing, or begin one.
    ///
    /// It does what a broker's start does: it removes what a crash left, recovers segments that may be damaged, and rebuilds the
    /// producers' state.
    ///
    /// Args:
    ///     partition_dir: The directory, `<topic>-<partition>`. It is made if it is missing.
    ///     topic_id: Id of the topic, 22 letters of URL-safe base64, for `partition.metadata`; None: that of the file, if there
    ///         is one.
    ///     config: Settings of the topic, by Kafka's names.
    ///     clean: Whether the last writer closed the log (`.kafka_cleanshutdown`). False: segments from the recovery point on are
    ///         recovered, and cut at the first damaged batch.
    ///     recovery_point: Offset up to which the log is on the disk (`recovery-point-offset-checkpoint`).
    ///     log_start_offset: Offset of the first record (`log-start-offset-checkpoint`).
    ///     producer_id_expiration_ms: Producers that did not write for this time are forgotten (producer.id.expiration.ms).
    ///     clock: A callable that returns ms since the epoch; then only `run_due_tasks` runs tasks. None: the system's clock, and
    ///         a thread that runs them.
    ///     compat: The Kafka release whose rules count, where they differ.
    ///     flush: "none": as the broker, by `flush.messages`, `flush.ms`, after a roll and at `close`; "sync": every append waits for
    ///         the disk, and one fsync serves all appends that wait.
    ///     truncate: Whether a recovery may cut valid batches after damage, as a broker's does. False: that is an error, and nothing
    ///         is changed.
    ///     counter: Counts the appends; None: a counter of its own.
    ///
    /// Raises:
    ///     LockedError: Another writer has the directory open, or a broker holds the log directory.
    ///     CorruptFileError: `leader-epoch-checkpoint` or `partition.metadata` is damaged; or the log is, and `clean` is true or
    ///         `truncate` is false.
    ///     KafkaError: `partition.metadata` has another topic id.
    ///     ValueError: An unknown setting, or a value that it does not take.
    ///     OSError: An I/O error.
    #[staticmethod]
    #[pyo3(signature = (partition_dir, *, topic_id=None, config=None, clean=true, recovery_point=0, log_start_offset=0,
                        producer_id_expiration_ms=86_400_000, clock=None, compat="3.9.2", flush="none", truncate=true, counter=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn open(
        py: Python<'_>,
        partition_dir: PathBuf,
        topic_id: Option<String>,
        config: Option<HashMap<String, Bound<'_, PyAny>>>,
        clean: bool,
        #[pyo3(from_py_with = integer::recovery_point)] recovery_point: i64,
        #[pyo3(from_py_with = integer::log_start_offset)] log_start_offset: i64,
        #[pyo3(from_py_with = integer::producer_id_expiration_ms)] producer_id_expiration_ms: i64,
        clock: Option<Py<PyAny>>,
        compat: Option<&str>,
        flush: &str,
        truncate: bool,
        counter: Option<&PyPutCounter>,
    ) -> PyResult<Self> {
        for (name, value) in [("recovery_point", recovery_point), ("log_start_offset", log_start_offset)] {
            arguments::size(value, name)?;
        }
        let syncs = match flush {
            "none" => false,
            "sync" => true,
            _ => return Err(PyValueError::new_err(format!("flush={flush:?}: expected \"none\" or \"sync\""))),
        };
        if clock.as_ref().is_some_and(|clock| !clock.bind(py).is_callable()) {
            return Err(PyTypeError::new_err("clock: expected a callable that returns milliseconds"));
        }
        let compat = wanted_compat(compat)?;
        let options = LogOptions {
            config: TopicConfig::parse(&settings(config)?, compat)?,
            compat,
            is_clean: clean,
            truncates: truncate,
            recovery_point,
            log_start_offset,
            producer_id_expiration_ms,
            topic_id,
        };
        let now = match &clock {
            Some(clock) => integer::integer(&clock.bind(py).call0()?, "clock")?,
            None => now_ms(),
        };
        let counter = counter.map_or_else(Arc::default, |counter| Arc::clone(&counter.0));
        let writer = Arc::new(py.detach(|| LogWriter::open(&partition_dir, options, syncs, counter, now))?);
        let service = if clock.is_none() { Some(writer.start_service()?) } else { None };
        Ok(Self { service: Mutex::new(service), writer, clock })
    }

    /// Set the topic's id of a log without one, and write `partition.metadata`. Source: `UnifiedLog#assignTopicId`.
    ///
    /// Args:
    ///     topic_id: 22 letters of URL-safe base64.
    ///
    /// Raises:
    ///     KafkaError: The log has another id.
    ///     ValueError: An invalid id.
    fn assign_topic_id(&self, py: Python<'_>, topic_id: &str) -> PyResult<()> {
        self.call(py, |writer, _| writer.assign_topic_id(topic_id))
    }

    /// Begin a leader's epoch at the end of the log.
    ///
    /// Args:
    ///     epoch: The epoch; `append` uses it from now on.
    ///
    /// Raises:
    ///     KafkaError: A negative epoch.
    fn become_leader(&self, py: Python<'_>, #[pyo3(from_py_with = integer::epoch)] epoch: i32) -> PyResult<()> {
        self.call(py, |writer, _| writer.become_leader(epoch))
    }

    /// Append record batches as a broker does that gets them.
    ///
    /// Args:
    ///     data: Batches, one after the other. Part of a batch at the end is left out.
    ///     leader_epoch: The leader's epoch. For "replication", batches of a larger epoch are left out.
    ///     origin: "client": a producer sends one batch, which is checked, and gets offsets; "coordinator": a coordinator, which
    ///         also writes markers; "replication": the leader sends batches, and their offsets stay.
    ///     transaction_version: 2: markers have the epoch after that of their transaction (transaction.version).
    ///
    /// Returns:
    ///     The offsets and timestamps; those of the first append for a batch that a producer sent again; -1 if nothing was appended.
    ///
    /// Raises:
    ///     KafkaError: A broker would refuse it; the log is as a broker would leave it.
    ///     WriteFailedError: A write or an fsync failed, now or before: nothing more is written.
    #[pyo3(signature = (data, *, leader_epoch, origin="client", transaction_version=1))]
    fn append_batches(
        &self,
        py: Python<'_>,
        data: PyBackedBytes,
        #[pyo3(from_py_with = integer::leader_epoch)] leader_epoch: i32,
        origin: &str,
        #[pyo3(from_py_with = integer::transaction_version)] transaction_version: i32,
    ) -> PyResult<AppendResult> {
        let origin = match origin {
            "client" => Origin::Client,
            "coordinator" => Origin::Coordinator,
            "replication" => Origin::Replication,
            _ => {
                let text = format!("origin={origin:?}: expected \"client\", \"coordinator\" or \"replication\"");
                return Err(PyValueError::new_err(text));
            }
        };
        let options =
            AppendOptions { markers_bump_epochs: transaction_version >= 2, ..AppendOptions::of(origin, leader_epoch) };
        self.call(py, |writer, now| writer.append_batches(&data, options, now))
    }

    /// Append records in one or more batches, as a producer without an id sends them.
    ///
    /// Batches are appended one by one: if one is refused, those before it stay.
    ///
    /// Args:
    ///     records: Arrow data, or a mapping of columns: `key` and `value` (bytes or null), `headers` (a list of pairs of a text and
    ///         bytes or null), `timestamp` (ms or times; without it, now). All columns may be left out.
    ///     codec: "none", "gzip", "snappy", "lz4" or "zstd".
    ///     level: Level of the codec; None: Kafka's default.
    ///     batch_bytes: A batch takes records up to this size before compression (batch.size).
    ///
    /// Returns:
    ///     The offsets of the first and the last record, and the largest timestamp.
    ///
    /// Raises:
    ///     ValueError: An unknown column, or a header without a key; nothing was appended.
    ///     TypeError: A column of another type.
    ///     KafkaError: A broker would refuse a batch.
    ///     WriteFailedError: As for `append_batches`.
    #[pyo3(signature = (records, *, codec="none", level=None, batch_bytes=16_384))]
    fn append(
        &self,
        py: Python<'_>,
        records: &Bound<'_, PyAny>,
        codec: &str,
        #[pyo3(from_py_with = integer::level)] level: Option<i32>,
        #[pyo3(from_py_with = integer::batch_bytes)] batch_bytes: i64,
    ) -> PyResult<AppendResult> {
        let codec = arguments::codec(codec)?;
        let batch_bytes = usize_of(arguments::size(batch_bytes, "batch_bytes")?);
        let given = given_batches(records, "records", column)?;
        let given = given.iter().map(of_record_types).collect::<PyResult<Vec<_>>>()?;
        let records = NewRecords { records: &given, codec, level, batch_bytes };
        self.call(py, |writer, now| writer.append(&records, now))
    }

    /// Append chunks of `BatchSpool.finish` in order, with offsets from the end of the log on, and move the high watermark.
    ///
    /// Args:
    ///     chunks: (file, position, length, number of records) each.
    ///
    /// Returns:
    ///     The offsets of the first and the last record, and the largest timestamp.
    ///
    /// Raises:
    ///     CorruptFileError: A chunk has other batches than were written. Those before it stay.
    ///     WriteFailedError: As for `append_batches`.
    ///     OSError: A file cannot be read.
    fn append_chunks(&self, py: Python<'_>, chunks: Vec<PyChunk<'_>>) -> PyResult<AppendResult> {
        let number = |value: &Bound<'_, PyAny>| integer::integer::<u64>(value, "chunks");
        let of = |(path, position, len, records)| {
            Ok((path, Chunk { position: number(&position)?, len: number(&len)?, records: number(&records)? }))
        };
        let chunks = chunks.into_iter().map(of).collect::<PyResult<Vec<_>>>()?;
        self.call(py, |writer, now| writer.append_chunks(&chunks, now))
    }

    /// Append the records of another log: whole batches where all of their records are copied. Offsets stay.
    ///
    /// Args:
    ///     parts: (segment, begin_offset, end_offset, aborted) each, as for `read_records`; findings among them are returned.
    ///     begin: First timestamp.
    ///     end: Last timestamp.
    ///     keys: Only records whose key is one of these; None: all.
    ///     header: Compare the values of the header of this name with `keys`, not the record's key.
    ///     as_of: The log ends before the first record with a later timestamp, in ms; None: it does not.
    ///     progress: Called with the bytes of the other log that were read.
    ///
    /// Returns:
    ///     The numbers of records, of batches copied whole, of batches that were encoded again, and of bytes; the damage that was
    ///     skipped; producers and epochs of the markers of committed transactions; an id above those of all producers.
    ///
    /// Raises:
    ///     WriteFailedError: As for `append_batches`.
    ///     OSError: The other log cannot be read.
    #[pyo3(signature = (parts, *, begin=None, end=None, keys=None, header=None, as_of=None, progress=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn copy(
        &self,
        py: Python<'_>,
        parts: &Bound<'_, PyAny>,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        keys: Option<&Bound<'_, PyAny>>,
        header: Option<String>,
        #[pyo3(from_py_with = integer::as_of)] as_of: Option<i64>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<PyCopied> {
        let (ranges, missing) = records::planned(py, parts)?;
        let times = time::bounds(begin, end)?;
        let keys = arguments::key_filter(keys, header)?;
        let as_of = as_of.unwrap_or(i64::MAX);
        let copied = shown(progress.as_ref(), |show| {
            self.call(py, |writer, now| writer.copy(&ranges, times, keys.as_ref(), as_of, now, show))
        })?;
        let found: Vec<_> = missing.into_iter().map(|(_, finding)| finding).chain(copied.findings).collect();
        let counts = (copied.records, copied.whole_batches, copied.encoded_batches, copied.bytes);
        Ok((counts, found, copied.committed, copied.next_producer_id))
    }

    /// End the open transactions by markers, and return their number.
    ///
    /// Args:
    ///     timestamp: The time of the markers, in ms.
    ///     committed: Producers and epochs of the markers of committed transactions. A transaction of an epoch before that of a marker
    ///         is committed; the others are aborted.
    #[pyo3(signature = (timestamp, *, committed=Vec::new()))]
    fn end_transactions(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::timestamp)] timestamp: i64,
        committed: Vec<(i64, i16)>,
    ) -> PyResult<usize> {
        self.call(py, |writer, now| writer.end_transactions(&committed, timestamp, now))
    }

    /// Move the high watermark, which limits `delete_records` and `delete_expired`.
    ///
    /// Args:
    ///     to: The offset up to which all replicas have the log; None: its end.
    #[pyo3(signature = (to=None))]
    fn advance_high_watermark(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::to)] to: Option<i64>,
    ) -> PyResult<()> {
        self.call(py, |writer, _| writer.advance_high_watermark(to))
    }

    /// Delete the records below an offset: the log begins there. Segments go with the next `delete_expired`.
    ///
    /// Args:
    ///     to: The offset, at most the high watermark.
    ///
    /// Raises:
    ///     KafkaError: It is above the high watermark.
    fn delete_records(&self, py: Python<'_>, #[pyo3(from_py_with = integer::to)] to: i64) -> PyResult<()> {
        self.call(py, |writer, now| writer.delete_records(to, now))
    }

    /// Delete segments that the settings of the topic do not keep (retention.bytes, retention.ms), and return their number.
    fn delete_expired(&self, py: Python<'_>) -> PyResult<usize> {
        self.call(py, LogWriter::delete_expired)
    }

    /// Begin a new segment.
    fn roll(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, LogWriter::roll)
    }

    /// Bring the log and its indexes to the disk, and move the recovery point to its end.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, LogWriter::flush)
    }

    /// Cut the log at an offset: the next record gets it. A follower does so when its leader has another log.
    ///
    /// Args:
    ///     offset: The offset. At or after the end of the log, only epochs are cut.
    ///
    /// Raises:
    ///     ValueError: A negative offset.
    fn truncate_to(&self, py: Python<'_>, #[pyo3(from_py_with = integer::offset)] offset: i64) -> PyResult<()> {
        arguments::size(offset, "offset")?;
        self.call(py, |writer, now| writer.truncate_to(offset, now))
    }

    /// Remove all records, and start the log at an offset.
    ///
    /// Args:
    ///     offset: The offset.
    ///
    /// Raises:
    ///     ValueError: A negative offset.
    fn truncate_fully(&self, py: Python<'_>, #[pyo3(from_py_with = integer::offset)] offset: i64) -> PyResult<()> {
        arguments::size(offset, "offset")?;
        self.call(py, |writer, now| writer.truncate_fully(offset, now))
    }

    /// Run the tasks that are due by the clock: flushes after rolls, deletions, expiry of producers.
    fn run_due_tasks(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, LogWriter::run_due_tasks)
    }

    /// Flush, write a snapshot of the producers, trim the files and close them. A second call does nothing.
    ///
    /// Raises:
    ///     WriteFailedError: A write or an fsync failed, now or before; the files are closed all the same.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.stop(py);
        self.call(py, LogWriter::close)
    }

    /// Close the files as a kill does: nothing is flushed or trimmed, and tasks are forgotten.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.stop(py);
        self.call(py, |writer, _| writer.abandon())
    }

    /// The partition directory.
    #[getter]
    fn path(&self) -> PathBuf {
        self.writer.path().to_owned()
    }

    /// True if it is closed or abandoned. The offsets stay readable.
    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.writer.is_closed()?)
    }

    /// Offset of the first record.
    #[getter]
    fn log_start_offset(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.offsets(py)?.log_start)
    }

    /// Offset after the last record.
    #[getter]
    fn end_offset(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.offsets(py)?.end)
    }

    /// Offset up to which log and indexes are on the disk.
    #[getter]
    fn recovery_point(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.offsets(py)?.recovery_point)
    }

    /// Offset up to which all replicas have the log.
    #[getter]
    fn high_watermark(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.offsets(py)?.high_watermark)
    }

    /// Offset up to which consumers of committed records read.
    #[getter]
    fn last_stable_offset(&self, py: Python<'_>) -> PyResult<i64> {
        Ok(self.offsets(py)?.last_stable)
    }

    /// Base offsets of the segments.
    #[getter]
    fn segments(&self, py: Python<'_>) -> PyResult<Vec<i64>> {
        Ok(self.offsets(py)?.segments)
    }

    /// Bytes of all segments.
    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.offsets(py)?.bytes)
    }

    /// The first write or fsync that failed, as the error that every later call raises; None: none.
    #[getter]
    fn failure(&self) -> Option<PyErr> {
        self.writer.failure().get().map(|(error, _)| error.into())
    }

    fn __repr__(&self) -> PyResult<String> {
        let state = if self.writer.is_closed()? { ", closed" } else { "" };
        Ok(format!("LogWriter({:?}{state})", self.writer.path().display().to_string()))
    }

    fn __enter__(slf: Py<Self>) -> PyResult<Py<Self>> {
        if slf.get().writer.is_closed()? {
            return Err(PyValueError::new_err(format!("{} is closed", slf.get().writer.path().display())));
        }
        Ok(slf)
    }

    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}
