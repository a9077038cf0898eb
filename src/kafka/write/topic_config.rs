//! The settings of a topic, by Kafka's names, with Kafka's defaults. Source: `LogConfig`, `TopicConfig`.

use std::collections::HashMap;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::kafka::compat::Compat;
use crate::kafka::format::codec::Codec;

/// Settings of a topic that change nothing in the files of one replica.
const WITHOUT_EFFECT: [&str; 14] = [
    "delete.retention.ms",
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "message.downconversion.enable",
    "message.format.version",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "unclean.leader.election.enable",
];

/// The settings that decide what a log writes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "one for each setting")]
pub struct TopicConfig {
    pub(super) segment_bytes: u64,
    pub(super) segment_ms: i64,
    pub(super) segment_jitter_ms: i64,
    pub(super) segment_index_bytes: u64,
    pub(super) index_interval_bytes: u64,
    pub(super) max_message_bytes: u64,
    pub(super) flush_messages: i64,
    pub(super) flush_ms: i64,
    pub(super) retention_ms: i64,
    pub(super) retention_bytes: i64,
    pub(super) max_compaction_lag_ms: i64,
    pub(super) timestamp_before_max_ms: i64,
    pub(super) timestamp_after_max_ms: i64,
    pub(super) file_delete_delay_ms: i64,
    pub(super) log_append_time: bool,
    pub(super) preallocate: bool,
    pub(super) compacts: bool,
    pub(super) deletes: bool,
    /// `None`: that of the producer.
    pub(super) compression: Option<Codec>,
    gzip_level: Option<i32>,
    lz4_level: Option<i32>,
    zstd_level: Option<i32>,
}

impl TopicConfig {
    /// Parses settings.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that no topic has, or a value that its setting does not take.
    pub fn parse(settings: &HashMap<String, String>, compat: Compat) -> Result<Self> {
        let is_4 = compat.is_4();
        let mut config = Self {
            segment_bytes: 1 << 30,
            segment_ms: 604_800_000,
            segment_jitter_ms: 0,
            segment_index_bytes: 10_485_760,
            index_interval_bytes: 4096,
            max_message_bytes: 1_048_588,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            retention_ms: 604_800_000,
            retention_bytes: -1,
            max_compaction_lag_ms: i64::MAX,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: if is_4 { 3_600_000 } else { i64::MAX },
            file_delete_delay_ms: 60_000,
            log_append_time: false,
            preallocate: false,
            compacts: false,
            deletes: true,
            compression: None,
            gzip_level: None,
            lz4_level: None,
            zstd_level: None,
        };
        let most_int = i64::from(i32::MAX);
        for (name, text) in settings {
            let (name, text) = (name.as_str(), text.trim());
            let long = |least: i64| number(name, text, least, i64::MAX);
            let int = |least: i64| number(name, text, least, most_int).map(i64::cast_unsigned);
            let level = |least, most| number(name, text, least, most).map(Some);
            match name {
                "segment.bytes" | "internal.segment.bytes" => config.segment_bytes = int(1)?,
                "segment.ms" => config.segment_ms = long(1)?,
                "segment.jitter.ms" => config.segment_jitter_ms = long(0)?,
                "segment.index.bytes" => config.segment_index_bytes = int(4)?,
                "index.interval.bytes" => config.index_interval_bytes = int(0)?,
                "max.message.bytes" => config.max_message_bytes = int(0)?,
                "flush.messages" => config.flush_messages = long(1)?,
                "flush.ms" => config.flush_ms = long(0)?,
                "retention.ms" => config.retention_ms = long(-1)?,
                "retention.bytes" => config.retention_bytes = long(i64::MIN)?,
                "max.compaction.lag.ms" => config.max_compaction_lag_ms = long(1)?,
                "message.timestamp.before.max.ms" => config.timestamp_before_max_ms = long(0)?,
                "message.timestamp.after.max.ms" => config.timestamp_after_max_ms = long(0)?,
                // Of releases before 4.0: both limits, unless one is set.
                "message.timestamp.difference.max.ms" if !is_4 => {
                    let limit = long(0)?;
                    let is_set = |end: &str| settings.contains_key(&format!("message.timestamp.{end}.max.ms"));
                    if !is_set("before") {
                        config.timestamp_before_max_ms = limit;
                    }
                    if !is_set("after") {
                        config.timestamp_after_max_ms = limit;
                    }
                }
                "file.delete.delay.ms" => config.file_delete_delay_ms = long(0)?,
                "message.timestamp.type" => {
                    config.log_append_time = word(name, text, &[("CreateTime", false), ("LogAppendTime", true)])?;
                }
                "preallocate" => {
                    config.preallocate = word(name, &text.to_ascii_lowercase(), &[("true", true), ("false", false)])?;
                }
                "cleanup.policy" => (config.compacts, config.deletes) = policy(name, text)?,
                "compression.type" => {
                    let codecs = [
                        ("producer", None),
                        ("uncompressed", Some(Codec::None)),
                        ("gzip", Some(Codec::Gzip)),
                        ("snappy", Some(Codec::Snappy)),
                        ("lz4", Some(Codec::Lz4)),
                        ("zstd", Some(Codec::Zstd)),
                    ];
                    config.compression = word(name, text, &codecs)?;
                }
                "compression.gzip.level" if text == "-1" => config.gzip_level = None,
                "compression.gzip.level" => config.gzip_level = level(1, 9)?,
                "compression.lz4.level" => config.lz4_level = level(1, 17)?,
                "compression.zstd.level" => config.zstd_level = level(-131_072, 22)?,
                _ if WITHOUT_EFFECT.contains(&name) => {}
                _ => {
                    return Err(Error::InvalidArgument(format!(
                        "config: expected settings of a topic, found {name:?}"
                    )));
                }
            }
        }
        Ok(config)
    }

    /// Source: `LogConfig#maxSegmentMs`.
    pub(super) fn max_segment_ms(&self) -> i64 {
        if self.compacts { self.segment_ms.min(self.max_compaction_lag_ms) } else { self.segment_ms }
    }

    /// The level at which re-encoded batches are compressed.
    pub(super) fn level(&self, codec: Codec) -> Option<i32> {
        match codec {
            Codec::None | Codec::Snappy => None,
            Codec::Gzip => self.gzip_level,
            Codec::Lz4 => self.lz4_level,
            Codec::Zstd => self.zstd_level,
        }
    }
}

fn number<T: FromStr + Copy + PartialOrd + std::fmt::Display>(name: &str, text: &str, least: T, most: T) -> Result<T> {
    text.parse().ok().filter(|number| (&least..=&most).contains(&number)).ok_or_else(|| {
        Error::InvalidArgument(format!("config: {name}={text:?}: expected an integer of {least} to {most}"))
    })
}

fn word<T: Copy>(name: &str, text: &str, words: &[(&str, T)]) -> Result<T> {
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
        let expected: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        Error::InvalidArgument(format!("config: {name}={text:?}: expected {}", expected.join(", ")))
    })
}

/// Returns whether the log is compacted, and whether old segments are deleted.
fn policy(name: &str, text: &str) -> Result<(bool, bool)> {
    let mut found = (false, false);
    for policy in text.split(',').map(str::trim).filter(|policy| !policy.is_empty()) {
        if word(name, policy, &[("compact", true), ("delete", false)])? {
            found.0 = true;
        } else {
            found.1 = true;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(settings: &[(&str, &str)]) -> Result<TopicConfig> {
        let settings = settings.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        TopicConfig::parse(&settings, Compat::parse("3.9.2").unwrap())
    }

    #[test]
    fn settings_are_those_of_kafka() {
        let config = parse(&[("cleanup.policy", "compact, delete"), ("max.compaction.lag.ms", "5")]).unwrap();
        assert!((config.compacts, config.deletes, config.max_segment_ms()) == (true, true, 5));
        let config = parse(&[("compression.type", "lz4"), ("compression.lz4.level", "3")]).unwrap();
        assert_eq!((config.compression, config.level(Codec::Lz4)), (Some(Codec::Lz4), Some(3)));
        let both = [("message.timestamp.difference.max.ms", "7"), ("message.timestamp.after.max.ms", "9")];
        let config = parse(&both).unwrap();
        assert_eq!((config.timestamp_before_max_ms, config.timestamp_after_max_ms), (7, 9));
        for bad in [("segment.bytes", "0"), ("retention", "1"), ("compression.type", "none"), ("preallocate", "1")] {
            let text = parse(&[bad]).unwrap_err().to_string();
            assert!(text.starts_with("config: ") && text.contains(bad.0), "{text}");
        }
    }
}
