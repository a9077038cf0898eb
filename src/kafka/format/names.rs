//! Names of segment files and partition directories.

use std::path::Path;

use crate::java_text::parse_long;

/// Returns the base offset in a segment file's name: the part before the first dot, as a signed 64-bit decimal.
///
/// Source: `LogFileUtils#offsetFromFileName`; digits may be those of any script, as `Long.parseLong` takes them.
pub fn base_offset(path: &Path) -> Option<i64> {
    let name = path.file_name()?.to_str()?;
    // A snapshot of KRaft's metadata has offsets of its own. Its name has the end offset in the log.
    if name.ends_with(".checkpoint") {
        return Some(0);
    }
    parse_long(name.split_once('.').map_or(name, |(digits, _)| digits))
}

/// Returns topic and partition from the name of a partition directory, which is split at the last `-`.
///
/// Source: `LocalLog#parseTopicPartitionName`. A name with a suffix of the broker, such as `-delete`, has none.
pub fn topic_partition(directory: &Path) -> Option<(&str, i32)> {
    let (topic, partition) = directory.file_name()?.to_str()?.rsplit_once('-')?;
    let digits = !partition.is_empty() && partition.bytes().all(|b| b.is_ascii_digit());
    (digits && !topic.is_empty()).then(|| Some((topic, partition.parse().ok()?))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_offsets_come_from_names() {
        for (name, offset) in [
            ("00000000000000000100.log", Some(100)),
            ("a/b/7.timeindex", Some(7)),
            ("-00000000000000000001.log", Some(-1)),
            ("00000000000000000005.index.deleted", Some(5)),
            ("\u{660}\u{661}\u{662}.log", Some(12)),
            ("9223372036854775808.log", None),
            ("leader-epoch-checkpoint", None),
            (".log", None),
            ("00000000000000000003-0000000001.checkpoint", Some(0)),
            ("bootstrap.checkpoint", Some(0)),
        ] {
            assert_eq!(base_offset(Path::new(name)), offset, "{name}");
        }
    }

    #[test]
    fn directories_split_at_the_last_dash() {
        assert_eq!(topic_partition(Path::new("x/my-topic-12")), Some(("my-topic", 12)));
        for none in ["topic", "-1", "t-", "t-x", "t-0.0123-delete", "t-99999999999"] {
            assert_eq!(topic_partition(Path::new(none)), None, "{none}");
        }
    }
}
