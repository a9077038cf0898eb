//! The start, the steps and the end of a walk.

use super::encoder::{TestLog, TestMessage};
use super::{offsets, scan, small_log, walk};
use crate::batch_size::BatchSize;
use crate::rocketmq::commit_log::decode::columns::Column;
use crate::rocketmq::commit_log::frame::{MAGIC_V1, Refusal};
use crate::rocketmq::commit_log::scan::window::SCAN_WINDOW;
use crate::rocketmq::commit_log::{Bodies, MessageReader, Stop};

#[test]
fn goes_over_files_and_ends_at_unwritten_space() {
    let log = small_log();
    assert!(log.files.len() >= 2);
    let (found, stop) = walk(&log.files, 0, u64::MAX);
    assert_eq!(found.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), log.offsets);
    assert_eq!(found.last().unwrap().1, b"body 6");
    assert_eq!(stop, Stop { phy_offset: log.end, refusal: Some(Refusal::Unwritten) });
}

#[test]
fn gives_what_begins_in_the_range() {
    let log = small_log();
    let borders: Vec<u64> = log.offsets.iter().flat_map(|o| [o - 1, *o, o + 1]).chain([0, 499, 500, 3000]).collect();
    for begin in &borders {
        for end in &borders {
            let wanted: Vec<u64> = log.offsets.iter().copied().filter(|o| begin <= o && o < end).collect();
            assert_eq!(offsets(&log.files, *begin, *end), wanted, "{begin}..{end}");
        }
    }
}

#[test]
fn goes_on_behind_a_gap() {
    let mut log = small_log();
    let moved = log.files.pop().unwrap();
    let shift = 10 * log.file_size;
    let (near, far): (Vec<u64>, Vec<u64>) = log.offsets.iter().partition(|o| **o < moved.0);
    log.files.push((moved.0 + shift, moved.1));
    let wanted: Vec<u64> = near.iter().copied().chain(far.iter().map(|o| o + shift)).collect();
    assert_eq!(offsets(&log.files, 0, u64::MAX), wanted);
    // A range that begins in the gap begins after it.
    assert_eq!(offsets(&log.files, moved.0 + 1, u64::MAX), far.iter().map(|o| o + shift).collect::<Vec<_>>());
}

#[test]
fn empty_and_unwritten_last_files_end_it() {
    let log = small_log();
    let next = log.files.last().unwrap().0 + log.file_size;
    for last in [vec![], vec![0; 7], vec![0; 500]] {
        let mut files = log.files.clone();
        files.push((next, last));
        assert_eq!(offsets(&files, 0, u64::MAX), log.offsets);
        // The file before is full.
        let full = log.files.len() - 2;
        let mut files = files.split_off(full);
        files.remove(1);
        let (found, stop) = walk(&files, 0, u64::MAX);
        assert!(!found.is_empty());
        assert_eq!(stop.phy_offset, next);
    }
    assert_eq!(walk(&[], 7, u64::MAX).1, Stop { phy_offset: 7, refusal: None });
    assert!(offsets(&[(0, vec![])], 0, u64::MAX).is_empty());
}

#[test]
fn a_short_last_file_is_read_as_far_as_it_goes() {
    let log = small_log();
    let start = log.files.last().unwrap().0;
    for len in 0..500 {
        let mut files = log.files.clone();
        files.last_mut().unwrap().1.truncate(len);
        let reach = start + len as u64;
        let end_of = |i: usize| log.offsets.get(i + 1).copied().unwrap_or(log.end);
        let whole = |(i, offset): &(usize, &u64)| **offset < start || end_of(*i) <= reach;
        let wanted: Vec<u64> = log.offsets.iter().enumerate().filter(whole).map(|(_, offset)| *offset).collect();
        assert_eq!(offsets(&files, 0, u64::MAX), wanted, "{len} bytes");
    }
}

#[test]
fn frames_larger_than_the_window_are_read() {
    let messages: Vec<_> =
        [10, SCAN_WINDOW - 100, SCAN_WINDOW - 91, SCAN_WINDOW, 3 * SCAN_WINDOW, 10, SCAN_WINDOW / 2 + 1, 9]
            .map(|len| TestMessage::new("T", &vec![b'x'; len], &[]))
            .to_vec();
    let log = TestLog::write(0, 4 << 20, &messages);
    let (found, stop) = walk(&log.files, 0, u64::MAX);
    assert_eq!(found.len(), messages.len());
    assert!(found.iter().zip(&messages).all(|((_, body), message)| *body == message.body));
    assert_eq!(stop.phy_offset, log.end);
}

#[test]
fn a_size_that_its_lengths_do_not_make_reserves_nothing() {
    for total in [600_000i32, 2_000_000, 3_999_999, 4_000_000, i32::MAX] {
        let mut file = vec![0; 4_000_000];
        file.splice(..8, [total.to_be_bytes(), MAGIC_V1.to_be_bytes()].concat());
        let mut scan = scan(&[(0, file)], 0, u64::MAX);
        assert!(!scan.advance().unwrap());
        let refusal = scan.stop().unwrap().refusal.unwrap();
        assert!(matches!(refusal, Refusal::Size { .. } | Refusal::CutOff), "{refusal:?}");
        assert!(scan.window_len() <= SCAN_WINDOW, "{}", scan.window_len());
    }
}

/// A message whose small stored body decompresses to this many bytes.
fn packed(len: usize) -> TestMessage {
    let mut message = TestMessage::new("T", &zstd::stream::encode_all(vec![0; len].as_slice(), 1).unwrap(), &[]);
    message.numbers[3] = 0x201;
    message
}

fn rows(messages: &[TestMessage], columns: &[Column], batch_size: usize) -> Vec<usize> {
    let log = TestLog::write(0, 1 << 22, messages);
    MessageReader::new(scan(&log.files, 0, u64::MAX), columns, Bodies::Decoded, 1 << 28, BatchSize::of_rows(batch_size))
        .unwrap()
        .map(|batch| batch.unwrap().num_rows())
        .collect()
}

#[test]
fn batches_end_at_their_rows_or_bytes() {
    let messages = vec![packed(20 << 20); 10];
    assert_eq!(rows(&messages, &[Column::Body], 100), [3, 3, 3, 1]);
    assert_eq!(rows(&messages, &[Column::Body], 2), [2; 5]);
    assert_eq!(rows(&messages, &[Column::Topic], 100), [10]);
    assert_eq!(rows(&messages, &[], 4), [4, 4, 2]);
}

#[test]
fn a_message_larger_than_a_batch_comes_alone() {
    let messages = [10, 70 << 20, 10, 10].map(packed);
    assert_eq!(rows(&messages, &[Column::Body], 100), [1, 1, 2]);
}
