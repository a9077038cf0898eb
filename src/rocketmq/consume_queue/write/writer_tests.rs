use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};

use super::{ConsumeQueueWriter, WriterOptions};
use crate::rocketmq::commit_log::PropertyMap;
use crate::rocketmq::commit_log::frame::INNER_BATCH;
use crate::rocketmq::consume_queue::DelayLevels;

const SIZE: i64 = 100;
const MESSAGES: i64 = 36;

/// Messages of three topics by turns: of one with two light queues, of one that is batched, and of one whose half messages have
/// no unit.
fn messages(begin: i64) -> RecordBatch {
    let rows: Vec<i64> = (begin..MESSAGES).collect();
    let topic = |row: i64| ["plain", "batched", "half"][usize::try_from(row % 3).unwrap()];
    let count = rows.len();
    let mut properties = PropertyMap::default();
    let mut sys_flags = Vec::new();
    for &row in &rows {
        let turn = row / 3;
        let texts = match topic(row) {
            "plain" => vec![
                ("INNER_MULTI_DISPATCH", "%LMQ%a,other".to_owned()),
                ("INNER_MULTI_QUEUE_OFFSET", format!("{turn},{turn}")),
            ],
            "batched" => vec![("INNER_BASE", (3 * turn).to_string()), ("INNER_NUM", "3".to_owned())],
            _ => vec![],
        };
        sys_flags.push(match topic(row) {
            "batched" => INNER_BATCH,
            "half" if turn % 2 == 0 => 4,
            _ => 0,
        });
        for (name, value) in texts {
            properties.push(name, Some(&value));
        }
        properties.end_row(true);
    }
    let int64s = |value: &dyn Fn(i64) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|&row| value(row))))
    };
    RecordBatch::try_from_iter([
        ("topic", Arc::new(rows.iter().map(|&row| Some(topic(row))).collect::<StringArray>()) as ArrayRef),
        ("queue_id", Arc::new(Int32Array::from(vec![0; count]))),
        ("queue_offset", int64s(&|row| if topic(row) == "half" { row / 6 } else { row / 3 })),
        ("phy_offset", int64s(&|row| row * SIZE)),
        ("store_timestamp", int64s(&|row| 1_700_000_000_000 + row)),
        ("tags", Arc::new(rows.iter().map(|_| Some("TagA")).collect::<StringArray>())),
        ("properties", Arc::new(properties.finish())),
        ("sys_flag", Arc::new(Int32Array::from(sys_flags))),
        ("store_size", Arc::new(Int32Array::from_value(100, count))),
    ])
    .unwrap()
}

fn options() -> WriterOptions {
    WriterOptions {
        file_size: Some(90),
        batch_file_size: Some(100),
        delay_levels: DelayLevels::parse(DelayLevels::DEFAULT).unwrap(),
        multi_dispatch: true,
        extension_file_size: Some(70),
    }
}

fn files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(root).unwrap().display().to_string(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn queues_that_are_cut_anywhere_and_written_on_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let mut writer = ConsumeQueueWriter::create(root, options()).unwrap();
    let units = writer.append_batch(&messages(0)).unwrap();
    assert_eq!(units, 12 * 3 + 12 + 6);
    let checked = writer.finish().unwrap();
    assert_eq!(checked.findings, []);
    let whole = files(root);
    assert!(whole.values().all(|file| [100, 138, 70].contains(&file.len())));
    for folder in ["consumequeue/plain", "consumequeue/%LMQ%a", "batchconsumequeue/batched", "consumequeue_ext/half"] {
        assert!(whole.keys().filter(|name| name.starts_with(folder)).count() > 1, "{folder}");
    }
    for begin in (0..=MESSAGES).rev() {
        // The sizes are those of the existing files. Without files they must be passed again.
        let given =
            if begin == 0 { options() } else { WriterOptions { file_size: None, batch_file_size: None, ..options() } };
        let mut writer = ConsumeQueueWriter::open(root, begin * SIZE, None, given, false).unwrap();
        assert_eq!(writer.checked().findings, []);
        assert!(writer.log_end() <= begin * SIZE);
        assert_eq!(writer.dispatch_offset(), writer.log_end());
        let offsets = writer.queue_offsets();
        let offset = |topic: &str| {
            let row = offsets.column(0).as_string::<i32>().iter().position(|name| name == Some(topic))?;
            Some(offsets.column(2).as_primitive::<Int64Type>().value(row))
        };
        assert_eq!(offset("plain").unwrap_or(0), (begin + 2) / 3);
        assert_eq!(offset("batched").unwrap_or(0), (begin + 1) / 3 * 3);
        // Existing messages are skipped.
        for from in [(begin - 7).max(0), begin] {
            writer.append_batch(&messages(from)).unwrap();
        }
        writer.flush(begin % 2 == 0).unwrap();
        assert_eq!(writer.log_end(), MESSAGES * SIZE);
        assert_eq!(writer.finish().unwrap().findings, []);
        assert_eq!(files(root), whole, "{begin}");
    }
}

#[test]
fn queues_that_lost_extension_units_are_written_again_from_there() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let mut writer = ConsumeQueueWriter::create(root, options()).unwrap();
    writer.append_batch(&messages(0)).unwrap();
    writer.finish().unwrap();
    let whole = files(root);
    let extension = root.join("consumequeue_ext/plain/0");
    let lost = |number: u64| {
        let path = extension.join(format!("{:020}", number * 70));
        fs::write(path, [0; 70]).unwrap();
    };
    for from in [3, 2, 0, 4] {
        (from..4).for_each(lost);
        if from == 4 {
            fs::remove_dir_all(root.join("consumequeue_ext")).unwrap();
        }
        let mut writer = ConsumeQueueWriter::open(root, MESSAGES * SIZE, None, options(), false).unwrap();
        let kinds: Vec<_> = writer.checked().findings.iter().map(|finding| finding.kind).collect();
        assert!(!kinds.is_empty() && kinds.iter().all(|kind| kind.word() == "queue-tags"), "{kinds:?}");
        writer.append_batch(&messages((writer.dispatch_offset().max(0)) / SIZE)).unwrap();
        writer.finish().unwrap();
        assert_eq!(files(root), whole, "{from}");
    }
}

#[test]
fn extension_units_reach_their_files_before_the_units_that_lead_to_them() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let mut writer = ConsumeQueueWriter::create(root, options()).unwrap();
    writer.append_batch(&messages(0)).unwrap();
    fs::write(root.join("consumequeue_ext"), b"in the way").unwrap();
    assert!(writer.flush(false).is_err());
    assert!(files(&root.join("consumequeue")).is_empty());
    fs::remove_file(root.join("consumequeue_ext")).unwrap();
    writer.finish().unwrap();
    let other = tempfile::tempdir().unwrap();
    let mut writer = ConsumeQueueWriter::create(other.path(), options()).unwrap();
    writer.append_batch(&messages(0)).unwrap();
    writer.finish().unwrap();
    assert_eq!(files(root), files(other.path()));
}
