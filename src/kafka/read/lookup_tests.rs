//! Look-ups in the literal segment, and in generated ones against a walk over everything.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::kafka::test_data::{
    SEVEN, SEVEN_BATCHES, SEVEN_INDEX, SEVEN_RECORDS, SEVEN_TIMES, T, batch, hex, record, segment,
};
use crate::kafka::{Check, Compat, SegmentOptions};

/// The index of one append for several batches, as releases up to 3.9.0 wrote it on a follower.
const FOLLOWER_INDEX: &str = "00000008000000f40000000b00000259";

fn open(dir: &Path, index: &str, compat: Option<&str>) -> Segment {
    let path = segment(dir, 100, &hex(SEVEN), Some(&hex(index)), Some(&hex(SEVEN_TIMES)));
    let compat = compat.map(|text| Compat::parse(text).unwrap());
    let check = if compat.is_some() { Check::Trust } else { Check::Verify };
    Segment::open(&path, SegmentOptions { check, compat, ..SegmentOptions::default() }).unwrap()
}

#[test]
fn look_ups_answer_as_the_broker_does() {
    let dir = tempfile::tempdir().unwrap();
    for index in [SEVEN_INDEX, FOLLOWER_INDEX, ""] {
        for compat in [None, Some("3.9.0"), Some("4.0.0"), Some("4.1.0")] {
            let segment = open(dir.path(), index, compat);
            assert_eq!(segment.topic_partition(), Some(("topic", 3)));
            for (position, size, first, last, _) in SEVEN_BATCHES {
                for offset in first..=last {
                    let found = segment.translate_offset(offset, 0).unwrap().unwrap();
                    assert_eq!((found.position, found.size), (position, size), "{offset} {compat:?}");
                    assert_eq!(found.offset, if compat == Some("3.9.0") { last } else { first });
                }
            }
            assert_eq!(segment.translate_offset(99, 0).unwrap().unwrap().position, 0);
            assert_eq!(segment.translate_offset(112, 0).unwrap(), None);
            let time = |x: i64, start: i64| {
                let found = segment.offset_for_timestamp(T + x, start, true).unwrap();
                found.map(|r| (r.timestamp - T, r.offset, r.leader_epoch))
            };
            for x in -5..70 {
                for start in 95..115 {
                    let first = SEVEN_RECORDS.iter().zip(100..).find(|(t, o)| **t >= x && *o >= start);
                    assert_eq!(time(x, start), first.map(|(t, o)| (*t, o, Some(1))), "{x} {start}");
                }
            }
            assert_eq!(segment.next_offset().unwrap(), 112);
            assert_eq!(segment.max_timestamp().unwrap(), TimeEntry { timestamp: T + 60, offset: 111 });
        }
    }
}

#[test]
fn fetches_read_what_the_broker_reads() {
    let dir = tempfile::tempdir().unwrap();
    let segment = open(dir.path(), SEVEN_INDEX, None);
    for (max, least_one, size, incomplete) in [
        (0, false, 0, false),
        (1, false, 1, true),
        (1, true, 115, false),
        (116, false, 116, false),
        (1000, false, 808, false),
    ] {
        let read = segment.read(100, max, Some(808), least_one).unwrap().unwrap();
        assert_eq!((read.position, read.size, read.first_entry_incomplete), (0, size, incomplete), "{max} {least_one}");
    }
    assert_eq!(segment.read(112, 10, None, true).unwrap(), None);
    assert_eq!(segment.read(110, 1 << 40, None, true).unwrap().map(|r| (r.position, r.size)), Some((709, 99)));
    for bad in [segment.read(100, -1, None, true), segment.read(110, 10, Some(700), true)] {
        assert!(matches!(bad, Err(Error::InvalidArgument(_))));
    }
    assert_eq!(segment.bytes(709, 99).unwrap(), hex(SEVEN)[709..]);
    assert!(segment.bytes(709, 100).is_err());
}

#[test]
fn zeros_at_the_end_of_a_preallocated_log_end_it() {
    let dir = tempfile::tempdir().unwrap();
    for zeros in [5, 17, 18, 500] {
        let log = [hex(SEVEN), vec![0; zeros]].concat();
        let path = segment(dir.path(), 100, &log, None, None);
        let ours = Segment::open(&path, SegmentOptions::default()).unwrap();
        assert_eq!(ours.next_offset().unwrap(), 112);
        assert_eq!(ours.translate_offset(112, 0).unwrap(), None);
        let compat = Compat::parse("3.9.2");
        let options = SegmentOptions { check: Check::Trust, compat, ..SegmentOptions::default() };
        let brokers = Segment::open(&path, options).unwrap();
        assert_eq!(brokers.next_offset().is_err(), zeros > 17, "{zeros}");
    }
}

/// Appends batches of these numbers of records, as one append or each by itself, and indexes them.
#[derive(Default)]
struct Model {
    log: Vec<u8>,
    batches: Vec<(u64, i64, i64)>,
    times: Vec<i64>,
    index: Vec<(i64, u64)>,
    since: usize,
}

impl Model {
    fn append(&mut self, base: i64, sizes: &[(u8, i64)]) {
        let begin = self.log.len() as u64;
        let mut added = Vec::new();
        for (records, time) in sizes {
            let first = base + i64::try_from(self.times.len()).unwrap();
            let mut body = Vec::new();
            for delta in 0..i64::from(*records) {
                record(delta, delta, None, Some(&[b'x'; 30]), &mut body);
                self.times.push(time + delta);
            }
            let last = i32::from(*records) - 1;
            let whole = batch(first, last, i32::from(*records), 0, (*time, time + i64::from(last)), &body);
            self.batches.push((begin + added.len() as u64, first, first + i64::from(last)));
            added.extend(whole);
        }
        if self.since > 150 {
            let last = self.batches.last().unwrap().2;
            self.index.push((last, begin));
            self.since = 0;
        }
        self.since += added.len();
        self.log.extend(added);
    }

    fn truncate(&mut self, base: i64, batches: usize) {
        let Some(&(position, first, _)) = self.batches.get(batches) else { return };
        self.batches.truncate(batches);
        self.log.truncate(usize::try_from(position).unwrap());
        self.times.truncate(usize::try_from(first - base).unwrap());
        self.since = 0;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Slots are overwritten only from the truncation on, so old entries stay after the valid ones.
    #[test]
    fn stale_entries_never_lead_past_an_offset(
        appends in prop::collection::vec((prop::collection::vec((1u8..6, 0i64..500), 1..4), prop::option::of(0usize..30)), 1..30),
    ) {
        let base = 5000;
        let mut model = Model::default();
        let mut slots: Vec<(i64, u64)> = Vec::new();
        for (sizes, truncate) in &appends {
            if let Some(batches) = truncate.filter(|b| *b < model.batches.len()) {
                let first = model.batches[batches].1;
                model.truncate(base, batches);
                model.index.retain(|(offset, _)| *offset < first);
            }
            let before = model.index.len();
            model.append(base, sizes);
            if model.index.len() > before {
                slots.truncate(slots.len().max(before));
                if slots.len() > before { slots[before] = model.index[before] } else { slots.push(model.index[before]) }
            }
        }
        let mut index = Vec::new();
        for (offset, position) in &slots {
            let key = i32::try_from(offset - base).unwrap();
            index.extend(crate::kafka::index::offset_index::encode(key, i32::try_from(*position).unwrap()).concat());
        }
        index.extend([0; 64]);
        let dir = tempfile::tempdir().unwrap();
        let path = segment(dir.path(), base, &model.log, Some(&index), None);
        let segment = Segment::open(&path, SegmentOptions::default()).unwrap();
        for offset in base - 1..=base + i64::try_from(model.times.len()).unwrap() {
            let expected = model.batches.iter().find(|(_, _, last)| *last >= offset).map(|(position, ..)| *position);
            prop_assert_eq!(segment.translate_offset(offset, 0).unwrap().map(|t| t.position), expected);
        }
        for time in (0..510).step_by(7) {
            let expected = model.times.iter().zip(base..).find(|(t, _)| **t >= time).map(|(_, offset)| offset);
            prop_assert_eq!(segment.offset_for_timestamp(time, base, true).unwrap().map(|r| r.offset), expected);
        }
        prop_assert_eq!(segment.next_offset().unwrap(), base + i64::try_from(model.times.len()).unwrap());
    }
}
