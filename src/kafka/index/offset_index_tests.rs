//! Offset indexes: the broker's bytes, answers and refusals.

use std::fs;

use super::*;
use crate::kafka::test_data::hex;

/// Base 1000, 30 slots: (1019, 4200), (1042, 8500), (1100, 12750).
fn three(dir: &Path) -> OffsetIndex {
    let mut index = OffsetIndex::create(&dir.join("00000000000000001000.index"), 1000, 245).unwrap();
    for (offset, position) in [(1019, 4200), (1042, 8500), (1100, 12750)] {
        index.append(offset, position).unwrap();
    }
    index
}

const THREE: &str = "00000013000010680000002a0000213400000064000031ce";

fn pair(entry: OffsetEntry) -> (i64, i32) {
    (entry.offset, entry.position)
}

#[test]
fn entries_are_those_of_the_broker() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = three(dir.path());
    assert_eq!((index.file_len(), index.max_entries(), index.len()), (240, 30, 3));
    assert!(!index.is_full());
    for (targets, found) in [
        (&[0, 999, 1000, 1018][..], (1000, 0)),
        (&[1019, 1020, 1041], (1019, 4200)),
        (&[1042, 1099], (1042, 8500)),
        (&[1100, 5000], (1100, 12750)),
    ] {
        for target in targets {
            assert_eq!(pair(index.lookup(*target)), found, "{target}");
        }
        let ranks = index.ranks(targets);
        let slots: Vec<_> = targets.iter().map(|t| index.slot(*t).map_or(0, |slot| slot + 1)).collect();
        assert_eq!(ranks.iter().map(|r| usize::try_from(*r).unwrap()).collect::<Vec<_>>(), slots);
    }
    assert_eq!(index.ranks(&[i64::MIN, i64::MAX]), [0, 3]);
    for (position, size, found) in [
        (0, 0, Some((1019, 4200))),
        (0, 4200, Some((1042, 8500))),
        (0, 4201, Some((1042, 8500))),
        (4200, 4300, Some((1042, 8500))),
        (4200, 4301, Some((1100, 12750))),
        (8500, 4250, Some((1100, 12750))),
        (8500, 4251, None),
        (12750, 1, None),
        (1, i32::MAX, Some((1019, 4200))),
    ] {
        assert_eq!(index.fetch_upper_bound(position, size).map(pair), found, "{position} {size}");
    }
    index.trim().unwrap();
    assert_eq!(fs::read(index.path()).unwrap(), hex(THREE));
    assert!(index.is_full(), "until it is resized");
    index.sanity_check().unwrap();
}

#[test]
fn appends_that_the_broker_rejects_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut index = three(dir.path());
    let before = fs::read(index.path()).unwrap();
    for offset in [1100, 1099, 999, 1000 + (1 << 31), i64::MIN, i64::MAX] {
        assert!(matches!(index.append(offset, 13000), Err(Error::InvalidArgument(_))), "{offset}");
    }
    assert!(index.resize(23).is_err(), "entries would be lost");
    assert_eq!(fs::read(index.path()).unwrap(), before);
    index.trim().unwrap();
    assert!(matches!(index.append(2000, 13000), Err(Error::IndexFull { entries: 3, .. })));
    drop(index);

    let path = dir.path().join("00000000000000001000.index");
    let mut read = OffsetIndex::open(&path, &IndexOptions::default()).unwrap();
    for refused in [read.append(2000, 13000), read.truncate_to(0), read.trim(), read.resize(80).map(|_| ())] {
        assert!(matches!(refused, Err(Error::InvalidArgument(_))));
    }
    assert_eq!(fs::read(&path).unwrap(), hex(THREE));
}

#[test]
fn bytes_of_truncated_entries_stay_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("00000000000000001000.index");
    let mut index = OffsetIndex::create(&path, 1000, 40).unwrap();
    for (offset, position) in [(1019, 4200), (1042, 8500), (1100, 12750)] {
        index.append(offset, position).unwrap();
    }
    let full = fs::read(&path).unwrap();
    assert_eq!(full, [hex(THREE), vec![0; 16]].concat());
    index.truncate_to(1050).unwrap();
    assert_eq!((index.len(), index.last_offset()), (2, 1042));
    index.truncate_to(1042).unwrap();
    assert_eq!((index.len(), index.last_offset()), (1, 1019));
    assert_eq!(fs::read(&path).unwrap(), full);
    index.append(1030, 8450).unwrap();
    let stale = hex("00000013000010680000001e0000210200000064000031ce00000000000000000000000000000000");
    assert_eq!(fs::read(&path).unwrap(), stale);
    drop(index);

    let trust = IndexOptions { check: Check::Trust, ..IndexOptions::default() };
    let index = OffsetIndex::open(&path, &trust).unwrap();
    assert_eq!((index.len(), index.last_offset()), (5, 1000));
    assert_eq!(pair(index.lookup(1042)), (1030, 8450));
    index.sanity_check().unwrap();
    let index = OffsetIndex::open(&path, &IndexOptions::default()).unwrap();
    assert_eq!((index.len(), index.last_offset()), (3, 1100), "only the log shows that the last one is stale");
}

#[test]
fn a_zero_tail_counts_as_entries_only_with_check_trust() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("00000000000000001000.index");
    fs::write(&path, [hex(THREE), vec![0; 776]].concat()).unwrap();
    let trust = IndexOptions { check: Check::Trust, ..IndexOptions::default() };
    let index = OffsetIndex::open(&path, &trust).unwrap();
    assert_eq!((index.len(), index.last_offset(), index.is_full()), (100, 1000, true));
    assert_eq!([1042, 1019].map(|t| pair(index.lookup(t))), [(1000, 0), (1019, 4200)]);
    assert_eq!(index.ranks(&[1042]), [u32::try_from(index.slot(1042).map_or(0, |slot| slot + 1)).unwrap()]);
    index.sanity_check().unwrap();
    let mut index = OffsetIndex::open(&path, &IndexOptions { write: true, ..IndexOptions::default() }).unwrap();
    assert_eq!([1042, 1019, 5000].map(|t| pair(index.lookup(t))), [(1042, 8500), (1019, 4200), (1100, 12750)]);
    index.append(1200, 20000).unwrap();
    index.trim().unwrap();
    assert_eq!(fs::read(&path).unwrap(), hex(&format!("{THREE}000000c800004e20")));
}

#[test]
fn files_have_the_size_of_whole_entries() {
    let dir = tempfile::tempdir().unwrap();
    for (max, len) in [(10_485_760, 10_485_760), (24, 24), (23, 16), (12, 8), (8, 8)] {
        let path = dir.path().join(format!("{max}.index"));
        let index = OffsetIndex::create(&path, max, u64::try_from(max).unwrap()).unwrap();
        assert_eq!((index.file_len(), index.max_entries()), (len, len / 8));
        assert_eq!(index.lookup(max + 5), index.front());
    }
    let path = dir.path().join("1.index");
    assert!(matches!(OffsetIndex::create(&path, 1, 7), Err(Error::InvalidArgument(_))));
    assert!(!path.exists());

    fs::write(&path, vec![9; 21]).unwrap();
    let index = OffsetIndex::open(&path, &IndexOptions { check: Check::Trust, ..IndexOptions::default() }).unwrap();
    assert_eq!((index.len(), index.file_len()), (2, 21));
    assert!(matches!(index.sanity_check(), Err(Error::Corrupt { offset: 21, .. })));
    assert!(matches!(OffsetIndex::create(&path, 1, 80), Err(Error::Io { .. })), "there is such a file");
    let missing = dir.path().join("2.index");
    assert!(OffsetIndex::open(&missing, &IndexOptions::default()).is_err());
    assert!(!missing.exists(), "reading creates nothing");
}

#[test]
fn a_second_writer_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let index = three(dir.path());
    let write = IndexOptions { write: true, ..IndexOptions::default() };
    match OffsetIndex::open(index.path(), &write) {
        Err(Error::Locked { path, .. }) => assert_eq!(path, **index.path()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn negative_offsets_are_below_the_base() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("100.index");
    fs::write(&path, hex("fffffff600000010")).unwrap();
    let index = OffsetIndex::open(&path, &IndexOptions { check: Check::Trust, ..IndexOptions::default() }).unwrap();
    assert_eq!(pair(index.lookup(100)), (90, 16));
    assert!(matches!(index.sanity_check(), Err(Error::Corrupt { offset: 0, .. })));
    assert!(OffsetIndex::open(&path, &IndexOptions::default()).unwrap().is_empty());

    fs::write(&path, hex("8000000000000010")).unwrap();
    let index = OffsetIndex::open(&path, &IndexOptions { check: Check::Trust, ..IndexOptions::default() }).unwrap();
    let lowest = 100 + i64::from(i32::MIN);
    assert_eq!(index.ranks(&[i64::MIN, lowest - 1, lowest]), [0, 0, 1]);
}
