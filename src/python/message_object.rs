//! A message as Python takes it: `logdex.rocketmq.Message`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyType};

use crate::rocketmq::commit_log::Message;
use crate::rocketmq::commit_log::columns::Column;
use crate::rocketmq::commit_log::properties::{KEYS, TAGS, UNIQ_KEY};
use crate::rocketmq::commit_log::write::{GivenMessage, Host, message_frame};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(stored_message, m)?)?;
    m.add_function(wrap_pyfunction!(frame_of, m)?)
}

/// Return the message of a whole frame of a log, with its body as it is stored.
///
/// Raises:
///     ValueError: It is not a frame.
#[pyfunction]
fn stored_message<'py>(py: Python<'py>, frame: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let message = Message::stored(frame).ok_or_else(|| PyValueError::new_err("no message: expected a whole frame"))?;
    message_object(py, &message)
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

/// Return the frame of a message with its body as it is stored, and its properties in the order of Java's `HashMap`.
///
/// Raises:
///     ValueError: No frame holds it.
///
/// Source: `MessageDecoder#encode`.
#[pyfunction]
fn frame_of<'py>(py: Python<'py>, message: StoredObject<'py>) -> PyResult<Bound<'py, PyBytes>> {
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
    let text = |(name, value): (Bound<'py, PyAny>, Bound<'py, PyAny>)| Ok((name.extract()?, value.extract()?));
    let texts = message.properties.iter().map(text).collect::<PyResult<Vec<(PyBackedStr, PyBackedStr)>>>()?;
    let properties = texts.iter().map(|(name, value)| (&**name, &**value));
    let frame = message_frame(given, properties, message.queue_offset, message.phy_offset)?;
    Ok(PyBytes::new(py, &frame))
}

/// Make a `Message` of the columns: times in ms, the properties as a dict.
pub(super) fn message_object<'py>(py: Python<'py>, message: &Message) -> PyResult<Bound<'py, PyAny>> {
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
}
