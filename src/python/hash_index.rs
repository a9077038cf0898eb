//! The functions of the index that belong to no file.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::UInt32Array;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::convert;
use super::index_file::PyIndexFile;
use super::integer;
use super::key_column::{self, KeyColumn};
use super::keys::{Keys, list_array, warn_damage};
use super::time::{self, Round};
use crate::error::{Error, Result};
use crate::hash_index::{self, Header, IndexFile, KeySource};
use crate::io::{Access, FileSource, ReadAt as _};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(key_hash, m)?)?;
    m.add_function(wrap_pyfunction!(key_hashes, m)?)?;
    m.add_function(wrap_pyfunction!(offset_order, m)?)?;
    m.add_function(wrap_pyfunction!(entry_columns, m)?)?;
    m.add_function(wrap_pyfunction!(index_key, m)?)?;
    m.add_function(wrap_pyfunction!(time_ms, m)?)?;
    m.add_function(wrap_pyfunction!(select_files, m)?)?;
    m.add_function(wrap_pyfunction!(newest_first, m)?)?;
    m.add_function(wrap_pyfunction!(index_count, m)?)?;
    m.add_function(wrap_pyfunction!(infer_geometry, m)?)
}

/// Hash of a whole index key, 0 to 2147483647: Java's `String.hashCode` made non-negative.
///
/// Args:
///     key: `topic#key` as `str` (lone surrogates are hashed as they are) or as UTF-8 `bytes`.
///
/// Source: `IndexFile#indexKeyHashMethod`; docs/formats/rocketmq-index.md, "Key hash".
///
/// Example:
///     >>> key_hash("TopicTest#MessageKey")
///     638347386
#[pyfunction]
fn key_hash(key: &Bound<'_, PyAny>) -> PyResult<i32> {
    key_column::key_hash(key)
}

/// Hashes of many keys, 4 bytes each in place of the texts. Batch calls take them as keys.
///
/// Args:
///     keys: Keys, or whole index keys where no topic is given: an Arrow column or a sequence.
///     topics: One topic for all keys, or a column of them.
///
/// Returns:
///     int32, one a row; null where the key or topic is null.
///
/// Raises:
///     ValueError: Columns of different lengths.
///     TypeError: Columns that are neither text nor bytes.
#[pyfunction]
#[pyo3(signature = (keys, *, topics=None))]
fn key_hashes<'py>(
    py: Python<'py>,
    keys: &Bound<'py, PyAny>,
    topics: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let keys = Keys::new(keys, topics)?;
    let hashes = py.detach(|| keys.hashes());
    convert::arro3_array(py, Arc::new(hashes))
}

/// Rows in the order of their offsets; rows of one offset stay in the order they have.
///
/// Args:
///     phy_offsets: Commit-log offsets: an Arrow column or a sequence of integers.
///
/// Returns:
///     uint32: the row that comes first, the row that comes second, and so on.
///
/// Raises:
///     ValueError: A null.
#[pyfunction]
fn offset_order<'py>(py: Python<'py>, phy_offsets: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let column = convert::int64_column(phy_offsets, "phy_offsets")?;
    let offsets = convert::values(&column, "phy_offset")?;
    let order = py.detach(|| {
        let mut rows: Vec<(i64, u32)> = offsets.iter().copied().zip(0..).collect();
        rows.sort_unstable();
        UInt32Array::from_iter_values(rows.into_iter().map(|(_, row)| row))
    });
    convert::arro3_array(py, Arc::new(order))
}

/// The text that is hashed for a key of a topic: `topic#key`. Source: `IndexService#buildKey`.
#[pyfunction]
fn index_key<'py>(topic: &Bound<'py, PyString>, key: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    // By Python itself: its strings may hold lone surrogates.
    topic.add("#")?.add(key)
}

/// Milliseconds since the epoch of an `int` or an aware `datetime`.
///
/// Args:
///     value: The time.
///     end: Round a time finer than a millisecond down, as the end of a range, not up.
///     name: What errors call it.
///
/// Raises:
///     TypeError: A naive `datetime`, or something that is no time.
///     ValueError: An integer of more than 64 bits.
#[pyfunction]
#[pyo3(signature = (value, *, end=false, name="value"))]
fn time_ms(value: &Bound<'_, PyAny>, end: bool, name: &str) -> PyResult<i64> {
    time::time_ms(value, if end { Round::Down } else { Round::Up }, name)
}

/// Number of slots and of entries of an index file, found from its content. Linear in the worst case.
///
/// Args:
///     path: The file.
///     given: Slots and entries that are looked at first: where they fit, no other pair is.
///     access: "mmap", "pread", or "auto".
///
/// Raises:
///     GeometryError: None or several fit.
///     ValueError: No file can have the given numbers.
#[pyfunction]
#[pyo3(signature = (path, *, given=None, access="auto"))]
fn infer_geometry(py: Python<'_>, path: PathBuf, given: Option<(i64, i64)>, access: &str) -> PyResult<(u32, u32)> {
    let access = convert::access(access)?;
    let given = given.map(|(slots, entries)| convert::geometry(slots, entries)).transpose()?;
    let geometry = py.detach(|| hash_index::infer_geometry(&path, &FileSource::open(&path, access)?, given))?;
    Ok((geometry.hash_slots(), geometry.max_entries()))
}

/// Bytes of the header.
const HEADER_LEN: u64 = 40;

/// Read the index count in the header of an index file, unchecked; 0 for a file without a whole header.
///
/// Args:
///     path: The file.
///
/// Raises:
///     OSError: The system refuses.
#[pyfunction]
fn index_count(py: Python<'_>, path: PathBuf) -> PyResult<i32> {
    let read = || {
        let file = FileSource::open(&path, Access::Pread)?;
        let header = if file.len() < HEADER_LEN { None } else { Some(Header::read(&file)) };
        header.transpose().map_err(|e| Error::io(&path, e)).map(|header| header.map_or(0, |header| header.index_count))
    };
    Ok(py.detach(read)?)
}

/// The columns of index entries as puts take them, whatever form they came in; nulls are kept.
///
/// Args:
///     topic: Topics: an Arrow column or a sequence, as all of them.
///     key: Keys without their topics.
///     phy_offset: Commit-log offsets.
///     store_timestamp: Store times: integers in ms, timestamps or datetimes.
///
/// Returns:
///     Four Arrow columns in this order: twice text or bytes, twice 64-bit integers.
///
/// Raises:
///     TypeError: A column is of another type.
///     ValueError: A number has no room in 64 bits, or a text is none.
#[pyfunction]
fn entry_columns<'py>(
    py: Python<'py>,
    topic: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
    phy_offset: &Bound<'py, PyAny>,
    store_timestamp: &Bound<'py, PyAny>,
) -> PyResult<[Bound<'py, PyAny>; 4]> {
    Ok([
        convert::arro3_array(py, KeyColumn::of_text(topic, "topic")?.into_array())?,
        convert::arro3_array(py, KeyColumn::of_text(key, "key")?.into_array())?,
        convert::arro3_array(py, Arc::new(convert::int64_column(phy_offset, "phy_offset")?))?,
        convert::arro3_array(py, Arc::new(time::time_column(store_timestamp, "store_timestamp")?))?,
    ])
}

/// Candidates of each key over many files.
///
/// Args:
///     files: Open files, newest first: a key is done when it has `max_num`.
///     keys: Keys, or whole index keys where no topic is given.
///     topics: One topic for all keys, or a column of them.
///     max_num: The most hits a key; `None` is all.
///     begin: First store time, inclusive.
///     end: Last store time, inclusive.
///
/// Returns:
///     list<int64>, one row a key: commit-log offsets, newest first; null where the key or topic is null.
#[pyfunction]
#[pyo3(signature = (files, keys, *, topics=None, max_num=None, begin=None, end=None))]
fn select_files<'py>(
    py: Python<'py>,
    files: Vec<PyRef<'py, PyIndexFile>>,
    keys: &Bound<'py, PyAny>,
    topics: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = integer::max_num)] max_num: Option<i64>,
    begin: Option<&Bound<'py, PyAny>>,
    end: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let files = files.iter().map(|f| f.inner()).collect::<PyResult<Vec<_>>>()?;
    let keys = Keys::new(keys, topics)?;
    let range = time::time_range(begin, end)?;
    let max_num = convert::max_num(max_num)?;
    let (answer, damage) = py.detach(|| -> Result<_> {
        let files: Vec<&IndexFile> = files.iter().map(AsRef::as_ref).collect();
        keys.select(|asked, hits| {
            let damage = hash_index::select_files(&files, asked, 0..asked.len(), max_num, range, hits)?;
            Ok(damage.map(|(file, damage)| (file.path().to_owned(), damage)))
        })
    })?;
    warn_damage(py, damage)?;
    list_array(py, answer)
}

/// The files that may hold messages of a time range, the newest first.
///
/// By the commit-log offset of their first entry; files that begin at the same offset keep the load order.
///
/// Args:
///     files: Open files in load order, the oldest first.
///     begin: First store time, inclusive.
///     end: Last store time, inclusive.
///     clock_slack_ms: As in `IndexFile.is_time_matched`.
#[pyfunction]
#[pyo3(signature = (files, *, begin=None, end=None, clock_slack_ms=3_600_000))]
fn newest_first<'py>(
    py: Python<'py>,
    files: Vec<Bound<'py, PyIndexFile>>,
    begin: Option<&Bound<'py, PyAny>>,
    end: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = integer::clock_slack_ms)] clock_slack_ms: i64,
) -> PyResult<Vec<Bound<'py, PyIndexFile>>> {
    let open = files.iter().map(|f| f.get().inner()).collect::<PyResult<Vec<_>>>()?;
    let range = time::time_range(begin, end)?;
    let places = py.detach(|| {
        let open: Vec<&IndexFile> = open.iter().map(AsRef::as_ref).collect();
        hash_index::newest_first(&open, range, clock_slack_ms)
    })?;
    Ok(places.into_iter().filter_map(|place| files.get(place).cloned()).collect())
}
