//! `IndexHeader`.

use pyo3::prelude::*;

use crate::hash_index::Header;
use crate::time_text::TimeText;

/// The 40-byte header of an index file, as it was when it was read.
#[pyclass(name = "IndexHeader", module = "logdex.rocketmq", frozen, eq, hash, get_all)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct PyIndexHeader {
    /// Store time of the first entry in milliseconds; before it the seed, or 0.
    begin_timestamp: i64,
    /// Store time of the last entry put in milliseconds; before it the seed, or 0.
    end_timestamp: i64,
    /// Commit-log offset of the first entry; before it the seed, or 0.
    begin_phy_offset: i64,
    /// Commit-log offset of the last entry put; before it the seed, or 0.
    end_phy_offset: i64,
    /// Puts that found their slot empty. For information only: brokers up to 4.7.0 count every put.
    hash_slot_count: i32,
    /// Position of the next entry: entries + 1; 0 on disk before the first put or flush.
    index_count: i32,
}

#[pymethods]
impl PyIndexHeader {
    /// Return the fields as a table, for a notebook.
    fn _repr_html_(&self) -> String {
        let times = [self.begin_timestamp, self.end_timestamp].map(|time| TimeText(time).to_string());
        let numbers = [self.begin_phy_offset, self.end_phy_offset].map(|offset| offset.to_string());
        let counts = [self.hash_slot_count, self.index_count].map(|count| count.to_string());
        let names = ["begin", "end", "begin_phy_offset", "end_phy_offset", "hash_slot_count", "index_count"];
        let values = times.into_iter().chain(numbers).chain(counts);
        let rows = names.iter().zip(values).map(|(name, value)| format!("<tr><th>{name}</th><td>{value}</td></tr>"));
        format!("<table>{}</table>", rows.collect::<String>())
    }

    fn __repr__(&self) -> String {
        format!(
            "IndexHeader(begin_timestamp={}, end_timestamp={}, begin_phy_offset={}, end_phy_offset={}, \
             hash_slot_count={}, index_count={})",
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_phy_offset,
            self.end_phy_offset,
            self.hash_slot_count,
            self.index_count
        )
    }
}

impl From<Header> for PyIndexHeader {
    fn from(h: Header) -> Self {
        Self {
            begin_timestamp: h.begin_timestamp,
            end_timestamp: h.end_timestamp,
            begin_phy_offset: h.begin_phy_offset,
            end_phy_offset: h.end_phy_offset,
            hash_slot_count: h.hash_slot_count,
            index_count: h.index_count.max(1), // IndexHeader#load
        }
    }
}
