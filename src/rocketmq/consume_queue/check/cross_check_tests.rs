//! Which messages have their unit, and what is said of the others.

use std::collections::HashSet;
use std::fs;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};

use super::*;
use crate::rocketmq::file_name;

const SIZE: i32 = 100;

/// Writes one file of units that lead to messages of [`SIZE`] bytes.
fn queue(directory: &Path, units: &[(i64, i64)]) {
    fs::create_dir_all(directory).unwrap();
    let units = units.iter().map(|&(phy_offset, tags_code)| Unit { phy_offset, size: SIZE, tags_code });
    let bytes: Vec<u8> = units.flat_map(Unit::encode).collect();
    fs::write(directory.join(file_name::of_offset(0)), bytes).unwrap();
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

fn follower(directory: &Path, dispatched: Option<i64>, topics: &[&str]) -> QueueFollower {
    let topics: HashSet<String> = topics.iter().map(|topic| (*topic).to_owned()).collect();
    let mut follower = QueueFollower::new(dispatched, topics);
    assert_eq!(follower.add("T", 0, directory, Options::default()), 0);
    follower
}

#[test]
fn messages_meet_their_units_in_any_order_of_asking() {
    let folder = tempfile::tempdir().unwrap();
    // "a" hashes to 97. Half messages and those that were rolled back have no unit.
    queue(folder.path(), &[(0, 97), (100, 0), (300, 0)]);
    let mut follower = follower(folder.path(), None, &[]);
    let batch = messages(&[
        ("T", 0, 0, 0, Some("a")),
        ("T", 1, 100, 8, None),
        ("T", 7, 200, 4, None),
        ("T", 2, 300, 0, None),
        ("T", 9, 400, 12, None),
        ("T", 0, 0, 0, Some("a")),
    ]);
    assert_eq!(follower.follow(&batch).unwrap(), []);
    assert_eq!(follower.matched(0), 4);
    assert_eq!(follower.missing().count(), 0);
    assert_eq!(follower.unit(0, 1).unwrap(), Some(Unit { phy_offset: 100, size: SIZE, tags_code: 0 }));
    assert_eq!(follower.unit(0, 3).unwrap(), None);
    assert_eq!(follower.unit(7, 0).unwrap(), None);
}

#[test]
fn messages_without_their_unit_come_in_runs() {
    let folder = tempfile::tempdir().unwrap();
    queue(folder.path(), &[(0, 0), (999, 0)]);
    let mut follower = follower(folder.path(), Some(500), &["T", "U"]);
    let batch = messages(&[
        ("T", 0, 0, 0, None),
        ("U", 0, 50, 0, None),
        ("T", 1, 100, 0, None),
        ("T", 2, 200, 0, None),
        ("gone", 0, 250, 0, None),
        ("T", 4, 300, 0, None),
        ("T", 5, 500, 0, None),
    ]);
    assert_eq!(follower.follow(&batch).unwrap(), []);
    let runs: Vec<_> = follower.missing().map(|run| (run.topic.as_str(), run.begin, run.end, run.phy_offset)).collect();
    assert_eq!(runs, [("U", 0, 1, 50), ("T", 1, 3, 100), ("T", 4, 5, 300)]);
    assert_eq!((follower.undispatched(), follower.without_queue(), follower.matched(0)), (1, 1, 1));
}

#[test]
fn tags_codes_are_compared_and_addresses_followed() {
    let folder = tempfile::tempdir().unwrap();
    let address = |at: i64| at.wrapping_add(i64::MIN);
    queue(folder.path(), &[(0, 5), (100, address(0)), (200, address(20)), (300, address(4_000))]);
    let rows = [("T", 0, 0, 0, Some("a")), ("T", 1, 100, 0, Some("a")), ("T", 2, 200, 0, None), ("T", 3, 300, 0, None)];
    let odd = |extension: Option<PathBuf>| {
        let mut follower = QueueFollower::new(None, HashSet::new());
        follower.add("T", 0, folder.path(), Options { extension, ..Options::default() });
        let odd = follower.follow(&messages(&rows)).unwrap();
        odd.into_iter().map(|odd| (odd.row, odd.tags, odd.expected, odd.found)).collect::<Vec<_>>()
    };
    let tags = || Some("a".to_owned());
    let first = (0, tags(), 97, 5);
    // Without the extension files no address leads anywhere.
    assert_eq!(
        odd(None),
        [first.clone(), (1, tags(), 97, address(0)), (2, None, 0, address(20)), (3, None, 0, address(4_000))]
    );
    let extension = folder.path().join("ext");
    fs::create_dir(&extension).unwrap();
    let unit = |code: i64| [&20i16.to_be_bytes()[..], &code.to_be_bytes(), &[0; 8], &[0; 2]].concat();
    fs::write(extension.join(file_name::of_offset(0)), [unit(97), unit(1)].concat()).unwrap();
    assert_eq!(odd(Some(extension)), [first, (2, None, 0, address(20)), (3, None, 0, address(4_000))]);
}

#[test]
fn of_units_with_one_offset_the_last_counts() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("batchconsumequeue/T/0");
    fs::create_dir_all(&directory).unwrap();
    let unit = |phy_offset, base_offset, messages| BatchUnit {
        unit: Unit { phy_offset, size: SIZE, tags_code: 0 },
        store_timestamp: 0,
        base_offset,
        messages,
    };
    let units = [unit(0, 0, 3), unit(100, 3, 2), unit(200, 3, 2), unit(300, 5, 1)];
    let bytes: Vec<u8> = units.into_iter().flat_map(BatchUnit::encode).collect();
    fs::write(directory.join(file_name::of_offset(0)), bytes).unwrap();
    let mut follower = follower(&directory, None, &[]);
    let found = [0, 1, 3, 5].map(|offset| follower.unit(0, offset).unwrap().map(|unit| unit.phy_offset));
    assert_eq!(found, [Some(0), None, Some(200), Some(300)]);
}
