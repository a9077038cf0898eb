//! Recovery of the literal segment, whole and damaged.

use super::*;
use crate::kafka::SegmentOptions;
use crate::kafka::test_data::{MARKER, SEVEN, SEVEN_INDEX, SEVEN_TIMES, T, batch, hex, record, segment};

fn recover(log: &[u8]) -> Result<Recovered> {
    let dir = tempfile::tempdir().unwrap();
    let path = segment(dir.path(), 100, log, None, None);
    let segment = Arc::new(Segment::open(&path, SegmentOptions::default()).unwrap());
    let recovered = segment.recover(150, 240, &mut ProducerState::default());
    assert_eq!(std::fs::read(&path).unwrap(), log, "nothing is written");
    recovered
}

#[test]
fn rebuilt_indexes_are_those_of_the_broker() {
    let whole = recover(&hex(SEVEN)).unwrap();
    assert_eq!((whole.valid_bytes, whole.truncated_bytes, whole.batches, whole.next_offset), (808, 0, 7, 112));
    assert_eq!(whole.offset_index, hex(SEVEN_INDEX));
    assert_eq!(whole.time_index, hex(SEVEN_TIMES));
    assert_eq!((whole.transaction_index, whole.findings), (None, vec![]));
    let none = recover(&[]).unwrap();
    assert_eq!((none.next_offset, none.max_timestamp.timestamp), (100, -1));
    assert!(none.offset_index.is_empty() && none.time_index.is_empty());
}

#[test]
fn damaged_logs_are_truncated_as_the_broker_does() {
    let good = hex(SEVEN);
    let changed = |at: usize, value: u8| {
        let mut log = good.clone();
        log[at] = value;
        log
    };
    let head = batch(112, 0, 1, 0, (T, T), &[])[..17].to_vec();
    for (what, log, cut, kept) in [
        ("the last 5 bytes missing", good[..803].to_vec(), 94, 709),
        ("64 zero bytes", [&good[..], &[0; 64]].concat(), 64, 808),
        ("17 zero bytes", [&good[..], &[0; 17]].concat(), 17, 808),
        ("18 zero bytes", [&good[..], &[0; 18]].concat(), 18, 808),
        ("the head of another batch", [&good[..], &head].concat(), 17, 808),
        ("the last byte flipped", changed(807, good[807] ^ 1), 99, 709),
        ("byte 300 flipped", changed(300, good[300] ^ 1), 564, 244),
        ("magic 3", changed(709 + 16, 3), 0, 808),
        ("another leader epoch", changed(709 + 13, 9), 0, 808),
        ("a length of 2^31 - 1", [&good[..8], &[0x7f, 0xff, 0xff, 0xff], &good[12..]].concat(), 808, 0),
        ("a negative length", [&good[..8], &[0x80, 0, 0, 0], &good[12..]].concat(), 808, 0),
    ] {
        let recovered = recover(&log).unwrap();
        assert_eq!((recovered.truncated_bytes, recovered.valid_bytes), (cut, kept), "{what}");
        assert_eq!(recovered.findings.len(), usize::from(cut > 0), "{what}");
        assert!(recovered.findings.iter().all(|f| f.offset == kept), "{what}");
        let index = hex(SEVEN_INDEX);
        let entries = index.chunks(8).take_while(|e| u64::from(u32::from_be_bytes([e[4], e[5], e[6], e[7]])) < kept);
        assert_eq!(recovered.offset_index, entries.flatten().copied().collect::<Vec<_>>(), "{what}");
    }
    assert!(
        matches!(recover(&changed(250, good[250] ^ 1)), Err(Error::Corrupt { offset: 496, .. })),
        "offsets far off"
    );
    assert!(matches!(recover(&changed(601 + 7, 3)), Err(Error::Corrupt { .. })), "offsets step back");
}

#[test]
fn a_full_index_ends_recovery() {
    let dir = tempfile::tempdir().unwrap();
    let path = segment(dir.path(), 100, &hex(SEVEN), None, None);
    let segment = Arc::new(Segment::open(&path, SegmentOptions::default()).unwrap());
    let full = segment.recover(150, 16, &mut ProducerState::default());
    assert!(matches!(full, Err(Error::IndexFull { .. })), "{full:?}");
}

#[test]
fn aborted_transactions_are_indexed_across_segments() {
    let producer = |mut batch: Vec<u8>, id: i64, marker: Option<u8>| {
        batch[22] |= if marker.is_some() { 0x30 } else { 0x10 };
        batch[43..51].copy_from_slice(&id.to_be_bytes());
        if let Some(kind) = marker {
            let at = batch.len() - 9;
            assert_eq!(batch[at - 3..=at], [0, 0, 0, 1]);
            batch[at] = kind;
        }
        let crc = crc_fast::crc32_iscsi(&batch[21..]).to_be_bytes();
        batch[17..21].copy_from_slice(&crc);
        batch
    };
    let data = |offset: i64, id: i64| {
        let mut body = Vec::new();
        record(0, 0, None, Some(b"v"), &mut body);
        producer(batch(offset, 0, 1, 0, (T, T), &body), id, None)
    };
    let marker = |offset: i64, id: i64, kind: u8| {
        let mut bytes = hex(MARKER);
        bytes[..8].copy_from_slice(&offset.to_be_bytes());
        producer(bytes, id, Some(kind))
    };
    let dir = tempfile::tempdir().unwrap();
    let mut producers = ProducerState::default();
    let mut run = |base: i64, batches: &[Vec<u8>]| {
        let path = segment(dir.path(), base, &batches.concat(), None, None);
        let segment = Arc::new(Segment::open(&path, SegmentOptions::default()).unwrap());
        segment.recover(4096, 1024, &mut producers).unwrap().transaction_index
    };
    assert_eq!(run(0, &[data(0, 7), data(1, 8), data(2, 7)]), None);
    let entry = |id: i64, first: i64, last: i64, stable: i64| {
        let mut bytes = vec![0; 2];
        for value in [id, first, last, stable] {
            bytes.extend(value.to_be_bytes());
        }
        bytes
    };
    // 8 is still open when 7 is rolled back; a marker without records is nothing; 8 commits.
    let found = run(3, &[marker(3, 7, 0), marker(4, 9, 0), marker(5, 8, 1), data(6, 7), marker(7, 7, 0)]);
    assert_eq!(found, Some([entry(7, 0, 3, 1), entry(7, 6, 7, 8)].concat()));
}
