//! Times from Python: integers of milliseconds and datetimes, one by one and in columns.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType};
use arrow_array::{Array, ArrayRef, Int64Array};
use arrow_schema::{DataType, TimeUnit};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyInt, PyString, PyType};

use super::convert::{arrow_array, cast};
use super::integer::integer;
use crate::time_range::TimeRange;
use crate::time_text::{check_bound, zoned_time};

register! { fn py_time_ms, py_bound_ms }

/// The rounding of a time with a fraction of a millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    Down,
    Up,
}

const ZONED_EXAMPLE: &str = "ISO 8601 with a zone, such as 2026-11-21T19:30:00Z";

/// Milliseconds since the epoch of an `int`, an aware `datetime`, or ISO 8601 with a zone.
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
                "{} has no time zone: expected an aware datetime or epoch milliseconds",
                value.repr()?
            )));
        }
        let utc = py.import("datetime")?.getattr("timezone")?.getattr("utc")?;
        let epoch = datetime.call1((1970, 1, 1, 0, 0, 0, 0, utc))?;
        let since = value.sub(epoch)?;
        let days: i64 = since.getattr("days")?.extract()?;
        let seconds: i64 = since.getattr("seconds")?.extract()?;
        let micros: i64 = since.getattr("microseconds")?.extract()?;
        // A pandas Timestamp is a datetime with nanoseconds.
        let nanos: i64 = since.getattr_opt("nanoseconds")?.map_or(Ok(0), |nanos| nanos.extract())?;
        // A datetime spans the years 1 to 9999: no overflow.
        let up = i64::from(round == Round::Up && (micros % 1000 != 0 || nanos != 0));
        return Ok((days * 86_400 + seconds) * 1000 + micros / 1000 + up);
    }
    if let Ok(text) = value.cast::<PyString>() {
        let text = text.to_cow()?;
        return zoned_time(&text, round == Round::Down)
            .ok_or_else(|| PyValueError::new_err(format!("{name}={text:?}: expected {ZONED_EXAMPLE}")));
    }
    // numpy integers and the like
    integer(value, name).map_err(|error: PyErr| {
        if error.is_instance_of::<PyValueError>(py) {
            return error;
        }
        let kind = value.get_type().name().map_or_else(|_| "object".to_owned(), |n| n.to_string());
        PyTypeError::new_err(format!(
            "{name}: expected epoch milliseconds, an aware datetime or ISO 8601 with a zone, found {kind}"
        ))
    })
}

/// Returns [`time_ms`] of a bound that a caller requests. A number that may be seconds or a date is refused.
///
/// A subclass of `int` was checked or comes from a date: see `Milliseconds` in Python.
pub(super) fn bound_ms(value: &Bound<'_, PyAny>, round: Round, name: &str) -> PyResult<i64> {
    let ms = time_ms(value, round, name)?;
    let is_number = if value.is_instance_of::<PyInt>() {
        value.is_exact_instance_of::<PyInt>()
    } else {
        value.hasattr(intern!(value.py(), "__index__"))?
    };
    if is_number {
        check_bound(ms).map_err(|what| PyValueError::new_err(format!("{name}={what}")))?;
    }
    Ok(ms)
}

/// A closed range; `None`: no bound.
pub(super) fn time_range(begin: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<TimeRange> {
    Ok(TimeRange::new(
        begin.map(|t| time_ms(t, Round::Up, "begin")).transpose()?,
        end.map(|t| time_ms(t, Round::Down, "end")).transpose()?,
    ))
}

/// Returns the closed range that a caller requests, see [`bound_ms`]; `None`: no bound.
pub(super) fn bounds(begin: Option<&Bound<'_, PyAny>>, end: Option<&Bound<'_, PyAny>>) -> PyResult<TimeRange> {
    Ok(TimeRange::new(
        begin.map(|t| bound_ms(t, Round::Up, "begin")).transpose()?,
        end.map(|t| bound_ms(t, Round::Down, "end")).transpose()?,
    ))
}

/// A column of times in milliseconds from an Arrow array of integers or timestamps, or a sequence.
///
/// Rounds finer units down. Takes a timestamp without a zone as UTC, as Arrow's own casts do.
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
            let micros = array.as_primitive::<TimestampMicrosecondType>();
            Ok(micros.unary(|t| t.div_euclid(1000)))
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            let nanos = array.as_primitive::<TimestampNanosecondType>();
            Ok(nanos.unary(|t| t.div_euclid(1_000_000)))
        }
        DataType::Null => Ok(Int64Array::new_null(array.len())),
        DataType::Timestamp(_, zone) => {
            let ms = cast(array, &DataType::Timestamp(TimeUnit::Millisecond, zone.clone()), what)?;
            Ok(ms.as_primitive::<TimestampMillisecondType>().reinterpret_cast())
        }
        kind if kind.is_integer() => Ok(cast(array, &DataType::Int64, what)?.as_primitive::<Int64Type>().clone()),
        kind => Err(PyTypeError::new_err(format!("{what}: expected times or integers, found {kind}"))),
    }
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
#[pyo3(name = "time_ms", signature = (value, *, end=false, name="value"))]
fn py_time_ms(value: &Bound<'_, PyAny>, end: bool, name: &str) -> PyResult<i64> {
    time_ms(value, if end { Round::Down } else { Round::Up }, name)
}

/// Return `time_ms` of a bound of a time range that a caller requests.
///
/// Raises:
///     TypeError: A naive `datetime`, or a value that is not a time.
///     ValueError: An integer that does not fit in 64 bits, or that may be a number of seconds or the digits of a date.
#[pyfunction]
#[pyo3(name = "bound_ms", signature = (value, *, end=false, name="value"))]
fn py_bound_ms(value: &Bound<'_, PyAny>, end: bool, name: &str) -> PyResult<i64> {
    bound_ms(value, if end { Round::Down } else { Round::Up }, name)
}
