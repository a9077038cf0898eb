//! Arguments from Python: times, words with few values, columns of keys, integers and times.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{Array, ArrayRef, BinaryArray, Int32Array, Int64Array, StringArray};
use arrow_schema::{DataType, Field, TimeUnit};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyCapsule, PyInt, PyString, PyType};
use pyo3_arrow::PyArray;
use pyo3_arrow::ffi::to_array_pycapsules;

use super::integer::integer;
use crate::hash_index::{Compat, Geometry, key_hash_of_units, key_hash_of_utf8};
use crate::java_text::decode_utf8;
use crate::source::Access;
use crate::time_range::TimeRange;

/// Which way a time finer than a millisecond goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    Down,
    Up,
}

/// Milliseconds since the epoch of an `int` or an aware `datetime`.
pub(super) fn time_ms(value: &Bound<'_, PyAny>, round: Round, name: &str) -> PyResult<i64> {
    static DATETIME: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    if value.is_instance_of::<PyInt>() {
        return integer(value, name);
    }
    let py = value.py();
    let datetime = DATETIME.import(py, "datetime", "datetime")?;
    if value.is_instance(datetime)? {
        if value.call_method0("utcoffset")?.is_none() {
            return Err(PyTypeError::new_err(format!(
                "{} has no time zone: give an aware datetime or epoch milliseconds",
                value.repr()?
            )));
        }
        let utc = py.import("datetime")?.getattr("timezone")?.getattr("utc")?;
        let epoch = datetime.call1((1970, 1, 1, 0, 0, 0, 0, utc))?;
        let since = value.sub(epoch)?;
        let days: i64 = since.getattr("days")?.extract()?;
        let seconds: i64 = since.getattr("seconds")?.extract()?;
        let micros: i64 = since.getattr("microseconds")?.extract()?;
        // A pandas Timestamp, which is a datetime, counts nanoseconds beside.
        let nanos: i64 = since.getattr_opt("nanoseconds")?.map_or(Ok(0), |nanos| nanos.extract())?;
        // A datetime spans the years 1 to 9999: no overflow.
        let up = i64::from(round == Round::Up && (micros % 1000 != 0 || nanos != 0));
        return Ok((days * 86_400 + seconds) * 1000 + micros / 1000 + up);
    }
    // numpy integers and the like
    integer(value, name).map_err(|error: PyErr| {
        if error.is_instance_of::<PyValueError>(py) {
            return error;
        }
        let kind = value.get_type().name().map_or_else(|_| "object".to_owned(), |n| n.to_string());
        PyTypeError::new_err(format!("a time is an int of epoch milliseconds or an aware datetime, not {kind}"))
    })
}

/// A closed range; `None` is no bound.
pub(super) fn time_range(begin: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<TimeRange> {
    Ok(TimeRange::new(
        begin.map(|t| time_ms(t, Round::Up, "begin")).transpose()?,
        end.map(|t| time_ms(t, Round::Down, "end")).transpose()?,
    ))
}

/// Whether a file is opened for writing as well: "r" or "r+".
pub(super) fn write_mode(mode: &str) -> PyResult<bool> {
    match mode {
        "r" => Ok(false),
        "r+" => Ok(true),
        _ => Err(PyValueError::new_err(format!("mode is \"r\" or \"r+\", not {mode:?}"))),
    }
}

/// "auto", "mmap" or "pread".
pub(super) fn access(word: &str) -> PyResult<Access> {
    match word {
        "auto" => Ok(Access::Auto),
        "mmap" => Ok(Access::Mmap),
        "pread" => Ok(Access::Pread),
        _ => Err(PyValueError::new_err(format!("access is \"auto\", \"mmap\" or \"pread\", not {word:?}"))),
    }
}

/// A broker release whose answers are wanted bit for bit, or `None`.
pub(super) fn compat(word: Option<&str>) -> PyResult<Option<Compat>> {
    word.map(|w| {
        Compat::parse(w).ok_or_else(|| {
            PyValueError::new_err(format!("compat is None, \"4.9.3\", \"5.3.3\" or \"5.5.0\", not {w:?}"))
        })
    })
    .transpose()
}

/// Slots and entries, checked.
pub(super) fn geometry(hash_slots: i64, max_entries: i64) -> PyResult<Geometry> {
    let fit = |n: i64, name: &str| {
        u32::try_from(n).map_err(|_| PyValueError::new_err(format!("{name} is 1 to 2147483647, not {n}")))
    };
    Ok(Geometry::new(fit(hash_slots, "hash_slots")?, fit(max_entries, "max_entries")?)?)
}

/// Slots and entries where both are given.
pub(super) fn wanted_geometry(hash_slots: Option<i64>, max_entries: Option<i64>) -> PyResult<Option<Geometry>> {
    match (hash_slots, max_entries) {
        (Some(slots), Some(entries)) => geometry(slots, entries).map(Some),
        (None, None) => Ok(None),
        _ => Err(PyValueError::new_err("give both hash_slots and max_entries, or neither")),
    }
}

/// Names of columns, from anything but one string.
pub(super) fn column_names(names: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Vec<String>>> {
    names
        .map(|names| {
            if names.is_instance_of::<PyString>() {
                return Err(PyValueError::new_err("columns: expected names, got one string; put it into a list"));
            }
            names.try_iter()?.map(|name| name?.extract()).collect()
        })
        .transpose()
}

/// The most hits wanted; `None` is all.
pub(super) fn max_num(value: Option<i64>) -> PyResult<Option<usize>> {
    value
        .map(|n| usize::try_from(n).map_err(|_| PyValueError::new_err(format!("max_num is 0 or more, not {n}"))))
        .transpose()
}

/// The Arrow array of an object with the `PyCapsule` interface, or `None` when it has none.
///
/// A stream of arrays (a chunked array) is put together into one, and the values of a dictionary or of runs come to their
/// places.
pub(super) fn arrow_array(value: &Bound<'_, PyAny>) -> PyResult<Option<ArrayRef>> {
    encoded_array(value)?.map(plain).transpose()
}

fn plain(mut array: ArrayRef) -> PyResult<ArrayRef> {
    // Runs may be of a dictionary.
    loop {
        let values = match array.data_type() {
            DataType::Dictionary(_, values) => values.as_ref(),
            DataType::RunEndEncoded(_, values) => values.data_type(),
            _ => return Ok(array),
        };
        array = cast(&array, values, "Arrow")?;
    }
}

fn encoded_array(value: &Bound<'_, PyAny>) -> PyResult<Option<ArrayRef>> {
    let py = value.py();
    if let Some(method) = value.getattr_opt(intern!(py, "__arrow_c_array__"))? {
        let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = method.call0()?.extract()?;
        return Ok(Some(PyArray::from_arrow_pycapsule(&schema, &array)?.into_inner().0));
    }
    if value.hasattr(intern!(py, "__arrow_c_stream__"))? {
        let (chunks, field) = value.extract::<pyo3_arrow::PyChunkedArray>()?.into_inner();
        if chunks.is_empty() {
            return Ok(Some(arrow_array::new_empty_array(field.data_type())));
        }
        let parts: Vec<&dyn Array> = chunks.iter().map(AsRef::as_ref).collect();
        let whole = arrow_select::concat::concat(&parts).map_err(|e| PyValueError::new_err(e.to_string()))?;
        return Ok(Some(whole));
    }
    Ok(None)
}

/// An Arrow array as `arro3.core.Array`. Its constructor is looked up once: an import costs as much as a small batch.
pub(super) fn arro3_array(py: Python<'_>, array: ArrayRef) -> PyResult<Bound<'_, PyAny>> {
    static ARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let field = Field::new("", array.data_type().clone(), true);
    let capsules = to_array_pycapsules(py, Arc::new(field), &array, None)?;
    ARRAY.import(py, "arro3.core", "Array")?.call_method1(intern!(py, "from_arrow_pycapsule"), capsules)
}

fn cast(array: &ArrayRef, to: &DataType, what: &str) -> PyResult<ArrayRef> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    let options = arrow_cast::CastOptions { safe: false, ..Default::default() };
    arrow_cast::cast_with_options(array, to, &options).map_err(|e| {
        let message = format!("{what}: cannot take a column of type {}: {e}", array.data_type());
        // One of the values has no room, where there is a cast at all.
        if arrow_cast::can_cast_types(array.data_type(), to) {
            PyValueError::new_err(message)
        } else {
            PyTypeError::new_err(message)
        }
    })
}

/// A column of 64-bit integers from an Arrow array or a sequence.
pub(super) fn int64_column(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Int64Array> {
    if let Some(array) = arrow_array(value)? {
        if array.data_type().is_null() {
            return Ok(Int64Array::new_null(array.len()));
        }
        if !array.data_type().is_integer() {
            return Err(PyTypeError::new_err(format!("{what}: expected integers, got {}", array.data_type())));
        }
        return Ok(cast(&array, &DataType::Int64, what)?.as_primitive::<Int64Type>().clone());
    }
    value.try_iter()?.map(|item| integer::<Option<i64>>(&item?, what)).collect()
}

/// A column of times in milliseconds from an Arrow array of integers or timestamps, or a sequence.
///
/// Finer units round down. A timestamp without a zone is taken as UTC, as Arrow's own casts do.
pub(super) fn time_column(value: &Bound<'_, PyAny>, what: &str) -> PyResult<Int64Array> {
    if let Some(array) = arrow_array(value)? {
        return times_of(&array, what);
    }
    value
        .try_iter()?
        .map(|item| {
            let item = item?;
            if item.is_none() { Ok(None) } else { time_ms(&item, Round::Down, what).map(Some) }
        })
        .collect()
}

/// Milliseconds of an Arrow column of integers or timestamps.
pub(super) fn times_of(array: &ArrayRef, what: &str) -> PyResult<Int64Array> {
    match array.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let micros = array.as_primitive::<arrow_array::types::TimestampMicrosecondType>();
            Ok(micros.unary(|t| t.div_euclid(1000)))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            let nanos = array.as_primitive::<arrow_array::types::TimestampNanosecondType>();
            Ok(nanos.unary(|t| t.div_euclid(1_000_000)))
        }
        DataType::Null => Ok(Int64Array::new_null(array.len())),
        DataType::Timestamp(_, zone) => {
            let ms = cast(array, &DataType::Timestamp(TimeUnit::Millisecond, zone.clone()), what)?;
            Ok(ms.as_primitive::<TimestampMillisecondType>().reinterpret_cast())
        }
        kind if kind.is_integer() => Ok(cast(array, &DataType::Int64, what)?.as_primitive::<Int64Type>().clone()),
        kind => Err(PyTypeError::new_err(format!("{what}: expected times or integers, got {kind}"))),
    }
}

/// The first row of a column that is null.
pub(super) fn first_null(column: &dyn Array) -> Option<usize> {
    let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0)?;
    (0..column.len()).find(|&row| nulls.is_null(row))
}

/// The numbers of a column that has no null.
pub(super) fn values<'a>(column: &'a Int64Array, what: &str) -> PyResult<&'a [i64]> {
    match first_null(column) {
        None => Ok(column.values()),
        Some(row) => Err(PyValueError::new_err(format!("row {row} has no {what}"))),
    }
}

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
                if item.is_none() { Ok(None) } else { text_of(&item).map(Some) }
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

fn text_of(item: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(bytes) = item.cast::<PyBytes>() {
        return Ok(decode_utf8(bytes.as_bytes()).into_owned());
    }
    item.extract()
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
