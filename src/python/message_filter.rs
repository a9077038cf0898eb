//! `MessageFilter`.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::integer;
use super::time;
use crate::rocketmq::commit_log::{Filter, TextSet};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyMessageFilter>()
}

/// Which messages a read returns: all conditions must hold, None is no condition.
///
/// A filter is evaluated on the message as it is stored, before a body is decompressed.
#[pyclass(name = "MessageFilter", module = "logdex._core", frozen)]
pub(super) struct PyMessageFilter {
    filter: Arc<Filter>,
}

impl PyMessageFilter {
    pub(super) fn inner(&self) -> Filter {
        Filter::clone(&self.filter)
    }

    /// The filter of an optional argument.
    pub(super) fn of(filter: Option<&Bound<'_, Self>>) -> Filter {
        filter.map_or_else(Filter::default, |filter| filter.get().inner())
    }
}

/// A set of texts. A text that is not valid Unicode equals no text of a message, so it is left out.
fn texts(value: Option<&Bound<'_, PyAny>>, name: &str) -> PyResult<Option<TextSet>> {
    let Some(value) = value else {
        return Ok(None);
    };
    if value.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(format!(
            "{name}: expected an iterable of str, found one str; put it into a list"
        )));
    }
    let mut found = Vec::new();
    for item in value.try_iter()? {
        let item = item?;
        let kind = || item.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
        let text = item
            .cast::<PyString>()
            .map_err(|_| PyTypeError::new_err(format!("{name}: expected str, found {}", kind())))?;
        if let Ok(text) = text.to_cow() {
            found.push(text.into_owned());
        }
    }
    Ok(Some(found.into_iter().collect()))
}

#[pymethods]
impl PyMessageFilter {
    /// Take the conditions.
    ///
    /// Args:
    ///     topics: The topic as stored is one of these.
    ///     queue_ids: The queue id is one of these.
    ///     begin: First store time, ms or an aware datetime.
    ///     end: Last store time, included.
    ///     begin_phy_offset: No message begins before this offset of the log.
    ///     end_phy_offset: No message begins at or after this offset of the log.
    ///     begin_queue_offset: First queue offset.
    ///     end_queue_offset: Queue offset after the last.
    ///     keys: The unique key or one of the space-separated keys is one of these.
    ///     tags: The property TAGS is one of these.
    ///
    /// Raises:
    ///     TypeError: A text or a number is of another type, or a datetime has no time zone.
    #[new]
    #[pyo3(signature = (*, topics=None, queue_ids=None, begin=None, end=None, begin_phy_offset=None, end_phy_offset=None, begin_queue_offset=None, end_queue_offset=None, keys=None, tags=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn new(
        topics: Option<&Bound<'_, PyAny>>,
        queue_ids: Option<Vec<i64>>,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = integer::begin_phy_offset)] begin_phy_offset: Option<i64>,
        #[pyo3(from_py_with = integer::end_phy_offset)] end_phy_offset: Option<i64>,
        #[pyo3(from_py_with = integer::queue_offset)] begin_queue_offset: Option<i64>,
        #[pyo3(from_py_with = integer::queue_offset)] end_queue_offset: Option<i64>,
        keys: Option<&Bound<'_, PyAny>>,
        tags: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let offset = |offset: Option<i64>, otherwise| offset.map_or(otherwise, |at| u64::try_from(at).unwrap_or(0));
        let last_queue_offset = end_queue_offset.map_or(i64::MAX, |end| end.saturating_sub(1));
        let filter = Filter {
            topics: texts(topics, "topics")?,
            queue_ids: queue_ids.map(|ids| ids.into_iter().filter_map(|id| i32::try_from(id).ok()).collect()),
            queue_offsets: begin_queue_offset.unwrap_or(i64::MIN)..=last_queue_offset,
            phy_offsets: offset(begin_phy_offset, 0)..offset(end_phy_offset, u64::MAX),
            times: time::time_range(begin, end)?,
            keys: texts(keys, "keys")?,
            tags: texts(tags, "tags")?,
        };
        Ok(Self { filter: Arc::new(filter) })
    }
}
