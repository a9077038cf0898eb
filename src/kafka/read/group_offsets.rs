//! The offsets that consumer groups committed, by the records of `__consumer_offsets`.
//!
//! Source: `OffsetCommitKey.json`, `OffsetCommitValue.json`, `GroupMetadataManager#readMessageKey`. A later record replaces an
//! earlier one of the same key, and one without a value deletes it. Keys of versions from 2 on describe groups, not offsets.

use std::collections::BTreeMap;

use crate::kafka::format::varint::Cursor;

/// A group, and a partition that it reads.
type GroupPartition = (String, String, i32);

/// Offset of the next record that the group reads, and the time of the commit, in ms since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    pub offset: i64,
    pub timestamp_ms: i64,
}

/// Committed offsets, while the records are read in their order.
#[derive(Debug, Default)]
pub struct GroupOffsets {
    committed: BTreeMap<GroupPartition, Committed>,
}

impl GroupOffsets {
    /// Takes one record; returns whether it has a form that is known.
    pub fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> bool {
        let mut key = Fields(key);
        match key.int16() {
            Some(0 | 1) => {}
            version => return version.is_some(),
        }
        let (Some(group), Some(topic), Some(partition)) = (key.text(), key.text(), key.int32()) else {
            return false;
        };
        let place = (group, topic, partition);
        let Some(value) = value else {
            self.committed.remove(&place);
            return true;
        };
        let committed = committed(&mut Fields(value));
        if let Some(committed) = committed {
            self.committed.insert(place, committed);
        }
        committed.is_some()
    }

    /// The offsets, by group, topic and partition.
    pub fn committed(&self) -> &BTreeMap<(String, String, i32), Committed> {
        &self.committed
    }
}

fn committed(value: &mut Fields<'_>) -> Option<Committed> {
    let version = value.int16()?;
    let offset = value.int64()?;
    if version >= 3 {
        let _leader_epoch = value.int32()?;
    }
    let _metadata = if version >= 4 { value.compact()? } else { value.sized()? };
    (0..=4).contains(&version).then_some(Committed { offset, timestamp_ms: value.int64()? })
}

/// The remaining fields of a message. Every call returns `None` if the bytes end before the field does.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn int16(&mut self) -> Option<i16> {
        self.take().map(i16::from_be_bytes)
    }

    fn int32(&mut self) -> Option<i32> {
        self.take().map(i32::from_be_bytes)
    }

    fn int64(&mut self) -> Option<i64> {
        self.take().map(i64::from_be_bytes)
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn sized(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.int16()?).ok()?;
        self.bytes(len)
    }

    /// Bytes after their number plus one, as flexible versions have them.
    fn compact(&mut self) -> Option<&'a [u8]> {
        let mut cursor = Cursor::new(self.0);
        let len = usize::try_from(cursor.unsigned(5)?).ok()?.checked_sub(1)?;
        self.0 = cursor.rest;
        self.bytes(len)
    }

    fn text(&mut self) -> Option<String> {
        self.sized().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(group: &str, topic: &str, partition: i32) -> Vec<u8> {
        let mut bytes = 1i16.to_be_bytes().to_vec();
        for text in [group, topic] {
            bytes.extend(i16::try_from(text.len()).unwrap().to_be_bytes());
            bytes.extend(text.as_bytes());
        }
        bytes.extend(partition.to_be_bytes());
        bytes
    }

    fn value(version: i16, offset: i64, timestamp: i64) -> Vec<u8> {
        let mut bytes = [&version.to_be_bytes()[..], &offset.to_be_bytes()].concat();
        if version >= 3 {
            bytes.extend(7i32.to_be_bytes());
        }
        if version >= 4 {
            bytes.extend([3, b'm', b'd']);
        } else {
            bytes.extend([0, 2, b'm', b'd']);
        }
        bytes.extend(timestamp.to_be_bytes());
        bytes.extend([0; 8]);
        bytes
    }

    #[test]
    fn the_last_record_of_a_key_holds() {
        let mut groups = GroupOffsets::default();
        for version in 0..=4 {
            assert!(groups.put(&key("g", "t", 1), Some(&value(version, 10 + i64::from(version), 5))), "{version}");
            let found = groups.committed()[&("g".to_owned(), "t".to_owned(), 1)];
            assert_eq!(found, Committed { offset: 10 + i64::from(version), timestamp_ms: 5 });
        }
        assert!(groups.put(&key("g", "t", 2), Some(&value(3, 1, 1))));
        assert!(groups.put(&key("g", "t", 1), None));
        assert_eq!(groups.committed().len(), 1);
    }

    #[test]
    fn other_records_are_passed_over_and_cut_ones_are_told() {
        let mut groups = GroupOffsets::default();
        assert!(groups.put(&2i16.to_be_bytes(), Some(b"group metadata")));
        for (key, value) in [(vec![0], Some(vec![])), (key("g", "t", 1), Some(value(5, 1, 1)))] {
            assert!(!groups.put(&key, value.as_deref()));
        }
        let (whole_key, whole) = (key("g", "t", 1), value(4, 1, 1));
        for len in 2..whole_key.len() {
            assert!(!groups.put(&whole_key[..len], Some(&whole)));
        }
        for len in 0..whole.len() - 8 {
            assert!(!groups.put(&whole_key, Some(&whole[..len])));
        }
        assert!(groups.committed().is_empty());
    }
}
