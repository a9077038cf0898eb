//! `OffsetIndex`.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, Int64Array};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::super::{convert, integer, location};
use super::sparse_index::{Handle, PyIndex, Reduced, sparse_index_class};
use crate::error::Result;
use crate::kafka::{OffsetEntry, OffsetIndex, Segment, SparseIndex};

register! { class PyOffsetIndex; fn _open_offset_index }

impl PyIndex for OffsetIndex {
    type Pair = (i64, i32);

    const CLASS: &'static str = "OffsetIndex";
    const OPEN_AGAIN: &'static str = "_open_offset_index";

    fn entry_before(log: &Segment, rank: usize) -> Result<OffsetEntry> {
        log.offset_entry_before(rank)
    }

    fn pair(entry: OffsetEntry) -> (i64, i32) {
        (entry.offset, entry.position)
    }

    fn columns(entries: &[OffsetEntry]) -> [(&'static str, ArrayRef); 2] {
        let offsets: Int64Array = entries.iter().map(|entry| entry.offset).collect::<Vec<_>>().into();
        let positions: Int32Array = entries.iter().map(|entry| entry.position).collect::<Vec<_>>().into();
        [("offset", Arc::new(offsets)), ("position", Arc::new(positions))]
    }
}

sparse_index_class! {
    /// The offset index of a segment: from an offset to a position in the log at or before its batch.
    ///
    /// With check "verify" the longest prefix of entries that can be valid is used. If the log is next to the index, an entry
    /// is returned only if the batch that it leads to agrees with it. With "trust" the whole file is valid, as the broker
    /// takes it. The entries are read into memory when the file is opened.
    ///
    /// Source: `OffsetIndex`; docs/formats/kafka-log.md.
    PyOffsetIndex(OffsetIndex) as "OffsetIndex", reopened by _open_offset_index {
        /// Offset of the last entry; the base offset of an empty index.
        #[getter]
        fn last_offset(&self, py: Python<'_>) -> PyResult<i64> {
            self.0.with(py, OffsetIndex::last_offset)
        }

        /// Return the largest entry at or below an offset.
        ///
        /// Returns:
        ///     Offset and position; the base offset and 0 if there is none.
        ///
        /// Source: `OffsetIndex#lookup`.
        fn lookup(&self, py: Python<'_>, #[pyo3(from_py_with = integer::offset)] offset: i64) -> PyResult<(i64, i32)> {
            self.0.lookup(py, offset)
        }

        /// Call `lookup` for each offset of an Arrow column or a sequence, and return a struct column of offset and position.
        fn lookup_batch<'py>(&self, py: Python<'py>, offsets: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
            self.0.lookup_batch(py, &convert::int64_column(offsets, "offsets")?)
        }

        /// Return an entry whose offset is outside a fetch of `fetch_size` bytes from `position`; None if there is none.
        ///
        /// Source: `OffsetIndex#fetchUpperBoundOffset`, with its 32-bit sum.
        fn fetch_upper_bound_offset(
            &self,
            py: Python<'_>,
            #[pyo3(from_py_with = integer::position)] position: i32,
            #[pyo3(from_py_with = integer::fetch_size)] fetch_size: i32,
        ) -> PyResult<Option<(i64, i32)>> {
            self.0.with(py, |index| index.fetch_upper_bound(position, fetch_size).map(OffsetIndex::pair))
        }

        /// Add an entry.
        ///
        /// Raises:
        ///     IndexFullError: The file has no space for another entry.
        ///     ValueError: The offset is not above the last one, or too far from the base offset; or the file is open for
        ///         reading.
        ///
        /// Source: `OffsetIndex#append`.
        fn append(
            &self,
            py: Python<'_>,
            #[pyo3(from_py_with = integer::offset)] offset: i64,
            #[pyo3(from_py_with = integer::position)] position: i32,
        ) -> PyResult<()> {
            self.0.with_mut(py, |index| index.append(offset, position))
        }
    }
}
