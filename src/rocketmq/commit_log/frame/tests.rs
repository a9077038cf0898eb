//! Frames that a real broker wrote, and what becomes of them when a field is wrong.

use super::{Found, Frame, MAGIC_BLANK, Needs, Refusal, Versions, check, is_uncommitted};
use crate::java_text::decode_utf8;
use crate::rocketmq::commit_log::decode::text::{write_host, write_msg_id};
use crate::rocketmq::commit_log::frame::properties;

/// One message: topic `TopicTest`, queue 3, body `hello`, written by a 4.9.3 store.
const SINGLE: &str = "000000a7 daa320a7 3610a686 00000003 00000000 0000000000000000 0000000000000000 00000000
    0000018bcfe56800 0a01020300001234 000001a1fd128782 c0a8000900002a9f 00000000 0000000000000000
    00000005 68656c6c6f 09 546f70696354657374 003e
    4b455953 01 6b31206b32 02 554e49515f4b4559 01
    3041303130323033303030303030303030303030303030303030304130303030 02 54414753 01 54616741";

/// Born host and store host are IPv6 addresses.
const V6: &str = "00000081 daa320a7 0cdc1683 00000001 00000000 0000000000000000 0000000000000000 00000030
    0000018bcfe56800 20010db8000000000000000000000001 00001f90 000001a1fd1bea9b
    20010db8000000000000000000000002 00002a9f 00000000 0000000000000000 00000001 78 02 5436 000b
    54414753 01 e6a087e7adbe";

/// A delayed message, parked and delivered.
const DELAYED: &str = "00000099daa320a718dd4acc000000000000000000000000000000000000000000000000000000000000018bcfe56800
    0a01020300001234000001a1fd1c0158c0a8000900002a9f0000000000000000000000000000000164135343484544554c455f544f504943
    5f58585858002a5245414c5f544f5049430154440244454c4159013102544147530154616741025245414c5f5149440137
    00000088daa320a718dd4acc000000070000000000000000000000000000000000000099000000000000018bcfe56800
    0a01020300001234000001a1fd1c0595c0a8000900002a9f0000000000000000000000000000000164025444002a
    5245414c5f544f5049430154440244454c4159013102544147530154616741025245414c5f5149440137";

fn bytes(hex: &str) -> Vec<u8> {
    let hex: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    hex.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn found(bytes: &[u8]) -> Found {
    check(bytes, bytes.len() as u64, Versions::V1AndV2).unwrap()
}

fn frame(bytes: &[u8]) -> Frame<'_> {
    match found(bytes) {
        Found::Message(layout) => Frame::new(bytes, layout),
        other => panic!("{other:?}"),
    }
}

#[test]
fn reads_every_field_of_a_message() {
    let bytes = bytes(SINGLE);
    let frame = frame(&bytes);
    assert_eq!(frame.store_size(), 167);
    assert_eq!(frame.magic(), 0xdaa3_20a7);
    assert_eq!(frame.body_crc(), 0x3610_a686);
    assert_eq!(frame.queue_id(), 3);
    assert_eq!(frame.flag(), 0);
    assert_eq!(frame.queue_offset(), 0);
    assert_eq!(frame.stated_phy_offset(), 0);
    assert_eq!(frame.sys_flag(), 0);
    assert_eq!(frame.born_timestamp(), 1_700_000_000_000);
    assert_eq!(frame.store_timestamp(), 0x01a1_fd12_8782);
    assert_eq!(frame.reconsume_times(), 0);
    assert_eq!(frame.prepared_transaction_offset(), 0);
    assert_eq!(frame.stored_body(), b"hello");
    assert_eq!(frame.topic(), b"TopicTest");
    let text = decode_utf8(frame.properties());
    assert_eq!(
        properties::parse(&text),
        [("KEYS", "k1 k2"), ("UNIQ_KEY", "0A0102030000000000000000000A0000"), ("TAGS", "TagA")]
    );
    let mut text = String::new();
    write_host(frame.born_host(), &mut text);
    assert_eq!(text, "10.1.2.3:4660");
    write_host(frame.store_host(), &mut text);
    assert_eq!(text, "192.168.0.9:10911");
    write_msg_id(frame.store_host(), 0, &mut text);
    assert_eq!(text, "C0A8000900002A9F0000000000000000");
}

#[test]
fn reads_ipv6_hosts() {
    let bytes = bytes(V6);
    let frame = frame(&bytes);
    assert_eq!((frame.store_size(), frame.sys_flag(), frame.queue_id()), (129, 0x30, 1));
    assert_eq!((frame.topic(), frame.stored_body()), (&b"T6"[..], &b"x"[..]));
    assert_eq!(frame.store_timestamp(), 0x01a1_fd1b_ea9b);
    assert_eq!(decode_utf8(frame.properties()), "TAGS\u{1}\u{6807}\u{7b7e}");
    let mut text = String::new();
    write_host(frame.born_host(), &mut text);
    assert_eq!(text, "[2001:db8::1]:8080");
    write_msg_id(frame.store_host(), 0, &mut text);
    assert_eq!(text, "20010DB800000000000000000000000200002A9F0000000000000000");
}

#[test]
fn a_delayed_message_is_parked_and_delivered() {
    let bytes = bytes(DELAYED);
    let parked = frame(&bytes);
    assert_eq!((parked.store_size(), parked.topic()), (153, &b"SCHEDULE_TOPIC_XXXX"[..]));
    let rest = bytes.get(153..).unwrap();
    let delivered = frame(rest);
    assert_eq!((delivered.store_size(), delivered.topic(), delivered.queue_id()), (136, &b"TD"[..], 7));
    assert_eq!(delivered.stated_phy_offset(), 153);
}

#[test]
fn a_parked_message_needs_a_level_that_is_a_number() {
    let mut bytes = bytes(DELAYED);
    bytes.truncate(153);
    let at = bytes.windows(7).position(|w| w == b"DELAY\x011").unwrap() + 6;
    *bytes.get_mut(at).unwrap() = b'x';
    assert_eq!(found(&bytes), Found::Refused(Refusal::DelayLevel));
}

#[test]
fn wants_the_bytes_that_it_does_not_have() {
    let bytes = bytes(SINGLE);
    assert_eq!(check(&[], 167, Versions::V1), Err(Needs(8)));
    assert_eq!(check(bytes.get(..7).unwrap(), 167, Versions::V1), Err(Needs(8)));
    for len in 8..167 {
        assert_eq!(check(bytes.get(..len).unwrap(), 167, Versions::V1), Err(Needs(167)), "{len}");
        assert_eq!(check(&bytes, len as u64, Versions::V1), Ok(Found::Refused(Refusal::CutOff)), "{len}");
    }
}

#[test]
fn refuses_what_a_broker_refuses() {
    let good = bytes(SINGLE);
    let with = |at: usize, new: &[u8]| {
        let mut bytes = good.clone();
        bytes.splice(at..at + new.len(), new.iter().copied());
        found(&bytes)
    };
    assert_eq!(with(4, &[0; 4]), Found::Refused(Refusal::Unwritten));
    assert_eq!(with(4, b"\xde\xad\xbe\xef"), Found::Refused(Refusal::Magic(0xdead_beef)));
    assert_eq!(with(4, &MAGIC_BLANK.to_be_bytes()), Found::Blank);
    assert_eq!(with(0, &168u32.to_be_bytes()), Found::Refused(Refusal::CutOff));
    assert_eq!(with(0, &i32::MAX.to_be_bytes()), Found::Refused(Refusal::CutOff));
    for size in [0, 1, 7, 8, 90, 91, 166, -1, i32::MIN] {
        assert_eq!(with(0, &size.to_be_bytes()), Found::Refused(Refusal::Size { stated: size }));
    }
    for length in [4, 6, 77, i32::MAX, -1] {
        assert_eq!(with(84, &length.to_be_bytes()), Found::Refused(Refusal::Size { stated: 167 }), "body {length}");
    }
    for length in [8, 10, 127, 0x80, 0xff] {
        assert_eq!(with(93, &[length]), Found::Refused(Refusal::Size { stated: 167 }), "topic {length}");
    }
    for length in [0, 0x3d, 0x3f, 0x7fff, -1] {
        let length: i16 = length;
        assert_eq!(with(103, &length.to_be_bytes()), Found::Refused(Refusal::Size { stated: 167 }));
    }
    assert!(matches!(with(88, b"H"), Found::Refused(Refusal::BodyCrc { stored: 0x3610_a686, .. })));
    assert!(matches!(with(8, b"\xb6"), Found::Refused(Refusal::BodyCrc { .. })), "the highest bit is never set");
    // Nothing guards these.
    for at in [12, 16, 20, 28, 40, 94, 120] {
        assert!(matches!(with(at, b"U"), Found::Message(_)), "byte {at}");
    }
}

#[test]
fn negative_lengths_of_body_and_properties_are_zero() {
    let mut bytes = bytes(SINGLE);
    bytes.truncate(105);
    bytes.splice(88..93, []);
    bytes.splice(84..88, (-5i32).to_be_bytes());
    bytes.splice(98..100, (-5i16).to_be_bytes());
    bytes.splice(0..4, 100u32.to_be_bytes());
    let frame = frame(&bytes);
    assert_eq!((frame.stored_body(), frame.topic(), frame.properties()), (&b""[..], &b"TopicTest"[..], &b""[..]));
}

#[test]
fn version_2_has_a_longer_topic_length() {
    let mut bytes = bytes(SINGLE);
    bytes.splice(93..94, [0, 9]);
    bytes.splice(0..8, [0, 0, 0, 168, 0xda, 0xa3, 0x20, 0xab]);
    assert_eq!(frame(&bytes).topic(), b"TopicTest");
    assert_eq!(frame(&bytes).magic(), 0xdaa3_20ab);
    assert_eq!(decode_utf8(frame(&bytes).properties()).len(), 62);
    assert_eq!(check(&bytes, 168, Versions::V1), Ok(Found::Refused(Refusal::Magic(0xdaa3_20ab))));
}

#[test]
fn blank_needs_no_more_than_its_head() {
    assert_eq!(found(&bytes("00000054 cbd43194")), Found::Blank);
    assert_eq!(found(&[0; 8]), Found::Refused(Refusal::Unwritten));
    assert_eq!(found(&[0; 7]), Found::Refused(Refusal::CutOff));
}

#[test]
fn a_batch_that_was_never_completed_is_known_by_its_head() {
    let mut head = [0; 76];
    assert!(!is_uncommitted(&head, 0), "unwritten space");
    head[28..36].copy_from_slice(&700u64.to_be_bytes());
    assert!(is_uncommitted(&head, 700));
    assert!(!is_uncommitted(&head, 701), "left over from elsewhere");
    assert!(!is_uncommitted(&head[..35], 700));
    head[28..36].fill(0);
    head[60] = 1;
    assert!(is_uncommitted(&head, 0));
    head[7] = 1;
    assert!(!is_uncommitted(&head, 0));
}
