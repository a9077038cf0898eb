//! Records of Kafka's internal topics as JSON, as kafka-dump-log prints them.
//!
//! ```text
//! __consumer_offsets, __transaction_state, __share_group_state
//!     key    type i16 | fields of the key        {"type":"1","data":{...}}
//!     value  version i16 | fields                {"version":"3","data":{...}}
//! __cluster_metadata
//!     value  1 | type | version | fields         {"type":"TOPIC_RECORD","version":0,"data":{...}}     the numbers are varints
//! ```
//!
//! `internal_messages.txt` has the fields. From its first flexible version on a message has compact lengths, and tagged fields after
//! the others.
//!
//! Source: `DumpLogSegments`, `CoordinatorRecordSerde`, `AbstractApiMessageSerde`, and the generated `*JsonConverter`.

use std::fmt::Write as _;
use std::iter::Peekable;
use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray as _;
use arrow_array::{Array as _, ArrayRef, BinaryArray, RecordBatch};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use super::fields::Fields;
use crate::arrow::text_rows::json_text;

/// A topic that brokers keep for themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InternalTopic(&'static str);

const METADATA: &str = "__cluster_metadata";
const TOPICS: [&str; 4] = ["__consumer_offsets", "__transaction_state", "__share_group_state", METADATA];
/// The messages of Kafka's consumers, and the fields of a group's members that have them.
const CONSUMER: &str = "consumer";
const MEMBER_BYTES: [&str; 2] = ["subscription", "assignment"];
/// The version of the frame of metadata.
const FRAME_VERSION: usize = 1;

impl InternalTopic {
    /// The log of `KRaft`.
    pub(crate) const METADATA: Self = Self(METADATA);

    /// Returns the topic with a name, if it is an internal one.
    pub(crate) fn of(name: &str) -> Option<Self> {
        TOPICS.into_iter().find(|topic| *topic == name).map(Self)
    }

    /// Returns a key as JSON; `None` for another form.
    pub(crate) fn key(self, key: &[u8]) -> Option<String> {
        let mut fields = Fields(key);
        let number = fields.int16()?;
        let message = message(self.0, usize::try_from(number).ok()?)?;
        let data =
            data(&mut fields, message.key.as_ref()?, Encoding { version: 0, is_flexible: false, is_consumer: false })?;
        Some(format!("{{\"type\":\"{number}\",\"data\":{data}}}"))
    }

    /// Returns the value of a key as JSON; `None` for another form.
    pub(crate) fn value(self, key: Option<&[u8]>, value: &[u8]) -> Option<String> {
        let mut fields = Fields(value);
        if self.0 == METADATA {
            let (frame, number, version) = (fields.varint()?, fields.varint()?, fields.varint()?);
            let message = message(METADATA, number).filter(|_| frame == FRAME_VERSION)?;
            let data = data(&mut fields, &message.value, message.encoding(i16::try_from(version).ok()?)?)?;
            return Some(format!("{{\"type\":\"{}\",\"version\":{version},\"data\":{data}}}", message.name));
        }
        let message = message(self.0, usize::try_from(Fields(key?).int16()?).ok()?)?;
        let version = fields.int16()?;
        let data = data(&mut fields, &message.value, message.encoding(version)?)?;
        Some(format!("{{\"version\":\"{version}\",\"data\":{data}}}"))
    }
}

/// Returns records with JSON as the keys and values of internal topics. The topic of a record is in the column `topic`; the form of a
/// value is known by the column `key`.
pub fn with_json(records: RecordBatch) -> RecordBatch {
    let topics = records.column_by_name("topic").and_then(|column| column.as_string_opt::<i32>());
    let topics: Vec<_> = topics.into_iter().flatten().map(|topic| topic.and_then(InternalTopic::of)).collect();
    if topics.iter().all(Option::is_none) {
        return records;
    }
    let bytes = |name| records.column_by_name(name).and_then(|column| column.as_binary_opt::<i32>());
    let (keys, values) = (bytes("key"), bytes("value"));
    let key = |(row, topic): (usize, &Option<InternalTopic>)| {
        let key = bytes_of(keys, row)?;
        Some(topic.and_then(|topic| topic.key(key)).map_or_else(|| key.to_vec(), String::into_bytes))
    };
    let value = |(row, topic): (usize, &Option<InternalTopic>)| {
        let value = bytes_of(values, row)?;
        let json = topic.and_then(|topic| topic.value(bytes_of(keys, row), value));
        Some(json.map_or_else(|| value.to_vec(), String::into_bytes))
    };
    let columns = records.schema_ref().fields().iter().zip(records.columns()).map(|(field, column)| {
        match field.name().as_str() {
            "key" if keys.is_some() => {
                Arc::new(topics.iter().enumerate().map(key).collect::<BinaryArray>()) as ArrayRef
            }
            "value" if values.is_some() => Arc::new(topics.iter().enumerate().map(value).collect::<BinaryArray>()),
            _ => Arc::clone(column),
        }
    });
    RecordBatch::try_new(records.schema(), columns.collect()).expect("columns of the same types and lengths")
}

fn bytes_of(column: Option<&BinaryArray>, row: usize) -> Option<&[u8]> {
    column.filter(|column| column.is_valid(row)).map(|column| column.value(row))
}

/// The definition of a message, or of a key and its value.
struct Message {
    topic: &'static str,
    number: usize,
    name: &'static str,
    highest: i16,
    first_flexible: Option<i16>,
    key: Option<Vec<Field>>,
    value: Vec<Field>,
}

struct Field {
    name: &'static str,
    kind: Kind,
    /// The first and the last version with the field.
    versions: (i16, i16),
    tag: Option<usize>,
}

enum Kind {
    Plain(Plain),
    Array(Box<Kind>),
    Struct(Vec<Field>),
    /// A struct, or null.
    Nullable(Vec<Field>),
}

#[derive(Clone, Copy)]
enum Plain {
    Bool,
    Int8,
    Int16,
    Uint16,
    Int32,
    Int64,
    Float64,
    Uuid,
    Text,
    Bytes,
}

const PLAIN: [(&str, Plain); 10] = [
    ("bool", Plain::Bool),
    ("int8", Plain::Int8),
    ("int16", Plain::Int16),
    ("uint16", Plain::Uint16),
    ("int32", Plain::Int32),
    ("int64", Plain::Int64),
    ("float64", Plain::Float64),
    ("uuid", Plain::Uuid),
    ("string", Plain::Text),
    ("bytes", Plain::Bytes),
];

static MESSAGES: LazyLock<Vec<Message>> = LazyLock::new(|| {
    let lines = include_str!("internal_messages.txt").lines().filter(|line| !line.starts_with('#'));
    let mut messages: Vec<Message> = Vec::new();
    for line in lines {
        let words =
            line.split_whitespace().flat_map(|word| word.strip_suffix(',').map_or([word, ""], |word| [word, ","]));
        let mut words = words.filter(|word| !word.is_empty()).peekable();
        match (words.next().unwrap_or_default(), messages.last_mut()) {
            ("key", Some(message)) => message.key = Some(defined(&mut words)),
            ("value", Some(message)) => message.value = defined(&mut words),
            (topic, _) => messages.push(headed(topic, &mut words).expect("the definitions are checked by a test")),
        }
    }
    messages
});

/// Reads the head of a definition.
fn headed(topic: &'static str, words: &mut impl Iterator<Item = &'static str>) -> Option<Message> {
    let (number, name) = (words.next()?.parse().ok()?, words.next()?);
    let (highest, first_flexible) = (words.next()?.parse().ok()?, words.next()?.parse().ok());
    Some(Message { topic, number, name, highest, first_flexible, key: None, value: Vec::new() })
}

/// Reads the fields of a definition, up to its end or a closing brace.
fn defined<I: Iterator<Item = &'static str>>(words: &mut Peekable<I>) -> Vec<Field> {
    let mut fields = Vec::new();
    while let Some(name) = words.next().filter(|word| *word != "}") {
        let kind = kind(words.next().unwrap_or_default(), words);
        let (mut versions, mut tag) = ((0, i16::MAX), None);
        while let Some(word) = words.next_if(|word| ![",", "}"].contains(word)) {
            let number = |text: &str| text.parse().expect("a number");
            match (word.strip_prefix('#'), word.trim_end_matches('+').split_once('-')) {
                (Some(digits), _) => tag = digits.parse().ok(),
                (None, Some((first, last))) => versions = (number(first), number(last)),
                (None, None) => versions.0 = number(word.trim_end_matches('+')),
            }
        }
        words.next_if_eq(&",");
        fields.push(Field { name, kind, versions, tag });
    }
    fields
}

fn kind<I: Iterator<Item = &'static str>>(word: &str, words: &mut Peekable<I>) -> Kind {
    match word.strip_prefix("[]") {
        Some(item) => Kind::Array(Box::new(kind(item, words))),
        None if word == "{" => Kind::Struct(defined(words)),
        None if word == "?{" => Kind::Nullable(defined(words)),
        None => Kind::Plain(PLAIN.iter().find(|(name, _)| *name == word).expect("a type").1),
    }
}

fn message(topic: &str, number: usize) -> Option<&'static Message> {
    MESSAGES.iter().find(|message| (message.topic, message.number) == (topic, number))
}

impl Message {
    /// Returns how a version is encoded; `None` if it is not known.
    fn encoding(&self, version: i16) -> Option<Encoding> {
        let is_flexible = self.first_flexible.is_some_and(|first| version >= first);
        (0..=self.highest).contains(&version).then_some(Encoding { version, is_flexible, is_consumer: false })
    }
}

/// The version of a message.
#[derive(Clone, Copy)]
struct Encoding {
    version: i16,
    is_flexible: bool,
    /// The group is one of Kafka's consumers.
    is_consumer: bool,
}

/// Returns the fields of a whole message.
fn data(fields: &mut Fields<'_>, wanted: &[Field], encoding: Encoding) -> Option<String> {
    let mut text = String::new();
    encoding.object(&mut text, fields, wanted)?;
    fields.0.is_empty().then_some(text)
}

impl Encoding {
    /// Writes a struct.
    fn object(mut self, out: &mut String, fields: &mut Fields<'_>, wanted: &[Field]) -> Option<()> {
        let version = self.version;
        let is_there = |field: &Field| (field.versions.0..=field.versions.1).contains(&version);
        let mut texts = vec![String::new(); wanted.len()];
        for (field, text) in wanted.iter().zip(&mut texts).filter(|(field, _)| field.tag.is_none() && is_there(field)) {
            match MEMBER_BYTES.iter().position(|name| *name == field.name).filter(|_| self.is_consumer) {
                Some(number) => self.member_bytes(text, fields, number)?,
                None => self.value(text, fields, &field.kind)?,
            }
            if field.name == "protocolType" {
                self.is_consumer = text == "\"consumer\"";
            }
        }
        if self.is_flexible {
            for _ in 0..fields.varint()? {
                let (tag, len) = (fields.varint()?, fields.varint()?);
                let mut tagged = Fields(fields.bytes(len)?);
                let known = wanted.iter().zip(&mut texts).find(|(field, _)| field.tag == Some(tag) && is_there(field));
                if let Some((field, text)) = known {
                    text.clear();
                    self.value(text, &mut tagged, &field.kind)?;
                }
            }
        }
        let there = wanted.iter().zip(&texts).filter(|(_, text)| !text.is_empty());
        let members: Vec<_> = there.map(|(field, text)| format!("\"{}\":{text}", field.name)).collect();
        write!(out, "{{{}}}", members.join(",")).ok()
    }

    /// Writes the bytes of a member of a consumer group, which are a message of their own.
    fn member_bytes(self, out: &mut String, fields: &mut Fields<'_>, number: usize) -> Option<()> {
        let Ok(len) = usize::try_from(self.len(fields, 4)?) else { return out.write_str("null").ok() };
        let bytes = fields.bytes(len)?;
        let mut inner = Fields(bytes);
        let message = message(CONSUMER, number)?;
        let version = inner.int16().map(|version| version.min(message.highest));
        match version.and_then(|version| data(&mut inner, &message.value, message.encoding(version)?)) {
            Some(text) => out.push_str(&text),
            None => write!(out, "\"{}\"", STANDARD.encode(bytes)).ok()?,
        }
        Some(())
    }

    /// Writes a value.
    fn value(self, out: &mut String, fields: &mut Fields<'_>, kind: &Kind) -> Option<()> {
        match kind {
            Kind::Plain(plain) => self.plain(out, fields, *plain),
            Kind::Struct(wanted) => self.object(out, fields, wanted),
            Kind::Nullable(wanted) => match fields.take()? {
                [0..=0x7f] => self.object(out, fields, wanted),
                [_] => out.write_str("null").ok(),
            },
            Kind::Array(item) => {
                let Ok(count) = usize::try_from(self.len(fields, 4)?) else { return out.write_str("null").ok() };
                // Every item takes a byte at least.
                for at in 0..count {
                    out.push(if at == 0 { '[' } else { ',' });
                    self.value(out, fields, item)?;
                }
                out.write_str(if count == 0 { "[]" } else { "]" }).ok()
            }
        }
    }

    fn plain(self, out: &mut String, fields: &mut Fields<'_>, plain: Plain) -> Option<()> {
        let written = match plain {
            Plain::Bool => write!(out, "{}", fields.take()? != [0]),
            Plain::Int8 => write!(out, "{}", i8::from_be_bytes(fields.take()?)),
            Plain::Int16 => write!(out, "{}", fields.int16()?),
            Plain::Uint16 => write!(out, "{}", u16::from_be_bytes(fields.take()?)),
            Plain::Int32 => write!(out, "{}", fields.int32()?),
            Plain::Int64 => write!(out, "{}", fields.int64()?),
            Plain::Float64 => out.write_str(&java_double(f64::from_be_bytes(fields.take()?))),
            Plain::Uuid => write!(out, "\"{}\"", URL_SAFE_NO_PAD.encode(fields.take::<16>()?)),
            Plain::Text => match usize::try_from(self.len(fields, 2)?) {
                Ok(len) => json_text(out, &String::from_utf8_lossy(fields.bytes(len)?)),
                Err(_) => out.write_str("null"),
            },
            Plain::Bytes => match usize::try_from(self.len(fields, 4)?) {
                Ok(len) => write!(out, "\"{}\"", STANDARD.encode(fields.bytes(len)?)),
                Err(_) => out.write_str("null"),
            },
        };
        written.ok()
    }

    /// Returns the number of bytes or items that follow, which takes this many bytes if the version is not flexible; negative: null.
    fn len(self, fields: &mut Fields<'_>, width: usize) -> Option<i64> {
        match (self.is_flexible, width) {
            (true, _) => i64::try_from(fields.varint()?).ok().map(|len| len - 1),
            (false, 2) => fields.int16().map(i64::from),
            (false, _) => fields.int32().map(i64::from),
        }
    }
}

/// Returns a number as Java writes it.
fn java_double(number: f64) -> String {
    if number == 0.0 || (1e-3..1e7).contains(&number.abs()) {
        return format!("{number:?}");
    }
    let text = format!("{number:E}");
    match text.split_once('E') {
        Some((digits, exponent)) if !digits.contains('.') => format!("{digits}.0E{exponent}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(topic: &str) -> InternalTopic {
        InternalTopic::of(topic).unwrap()
    }

    #[test]
    fn a_commit_has_the_fields_of_its_version() {
        let key = [&[0, 1, 0, 1][..], b"g", &[0, 1], b"t", &[0, 0, 0, 3]].concat();
        let topic = of("__consumer_offsets");
        let json = "{\"type\":\"1\",\"data\":{\"group\":\"g\",\"topic\":\"t\",\"partition\":3}}";
        assert_eq!(topic.key(&key).as_deref(), Some(json));
        let plain = [&[0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1][..], b"m", &[0; 7], &[5], &[0; 7], &[6]].concat();
        let json = "{\"version\":\"1\",\"data\":{\"offset\":9,\"metadata\":\"m\",\"commitTimestamp\":5,\"expireTimestamp\":6}}";
        assert_eq!(topic.value(Some(&key), &plain).as_deref(), Some(json));
        let mut flexible = [&[0, 4][..], &[0; 7], &[9], &[0xff; 4], &[2], b"m", &[0; 7], &[5], &[2, 0, 16]].concat();
        flexible.extend([1; 16]);
        // A tag that is not known.
        flexible.extend([9, 1, 0]);
        let json = "{\"version\":\"4\",\"data\":{\"offset\":9,\"leaderEpoch\":-1,\"metadata\":\"m\",\"commitTimestamp\":5,\
                    \"topicId\":\"AQEBAQEBAQEBAQEBAQEBAQ\"}}";
        assert_eq!(topic.value(Some(&key), &flexible).as_deref(), Some(json));
        for len in 0..flexible.len() {
            assert_eq!(topic.value(Some(&key), &flexible[..len]), None, "{len}");
        }
        for len in 0..key.len() {
            assert_eq!(topic.key(&key[..len]), None, "{len}");
        }
    }

    #[test]
    fn counts_that_are_false_are_found_without_allocating() {
        let key = [&[0, 2, 0, 1][..], b"g"].concat();
        let value = [&[0, 1, 0, 0][..], &[0; 4], &[0xff; 4], &[0x7f, 0xff, 0xff, 0xff]].concat();
        assert_eq!(of("__consumer_offsets").value(Some(&key), &value), None);
        assert_eq!(InternalTopic::METADATA.value(None, &[1, 3, 9]), None);
        assert_eq!(InternalTopic::METADATA.value(None, &[2, 20, 0, 0]), None);
        let json = "{\"type\":\"NO_OP_RECORD\",\"version\":0,\"data\":{}}";
        assert_eq!(InternalTopic::METADATA.value(None, &[1, 20, 0, 0]).as_deref(), Some(json));
    }

    #[test]
    fn all_definitions_are_read() {
        assert_eq!(
            TOPICS.map(|topic| MESSAGES.iter().filter(|message| message.topic == topic).count()),
            [22, 1, 2, 26]
        );
        assert_eq!(MESSAGES.len(), 53);
        let group = message("__consumer_offsets", 2).unwrap();
        let Some(Field { kind: Kind::Array(members), .. }) = group.value.last() else { panic!("no members") };
        let Kind::Struct(members) = members.as_ref() else { panic!("no structs") };
        let versions: Vec<_> = members.iter().map(|field| (field.name, field.versions.0)).collect();
        assert_eq!(versions[..3], [("memberId", 0), ("groupInstanceId", 3), ("clientId", 0)]);
    }

    #[test]
    fn doubles_are_written_as_java_writes_them() {
        for (number, text) in
            [(1024.0, "1024.0"), (10_485_760.0, "1.048576E7"), (1e7, "1.0E7"), (0.5, "0.5"), (1e-4, "1.0E-4")]
        {
            assert_eq!(java_double(number), text);
        }
    }
}
