//! Going on after damage, and what gives cut-off frames away.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::encoder::{TestLog, TestMessage};
use super::{Scan, offsets, scan, small_log};
use crate::batch_size::BatchSize;
use crate::io::ReadAt;
use crate::rocketmq::commit_log::decode::columns::Column;
use crate::rocketmq::commit_log::frame::Versions;
use crate::rocketmq::commit_log::{Bodies, MessageReader, Suspect};
use crate::rocketmq::offset_files::OffsetFile;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};

/// Offsets and signs of all messages, and the kinds and places of the findings.
type Salvaged = (Vec<(u64, Option<String>)>, Vec<(&'static str, u64)>);

fn salvage(files: &[(u64, Vec<u8>)]) -> Salvaged {
    let columns = [Column::PhyOffset, Column::Suspect];
    let walk = scan(files, 0, u64::MAX).salvaging(last_begin(files));
    let mut reader = MessageReader::new(walk, &columns, Bodies::Decoded, 1000, BatchSize::of_rows(3)).unwrap();
    let mut rows = Vec::new();
    while let Some(batch) = reader.next_batch().unwrap() {
        rows.extend(signs(&batch));
    }
    let findings = reader.checked().findings.iter().map(|finding| (finding.kind.word(), finding.offset)).collect();
    (rows, findings)
}

fn signs(batch: &RecordBatch) -> Vec<(u64, Option<String>)> {
    let offsets = batch.column(0).as_primitive::<Int64Type>();
    let signs = batch.column(1).as_string::<i32>();
    (0..batch.num_rows())
        .map(|row| (offsets.value(row).unsigned_abs(), signs.is_valid(row).then(|| signs.value(row).to_owned())))
        .collect()
}

/// Messages of two queues, with rising times and queue offsets.
fn messages(count: i64, time: i64) -> Vec<TestMessage> {
    (0..count)
        .map(|i| {
            let mut message = TestMessage::new("Topic", format!("body {i:03}").as_bytes(), &[("KEYS", "a b")]);
            message.numbers[0] = i % 2;
            message.numbers[2] = i / 2;
            message.numbers[5] = time + i;
            message
        })
        .collect()
}

#[test]
fn a_sound_log_has_no_suspects_and_no_findings() {
    let log = TestLog::write(500, 500, &messages(20, 1_000));
    let (rows, findings) = salvage(&log.files);
    assert_eq!(rows, log.offsets.iter().map(|offset| (*offset, None)).collect::<Vec<_>>());
    assert_eq!(findings, []);
}

/// A file into which a broker writes while it is read: the first reads see it as it was.
#[derive(Debug)]
struct Growing {
    before: Vec<u8>,
    now: Vec<u8>,
    early_reads: AtomicUsize,
}

impl ReadAt for Growing {
    fn len(&self) -> u64 {
        ReadAt::len(self.now.as_slice())
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let early = self.early_reads.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok();
        if early { self.before.as_slice() } else { self.now.as_slice() }.read_exact_at(buf, offset)
    }

    fn words<const N: usize>(&self, offset: u64) -> io::Result<[u32; N]> {
        self.now.as_slice().words(offset)
    }
}

#[test]
fn a_message_that_is_written_while_it_is_read_is_no_damage() {
    let log = TestLog::write(0, 4_000, &messages(12, 1_000));
    let [(start, now)] = &log.files[..] else { panic!("one file") };
    let file = OffsetFile { start: *start, len: now.len() as u64, path: "0".into(), etag: None };
    let end = now.iter().rposition(|byte| *byte != 0).unwrap();
    for (written, early_reads) in (0..end).flat_map(|written| (1..5).map(move |reads| (written, reads))) {
        let mut before = now.clone();
        before[written..].fill(0);
        for salvaging in [true, false] {
            let grown = (before.clone(), now.clone());
            let open = move |_: &OffsetFile| {
                let (before, now) = grown.clone();
                Ok(Growing { before, now, early_reads: AtomicUsize::new(early_reads) })
            };
            let mut walk = Scan::new(vec![file.clone()], open, Versions::V1AndV2, 0, u64::MAX);
            if salvaging {
                walk = walk.salvaging(0);
            }
            let mut found = Vec::new();
            while walk.advance().unwrap() {
                assert_eq!(walk.suspect(), Suspect::default(), "{written} {early_reads}");
                found.push(walk.message().unwrap().0.phy_offset);
            }
            assert_eq!(found, log.offsets[..found.len()], "none is left out: {written} {early_reads} {salvaging}");
            if early_reads == 1 {
                assert_eq!(walk.checked().findings.len(), 0, "{written} {salvaging}");
            }
        }
    }
}

#[test]
fn what_is_written_over_the_end_of_a_file_meanwhile_is_given_with_its_beginning_or_not_at_all() {
    let log = TestLog::write(0, 700, &messages(12, 1_000));
    let files: Vec<OffsetFile> = log.files.iter().map(|(start, _)| listed(*start, 700)).collect();
    let last = files.last().unwrap().start;
    for (number, end) in log.offsets.iter().enumerate().filter(|(_, end)| **end < last) {
        // The file that ends there is read as it was, and read again as it is; those after it are there already.
        let (bytes, end) = (log.files.clone(), *end);
        let mut opened = HashMap::new();
        let open = move |file: &OffsetFile| {
            let now = bytes.iter().find(|(start, _)| *start == file.start).unwrap().1.clone();
            let mut before = now.clone();
            if (file.start..file.end()).contains(&end) {
                before[usize::try_from(end - file.start).unwrap()..].fill(0);
            }
            let times = opened.entry(file.start).or_insert(0);
            *times += 1;
            let early_reads = AtomicUsize::new(if *times == 1 { usize::MAX } else { 0 });
            Ok(Growing { before, now, early_reads })
        };
        let mut walk = Scan::new(files.clone(), open, Versions::V1AndV2, 0, u64::MAX).salvaging(last);
        let mut found = Vec::new();
        while walk.advance().unwrap() {
            assert_eq!(walk.suspect(), Suspect::default(), "{end}");
            found.push(walk.message().unwrap().0.phy_offset);
        }
        assert_eq!(found, log.offsets[..number], "{end}");
        assert_eq!(walk.stop().unwrap().phy_offset, end);
        assert_eq!(walk.checked().findings.len(), 0, "{end}");
    }
}

fn listed(start: u64, len: u64) -> OffsetFile {
    OffsetFile { start, len, path: start.to_string().into(), etag: None }
}

#[test]
fn every_flipped_byte_costs_one_message_at_most() {
    let log = TestLog::write(0, 700, &messages(12, 1_000));
    let mut lost = 0;
    for file in 0..log.files.len() {
        for at in 0..log.files[file].1.len() {
            let mut files = log.files.clone();
            files[file].1[at] ^= 0x41;
            let broker = offsets(&files, 0, u64::MAX);
            let (rows, findings) = salvage(&files);
            let found: Vec<u64> = rows.iter().map(|(offset, _)| *offset).collect();
            assert!(found.len() + 1 >= log.offsets.len(), "file {file}, byte {at}: {found:?}");
            assert!(found.iter().all(|offset| log.offsets.contains(offset)));
            assert!(broker.iter().all(|offset| found.contains(offset)), "what a broker takes is never left out");
            for (offset, signs) in &rows {
                let after = signs.as_deref().is_some_and(|signs| signs.contains("after-stop"));
                assert_eq!(after, !broker.contains(offset), "file {file}, byte {at}, offset {offset}");
            }
            if found.len() < log.offsets.len() {
                lost += 1;
                assert_eq!(findings.len(), 1, "{findings:?}");
            }
        }
    }
    assert!(lost > 100, "{lost}");
}

/// Starts of the last file that holds messages.
fn last_begin(files: &[(u64, Vec<u8>)]) -> u64 {
    files.iter().rfind(|(_, bytes)| bytes.first_chunk() != Some(&[0u8; 8])).map_or(0, |(start, _)| *start)
}

/// The result of a walk without truncated messages from here on: the offsets, and the kinds and places of the findings.
fn valid(files: &[(u64, Vec<u8>)], begin: Option<u64>) -> (Vec<u64>, Vec<(&'static str, u64)>) {
    let mut walk = scan(files, begin.unwrap_or(0), u64::MAX).salvaging(last_begin(files)).without_truncated(0);
    if begin.is_some() {
        walk = walk.starting_at_begin().unwrap();
    }
    let mut reader =
        MessageReader::new(walk, &[Column::PhyOffset], Bodies::Decoded, 1000, BatchSize::of_rows(3)).unwrap();
    let mut found = Vec::new();
    while let Some(batch) = reader.next_batch().unwrap() {
        found.extend(batch.column(0).as_primitive::<Int64Type>().values().iter().map(|offset| offset.unsigned_abs()));
    }
    let findings = reader.checked().findings.iter().map(|finding| (finding.kind.word(), finding.offset)).collect();
    (found, findings)
}

/// Logs of two files: one is whole, one has truncated messages in the last file, and one in the padding of the first.
fn logs_with_truncated_messages() -> Vec<(TestLog, &'static str)> {
    let log = TestLog::write(0, 700, &messages(12, 1_000));
    let mut truncated = log.clone();
    // The last file was truncated to its first message and written again: the next message is new, of the same length.
    let last = last_begin(&log.files);
    let number = log.offsets.iter().position(|offset| *offset == last).unwrap() + 1;
    let mut padded = log.clone();
    for (log, number) in [(&mut truncated, number), (&mut padded, 1)] {
        let mut new = messages(12, 1_000)[number].clone();
        (new.numbers[2], new.numbers[5]) = (500, 9_000);
        let frame = new.encode(log.offsets[number]);
        let file = log.files.iter_mut().rfind(|(start, _)| *start <= log.offsets[number]).unwrap();
        let at = usize::try_from(log.offsets[number] - file.0).unwrap();
        file.1.splice(at..at + frame.len(), frame);
    }
    // In the first file padding of a wrong size follows the new message.
    let at = usize::try_from(padded.offsets[2]).unwrap();
    padded.files[0].1.splice(at..at + 8, [0, 0, 0, 20, 0xcb, 0xd4, 0x31, 0x94]);
    vec![(log, "whole"), (truncated, "truncated"), (padded, "padded")]
}

#[test]
fn truncated_messages_are_skipped_as_if_every_message_had_been_judged() {
    let (mut compared, mut skipped) = (0, [0; 3]);
    for (number, (log, name)) in logs_with_truncated_messages().into_iter().enumerate() {
        for file in 0..log.files.len() {
            for at in 0..log.files[file].1.len() {
                let mut files = log.files.clone();
                files[file].1[at] ^= 0x41;
                let (rows, findings) = salvage(&files);
                let is_truncated =
                    |signs: &Option<String>| signs.as_ref().is_some_and(|signs| signs.contains("cut-off"));
                let expected: Vec<u64> =
                    rows.iter().filter(|(_, signs)| !is_truncated(signs)).map(|(offset, _)| *offset).collect();
                let found = valid(&files, None);
                assert_eq!(found, (expected.clone(), findings), "{name}: file {file}, byte {at}");
                skipped[number] += rows.len() - expected.len();
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 4_200);
    assert!(skipped[1] > 100 && skipped[2] > 100, "{skipped:?}");
}

#[test]
fn a_walk_that_starts_inside_a_file_goes_back_at_damage_and_finds_what_a_whole_walk_finds() {
    let (log, _) = logs_with_truncated_messages().remove(1);
    let (start, last) = (last_begin(&log.files), log.files.len() - 1);
    let (mut compared, mut skipped) = (0, 0);
    for at in 0..log.files[last].1.len() {
        let mut files = log.files.clone();
        files[last].1[at] ^= 0x41;
        let (whole, findings) = valid(&files, None);
        for begin in log.offsets.iter().copied().filter(|offset| *offset >= start && *offset <= start + at as u64) {
            // The messages before the first one are valid.
            if findings.iter().any(|(_, at)| start + at < begin) {
                continue;
            }
            let expected: Vec<u64> = whole.iter().copied().filter(|offset| *offset >= begin).collect();
            assert_eq!(valid(&files, Some(begin)), (expected, findings.clone()), "byte {at}, from {begin}");
            compared += 1;
            skipped += usize::from(whole.len() + 1 < log.offsets.len());
        }
    }
    assert!(compared > 500 && skipped > 50, "{compared} {skipped}");
}

#[test]
fn cut_off_messages_that_come_back_are_told_by_their_past() {
    let old = messages(10, 1_000);
    let log = TestLog::write(0, 5_000, &old);
    let mut files = log.files.clone();
    // The log was cut back before message 4, then written on: one message of the same length.
    let mut new = old[4].clone();
    new.numbers[5] = 9_000;
    let at = usize::try_from(log.offsets[4]).unwrap();
    let frame = new.encode(log.offsets[4]);
    files[0].1.splice(at..at + frame.len(), frame);
    let (rows, findings) = salvage(&files);
    assert_eq!(findings, [], "a broker takes them all");
    for (number, (offset, signs)) in rows.iter().enumerate() {
        assert_eq!(*offset, log.offsets[number]);
        assert_eq!(signs.as_deref(), (number > 4).then_some("time-back"), "message {number}");
    }
    // Another one, which goes to a queue that had this offset already among the truncated messages.
    let mut next = old[0].clone();
    next.numbers[2] = 3;
    next.numbers[5] = 9_001;
    let frame = next.encode(log.end);
    let at = usize::try_from(log.end).unwrap();
    files[0].1.splice(at..at + frame.len(), frame);
    assert_eq!(salvage(&files).0[10].1.as_deref(), Some("queue-back"));
}

#[test]
fn messages_behind_unwritten_space_are_found_and_the_end_is_no_finding() {
    let log = TestLog::write(0, 5_000, &messages(10, 1_000));
    let mut files = log.files.clone();
    let (from, to) = (usize::try_from(log.offsets[3]).unwrap(), usize::try_from(log.offsets[5]).unwrap());
    files[0].1[from..to].fill(0);
    let (rows, findings) = salvage(&files);
    assert_eq!(rows.len(), 8);
    assert_eq!(findings, [("log-frame", log.offsets[3])]);
    assert!(rows.iter().all(|(offset, signs)| signs.is_some() == (*offset > log.offsets[3])));
}

#[test]
fn a_message_inside_of_a_body_is_not_taken() {
    let inner = TestMessage::new("Inner", b"inner", &[]).encode(7_777);
    let mut outer = messages(3, 1_000);
    outer[1].body = inner;
    let log = TestLog::write(0, 5_000, &outer);
    let mut files = log.files.clone();
    let at = usize::try_from(log.offsets[1]).unwrap();
    files[0].1[at + 5] ^= 1;
    let found: Vec<u64> = salvage(&files).0.iter().map(|(offset, _)| *offset).collect();
    assert_eq!(found, [log.offsets[0], log.offsets[2]]);
}

#[test]
fn filling_that_does_not_end_with_its_file_is_a_finding() {
    let log = TestLog::write(0, 500, &messages(6, 1_000));
    let mut files = log.files.clone();
    let blank = files[0].1.windows(4).position(|bytes| bytes == 0xcbd4_3194u32.to_be_bytes()).unwrap() - 4;
    files[0].1[blank + 3] ^= 1;
    let (rows, findings) = salvage(&files);
    assert_eq!(rows.len(), 6);
    assert!(rows.iter().all(|(_, signs)| signs.is_none()), "a broker does not look at that size");
    assert_eq!(findings, [("log-blank", blank as u64)]);
}

#[test]
fn the_checksum_of_a_whole_frame_is_checked() {
    let mut message = messages(1, 1_000).remove(0);
    // A place for the checksum, whose digits follow from the bytes before it, the lowest first.
    message.properties = vec![("A".to_owned(), "b".to_owned()), ("__CRC32#".to_owned(), "0000000000".to_owned())];
    message.trailing_separator = true;
    let mut frame = message.encode(0);
    let len = frame.len();
    let crc = crc32fast::hash(&frame[..len - 20]) & 0x7fff_ffff;
    let digits: String = format!("{crc:010}").chars().rev().collect();
    frame.splice(len - 11..len - 1, digits.bytes());
    frame.resize(400, 0);
    assert_eq!(salvage(&[(0, frame.clone())]).0, [(0, None)]);
    frame[12] ^= 1; // the queue
    assert_eq!(salvage(&[(0, frame)]).0, [(0, Suspect::PROP_CRC.words())]);
}

#[test]
fn salvage_ends_whatever_the_bytes() {
    let log = small_log();
    for len in 0..log.files[0].1.len() {
        let mut files = log.files.clone();
        files[0].1.truncate(len);
        let (rows, _) = salvage(&files);
        assert!(rows.iter().all(|(offset, _)| log.offsets.contains(offset)));
    }
}
