//! `IndexFollower`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;

use super::index_file::PyIndexFile;
use crate::hash_index::IndexFile;
use crate::rocketmq::index_follower::{IndexFollower, Lead};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyIndexFollower>()
}

fn lock<T>(follower: &Mutex<T>) -> MutexGuard<'_, T> {
    follower.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Offset in the log, hash of the key, position in the file.
type Entry = (i64, i32, u32);

fn entry(lead: Lead) -> Entry {
    (lead.phy_offset, lead.key_hash, lead.position)
}

/// Compares the keys of messages with the entries of index files, as the log goes by.
///
/// Calls in this order: `follow` for each batch of a scan, `rest` for each file until it gives nothing, then what was found.
#[pyclass(name = "IndexFollower", module = "logdex._core", frozen)]
struct PyIndexFollower {
    follower: Mutex<IndexFollower>,
}

#[pymethods]
impl PyIndexFollower {
    /// Begin with the first entries of the files.
    ///
    /// Args:
    ///     files: Open files.
    ///     tags: The index holds tags, too.
    ///     log_begin: Entries that lead before this offset of the log are passed over.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    #[new]
    #[pyo3(signature = (files, *, tags, log_begin))]
    fn new(files: Vec<PyRef<'_, PyIndexFile>>, tags: bool, log_begin: i64) -> PyResult<Self> {
        let files: Vec<Arc<IndexFile>> = files.iter().map(|file| file.inner()).collect::<PyResult<_>>()?;
        Ok(Self { follower: Mutex::new(IndexFollower::new(files, tags, log_begin)?) })
    }

    /// Compare the keys of a batch of messages, the next of the log, with the entries that lead to them.
    ///
    /// Args:
    ///     messages: An Arrow record batch with the columns that `index_entries` reads, `tags` among them.
    ///
    /// Returns:
    ///     A tuple for each entry that leads to no message with such a key: number of the file, offset in the log, hash of the
    ///     key, position in the file.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    ///     ValueError: A column is missing, of another type, or null where a message must have a value.
    fn follow(&self, py: Python<'_>, messages: PyRecordBatch) -> PyResult<Vec<(usize, i64, i32, u32)>> {
        let messages = messages.into_inner();
        let odd = py.detach(|| lock(&self.follower).follow(&messages))?;
        Ok(odd.into_iter().map(|(file, lead)| (file, lead.phy_offset, lead.key_hash, lead.position)).collect())
    }

    /// Take entries of a file that did not come when their message did, at most so many; none when there are no more. The
    /// keys that they may lead to are missing no longer.
    ///
    /// Returns:
    ///     A tuple for each: offset in the log, hash of the key, position in the file.
    ///
    /// Raises:
    ///     OSError: The system refuses.
    fn rest(&self, py: Python<'_>, file: usize, most: usize) -> PyResult<Vec<Entry>> {
        let left = py.detach(|| lock(&self.follower).rest(file, most))?;
        Ok(left.into_iter().map(entry).collect())
    }

    /// Entries that led to what the log holds or should hold.
    #[getter]
    fn followed(&self) -> u64 {
        lock(&self.follower).followed()
    }

    /// How many keys of messages at an offset of the log or behind it have no entry.
    fn missing_from(&self, phy_offset: i64) -> usize {
        lock(&self.follower).missing_from(phy_offset)
    }

    /// The keys of messages before an offset of the log that have no entry; None: of all messages.
    ///
    /// Returns:
    ///     A tuple for each, in the order of the log: the message's offset, topic, key.
    fn missing_before(&self, phy_offset: Option<i64>) -> Vec<(i64, String, String)> {
        let follower = lock(&self.follower);
        follower.missing_before(phy_offset).map(|missing| (missing.phy_offset, missing.topic, missing.key)).collect()
    }
}
