//! Messages from Python and for Python: objects, columns and lists of values, filters, and verdicts on candidates.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array as _, ArrayRef, BinaryArray, Int32Array, Int64Array, MapArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping, PyString, PyType};
use pyo3_arrow::error::PyArrowError;
use pyo3_arrow::{PyRecordBatch, PyRecordBatchReader};

use super::convert::{ArrowBatch, arrow_array, log_offset};
use super::integer::integer;
use super::time::time_column;
use super::{integer, pattern, time};
use crate::rocketmq::commit_log::columns::Column;
use crate::rocketmq::commit_log::properties::{KEYS, TAGS, UNIQ_KEY};
use crate::rocketmq::commit_log::write::{GivenMessage, Host, message_frame};
use crate::rocketmq::commit_log::{Filter, Message, PropertyMap, Search, TextSet};
use crate::rocketmq::consume_queue::DelayLevels;

register! {
    class PyMessageFilter;
    fn stored_message, frame_of, message_batch, delay_levels_ms, message_lists
}

/// Return the message of a whole frame of a log, with its body as it is stored.
///
/// Raises:
///     ValueError: It is not a frame.
#[pyfunction]
fn stored_message(frame: &[u8]) -> PyResult<Message> {
    Message::stored(frame).ok_or_else(|| PyValueError::new_err("no message: expected a whole frame"))
}

/// A message with its body as it is stored.
#[derive(FromPyObject)]
struct StoredObject<'py> {
    topic: PyBackedStr,
    queue_id: i32,
    queue_offset: i64,
    phy_offset: u64,
    flag: i32,
    sys_flag: i32,
    born_timestamp: i64,
    born_host: PyBackedStr,
    store_timestamp: i64,
    store_host: PyBackedStr,
    reconsume_times: i32,
    prepared_transaction_offset: i64,
    body: PyBackedBytes,
    properties: Bound<'py, PyDict>,
}

/// The texts of properties.
pub(super) type PropertyTexts = Vec<(PyBackedStr, PyBackedStr)>;

pub(super) fn property_texts(properties: &Bound<'_, PyDict>) -> PyResult<PropertyTexts> {
    properties.iter().map(|(name, value)| Ok((name.extract()?, value.extract()?))).collect()
}

/// Return the frame of a message with its body as it is stored, and its properties in the order of Java's `HashMap`.
///
/// Raises:
///     ValueError: No frame holds it.
///
/// Source: `MessageDecoder#encode`.
#[pyfunction]
fn frame_of(message: StoredObject<'_>) -> PyResult<Vec<u8>> {
    let given = GivenMessage {
        topic: &message.topic,
        queue_id: message.queue_id,
        flag: message.flag,
        sys_flag: message.sys_flag,
        born_timestamp: Some(message.born_timestamp),
        born_host: Some(Host::parse(&message.born_host)?),
        store_timestamp: Some(message.store_timestamp),
        store_host: Some(Host::parse(&message.store_host)?),
        reconsume_times: message.reconsume_times,
        prepared_transaction_offset: message.prepared_transaction_offset,
        body: &message.body,
    };
    let texts = property_texts(&message.properties)?;
    let properties = texts.iter().map(|(name, value)| (&**name, &**value));
    Ok(message_frame(given, properties, message.queue_offset, message.phy_offset)?)
}

// A `logdex.rocketmq.Message`: times in ms, the properties as a dict.
into_python!(Message, |message, py| {
    static MESSAGE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let dict = PyDict::new(py);
    for column in Column::ALL {
        let name = column.name();
        match column {
            Column::Topic => dict.set_item(name, &message.topic),
            Column::QueueId => dict.set_item(name, message.queue_id),
            Column::QueueOffset => dict.set_item(name, message.queue_offset),
            Column::PhyOffset => dict.set_item(name, message.phy_offset),
            Column::StoreTimestamp => dict.set_item(name, message.store_timestamp),
            Column::BornTimestamp => dict.set_item(name, message.born_timestamp),
            Column::MsgId => dict.set_item(name, &message.msg_id),
            Column::UniqKey => dict.set_item(name, message.property(UNIQ_KEY)),
            Column::Tags => dict.set_item(name, message.property(TAGS)),
            Column::Keys => dict.set_item(name, message.property(KEYS)),
            Column::Body => dict.set_item(name, message.body.as_ref().map(|body| PyBytes::new(py, body))),
            Column::Properties => {
                let properties = PyDict::new(py);
                for (key, value) in &message.properties {
                    properties.set_item(key, value)?;
                }
                dict.set_item(name, properties)
            }
            Column::Flag => dict.set_item(name, message.flag),
            Column::SysFlag => dict.set_item(name, message.sys_flag),
            Column::StoreSize => dict.set_item(name, message.store_size),
            Column::BodyCrc => dict.set_item(name, message.body_crc),
            Column::ReconsumeTimes => dict.set_item(name, message.reconsume_times),
            Column::PreparedTransactionOffset => dict.set_item(name, message.prepared_transaction_offset),
            Column::BornHost => dict.set_item(name, &message.born_host),
            Column::StoreHost => dict.set_item(name, &message.store_host),
            Column::BodyError => dict.set_item(name, message.body_error.as_deref()),
            Column::Suspect => Ok(()),
        }?;
    }
    MESSAGE.import(py, "logdex.rocketmq.message", "Message")?.call((), Some(&dict))
});

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
fn message_batch(columns: &Bound<'_, PyMapping>) -> PyResult<ArrowBatch> {
    batch_of_columns(columns, column).map(ArrowBatch)
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

/// Which messages a read returns: all conditions must hold, None is no condition.
///
/// A filter is evaluated on the message as it is stored, before a body is decompressed. Only a pattern is searched in the
/// decompressed body, of the messages that meet the other conditions.
#[pyclass(name = "MessageFilter", module = "logdex._core", frozen)]
pub(super) struct PyMessageFilter {
    filter: Arc<Filter>,
}

impl PyMessageFilter {
    pub(super) fn inner(&self) -> Filter {
        self.filter.for_read()
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
    ///     matches: A pattern that is searched in the message: a `str` or `bytes` for bodies, or a `Pattern`.
    ///
    /// Raises:
    ///     TypeError: A text or a number is of another type, or a datetime has no time zone.
    #[new]
    #[pyo3(signature = (*, topics=None, queue_ids=None, begin=None, end=None, begin_phy_offset=None, end_phy_offset=None, begin_queue_offset=None, end_queue_offset=None, keys=None, tags=None, matches=None))]
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
        matches: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let last_queue_offset = end_queue_offset.map_or(i64::MAX, |end| end.saturating_sub(1));
        let filter = Filter {
            topics: texts(topics, "topics")?,
            queue_ids: queue_ids.map(|ids| ids.into_iter().filter_map(|id| i32::try_from(id).ok()).collect()),
            queue_offsets: begin_queue_offset.unwrap_or(i64::MIN)..=last_queue_offset,
            phy_offsets: log_offset(begin_phy_offset, 0)..log_offset(end_phy_offset, u64::MAX),
            times: time::time_range(begin, end)?,
            keys: texts(keys, "keys")?,
            tags: texts(tags, "tags")?,
            search: pattern::matcher(matches)?.map(Search::new),
        };
        Ok(Self { filter: Arc::new(filter) })
    }
}

/// Return rows of a batch of messages as one Python list for each column: times in ms, properties as dicts.
///
/// Args:
///     batch: A record batch of message columns.
///     begin: The first row.
///     end: The row after the last.
///
/// Raises:
///     ValueError: There are no such rows.
///     TypeError: A column has a type that no message column has.
#[pyfunction]
fn message_lists(py: Python<'_>, batch: PyRecordBatch, begin: usize, end: usize) -> PyResult<Vec<Bound<'_, PyList>>> {
    lists(py, &batch.into_inner(), begin, end)
}

pub(super) fn lists<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
    begin: usize,
    end: usize,
) -> PyResult<Vec<Bound<'py, PyList>>> {
    if begin > end || end > batch.num_rows() {
        let text = format!("rows: expected 0 <= begin <= end <= {}, got {begin} and {end}", batch.num_rows());
        return Err(PyValueError::new_err(text));
    }
    let rows = batch.slice(begin, end - begin);
    rows.columns().iter().map(|column| column_list(py, column)).collect()
}

fn column_list<'py>(py: Python<'py>, column: &ArrayRef) -> PyResult<Bound<'py, PyList>> {
    match column.data_type() {
        DataType::Utf8 => text_list(py, column.as_string()),
        DataType::Binary => PyList::new(py, column.as_binary::<i32>().iter().map(|b| b.map(|b| PyBytes::new(py, b)))),
        DataType::Int32 => PyList::new(py, column.as_primitive::<Int32Type>()),
        DataType::Int64 => PyList::new(py, column.as_primitive::<Int64Type>()),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            PyList::new(py, column.as_primitive::<TimestampMillisecondType>())
        }
        DataType::Map(..) => property_list(py, column.as_map()),
        kind => Err(PyTypeError::new_err(format!("expected a message column, got one of type {kind}"))),
    }
}

/// Texts of a column. Neighbours that are equal are one object.
fn text_list<'py>(py: Python<'py>, column: &StringArray) -> PyResult<Bound<'py, PyList>> {
    let mut last: Option<(&str, Bound<'py, PyString>)> = None;
    let texts = column.iter().map(|text| {
        let text = text?;
        let object = match &last {
            Some((same, object)) if *same == text => object.clone(),
            _ => PyString::new(py, text),
        };
        last = Some((text, object.clone()));
        Some(object)
    });
    PyList::new(py, texts.collect::<Vec<_>>())
}

/// A text and its object.
type Seen<'a, 'py> = (&'a str, Bound<'py, PyString>);

/// Properties of a column as dicts. Names and values that are equal in neighbours are one object.
fn property_list<'py>(py: Python<'py>, column: &MapArray) -> PyResult<Bound<'py, PyList>> {
    let (names, values) = (column.keys().as_string_opt::<i32>(), column.values().as_string_opt::<i32>());
    let (Some(names), Some(values)) = (names, values) else {
        return Err(PyTypeError::new_err("properties: expected a map of utf8 to utf8"));
    };
    let mut seen: Vec<[Seen<'_, 'py>; 2]> = Vec::new();
    let list = PyList::empty(py);
    for (row, ends) in column.value_offsets().windows(2).enumerate() {
        let [begin, end] = [0, 1].map(|end| ends.get(end).and_then(|at| usize::try_from(*at).ok()).unwrap_or(0));
        let dict = PyDict::new(py);
        for (number, at) in (begin..end).filter(|_| column.is_valid(row)).enumerate() {
            let texts = [names.value(at), values.value(at)];
            if number == seen.len() {
                seen.push(texts.map(|text| (text, PyString::new(py, text))));
            }
            let Some(known) = seen.get_mut(number) else { continue };
            for (known, text) in known.iter_mut().zip(texts) {
                if known.0 != text {
                    *known = (text, PyString::new(py, text));
                }
            }
            let [(_, name), (_, value)] = &*known;
            dict.set_item(name, values.is_valid(at).then_some(value))?;
        }
        list.append(dict)?;
    }
    Ok(list)
}
