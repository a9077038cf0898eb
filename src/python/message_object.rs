//! A message as Python takes it: `logdex.rocketmq.Message`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyType};

use crate::rocketmq::commit_log::Message;
use crate::rocketmq::commit_log::columns::Column;
use crate::rocketmq::commit_log::properties::{KEYS, TAGS, UNIQ_KEY};

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
