//! Logs that are written here and read back.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{ArrayRef, BinaryArray, Int32Array, RecordBatch, StringArray, TimestampMillisecondArray};

use super::{
    Append, AppendMode, CommitLogWriter, FlushMode, GivenMessage, Host, Limits, PutOptions, SentMessage, WriterOptions,
};
use crate::error::Error;
use crate::rocketmq::commit_log::columns::Column;
use crate::rocketmq::commit_log::property_map::PropertyMap;
use crate::rocketmq::commit_log::{Bodies, CommitLog, Options, ScanOptions};
use crate::rocketmq::release::Release;

const PUT: PutOptions = PutOptions { bodies: Bodies::Decoded, park: true };
/// Store time of the single message of the paper that real brokers wrote.
const STORED: i64 = 0x01a1_fd12_8782;

fn options(file_size: u64) -> WriterOptions {
    let store_host = Host::parse("192.168.0.9:10911").unwrap();
    let limits = Limits { release: Release::V5_5_0, max_message_size: Limits::MAX_MESSAGE_SIZE };
    WriterOptions {
        file_size,
        store_host,
        levels: 18,
        flush: FlushMode::Manual,
        limits,
        multi_dispatch: true,
        append: Append::default(),
    }
}

fn open(directory: &Path, end: u64, file_size: u64) -> CommitLogWriter {
    CommitLogWriter::open(directory, end, options(file_size)).unwrap()
}

fn texts(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn ints(values: &[i32]) -> ArrayRef {
    Arc::new(Int32Array::from(values.to_vec()))
}

fn bodies(values: &[&[u8]]) -> ArrayRef {
    Arc::new(BinaryArray::from(values.to_vec()))
}

fn times(values: &[i64]) -> ArrayRef {
    Arc::new(TimestampMillisecondArray::from(values.to_vec()).with_timezone("UTC"))
}

/// One row of properties after the other.
fn properties(rows: &[&[(&str, &str)]]) -> ArrayRef {
    let mut map = PropertyMap::default();
    for row in rows {
        for (name, value) in *row {
            map.push(name, Some(value));
        }
        map.end_row(true);
    }
    Arc::new(map.finish())
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).unwrap()
}

fn offsets(put: &RecordBatch, column: &str) -> Vec<i64> {
    put.column_by_name(column).unwrap().as_primitive::<Int64Type>().values().to_vec()
}

fn read(directory: &Path) -> RecordBatch {
    let log = CommitLog::open(directory, Options::default()).unwrap();
    let mut reader = log.scan(&ScanOptions::default()).unwrap();
    reader.next_batch().unwrap().expect("the log holds a message")
}

fn file(directory: &Path, start: u64) -> Vec<u8> {
    fs::read(directory.join(format!("{start:020}"))).unwrap()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn one_message_is_the_broker_s_byte_for_byte() {
    let wanted =
        hex("000000a7 daa320a7 3610a686 00000003 00000000 0000000000000000 0000000000000000 00000000 0000018bcfe56800
         0a01020300001234 000001a1fd128782 c0a8000900002a9f 00000000 0000000000000000 00000005 68656c6c6f 09
         546f70696354657374 003e 4b455953 01 6b31206b32 02 554e49515f4b4559 01
         3041303130323033303030303030303030303030303030303030304130303030 02 54414753 01 54616741");
    let directory = tempfile::tempdir().unwrap();
    let writer = open(directory.path(), 0, 4096);
    let put = writer
        .put_messages(
            &batch(vec![
                ("topic", texts(&[Some("TopicTest")])),
                ("queue_id", ints(&[3])),
                ("body", bodies(&[b"hello"])),
                ("born_timestamp", times(&[1_700_000_000_000])),
                ("store_timestamp", times(&[STORED])),
                ("born_host", texts(&[Some("10.1.2.3:4660")])),
                (
                    "properties",
                    properties(&[&[
                        ("KEYS", "k1 k2"),
                        ("UNIQ_KEY", "0A0102030000000000000000000A0000"),
                        ("TAGS", "TagA"),
                    ]]),
                ),
            ]),
            PUT,
        )
        .unwrap();
    let bytes = file(directory.path(), 0);
    assert_eq!(bytes.len(), 4096);
    assert_eq!(bytes.split_at(wanted.len()), (&wanted[..], &vec![0; 4096 - wanted.len()][..]));
    assert_eq!(put.column_by_name("msg_id").unwrap().as_string::<i32>().value(0), "C0A8000900002A9F0000000000000000");
    assert_eq!((writer.wrote_offset(), writer.flushed_offset()), (167, 0));
    writer.flush().unwrap();
    assert_eq!((writer.flushed_offset(), writer.flushed_store_timestamp()), (167, STORED));
}

#[test]
fn ipv6_hosts_set_their_bits() {
    let wanted =
        hex("00000081 daa320a7 0cdc1683 00000001 00000000 0000000000000000 0000000000000000 00000030 0000018bcfe56800
         20010db8000000000000000000000001 00001f90 000001a1fd1bea9b 20010db8000000000000000000000002 00002a9f 00000000
         0000000000000000 00000001 78 02 5436 000b 54414753 01 e6a087e7adbe");
    let directory = tempfile::tempdir().unwrap();
    open(directory.path(), 0, 4096)
        .put_messages(
            &batch(vec![
                ("topic", texts(&[Some("T6")])),
                ("queue_id", ints(&[1])),
                ("body", bodies(&[b"x"])),
                ("born_timestamp", times(&[1_700_000_000_000])),
                ("store_timestamp", times(&[0x01a1_fd1b_ea9b])),
                ("born_host", texts(&[Some("[2001:db8::1]:8080")])),
                ("store_host", texts(&[Some("[2001:db8::2]:10911")])),
                ("tags", texts(&[Some("\u{6807}\u{7b7e}")])),
            ]),
            PUT,
        )
        .unwrap();
    assert_eq!(file(directory.path(), 0).get(..wanted.len()).unwrap(), wanted);
}

#[test]
fn a_delayed_message_is_parked_and_delivered_as_by_the_broker() {
    let parked = hex(
        "00000099daa320a718dd4acc000000000000000000000000000000000000000000000000000000000000018bcfe568000a01020300001234
         000001a1fd1c0158c0a8000900002a9f0000000000000000000000000000000164135343484544554c455f544f5049435f58585858002a52
         45414c5f544f5049430154440244454c4159013102544147530154616741025245414c5f5149440137",
    );
    let delivered = hex(
        "00000088daa320a718dd4acc000000070000000000000000000000000000000000000099000000000000018bcfe568000a01020300001234
         000001a1fd1c0595c0a8000900002a9f0000000000000000000000000000000164025444002a5245414c5f544f5049430154440244454c41
         59013102544147530154616741025245414c5f5149440137",
    );
    let directory = tempfile::tempdir().unwrap();
    let writer = open(directory.path(), 0, 4096);
    let message = |topic: &str, stored, entries: &[(&str, &str)]| {
        batch(vec![
            ("topic", texts(&[Some(topic)])),
            ("queue_id", ints(&[7])),
            ("body", bodies(&[b"d"])),
            ("born_timestamp", times(&[1_700_000_000_000])),
            ("store_timestamp", times(&[stored])),
            ("born_host", texts(&[Some("10.1.2.3:4660")])),
            ("properties", properties(&[entries])),
        ])
    };
    let put = writer.put_messages(&message("TD", 0x01a1_fd1c_0158, &[("DELAY", "1"), ("TAGS", "TagA")]), PUT).unwrap();
    assert_eq!(put.column_by_name("topic").unwrap().as_string::<i32>().value(0), "SCHEDULE_TOPIC_XXXX");
    let log = read(directory.path());
    let names: Vec<_> = log.column_by_name("properties").unwrap().as_map().keys().as_string::<i32>().iter().collect();
    assert_eq!(names, [Some("REAL_TOPIC"), Some("DELAY"), Some("TAGS"), Some("REAL_QID")]);
    let entries = [("REAL_TOPIC", "TD"), ("DELAY", "1"), ("TAGS", "TagA"), ("REAL_QID", "7")];
    writer.put_messages(&message("TD", 0x01a1_fd1c_0595, &entries), PutOptions { park: false, ..PUT }).unwrap();
    let bytes = file(directory.path(), 0);
    assert_eq!(bytes.get(..153).unwrap(), parked);
    assert_eq!(bytes.get(153..153 + 136).unwrap(), delivered);
    // A level above the last counts as the last; what is parked is not parked again.
    let put = writer.put_messages(&message("TD", 0, &[("DELAY", "99")]), PUT).unwrap();
    assert_eq!(put.column_by_name("queue_id").unwrap().as_primitive::<Int32Type>().values(), &[17]);
    let put = writer.put_messages(&message("SCHEDULE_TOPIC_XXXX", 0, &[("DELAY", "3")]), PUT).unwrap();
    assert_eq!(put.column_by_name("queue_id").unwrap().as_primitive::<Int32Type>().values(), &[7]);
    assert!(writer.put_messages(&message("SCHEDULE_TOPIC_XXXX", 0, &[("DELAY", "x")]), PUT).is_err());
}

#[test]
fn queue_offsets_are_those_of_the_broker() {
    let directory = tempfile::tempdir().unwrap();
    let writer = open(directory.path(), 0, 65_536);
    writer.set_queue_offset("U", 0, 40).unwrap();
    let put = writer.put_messages(
        &batch(vec![
            ("topic", texts(&[Some("T"), Some("T"), Some("T"), Some("T"), Some("T"), Some("U")])),
            ("sys_flag", ints(&[0, 4, 8, 12, 0, 0])),
        ]),
        PUT,
    );
    assert_eq!(offsets(&put.unwrap(), "queue_offset"), [0, 0, 1, 0, 2, 40]);
    let lights = [("INNER_MULTI_DISPATCH", "%LMQ%a,other")];
    let put = writer.put_messages(
        &batch(vec![
            ("topic", texts(&[Some("T"), Some("T")])),
            ("queue_id", ints(&[5, 5])),
            ("properties", properties(&[&lights, &lights])),
        ]),
        PUT,
    );
    assert_eq!(offsets(&put.unwrap(), "queue_offset"), [0, 1]);
    let put = writer.put_messages(
        &batch(vec![("topic", texts(&[Some("other"), Some("%LMQ%a")])), ("queue_id", ints(&[5, 0]))]),
        PUT,
    );
    assert_eq!(offsets(&put.unwrap(), "queue_offset"), [2, 2]);
    let inner = batch(vec![
        ("topic", texts(&[Some("B"), Some("B")])),
        ("sys_flag", ints(&[0x80, 0x80])),
        ("properties", properties(&[&[("INNER_BASE", "9"), ("INNER_NUM", "3")], &[("INNER_NUM", "2")]])),
    ]);
    assert_eq!(offsets(&writer.put_messages(&inner, PUT).unwrap(), "queue_offset"), [0, 3]);
}

#[test]
fn files_end_with_a_blank_frame_and_no_message_spans_two() {
    let directory = tempfile::tempdir().unwrap();
    let writer = open(directory.path(), 0, 1000);
    let body = vec![7; 200];
    let many: Vec<&[u8]> = vec![&body; 10];
    let put = writer
        .put_messages(&batch(vec![("topic", texts(&[Some("Topic"); 10])), ("body", bodies(&many))]), PUT)
        .unwrap();
    // 91 + 5 + 200 bytes: three a file.
    let wanted: Vec<i64> = (0..10).map(|i| i / 3 * 1000 + i % 3 * 296).collect();
    assert_eq!(offsets(&put, "phy_offset"), wanted);
    assert_eq!(file(directory.path(), 0).get(888..900).unwrap(), hex("00000070 cbd43194 00000000"));
    assert_eq!(offsets(&read(directory.path()), "phy_offset"), wanted);
    assert_eq!(writer.wrote_offset(), 3296);
    // 704 bytes are left, 8 of them for a BLANK frame: one of 696 fits, and after it nothing does.
    for (len, wanted) in [(600, 3296), (1, 4000), (895, 5000), (1, 6000)] {
        let body = vec![1; len];
        let put =
            writer.put_messages(&batch(vec![("topic", texts(&[Some("Topic")])), ("body", bodies(&[&body]))]), PUT);
        assert_eq!(offsets(&put.unwrap(), "phy_offset"), [wanted], "{len}");
    }
    assert_eq!(file(directory.path(), 3000).get(992..).unwrap(), hex("00000008 cbd43194"));
    assert_eq!(read(directory.path()).num_rows(), 14);
}

#[test]
fn a_row_that_is_no_message_refuses_the_batch_and_nothing_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("commitlog");
    let writer = open(&folder, 0, 1000);
    let long = "t".repeat(256);
    let topics = |second: Option<&str>| ("topic", texts(&[Some("T"), second]));
    let large = vec![0; 905];
    let cases: Vec<(RecordBatch, &str)> = vec![
        (batch(vec![topics(None)]), "row 1: topic: expected text, found null"),
        (batch(vec![topics(Some(""))]), "row 1: topic \"\""),
        (batch(vec![topics(Some("a/b"))]), "expected 1 to 127 of the characters"),
        (batch(vec![topics(Some(&long))]), "of 256 bytes: expected 1 to 127"),
        (batch(vec![topics(Some("T")), ("queue_id", ints(&[0, -1]))]), "found -1"),
        (batch(vec![topics(Some("T")), ("body", bodies(&[b"", &large]))]), "do not fit a file of 1000"),
        (batch(vec![topics(Some("T")), ("born_host", texts(&[None, Some("localhost:1")]))]), "expected ip:port"),
        (batch(vec![topics(Some("T")), ("body_error", texts(&[None, Some("bad zlib")]))]), "found null: bad zlib"),
        (batch(vec![topics(Some("T")), ("properties", properties(&[&[], &[("a", "b\u{2}")]]))]), "property \"a\""),
        (batch(vec![topics(Some("T")), ("properties", properties(&[&[], &[("DELAY", "x")]]))]), "delay level \"x\""),
        (batch(vec![topics(Some("T")), ("sys_flag", ints(&[0, 0x80]))]), "INNER_NUM"),
        (
            batch(vec![
                topics(Some("T")),
                ("tags", texts(&[Some("x"), Some("x")])),
                ("properties", properties(&[&[("TAGS", "x")], &[("TAGS", "y")]])),
            ]),
            "property TAGS is \"y\"",
        ),
        (batch(vec![topics(Some("T")), ("tag", texts(&[None, None]))]), "no message column \"tag\""),
        (
            batch(vec![topics(Some("T")), ("queue_id", texts(&[None, None]))]),
            "column queue_id: expected Int32, found Utf8",
        ),
        (batch(vec![("body", bodies(&[b""]))]), "expected a column topic, found none"),
    ];
    for (batch, wanted) in cases {
        let error = writer.put_messages(&batch, PUT).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}: {wanted}");
    }
    assert!(!folder.exists());
    let put = writer.put_messages(&batch(vec![("topic", texts(&[Some("T")]))]), PUT).unwrap();
    assert_eq!((offsets(&put, "queue_offset"), offsets(&put, "phy_offset")), (vec![0], vec![0]));
    assert!(writer.put_messages(&batch(vec![("topic", texts(&[]))]), PUT).unwrap().num_rows() == 0);
}

#[test]
fn a_file_that_cannot_be_taken_refuses_the_batch_and_nothing_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let writer = open(directory.path(), 0, 1000);
    fs::write(directory.path().join(format!("{:020}", 1000)), b"short").unwrap();
    let body = vec![1; 500];
    let two = batch(vec![("topic", texts(&[Some("T"), Some("T")])), ("body", bodies(&[&body, &body]))]);
    let error = writer.put_messages(&two, PUT).unwrap_err().to_string();
    assert!(error.contains("expected 1000 bytes, found 5 bytes"), "{error}");
    assert_eq!(file(directory.path(), 0), vec![0; 1000]);
    fs::remove_file(directory.path().join(format!("{:020}", 1000))).unwrap();
    assert_eq!(offsets(&writer.put_messages(&two, PUT).unwrap(), "queue_offset"), [0, 1]);
}

#[test]
fn a_log_goes_on_at_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let one = batch(vec![("topic", texts(&[Some("T")])), ("body", bodies(&[b"body"]))]);
    let mut end = 0;
    for number in 0..30i64 {
        let writer = open(directory.path(), end, 1000);
        writer.set_queue_offset("T", 0, number).unwrap();
        writer.put_messages(&one, PUT).unwrap();
        end = writer.wrote_offset();
        writer.close().unwrap();
        assert!(writer.is_closed());
        assert!(writer.put_messages(&one, PUT).unwrap_err().to_string().contains("closed for writing"));
    }
    let log = read(directory.path());
    assert_eq!(offsets(&log, "queue_offset"), (0..30).collect::<Vec<_>>());
    assert_eq!(CommitLog::open(directory.path(), Options::default()).unwrap().max_offset().unwrap(), end);
}

#[test]
fn one_message_is_put_as_a_batch_of_one() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("a"), directory.path().join("b"));
    let (one, many) = (open(&first, 0, 1000), open(&second, 0, 1000));
    for (topic, level) in [("T", "0"), ("Topic", "2"), ("T", "1")] {
        let given = GivenMessage {
            topic,
            queue_id: 4,
            flag: -1,
            born_timestamp: Some(1),
            store_timestamp: Some(2),
            born_host: Some(Host::parse("[::1]:9").unwrap()),
            body: b"body",
            ..GivenMessage::default()
        };
        let entries = [("TAGS", "x"), ("DELAY", level)];
        let placed = one.put_message(given, entries, PUT).unwrap();
        let columns = vec![
            ("topic", texts(&[Some(topic)])),
            ("queue_id", ints(&[4])),
            ("flag", ints(&[-1])),
            ("born_timestamp", times(&[1])),
            ("store_timestamp", times(&[2])),
            ("born_host", texts(&[Some("[::1]:9")])),
            ("body", bodies(&[b"body"])),
            ("properties", properties(&[&entries])),
        ];
        let put = many.put_messages(&batch(columns), PUT).unwrap();
        let text = |column| put.column_by_name(column).unwrap().as_string::<i32>().value(0).to_owned();
        assert_eq!((placed.topic.to_owned(), placed.msg_id()), (text("topic"), text("msg_id")));
        assert_eq!(placed.queue_offset, offsets(&put, "queue_offset")[0]);
        assert_eq!(placed.phy_offset.cast_signed(), offsets(&put, "phy_offset")[0]);
    }
    assert_eq!(file(&first, 0), file(&second, 0));
}

#[test]
fn what_waits_for_the_disk_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let options = WriterOptions { flush: FlushMode::Sync, ..options(100_000) };
    let writer = CommitLogWriter::open(directory.path(), 0, options).unwrap();
    let one = batch(vec![("topic", texts(&[Some("T")])), ("body", bodies(&[b"body"]))]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let put = writer.put_messages(&one, PUT).unwrap();
                    let end = offsets(&put, "phy_offset")[0].cast_unsigned() + 96;
                    assert!(writer.flushed_offset() >= end);
                }
            });
        }
    });
    let mut seen = offsets(&read(directory.path()), "queue_offset");
    seen.sort_unstable();
    assert_eq!(seen, (0..100).collect::<Vec<_>>());
}

#[test]
fn a_service_flushes_beside_the_puts() {
    let directory = tempfile::tempdir().unwrap();
    let options = WriterOptions { flush: FlushMode::Async, ..options(1 << 20) };
    let writer = CommitLogWriter::open(directory.path(), 0, options).unwrap();
    let body = vec![0; 20_000];
    writer.put_messages(&batch(vec![("topic", texts(&[Some("T")])), ("body", bodies(&[&body]))]), PUT).unwrap();
    let begin = std::time::Instant::now();
    while writer.flushed_offset() < writer.wrote_offset() {
        assert!(begin.elapsed().as_secs() < 60, "nothing was flushed");
        std::thread::yield_now();
    }
    // Ending it does not wait for its next turn.
    writer.close().unwrap();
}

#[test]
fn columns_of_a_scan_are_put_again_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("a"), directory.path().join("b"));
    let writer = open(&first, 0, 2000);
    let group = "%RETRY%".to_owned() + &"g".repeat(150);
    let messages = batch(vec![
        ("topic", texts(&[Some("T"), Some(&group), Some("T")])),
        ("queue_id", ints(&[1, 0, 1])),
        ("body", bodies(&[b"one", b"", b"three"])),
        ("flag", ints(&[1, -2, 3])),
        ("store_timestamp", times(&[5, 6, 7])),
        ("reconsume_times", ints(&[0, 16, 0])),
        ("properties", properties(&[&[("a", "b")], &[], &[("KEYS", "x y"), ("a", "b\u{1}c")]])),
    ]);
    writer.put_messages(&messages, PUT).unwrap();
    let log = read(&first);
    assert_eq!(log.num_rows(), 3);
    assert_eq!(log.num_columns(), Column::ALL.len());
    open(&second, 0, 2000).put_messages(&log, PutOptions { park: false, ..PUT }).unwrap();
    assert_eq!(file(&first, 0), file(&second, 0));
}

#[test]
fn a_message_that_the_broker_refuses_is_refused() {
    let topic = |topic: &str| vec![("topic", texts(&[Some(topic)]))];
    let flag = |flag: i32| vec![("topic", texts(&[Some("T")])), ("sys_flag", ints(&[flag]))];
    let inner = |value: i32| [flag(value), vec![("properties", properties(&[&[("INNER_NUM", "2")]]))]].concat();
    let sized = |bytes: usize| vec![("topic", texts(&[Some("T")])), ("body", bodies(&[&vec![b'b'; bytes]]))];
    let long = |prefix: &str, len: usize| prefix.to_owned() + &"t".repeat(len - prefix.len());
    let stored = PutOptions { bodies: Bodies::Stored, park: false };
    // The frame of topic T without properties has 92 bytes besides its body.
    let most = Limits::MAX_MESSAGE_SIZE - 92;
    // The columns of a message, and whether 4.9.3 and later releases take it.
    let cases: [(Vec<_>, bool, bool); 19] = [
        (topic(&long("", 127)), true, true),
        (topic(&long("", 128)), false, false),
        (topic(&long("%RETRY%", 128)), false, true),
        (topic(&long("%RETRY%", 255)), false, true),
        (topic(&long("%RETRY%", 256)), false, false),
        (topic("azAZ09%|-_"), true, true),
        (topic("a b"), false, false),
        (topic("a.b"), false, false),
        (topic("\u{8ba2}"), false, false),
        (flag(0x301), true, true),
        (flag(0x101), false, true),
        (flag(0x201), false, true),
        (flag(0x701), false, false),
        (inner(0x80), false, true),
        (inner(0xc0), false, true),
        (sized(most), true, true),
        (sized(most + 1), false, true),
        (sized(Limits::MAX_MESSAGE_SIZE), false, true),
        (sized(Limits::MAX_MESSAGE_SIZE + 1), false, false),
    ];
    for (columns, old, new) in cases {
        for (release, taken) in [(Release::V4_9_3, old), (Release::V5_3_3, new), (Release::V5_5_0, new)] {
            let directory = tempfile::tempdir().unwrap();
            let limits = Limits { release, max_message_size: Limits::MAX_MESSAGE_SIZE };
            let options = WriterOptions { limits, ..options(8 << 20) };
            let writer = CommitLogWriter::open(directory.path(), 0, options).unwrap();
            let put = writer.put_messages(&batch(columns.clone()), stored);
            let error = put.err().map(|error| error.to_string());
            assert_eq!(error.is_none(), taken, "{release:?} {error:?}");
            assert!(error.is_none_or(|error| error.contains(release.name())));
        }
    }
}

/// Twelve messages in files of 400 bytes, with the bytes after BLANK frames, and the end of the log.
fn of_another_broker(directory: &Path) -> (Vec<u8>, usize) {
    let writer = open(directory, 0, 400);
    for number in 0..12u8 {
        let body = vec![number; 20 * usize::from(number % 5)];
        let message =
            batch(vec![("topic", texts(&[Some("T")])), ("body", bodies(&[&body])), ("store_timestamp", times(&[9]))]);
        writer.put_messages(&message, PUT).unwrap();
    }
    let end = usize::try_from(writer.wrote_offset()).unwrap();
    let files = 0..u64::try_from(end).unwrap().div_ceil(400);
    (files.flat_map(|number| file(directory, 400 * number)).collect(), end)
}

#[test]
fn frames_of_another_broker_are_appended_as_they_are_wherever_they_are_cut() {
    let folder = tempfile::tempdir().unwrap();
    let (log, end) = of_another_broker(folder.path());
    assert!(end > 4 * 400, "{end}");
    for piece in [1, 3, 7, 50, 128, 399, 400, 401, 1000, end] {
        let directory = tempfile::tempdir().unwrap();
        let writer = open(directory.path(), 0, 400);
        let (mut pending, mut needed) = (Vec::new(), 0);
        for bytes in log[..end].chunks(piece) {
            pending.extend_from_slice(bytes);
            if pending.len() >= needed {
                let taken;
                (taken, needed) = writer.append_frames(&pending).unwrap();
                pending.drain(..taken);
                assert!(needed > pending.len() || pending.is_empty(), "{piece} {needed} {}", pending.len());
            }
        }
        assert_eq!((writer.wrote_offset(), pending.len()), (end as u64, 0), "{piece}");
        writer.flush().unwrap();
        assert_eq!(writer.flushed_store_timestamp(), 9);
        let files = 0..(end as u64).div_ceil(400);
        let copy: Vec<u8> = files.flat_map(|number| file(directory.path(), 400 * number)).collect();
        assert_eq!(copy, log, "{piece}");
    }
}

#[test]
fn what_is_no_frame_of_this_offset_is_refused_and_nothing_of_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (log, end) = of_another_broker(folder.path());
    let first = usize::try_from(u32::from_be_bytes(*log.first_chunk().unwrap())).unwrap();
    let changed = |at: usize, value: u8| {
        let mut bytes = log[..end].to_vec();
        bytes[at] ^= value;
        bytes
    };
    for (data, found) in [
        (changed(first, 1), "longer than the rest of the file"),
        (changed(first + 3, 1), "that its fields do not have"),
        (changed(first + 4, 1), "magic"),
        (changed(first + 28, 1), "the offset"),
        (changed(first + 88, 1), "0x"),
        ([&log[..first], &[0; 100]].concat(), "zeros"),
        ([&log[..first], &log[..first]].concat(), "the offset 0"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let writer = open(directory.path(), 0, 400);
        assert_eq!(writer.append_frames(&data).unwrap(), (first, 0), "{found}");
        let error = writer.append_frames(&data[first..]).unwrap_err();
        let Error::Corrupt { offset, found: text, .. } = &error else { panic!("{error}") };
        assert_eq!(*offset, first as u64);
        assert!(text.contains(found), "{error}");
        assert_eq!(writer.wrote_offset(), first as u64);
        assert_eq!(file(directory.path(), 0)[first..], vec![0; 400 - first]);
        // It is not a failure of the disk.
        assert_eq!(writer.append_frames(&log[first..end]).unwrap(), (end - first, 0));
    }
}

fn sent<'a>(topic: &'a str, body: &'a [u8], properties: &[(&'a str, &'a str)]) -> SentMessage<'a> {
    let given = GivenMessage { topic, body, ..GivenMessage::default() };
    SentMessage { given, properties: properties.to_vec(), as_java_map: true, is_batch: false }
}

/// The body of a batch.
fn elements(bodies: &[&[u8]], properties: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for body in bodies {
        let len = |length: usize| i32::try_from(length).unwrap().to_be_bytes();
        out.extend(len(22 + body.len() + properties.len()));
        out.extend([0; 8]);
        out.extend(7i32.to_be_bytes());
        out.extend(len(body.len()));
        out.extend(*body);
        out.extend(i16::try_from(properties.len()).unwrap().to_be_bytes());
        out.extend(properties.as_bytes());
    }
    out
}

#[test]
fn a_batch_is_in_one_file() {
    let directory = tempfile::tempdir().unwrap();
    let writer = open(directory.path(), 0, 1000);
    let body = [b'x'; 200];
    let size = 91 + 200 + 1;
    let three = elements(&[&body, &body, &body], "");
    let batch = SentMessage { is_batch: true, ..sent("T", &three, &[]) };
    let put = writer.put_each(&[sent("T", &body, &[]), batch], None).unwrap();
    let places = |at: usize| put.get(at).unwrap().as_ref().unwrap();
    assert_eq!(places(0).iter().map(|place| place.phy_offset).collect::<Vec<_>>(), [0]);
    assert_eq!(
        places(1).iter().map(|place| (place.phy_offset, place.queue_offset)).collect::<Vec<_>>(),
        [(1000, 1), (1000 + size, 2), (1000 + 2 * size, 3)]
    );
    assert_eq!(writer.wrote_offset(), 1000 + 3 * size);
    writer.close().unwrap();
}

#[test]
fn a_message_of_a_batch_has_its_own_properties_and_those_of_the_batch() {
    let directory = tempfile::tempdir().unwrap();
    let writer = open(directory.path(), 0, 1000);
    let body = elements(&[b"a", b"b"], "TAGS\u{1}x\u{2}DELAY\u{1}1\u{2}WAIT\u{1}true");
    let given = [("CLUSTER", "c"), ("WAIT", "true")];
    let batch = SentMessage { is_batch: true, ..sent("T", &body, &given) };
    assert_eq!(writer.put_each(&[batch], None).unwrap().first().unwrap().as_ref().unwrap().len(), 2);
    writer.close().unwrap();
    let end = usize::try_from(writer.wrote_offset()).unwrap();
    let bytes = file(directory.path(), 0);
    let text = b"TAGS\x01x\x02DELAY\x011\x02WAIT\x01true\x02CLUSTER\x01c\x02WAIT\x01true";
    assert!(bytes.get(..end).unwrap().ends_with(text), "{}", String::from_utf8_lossy(&bytes[..end]));
    let stored = read(directory.path());
    assert_eq!(stored.column_by_name("flag").unwrap().as_primitive::<Int32Type>().values(), &[7, 7]);
    assert_eq!(stored.column_by_name("topic").unwrap().as_string::<i32>().value(1), "T");
}

#[test]
fn a_put_that_is_refused_leaves_nothing_and_the_others_are_stored() {
    let directory = tempfile::tempdir().unwrap();
    let writer = open(directory.path(), 0, 1000);
    let body = [b'x'; 200];
    let four = elements(&[body.as_slice(); 4], "");
    let cut = elements(&[b"2", b"3"], "").split_last().unwrap().1.to_vec();
    let sent_batch = |body| SentMessage { is_batch: true, ..sent("T", body, &[]) };
    let puts = [
        sent("T", b"1", &[]),
        sent("not legal", b"2", &[]),
        sent_batch(&cut),
        sent_batch(&four),
        sent("T", b"4", &[("TAGS", "x"), ("KEYS", "k")]),
    ];
    let put = writer.put_each(&puts, None).unwrap();
    assert_eq!(put.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false, false, true]);
    let last = put.last().unwrap().as_ref().unwrap().first().unwrap();
    assert_eq!((last.phy_offset, last.queue_offset), (93, 1));
    assert_eq!(writer.wrote_offset(), 93 + u64::try_from(last.store_size).unwrap());
    writer.close().unwrap();
    assert_eq!(read(directory.path()).num_rows(), 2);
    let end = usize::try_from(writer.wrote_offset()).unwrap();
    // A Java map has KEYS before TAGS.
    assert!(file(directory.path(), 0).get(..end).unwrap().ends_with(b"KEYS\x01k\x02TAGS\x01x"));
}

/// Puts of all kinds into files of 2000 bytes: single messages, batches of several files, batches in one file, frames of a master.
/// The same for every mode.
fn mixed_puts(directory: &Path, mode: AppendMode, flush: FlushMode) -> CommitLogWriter {
    let append = Append { mode, warm: mode == AppendMode::Mapped, lock_memory: false };
    let writer = CommitLogWriter::open(directory, 0, WriterOptions { flush, append, ..options(2000) }).unwrap();
    let one = |number: u8| {
        let body = vec![number; usize::from(number) * 7];
        batch(vec![("topic", texts(&[Some("T")])), ("body", bodies(&[&body])), ("store_timestamp", times(&[9]))])
    };
    for number in 0..60u8 {
        writer.put_messages(&one(number), PUT).unwrap();
        if number % 20 == 7 {
            let body = vec![number; 300];
            let many: Vec<&[u8]> = vec![&body; 30];
            let same = [Some("Topic"); 30];
            let many =
                batch(vec![("topic", texts(&same)), ("body", bodies(&many)), ("store_timestamp", times(&[9; 30]))]);
            writer.put_messages(&many, PUT).unwrap();
        }
        if number % 25 == 3 {
            writer.commit().unwrap();
        }
        if number % 25 == 9 {
            writer.flush().unwrap();
        }
    }
    writer
}

fn files(directory: &Path, end: u64, file_size: u64) -> Vec<u8> {
    (0..end.div_ceil(file_size)).flat_map(|number| file(directory, file_size * number)).collect()
}

#[test]
fn all_modes_write_the_same_bytes() {
    let mut written = Vec::new();
    for mode in [AppendMode::Write, AppendMode::Mapped, AppendMode::Pool] {
        for flush in [FlushMode::Manual, FlushMode::Sync, FlushMode::Async] {
            let directory = tempfile::tempdir().unwrap();
            let writer = mixed_puts(directory.path(), mode, flush);
            let end = writer.wrote_offset();
            writer.close().unwrap();
            assert_eq!((writer.committed_offset(), writer.flushed_offset()), (end, end), "{mode:?} {flush:?}");
            let bytes = files(directory.path(), end, 2000);
            // What was prepared in vain is gone.
            let count = fs::read_dir(directory.path()).unwrap().count() as u64;
            assert_eq!((count, bytes.len() as u64), (end.div_ceil(2000), 2000 * count), "{mode:?} {flush:?}");
            written.push((end, bytes));
        }
    }
    let (first, others) = written.split_first().unwrap();
    assert!(first.0 > 20 * 2000, "{}", first.0);
    assert!(others.iter().all(|other| other == first));
}

#[test]
fn a_log_goes_on_in_another_mode() {
    let directory = tempfile::tempdir().unwrap();
    let one = batch(vec![("topic", texts(&[Some("T")])), ("body", bodies(&[&[1; 200]]))]);
    let mut end = 0;
    for number in 0..30 {
        let mode = [AppendMode::Write, AppendMode::Mapped, AppendMode::Pool][number % 3];
        let append = Append { mode, ..Append::default() };
        let writer = CommitLogWriter::open(directory.path(), end, WriterOptions { append, ..options(1000) }).unwrap();
        writer.put_messages(&one, PUT).unwrap();
        writer.put_messages(&one, PUT).unwrap();
        end = writer.wrote_offset();
        writer.close().unwrap();
    }
    assert_eq!(read(directory.path()).num_rows(), 60);
}

#[test]
fn readers_see_what_is_committed() {
    let one = batch(vec![("topic", texts(&[Some("T")])), ("body", bodies(&[b"body"]))]);
    let rows = |directory: &Path| {
        let log = CommitLog::open(directory, Options::default()).unwrap();
        log.scan(&ScanOptions::default()).unwrap().next_batch().unwrap().map_or(0, |batch| batch.num_rows())
    };
    for mode in [AppendMode::Write, AppendMode::Mapped, AppendMode::Pool] {
        let directory = tempfile::tempdir().unwrap();
        let append = Append { mode, ..Append::default() };
        let writer = CommitLogWriter::open(directory.path(), 0, WriterOptions { append, ..options(65_536) }).unwrap();
        writer.put_messages(&one, PUT).unwrap();
        let begin = std::time::Instant::now();
        // In its own time; a commit may already have been due.
        while rows(directory.path()) == 0 {
            assert!(mode == AppendMode::Pool && begin.elapsed().as_secs() < 60, "{mode:?}");
            std::thread::yield_now();
        }
        writer.put_messages(&one, PUT).unwrap();
        writer.commit().unwrap();
        assert_eq!((writer.committed_offset(), writer.flushed_offset()), (writer.wrote_offset(), 0), "{mode:?}");
        assert_eq!(rows(directory.path()), 2, "{mode:?}");
    }
}

#[test]
fn the_next_file_is_there_before_the_log_reaches_it() {
    for mode in [AppendMode::Mapped, AppendMode::Pool] {
        let directory = tempfile::tempdir().unwrap();
        let append = Append { mode, ..Append::default() };
        let writer = CommitLogWriter::open(directory.path(), 0, WriterOptions { append, ..options(1000) }).unwrap();
        let one = batch(vec![("topic", texts(&[Some("T")])), ("body", bodies(&[b"body"]))]);
        writer.put_messages(&one, PUT).unwrap();
        let begin = std::time::Instant::now();
        while !directory.path().join(format!("{:020}", 1000)).exists() {
            assert!(begin.elapsed().as_secs() < 60, "{mode:?}");
            std::thread::yield_now();
        }
        drop(writer);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "{mode:?}");
        assert_eq!(read(directory.path()).num_rows(), 1, "{mode:?}: dropping commits");
    }
}

#[test]
fn a_pool_that_is_empty_falls_back_to_maps_in_the_order_of_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let append = Append { mode: AppendMode::Pool, ..Append::default() };
    let options = WriterOptions { append, ..options(1000) };
    let writer = CommitLogWriter::open(directory.path(), 0, options).unwrap();
    let body = vec![7; 800];
    // One batch needs more files than the pool has buffers.
    let many: Vec<&[u8]> = vec![&body; 12];
    let many = batch(vec![("topic", texts(&[Some("T"); 12])), ("body", bodies(&many))]);
    let one = batch(vec![("topic", texts(&[Some("T")])), ("body", bodies(&[&body]))]);
    writer.put_messages(&one, PUT).unwrap();
    writer.put_messages(&many, PUT).unwrap();
    assert_eq!(writer.committed_offset(), writer.wrote_offset(), "what is in a map is not overtaken");
    assert_eq!(read(directory.path()).num_rows(), 13);
    for _ in 0..20 {
        writer.put_messages(&one, PUT).unwrap();
        writer.flush().unwrap();
    }
    assert_eq!(read(directory.path()).num_rows(), 33);
    writer.close().unwrap();
}

#[test]
fn threads_put_while_others_commit_and_flush() {
    for mode in [AppendMode::Write, AppendMode::Mapped, AppendMode::Pool] {
        let directory = tempfile::tempdir().unwrap();
        let append = Append { mode, ..Append::default() };
        let options = WriterOptions { append, flush: FlushMode::Sync, ..options(4000) };
        let writer = CommitLogWriter::open(directory.path(), 0, options).unwrap();
        let one = batch(vec![("topic", texts(&[Some("T")])), ("body", bodies(&[&[3; 500]]))]);
        let two = batch(vec![("topic", texts(&[Some("T"); 2])), ("body", bodies(&[&[4; 100], &[5; 900]]))]);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (writer, put) = (&writer, if thread % 2 == 0 { &one } else { &two });
                scope.spawn(move || {
                    for _ in 0..40 {
                        let placed = writer.put_messages(put, PUT).unwrap();
                        let last = offsets(&placed, "phy_offset").last().unwrap().cast_unsigned();
                        assert!(writer.flushed_offset() > last, "{mode:?}");
                        writer.commit().unwrap();
                    }
                });
            }
        });
        writer.close().unwrap();
        let mut seen = offsets(&read(directory.path()), "queue_offset");
        seen.sort_unstable();
        assert_eq!(seen, (0..240).collect::<Vec<_>>(), "{mode:?}");
    }
}

#[test]
fn only_maps_and_buffers_are_warmed_and_locked() {
    let directory = tempfile::tempdir().unwrap();
    for append in [Append { warm: true, ..Append::default() }, Append { lock_memory: true, ..Append::default() }] {
        let opened = CommitLogWriter::open(directory.path(), 0, WriterOptions { append, ..options(1000) });
        assert!(opened.unwrap_err().to_string().contains("warm, lock_memory: expected with"));
    }
}
