//! Control records: markers of transactions, and those of `KRaft`'s own log.
//!
//! ```text
//! key    version i16 | type i16
//! value  ABORT, COMMIT   version i16 | coordinatorEpoch i32
//!        the others      version i16 | fields in the compact encoding of Kafka's generated messages
//! ```
//!
//! Source: `ControlRecordType`, `EndTransactionMarker`, `ControlRecordUtils`, `SnapshotHeaderRecord.json`,
//! `SnapshotFooterRecord.json`, `KRaftVersionRecord.json`, `VotersRecord.json`.

/// Types of control records, by their number.
const TYPES: [&str; 7] =
    ["ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS"];

/// The name of a control record's type; "UNKNOWN" for a number without one.
pub(crate) fn control_type(key: Option<&[u8]>) -> &'static str {
    let id = usize::try_from(type_id(key.unwrap_or_default()));
    id.ok().and_then(|id| TYPES.get(id)).copied().unwrap_or("UNKNOWN")
}

/// The number of a control record's type; -1 where the key has none.
fn type_id(key: &[u8]) -> i16 {
    key.get(2..4).and_then(|id| id.first_chunk().copied()).map_or(-1, i16::from_be_bytes)
}

/// A control record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlRecord {
    /// The name of its type; "UNKNOWN" for a number without one.
    pub kind: &'static str,
    /// The number of its type; -1 where the key has none.
    pub id: i16,
    /// What the value says; `None` where it does not have the form of its type.
    pub content: Option<Content>,
}

/// What the value of a control record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// The end of a transaction.
    Marker {
        /// Epoch of the coordinator that wrote it.
        coordinator_epoch: i32,
    },
    /// The first record of a snapshot.
    SnapshotHeader {
        /// Version of the message.
        version: i16,
        /// Append time of the last record that the snapshot contains.
        last_contained_log_timestamp: i64,
    },
    /// The last record of a snapshot.
    SnapshotFooter {
        /// Version of the message.
        version: i16,
    },
    /// The version of the `KRaft` protocol.
    KRaftVersion {
        /// Version of the message.
        version: i16,
        /// Version of the protocol.
        kraft_version: i16,
    },
    /// The voters of the quorum.
    KRaftVoters {
        /// Version of the message.
        version: i16,
        /// The voters.
        voters: Vec<Voter>,
    },
}

/// A voter of the quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voter {
    /// Its id.
    pub id: i32,
    /// The UUID of its log directory.
    pub directory_id: [u8; 16],
    /// Where it listens.
    pub endpoints: Vec<Endpoint>,
    /// The lowest and the highest version of the protocol that it knows.
    pub versions: (i16, i16),
}

/// Where a voter listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Name of the listener.
    pub name: String,
    /// Host.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl ControlRecord {
    /// Reads a control record.
    pub fn decode(key: &[u8], value: &[u8]) -> Self {
        let kind = control_type(Some(key));
        Self { kind, id: type_id(key), content: content(kind, value) }
    }
}

fn content(kind: &str, value: &[u8]) -> Option<Content> {
    let mut fields = Fields(value);
    let version = i16::from_be_bytes(fields.take()?);
    match kind {
        "ABORT" | "COMMIT" => Some(Content::Marker { coordinator_epoch: i32::from_be_bytes(fields.take()?) }),
        "SNAPSHOT_HEADER" => {
            let last_contained_log_timestamp = i64::from_be_bytes(fields.take()?);
            Some(Content::SnapshotHeader { version, last_contained_log_timestamp })
        }
        "SNAPSHOT_FOOTER" => Some(Content::SnapshotFooter { version }),
        "KRAFT_VERSION" => Some(Content::KRaftVersion { version, kraft_version: i16::from_be_bytes(fields.take()?) }),
        "KRAFT_VOTERS" => Some(Content::KRaftVoters { version, voters: fields.array(Fields::voter)? }),
        _ => None,
    }
}

/// The fields of a message, read one after the other; `None` where they are not all there.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<usize> {
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let [byte] = self.take()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return usize::try_from(value).ok();
            }
        }
        None
    }

    fn text(&mut self) -> Option<String> {
        let len = self.varint()?.checked_sub(1)?;
        String::from_utf8(self.bytes(len)?.to_vec()).ok()
    }

    /// Steps over tagged fields.
    fn tags(&mut self) -> Option<()> {
        for _ in 0..self.varint()? {
            self.varint()?;
            let len = self.varint()?;
            self.bytes(len)?;
        }
        Some(())
    }

    fn array<T>(&mut self, item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        // A length of 0 stands for null. Not sized by the count, which may be anything.
        let mut items = Vec::new();
        for _ in 1..self.varint()? {
            items.push(item(self)?);
        }
        Some(items)
    }

    fn endpoint(&mut self) -> Option<Endpoint> {
        let endpoint = Endpoint { name: self.text()?, host: self.text()?, port: u16::from_be_bytes(self.take()?) };
        self.tags()?;
        Some(endpoint)
    }

    fn voter(&mut self) -> Option<Voter> {
        let voter = Voter {
            id: i32::from_be_bytes(self.take()?),
            directory_id: self.take()?,
            endpoints: self.array(Self::endpoint)?,
            versions: (i16::from_be_bytes(self.take()?), i16::from_be_bytes(self.take()?)),
        };
        // Those of the range of versions, and those of the voter.
        self.tags()?;
        self.tags()?;
        Some(voter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_name_the_epoch_of_their_coordinator() {
        let record = ControlRecord::decode(&[0, 0, 0, 1], &[0, 0, 0, 0, 0, 9]);
        let content = Some(Content::Marker { coordinator_epoch: 9 });
        assert_eq!(record, ControlRecord { kind: "COMMIT", id: 1, content });
        assert_eq!(ControlRecord::decode(&[0, 0, 0, 0], &[0, 0, 0]).content, None);
    }

    #[test]
    fn voters_are_read_to_their_last_field() {
        let mut value = vec![0, 0, 2, 0, 0, 0, 1];
        value.extend([7; 16]);
        value.extend([2, 5]);
        value.extend(b"PLAIN"[..4].iter().chain(b"\x02h\x23\x85\x00\x00\x00\x00\x01\x00\x00\x00"));
        let voters = vec![Voter {
            id: 1,
            directory_id: [7; 16],
            endpoints: vec![Endpoint { name: "PLAI".to_owned(), host: "h".to_owned(), port: 0x2385 }],
            versions: (0, 1),
        }];
        let record = ControlRecord::decode(&[0, 0, 0, 6], &value);
        assert_eq!((record.kind, record.content), ("KRAFT_VOTERS", Some(Content::KRaftVoters { version: 0, voters })));
        for len in 0..value.len() - 1 {
            assert_eq!(ControlRecord::decode(&[0, 0, 0, 6], &value[..len]).content, None, "cut at {len}");
        }
    }

    #[test]
    fn other_keys_are_unknown() {
        for (key, id) in [(&[][..], -1), (&[0, 0, 0], -1), (&[0, 0, 0, 7], 7), (&[0, 0, 255, 255], -1)] {
            assert_eq!(ControlRecord::decode(key, &[0; 30]), ControlRecord { kind: "UNKNOWN", id, content: None });
        }
    }
}
