//! Arguments from Python: words, geometry, columns.

use std::cmp::min;
use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BinaryArray, Int64Array, RecordBatch};
use arrow_schema::{ArrowError, DataType, Field, SchemaRef};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyString, PyType};
use pyo3_arrow::ffi::to_array_pycapsules;
use pyo3_arrow::{PyArray, PyRecordBatch, PySchema, PyTable};

use super::integer::integer;
use crate::batch_size::BatchSize;
use crate::hash_index::Geometry;
use crate::io::Access;
use crate::rocketmq::release::Release;

/// Returns whether a file is opened for writing as well: "r" or "r+".
pub(super) fn write_mode(mode: &str) -> PyResult<bool> {
    match mode {
        "r" => Ok(false),
        "r+" => Ok(true),
        _ => Err(PyValueError::new_err(format!("mode={mode:?}: expected \"r\" or \"r+\""))),
    }
}

/// "auto", "mmap" or "pread".
pub(super) fn access(word: &str) -> PyResult<Access> {
    match word {
        "auto" => Ok(Access::Auto),
        "mmap" => Ok(Access::Mmap),
        "pread" => Ok(Access::Pread),
        _ => Err(PyValueError::new_err(format!("access={word:?}: expected \"auto\", \"mmap\" or \"pread\""))),
    }
}

/// The release whose answers the caller wants bit for bit, or `None`.
pub(super) fn compat(word: Option<&str>) -> PyResult<Option<Release>> {
    word.map(|w| {
        Release::parse(w).ok_or_else(|| {
            PyValueError::new_err(format!("compat={w:?}: expected None, \"4.9.3\", \"5.3.3\" or \"5.5.0\""))
        })
    })
    .transpose()
}

/// The most threads of a call.
const MOST_THREADS: usize = 64;
/// The most threads of a call that leaves the number to us.
const USUAL_THREADS: usize = 4;

/// The number of processors for this process. To count them, the system reads several files.
static PROCESSORS: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, usize::from));

/// The number of threads of a call; `None`: as many as there are processors for this process, at most 4.
pub(super) fn threads(threads: Option<i64>) -> PyResult<usize> {
    let Some(threads) = threads else {
        return Ok(min(*PROCESSORS, USUAL_THREADS));
    };
    let wanted = usize::try_from(threads).ok().filter(|threads| (1..=MOST_THREADS).contains(threads));
    wanted.ok_or_else(|| PyValueError::new_err(format!("threads={threads}: expected 1 to {MOST_THREADS}, or None")))
}

/// Slots and entries, checked.
pub(super) fn geometry(hash_slots: i64, max_entries: i64) -> PyResult<Geometry> {
    let fit = |n: i64, name: &str| {
        u32::try_from(n).map_err(|_| PyValueError::new_err(format!("{name}={n}: expected 1 to 2147483647")))
    };
    Ok(Geometry::new(fit(hash_slots, "hash_slots")?, fit(max_entries, "max_entries")?)?)
}

/// Slots and entries where both are given.
pub(super) fn wanted_geometry(hash_slots: Option<i64>, max_entries: Option<i64>) -> PyResult<Option<Geometry>> {
    match (hash_slots, max_entries) {
        (Some(slots), Some(entries)) => geometry(slots, entries).map(Some),
        (None, None) => Ok(None),
        _ => Err(PyValueError::new_err("expected both hash_slots and max_entries, or neither of them")),
    }
}

/// Names of columns, from any iterable but a string.
pub(super) fn column_names(names: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Vec<String>>> {
    names
        .map(|names| {
            if names.is_instance_of::<PyString>() {
                return Err(PyValueError::new_err("columns: expected a list of names, found one string"));
            }
            names.try_iter()?.map(|name| name?.extract()).collect()
        })
        .transpose()
}

/// Converts an offset of the log; a negative value becomes 0.
pub(super) fn log_offset(offset: Option<i64>, otherwise: u64) -> u64 {
    offset.map_or(otherwise, |offset| offset.max(0).cast_unsigned())
}

/// The most rows of a batch.
pub(super) fn batch_size(value: i64) -> PyResult<usize> {
    let rows = usize::try_from(value).ok().filter(|rows| *rows > 0);
    rows.ok_or_else(|| PyValueError::new_err(format!("batch_size={value}: expected 1 or more")))
}

/// The size of a batch of messages or records; `None`: rows that the processor's cache holds.
pub(super) fn batch_of_rows(value: Option<i64>) -> PyResult<BatchSize> {
    value.map_or_else(|| Ok(BatchSize::default()), |rows| batch_size(rows).map(BatchSize::of_rows))
}

/// The most hits wanted; `None`: all.
pub(super) fn max_num(value: Option<i64>) -> PyResult<Option<usize>> {
    value
        .map(|n| usize::try_from(n).map_err(|_| PyValueError::new_err(format!("max_num={n}: expected 0 or more"))))
        .transpose()
}

/// The Arrow array of an object with the `PyCapsule` interface, or `None` for another object.
///
/// Concatenates a stream of arrays (a chunked array), and decodes dictionaries and runs.
pub(super) fn arrow_array(value: &Bound<'_, PyAny>) -> PyResult<Option<ArrayRef>> {
    encoded_array(value)?.map(plain).transpose()
}

/// The values of a dictionary or of runs, each in its row.
pub(super) fn plain(mut array: ArrayRef) -> PyResult<ArrayRef> {
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

/// An `arro3.core.RecordBatch`.
pub(super) struct ArrowBatch(pub(super) RecordBatch);

into_python!(ArrowBatch, |ArrowBatch(batch), py| PyRecordBatch::new(batch).into_arro3(py));

impl TryFrom<Result<RecordBatch, ArrowError>> for ArrowBatch {
    type Error = PyErr;

    fn try_from(batch: Result<RecordBatch, ArrowError>) -> PyResult<Self> {
        batch.map(Self).map_err(|e| PyValueError::new_err(e.to_string()))
    }
}

/// An `arro3.core.Table`.
pub(super) struct ArrowTable(pub(super) Vec<RecordBatch>, pub(super) SchemaRef);

into_python!(ArrowTable, |ArrowTable(batches, schema), py| PyTable::try_new(batches, schema)?.into_arro3(py));

/// An `arro3.core.Schema`.
pub(super) struct ArrowSchema(pub(super) SchemaRef);

into_python!(ArrowSchema, |ArrowSchema(schema), py| PySchema::new(schema).into_arro3(py));

/// An `arro3.core.Array`.
pub(super) struct ArrowArray(pub(super) ArrayRef);

into_python!(ArrowArray, |ArrowArray(array), py| {
    // The constructor is looked up once: an import costs as much as a small batch.
    static ARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let field = Field::new("", array.data_type().clone(), true);
    let capsules = to_array_pycapsules(py, Arc::new(field), &array, None)?;
    ARRAY.import(py, "arro3.core", "Array")?.call_method1(intern!(py, "from_arrow_pycapsule"), capsules)
});

/// Casts a column. `TypeError` if there is no such cast, `ValueError` if a value does not fit.
pub(super) fn cast(array: &ArrayRef, to: &DataType, what: &str) -> PyResult<ArrayRef> {
    if array.data_type() == to {
        return Ok(Arc::clone(array));
    }
    let options = arrow_cast::CastOptions { safe: false, ..Default::default() };
    arrow_cast::cast_with_options(array, to, &options).map_err(|e| {
        let message = format!("{what}: expected {to}, found {}: {e}", array.data_type());
        // If there is a cast, then one of the values does not fit.
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
            return Err(PyTypeError::new_err(format!("{what}: expected integers, found {}", array.data_type())));
        }
        return Ok(cast(&array, &DataType::Int64, what)?.as_primitive::<Int64Type>().clone());
    }
    value.try_iter()?.map(|item| integer::<Option<i64>>(&item?, what)).collect()
}

/// A column of bytes from an Arrow array.
pub(super) fn binary_column(value: &Bound<'_, PyAny>, what: &str) -> PyResult<BinaryArray> {
    Ok(cast(&any_column(value, what)?, &DataType::Binary, what)?.as_binary::<i32>().clone())
}

/// A column from an Arrow array.
pub(super) fn any_column(value: &Bound<'_, PyAny>, what: &str) -> PyResult<ArrayRef> {
    arrow_array(value)?.ok_or_else(|| PyTypeError::new_err(format!("{what}: expected an Arrow array")))
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
