//! Keys from Python, single and in columns, and the lists of offsets that answer them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int32Array, ListArray, StringArray};
use arrow_schema::DataType;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use super::convert::{arro3_array, arrow_array, cast};
use crate::error::Result;
use crate::hash_index::{Damage, Hits, KeyColumn, KeySource, Keys, Topics, key_hash_of_units, key_hash_of_utf8};
use crate::io::Location;
use crate::java_text::decode_utf8;

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

/// The hash of one index key: a `str`, which may hold lone surrogates, or UTF-8 `bytes`.
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
) -> Result<(ListArray, Option<D>)> {
    let mut hits = Hits::with_rows(keys.len());
    let damage = run(keys, &mut hits)?;
    Ok((hits.into_list_array(keys.nulls().cloned()), damage))
}

pub(super) fn list_array(py: Python<'_>, answer: ListArray) -> PyResult<Bound<'_, PyAny>> {
    arro3_array(py, Arc::new(answer))
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
