//! `GroupOffsets`.

use std::sync::{Mutex, PoisonError};

use arrow_array::cast::AsArray;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;

use crate::kafka::GroupOffsets;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyGroupOffsets>()
}

/// The offsets that consumer groups committed, read from the records of `__consumer_offsets` in their order.
#[pyclass(name = "GroupOffsets", module = "logdex._core", frozen)]
struct PyGroupOffsets(Mutex<GroupOffsets>);

#[pymethods]
impl PyGroupOffsets {
    /// Hold no offsets yet.
    #[new]
    fn new() -> Self {
        Self(Mutex::default())
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
            let mut offsets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let rows = keys.iter().zip(values.iter());
            rows.filter(|(key, value)| !key.is_some_and(|key| offsets.put(key, *value))).count()
        }))
    }

    /// Return group, topic, partition, offset, and the time of the commit in ms, of each group and partition; sorted.
    fn rows(&self, py: Python<'_>) -> Vec<(String, String, i32, i64, i64)> {
        py.detach(|| {
            let offsets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let rows = offsets.committed().iter().map(|((group, topic, partition), committed)| {
                (group.clone(), topic.clone(), *partition, committed.offset, committed.timestamp_ms)
            });
            rows.collect()
        })
    }
}
