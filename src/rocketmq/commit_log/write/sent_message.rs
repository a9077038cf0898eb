//! A send of a producer: one message, or a batch of messages for one queue.
//!
//! The body of a batch holds for each message (upstream `MessageDecoder#encodeMessage`, big-endian):
//!
//! ```text
//! 0 total i32    4 magic i32    8 crc i32    12 flag i32    16 body length i32    20 body    properties length i16    properties
//! ```

use super::new_message::GivenMessage;
use super::new_properties::property_entries;
use super::pending_batch::PendingBatch;
use super::put_result::PutResult;
use crate::error::{Error, Result};

/// Bytes of a message of a batch before the length of its body: its size, magic, checksum and flag.
const BEFORE_BODY_LENGTH: usize = 16;

/// A message or a batch, as a broker takes it.
#[derive(Clone, Debug, Default)]
pub struct SentMessage<'a> {
    /// The fields. The body is stored as it is; that of a batch has the messages.
    pub given: GivenMessage<'a>,
    /// Names and values; of a batch: those that each message gets besides its own.
    pub properties: Vec<(&'a str, &'a str)>,
    /// Write the properties in the order of Java's `HashMap`, as a broker writes those that it has changed.
    pub as_java_map: bool,
    /// The body is that of a batch.
    pub is_batch: bool,
}

impl<'a> SentMessage<'a> {
    /// # Errors
    /// `InvalidArgument` for a message that no frame can hold, and for a body that is not a batch.
    pub(super) fn append_to(&self, batch: &mut PendingBatch<'_, 'a>) -> Result<Vec<PutResult<'a>>> {
        self.begin(batch);
        if !self.is_batch {
            return Ok(vec![batch.append(self.given)?]);
        }
        let mut places = Vec::new();
        let mut rest = self.given.body;
        while places.is_empty() || !rest.is_empty() {
            let element = Element::take(&mut rest).ok_or_else(|| {
                Error::InvalidArgument(format!("batch: no message at {}", self.given.body.len() - rest.len()))
            })?;
            // Its own properties are stored as they came, those of the batch after them.
            batch.properties().clear();
            batch.properties().extend(property_entries(element.properties));
            let own = batch.properties().len();
            batch.properties().extend(self.properties.iter().copied());
            if self.as_java_map {
                batch.properties().order_as_java_from(own);
            }
            places.push(batch.append_unparked(GivenMessage {
                flag: element.flag,
                body: element.body,
                ..self.given
            })?);
        }
        batch.check_size(&places)?;
        Ok(places)
    }

    fn begin(&self, batch: &mut PendingBatch<'_, 'a>) {
        batch.properties().clear();
        batch.properties().extend(self.properties.iter().copied());
        if self.as_java_map {
            batch.properties().order_as_java_from(0);
        }
    }
}

/// A message of a batch.
#[derive(Clone, Copy, Debug)]
struct Element<'a> {
    flag: i32,
    body: &'a [u8],
    properties: &'a str,
}

impl<'a> Element<'a> {
    /// Takes the next message off the front; `None` if there is none.
    fn take(bytes: &mut &'a [u8]) -> Option<Self> {
        let mut rest = *bytes;
        let head = take(&mut rest, BEFORE_BODY_LENGTH)?;
        let flag = i32::from_be_bytes(*head.last_chunk()?);
        let body_length = i32::from_be_bytes(*take(&mut rest, 4)?.first_chunk()?);
        let body = take(&mut rest, usize::try_from(body_length).ok()?)?;
        let length = i16::from_be_bytes(*take(&mut rest, 2)?.first_chunk()?);
        let properties = std::str::from_utf8(take(&mut rest, usize::try_from(length).ok()?)?).ok()?;
        *bytes = rest;
        Some(Self { flag, body, properties })
    }
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}
