//! Keys and entries from Python, single and in columns, their hashes, and the lists of offsets that answer them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int32Array, StringArray};
use arrow_schema::DataType;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use super::convert::{self, ArrowArray, ArrowSchema, arrow_array, cast};
use super::time;
use crate::error::Result;
use crate::hash_index::{Damage, Hits, KeyColumn, KeySource, Keys, Topics, key_hash_of_units, key_hash_of_utf8};
use crate::io::Location;
use crate::java_text::decode_utf8;

register! { fn key_hash, key_hashes, entry_columns, entry_schema, index_key }

/// Keys of a batch call: whole index keys, or keys with one topic or a column of topics.
pub(super) fn keys(keys: &Bound<'_, PyAny>, topics: Option<&Bound<'_, PyAny>>) -> PyResult<Keys> {
    let Some(topics) = topics else { return Ok(Keys::new(index_keys(keys)?, Topics::InKey)) };
    let keys = text_column(keys, "keys")?;
    if let Ok(topic) = topics.cast::<PyString>() {
        return Ok(Keys::new(keys, Topics::one(topic.to_cow()?.as_bytes())));
    }
    joined(keys, text_column(topics, "topics")?)
}

/// Keys, each with the topic of its row.
pub(super) fn joined(keys: KeyColumn, topics: KeyColumn) -> PyResult<Keys> {
    if topics.len() != keys.len() {
        return Err(PyValueError::new_err(format!(
            "columns differ in length: {} keys, {} topics",
            keys.len(),
            topics.len()
        )));
    }
    Ok(Keys::new(keys, Topics::Column(topics)))
}

/// Whole index keys, or their hashes. Strings of a Python sequence may hold lone surrogates, which Arrow cannot, so they are
/// hashed one by one.
fn index_keys(value: &Bound<'_, PyAny>) -> PyResult<KeyColumn> {
    if let Some(array) = arrow_array(value)? {
        return match array.data_type() {
            DataType::Int32 => hashes(array.as_primitive()),
            _ => text_array(&array, "keys"),
        };
    }
    refuse_one_key(value, "keys")?;
    let hashes = value.try_iter()?.map(|item| {
        let item = item?;
        if item.is_none() { Ok(None) } else { key_hash(&item).map(Some) }
    });
    Ok(KeyColumn::Hashes(hashes.collect::<PyResult<_>>()?))
}

/// A column that `key_hashes` returned.
fn hashes(array: &Int32Array) -> PyResult<KeyColumn> {
    if let Some((row, Some(hash))) = array.iter().enumerate().find(|(_, hash)| hash.is_some_and(|hash| hash < 0)) {
        return Err(PyValueError::new_err(format!("keys: row {row} is {hash}, expected a key hash of 0 or more")));
    }
    Ok(KeyColumn::Hashes(array.clone()))
}

/// Topics, or keys that are joined with topics: the text is needed, not only its hash.
pub(super) fn text_column(value: &Bound<'_, PyAny>, what: &str) -> PyResult<KeyColumn> {
    if let Some(array) = arrow_array(value)? {
        return text_array(&array, what);
    }
    refuse_one_key(value, what)?;
    let texts = value.try_iter()?.map(|item| {
        let item = item?;
        if item.is_none() { Ok(None) } else { text_of(&item, what).map(Some) }
    });
    Ok(KeyColumn::Text(texts.collect::<PyResult<StringArray>>()?))
}

fn text_array(array: &ArrayRef, what: &str) -> PyResult<KeyColumn> {
    Ok(match array.data_type() {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            KeyColumn::Bytes(cast(array, &DataType::Binary, what)?.as_binary::<i32>().clone())
        }
        DataType::Null => KeyColumn::Text(StringArray::new_null(array.len())),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            KeyColumn::Text(cast(array, &DataType::Utf8, what)?.as_string::<i32>().clone())
        }
        kind => return Err(PyTypeError::new_err(format!("{what}: expected text or bytes, found {kind}"))),
    })
}

/// Raises for a single string, which Python takes for a sequence of strings.
fn refuse_one_key(value: &Bound<'_, PyAny>, what: &str) -> PyResult<()> {
    if value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>() {
        return Err(PyTypeError::new_err(format!("{what}: expected a column, found one string; put it into a list")));
    }
    Ok(())
}

fn text_of(item: &Bound<'_, PyAny>, what: &str) -> PyResult<String> {
    if let Ok(bytes) = item.cast::<PyBytes>() {
        return Ok(decode_utf8(bytes.as_bytes()).into_owned());
    }
    if let Ok(text) = item.cast::<PyString>() {
        return text.extract();
    }
    let found = item.get_type().name()?;
    Err(PyTypeError::new_err(format!("{what}: expected str, UTF-8 bytes or None, found {found}")))
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
pub(super) fn key_hash(key: &Bound<'_, PyAny>) -> PyResult<i32> {
    if let Ok(text) = key.cast::<PyString>() {
        if let Ok(text) = text.to_cow() {
            return Ok(key_hash_of_utf8(text.as_bytes()));
        }
        let utf16 = text.call_method1("encode", ("utf-16-le", "surrogatepass"))?;
        let bytes = utf16.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes();
        return Ok(key_hash_of_units(bytes.chunks_exact(2).map(|c| match *c {
            [low, high] => u16::from_le_bytes([low, high]),
            _ => 0,
        })));
    }
    if let Ok(bytes) = key.cast::<PyBytes>() {
        return Ok(key_hash_of_utf8(bytes.as_bytes()));
    }
    Err(PyTypeError::new_err(format!("key: expected str or UTF-8 bytes, found {}", key.get_type().name()?)))
}

/// Runs a select over the keys and returns its answers as an Arrow list column; a row without a key is null.
pub(super) fn select<D>(
    keys: &Keys,
    run: impl FnOnce(&Keys, &mut Hits) -> Result<Option<D>>,
) -> Result<(ArrowArray, Option<D>)> {
    let mut hits = Hits::with_rows(keys.len());
    let damage = run(keys, &mut hits)?;
    Ok((ArrowArray(Arc::new(hits.into_list_array(keys.nulls().cloned()))), damage))
}

/// Logs what was passed over.
pub(super) fn log_notes(py: Python<'_>, notes: Vec<String>) -> PyResult<()> {
    if notes.is_empty() {
        return Ok(());
    }
    let logger = py.import("logging")?.call_method1("getLogger", ("logdex",))?;
    notes.into_iter().try_for_each(|note| logger.call_method1("warning", ("%s", note)).map(drop))
}

/// Logs that a chain was broken, and that the answer is complete all the same.
pub(super) fn warn_damage(py: Python<'_>, damage: Option<(Location, Damage)>) -> PyResult<()> {
    log_notes(py, damage.map(|(path, damage)| damage.note(&path)).into_iter().collect())
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
) -> PyResult<ArrowArray> {
    let keys = self::keys(keys, topics)?;
    Ok(ArrowArray(Arc::new(py.detach(|| keys.hashes()))))
}

/// Return the Arrow schema of `IndexFile.entries`.
#[pyfunction]
fn entry_schema() -> ArrowSchema {
    ArrowSchema(crate::hash_index::entry_schema())
}

/// Return the text that is hashed for a key of a topic: `topic#key`. Source: `IndexService#buildKey`.
#[pyfunction]
fn index_key<'py>(topic: &Bound<'py, PyString>, key: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    // Python concatenates them: its strings may hold lone surrogates.
    topic.add("#")?.add(key)
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
fn entry_columns(
    topic: &Bound<'_, PyAny>,
    key: &Bound<'_, PyAny>,
    phy_offset: &Bound<'_, PyAny>,
    store_timestamp: &Bound<'_, PyAny>,
) -> PyResult<[ArrowArray; 4]> {
    let columns: [(&str, ArrayRef); 4] = [
        ("topic", text_column(topic, "topic")?.into_array()),
        ("key", text_column(key, "key")?.into_array()),
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
    Ok(columns.map(|(_, column)| ArrowArray(column)))
}
