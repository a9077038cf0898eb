//! Every truncation and every flipped byte of a small log: no panic, no endless walk, no read outside of the file, and
//! no message whose body is not the one that was stored.

use super::encoder::TestLog;
use super::{Guarded, scan, small_log, walk};
use crate::batch_size::BatchSize;
use crate::rocketmq::commit_log::decode::columns::Column;
use crate::rocketmq::commit_log::{Bodies, MessageReader};

/// Reads all columns; the walk over the same bytes and its bodies are compared with what was stored.
fn check(log: &TestLog, files: &[(u64, Vec<u8>)]) -> usize {
    let (found, stop) = walk(files, 0, u64::MAX);
    assert!(stop.phy_offset <= files.last().map_or(0, |(start, bytes)| start + bytes.len() as u64));
    let bodies: Vec<Vec<u8>> = (0..log.offsets.len()).map(|i| format!("body {i}").into_bytes()).collect();
    for (_, body) in &found {
        assert!(body.is_empty() || bodies.contains(body), "a body that nobody stored");
    }
    let columns = Column::ALL.to_vec();
    let reader: MessageReader<Guarded> =
        MessageReader::new(scan(files, 0, u64::MAX), &columns, Bodies::Decoded, 1000, BatchSize::of_rows(3)).unwrap();
    let rows: usize = reader.map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(rows, found.len());
    rows
}

#[test]
fn every_flipped_byte() {
    let log = small_log();
    let (mut looked_at, mut shorter) = (0, 0);
    for file in 0..log.files.len() {
        for at in 0..log.files[file].1.len() {
            for bits in [0x01, 0x10, 0x80, 0xff] {
                let mut files = log.files.clone();
                files[file].1[at] ^= bits;
                shorter += usize::from(check(&log, &files) < log.offsets.len());
                looked_at += 1;
            }
        }
    }
    assert_eq!(looked_at, 4 * 500 * log.files.len());
    assert!(shorter > 500, "{shorter}");
}

#[test]
fn every_truncation() {
    let log = small_log();
    for file in 0..log.files.len() {
        for len in 0..log.files[file].1.len() {
            let mut files = log.files.clone();
            files[file].1.truncate(len);
            assert!(check(&log, &files) <= log.offsets.len());
        }
    }
}

#[test]
fn lengths_of_every_kind() {
    let log = small_log();
    let values = [0, 1, 7, 8, 91, 499, 500, 501, i32::MAX, i32::MIN, -1, -8, 0x0100_0000, 0x00ff_ffff];
    for at in 0..log.files[0].1.len() - 4 {
        for value in values {
            let mut files = log.files.clone();
            files[0].1.splice(at..at + 4, value.to_be_bytes());
            check(&log, &files);
        }
    }
}
