//! Messages that Python hands over: columns of values as a record batch, and the delays of a broker's levels.

use std::sync::Arc;

use arrow_array::types::TimestampMillisecondType;
use arrow_array::{Array as _, ArrayRef, BinaryArray, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyMapping;
use pyo3_arrow::error::PyArrowError;
use pyo3_arrow::{PyRecordBatch, PyRecordBatchReader};

use super::convert::arrow_array;
use super::integer::integer;
use super::time::time_column;
use crate::rocketmq::commit_log::PropertyMap;
use crate::rocketmq::commit_log::columns::Column;
use crate::rocketmq::consume_queue::DelayLevels;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("DEFAULT_DELAY_LEVELS", DelayLevels::DEFAULT)?;
    m.add_function(wrap_pyfunction!(message_batch, m)?)?;
    m.add_function(wrap_pyfunction!(delay_levels_ms, m)?)
}

/// Make a record batch of messages from columns.
///
/// Args:
///     columns: A mapping from names of message columns to sequences of values, or to Arrow columns, which are taken as they are.
///         A time is epoch milliseconds or an aware datetime; the properties of a message are a mapping.
///
/// Raises:
///     TypeError: A value of another type.
///     ValueError: An unknown column, a number that does not fit, or columns of different lengths.
#[pyfunction]
fn message_batch<'py>(py: Python<'py>, columns: &Bound<'py, PyMapping>) -> PyResult<Bound<'py, PyAny>> {
    PyRecordBatch::new(batch_of_columns(columns, column)?).into_arro3(py)
}

/// Returns messages as record batches, at least one: those of Arrow data, or a mapping of columns.
pub(super) fn message_batches(messages: &Bound<'_, PyAny>) -> PyResult<Vec<RecordBatch>> {
    if messages.cast::<PyMapping>().is_ok_and(|columns| columns.is_empty().unwrap_or(false)) {
        return Err(PyValueError::new_err("messages: expected a column topic, found no column"));
    }
    given_batches(messages, "messages", column)
}

/// Makes a column of a name from a sequence of values.
pub(super) type MakeColumn = fn(&str, &Bound<'_, PyAny>) -> PyResult<ArrayRef>;

/// Returns Arrow data or a mapping of columns as record batches.
pub(super) fn given_batches(messages: &Bound<'_, PyAny>, what: &str, make: MakeColumn) -> PyResult<Vec<RecordBatch>> {
    if let Ok(columns) = messages.cast::<PyMapping>() {
        return Ok(vec![batch_of_columns(columns, make)?]);
    }
    if messages.hasattr("__arrow_c_array__")? {
        // One batch, as it is: to read it as a stream takes longer than to put it.
        return Ok(vec![messages.extract::<PyRecordBatch>()?.into_inner()]);
    }
    if messages.hasattr("__arrow_c_stream__")? {
        let reader = messages.extract::<PyRecordBatchReader>()?.into_reader()?;
        let schema = reader.schema();
        let batches = reader.collect::<Result<Vec<_>, _>>().map_err(PyArrowError::from)?;
        return Ok(if batches.is_empty() { vec![RecordBatch::new_empty(schema)] } else { batches });
    }
    let found = messages.get_type().name()?;
    Err(PyTypeError::new_err(format!("{what}: expected Arrow data or a mapping of columns, found {found}")))
}

fn batch_of_columns(columns: &Bound<'_, PyMapping>, make: MakeColumn) -> PyResult<RecordBatch> {
    let (mut fields, mut arrays, mut lengths) = (Vec::new(), Vec::<ArrayRef>::new(), Vec::new());
    for item in columns.items()? {
        let (name, values): (String, Bound<'_, PyAny>) = item.extract()?;
        let array = match arrow_array(&values)? {
            Some(array) => array,
            None => make(&name, &values)?,
        };
        lengths.push(format!("{name} {}", array.len()));
        fields.push(Field::new(name, array.data_type().clone(), true));
        arrays.push(array);
    }
    if arrays.windows(2).any(|pair| matches!(pair, [a, b] if a.len() != b.len())) {
        return Err(PyValueError::new_err(format!("the columns differ in length: {}", lengths.join(", "))));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(|e| PyValueError::new_err(e.to_string()))
}

/// A column from a sequence of values.
fn column(name: &str, values: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let wrong = || PyValueError::new_err(format!("no column of a message that is put: '{name}'"));
    let kind = Column::named(name).ok_or_else(wrong)?.data_type();
    Ok(match kind {
        DataType::Utf8 => {
            let texts = cells(name, "text", values, |value| value.extract::<Option<PyBackedStr>>())?;
            Arc::new(texts.iter().map(Option::as_deref).collect::<StringArray>())
        }
        DataType::Binary => {
            let bytes = cells(name, "bytes", values, |value| Ok(value.extract::<Option<PyBackedBytes>>()?))?;
            Arc::new(bytes.iter().map(Option::as_deref).collect::<BinaryArray>())
        }
        DataType::Int32 => Arc::new(
            cells(name, "integers", values, |value| integer::<Option<i32>>(value, name))?
                .into_iter()
                .collect::<Int32Array>(),
        ),
        DataType::Int64 => Arc::new(
            cells(name, "integers", values, |value| integer::<Option<i64>>(value, name))?
                .into_iter()
                .collect::<Int64Array>(),
        ),
        DataType::Timestamp(..) => {
            let times = time_column(values, name)?;
            Arc::new(times.reinterpret_cast::<TimestampMillisecondType>().with_timezone("UTC"))
        }
        DataType::Map(..) => properties(values)?,
        _ => return Err(wrong()),
    })
}

/// The values of a sequence; an error of `extract` about a type names the column and the value.
pub(super) fn cells<'py, T>(
    name: &str,
    expected: &str,
    values: &Bound<'py, PyAny>,
    extract: impl Fn(&Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let cell = |value: Bound<'py, PyAny>| {
        extract(&value).map_err(|error| {
            if error.is_instance_of::<PyValueError>(value.py()) {
                return error;
            }
            let found = value.repr().map_or_else(|_| "another object".to_owned(), |text| text.to_string());
            PyTypeError::new_err(format!("column {name}: expected {expected}, found {found}"))
        })
    };
    values.try_iter()?.map(|value| cell(value?)).collect()
}

fn properties(rows: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let mut map = PropertyMap::default();
    for row in rows.try_iter()? {
        let row: Option<Bound<'_, PyMapping>> = row?.extract()?;
        if let Some(row) = &row {
            for item in row.items()? {
                let (name, value): (PyBackedStr, Option<PyBackedStr>) = item.extract()?;
                map.push(&name, value.as_deref());
            }
        }
        map.end_row(row.is_some());
    }
    Ok(Arc::new(map.finish()))
}

/// Return the delays of a broker's levels in ms, level 1 first.
///
/// Args:
///     text: Upstream's `messageDelayLevel`: numbers with the units s, m, h and d, separated by spaces.
///
/// Raises:
///     ValueError: A word is not a delay.
#[pyfunction]
fn delay_levels_ms(text: &str) -> PyResult<Vec<i64>> {
    Ok(DelayLevels::parse(text)?.as_ms().to_vec())
}
