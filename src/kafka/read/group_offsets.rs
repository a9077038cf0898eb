//! The offsets that consumer groups committed, by the records of `__consumer_offsets`.
//!
//! Source: `OffsetCommitKey.json`, `OffsetCommitValue.json`, `GroupMetadataManager#readMessageKey`. A later record replaces an
//! earlier one of the same key, and one without a value deletes it. Keys of versions from 2 on describe groups, not offsets.

use std::collections::{BTreeMap, HashMap};

use crate::hash_index::carry_utf8;
use crate::kafka::format::fields::Fields;

/// The longest text after a length of 16 bits.
const MOST_TEXT: usize = i16::MAX as usize;

/// A group, and a partition that it reads.
type GroupPartition = (String, String, i32);

/// Offset of the next record that the group reads, the time of the commit in ms since the epoch, and the text of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    pub offset: i64,
    pub timestamp_ms: i64,
    pub metadata: Vec<u8>,
}

/// The most commits of a group over time that are kept. When there are more, every second one is dropped.
const MOST_COMMITS: usize = 1 << 20;

/// Committed offsets, while the records are read in their order.
#[derive(Debug, Default)]
pub struct GroupOffsets {
    committed: BTreeMap<GroupPartition, Committed>,
    /// Protocol types of the groups that have members, or had them.
    protocols: BTreeMap<String, Vec<u8>>,
    /// The group whose commits are kept over time.
    watched: Option<String>,
    /// Time in ms, partition and offset of each of its commits, in the order of the records.
    commits: Vec<(i64, GroupPartition, i64)>,
}

impl GroupOffsets {
    /// Takes one record; returns whether it has a form that is known.
    pub fn put(&mut self, key: &[u8], value: Option<&[u8]>) -> bool {
        let mut key = Fields(key);
        match key.int16() {
            Some(0 | 1) => {}
            Some(version @ (2 | 3)) => return self.put_group(&mut key, version, value),
            version => return version.is_some(),
        }
        let (Some(group), Some(topic), Some(partition)) = (text(&mut key), text(&mut key), key.int32()) else {
            return false;
        };
        let place = (group, topic, partition);
        let Some(value) = value else {
            self.committed.remove(&place);
            return true;
        };
        let committed = committed(&mut Fields(value));
        let is_known = committed.is_some();
        if let Some(committed) = committed.as_ref().filter(|_| self.watched.as_ref() == Some(&place.0)) {
            self.watch(place.clone(), committed);
        }
        self.committed.extend(committed.map(|committed| (place, committed)));
        is_known
    }

    /// Keeps the commits of a group over time, too.
    pub fn watching(group: String) -> Self {
        Self { watched: Some(group), ..Self::default() }
    }

    fn watch(&mut self, place: GroupPartition, committed: &Committed) {
        self.commits.push((committed.timestamp_ms, place, committed.offset));
        if self.commits.len() > MOST_COMMITS {
            let mut is_kept = false;
            self.commits.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
    }

    /// Returns the times of the first and the last commit of the watched group, in ms.
    pub fn watched_times(&self) -> Option<(i64, i64)> {
        let times = || self.commits.iter().map(|(time, ..)| *time);
        times().min().zip(times().max())
    }

    /// Returns the offsets of the watched group at some times, by topic and partition; `None` before its first commit there.
    pub fn watched_offsets(&self, times_ms: &[i64]) -> BTreeMap<(String, i32), Vec<Option<i64>>> {
        let mut by_place: BTreeMap<(String, i32), Vec<(i64, i64)>> = BTreeMap::new();
        for (time, (_, topic, partition), offset) in &self.commits {
            by_place.entry((topic.clone(), *partition)).or_default().push((*time, *offset));
        }
        let offsets_of = |(place, mut commits): ((String, i32), Vec<(i64, i64)>)| {
            // A later record replaces an earlier one of the same time.
            commits.sort_by_key(|(time, _)| *time);
            let at = |time: &i64| {
                let after = commits.partition_point(|(committed, _)| committed <= time);
                after.checked_sub(1).and_then(|last| commits.get(last)).map(|(_, offset)| *offset)
            };
            let offsets = times_ms.iter().map(at).collect();
            (place, offsets)
        };
        by_place.into_iter().map(offsets_of).collect()
    }

    /// Source: `GroupMetadataValue.json`, `ConsumerGroupMetadataKey.json`.
    fn put_group(&mut self, key: &mut Fields<'_>, version: i16, value: Option<&[u8]>) -> bool {
        let Some(group) = text(key) else { return false };
        let Some(value) = value else {
            self.protocols.remove(&group);
            return true;
        };
        let mut value = Fields(value);
        let protocol = match (version, value.int16()) {
            // Groups of the newer protocol have no other type.
            (3, _) => Some(&b"consumer"[..]),
            (_, Some(0..=3)) => value.sized(),
            (_, Some(4)) => compact(&mut value),
            _ => None,
        };
        if let Some(protocol) = protocol {
            self.protocols.insert(group, protocol.to_vec());
        }
        protocol.is_some()
    }

    /// Returns keys and values of records that restore the offsets of some partitions, each of which has a first offset and an end:
    /// a group without members, and its commits in the range of offsets that exist.
    ///
    /// The commits name no leader's epoch and no topic's id, which another cluster does not have. A group that never had members, which
    /// only its commits keep from expiring, committed now.
    pub fn restored(&self, ranges: &HashMap<(String, i32), (i64, i64)>, now_ms: i64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (mut records, mut last) = (Vec::new(), None);
        for ((group, topic, partition), committed) in &self.committed {
            let Some((begin, end)) = ranges.get(&(topic.clone(), *partition)) else { continue };
            let protocol = self.protocols.get(group);
            if let Some(protocol) = protocol.filter(|_| last != Some(group)) {
                let mut value = 3i16.to_be_bytes().to_vec();
                put_text(&mut value, protocol);
                // Generation 0, without protocol and leader.
                value.extend([0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
                value.extend(now_ms.to_be_bytes());
                // No members.
                value.extend([0; 4]);
                let mut key = 2i16.to_be_bytes().to_vec();
                put_text(&mut key, group.as_bytes());
                records.push((key, value));
            }
            last = Some(group);
            let mut key = 1i16.to_be_bytes().to_vec();
            put_text(&mut key, group.as_bytes());
            put_text(&mut key, topic.as_bytes());
            key.extend(partition.to_be_bytes());
            let mut value = 3i16.to_be_bytes().to_vec();
            value.extend(committed.offset.clamp(*begin, *end.max(begin)).to_be_bytes());
            value.extend((-1i32).to_be_bytes());
            put_text(&mut value, &committed.metadata);
            let time = if protocol.is_some() { committed.timestamp_ms } else { now_ms };
            value.extend(time.to_be_bytes());
            records.push((key, value));
        }
        records
    }

    /// Returns the partition of `__consumer_offsets` that a group belongs to if it has this number of partitions. Source:
    /// `GroupCoordinatorService#partitionFor`.
    pub fn partition_of(group: &str, partitions: i32) -> i32 {
        (carry_utf8(0, group.as_bytes()) & i32::MAX) % partitions.max(1)
    }

    /// Returns whether all groups belong to a partition of `__consumer_offsets` if it has this number of partitions.
    pub fn are_of(&self, partition: i32, partitions: i32) -> bool {
        self.committed.keys().all(|(group, ..)| Self::partition_of(group, partitions) == partition)
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
    let metadata = if version >= 4 { compact(value)? } else { value.sized()? }.to_vec();
    (0..=4).contains(&version).then_some(Committed { offset, timestamp_ms: value.int64()?, metadata })
}

/// Appends a text after its length, which [`Fields`] has checked.
fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend(i16::try_from(text.len()).expect("texts of at most 32,767 bytes").to_be_bytes());
    out.extend(text);
}

/// A text of a key.
fn text(fields: &mut Fields<'_>) -> Option<String> {
    let text = String::from_utf8_lossy(fields.sized()?).into_owned();
    Some(text).filter(|text| text.len() <= MOST_TEXT)
}

/// A text after its number of bytes plus one.
fn compact<'a>(fields: &mut Fields<'a>) -> Option<&'a [u8]> {
    fields.compact().filter(|bytes| bytes.len() <= MOST_TEXT)
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
            let found = groups.committed()[&("g".to_owned(), "t".to_owned(), 1)].clone();
            let expected = Committed { offset: 10 + i64::from(version), timestamp_ms: 5, metadata: b"md".to_vec() };
            assert_eq!(found, expected);
        }
        assert!(groups.put(&key("g", "t", 2), Some(&value(3, 1, 1))));
        assert!(groups.put(&key("g", "t", 1), None));
        assert_eq!(groups.committed().len(), 1);
    }

    #[test]
    fn the_commits_of_one_group_are_kept_over_time() {
        let mut groups = GroupOffsets::watching("g".to_owned());
        for (group, partition, offset, time) in
            [("g", 0, 1, 100), ("h", 0, 9, 150), ("g", 1, 5, 200), ("g", 0, 4, 300), ("g", 0, 3, 250), ("g", 0, 6, 300)]
        {
            assert!(groups.put(&key(group, "t", partition), Some(&value(4, offset, time))));
        }
        assert!(groups.put(&key("g", "t", 1), None));
        assert_eq!(groups.watched_times(), Some((100, 300)));
        let found = groups.watched_offsets(&[99, 100, 249, 250, 300]);
        assert_eq!(found.len(), 2);
        assert_eq!(found[&("t".to_owned(), 0)], [None, Some(1), Some(1), Some(3), Some(6)]);
        assert_eq!(found[&("t".to_owned(), 1)], [None, None, Some(5), Some(5), Some(5)]);
        assert_eq!(GroupOffsets::default().watched_times(), None);
    }

    #[test]
    fn other_records_are_passed_over_and_cut_ones_are_told() {
        let mut groups = GroupOffsets::default();
        assert!(groups.put(&5i16.to_be_bytes(), Some(b"a member")));
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

    #[test]
    fn restored_offsets_are_in_the_range_of_their_partitions() {
        let mut groups = GroupOffsets::default();
        for (group, offset) in [("low", 1), ("mid", 12), ("high", 99)] {
            assert!(groups.put(&key(group, "t", 1), Some(&value(4, offset, 5))));
            assert!(groups.put(&key(group, "other", 1), Some(&value(3, offset, 5))));
        }
        let of_group = |group: &str| [&[0, 2, 0, u8::try_from(group.len()).unwrap()], group.as_bytes()].concat();
        for (group, metadata) in [("mid", &b"\0\x03\0\x08consumer..."[..]), ("high", b"\0\x04\x09consumer...")] {
            assert!(groups.put(&of_group(group), Some(metadata)));
        }
        let mut again = GroupOffsets::default();
        let records = groups.restored(&HashMap::from([(("t".to_owned(), 1), (10, 20))]), 77);
        for (key, value) in &records {
            assert!(again.put(key, Some(value)));
        }
        assert_eq!(records.len(), 5);
        let found = again.committed().iter().map(|((group, topic, _), each)| {
            (group.as_str(), topic.as_str(), each.offset, each.timestamp_ms, each.metadata.as_slice())
        });
        let expected = [("high", "t", 20, 5, &b"md"[..]), ("low", "t", 10, 77, b"md"), ("mid", "t", 12, 5, b"md")];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        assert_eq!(again.protocols.keys().collect::<Vec<_>>(), ["high", "mid"]);
        assert!(groups.put(&of_group("mid"), None) && !groups.protocols.contains_key("mid"));
    }

    #[test]
    fn a_group_is_of_the_partition_of_its_hash() {
        let mut groups = GroupOffsets::default();
        assert!(groups.put(&key("group-0", "t", 1), Some(&value(3, 1, 1))));
        let of: Vec<_> = (0..4).filter(|partition| groups.are_of(*partition, 4)).collect();
        // "group-0".hashCode() is 293427298.
        assert_eq!(of, [2]);
    }
}
