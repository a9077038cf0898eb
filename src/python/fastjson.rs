//! Values of fastjson's JSON as Python values.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};

use crate::rocketmq::fastjson::{self, Value};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(parse_fastjson, m)?)
}

/// Return the value of a text in fastjson's JSON, in linear time. All names become strings.
///
/// Raises:
///     ValueError: The text is invalid or has a number of more than 64 bits.
#[pyfunction]
fn parse_fastjson(py: Python<'_>, text: PyBackedStr) -> PyResult<Bound<'_, PyAny>> {
    let value = py.detach(|| fastjson::parse(&text)).map_err(PyValueError::new_err)?;
    object(py, value)
}

fn object<'py>(py: Python<'py>, value: Value<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(value) => PyBool::new(py, value).to_owned().into_any(),
        Value::Integer(value) => PyInt::new(py, value).into_any(),
        Value::Float(value) => PyFloat::new(py, value).into_any(),
        Value::Text(text) => PyString::new(py, &text).into_any(),
        Value::List(values) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(object(py, value)?)?;
            }
            list.into_any()
        }
        Value::Map(members) => {
            let dict = PyDict::new(py);
            for (name, value) in members {
                dict.set_item(&*name, object(py, value)?)?;
            }
            dict.into_any()
        }
    })
}
