//! Columns of keys from Python, and single keys.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, Int32Array, StringArray};
use arrow_schema::DataType;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use super::convert::{arrow_array, cast, first_null};
use crate::hash_index::{key_hash_of_units, key_hash_of_utf8};
use crate::java_text::decode_utf8;

/// A column of keys: text in Arrow, bytes in Arrow, or hashes: as they were given, or of a Python sequence (whose strings
/// may hold lone surrogates, which Arrow cannot).
pub(super) enum KeyColumn {
    Text(StringArray),
    Bytes(BinaryArray),
    Hashes { hashes: Vec<i32>, null: Vec<bool> },
}

impl KeyColumn {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text(a) => a.len(),
            Self::Bytes(a) => a.len(),
            Self::Hashes { hashes, .. } => hashes.len(),
        }
    }

    /// The column as it is read.
    pub(super) fn into_array(self) -> ArrayRef {
        match self {
            Self::Text(a) => Arc::new(a),
            Self::Bytes(a) => Arc::new(a),
            Self::Hashes { hashes, null } => Arc::new(
                hashes.into_iter().zip(null).map(|(hash, null)| (!null).then_some(hash)).collect::<Int32Array>(),
            ),
        }
    }

    pub(super) fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Text(a) => a.is_null(row),
            Self::Bytes(a) => a.is_null(row),
            Self::Hashes { null, .. } => null.get(row).copied().unwrap_or(false),
        }
    }

    pub(super) fn first_null(&self) -> Option<usize> {
        match self {
            Self::Text(a) => first_null(a),
            Self::Bytes(a) => first_null(a),
            Self::Hashes { null, .. } => null.iter().position(|&null| null),
        }
    }

    /// Whole index keys.
    pub(super) fn of_keys(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Some(array) = arrow_array(value)? {
            return match array.data_type() {
                DataType::Int32 => Self::of_hashes(array.as_primitive()),
                _ => Self::of_array(&array, "keys"),
            };
        }
        refuse_one_key(value, "keys")?;
        let (mut hashes, mut null) = (Vec::new(), Vec::new());
        for item in value.try_iter()? {
            let item = item?;
            null.push(item.is_none());
            hashes.push(if item.is_none() { 0 } else { key_hash(&item)? });
        }
        Ok(Self::Hashes { hashes, null })
    }

    /// What `key_hashes` gave.
    fn of_hashes(array: &Int32Array) -> PyResult<Self> {
        if let Some((row, hash)) = array.iter().enumerate().find(|(_, hash)| hash.is_some_and(|hash| hash < 0)) {
            let hash = hash.unwrap_or_default();
            return Err(PyValueError::new_err(format!("keys: row {row} is {hash}; a key hash is 0 or more")));
        }
        let null = (0..array.len()).map(|row| array.is_null(row)).collect();
        Ok(Self::Hashes { hashes: array.values().to_vec(), null })
    }

    /// Topics, or keys that are to be joined with topics: text is needed, not only its hash.
    pub(super) fn of_text(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Self> {
        if let Some(array) = arrow_array(value)? {
            return Self::of_array(&array, what);
        }
        refuse_one_key(value, what)?;
        let text: StringArray = value
            .try_iter()?
            .map(|item| {
                let item = item?;
                if item.is_none() { Ok(None) } else { text_of(&item, what).map(Some) }
            })
            .collect::<PyResult<_>>()?;
        Ok(Self::Text(text))
    }

    fn of_array(array: &ArrayRef, what: &str) -> PyResult<Self> {
        Ok(match array.data_type() {
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
                Self::Bytes(cast(array, &DataType::Binary, what)?.as_binary::<i32>().clone())
            }
            DataType::Null => Self::Text(StringArray::new_null(array.len())),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                Self::Text(cast(array, &DataType::Utf8, what)?.as_string::<i32>().clone())
            }
            kind => return Err(PyTypeError::new_err(format!("{what}: expected text or bytes, got {kind}"))),
        })
    }
}

/// A string is a sequence of strings, too: the commonest slip at a prompt.
fn refuse_one_key(value: &Bound<'_, PyAny>, what: &str) -> PyResult<()> {
    if value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>() {
        return Err(PyTypeError::new_err(format!("{what}: expected a column, got one string; put it into a list")));
    }
    Ok(())
}

fn text_of(item: &Bound<'_, PyAny>, what: &str) -> PyResult<String> {
    if let Ok(bytes) = item.cast::<PyBytes>() {
        return Ok(decode_utf8(bytes.as_bytes()).into_owned());
    }
    match item.cast::<PyString>() {
        Ok(text) => text.extract(),
        Err(_) => {
            let found = item.get_type().name()?;
            Err(PyTypeError::new_err(format!("{what}: expected str, UTF-8 bytes or None, got {found}")))
        }
    }
}

/// Hash of one index key, a `str` (lone surrogates and all) or UTF-8 `bytes`.
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
    Err(PyTypeError::new_err(format!("a key is str or UTF-8 bytes, not {}", key.get_type().name()?)))
}
