//! The functions of the index that need no open file.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::convert;
use super::keys;
use super::time::{self, Round};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(key_hash, m)?)?;
    m.add_function(wrap_pyfunction!(key_hashes, m)?)?;
    m.add_function(wrap_pyfunction!(entry_columns, m)?)?;
    m.add_function(wrap_pyfunction!(entry_schema, m)?)?;
    m.add_function(wrap_pyfunction!(index_key, m)?)?;
    m.add_function(wrap_pyfunction!(time_ms, m)?)?;
    m.add_function(wrap_pyfunction!(bound_ms, m)?)
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
