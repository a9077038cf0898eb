//! `IndexCrossCheck`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;

use super::commit_log::PyCommitLog;
use super::index_file::PyIndexFile;
use crate::hash_index::IndexFile;
use crate::rocketmq::index_cross_check::{IndexCrossCheck, Lead};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyIndexCrossCheck>()
}

/// Number of the file, offset in the log, hash of the key, position in the file.
type Entry = (usize, i64, i32, u32);

fn entry(file: usize, lead: Lead) -> Entry {
    (file, lead.phy_offset, lead.key_hash, lead.position)
}

/// Compares the keys of messages with the entries of index files, during a scan of the log.
///
/// Calls in this order: `check` for each batch of the scan, `check_rest` for each file until none is left, then the results.
#[pyclass(name = "IndexCrossCheck", module = "logdex._core", frozen)]
struct PyIndexCrossCheck {
    check: Mutex<IndexCrossCheck>,
}

impl PyIndexCrossCheck {
    /// Must be called without the interpreter lock: another thread may hold this lock while it reads the log.
    fn lock(&self) -> MutexGuard<'_, IndexCrossCheck> {
        self.check.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyIndexCrossCheck {
    /// Begin with the first entries of the files.
    ///
    /// Args:
    ///     files: Open files.
    ///     tags: The index holds tags, too.
    ///     log_begin: Entries that lead before this offset of the log are skipped.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    #[new]
    #[pyo3(signature = (files, *, tags, log_begin))]
    fn new(py: Python<'_>, files: Vec<PyRef<'_, PyIndexFile>>, tags: bool, log_begin: i64) -> PyResult<Self> {
        let files: Vec<Arc<IndexFile>> = files.iter().map(|file| file.inner()).collect::<PyResult<_>>()?;
        Ok(Self { check: Mutex::new(py.detach(|| IndexCrossCheck::new(files, tags, log_begin))?) })
    }

    /// Compare the keys of the next batch of messages with the entries that lead to them.
    ///
    /// Args:
    ///     messages: An Arrow record batch with the columns that `index_entries` reads, `tags` among them.
    ///
    /// Returns:
    ///     A tuple for each entry that leads to no message with such a key: number of the file, offset in the log, hash of the
    ///     key, position in the file.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    ///     ValueError: A column is missing, of another type, or null where a message must have a value.
    fn check(&self, py: Python<'_>, messages: PyRecordBatch) -> PyResult<Vec<Entry>> {
        let messages = messages.into_inner();
        let wrong = py.detach(|| self.lock().check(&messages))?;
        Ok(wrong.into_iter().map(|(file, lead)| entry(file, lead)).collect())
    }

    /// Look up the messages of entries of a file that were out of order.
    ///
    /// The keys that the entries may lead to no longer count as missing.
    ///
    /// Args:
    ///     log: The log.
    ///     file: Number of the file.
    ///     most: The most entries to take.
    ///
    /// Returns:
    ///     How many entries were taken, 0 when none is left; and a tuple as of `check` for each that leads to no message with
    ///     such a key.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn check_rest(&self, py: Python<'_>, log: &PyCommitLog, file: usize, most: usize) -> PyResult<(usize, Vec<Entry>)> {
        let log = log.inner()?;
        let (taken, wrong) = py.detach(|| self.lock().check_rest(file, most, &log))?;
        Ok((taken, wrong.into_iter().map(|lead| entry(file, lead)).collect()))
    }

    /// Entries that led to what the log holds or should hold.
    #[getter]
    fn followed(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.lock().followed())
    }

    /// The number of keys without an entry, of messages at an offset of the log or after it.
    fn missing_from(&self, py: Python<'_>, phy_offset: i64) -> usize {
        py.detach(|| self.lock().missing_from(phy_offset))
    }

    /// The keys of messages before an offset of the log that have no entry; None: of all messages.
    ///
    /// Returns:
    ///     A tuple for each, in the order of the log: the message's offset, topic, key.
    fn missing_before(&self, py: Python<'_>, phy_offset: Option<i64>) -> Vec<(i64, String, String)> {
        py.detach(|| {
            let check = self.lock();
            check.missing_before(phy_offset).map(|missing| (missing.phy_offset, missing.topic, missing.key)).collect()
        })
    }
}
