//! Control records as text and as JSON.

use std::fmt::{self, Display, Formatter};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::arrow::text_rows::json_text;
use crate::kafka::format::control_record::{Content, ControlRecord, Voter};

impl Content {
    /// The name of the message of a record of `KRaft`'s log, and its fields as JSON; `None` for a marker.
    fn message(&self) -> Option<(&'static str, String)> {
        let (name, version, field) = match self {
            Self::Marker { .. } => return None,
            Self::SnapshotHeader { version, last_contained_log_timestamp: time } => {
                ("SnapshotHeader", version, format!(",\"lastContainedLogTimestamp\":{time}"))
            }
            Self::SnapshotFooter { version } => ("SnapshotFooter", version, String::new()),
            Self::KRaftVersion { version, kraft_version } => {
                ("KRaftVersion", version, format!(",\"kRaftVersion\":{kraft_version}"))
            }
            Self::KRaftVoters { version, voters } => {
                let voters: Vec<_> = voters.iter().map(ToString::to_string).collect();
                ("KRaftVoters", version, format!(",\"voters\":[{}]", voters.join(",")))
            }
        };
        Some((name, format!("{{\"version\":{version}{field}}}")))
    }
}

impl ControlRecord {
    /// Returns the record as a JSON object. What is not of the form of its type has only the type.
    pub(super) fn json(&self) -> String {
        let content = self.content.as_ref();
        let fields = match (content, content.and_then(Content::message)) {
            (_, Some((_, fields))) => format!(", \"value\": {fields}"),
            (Some(Content::Marker { coordinator_epoch }), _) => format!(", \"coordinatorEpoch\": {coordinator_epoch}"),
            (_, None) => String::new(),
        };
        format!("{{\"type\": \"{}\", \"id\": {}{fields}}}", self.kind.name(), self.kind.id())
    }
}

/// The text of kafka-dump-log.
impl Display for ControlRecord {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let content = self.content.as_ref();
        match (content, content.and_then(Content::message)) {
            (_, Some((name, fields))) => write!(f, "{name} {fields}"),
            (Some(Content::Marker { coordinator_epoch }), _) => {
                write!(f, "endTxnMarker: {} coordinatorEpoch: {coordinator_epoch}", self.kind.name())
            }
            (_, None) => write!(f, "controlType: {}({})", self.kind.name(), self.kind.id()),
        }
    }
}

/// The fields as JSON.
impl Display for Voter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // A UUID as Kafka writes it.
        let directory_id = URL_SAFE_NO_PAD.encode(self.directory_id);
        write!(f, "{{\"voterId\":{},\"voterDirectoryId\":\"{directory_id}\",\"endpoints\":[", self.id)?;
        for (at, endpoint) in self.endpoints.iter().enumerate() {
            f.write_str(if at > 0 { ",{\"name\":" } else { "{\"name\":" })?;
            json_text(f, &endpoint.name)?;
            f.write_str(",\"host\":")?;
            json_text(f, &endpoint.host)?;
            write!(f, ",\"port\":{}}}", endpoint.port)?;
        }
        let (least, most) = self.versions;
        write!(f, "],\"kRaftVersionFeature\":{{\"minSupportedVersion\":{least},\"maxSupportedVersion\":{most}}}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_has_only_its_type() {
        let endless = [&[0, 0][..], &[0xff; 40]].concat();
        let beyond = [&[0, 0, 2][..], &[0; 20], b"\x02\x7fname"].concat();
        for (id, name, value) in [
            (3, "SNAPSHOT_HEADER", &[0; 9][..]),
            (4, "SNAPSHOT_FOOTER", &[0]),
            (5, "KRAFT_VERSION", &[0; 3]),
            (6, "KRAFT_VOTERS", &[0; 2]),
            (9, "UNKNOWN", &[0; 20]),
            (6, "KRAFT_VOTERS", &endless),
            (6, "KRAFT_VOTERS", b"\x00\x00\xff\xff\xff\xff\x0f"),
            (6, "KRAFT_VOTERS", &beyond),
        ] {
            let record = ControlRecord::decode(&[0, 0, 0, id], value);
            assert_eq!(record.to_string(), format!("controlType: {name}({id})"));
            assert_eq!(record.json(), format!("{{\"type\": \"{name}\", \"id\": {id}}}"));
        }
    }
}
