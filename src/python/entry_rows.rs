//! `EntryRows` and `entry_rows`.

use std::sync::{Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;

use super::convert;
use super::keys;
use super::time;
use crate::hash_index::{self, EntryRows};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyEntryRows>()?;
    m.add_function(wrap_pyfunction!(entry_rows, m)?)
}

/// Return index entries with the hash of the key instead of topic and key: 20 bytes each.
///
/// Args:
///     topic: Topics: an Arrow column or a sequence, like all four.
///     key: Keys, without topics.
///     phy_offset: Commit-log offsets.
///     store_timestamp: Store times: integers in ms, timestamps or datetimes, which are rounded down.
///
/// Returns:
///     A record batch of `key_hash` (int32), `phy_offset` (int64) and `store_timestamp` (int64, ms).
///
/// Raises:
///     TypeError: A column is of another type.
///     ValueError: A value is null, or the columns differ in length.
#[pyfunction]
fn entry_rows<'py>(
    py: Python<'py>,
    topic: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
    phy_offset: &Bound<'py, PyAny>,
    store_timestamp: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let (topics, keys) = (keys::text_column(topic, "topic")?, keys::text_column(key, "key")?);
    let offsets = convert::int64_column(phy_offset, "phy_offset")?;
    let times = time::time_column(store_timestamp, "store_timestamp")?;
    let nulls = [
        ("topic", topics.as_array().null_count()),
        ("key", keys.as_array().null_count()),
        ("phy_offset", offsets.null_count()),
        ("store_timestamp", times.null_count()),
    ];
    if let Some((name, _)) = nulls.iter().find(|(_, nulls)| *nulls > 0) {
        return Err(PyValueError::new_err(format!("cannot index a row whose {name} is null")));
    }
    let keys = keys::joined(keys, topics)?;
    let hashes = py.detach(|| keys.hashes());
    if offsets.len() != hashes.len() || times.len() != hashes.len() {
        let text = format!(
            "the columns differ in length: key {}, phy_offset {}, store_timestamp {}",
            hashes.len(),
            offsets.len(),
            times.len()
        );
        return Err(PyValueError::new_err(text));
    }
    to_python(py, hash_index::entry_rows(hashes, offsets, times))
}

/// Index entries that a task holds, as `entry_rows` returns them. Any thread may call.
#[pyclass(name = "EntryRows", module = "logdex._core", frozen)]
pub(super) struct PyEntryRows(Mutex<EntryRows>);

impl PyEntryRows {
    fn with<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&mut EntryRows) -> T + Send) -> T {
        py.detach(|| call(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[pymethods]
impl PyEntryRows {
    /// Hold no entries yet.
    #[new]
    fn new() -> Self {
        Self(Mutex::default())
    }

    /// Add the entries of a batch that `entry_rows` returned.
    ///
    /// Raises:
    ///     ValueError: The batch has other columns.
    fn add(&self, py: Python<'_>, rows: PyRecordBatch) -> PyResult<()> {
        let batch = rows.into_inner();
        let columns = || {
            let hashes = batch.column_by_name("key_hash")?.as_primitive_opt::<Int32Type>()?;
            let offsets = batch.column_by_name("phy_offset")?.as_primitive_opt::<Int64Type>()?;
            Some((hashes, offsets, batch.column_by_name("store_timestamp")?.as_primitive_opt::<Int64Type>()?))
        };
        let (hashes, offsets, times) =
            columns().ok_or_else(|| PyValueError::new_err("rows: expected the columns of entry_rows"))?;
        self.with(py, |rows| rows.add(hashes.values(), offsets.values(), times.values()));
        Ok(())
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.with(py, |rows| rows.len())
    }

    /// True if no offset is below the one before it.
    #[getter]
    fn is_ordered(&self, py: Python<'_>) -> bool {
        self.with(py, |rows| rows.is_ordered())
    }

    /// The least and the greatest commit-log offset, and the same of the store times; None without entries.
    #[getter]
    fn spans(&self, py: Python<'_>) -> Option<((i64, i64), (i64, i64))> {
        self.with(py, |rows| rows.spans())
    }

    /// Return the entries in the order of their offsets, in batches. Entries of one offset keep their order.
    fn sorted<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let batches: Vec<RecordBatch> = self.with(py, |rows| rows.sorted().collect());
        batches.into_iter().map(|batch| to_python(py, batch)).collect()
    }
}

fn to_python(py: Python<'_>, batch: RecordBatch) -> PyResult<Bound<'_, PyAny>> {
    PyRecordBatch::new(batch).into_arro3(py)
}
