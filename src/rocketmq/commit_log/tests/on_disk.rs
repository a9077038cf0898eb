//! Logs in a directory: listing, look-ups, and the end of the log.

use std::fs;
use std::path::Path;

use arrow_array::Array;
use arrow_array::cast::AsArray;

use super::encoder::{TestLog, TestMessage};
use super::small_log;
use crate::batch_size::BatchSize;
use crate::io::Access;
use crate::rocketmq::commit_log::decode::columns::Column;
use crate::rocketmq::commit_log::{AtDamage, Bodies, CommitLog, Options, ScanOptions};
use crate::rocketmq::file_name;

fn write(directory: &Path, log: &TestLog) {
    for (start, bytes) in &log.files {
        fs::write(directory.join(file_name::of_offset(*start)), bytes).unwrap();
    }
}

fn open(directory: &Path) -> CommitLog {
    CommitLog::open(directory, Options::default()).unwrap()
}

fn rows(log: &CommitLog) -> usize {
    log.scan(&ScanOptions::default()).unwrap().map(|batch| batch.unwrap().num_rows()).sum()
}

#[test]
fn strays_are_not_listed() {
    let directory = tempfile::tempdir().unwrap();
    let log = small_log();
    write(directory.path(), &log);
    fs::write(directory.path().join(".DS_Store"), b"stray").unwrap();
    fs::write(directory.path().join("123"), b"stray").unwrap();
    fs::create_dir(directory.path().join(file_name::of_offset(77_000))).unwrap();
    let read = open(directory.path());
    let starts: Vec<u64> = read.files().unwrap().iter().map(|file| file.start).collect();
    assert_eq!(starts, log.files.iter().map(|(start, _)| *start).collect::<Vec<_>>());
    assert_eq!(read.file_size().unwrap(), 500);
    assert_eq!(read.min_offset().unwrap(), 500);
    assert_eq!(read.max_offset().unwrap(), log.end);
    assert_eq!(rows(&read), log.offsets.len());
}

#[test]
fn an_empty_directory_is_an_empty_log() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    assert_eq!((log.min_offset().unwrap(), log.max_offset().unwrap(), log.file_size().unwrap()), (0, 0, 0));
    assert_eq!(rows(&log), 0);
    assert!(log.message(0).unwrap().is_none());
    assert!(CommitLog::open(directory.path().join("none"), Options::default()).is_err());
}

#[test]
fn every_offset_has_its_message_or_none() {
    let directory = tempfile::tempdir().unwrap();
    let log = small_log();
    write(directory.path(), &log);
    for access in [Access::Auto, Access::Mmap, Access::Pread] {
        let read = CommitLog::open(directory.path(), Options { access, ..Options::default() }).unwrap();
        let all: Vec<u64> = (0..3000).chain([u64::MAX, i64::MAX.unsigned_abs()]).collect();
        for offset in &all {
            let message = read.message(*offset).unwrap();
            assert_eq!(message.is_some(), log.offsets.contains(offset), "{offset}");
            if let Some(message) = message {
                assert_eq!((message.phy_offset, message.topic.as_str()), (*offset, "Topic"));
                assert_eq!(message.property("KEYS"), Some("a b"));
            }
        }
        let asked: Vec<Option<i64>> = (-5..3000).rev().map(Some).chain([None]).collect();
        let batch = read.messages(asked.iter().copied(), &[Column::PhyOffset, Column::Body], Bodies::Decoded).unwrap();
        let (offsets, bodies) = (batch.column(0), batch.column(1));
        let offsets = offsets.as_primitive::<arrow_array::types::Int64Type>();
        assert!(offsets.iter().eq(asked.iter().copied()));
        for (row, offset) in asked.iter().enumerate() {
            let known = offset.and_then(|o| u64::try_from(o).ok()).is_some_and(|o| log.offsets.contains(&o));
            assert_eq!(bodies.is_valid(row), known);
        }
    }
}

#[test]
fn a_frame_inside_of_a_body_is_no_message() {
    let directory = tempfile::tempdir().unwrap();
    let inner = TestMessage::new("Inner", b"inner", &[]);
    let outer = TestMessage::new("Outer", &inner.encode(12), &[]);
    let log = TestLog::write(0, 1000, &[outer]);
    write(directory.path(), &log);
    let read = open(directory.path());
    assert!(read.message(0).unwrap().is_some());
    assert!(read.message(88).unwrap().is_none(), "it states another offset, and no walk comes there");
}

#[test]
fn a_message_that_states_a_wrong_offset_is_found_where_a_walk_comes_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = small_log();
    let second = usize::try_from(log.offsets[1] - 500).unwrap();
    log.files[0].1[second + 30] = 0xff;
    write(directory.path(), &log);
    let read = open(directory.path());
    assert!(read.message(log.offsets[1]).unwrap().is_some());
    assert_eq!(rows(&read), log.offsets.len());
}

#[test]
fn the_end_follows_a_log_that_grows() {
    let directory = tempfile::tempdir().unwrap();
    let messages: Vec<_> = (0..40).map(|i| TestMessage::new("T", format!("body {i}").as_bytes(), &[])).collect();
    let read = open(directory.path());
    for count in 0..messages.len() {
        let log = TestLog::write(0, 700, &messages[..count]);
        write(directory.path(), &log);
        assert_eq!(read.max_offset().unwrap(), log.end, "{count} messages");
        assert_eq!(read.max_offset().unwrap(), log.end);
        assert_eq!(rows(&read), count);
    }
    // The broker has truncated the log to one message.
    let log = TestLog::write(0, 700, &messages[..1]);
    for (start, _) in TestLog::write(0, 700, &messages).files.iter().skip(1) {
        fs::remove_file(directory.path().join(file_name::of_offset(*start))).unwrap();
    }
    write(directory.path(), &log);
    assert_eq!(read.max_offset().unwrap(), log.end);
}

#[test]
fn the_end_of_a_full_file_is_the_next_file_s_beginning() {
    let directory = tempfile::tempdir().unwrap();
    let log = small_log();
    let mut full = log.clone();
    let (last, _) = full.files.pop().unwrap();
    write(directory.path(), &full);
    let read = open(directory.path());
    assert_eq!(read.max_offset().unwrap(), last);
    for unwritten in [vec![], vec![0; 500]] {
        fs::write(directory.path().join(file_name::of_offset(last)), unwritten).unwrap();
        assert_eq!(read.max_offset().unwrap(), last);
    }
    fs::write(directory.path().join(file_name::of_offset(last)), vec![0xff; 500]).unwrap();
    assert_eq!(read.max_offset().unwrap(), last, "a broken first frame is the end");
}

/// The result of a scan with this many threads: offsets, the end and its reason.
fn with_threads(log: &CommitLog, scan: &ScanOptions, threads: usize) -> (Vec<i64>, Option<super::Stop>, usize) {
    let columns = vec![Column::PhyOffset, Column::Body];
    let scan = ScanOptions { columns, threads, ..scan.clone() };
    let mut reader = log.scan(&scan).unwrap();
    let mut offsets = Vec::new();
    while let Some(batch) = reader.next_batch().unwrap() {
        offsets.extend(batch.column(0).as_primitive::<arrow_array::types::Int64Type>().values().iter().copied());
    }
    (offsets, reader.stop().cloned(), reader.checked().findings.len())
}

#[test]
fn threads_give_what_one_walk_gives() {
    // Pieces of a file are 16 MiB; some messages hold copies of others, which state offsets that are true by chance.
    let directory = tempfile::tempdir().unwrap();
    let messages: Vec<TestMessage> = (0..60)
        .map(|i| {
            TestMessage::new("Topic", &vec![u8::try_from(i).unwrap(); 700_000 + 40_000 * (i % 7)], &[("KEYS", "k")])
        })
        .collect();
    let mut log = TestLog::write(0, 20 << 20, &messages);
    let copy = TestMessage::new("Topic", b"inside of another", &[]).encode(16 << 20);
    let (at, body) = (16 << 20, copy.len());
    log.files[0].1[at..at + body].copy_from_slice(&copy);
    let around = log.offsets.iter().rposition(|offset| *offset <= at as u64).unwrap();
    let begin = usize::try_from(log.offsets[around]).unwrap();
    let stored = log.files[0].1[begin + 88..begin + 88 + messages[around].body.len()].to_vec();
    let crc = crate::rocketmq::commit_log::frame::body_crc(&stored).to_be_bytes();
    log.files[0].1[begin + 8..begin + 12].copy_from_slice(&crc);
    write(directory.path(), &log);
    let read = open(directory.path());
    let all = ScanOptions::default();
    let one = with_threads(&read, &all, 1);
    assert_eq!(one.0.len(), 60);
    for threads in [2, 3, 8] {
        assert_eq!(with_threads(&read, &all, threads), one);
        for (begin, end) in [(0, 5 << 20), (log.offsets[7], log.offsets[50]), (20 << 20, u64::MAX), (3, 30 << 20)] {
            let part = ScanOptions {
                begin_phy_offset: begin,
                end_phy_offset: end,
                batch_size: BatchSize::of_rows(4),
                ..all.clone()
            };
            assert_eq!(with_threads(&read, &part, threads), with_threads(&read, &part, 1), "{begin}..{end}");
        }
    }
    // Damage ends it at the same place; a reader that is dropped ends its threads.
    let path = read.files().unwrap()[1].path.clone();
    log.files[1].1[9_000_000] ^= 1;
    fs::write(&path, &log.files[1].1).unwrap();
    let damaged = with_threads(&read, &all, 1);
    assert!(damaged.0.len() < 60 && damaged.2 == 1);
    assert_eq!(with_threads(&read, &all, 2), damaged);
    let mut dropped = read.scan(&ScanOptions { threads: 2, batch_size: BatchSize::of_rows(1), ..all }).unwrap();
    assert!(dropped.next_batch().unwrap().is_some());
}

#[test]
fn threads_continue_after_damage_as_one_walk_does() {
    // Three pieces in each of two full files.
    let directory = tempfile::tempdir().unwrap();
    let messages: Vec<TestMessage> = (0..120)
        .map(|i: u8| {
            let body = vec![i; 700_000 + 40_000 * usize::from(i % 7)];
            let mut message = TestMessage::new("Topic", &body, &[("KEYS", "k")]);
            (message.numbers[2], message.numbers[5]) = (i64::from(i), 1_000 + i64::from(i));
            message
        })
        .collect();
    let log = TestLog::write(0, 40 << 20, &messages);
    assert_eq!(log.files.len(), 3);
    write(directory.path(), &log);
    let read = open(directory.path());
    let valid = ScanOptions { at_damage: AtDamage::Skip { queue_end: 0 }, ..ScanOptions::default() };
    let same = |what: &str| {
        let ranges = [(0, u64::MAX), (log.offsets[7], log.offsets[90]), (40 << 20, u64::MAX)];
        for (begin, end) in ranges {
            let part = ScanOptions {
                begin_phy_offset: begin,
                end_phy_offset: end,
                batch_size: BatchSize::of_rows(4),
                ..valid.clone()
            };
            let one = with_threads(&read, &part, 1);
            for threads in [2, 5] {
                assert_eq!(with_threads(&read, &part, threads), one, "{what}: {begin}..{end}");
            }
        }
        let all = with_threads(&read, &valid, 2);
        (all.0.len(), all.2)
    };
    assert_eq!(same("whole"), (120, 0));
    let change = |number: usize, skip: u64, bytes: &[u8]| {
        let offset = log.offsets[number] + skip;
        let (start, file) = log.files.iter().rfind(|(start, _)| *start <= offset).unwrap();
        let at = usize::try_from(offset - start).unwrap();
        let mut file = file.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        fs::write(directory.path().join(file_name::of_offset(*start)), file).unwrap();
    };
    change(30, 500_000, &[0xff]);
    assert_eq!(same("a body"), (119, 1));
    change(119, 500_000, &[0xff]);
    assert_eq!(same("two bodies"), (118, 2));
    change(30, 0, &[0; 64]);
    assert_eq!(same("unwritten space"), (118, 2));
    // The writer completes a batch with its first 8 bytes, but it would have put nothing after it.
    change(30, 0, &[0; 8]);
    assert_eq!(same("8 bytes of zeros"), (118, 2));
    change(30, 0, &[0, 0, 0, 20, 0xcb, 0xd4, 0x31, 0x94]);
    assert_eq!(same("padding of a wrong size"), (118, 2));
}
