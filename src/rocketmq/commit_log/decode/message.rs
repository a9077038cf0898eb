//! One owned message.

use crate::java_text::decode_utf8;
use crate::rocketmq::commit_log::decode::block::Place;
use crate::rocketmq::commit_log::decode::body::BodyDecoder;
use crate::rocketmq::commit_log::decode::text;
use crate::rocketmq::commit_log::frame::{Frame, Layout, properties};

/// A message with all columns; see [`crate::rocketmq::commit_log::decode::columns::Column`] for their meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the columns")]
pub struct Message {
    pub topic: String,
    pub queue_id: i32,
    pub queue_offset: i64,
    pub phy_offset: u64,
    pub store_timestamp: i64,
    pub born_timestamp: i64,
    pub msg_id: String,
    pub body: Option<Vec<u8>>,
    pub properties: Vec<(String, String)>,
    pub flag: i32,
    pub sys_flag: i32,
    pub store_size: i32,
    pub body_crc: i32,
    pub reconsume_times: i32,
    pub prepared_transaction_offset: i64,
    pub born_host: String,
    pub store_host: String,
    pub body_error: Option<String>,
}

impl Message {
    pub(crate) fn new(frame: &Frame<'_>, place: Place<'_>, max_body_bytes: usize) -> Self {
        let mut decoder = BodyDecoder::new(max_body_bytes);
        match decoder.decode(frame.stored_body(), frame.sys_flag()) {
            Ok(body) => Self::with_body(frame, place.phy_offset, Some(body.to_vec()), None),
            Err(error) => Self::with_body(frame, place.phy_offset, None, Some(place.body_error(&error))),
        }
    }

    /// Returns the message of a whole frame at the offset that it states, with its body as it is stored; `None` if it is not a frame.
    pub fn stored(bytes: &[u8]) -> Option<Self> {
        let total = u32::from_be_bytes(*bytes.first_chunk()?);
        let magic = u32::from_be_bytes(*bytes.get(4..)?.first_chunk()?);
        let layout = Layout::of(bytes, total, magic).ok()?.filter(|layout| layout.total() as usize == bytes.len())?;
        let frame = Frame::new(bytes, layout);
        let phy_offset = frame.stated_phy_offset().cast_unsigned();
        Some(Self::with_body(&frame, phy_offset, Some(frame.stored_body().to_vec()), None))
    }

    fn with_body(frame: &Frame<'_>, phy_offset: u64, body: Option<Vec<u8>>, body_error: Option<String>) -> Self {
        let (mut msg_id, mut born_host, mut store_host) = (String::new(), String::new(), String::new());
        text::write_msg_id(frame.store_host(), phy_offset, &mut msg_id);
        text::write_host(frame.born_host(), &mut born_host);
        text::write_host(frame.store_host(), &mut store_host);
        let properties = properties::parse(&decode_utf8(frame.properties()))
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Self {
            topic: decode_utf8(frame.topic()).into_owned(),
            queue_id: frame.queue_id(),
            queue_offset: frame.queue_offset(),
            phy_offset,
            store_timestamp: frame.store_timestamp(),
            born_timestamp: frame.born_timestamp(),
            msg_id,
            body,
            properties,
            flag: frame.flag(),
            sys_flag: frame.sys_flag(),
            store_size: frame.store_size(),
            body_crc: frame.body_crc(),
            reconsume_times: frame.reconsume_times(),
            prepared_transaction_offset: frame.prepared_transaction_offset(),
            born_host,
            store_host,
            body_error,
        }
    }

    /// Returns the value of a property.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}
