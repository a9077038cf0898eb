//! The functions of the index that need no open file.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::convert;
use super::index_file::PyIndexFile;
use super::integer;
use super::keys::{self, list_array, warn_damage};
use super::time::{self, Round};
use crate::error::{Error, Result};
use crate::hash_index::{self, Header, IndexFile, KeySource};
use crate::io::{Access, FileSource, ReadAt as _};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(key_hash, m)?)?;
    m.add_function(wrap_pyfunction!(key_hashes, m)?)?;
    m.add_function(wrap_pyfunction!(entry_columns, m)?)?;
    m.add_function(wrap_pyfunction!(entry_schema, m)?)?;
    m.add_function(wrap_pyfunction!(index_key, m)?)?;
    m.add_function(wrap_pyfunction!(time_ms, m)?)?;
    m.add_function(wrap_pyfunction!(bound_ms, m)?)?;
    m.add_function(wrap_pyfunction!(select_files, m)?)?;
    m.add_function(wrap_pyfunction!(newest_first, m)?)?;
    m.add_function(wrap_pyfunction!(index_count, m)?)?;
    m.add_function(wrap_pyfunction!(infer_geometry, m)?)
}

/// Return the hash of a whole index key, 0 to 2147483647: Java's `String.hashCode` made non-negative.
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
    keys::key_hash(key)
}

/// Return the hashes of many keys, 4 bytes each. Batch calls accept them as keys.
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
    let keys = keys::keys(keys, topics)?;
    let hashes = py.detach(|| keys.hashes());
    convert::arro3_array(py, Arc::new(hashes))
}

/// Return the Arrow schema of `IndexFile.entries`.
#[pyfunction]
fn entry_schema(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    pyo3_arrow::PySchema::new(super::entry_batches::schema()).into_arro3(py)
}

/// Return the text that is hashed for a key of a topic: `topic#key`. Source: `IndexService#buildKey`.
#[pyfunction]
fn index_key<'py>(topic: &Bound<'py, PyString>, key: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    // Python concatenates them: its strings may hold lone surrogates.
    topic.add("#")?.add(key)
}

/// Return the milliseconds since the epoch of an `int` or an aware `datetime`.
///
/// Args:
///     value: The time.
///     end: Round a fraction of a millisecond down, as for the end of a range, not up.
///     name: The name in error messages.
///
/// Raises:
///     TypeError: A naive `datetime`, or no time at all.
///     ValueError: An integer that does not fit in 64 bits.
#[pyfunction]
#[pyo3(signature = (value, *, end=false, name="value"))]
fn time_ms(value: &Bound<'_, PyAny>, end: bool, name: &str) -> PyResult<i64> {
    time::time_ms(value, if end { Round::Down } else { Round::Up }, name)
}

/// Return `time_ms` of a bound of a time range that a caller requests.
///
/// Raises:
///     TypeError: A naive `datetime`, or a value that is not a time.
///     ValueError: An integer that does not fit in 64 bits, or that may be a number of seconds or the digits of a date.
#[pyfunction]
#[pyo3(signature = (value, *, end=false, name="value"))]
fn bound_ms(value: &Bound<'_, PyAny>, end: bool, name: &str) -> PyResult<i64> {
    time::bound_ms(value, if end { Round::Down } else { Round::Up }, name)
}

/// Infer the numbers of slots and entries of an index file from its content. Linear in the worst case.
///
/// Args:
///     path: The file.
///     given: Slots and entries to try first: if they fit, no other pair is tried.
///     access: "mmap", "pread", or "auto".
///
/// Raises:
///     GeometryError: None or several fit.
///     ValueError: No file can have these numbers.
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

/// Read the index count in the header of an index file, unchecked; 0 for a file without a whole header, and without the file.
///
/// Args:
///     path: The file.
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
fn index_count(py: Python<'_>, path: PathBuf) -> PyResult<i32> {
    let read = || {
        let file = match FileSource::open(&path, Access::Pread) {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => return Ok(0),
            opened => opened?,
        };
        let header = if file.len() < HEADER_LEN { None } else { Some(Header::read(&file)) };
        header.transpose().map_err(|e| Error::io(&path, e)).map(|header| header.map_or(0, |header| header.index_count))
    };
    Ok(py.detach(read)?)
}

/// Return the columns of index entries in the types of a put.
///
/// Args:
///     topic: Topics: an Arrow column or a sequence, like all four.
///     key: Keys, without topics.
///     phy_offset: Commit-log offsets.
///     store_timestamp: Store times: integers in ms, timestamps or datetimes.
///
/// Returns:
///     Four Arrow columns in this order: twice text or bytes, twice 64-bit integers.
///
/// Raises:
///     TypeError: A column is of another type.
///     ValueError: A number does not fit in 64 bits, a text is not valid, a value is null, or the columns differ in length.
#[pyfunction]
fn entry_columns<'py>(
    py: Python<'py>,
    topic: &Bound<'py, PyAny>,
    key: &Bound<'py, PyAny>,
    phy_offset: &Bound<'py, PyAny>,
    store_timestamp: &Bound<'py, PyAny>,
) -> PyResult<[Bound<'py, PyAny>; 4]> {
    let columns: [(&str, ArrayRef); 4] = [
        ("topic", keys::text_column(topic, "topic")?.into_array()),
        ("key", keys::text_column(key, "key")?.into_array()),
        ("phy_offset", Arc::new(convert::int64_column(phy_offset, "phy_offset")?)),
        ("store_timestamp", Arc::new(time::time_column(store_timestamp, "store_timestamp")?)),
    ];
    let rows = columns.first().map_or(0, |(_, column)| column.len());
    for (name, column) in &columns {
        if column.len() != rows {
            let lengths: Vec<_> = columns.iter().map(|(name, column)| format!("{name} {}", column.len())).collect();
            return Err(PyValueError::new_err(format!("the columns differ in length: {}", lengths.join(", "))));
        }
        if column.null_count() > 0 {
            let text = format!("column {name}: expected no nulls, found {}", column.null_count());
            return Err(PyValueError::new_err(text));
        }
    }
    let [topic, key, phy_offset, store_timestamp] = columns.map(|(_, column)| convert::arro3_array(py, column));
    Ok([topic?, key?, phy_offset?, store_timestamp?])
}

/// Find the candidates of each key in many files.
///
/// Args:
///     files: Open files, newest first. A key is done when it has `max_num` hits.
///     keys: Keys, or whole index keys where no topic is given.
///     topics: One topic for all keys, or a column of them.
///     max_num: The most hits per key; `None`: all.
///     begin: First store time, inclusive.
///     end: Last store time, inclusive.
///
/// Returns:
///     list<int64>, one row per key: commit-log offsets, newest first; null where the key or topic is null.
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
    let keys = keys::keys(keys, topics)?;
    let range = time::time_range(begin, end)?;
    let max_num = convert::max_num(max_num)?;
    let (answer, damage) = py.detach(|| -> Result<_> {
        let files: Vec<&IndexFile> = files.iter().map(AsRef::as_ref).collect();
        keys::select(&keys, |asked, hits| {
            let damage = hash_index::select_files(&files, asked, 0..asked.len(), max_num, range, hits)?;
            Ok(damage.map(|(file, damage)| (file.path().to_owned(), damage)))
        })
    })?;
    warn_damage(py, damage)?;
    list_array(py, answer)
}

/// Return the files that may hold messages of a time range, newest first.
///
/// The order is that of the commit-log offset of the first entry. Files that begin at the same offset keep the load order.
///
/// Args:
///     files: Open files in load order, oldest first.
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
