//! `GroupOffsets`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BinaryArray, RecordBatch};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;

use super::super::convert::ArrowBatch;
use super::super::handle::lock;
use super::super::integer;
use crate::kafka::GroupOffsets;

register! { class PyGroupOffsets }

/// The offsets that consumer groups committed, read from the records of `__consumer_offsets` in their order.
#[pyclass(name = "GroupOffsets", module = "logdex._core", frozen)]
struct PyGroupOffsets(Mutex<GroupOffsets>);

#[pymethods]
impl PyGroupOffsets {
    /// Hold no offsets yet. The commits of the group `watched` are kept over time.
    #[new]
    #[pyo3(signature = (watched=None))]
    fn new(watched: Option<String>) -> Self {
        Self(Mutex::new(watched.map_or_else(GroupOffsets::default, GroupOffsets::watching)))
    }

    /// Return the partition of `__consumer_offsets` that a group belongs to if it has this number of partitions.
    #[staticmethod]
    fn partition_of(group: &str, #[pyo3(from_py_with = integer::partitions)] partitions: i32) -> i32 {
        GroupOffsets::partition_of(group, partitions)
    }

    /// Return the times of the first and the last commit of the watched group, in ms; None: there is none.
    fn watched_times(&self, py: Python<'_>) -> Option<(i64, i64)> {
        py.detach(|| lock(&self.0).watched_times())
    }

    /// Return topic, partition, and the offsets of the watched group at some times in ms; None before its first commit there.
    fn watched_offsets(&self, py: Python<'_>, times: Vec<i64>) -> Vec<(String, i32, Vec<Option<i64>>)> {
        let found = py.detach(|| lock(&self.0).watched_offsets(&times));
        found.into_iter().map(|((topic, partition), offsets)| (topic, partition, offsets)).collect()
    }

    /// Take a batch with the columns `key` and `value`, and return how many of its records have an unknown form.
    ///
    /// Raises:
    ///     ValueError: The batch has other columns.
    fn add(&self, py: Python<'_>, records: PyRecordBatch) -> PyResult<usize> {
        let records = records.into_inner();
        let column = |name| records.column_by_name(name).and_then(|column| column.as_binary_opt::<i32>());
        let (Some(keys), Some(values)) = (column("key"), column("value")) else {
            return Err(PyValueError::new_err("records: expected the binary columns key and value"));
        };
        Ok(py.detach(|| {
            let mut offsets = lock(&self.0);
            let rows = keys.iter().zip(values.iter());
            rows.filter(|(key, value)| !key.is_some_and(|key| offsets.put(key, *value))).count()
        }))
    }

    /// Return records of `__consumer_offsets`, with the columns `key` and `value`, that restore groups and offsets.
    ///
    /// Args:
    ///     ranges: The first offset of each partition that is restored, and its end; commits of others are left out.
    ///     now: The time at which the groups have lost their members, in ms.
    fn restored(
        &self,
        py: Python<'_>,
        ranges: HashMap<(String, i32), (i64, i64)>,
        #[pyo3(from_py_with = integer::now)] now: i64,
    ) -> PyResult<ArrowBatch> {
        let records = py.detach(|| lock(&self.0).restored(&ranges, now));
        let (keys, values): (Vec<_>, Vec<_>) = records.into_iter().unzip();
        let (keys, values) = (BinaryArray::from_iter_values(keys), BinaryArray::from_iter_values(values));
        RecordBatch::try_from_iter([("key", Arc::new(keys) as ArrayRef), ("value", Arc::new(values))]).try_into()
    }

    /// Return whether all groups belong to a partition of a topic with this number of partitions.
    fn are_of(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = integer::partition)] partition: i32,
        #[pyo3(from_py_with = integer::partitions)] partitions: i32,
    ) -> bool {
        py.detach(|| lock(&self.0).are_of(partition, partitions))
    }

    /// Return group, topic, partition, offset, and the time of the commit in ms, of each group and partition; sorted.
    fn rows(&self, py: Python<'_>) -> Vec<(String, String, i32, i64, i64)> {
        py.detach(|| {
            let offsets = lock(&self.0);
            let rows = offsets.committed().iter().map(|((group, topic, partition), committed)| {
                (group.clone(), topic.clone(), *partition, committed.offset, committed.timestamp_ms)
            });
            rows.collect()
        })
    }
}
