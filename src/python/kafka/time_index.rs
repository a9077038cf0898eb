//! `TimeIndex`.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, TimestampMillisecondArray};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::super::time::{self, Round};
use super::super::{integer, location};
use super::sparse_index::{Handle, PyIndex, Reduced, sparse_index_class};
use crate::error::Result;
use crate::kafka::{Segment, SparseIndex, TimeEntry, TimeIndex};

register! { class PyTimeIndex; fn _open_time_index }

impl PyIndex for TimeIndex {
    type Pair = (i64, i64);

    const CLASS: &'static str = "TimeIndex";
    const OPEN_AGAIN: &'static str = "_open_time_index";

    fn entry_before(log: &Segment, rank: usize) -> Result<TimeEntry> {
        log.time_entry_before(rank)
    }

    fn pair(entry: TimeEntry) -> (i64, i64) {
        (entry.timestamp, entry.offset)
    }

    fn columns(entries: &[TimeEntry]) -> [(&'static str, ArrayRef); 2] {
        let times: TimestampMillisecondArray = entries.iter().map(|entry| entry.timestamp).collect::<Vec<_>>().into();
        let offsets: Int64Array = entries.iter().map(|entry| entry.offset).collect::<Vec<_>>().into();
        [("timestamp", Arc::new(times.with_timezone("UTC"))), ("offset", Arc::new(offsets))]
    }
}

sparse_index_class! {
    /// The time index of a segment: from a timestamp to an offset such that no later record is at or before it.
    ///
    /// With check "verify" the longest prefix of entries that can be valid is used. If the log is next to the index, an entry
    /// is returned only if the batch of its offset has its timestamp. With "trust" the whole file is valid, as the broker
    /// takes it. The entries are read into memory when the file is opened.
    ///
    /// Source: `TimeIndex`; docs/formats/kafka-log.md.
    PyTimeIndex(TimeIndex) as "TimeIndex", reopened by _open_time_index {
        /// Timestamp and offset of the last entry; -1 and the base offset of an empty index.
        #[getter]
        fn last_entry(&self, py: Python<'_>) -> PyResult<(i64, i64)> {
            self.0.with(py, |index| TimeIndex::pair(index.last_entry()))
        }

        /// Return the largest entry at or below a timestamp.
        ///
        /// Returns:
        ///     Timestamp and offset; -1 and the base offset if there is none.
        ///
        /// Source: `TimeIndex#lookup`.
        fn lookup(&self, py: Python<'_>, timestamp: &Bound<'_, PyAny>) -> PyResult<(i64, i64)> {
            self.0.lookup(py, time::time_ms(timestamp, Round::Down, "timestamp")?)
        }

        /// Call `lookup` for each time of an Arrow column or a sequence, and return a struct column of timestamp and offset.
        fn lookup_batch<'py>(&self, py: Python<'py>, timestamps: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
            self.0.lookup_batch(py, &time::time_column(timestamps, "timestamps")?)
        }

        /// Add an entry, unless the last one has its timestamp.
        ///
        /// Args:
        ///     timestamp: In ms, or a datetime.
        ///     offset: Last offset of the batch that has it.
        ///     skip_full_check: Use the slot that is reserved for the last entry of a segment.
        ///
        /// Returns:
        ///     True if it was added.
        ///
        /// Raises:
        ///     IndexFullError: The file has no space for another entry.
        ///     ValueError: The offset or the timestamp is below the last one, or the offset too far from the base offset; or
        ///         the file is open for reading.
        ///
        /// Source: `TimeIndex#maybeAppend`.
        #[pyo3(signature = (timestamp, offset, *, skip_full_check=false))]
        fn maybe_append(
            &self,
            py: Python<'_>,
            timestamp: &Bound<'_, PyAny>,
            #[pyo3(from_py_with = integer::offset)] offset: i64,
            skip_full_check: bool,
        ) -> PyResult<bool> {
            let timestamp = time::time_ms(timestamp, Round::Down, "timestamp")?;
            self.0.with_mut(py, |index| index.maybe_append(timestamp, offset, skip_full_check))
        }
    }
}
