//! Plain sends: single messages for known topics, neither delayed nor of a transaction. The sends of one read are taken together,
//! put together and answered together. All other requests are single frames.
//!
//! Source: upstream `SendMessageProcessor#asyncSendMessage`, `SendMessageRequestHeaderV2`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use memchr::memmem;

use super::command::{ANSWER, Command, Header, ONE_WAY, decode, frame_length};
use crate::error::Result;
use crate::rocketmq::commit_log::write::{GivenMessage, Host, PutResult, SentMessage, property_entries};
use crate::rocketmq::names::DELAY;

/// `SEND_MESSAGE_V2`.
const SEND: i32 = 310;
/// The message is stored, but perhaps not on the disk.
const FLUSH_DISK_TIMEOUT: i32 = 10;
/// Bits of the system's flag for the state of a transaction.
const TRANSACTION_BITS: i32 = 0xC;
const TRANSACTION: &str = "TRAN_MSG";
/// True if the producer waits for the disk. The broker takes it out of the text.
const WAIT: &str = "WAIT";
const CLUSTER: &str = "CLUSTER";

/// The topics that take plain sends, with the number of their queues.
#[derive(Debug, Default)]
pub struct SendTable {
    topics: HashMap<Arc<str>, i32>,
}

impl SendTable {
    /// Takes plain sends for a topic.
    pub fn learn(&mut self, topic: &str, queues: i32) {
        self.topics.insert(topic.into(), queues);
    }

    /// Takes no more plain sends for a topic.
    pub fn forget(&mut self, topic: &str) {
        self.topics.remove(topic);
    }
}

/// The values that a broker puts into messages and answers.
#[derive(Clone, Debug)]
pub struct SendFacts {
    /// The name of the cluster.
    pub cluster: String,
    /// The broker.
    pub store_host: Host,
    /// The fields of each answer.
    pub fields: Vec<(String, String)>,
    /// The answer if no log takes a message.
    pub illegal: Refused,
}

/// An answer that is not a success.
#[derive(Clone, Debug)]
pub struct Refused {
    /// Its code.
    pub code: i32,
    /// A text for people.
    pub remark: String,
}

/// Whole frames of one client.
#[derive(Debug)]
pub enum Frames {
    /// One frame: where it is.
    Other(Range<usize>),
    /// Plain sends that follow one another.
    Sends(Sends),
}

/// Returns the whole frames at the beginning of the bytes that a client sent, in their order. Without a table none is a plain send.
///
/// # Errors
/// The fault in the length of the first frame. After other frames a wrong length ends the result.
pub fn frames(data: &[u8], table: Option<&SendTable>) -> std::result::Result<Vec<Frames>, String> {
    let mut found: Vec<Frames> = Vec::new();
    let mut at = 0;
    while let Some(head) = data.get(at..).and_then(|rest| rest.first_chunk()) {
        let length = match frame_length(*head) {
            Err(error) if at == 0 => return Err(error),
            Err(_) => break,
            Ok(length) => length,
        };
        let place = at..at + length;
        let Some(frame) = data.get(place.clone()) else { break };
        at = place.end;
        let before = if let Some(Frames::Sends(sends)) = found.last() { sends.bytes() } else { 0 };
        match table.and_then(|table| Send::take(frame, before + length, table)) {
            None => found.push(Frames::Other(place)),
            Some(send) => {
                if let Some(Frames::Sends(sends)) = found.last_mut() {
                    sends.sends.push(send);
                    sends.place.end = place.end;
                } else {
                    found.push(Frames::Sends(Sends { sends: vec![send], place }));
                }
            }
        }
    }
    Ok(found)
}

/// Plain sends of one client, in their order.
#[derive(Debug)]
pub struct Sends {
    sends: Vec<Send>,
    place: Range<usize>,
}

impl Sends {
    /// The number of messages.
    pub fn count(&self) -> usize {
        self.sends.len()
    }

    /// The place of the frames.
    pub fn place(&self) -> Range<usize> {
        self.place.clone()
    }

    /// Bytes of the frames.
    pub fn bytes(&self) -> usize {
        self.place.len()
    }

    /// Returns the messages, as the log takes them. `data` are the bytes of the frames; `born_host` `None`: the broker.
    pub fn messages<'a>(
        &'a self,
        data: &'a [u8],
        facts: &'a SendFacts,
        born_host: Option<Host>,
    ) -> impl ExactSizeIterator<Item = SentMessage<'a>> {
        self.sends.iter().map(move |send| send.message(data, facts, born_host))
    }

    /// Returns the frames of the answers to puts, and the number of messages that the log took. `flushed`: the offset in the log
    /// before which everything is on the disk, if producers wait for that.
    pub fn answers(
        &self,
        facts: &SendFacts,
        puts: &[Result<Vec<PutResult<'_>>>],
        flushed: Option<u64>,
    ) -> (Vec<u8>, usize) {
        let mut answers = Vec::with_capacity(320 * self.sends.len());
        let mut stored = 0;
        for (send, put) in self.sends.iter().zip(puts) {
            if let Ok(Some(place)) = put.as_ref().map(|places| places.first()) {
                stored += 1;
                let (queue, offset) = (send.queue_id.to_string(), place.queue_offset.to_string());
                let id = place.msg_id();
                let ends = [("msgId", id.as_str()), ("queueOffset", offset.as_str())];
                let begin = [("queueId", queue.as_str())];
                let fields = begin.into_iter().chain(texts(&facts.fields)).chain(ends);
                let is_late = send.waits && flushed.is_some_and(|flushed| flushed <= place.phy_offset);
                let code = if is_late { FLUSH_DISK_TIMEOUT } else { 0 };
                send.answer(code, None, Some(fields), &mut answers);
            } else {
                let Refused { code, remark } = &facts.illegal;
                send.answer(*code, Some(remark), Some(texts(&facts.fields)), &mut answers);
            }
        }
        (answers, stored)
    }

    /// Returns the frames of answers that refuse all of them. `fields` `None`: the answers have no table of fields.
    pub fn refusals(&self, refused: &Refused, fields: Option<&[(String, String)]>) -> Vec<u8> {
        let mut answers = Vec::new();
        for send in &self.sends {
            send.answer(refused.code, Some(&refused.remark), fields.map(texts), &mut answers);
        }
        answers
    }
}

fn texts(fields: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}

/// One plain send.
#[derive(Debug)]
struct Send {
    opaque: i32,
    is_one_way: bool,
    topic: Arc<str>,
    queue_id: i32,
    flag: i32,
    sys_flag: i32,
    born_timestamp: i64,
    reconsume_times: i32,
    properties: String,
    /// The producer waits for the disk.
    waits: bool,
    /// The range of the body in the bytes of all frames.
    body: Range<usize>,
}

impl Send {
    /// Returns the send of a frame; `None` if it is something else. `end` is where the frame ends in the bytes of all.
    fn take(frame: &[u8], end: usize, table: &SendTable) -> Option<Self> {
        if !may_be_send(frame) {
            return None;
        }
        let Command { code, opaque, flag, ext, body, .. } = decode(frame).ok()?;
        if code != SEND || flag & ANSWER != 0 {
            return None;
        }
        let is_one_way = flag & ONE_WAY != 0;
        // The fields, by their letters from a to m. A name that comes twice counts as it comes last.
        let mut texts = [None; 13];
        for (name, value) in &ext {
            if let [letter @ b'a'..=b'm'] = name.as_bytes()
                && let Some(text) = texts.get_mut(usize::from(letter - b'a'))
            {
                *text = Some(value.as_ref());
            }
        }
        let [
            Some(_),
            Some(topic),
            Some(_),
            Some(queues_of_new),
            Some(queue),
            Some(sys_flag),
            Some(born),
            Some(flag_text),
            rest @ ..,
        ] = texts
        else {
            return None;
        };
        let [properties, reconsume_times, _, most_times, batch] = rest;
        let (topic, queues) = table.topics.get_key_value(topic)?;
        // If a number does not parse, the response names its field.
        let (queue_id, sys_flag): (i32, i32) = (queue.parse().ok()?, sys_flag.parse().ok()?);
        let (_, _): (i32, i32) = (queues_of_new.parse().ok()?, most_times.unwrap_or("0").parse().ok()?);
        let (flag, reconsume_times) = (flag_text.parse().ok()?, reconsume_times.unwrap_or("0").parse().ok()?);
        let born_timestamp = born.parse().ok()?;
        let is_batch = batch.is_some_and(|text| text.eq_ignore_ascii_case("true"));
        let properties = properties.unwrap_or_default();
        let is_plain = !is_batch
            && (0..*queues).contains(&queue_id)
            && sys_flag & TRANSACTION_BITS == 0
            && property_entries(properties).all(|(name, value)| match name {
                DELAY => value == "0",
                TRANSACTION => !value.eq_ignore_ascii_case("true"),
                _ => true,
            });
        is_plain.then(|| Self {
            opaque,
            is_one_way,
            topic: Arc::clone(topic),
            queue_id,
            flag,
            sys_flag,
            born_timestamp,
            reconsume_times,
            properties: properties.to_owned(),
            waits: property_entries(properties).filter(|(name, _)| *name == WAIT).last() != Some((WAIT, "false")),
            body: end - body.len()..end,
        })
    }

    fn message<'a>(&'a self, data: &'a [u8], facts: &'a SendFacts, born_host: Option<Host>) -> SentMessage<'a> {
        let entries = property_entries(&self.properties).filter(|(name, _)| *name != WAIT);
        let given = GivenMessage {
            topic: &self.topic,
            queue_id: self.queue_id,
            flag: self.flag,
            sys_flag: self.sys_flag,
            born_timestamp: Some(self.born_timestamp),
            born_host,
            store_timestamp: None,
            store_host: Some(facts.store_host),
            reconsume_times: self.reconsume_times,
            prepared_transaction_offset: 0,
            body: data.get(self.body.clone()).unwrap_or_default(),
        };
        let properties = entries.chain([(CLUSTER, facts.cluster.as_str())]).collect();
        SentMessage { given, properties, as_java_map: true, is_batch: false }
    }

    fn answer<'f>(
        &self,
        code: i32,
        remark: Option<&str>,
        fields: Option<impl Iterator<Item = (&'f str, &'f str)>>,
        to: &mut Vec<u8>,
    ) {
        if !self.is_one_way {
            let header = Header { code, opaque: self.opaque, flag: ANSWER, remark };
            to.extend_from_slice(&header.head(fields, 0));
        }
    }
}

/// Returns false for most other frames, so that they are not decoded twice.
fn may_be_send(frame: &[u8]) -> bool {
    let is_binary = frame.get(4) == Some(&1);
    is_binary || memmem::find(frame, b"310").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn frame(opaque: i32, properties: &str) -> Vec<u8> {
        let fields = ["p", "T", "TBW102", "4", "1", "0", "17", "0", properties];
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        let header = Header { code: SEND, opaque, flag: 0, remark: None };
        header.head(Some(names.into_iter().zip(fields)), 0)
    }

    fn codes(answers: &[u8]) -> Vec<(i32, i32)> {
        let found = frames(answers, None).unwrap();
        let places = found.iter().map(|frame| match frame {
            Frames::Other(place) => place.clone(),
            Frames::Sends(_) => unreachable!(),
        });
        let commands = places.map(|place| decode(answers.get(place).unwrap()).unwrap());
        commands.map(|command| (command.opaque, command.code)).collect()
    }

    #[test]
    fn an_answer_says_what_is_not_on_the_disk_in_time() {
        let mut table = SendTable::default();
        table.learn("T", 4);
        let data = [frame(7, ""), frame(8, "WAIT\u{1}false"), frame(9, "WAIT\u{1}true"), frame(10, "")].concat();
        let found = frames(&data, Some(&table)).unwrap();
        let [Frames::Sends(sends)] = found.as_slice() else { unreachable!() };
        let illegal = Refused { code: 13, remark: "no".into() };
        let store_host = Host::parse("127.0.0.1:1").unwrap();
        let facts = SendFacts { cluster: "c".into(), store_host, fields: Vec::new(), illegal };
        let place = |phy_offset| {
            let (queue_id, queue_offset, store_timestamp, store_size) = (1, 0, 0, 100);
            Ok(vec![PutResult {
                topic: "T",
                queue_id,
                queue_offset,
                phy_offset,
                store_timestamp,
                store_host,
                store_size,
            }])
        };
        let puts = [place(0), place(100), place(200), Err(Error::InvalidArgument(String::new()))];
        let late = |flushed| {
            let (answers, stored) = sends.answers(&facts, &puts, flushed);
            assert_eq!(stored, 3);
            codes(&answers)
        };
        assert_eq!(late(None), [(7, 0), (8, 0), (9, 0), (10, 13)]);
        assert_eq!(late(Some(300)), late(None));
        assert_eq!(late(Some(100)), [(7, 0), (8, 0), (9, 10), (10, 13)]);
        assert_eq!(late(Some(0)), [(7, 10), (8, 0), (9, 10), (10, 13)]);
    }
}
