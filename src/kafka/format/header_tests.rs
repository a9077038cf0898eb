//! Heads of the broker's batches.

use super::*;
use crate::kafka::test_data::{APPEND_TIME, EMPTIED, MAGIC_0, MAGIC_1, MARKER, PLAIN, T, hex};

fn parse(text: &str) -> (Header, Vec<u8>) {
    let bytes = hex(text);
    let size = u32::try_from(bytes.len()).unwrap();
    assert_eq!(usize::try_from(size_field(&bytes)).unwrap() + LOG_OVERHEAD, bytes.len());
    (Header::parse(&bytes, 7, size).unwrap(), bytes)
}

#[test]
fn headers_of_magic_2_are_parsed() {
    let (plain, bytes) = parse(PLAIN);
    plain.check_crc(&bytes).unwrap();
    assert_eq!((plain.position, plain.end(), plain.size), (7, 111, 104));
    assert_eq!((plain.base_offset, plain.last_offset, plain.count), (1000, 1002, Some(3)));
    assert_eq!((plain.crc, plain.leader_epoch, plain.magic), (0x9d2a_9db5, 7, 2));
    assert_eq!((plain.base_timestamp, plain.max_timestamp), (T, T + 5));
    assert_eq!((plain.producer_id, plain.producer_epoch, plain.last_sequence()), (-1, -1, -1));
    assert_eq!((plain.codec().unwrap(), plain.timestamp_type()), (Codec::None, TimestampType::Create));
    assert!(!plain.is_control() && !plain.is_transactional() && plain.delete_horizon().is_none());

    let (marker, bytes) = parse(MARKER);
    marker.check_crc(&bytes).unwrap();
    assert!(marker.is_control() && marker.is_transactional());
    assert_eq!((marker.producer_id, marker.producer_epoch, marker.leader_epoch), (98_323, 99, 5));

    let (append, bytes) = parse(APPEND_TIME);
    append.check_crc(&bytes).unwrap();
    assert_eq!((append.timestamp_type().id(), append.max_timestamp), (1, T + 99_999));

    let (emptied, bytes) = parse(EMPTIED);
    emptied.check_crc(&bytes).unwrap();
    assert_eq!((emptied.base_offset, emptied.last_offset, emptied.count), (700, 709, Some(0)));
    assert_eq!((emptied.base_sequence, emptied.last_sequence()), (40, 49));
    assert_eq!((emptied.base_timestamp, emptied.max_timestamp), (-1, T + 777));
}

#[test]
fn headers_of_magic_0_and_1_are_parsed() {
    let (zero, bytes) = parse(MAGIC_0);
    zero.check_crc(&bytes).unwrap();
    assert!(zero.is_legacy());
    assert_eq!((zero.base_offset, zero.last_offset, zero.count), (5, 5, None));
    assert_eq!((zero.crc, zero.max_timestamp, zero.timestamp_type().id()), (535_615_242, -1, -1));
    let (one, bytes) = parse(MAGIC_1);
    one.check_crc(&bytes).unwrap();
    assert_eq!((one.last_offset, one.max_timestamp, one.timestamp_type().id()), (6, 1_500_000_000_000, 0));
}

#[test]
fn sequences_wrap_to_zero() {
    let (mut head, _) = parse(EMPTIED);
    head.base_sequence = i32::MAX - 1;
    assert_eq!([0, 1, 2, 3].map(|delta| head.sequence(delta)), [i32::MAX - 1, i32::MAX, 0, 1]);
}

#[test]
fn truncated_headers_are_none_and_flipped_bytes_fail_the_checksum() {
    for text in [PLAIN, MARKER, MAGIC_0, MAGIC_1] {
        let (head, bytes) = parse(text);
        for len in 0..needed(head.magic) {
            assert_eq!(Header::parse(&bytes[..len], 7, head.size), None);
            assert_eq!(Header::parse(&bytes, 7, u32::try_from(len).unwrap()), None);
        }
        for at in head.crc_from()..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            let flaw = head.check_crc(&bad).unwrap_err();
            assert_eq!(flaw.kind, Kind::BatchCrc);
        }
    }
}

#[test]
fn unknown_codecs_are_errors() {
    let (mut head, _) = parse(PLAIN);
    for id in 5..8 {
        head.attributes = id;
        assert_eq!(head.codec().unwrap_err().kind, Kind::Records);
    }
}
