//! Input for messages that Python makes: the column of properties, the delays of a broker's levels.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyMapping;
use pyo3_arrow::PyArray;

use crate::rocketmq::commit_log::PropertyMap;
use crate::rocketmq::commit_log::columns::Column;
use crate::rocketmq::consume_queue::DelayLevels;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(property_column, m)?)?;
    m.add_function(wrap_pyfunction!(delay_levels_ms, m)?)
}

/// Return the column `properties` of a batch of messages.
///
/// Args:
///     rows: For each message a mapping from names to values, or None.
///
/// Raises:
///     TypeError: A row is no mapping, or a name or value no text.
#[pyfunction]
fn property_column<'py>(py: Python<'py>, rows: Vec<Option<Bound<'py, PyMapping>>>) -> PyResult<Bound<'py, PyAny>> {
    let mut map = PropertyMap::default();
    for row in &rows {
        if let Some(row) = row {
            for item in row.items()? {
                let (name, value): (String, Option<String>) = item.extract()?;
                map.push(&name, value.as_deref());
            }
        }
        map.end_row(row.is_some());
    }
    let field = arrow_schema::Field::new(Column::Properties.name(), Column::Properties.data_type(), true);
    let column = PyArray::try_new(Arc::new(map.finish()), Arc::new(field));
    column.map_err(|e| PyValueError::new_err(e.to_string()))?.into_arro3(py)
}

/// Return the delays of a broker's levels in ms, level 1 first.
///
/// Args:
///     text: Upstream's `messageDelayLevel`: numbers with the units s, m, h and d, and spaces between them.
///
/// Raises:
///     ValueError: A word is no delay.
#[pyfunction]
fn delay_levels_ms(text: &str) -> PyResult<Vec<i64>> {
    Ok(DelayLevels::parse(text)?.as_ms().to_vec())
}
