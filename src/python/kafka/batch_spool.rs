//! `BatchSpool`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use super::super::handle::HandleMutex;
use super::super::integer;
use super::super::messages::given_batches;
use super::arguments;
use super::log_writer::{of_record_types, settings, wanted_compat};
use crate::error::Error;
use crate::io::usize_of;
use crate::kafka::key_partition;
use crate::kafka::write::{BatchSpool, SpoolOptions, TopicConfig, now_ms};

register! { class PyBatchSpool; fn default_partition }

/// Return the partition in which Java producers put a key by default: murmur2, without the sign.
///
/// Args:
///     key: The key.
///     partitions: The number of partitions, 1 or more.
///
/// Source: `Utils.murmur2`, `BuiltInPartitioner#partitionForKey`.
#[pyfunction]
fn default_partition(key: PyBackedBytes, #[pyo3(from_py_with = integer::partitions)] partitions: i64) -> PyResult<u32> {
    Ok(key_partition(&key, count(partitions)?))
}

/// A number of partitions.
fn count(partitions: i64) -> PyResult<u32> {
    u32::try_from(partitions)
        .ok()
        .filter(|count| (1..=1 << 31).contains(count))
        .ok_or_else(|| PyValueError::new_err(format!("partitions={partitions}: expected 1 to 2147483648")))
}

/// A partition's topic, its number, and its chunks: position, length, number of records.
type PySpooled = (String, i32, Vec<(u64, u64, u64)>);

/// Writes records of many partitions as batches into one file. `LogWriter.append_chunks` gives them their offsets.
///
/// It works only in the process that created it, and does not pickle.
#[pyclass(name = "BatchSpool", module = "logdex._core", frozen)]
struct PyBatchSpool {
    path: PathBuf,
    spool: HandleMutex<Option<BatchSpool>>,
}

fn closed(path: &Path) -> Error {
    Error::InvalidArgument(format!("{} is closed", path.display()))
}

#[pymethods]
impl PyBatchSpool {
    /// Create the file.
    ///
    /// Args:
    ///     path: The file, which must be missing.
    ///     topics: The partitions of topics that exist.
    ///     partitions: The number of partitions of other topics; None: each row has its partition.
    ///     topic: The topic of all rows; None: that of the column.
    ///     task: A number of the task, by which tasks begin in different partitions.
    ///     config: Settings of the topics, by Kafka's names.
    ///     codec: "none", "gzip", "snappy", "lz4" or "zstd", unless the topic has a `compression.type`.
    ///     batch_bytes: A batch takes records up to this size before compression (batch.size).
    ///     compat: The Kafka release whose rules count, where they differ.
    ///
    /// Raises:
    ///     ValueError: An unknown setting, a value that it does not take, or an invalid topic.
    ///     OSError: An I/O error.
    #[staticmethod]
    #[pyo3(signature = (path, *, topics, partitions=None, topic=None, task=0, config=None, codec="none",
                        batch_bytes=16_384, compat="3.9.2"))]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn create(
        py: Python<'_>,
        path: PathBuf,
        topics: HashMap<String, Vec<i32>>,
        #[pyo3(from_py_with = integer::partitions)] partitions: Option<i64>,
        topic: Option<String>,
        #[pyo3(from_py_with = integer::task)] task: i32,
        config: Option<HashMap<String, Bound<'_, PyAny>>>,
        codec: &str,
        #[pyo3(from_py_with = integer::batch_bytes)] batch_bytes: i64,
        compat: Option<&str>,
    ) -> PyResult<Self> {
        let mut topics = topics;
        for partitions in topics.values_mut() {
            partitions.sort_unstable();
        }
        let options = SpoolOptions {
            topics,
            partitions: partitions.map(count).transpose()?,
            topic,
            task: task.cast_unsigned(),
            config: TopicConfig::parse(&settings(config)?, wanted_compat(compat)?)?,
            codec: arguments::codec(codec)?,
            batch_bytes: usize_of(arguments::size(batch_bytes, "batch_bytes")?),
        };
        let spool = py.detach(|| BatchSpool::create(&path, options))?;
        Ok(Self { path, spool: HandleMutex::new(Some(spool)) })
    }

    /// Take rows: the columns of `LogWriter.append`, `topic` and `partition`.
    ///
    /// A row without a partition goes to that of its key, as by Java producers. Rows without a key go to one partition until its
    /// batch is full, then to the next one.
    ///
    /// Raises:
    ///     ValueError: An unknown column, a null topic, or a partition that the topic does not have.
    ///     TypeError: A column of another type.
    ///     KafkaError: A broker would refuse a batch.
    ///     OSError: An I/O error.
    fn append(&self, py: Python<'_>, records: &Bound<'_, PyAny>) -> PyResult<()> {
        let given = given_batches(records, "records", super::log_writer::column)?;
        let given = given.iter().map(of_record_types).collect::<PyResult<Vec<_>>>()?;
        let append = || {
            let mut spool = self.spool.lock()?;
            let spool = spool.as_mut().ok_or_else(|| closed(&self.path))?;
            let now = now_ms();
            given.iter().try_for_each(|batch| spool.append(batch, now))
        };
        Ok(py.detach(append)?)
    }

    /// Finish all batches, close the file, and return each partition with the position, length and number of records of its chunks.
    ///
    /// Raises:
    ///     KafkaError: A broker would refuse a batch.
    ///     OSError: An I/O error.
    fn finish(&self, py: Python<'_>) -> PyResult<Vec<PySpooled>> {
        let spooled = py.detach(|| {
            let spool = self.spool.lock()?.take().ok_or_else(|| closed(&self.path))?;
            spool.finish(now_ms())
        })?;
        let of = |chunk: crate::kafka::write::Chunk| (chunk.position, chunk.len, chunk.records);
        Ok(spooled
            .into_iter()
            .map(|(topic, number, chunks)| (topic, number, chunks.into_iter().map(of).collect()))
            .collect())
    }

    /// Close and remove the file, unless it is finished. A second call does nothing.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.spool.lock()?.take().map_or(Ok(()), BatchSpool::discard))?)
    }

    fn __repr__(&self) -> String {
        format!("BatchSpool({:?})", self.path.display().to_string())
    }
}
