//! Index entries of each kind of message, and the keys that a message carries.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{
    ArrayRef, Int32Array, Int64Array, LargeStringArray, RecordBatch, StringArray, StringViewArray,
    TimestampMicrosecondArray, TimestampMillisecondArray,
};

use super::{KeyTexts, index_entries};

type Texts = Vec<Option<&'static str>>;

fn batch(phy_offsets: &[i64], sys_flags: &[i32], uniq_keys: Texts, keys: Texts, tags: Texts) -> RecordBatch {
    let topics: Vec<String> = (0..phy_offsets.len()).map(|row| format!("T{row}")).collect();
    let times: TimestampMillisecondArray = phy_offsets.iter().map(|offset| Some(offset + 1000)).collect();
    RecordBatch::try_from_iter([
        ("keys", Arc::new(StringArray::from(keys)) as ArrayRef),
        ("uniq_key", Arc::new(StringArray::from(uniq_keys))),
        ("tags", Arc::new(StringArray::from(tags))),
        ("sys_flag", Arc::new(Int32Array::from(sys_flags.to_vec()))),
        ("store_timestamp", Arc::new(times.with_timezone("UTC"))),
        ("phy_offset", Arc::new(Int64Array::from(phy_offsets.to_vec()))),
        ("topic", Arc::new(StringArray::from(topics))),
    ])
    .unwrap()
}

/// Row and key of each entry; the other columns must follow from the row.
fn entries(messages: &RecordBatch, end: i64, tags: bool) -> Vec<(i32, String)> {
    let made = index_entries(messages, end, tags).unwrap();
    let names: Vec<String> = made.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["topic", "key", "phy_offset", "store_timestamp", "row"]);
    let offsets = messages.column_by_name("phy_offset").unwrap().as_primitive::<Int64Type>();
    (0..made.num_rows())
        .map(|entry| {
            let row = made.column(4).as_primitive::<Int32Type>().value(entry);
            let offset = offsets.value(usize::try_from(row).unwrap());
            assert_eq!(made.column(0).as_string::<i32>().value(entry), format!("T{row}"));
            assert_eq!(made.column(2).as_primitive::<Int64Type>().value(entry), offset);
            assert_eq!(made.column(3).as_primitive::<TimestampMillisecondType>().value(entry), offset + 1000);
            (row, made.column(1).as_string::<i32>().value(entry).to_owned())
        })
        .collect()
}

fn wanted(entries: &[(i32, &str)]) -> Vec<(i32, String)> {
    entries.iter().map(|(row, key)| (*row, (*key).to_owned())).collect()
}

#[test]
fn unique_key_comes_first_then_keys_then_tags() {
    let messages = batch(
        &[0, 10, 20, 30],
        &[0; 4],
        vec![Some("U0"), None, Some("U2"), None],
        vec![Some("a  b a"), Some(" c\u{3000}d\te,f "), None, None],
        vec![Some("t1||t2"), None, Some("x y"), Some("")],
    );
    let plain = [(0, "U0"), (0, "a"), (0, "b"), (0, "a"), (1, "c\u{3000}d\te,f"), (2, "U2")];
    assert_eq!(entries(&messages, 0, false), wanted(&plain));
    let mut tagged = plain.to_vec();
    tagged.insert(4, (0, "T#t1||t2"));
    tagged.push((2, "T#x y"));
    assert_eq!(entries(&messages, 0, true), wanted(&tagged));
}

#[test]
fn rolled_back_messages_give_nothing() {
    let keys = |_| Some("k");
    let flags = [0x0, 0x4, 0x8, 0xc, 0x3c, 0xd, 0xf7];
    let messages = batch(&[0, 1, 2, 3, 4, 5, 6], &flags, vec![None; 7], (0..7).map(keys).collect(), vec![None; 7]);
    assert_eq!(entries(&messages, 0, false), wanted(&[(0, "k"), (1, "k"), (2, "k"), (6, "k")]));
}

#[test]
fn what_lies_before_the_end_is_left_out() {
    let key = vec![Some("k"); 6];
    let messages = batch(&[10, 20, 20, 15, 30, 29], &[0; 6], vec![None; 6], key, vec![None; 6]);
    // A message at the bound is indexed again. The bound moves with every message that has an entry.
    assert_eq!(entries(&messages, 20, false), wanted(&[(1, "k"), (2, "k"), (4, "k")]));
    assert_eq!(entries(&messages, -5, false), wanted(&[(0, "k"), (1, "k"), (2, "k"), (4, "k")]));
}

#[test]
fn messages_without_entries_do_not_move_the_end() {
    let messages = batch(&[50, 10], &[0; 2], vec![None; 2], vec![Some("  "), Some("k")], vec![Some("t"), None]);
    assert_eq!(entries(&messages, 0, false), wanted(&[(1, "k")]));
    assert_eq!(entries(&messages, 0, true), wanted(&[(0, "T#t")]));
    let messages = batch(&[50, 10], &[0xc, 0], vec![None; 2], vec![Some("k"); 2], vec![None; 2]);
    assert_eq!(entries(&messages, 0, false), wanted(&[(1, "k")]));
}

#[test]
fn an_empty_unique_key_is_indexed() {
    let messages = batch(&[0], &[0], vec![Some("")], vec![Some("")], vec![Some("")]);
    assert_eq!(entries(&messages, 0, true), wanted(&[(0, "")]));
}

#[test]
fn other_types_of_columns_are_taken() {
    let messages = RecordBatch::try_from_iter([
        ("topic", Arc::new(LargeStringArray::from(vec!["T0"])) as ArrayRef),
        ("phy_offset", Arc::new(Int64Array::from(vec![5]))),
        ("store_timestamp", Arc::new(TimestampMicrosecondArray::from(vec![1_005_999]))),
        ("sys_flag", Arc::new(Int32Array::from(vec![0]))),
        ("uniq_key", Arc::new(arrow_array::NullArray::new(1))),
        ("keys", Arc::new(StringViewArray::from(vec!["k"]))),
    ])
    .unwrap();
    assert_eq!(entries(&messages, 0, false), wanted(&[(0, "k")]));
    let error = index_entries(&messages, 0, true).unwrap_err();
    assert_eq!(error.to_string(), "column tags is missing");
}

#[test]
fn missing_values_are_errors() {
    let whole = batch(&[5], &[0], vec![Some("U")], vec![None], vec![None]);
    let names = ["topic", "phy_offset", "sys_flag", "store_timestamp", "uniq_key", "keys"];
    let column = |name: &str| Arc::clone(whole.column_by_name(name).unwrap());
    for (missing, null) in [
        ("topic", Arc::new(StringArray::from(vec![None::<&str>])) as ArrayRef),
        ("phy_offset", Arc::new(Int64Array::from(vec![None]))),
        ("sys_flag", Arc::new(Int32Array::from(vec![None]))),
        ("store_timestamp", Arc::new(TimestampMillisecondArray::from(vec![None]))),
    ] {
        let columns = names.map(|name| (name, if name == missing { Arc::clone(&null) } else { column(name) }));
        let error = index_entries(&RecordBatch::try_from_iter(columns).unwrap(), 0, false).unwrap_err();
        assert_eq!(error.to_string(), format!("column {missing}: row 0 is null"));
        let others = names.into_iter().filter(|name| *name != missing).map(|name| (name, column(name)));
        let error = index_entries(&RecordBatch::try_from_iter(others).unwrap(), 0, false).unwrap_err();
        assert_eq!(error.to_string(), format!("column {missing} is missing"));
    }
}

#[test]
fn a_message_carries_its_unique_key_each_word_of_keys_and_indexed_tags() {
    let texts = KeyTexts::of_properties(b"KEYS\x01a  b\x02UNIQ_KEY\x01u v\x02TAGS\x01x y\x02");
    assert_eq!(texts.plain_keys().collect::<Vec<_>>(), ["u v", "a", "b"]);
    for key in ["u v", "a", "b"] {
        assert!(texts.carries(key, false) && texts.carries(key, true), "{key}");
    }
    for key in ["", " ", "a  b", "u", "x y", "T#x"] {
        assert!(!texts.carries(key, true), "{key}");
    }
    assert!(texts.carries("T#x y", true) && !texts.carries("T#x y", false));
    assert!(!KeyTexts::of_properties(b"").carries("T#", true));
    let broken = KeyTexts::of_properties(b"KEYS\x01k\xed\xa0\x80\x02");
    assert!(broken.carries("k\u{fffd}", false));
    let hash = crate::hash_index::key_hash("T#T#x y");
    assert!(texts.has_hash("T", hash, true) && !texts.has_hash("T", hash, false));
}
