//! `EntryTable`.

use pyo3::prelude::*;

use super::commit_log::PyCommitLog;
use super::index_file::PyIndexFile;
use super::index_recovery::open_files;
use super::keys;
use crate::io::ProcessMutex;
use crate::rocketmq::entry_table::EntryTable;
use crate::rocketmq::log_entries::{LogEntryReader, Range};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyEntryTable>()
}

/// Offset where reading ended, ranges without a valid message, topics, whether tags are indexed.
type LogRange = (u64, Vec<(u64, u64)>, Vec<String>, Option<bool>);

/// Index entries in memory, 12 bytes each, by the hashes of their keys. Many threads may use it. A process that is forked while one of them
/// does starts with an empty table.
#[pyclass(name = "EntryTable", module = "logdex._core", frozen)]
pub(super) struct PyEntryTable {
    table: ProcessMutex<EntryTable>,
}

impl PyEntryTable {
    /// Offsets of entries that have a hash.
    pub(super) fn offsets(&self, hash: i32) -> Vec<i64> {
        self.table.with(|table| table.offsets(hash).collect())
    }
}

#[pymethods]
impl PyEntryTable {
    /// An empty table.
    #[new]
    fn new() -> Self {
        Self { table: ProcessMutex::new() }
    }

    /// Read a range of a log and add the entries that a broker would have indexed.
    ///
    /// Args:
    ///     log: The log.
    ///     index: Open files of the store's index, which are asked whether tags are indexed when a message has some.
    ///     begin: No message begins before it.
    ///     end: End of the part that no index file covers.
    ///     stop: No message that begins here or later is read; at most `end`.
    ///     salvage: Continue after a corrupt region; else the range ends where a broker's walk would.
    ///     tags: Tags are indexed, too; None: as the files do.
    ///     progress: Called now and then with the offset that was reached.
    ///
    /// Returns:
    ///     The offset where reading ended; ranges that hold no valid message; the topics of the messages; and whether tags
    ///     are indexed, or None if it was not asked.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    #[pyo3(signature = (log, index, *, begin, end, stop, salvage, tags=None, progress=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn read_log(
        &self,
        py: Python<'_>,
        log: &PyCommitLog,
        index: Vec<PyRef<'_, PyIndexFile>>,
        begin: u64,
        end: u64,
        stop: u64,
        salvage: bool,
        tags: Option<bool>,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<LogRange> {
        let (log, index) = (log.inner()?, open_files(&index)?);
        let range = Range { begin, end, stop, salvage };
        let mut reader = py.detach(|| LogEntryReader::new(log, index, range, tags))?;
        while let Some(reached) = py.detach(|| reader.step())? {
            py.check_signals()?;
            if let Some(progress) = &progress {
                progress.call1((reached,))?;
            }
        }
        let read = reader.finish();
        if let Some(progress) = &progress {
            progress.call1((read.done,))?;
        }
        self.table.with(|table| table.append(read.table));
        Ok((read.done, read.refused, read.topics.into_iter().collect(), read.tags))
    }

    /// Return the offsets of entries that have the hashes of keys: candidates.
    ///
    /// Args:
    ///     keys: Keys, or whole index keys where no topic is given: an Arrow column or a sequence.
    ///     topics: One topic for all keys, or a column of them.
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
            self.table.with(|table| table.select(&hashes))
        })?;
        keys::list_array(py, answer)
    }

    fn __len__(&self) -> usize {
        self.table.with(|table| table.len())
    }
}
