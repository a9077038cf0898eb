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

use super::fields::Fields;

/// The type of a control record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlType {
    /// The marker of an aborted transaction.
    Abort,
    /// The marker of a committed transaction.
    Commit,
    /// The beginning of a leader's epoch.
    LeaderChange,
    /// The first record of a snapshot.
    SnapshotHeader,
    /// The last record of a snapshot.
    SnapshotFooter,
    /// The version of the `KRaft` protocol.
    KRaftVersion,
    /// The voters of the quorum.
    KRaftVoters,
    /// Another number; -1 if the key has none.
    Unknown(i16),
}

impl ControlType {
    /// Returns the type in the key of a control record.
    pub fn of_key(key: &[u8]) -> Self {
        match key.get(2..4).and_then(|id| id.first_chunk().copied()).map_or(-1, i16::from_be_bytes) {
            0 => Self::Abort,
            1 => Self::Commit,
            2 => Self::LeaderChange,
            3 => Self::SnapshotHeader,
            4 => Self::SnapshotFooter,
            5 => Self::KRaftVersion,
            6 => Self::KRaftVoters,
            other => Self::Unknown(other),
        }
    }

    /// The number of the type.
    pub fn id(self) -> i16 {
        match self {
            Self::Abort => 0,
            Self::Commit => 1,
            Self::LeaderChange => 2,
            Self::SnapshotHeader => 3,
            Self::SnapshotFooter => 4,
            Self::KRaftVersion => 5,
            Self::KRaftVoters => 6,
            Self::Unknown(id) => id,
        }
    }

    /// The name of the type; "UNKNOWN" for a number without one.
    pub fn name(self) -> &'static str {
        match self {
            Self::Abort => "ABORT",
            Self::Commit => "COMMIT",
            Self::LeaderChange => "LEADER_CHANGE",
            Self::SnapshotHeader => "SNAPSHOT_HEADER",
            Self::SnapshotFooter => "SNAPSHOT_FOOTER",
            Self::KRaftVersion => "KRAFT_VERSION",
            Self::KRaftVoters => "KRAFT_VOTERS",
            Self::Unknown(_) => "UNKNOWN",
        }
    }
}

/// A control record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlRecord {
    /// Its type.
    pub kind: ControlType,
    /// The fields of its value; `None` if the type has none, or the value is not of the type.
    pub content: Option<Content>,
}

/// The fields of a control record's value.
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
    /// The addresses that it listens at.
    pub endpoints: Vec<Endpoint>,
    /// The lowest and the highest version of the protocol that it supports.
    pub versions: (i16, i16),
}

/// An address that a voter listens at.
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
    /// Decodes a control record.
    pub fn decode(key: &[u8], value: &[u8]) -> Self {
        let kind = ControlType::of_key(key);
        Self { kind, content: content(kind, value) }
    }
}

fn content(kind: ControlType, value: &[u8]) -> Option<Content> {
    let mut fields = Fields(value);
    let version = i16::from_be_bytes(fields.take()?);
    match kind {
        ControlType::Abort | ControlType::Commit => {
            Some(Content::Marker { coordinator_epoch: i32::from_be_bytes(fields.take()?) })
        }
        ControlType::SnapshotHeader => {
            let last_contained_log_timestamp = i64::from_be_bytes(fields.take()?);
            Some(Content::SnapshotHeader { version, last_contained_log_timestamp })
        }
        ControlType::SnapshotFooter => Some(Content::SnapshotFooter { version }),
        ControlType::KRaftVersion => {
            Some(Content::KRaftVersion { version, kraft_version: i16::from_be_bytes(fields.take()?) })
        }
        ControlType::KRaftVoters => Some(Content::KRaftVoters { version, voters: fields.array(Fields::voter)? }),
        ControlType::LeaderChange | ControlType::Unknown(_) => None,
    }
}

impl Fields<'_> {
    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.compact()?.to_vec()).ok()
    }

    /// Skips tagged fields.
    fn tags(&mut self) -> Option<()> {
        for _ in 0..self.varint()? {
            self.varint()?;
            let len = self.varint()?;
            self.bytes(len)?;
        }
        Some(())
    }

    fn array<T>(&mut self, item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        // A length of 0 is null. Nothing is allocated by the count, which may be false.
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
        // The tagged fields of the range of versions, and those of the voter.
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
        assert_eq!(record, ControlRecord { kind: ControlType::Commit, content });
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
        assert_eq!(
            (record.kind.name(), record.content),
            ("KRAFT_VOTERS", Some(Content::KRaftVoters { version: 0, voters }))
        );
        for len in 0..value.len() - 1 {
            assert_eq!(ControlRecord::decode(&[0, 0, 0, 6], &value[..len]).content, None, "truncated at {len}");
        }
    }

    #[test]
    fn types_have_the_numbers_of_their_keys() {
        for id in -1..9 {
            let [high, low] = i16::to_be_bytes(id);
            assert_eq!(ControlType::of_key(&[0, 0, high, low]).id(), id);
        }
    }

    #[test]
    fn other_keys_are_unknown() {
        for (key, id) in [(vec![], -1), (vec![0, 0, 0], -1), (vec![0, 0, 0, 7], 7), (vec![0, 0, 255, 255], -1)] {
            let expected = ControlRecord { kind: ControlType::Unknown(id), content: None };
            assert_eq!(ControlRecord::decode(&key, &[0; 30]), expected);
        }
    }
}
