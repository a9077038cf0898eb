//! Entries with and without a message, and keys without an entry.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};

use super::*;
use crate::hash_index::{CreateOptions, Geometry, key_hash};

/// Messages of topic T as offset in the log, keys and tags.
fn messages(rows: &[(i64, &str, Option<&str>)]) -> RecordBatch {
    let count = rows.len();
    let times: TimestampMillisecondArray = (0..count).map(|_| Some(1_000)).collect();
    RecordBatch::try_from_iter([
        ("topic", Arc::new(StringArray::from(vec!["T"; count])) as ArrayRef),
        ("phy_offset", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)))),
        ("store_timestamp", Arc::new(times)),
        ("sys_flag", Arc::new(Int32Array::from(vec![0; count]))),
        ("uniq_key", Arc::new(StringArray::from(vec![None::<&str>; count]))),
        ("keys", Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.1)))),
        ("tags", Arc::new(rows.iter().map(|row| row.2).collect::<StringArray>())),
    ])
    .unwrap()
}

/// An index file with entries of keys of topic T.
fn file(path: &Path, entries: &[(&str, i64)]) -> Arc<IndexFile> {
    let options = CreateOptions::new(Geometry::new(8, 64).unwrap());
    let file = IndexFile::create(path, options).unwrap();
    for (key, offset) in entries {
        assert!(file.put_key(&format!("T#{key}"), *offset, 1_000).unwrap());
    }
    Arc::new(file)
}

fn lead(key: &str, phy_offset: i64, position: u32) -> Lead {
    Lead { phy_offset, key_hash: key_hash(&format!("T#{key}")), position }
}

fn missing(check: &IndexCrossCheck, end: Option<i64>) -> Vec<(i64, String)> {
    check.missing_before(end).map(|missing| (missing.phy_offset, missing.key)).collect()
}

#[test]
fn no_entry_is_wrong_where_every_key_has_one() {
    let folder = tempfile::tempdir().unwrap();
    // One key occurs twice in a message, and the entries of one message are in two files.
    let files = [
        file(&folder.path().join("1"), &[("old", 0), ("a", 100), ("b", 100), ("b", 100), ("c", 200)]),
        file(&folder.path().join("2"), &[("d", 200), ("e", 300), ("T#tag", 300)]),
    ];
    let mut check = IndexCrossCheck::new(files, false, 100).unwrap();
    assert_eq!(check.check(&messages(&[(100, "a b b", None), (200, "c d", Some("no"))])).unwrap(), []);
    assert_eq!(check.check(&messages(&[(300, "e", Some("tag"))])).unwrap(), []);
    assert_eq!((check.followed(), missing(&check, None)), (7, Vec::new()));
    assert_eq!((check.rest(0, 9).unwrap(), check.rest(1, 9).unwrap()), (Vec::new(), Vec::new()));
}

#[test]
fn wrong_entries_and_missing_keys_are_returned() {
    let folder = tempfile::tempdir().unwrap();
    let entries = [("a", 100), ("wrong", 100), ("b", 150), ("c", 300), ("d", 200), ("e", 900), ("f", 400)];
    let mut check = IndexCrossCheck::new([file(&folder.path().join("1"), &entries)], true, 0).unwrap();
    let odd = check.check(&messages(&[(100, "a", None), (200, "d", Some("t")), (250, "", None)])).unwrap();
    assert_eq!(odd, [(0, lead("wrong", 100, 2)), (0, lead("b", 150, 3))]);
    // Entries of one message are sorted by hash.
    assert_eq!(missing(&check, None), [(200, "d".to_owned()), (200, "T#t".to_owned())]);
    assert_eq!(check.check(&messages(&[(300, "c", None), (400, "f g", None)])).unwrap(), []);
    assert_eq!(missing(&check, Some(300)).len(), 2);
    assert_eq!((check.missing_from(300), check.missing_from(401)), (1, 0));
    // Late entries are returned in steps, and their key is no longer missing.
    assert_eq!(check.rest(0, 1).unwrap(), [lead("d", 200, 5)]);
    assert_eq!(check.rest(0, 1).unwrap(), [lead("e", 900, 6)]);
    assert_eq!(check.rest(0, 1).unwrap(), []);
    assert_eq!(missing(&check, None), [(200, "T#t".to_owned()), (400, "g".to_owned())]);
    assert_eq!(check.followed(), 7);
}
