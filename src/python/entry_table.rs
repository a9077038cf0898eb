//! `EntryTable`.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use super::convert;
use super::keys;
use crate::rocketmq::entry_table::EntryTable;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyEntryTable>()
}

/// Index entries in memory, 12 bytes each, by the hashes of their keys. It may be used from many threads.
#[pyclass(name = "EntryTable", module = "logdex._core", frozen)]
pub(super) struct PyEntryTable {
    table: Mutex<EntryTable>,
}

#[pymethods]
impl PyEntryTable {
    /// An empty table.
    #[new]
    fn new() -> Self {
        Self { table: Mutex::default() }
    }

    /// Add entries.
    ///
    /// Args:
    ///     keys: Keys, or whole index keys where no topic is given: an Arrow column or a sequence. A null adds nothing.
    ///     phy_offsets: Commit-log offsets: an Arrow column or a sequence of integers.
    ///     topics: One topic for all keys, or a column of them.
    ///
    /// Raises:
    ///     ValueError: Columns of different lengths.
    ///     TypeError: Columns of another type.
    #[pyo3(signature = (keys, phy_offsets, *, topics=None))]
    fn add(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        phy_offsets: &Bound<'_, PyAny>,
        topics: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let keys = keys::keys(keys, topics)?;
        let offsets = convert::int64_column(phy_offsets, "phy_offsets")?;
        py.detach(|| {
            let hashes = keys.hashes();
            self.table.lock().unwrap_or_else(PoisonError::into_inner).add(&hashes, &offsets)
        })?;
        Ok(())
    }

    /// Take all entries out of another table.
    fn take(&self, other: &Self) {
        let entries = std::mem::take(&mut *other.table.lock().unwrap_or_else(PoisonError::into_inner));
        self.table.lock().unwrap_or_else(PoisonError::into_inner).append(entries);
    }

    /// The offsets of entries that have the hashes of keys: candidates.
    ///
    /// Args:
    ///     keys: As for `add`.
    ///     topics: As for `add`.
    ///
    /// Returns:
    ///     An Arrow list column, one list of rising offsets a key; null where the key or the topic is.
    ///
    /// Raises:
    ///     ValueError: Columns of different lengths.
    ///     TypeError: Columns of another type.
    #[pyo3(signature = (keys, *, topics=None))]
    fn select_batch<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        topics: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let keys = keys::keys(keys, topics)?;
        let answer = py.detach(|| {
            let hashes = keys.hashes();
            self.table.lock().unwrap_or_else(PoisonError::into_inner).select(&hashes)
        })?;
        keys::list_array(py, answer)
    }

    fn __len__(&self) -> usize {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
