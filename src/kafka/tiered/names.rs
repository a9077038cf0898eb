//! The names of directories and objects in remote storage.

use std::path::Path;

use crate::io::Location;
use crate::io::location::Identity;
use crate::io::storage::Status;
use crate::kafka::format::names::base_offset;

/// The layout of the segments of a plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// `LocalTieredStorage` of Kafka's tests: `<topic>-<partition>-<topicId>/<offset>-<segmentId>.<file>`.
    Local,
    /// Aiven's plugin: `<topic>-<topicId>/<partition>/<offset>-<segmentId>.<object>`.
    Aiven,
}

/// Letters of a UUID as Kafka writes it: Base64 for URLs.
const UUID_LETTERS: usize = 22;

/// Splits `<name>-<uuid>`.
pub(super) fn split_uuid(text: &str) -> Option<(&str, &str)> {
    let (name, uuid) = text.split_at_checked(text.len().checked_sub(UUID_LETTERS)?)?;
    let name = name.strip_suffix('-').filter(|name| !name.is_empty())?;
    uuid.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')).then_some((name, uuid))
}

/// Returns the number of a partition by its directory.
pub(super) fn partition_number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number: &u32| number.to_string() == text && i32::try_from(*number).is_ok())
}

/// An object of a segment.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub path: Location,
    pub status: Status,
}

impl Object {
    /// The identity of its store, and a text that changes with the content.
    pub(super) fn tag(&self) -> (Option<Identity>, String) {
        let store = self.path.store().map(|store| store.identity().clone());
        (store, format!("{} {:?} {:?}", self.status.len, self.status.modified, self.status.identity))
    }
}

/// The name of an object of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObjectName<'a> {
    /// The common prefix of all objects of the segment.
    pub stem: &'a str,
    pub base_offset: i64,
    /// The text after the first dot.
    pub suffix: &'a str,
}

/// Splits the name of an object: `<offset>-<uuid>.<suffix>`.
pub(super) fn object_name(name: &str) -> Option<ObjectName<'_>> {
    let (stem, suffix) = name.split_once('.')?;
    let (offset, _) = split_uuid(stem)?;
    // The locale of the broker's JVM chooses the script of the digits.
    let base_offset = base_offset(Path::new(offset)).filter(|offset| *offset >= 0)?;
    Some(ObjectName { stem, base_offset, suffix })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split() {
        assert_eq!(split_uuid("a-b-0hJ0MO26TcmRGSihn_4rSg"), Some(("a-b", "0hJ0MO26TcmRGSihn_4rSg")));
        // A UUID may begin with a dash.
        assert_eq!(split_uuid("a--hJ0MO26TcmRGSihn_4rSg"), Some(("a", "-hJ0MO26TcmRGSihn_4rSg")));
        for none in ["0hJ0MO26TcmRGSihn_4rSg", "-0hJ0MO26TcmRGSihn_4rSg", "a-0hJ0MO26TcmRGSihn.4rSg", "\u{e9}-x", ""] {
            assert_eq!(split_uuid(none), None, "{none}");
        }
        let name = object_name("00000000000000000052-d-94EWYCTsCg9jy6pOC2Bw.rsm-manifest").unwrap();
        assert_eq!((name.base_offset, name.suffix), (52, "rsm-manifest"));
        assert_eq!(name.stem, "00000000000000000052-d-94EWYCTsCg9jy6pOC2Bw");
        for none in ["00000000000000000052.log", "x-d-94EWYCTsCg9jy6pOC2Bw.log", "52-d-94EWYCTsCg9jy6pOC2Bw"] {
            assert_eq!(object_name(none), None, "{none}");
        }
        assert_eq!(partition_number("12"), Some(12));
        for none in ["", "012", "-1", "+1", "2147483648", "x"] {
            assert_eq!(partition_number(none), None, "{none}");
        }
    }
}
