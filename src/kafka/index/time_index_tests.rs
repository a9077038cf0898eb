//! Time indexes: the broker's bytes, answers and refusals.

use std::fs;

use super::*;
use crate::kafka::test_data::{T, hex};

const THREE: &str = "0000018bcfe56800000000130000018bcfe569f40000002a0000018bcfe569f500000064";

fn pair(entry: TimeEntry) -> (i64, i64) {
    (entry.timestamp, entry.offset)
}

fn three(dir: &Path) -> TimeIndex {
    let mut index = TimeIndex::create(&dir.join("00000000000000001000.timeindex"), 1000, 367).unwrap();
    for (time, offset, added) in [(T, 1019, true), (T + 500, 1042, true), (T + 501, 1100, true), (T + 501, 1150, false)]
    {
        assert_eq!(index.maybe_append(time, offset, false).unwrap(), added, "{time} {offset}");
    }
    index
}

#[test]
fn entries_are_those_of_the_broker() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = three(dir.path());
    assert_eq!((index.file_len(), index.max_entries(), index.len()), (360, 30, 3));
    for (targets, found) in [
        (&[-1, 0, T - 1][..], (-1, 1000)),
        (&[T, T + 499], (T, 1019)),
        (&[T + 500], (T + 500, 1042)),
        (&[T + 501, T + 9999], (T + 501, 1100)),
    ] {
        for target in targets {
            assert_eq!(pair(index.lookup(*target)), found, "{target}");
        }
    }
    assert_eq!(index.ranks(&[T - 1, T, T + 500, T + 501, i64::MIN, i64::MAX]), [0, 1, 2, 3, 0, 3]);
    let before = fs::read(index.path()).unwrap();
    assert!(matches!(index.maybe_append(T + 500, 1200, false), Err(Error::InvalidArgument(_))));
    assert!(matches!(index.maybe_append(T + 600, 1099, false), Err(Error::InvalidArgument(_))));
    assert!(matches!(index.maybe_append(T + 600, 1000 + (1 << 31), false), Err(Error::InvalidArgument(_))));
    assert_eq!(fs::read(index.path()).unwrap(), before);
    index.trim().unwrap();
    assert_eq!(fs::read(index.path()).unwrap(), hex(THREE));
    index.sanity_check().unwrap();
    index.resize(360).unwrap();
    assert!(index.maybe_append(T + 600, 1100, false).unwrap(), "offsets may repeat");
    index.truncate_to(1100).unwrap();
    assert_eq!(pair(index.last_entry()), (T + 500, 1042));
}

#[test]
fn the_last_slot_is_reserved_for_the_roll() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = TimeIndex::create(&dir.path().join("5.timeindex"), 5, 24).unwrap();
    assert!(!index.is_full());
    assert!(!index.maybe_append(-1, 5, false).unwrap(), "no timestamp is no entry");
    assert!(index.maybe_append(0, 6, false).unwrap());
    assert!(index.is_full());
    assert!(matches!(index.maybe_append(1, 7, false), Err(Error::IndexFull { entries: 1, .. })));
    assert!(index.maybe_append(1, 7, true).unwrap());
    assert!(matches!(index.maybe_append(2, 8, true), Err(Error::IndexFull { entries: 2, .. })));
    assert_eq!(index.len(), 2);
    for (max, len, full) in [(10_485_760, 10_485_756, false), (24, 24, false), (23, 12, true), (12, 12, true)] {
        let path = dir.path().join(format!("{max}.timeindex"));
        let index = TimeIndex::create(&path, 0, max).unwrap();
        assert_eq!((index.file_len(), index.is_full()), (len, full));
        assert_eq!(pair(index.last_entry()), (-1, 0));
    }
    assert!(TimeIndex::create(&dir.path().join("1.timeindex"), 0, 11).is_err());
}

#[test]
fn zero_tails_and_disorder_end_the_valid_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("00000000000000001000.timeindex");
    let trust = IndexOptions { check: Check::Trust, ..IndexOptions::default() };
    fs::write(&path, [hex(THREE), vec![0; 60]].concat()).unwrap();
    let index = TimeIndex::open(&path, &trust).unwrap();
    assert_eq!((index.len(), pair(index.last_entry())), (8, (0, 1000)));
    assert!(matches!(index.sanity_check(), Err(Error::Corrupt { offset: 84, .. })));
    let index = TimeIndex::open(&path, &IndexOptions::default()).unwrap();
    assert_eq!((index.len(), pair(index.last_entry())), (3, (T + 501, 1100)));

    fs::write(&path, vec![0; 60]).unwrap();
    let index = TimeIndex::open(&path, &trust).unwrap();
    assert_eq!((index.len(), pair(index.last_entry()), index.is_full()), (5, (0, 1000), true));
    index.sanity_check().unwrap();
    assert!(TimeIndex::open(&path, &IndexOptions::default()).unwrap().is_empty());

    fs::write(&path, hex("0000018bcfe569f40000002a0000018bcfe56800000000130a")).unwrap();
    let index = TimeIndex::open(&path, &trust).unwrap();
    assert_eq!(index.ranks(&[T + 1]), [u32::try_from(index.slot(T + 1).map_or(0, |slot| slot + 1)).unwrap()]);
    assert!(index.sanity_check().is_err());
    assert_eq!(TimeIndex::open(&path, &IndexOptions::default()).unwrap().len(), 1);
}

#[test]
fn the_warm_section_is_searched_first() {
    // 3000 entries (1000 + i, 10 i): the first warm slot is 2317.
    let bytes: Vec<u8> = (0..3000).flat_map(|i| encode(1000 + i, 10 * i32::try_from(i).unwrap())).collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.timeindex");
    fs::write(&path, bytes).unwrap();
    let index = TimeIndex::open(&path, &IndexOptions::default()).unwrap();
    let found = [3317, 3316, 999, 1000, 99999].map(|t| pair(index.lookup(t)));
    assert_eq!(found, [(3317, 23170), (3316, 23160), (-1, 0), (1000, 0), (3999, 29990)]);
    // An offset that two entries have: which of them the search meets decides how many are left.
    assert_eq!(index.ranks(&[3317, 3316, 999]), [2318, 2317, 0]);
}
