//! One message that is put, and its frame.

use super::host::Host;
use super::new_properties::NewProperties;
use crate::error::{Error, Result};
use crate::rocketmq::commit_log::frame::{
    BEFORE_BODY_LENGTH, BORN_HOST_V6, MAGIC_V1, MAGIC_V2, STORE_HOST_V6, body_crc,
};
use crate::rocketmq::names::{LONGEST_TOPIC, LONGEST_TOPIC_V1};

/// A message as the caller gives it, without properties and without a place.
#[derive(Clone, Copy, Debug, Default)]
pub struct GivenMessage<'a> {
    /// The topic.
    pub topic: &'a str,
    /// Queue of the topic.
    pub queue_id: i32,
    /// The application's flag.
    pub flag: i32,
    /// The system's flag.
    pub sys_flag: i32,
    /// Ms since the epoch; `None`: the store time.
    pub born_timestamp: Option<i64>,
    /// The producer; `None`: the broker.
    pub born_host: Option<Host>,
    /// Ms since the epoch; `None`: now.
    pub store_timestamp: Option<i64>,
    /// The broker; `None`: the writer's.
    pub store_host: Option<Host>,
    /// The number of times that a consumer returned it.
    pub reconsume_times: i32,
    /// Offset of the half message.
    pub prepared_transaction_offset: i64,
    /// The body.
    pub body: &'a [u8],
}

/// Returns the frame of a message at its place, with its properties in the order of Java's `HashMap` (upstream
/// `MessageDecoder#encode`).
///
/// # Errors
/// `InvalidArgument` if no frame holds it, or it has no times and hosts.
pub fn message_frame<'a>(
    given: GivenMessage<'a>,
    properties: impl IntoIterator<Item = (&'a str, &'a str)>,
    queue_offset: i64,
    phy_offset: u64,
) -> Result<Vec<u8>> {
    let GivenMessage { topic, queue_id, flag, sys_flag, reconsume_times, prepared_transaction_offset, body, .. } =
        given;
    let (Some(born_timestamp), Some(born_host), Some(store_timestamp), Some(store_host)) =
        (given.born_timestamp, given.born_host, given.store_timestamp, given.store_host)
    else {
        return Err(Error::InvalidArgument("expected the times and hosts of a stored message".into()));
    };
    let (mut entries, mut text) = (NewProperties::default(), String::new());
    entries.extend(properties);
    entries.order_as_java();
    entries.write(&mut text)?;
    let message = NewMessage {
        topic,
        queue_id,
        flag,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        body,
        properties: &text,
    };
    let too_long = |_| Error::InvalidArgument(format!("a message of {} bytes", message.size()));
    let size = i32::try_from(message.size()).map_err(too_long)?;
    if topic.len() > LONGEST_TOPIC {
        return Err(Error::InvalidArgument(format!("a topic of {} bytes", topic.len())));
    }
    let mut frame = Vec::new();
    message.encode(size.unsigned_abs(), queue_offset, phy_offset, &mut frame);
    Ok(frame)
}

/// The fields of a frame but for its queue offset and its offset in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewMessage<'a> {
    pub(super) topic: &'a str,
    pub(super) queue_id: i32,
    pub(super) flag: i32,
    /// The bits for IPv6 hosts are set from the hosts.
    pub(super) sys_flag: i32,
    pub(super) born_timestamp: i64,
    pub(super) born_host: Host,
    pub(super) store_timestamp: i64,
    pub(super) store_host: Host,
    pub(super) reconsume_times: i32,
    pub(super) prepared_transaction_offset: i64,
    /// As it is stored, perhaps compressed.
    pub(super) body: &'a [u8],
    /// The text of the properties, at most [`super::new_properties::LONGEST`] bytes.
    pub(super) properties: &'a str,
}

impl NewMessage<'_> {
    /// Bytes of the frame (upstream `CommitLog#calMsgLength`).
    pub(super) fn size(&self) -> usize {
        let hosts = self.born_host.bytes().len() + self.store_host.bytes().len();
        let topic_length = if self.is_long() { 2 } else { 1 };
        BEFORE_BODY_LENGTH + hosts + 4 + self.body.len() + topic_length + self.topic.len() + 2 + self.properties.len()
    }

    /// A topic of more than 127 bytes needs a frame of version 2 (5.1.0 and later).
    fn is_long(&self) -> bool {
        self.topic.len() > LONGEST_TOPIC_V1
    }

    fn stored_sys_flag(&self) -> i32 {
        let bit = |host: Host, v6| if host.is_v6() { v6 } else { 0 };
        let own = self.sys_flag & !(BORN_HOST_V6 | STORE_HOST_V6);
        own | bit(self.born_host, BORN_HOST_V6) | bit(self.store_host, STORE_HOST_V6)
    }

    /// Appends the frame (upstream `MessageExtEncoder#encode`); `size` is its [`Self::size`], checked to fit the fields.
    #[expect(clippy::cast_possible_truncation, reason = "the sizes were checked")]
    pub(super) fn encode(&self, size: u32, queue_offset: i64, phy_offset: u64, out: &mut Vec<u8>) {
        out.reserve(size as usize);
        let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
        put(&size.to_be_bytes());
        put(&(if self.is_long() { MAGIC_V2 } else { MAGIC_V1 }).to_be_bytes());
        put(&body_crc(self.body).to_be_bytes());
        put(&self.queue_id.to_be_bytes());
        put(&self.flag.to_be_bytes());
        put(&queue_offset.to_be_bytes());
        put(&phy_offset.to_be_bytes());
        put(&self.stored_sys_flag().to_be_bytes());
        put(&self.born_timestamp.to_be_bytes());
        put(self.born_host.bytes());
        put(&self.store_timestamp.to_be_bytes());
        put(self.store_host.bytes());
        put(&self.reconsume_times.to_be_bytes());
        put(&self.prepared_transaction_offset.to_be_bytes());
        put(&(self.body.len() as u32).to_be_bytes());
        put(self.body);
        if self.is_long() {
            put(&(self.topic.len() as u16).to_be_bytes());
        } else {
            put(&[self.topic.len() as u8]);
        }
        put(self.topic.as_bytes());
        put(&(self.properties.len() as u16).to_be_bytes());
        put(self.properties.as_bytes());
    }
}
