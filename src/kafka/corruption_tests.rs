//! A small segment and its indexes, truncated at every byte and with every byte flipped: an error, a finding or a right answer.

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;

use super::{OnError, ProducerState, RecordScan, Segment, SegmentOptions, SegmentRange, SegmentReader};
use crate::batch_size::BatchSize;
use crate::error::Error;
use crate::kafka::test_data::{
    SEVEN, SEVEN_BATCHES, SEVEN_INDEX, SEVEN_RECORDS, SEVEN_TIMES, T, batch, hex, record, segment,
};

fn scan(on_error: OnError, threads: usize) -> RecordScan {
    RecordScan { batch_size: BatchSize::of_rows(5), on_error, threads, ..RecordScan::default() }
}

/// Rows, findings and whether it ended with an error.
fn read(segment: &Arc<Segment>, on_error: OnError) -> (usize, usize, bool) {
    count(&[SegmentRange::whole(Arc::clone(segment))], on_error)
}

/// Reads with one thread and with several, which must be the same.
fn count(ranges: &[SegmentRange], on_error: OnError) -> (usize, usize, bool) {
    let alone = read_with(1, ranges, on_error);
    let together = read_with(3, ranges, on_error);
    assert_eq!(together.rows, alone.rows);
    assert_eq!(together.error, alone.error);
    for of in [SegmentReader::findings, SegmentReader::damage] {
        assert_eq!(of(&together.reader), of(&alone.reader));
    }
    assert_eq!(together.reader.unread(), alone.reader.unread());
    (alone.rows.len(), alone.reader.findings().len(), alone.error.is_some())
}

struct Done {
    reader: SegmentReader,
    rows: Vec<RecordBatch>,
    error: Option<String>,
}

fn read_with(threads: usize, ranges: &[SegmentRange], on_error: OnError) -> Done {
    let mut reader = SegmentReader::records(ranges.to_vec(), scan(on_error, threads)).unwrap();
    let (mut rows, mut error) = (Vec::new(), None);
    loop {
        match reader.next_batch() {
            Ok(Some(batch)) => rows.extend((0..batch.num_rows()).map(|row| batch.slice(row, 1))),
            Ok(None) => break,
            Err(found @ Error::Corrupt { .. }) => error = Some(found.to_string()),
            Err(other) => panic!("{other}"),
        }
    }
    Done { reader, rows, error }
}

/// Reads segments of one partition, each up to the next one's base. Return the offsets, the findings and whether an error ended it.
fn read_log(segments: &[&Arc<Segment>], on_error: OnError) -> (usize, usize, bool) {
    let ends = segments.iter().skip(1).map(|next| next.base_offset()).chain([i64::MAX]);
    let parts = segments.iter().zip(ends).map(|(segment, end_offset)| SegmentRange {
        end_offset,
        topic: Some("topic".to_owned()),
        partition: Some(3),
        ..SegmentRange::whole(Arc::clone(segment))
    });
    count(&parts.collect::<Vec<_>>(), on_error)
}

/// Calls everything; `expected` is called with each result that is not an error.
fn ask(segment: &Segment, mut offset: impl FnMut(i64, Option<u64>), mut time: impl FnMut(i64, Option<i64>)) {
    for target in 99..=112 {
        match segment.translate_offset(target, 0) {
            Ok(found) => offset(target, found.map(|f| f.position)),
            Err(Error::Corrupt { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    for x in 0..=61 {
        match segment.offset_for_timestamp(T + x, 100, true) {
            Ok(found) => time(x, found.map(|f| f.offset)),
            Err(Error::Corrupt { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    for answer in [segment.next_offset().map(|_| ()), segment.max_timestamp().map(|_| ())] {
        assert!(matches!(answer, Ok(()) | Err(Error::Corrupt { .. })));
    }
}

fn right_offset(target: i64) -> Option<u64> {
    SEVEN_BATCHES.iter().find(|b| b.3 >= target).map(|b| b.0)
}

fn right_time(x: i64) -> Option<i64> {
    SEVEN_RECORDS.iter().zip(100..).find(|(t, _)| **t >= x).map(|(_, offset)| offset)
}

fn open(dir: &Path, log: &[u8], index: &[u8], times: &[u8]) -> Arc<Segment> {
    let path = segment(dir, 100, log, Some(index), Some(times));
    Arc::new(Segment::open(&path, SegmentOptions::default()).unwrap())
}

#[test]
fn damaged_indexes_change_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (log, index, times) = (hex(SEVEN), hex(SEVEN_INDEX), hex(SEVEN_TIMES));
    let check = |index: &[u8], times: &[u8], what: &str, is_whole: bool| {
        let segment = open(dir.path(), &log, index, times);
        ask(
            &segment,
            |target, found| assert_eq!(found, right_offset(target), "{what}: offset {target}"),
            |x, found| assert_eq!(found, right_time(x), "{what}: time {x}"),
        );
        assert_eq!(segment.next_offset().unwrap(), 112, "{what}");
        assert_eq!(segment.max_timestamp().unwrap().timestamp, T + 60, "{what}");
        let findings = segment.verify(true).unwrap().findings;
        assert!(is_whole || !findings.is_empty(), "{what}");
    };
    check(&index, &times, "healthy", true);
    for len in 0..index.len() {
        check(&index[..len], &times, &format!("index cut at {len}"), len % 8 == 0);
        check(&index, &times[..len], &format!("time index cut at {len}"), len % 12 == 0);
    }
    for at in 0..index.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bad = index.clone();
            bad[at] ^= flip;
            // An offset of one of the next batches is valid as well: no batch that is searched for is before the position.
            let as_good = at % 8 == 3 && flip == 1;
            check(&bad, &times, &format!("index byte {at} xor {flip:02x}"), as_good);
            let mut bad = times.clone();
            bad[at] ^= flip;
            let as_good = at % 12 == 11 && flip == 1;
            check(&index, &bad, &format!("time index byte {at} xor {flip:02x}"), as_good);
        }
    }
}

#[test]
fn truncated_logs_return_their_whole_batches() {
    let dir = tempfile::tempdir().unwrap();
    let (log, index, times) = (hex(SEVEN), hex(SEVEN_INDEX), hex(SEVEN_TIMES));
    for len in 0..log.len() {
        let segment = open(dir.path(), &log[..len], &index, &times);
        let whole = SEVEN_BATCHES.iter().filter(|b| b.0 + u64::from(b.1) <= len as u64);
        let (rows, end) = whole.fold((0, 0), |(rows, _), b| (rows + b.3 - b.2 + 1, b.0 + u64::from(b.1)));
        let findings = usize::from(end < len as u64);
        for on_error in [OnError::Raise, OnError::Skip, OnError::Stop] {
            assert_eq!(read(&segment, on_error), (usize::try_from(rows).unwrap(), findings, false), "cut at {len}");
        }
        ask(
            &segment,
            |target, found| assert_eq!(found, right_offset(target).filter(|p| *p < end), "cut at {len}: {target}"),
            |x, found| assert_eq!(found, right_time(x).filter(|o| *o < 100 + rows), "cut at {len}: time {x}"),
        );
        let recovered = segment.recover(150, 240, &mut ProducerState::default()).unwrap();
        assert_eq!((recovered.valid_bytes, recovered.findings.len()), (end, findings));
        assert!(segment.verify(true).unwrap().findings.len() >= findings);
    }
}

#[test]
fn flipped_bytes_of_the_log_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (log, index, times) = (hex(SEVEN), hex(SEVEN_INDEX), hex(SEVEN_TIMES));
    let begins = |at: usize| SEVEN_BATCHES.iter().rev().find(|b| b.0 <= at as u64).unwrap().0;
    let mut reported = 0;
    for at in 0..log.len() {
        for flip in [0x01, 0xff] {
            let mut bad = log.clone();
            bad[at] ^= flip;
            let segment = open(dir.path(), &bad, &index, &times);
            let what = format!("byte {at} xor {flip:02x}");
            let field = at as u64 - begins(at);
            // The checksum covers neither the base offset nor the leader epoch. A wrong epoch has no effect. A wrong offset is
            // reported by the batches on both sides of it, if the walk begins before them.
            let (is_offset, is_epoch) = (field < 8, (12..16).contains(&field));
            let (rows, findings, failed) = read(&segment, OnError::Raise);
            assert!(failed || findings > 0 || rows == 12, "{what}: {rows}");
            reported += usize::from(failed || findings > 0);
            let (rows, findings, failed) = read(&segment, OnError::Skip);
            assert!(!failed && (findings > 0 || rows == 12), "{what}");
            read(&segment, OnError::Stop);
            if !is_offset || begins(at) < 709 {
                let (index, times): (&[u8], &[u8]) = if is_offset { (&[], &[]) } else { (&index, &times) };
                ask(
                    &open(dir.path(), &bad, index, times),
                    |target, found| {
                        // A walk ends quietly where a length leads past the end of the file.
                        let right = right_offset(target);
                        assert!(
                            found == right || (found.is_none() && findings > 0),
                            "{what}: offset {target} at {found:?}"
                        );
                    },
                    |x, found| assert!(found == right_time(x) || (found.is_none() && findings > 0), "{what}: time {x}"),
                );
            }
            let verified = segment.verify(true).unwrap();
            assert!(is_epoch || !verified.findings.is_empty(), "{what}");
            let _ = segment.recover(150, 240, &mut ProducerState::default());
        }
    }
    assert!(reported > 700 * 2);
}

#[test]
fn flipped_bytes_under_a_right_checksum_never_panic() {
    let dir = tempfile::tempdir().unwrap();
    let mut records = Vec::new();
    for delta in 0..4 {
        record(delta, delta, Some(b"key"), Some(b"value"), &mut records);
    }
    let (plain, zipped) = (records.clone(), zstd::stream::encode_all(&records[..], 3).unwrap());
    for (codec, bytes) in [(0, plain), (4, zipped)] {
        let good = batch(100, 3, 4, codec, (T, T + 3), &bytes);
        for at in 21..good.len() {
            for flip in [0x01, 0x02, 0x10, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                let crc = crc_fast::crc32_iscsi(&bad[21..]).to_be_bytes();
                bad[17..21].copy_from_slice(&crc);
                let segment = open(dir.path(), &bad, &[], &[]);
                for on_error in [OnError::Raise, OnError::Skip] {
                    read(&segment, on_error);
                }
                segment.verify(true).unwrap();
                ask(&segment, |_, _| (), |_, _| ());
                let _ = segment.recover(150, 240, &mut ProducerState::default());
            }
        }
    }
}

#[test]
fn a_batch_beyond_the_limit_is_an_error_with_its_position() {
    let dir = tempfile::tempdir().unwrap();
    let mut records = Vec::new();
    record(0, 0, None, Some(&vec![0; 5000]), &mut records);
    let zipped = zstd::stream::encode_all(&records[..], 3).unwrap();
    let log = [hex(SEVEN), batch(112, 0, 1, 4, (T, T), &zipped), batch(113, 0, 1, 0, (T, T), &records)].concat();
    let path = segment(dir.path(), 100, &log, None, None);
    let options = SegmentOptions { max_batch_bytes: 4096, ..SegmentOptions::default() };
    let segment = Arc::new(Segment::open(&path, options).unwrap());
    assert_eq!(read(&segment, OnError::Skip), (12, 2, false));
    let mut reader = SegmentReader::records(vec![SegmentRange::whole(segment)], scan(OnError::Raise, 1)).unwrap();
    let error = std::iter::from_fn(|| reader.next_batch().transpose()).find_map(Result::err).unwrap();
    match error {
        Error::Corrupt { path: at, offset, .. } => assert_eq!((at, offset), (path, 808)),
        other => panic!("{other}"),
    }
}

#[test]
fn a_batch_at_the_last_offset_does_not_hide_later_ones() {
    let dir = tempfile::tempdir().unwrap();
    let mut records = Vec::new();
    record(0, 0, Some(b"key"), None, &mut records);
    let log = [hex(SEVEN), batch(i64::MAX, 4, 1, 0, (T, T), &records), batch(112, 0, 1, 0, (T, T), &records)].concat();
    let segment = open(dir.path(), &log, &[], &[]);
    assert_eq!(read(&segment, OnError::Raise), (12, 0, true));
    assert_eq!(read(&segment, OnError::Skip), (14, 1, false));
}

/// A segment must not end without a finding where the next segment begins, or a batch far beyond it.
#[test]
fn a_base_offset_beyond_the_next_segment_hides_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut records = Vec::new();
    record(0, 0, Some(b"key"), None, &mut records);
    let path = segment(dir.path(), 112, &batch(112, 0, 1, 0, (T, T), &records), None, None);
    let next = Arc::new(Segment::open(&path, SegmentOptions::default()).unwrap());
    let (log, index, times) = (hex(SEVEN), hex(SEVEN_INDEX), hex(SEVEN_TIMES));
    assert_eq!(read_log(&[&open(dir.path(), &log, &index, &times), &next], OnError::Raise), (13, 0, false));
    for (position, ..) in SEVEN_BATCHES {
        for byte in 0..7 {
            let mut bad = log.clone();
            bad[usize::try_from(position).unwrap() + byte] ^= 0x04;
            let bad = open(dir.path(), &bad, &index, &times);
            let what = format!("byte {byte} of the batch at {position}");
            let (_, _, failed) = read_log(&[&bad, &next], OnError::Raise);
            assert!(failed, "{what}");
            let (rows, findings, _) = read_log(&[&bad, &next], OnError::Skip);
            assert!(findings > 0 && rows >= 10, "{what}: {rows}");
            // The segment ends there, the log does not.
            let (rows, findings, _) = read_log(&[&bad, &next], OnError::Stop);
            assert!(findings == 1 && rows >= 1, "{what}: {rows}");
            assert!(!bad.verify(true).unwrap().findings.is_empty(), "{what}");
        }
    }
}

#[test]
fn an_offset_beyond_the_range_of_an_index_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let mut records = Vec::new();
    record(0, 0, Some(b"key"), None, &mut records);
    for (offset, fits) in [(100 + (1 << 31) - 1, true), (100 + (1 << 31), false), (1 << 62, false)] {
        let log = [hex(SEVEN), batch(offset, 0, 1, 0, (T, T), &records)].concat();
        let segment = open(dir.path(), &log, &hex(SEVEN_INDEX), &hex(SEVEN_TIMES));
        assert_eq!(read(&segment, OnError::Raise), (if fits { 13 } else { 12 }, 0, !fits));
        assert_eq!(segment.verify(true).unwrap().findings.len(), usize::from(!fits));
        assert_eq!(segment.translate_offset(112, 0).is_ok(), fits);
        assert_eq!(segment.next_offset().unwrap(), if fits { offset + 1 } else { 112 });
    }
}
