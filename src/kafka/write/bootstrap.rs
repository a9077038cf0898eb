//! Topics in `bootstrap.checkpoint`, the first records of a cluster's metadata, which `kafka-storage format` writes.
//!
//! ```text
//! control batch SNAPSHOT_HEADER | batches of metadata records | (new) batch of topics | control batch SNAPSHOT_FOOTER
//! value of a record  uvarint 1 | uvarint type | uvarint version | fields in the compact encoding of Kafka's generated messages
//! ```
//!
//! A controller whose metadata log is empty appends all of these records, of whatever type they are. Source:
//! `BootstrapDirectory`, `ActivationRecordsGenerator#recordsForEmptyLog`, `TopicRecord.json`, `PartitionRecord.json`,
//! `ConfigRecord.json`, `ProducerIdsRecord.json`.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::new_batch::{NewBatch, plain_header};
use crate::error::{Error, Result};
use crate::kafka::format::codec::Codec;
use crate::kafka::format::header::{HEADER_SIZE, Header, LOG_OVERHEAD, UP_TO_MAGIC, magic, size_field};
use crate::kafka::format::varint::put_unsigned;

/// The leader of a partition that waits for the broker.
const NO_LEADER: i32 = -1;
/// The type of a topic as the owner of a setting.
const TOPIC_RESOURCE: u8 = 2;

/// An id of 16 bytes.
type Id = [u8; 16];

/// A topic, whose partitions are in the log directory of one broker.
#[derive(Clone, Debug)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// Its id, 22 letters of URL-safe base64.
    pub id: String,
    /// The number of its partitions.
    pub partitions: i32,
    /// Its settings.
    pub settings: Vec<(String, String)>,
}

/// A broker, and its log directory.
#[derive(Clone, Debug)]
pub struct Replica {
    /// `node.id`.
    pub node: i32,
    /// `directory.id`, 22 letters of URL-safe base64.
    pub directory: String,
}

/// Returns the content of a `bootstrap.checkpoint` with topics that a broker has, and with an id that is above those of all
/// producers of their logs. The leader's epoch is 0, and the controller elects a leader when the broker runs.
///
/// # Errors
/// `Corrupt` if `bytes` are not a whole snapshot; `InvalidArgument` for an invalid id.
pub fn with_topics(
    path: &Path,
    bytes: &[u8],
    topics: &[NewTopic],
    replica: &Replica,
    next_producer_id: i64,
    now: i64,
) -> Result<Vec<u8>> {
    let (at, footer) = footer(path, bytes)?;
    let (records, rest) = bytes.split_at_checked(at).ok_or_else(|| wrong(path, at, "end of the file"))?;
    let mut batch = NewBatch::default();
    for record in records_of(topics, replica, next_producer_id)? {
        batch.push(now, None, Some(&record), (0, &[]));
    }
    let like = Header { base_offset: footer.base_offset, leader_epoch: footer.leader_epoch, ..plain_header() };
    let mut out = records.to_vec();
    let count = batch.count();
    batch.finish(&like, Codec::None, None, &mut out)?;
    let begin = out.len();
    out.extend(rest);
    if let Some(bytes) = out.get_mut(begin..) {
        Header::write_place(bytes, footer.base_offset + i64::from(count), footer.leader_epoch);
    }
    Ok(out)
}

fn wrong(path: &Path, at: usize, found: &str) -> Error {
    Error::corrupt(path, at as u64, "a batch of a snapshot, whose last one is a control batch", found)
}

/// Returns the position and header of the last batch.
fn footer(path: &Path, bytes: &[u8]) -> Result<(usize, Header)> {
    let (mut at, mut last) = (0, None);
    while at < bytes.len() {
        let rest = bytes.get(at..).unwrap_or_default();
        if rest.len() < UP_TO_MAGIC.max(HEADER_SIZE) || magic(rest) != 2 {
            return Err(wrong(path, at, "other bytes"));
        }
        let size = usize::try_from(size_field(rest)).ok().and_then(|size| size.checked_add(LOG_OVERHEAD));
        let Some(batch) = size.and_then(|size| rest.get(..size)) else {
            return Err(wrong(path, at, &format!("a size of {}, {} bytes are left", size_field(rest), rest.len())));
        };
        let header = u32::try_from(batch.len()).ok().and_then(|size| Header::parse(batch, at as u64, size));
        let Some(header) = header else { return Err(wrong(path, at, "fewer bytes than a header")) };
        header.check_crc(batch).map_err(|flaw| Error::corrupt(path, at as u64, flaw.expected, flaw.found))?;
        last = Some((at, header));
        at += batch.len();
    }
    last.filter(|(_, header)| header.is_control()).ok_or_else(|| wrong(path, at, "no control batch at the end"))
}

fn records_of(topics: &[NewTopic], replica: &Replica, next_producer_id: i64) -> Result<Vec<Vec<u8>>> {
    let directory = id("directory_id", &replica.directory)?;
    let mut records = Vec::new();
    for topic in topics {
        let topic_id = id("topic_id", &topic.id)?;
        records.push(Fields::new(2, 0).text(&topic.name).bytes(&topic_id).end());
        for partition in 0..topic.partitions {
            let fields = Fields::new(3, 1).int(partition).bytes(&topic_id).ints(&[replica.node]).ints(&[replica.node]);
            let fields = fields.ints(&[]).ints(&[]).int(NO_LEADER).int(0).int(0);
            records.push(fields.length(1).bytes(&directory).end());
        }
        for (setting, value) in &topic.settings {
            let fields = Fields::new(4, 0).bytes(&[TOPIC_RESOURCE]).text(&topic.name).text(setting).text(value);
            records.push(fields.end());
        }
    }
    let fields = Fields::new(15, 0).int(replica.node).bytes(&0_i64.to_be_bytes());
    records.push(fields.bytes(&next_producer_id.to_be_bytes()).end());
    Ok(records)
}

fn id(name: &str, text: &str) -> Result<Id> {
    let decoded = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| Id::try_from(bytes).ok());
    decoded.ok_or_else(|| {
        Error::InvalidArgument(format!("{name}={text:?}: expected 22 letters of URL-safe base64, which are 16 bytes"))
    })
}

/// The value of a metadata record.
struct Fields(Vec<u8>);

impl Fields {
    fn new(kind: u64, version: u64) -> Self {
        let mut bytes = Vec::new();
        for number in [1, kind, version] {
            put_unsigned(&mut bytes, number);
        }
        Self(bytes)
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn int(self, value: i32) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    /// The length of an array or a text.
    fn length(mut self, length: usize) -> Self {
        put_unsigned(&mut self.0, length as u64 + 1);
        self
    }

    fn ints(self, values: &[i32]) -> Self {
        values.iter().fold(self.length(values.len()), |fields, value| fields.int(*value))
    }

    fn text(self, text: &str) -> Self {
        self.length(text.len()).bytes(text.as_bytes())
    }

    /// Adds that there are no tagged fields.
    fn end(self) -> Vec<u8> {
        self.bytes(&[0]).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::format::batch_cursor::BatchCursor;
    use crate::kafka::format::record::{Wants, field};
    use crate::kafka::write::new_batch::{CONTROL, headers};

    fn snapshot() -> Vec<u8> {
        let mut bytes = Vec::new();
        for (base_offset, attributes) in [(0, CONTROL), (1, 0), (2, CONTROL)] {
            let mut batch = NewBatch::default();
            batch.push(1, None, Some(b"x"), (0, &[]));
            let like = Header { base_offset, attributes, leader_epoch: 1, ..plain_header() };
            batch.finish(&like, Codec::None, None, &mut bytes).unwrap();
        }
        bytes
    }

    fn topic() -> NewTopic {
        let settings = vec![("retention.ms".to_owned(), "-1".to_owned())];
        NewTopic { name: "t".to_owned(), id: "AAECAwQFBgcICQoLDA0ODw".to_owned(), partitions: 1, settings }
    }

    fn replica() -> Replica {
        Replica { node: 7, directory: "_____________________w".to_owned() }
    }

    #[test]
    fn topics_come_before_the_footer() {
        let out = with_topics(Path::new("b"), &snapshot(), &[topic()], &replica(), 12, 5).unwrap();
        let mut values = Vec::new();
        let places: Vec<_> = headers(&out)
            .map(|(header, batch)| {
                header.check_crc(batch).unwrap();
                if header.base_offset == 2 {
                    let mut cursor = BatchCursor::new(1 << 20);
                    let read = cursor.each(&header, batch, Wants::All, |span, bytes| {
                        values.push(field(span.value, bytes).unwrap().to_vec());
                        true
                    });
                    read.unwrap();
                }
                (header.base_offset, header.last_offset, header.is_control(), header.leader_epoch)
            })
            .collect();
        assert_eq!(places, [(0, 0, true, 1), (1, 1, false, 1), (2, 5, false, 1), (6, 6, true, 1)]);
        let id: Vec<u8> = (0..16).collect();
        assert_eq!(values[0], [&[1, 2, 0, 2, b't'], &id[..], &[0]].concat());
        let partition = [&[1, 3, 1, 0, 0, 0, 0], &id[..], &[2, 0, 0, 0, 7, 2, 0, 0, 0, 7, 1, 1]].concat();
        assert_eq!(values[1], [&partition[..], &[255; 4], &[0; 8], &[2], &[255; 16], &[0]].concat());
        assert_eq!(values[2], [&b"\x01\x04\x00\x02\x02t\x0dretention.ms\x03-1"[..], &[0]].concat());
        assert_eq!(values[3], [&[1, 15, 0, 0, 0, 0, 7], &[0; 8][..], &12_i64.to_be_bytes(), &[0]].concat());
    }

    #[test]
    fn a_damaged_snapshot_is_refused() {
        let good = snapshot();
        for end in 1..good.len() {
            let found = with_topics(Path::new("b"), &good[..end], &[topic()], &replica(), 0, 0);
            // A part that ends with the first control batch looks whole.
            assert_eq!(found.is_err(), end != good.len() / 3, "{end}");
        }
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 0x40;
            _ = with_topics(Path::new("b"), &bytes, &[topic()], &replica(), 0, 0);
        }
        assert!(with_topics(Path::new("b"), &[], &[topic()], &replica(), 0, 0).is_err());
    }

    #[test]
    fn an_id_is_sixteen_bytes() {
        let wrong = NewTopic { id: "AAEC".to_owned(), ..topic() };
        let found = with_topics(Path::new("b"), &snapshot(), &[wrong], &replica(), 0, 0).unwrap_err();
        assert!(found.to_string().starts_with("topic_id=\"AAEC\": expected 22 letters"), "{found}");
    }
}
