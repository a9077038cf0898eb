//! Compares the units of a store with the messages of a scan.

use std::fs;
use std::path::{Path, PathBuf};

use arrow_array::{ArrayRef, Int32Array, Int64Array, StringArray};

use super::*;
use crate::rocketmq::commit_log;
use crate::rocketmq::file_name;

const SIZE: i32 = 100;

/// A store in a directory of its own, with an empty log.
fn store() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("commitlog")).unwrap();
    root
}

/// Writes one file of units, given as offset in the log and tags code, of messages of [`SIZE`] bytes in queue 0 of topic `T`.
fn queue(root: &Path, units: &[(i64, i64)]) -> PathBuf {
    let units = units.iter().map(|&(phy_offset, tags_code)| Unit { phy_offset, size: SIZE, tags_code });
    write_queue(&root.join("consumequeue/T/0"), units.flat_map(Unit::encode).collect())
}

fn write_queue(directory: &Path, bytes: Vec<u8>) -> PathBuf {
    fs::create_dir_all(directory).unwrap();
    let path = directory.join(file_name::of_offset(0));
    fs::write(&path, bytes).unwrap();
    path
}

/// Messages as topic, queue offset, offset in the log, flag and tags.
fn messages(rows: &[(&str, i64, i64, i32, Option<&str>)]) -> RecordBatch {
    let count = rows.len();
    RecordBatch::try_from_iter([
        ("topic", Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.0))) as ArrayRef),
        ("queue_id", Arc::new(Int32Array::from(vec![0; count]))),
        ("queue_offset", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1)))),
        ("phy_offset", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.2)))),
        ("store_size", Arc::new(Int32Array::from(vec![SIZE; count]))),
        ("sys_flag", Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.3)))),
        ("tags", Arc::new(rows.iter().map(|row| row.4).collect::<StringArray>())),
    ])
    .unwrap()
}

fn cross_check(root: &Path, state: StoreState) -> CrossCheck {
    let log = Arc::new(CommitLog::open(root.join("commitlog"), commit_log::Options::default()).unwrap());
    CrossCheck::open(&root.into(), log, &Options::default(), state).unwrap()
}

fn findings(report: &Report) -> Vec<(&str, u64, &str, &str)> {
    let row = |found: &report::Finding| (found.kind.word(), found.offset);
    let texts = report.findings.iter().map(|found| (found.expected.as_str(), found.found.as_str()));
    report
        .findings
        .iter()
        .map(row)
        .zip(texts)
        .map(|((kind, at), (expected, found))| (kind, at, expected, found))
        .collect()
}

#[test]
fn messages_meet_their_units_in_any_order_of_asking() {
    let root = store();
    // "a" hashes to 97. Half messages and those that were rolled back have no unit.
    queue(root.path(), &[(0, 97), (100, 0), (300, 0)]);
    let mut check = cross_check(root.path(), StoreState::default());
    let batch = messages(&[
        ("T", 0, 0, 0, Some("a")),
        ("T", 1, 100, 8, None),
        ("T", 7, 200, 4, None),
        ("T", 9, 400, 12, None),
        ("T", 2, 300, 0, None),
    ]);
    check.check(&batch).unwrap();
    assert_eq!((check.queues(), check.queues[0].matched, check.missing.len()), (1, 3, 0));
    let units = [1, 3].map(|at| check.queues[0].unit(at, 8).unwrap());
    assert_eq!(units, [Some(Unit { phy_offset: 100, size: SIZE, tags_code: 0 }), None]);
    let report = check.finish().unwrap();
    assert_eq!(findings(&report), []);
    assert_eq!(report.checked, [("files", 1), ("units", 3), ("queues", 1), ("units_followed", 3)]);
}

#[test]
fn messages_without_their_unit_come_in_runs() {
    let root = store();
    queue(root.path(), &[(0, 0), (400, 0)]);
    let topics = ["T", "U"].map(str::to_owned).into();
    let mut check = cross_check(root.path(), StoreState { is_unclean: true, topics, ..StoreState::default() });
    let batch = messages(&[
        ("T", 0, 0, 0, None),
        ("U", 0, 50, 0, None),
        ("T", 1, 100, 0, None),
        ("T", 2, 200, 0, None),
        ("gone", 0, 250, 0, None),
        ("T", 4, 300, 0, None),
        ("T", 5, 500, 0, None),
    ]);
    check.check(&batch).unwrap();
    let runs: Vec<_> =
        check.missing.iter().flatten().map(|run| (&*run.topic, run.begin, run.end, run.phy_offset)).collect();
    assert_eq!(runs, [("U", 0, 1, 50), ("T", 1, 3, 100), ("T", 4, 5, 300)]);
    let report = check.finish().unwrap();
    // The log is empty, so the units refer to offsets after its end.
    let ends = |at: u64, offset| {
        let expected = format!("message {at} of 'T', queue 0, size 100, at offset {offset}");
        ("queue-message".to_owned(), 20 * at, expected, "the end of the log".to_owned())
    };
    let missing = |offset, expected: &str, found: &str| {
        ("queue-missing".to_owned(), offset, expected.to_owned(), found.to_owned())
    };
    let expected = [
        ends(0, 0),
        ends(1, 400),
        missing(0, "unit 0 for a message of the log, from offset 50", "no queue"),
        missing(20, "units 1 to 2 for 2 messages of the log, from offset 100", "a unit for offset 400, size 100"),
        missing(80, "unit 4 for a message of the log, from offset 300", "nothing"),
    ];
    let found = findings(&report).into_iter();
    let found: Vec<_> = found.map(|(kind, at, e, f)| (kind.to_owned(), at, e.to_owned(), f.to_owned())).collect();
    assert_eq!(found, expected);
    assert!(report.checked.contains(&("messages_without_unit", 4)));
    assert_eq!(report.checked[5..], [("messages_not_dispatched", 1), ("messages_of_deleted_topics", 1)]);
}

#[test]
fn tags_codes_are_compared_and_addresses_resolved() {
    let root = store();
    let address = |at: i64| at.wrapping_add(i64::MIN);
    queue(root.path(), &[(0, 5), (100, address(0)), (200, address(20)), (300, address(4_000))]);
    let rows = [("T", 0, 0, 0, Some("a")), ("T", 1, 100, 0, Some("a")), ("T", 2, 200, 0, None), ("T", 3, 300, 0, None)];
    let wrong = || {
        let mut check = cross_check(root.path(), StoreState::default());
        check.check(&messages(&rows)).unwrap();
        check.report.findings.iter().map(|found| (found.offset, found.expected.clone(), found.found.clone())).collect()
    };
    let row = |at: u64, tags: &str, found: i64| {
        (20 * at, format!("tags code {tags}, for the message at {}", 100 * at), found.to_string())
    };
    let first = row(0, "97 of tags 'a'", 5);
    let last = [row(2, "0 of no tags", address(20)), row(3, "0 of no tags", address(4_000))];
    // Without extension files no address refers to a unit.
    let all: Vec<_> = [first.clone(), row(1, "97 of tags 'a'", address(0))].into_iter().chain(last.clone()).collect();
    let found: Vec<(u64, String, String)> = wrong();
    assert_eq!(found, all);
    let unit = |code: i64| [&20i16.to_be_bytes()[..], &code.to_be_bytes(), &[0; 8], &[0; 2]].concat();
    write_queue(&root.path().join("consumequeue_ext/T/0"), [unit(97), unit(1)].concat());
    let found: Vec<(u64, String, String)> = wrong();
    assert_eq!(found, [first].into_iter().chain(last).collect::<Vec<_>>());
}

#[test]
fn of_units_with_one_offset_the_last_counts() {
    let root = store();
    let unit = |phy_offset, base_offset, messages| BatchUnit {
        unit: Unit { phy_offset, size: SIZE, tags_code: 0 },
        store_timestamp: 0,
        base_offset,
        messages,
    };
    let units = [unit(0, 0, 3), unit(100, 3, 2), unit(200, 3, 2), unit(300, 5, 1)];
    let bytes: Vec<u8> = units.into_iter().flat_map(BatchUnit::encode).collect();
    write_queue(&root.path().join("batchconsumequeue/T/0"), bytes);
    let mut check = cross_check(root.path(), StoreState::default());
    let found = [0, 1, 3, 5].map(|offset| check.queues[0].unit(offset, 8).unwrap().map(|unit| unit.phy_offset));
    assert_eq!(found, [Some(0), None, Some(200), Some(300)]);
    // A unit that ends in the next step is counted once.
    let report = check.finish().unwrap();
    assert!(report.checked.contains(&("units_followed", 3)), "{:?}", report.checked);
}

#[test]
fn a_queue_without_files_and_a_database_are_no_queues() {
    let root = store();
    fs::create_dir_all(root.path().join("consumequeue/T/0")).unwrap();
    let mut check = cross_check(root.path(), StoreState::default());
    check.check(&messages(&[("T", 0, 0, 0, None)])).unwrap();
    assert_eq!((check.queues(), check.missing.len()), (0, 0));
    queue(root.path(), &[(0, 0)]);
    fs::write(root.path().join("consumequeue/CURRENT"), b"").unwrap();
    assert_eq!(cross_check(root.path(), StoreState::default()).queues(), 0);
}
