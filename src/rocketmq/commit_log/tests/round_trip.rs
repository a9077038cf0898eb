//! Written messages are read, and put again unchanged: messages of every shape, in logs of every file size.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array, RecordBatch};
use proptest::collection::vec;
use proptest::prelude::*;

use super::encoder::{TestLog, TestMessage};
use super::{offsets, scan};
use crate::batch_size::BatchSize;
use crate::rocketmq::commit_log::decode::columns::Column;
use crate::rocketmq::commit_log::frame::MAGIC_BLANK;
use crate::rocketmq::commit_log::write::{Append, CommitLogWriter, FlushMode, Host, Limits, PutOptions, WriterOptions};
use crate::rocketmq::commit_log::{Bodies, MessageReader};
use crate::rocketmq::release::Release;

fn host() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 8), vec(any::<u8>(), 20)]
}

prop_compose! {
    fn message()(
        version_2: bool,
        topic in "[a-zA-Z0-9_%|-]{1,20}",
        long in "[a-z]{0,200}",
        body in vec(any::<u8>(), 0..300),
        properties in vec(("[A-Z]{1,6}|KEYS|TAGS|UNIQ_KEY", "[^\u{1}\u{2}]{1,20}"), 0..6),
        trailing_separator: bool,
        born_host in host(),
        store_host in host(),
        queue_id: i32,
        flag: i32,
        transaction in 0i64..4,
        reconsume: i32,
        [queue_offset, born, stored, prepared] in any::<[i64; 4]>(),
    ) -> TestMessage {
        TestMessage {
            topic: if version_2 { format!("%RETRY%{topic}{long}") } else { topic },
            body,
            properties,
            trailing_separator,
            version_2,
            born_host,
            store_host,
            numbers: [
                queue_id.into(), flag.into(), queue_offset, transaction << 2, born, stored, reconsume.into(), prepared,
            ],
        }
    }
}

fn text<'a>(batch: &'a RecordBatch, name: &str, row: usize) -> Option<&'a str> {
    let column = batch.column_by_name(name).unwrap().as_string::<i32>();
    column.is_valid(row).then(|| column.value(row))
}

fn int32(batch: &RecordBatch, name: &str, row: usize) -> i32 {
    batch.column_by_name(name).unwrap().as_primitive::<Int32Type>().value(row)
}

fn int64(batch: &RecordBatch, name: &str, row: usize) -> i64 {
    batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().value(row)
}

fn time(batch: &RecordBatch, name: &str, row: usize) -> i64 {
    batch.column_by_name(name).unwrap().as_primitive::<TimestampMillisecondType>().value(row)
}

fn properties(batch: &RecordBatch, row: usize) -> Vec<(String, String)> {
    let entries = batch.column_by_name("properties").unwrap().as_map().value(row);
    let (names, values) = (entries.column(0).as_string::<i32>(), entries.column(1).as_string::<i32>());
    (0..entries.len()).map(|i| (names.value(i).to_owned(), values.value(i).to_owned())).collect()
}

/// The last value of each name, in the order in which the names come first.
fn last_wins(properties: &[(String, String)]) -> Vec<(String, String)> {
    let mut read: Vec<(String, String)> = Vec::new();
    for (name, value) in properties {
        match read.iter_mut().find(|(known, _)| known == name) {
            Some(known) => known.1.clone_from(value),
            None => read.push((name.clone(), value.clone())),
        }
    }
    read
}

fn compare(batch: &RecordBatch, row: usize, message: &TestMessage, phy_offset: u64) {
    let wanted = last_wins(&message.properties);
    let property = |name: &str| wanted.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    assert_eq!(properties(batch, row), wanted);
    assert_eq!(text(batch, "topic", row), Some(message.topic.as_str()));
    assert_eq!(text(batch, "keys", row), property("KEYS"));
    assert_eq!(text(batch, "tags", row), property("TAGS"));
    assert_eq!(text(batch, "uniq_key", row), property("UNIQ_KEY"));
    assert_eq!(text(batch, "body_error", row), None);
    assert_eq!(batch.column_by_name("body").unwrap().as_binary::<i32>().value(row), message.body);
    let [queue_id, flag, queue_offset, _, born, stored, reconsume, prepared] = message.numbers;
    assert_eq!(i64::from(int32(batch, "queue_id", row)), queue_id);
    assert_eq!(i64::from(int32(batch, "flag", row)), flag);
    assert_eq!(int32(batch, "sys_flag", row), message.sys_flag());
    assert_eq!(i64::from(int32(batch, "reconsume_times", row)), reconsume);
    assert_eq!(usize::try_from(int32(batch, "store_size", row)).unwrap(), message.encode(phy_offset).len());
    assert_eq!(int64(batch, "queue_offset", row), queue_offset);
    assert_eq!(int64(batch, "phy_offset", row), phy_offset.cast_signed());
    assert_eq!(int64(batch, "prepared_transaction_offset", row), prepared);
    assert_eq!(time(batch, "born_timestamp", row), born);
    assert_eq!(time(batch, "store_timestamp", row), stored);
    let id = message.store_host.iter().copied().chain(phy_offset.to_be_bytes()).map(|b| format!("{b:02X}"));
    assert_eq!(text(batch, "msg_id", row), Some(id.collect::<Vec<_>>().concat().as_str()));
    let (ip, port) = message.born_host.split_last_chunk::<4>().unwrap();
    let port = i32::from_be_bytes(*port);
    let host = text(batch, "born_host", row).unwrap();
    if let Ok(v4) = <[u8; 4]>::try_from(ip) {
        assert_eq!(host, format!("{}:{port}", std::net::Ipv4Addr::from(v4)));
    } else {
        let (v6, rest) = host.strip_prefix('[').and_then(|h| h.split_once("]:")).unwrap();
        assert_eq!(v6.parse::<std::net::Ipv6Addr>().unwrap().octets(), ip);
        assert_eq!(rest, port.to_string());
    }
}

/// Messages as the broker's own writer leaves them: numbered in their queues, each property once, no separator after the last, and
/// version 2 for long topics only.
fn as_a_broker_writes_them(mut messages: Vec<TestMessage>) -> Vec<TestMessage> {
    let mut next = HashMap::new();
    for message in &mut messages {
        message.version_2 = message.topic.len() > 127;
        message.trailing_separator = false;
        message.properties = last_wins(&message.properties);
        message.numbers[0] &= i64::from(i32::MAX);
        message.numbers[2] = 0;
        if matches!(message.numbers[3], 0 | 8) {
            let next = next.entry((message.topic.clone(), message.numbers[0])).or_insert(0);
            message.numbers[2] = *next;
            *next += 1;
        }
    }
    messages
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_message_is_read_as_it_was_written(
        messages in vec(message(), 0..30),
        file_size in 1024u64..5000,
        first in 0u64..3,
        batch_size in 1usize..10,
    ) {
        let log = TestLog::write(first * file_size, file_size, &messages);
        let reader = scan(&log.files, 0, u64::MAX);
        let reader = MessageReader::new(reader, &Column::ALL, Bodies::Decoded, 1 << 20, BatchSize::of_rows(batch_size)).unwrap();
        let mut read = 0;
        for batch in reader {
            let batch = batch.unwrap();
            prop_assert!(batch.num_rows() <= batch_size);
            for row in 0..batch.num_rows() {
                compare(&batch, row, &messages[read], log.offsets[read]);
                read += 1;
            }
        }
        prop_assert_eq!(read, messages.len());
    }

    #[test]
    fn what_was_read_is_put_again_byte_for_byte(
        messages in vec(message(), 1..30),
        file_size in 2048u64..5000,
        first in 0u64..3,
        batch_size in 1usize..10,
    ) {
        let messages = as_a_broker_writes_them(messages);
        let log = TestLog::write(first * file_size, file_size, &messages);
        let reader = scan(&log.files, 0, u64::MAX);
        let reader = MessageReader::new(reader, &Column::ALL, Bodies::Stored, 1 << 20, BatchSize::of_rows(batch_size)).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let store_host = Host::parse("1.2.3.4:5").unwrap();
        let limits = Limits { release: Release::V5_5_0, max_message_size: Limits::MAX_MESSAGE_SIZE };
        let options = WriterOptions { file_size, store_host, levels: 18, flush: FlushMode::Manual, limits, multi_dispatch: true, append: Append::default() };
        let writer = CommitLogWriter::open(directory.path(), first * file_size, options).unwrap();
        for batch in reader {
            writer.put_messages(&batch.unwrap(), PutOptions { bodies: Bodies::Stored, park: false }).unwrap();
        }
        prop_assert_eq!(writer.wrote_offset(), log.end);
        for (start, wanted) in log.files {
            let mut written = std::fs::read(directory.path().join(format!("{start:020}"))).unwrap();
            let blank = written.windows(8).rposition(|bytes| bytes[4..] == MAGIC_BLANK.to_be_bytes());
            if let Some(behind) = blank.map(|at| at + 8).filter(|_| log.end > start + file_size) {
                // The bytes after a BLANK frame are undefined; ours are zero.
                prop_assert!(written[behind..].iter().all(|byte| *byte == 0));
                written[behind..].copy_from_slice(&wanted[behind..]);
            }
            prop_assert_eq!(written, wanted);
        }
    }

    #[test]
    fn ranges_are_half_open(messages in vec(message(), 1..20), begin in 0u64..20_000, len in 0u64..20_000) {
        let log = TestLog::write(0, 2048, &messages);
        let wanted: Vec<u64> = log.offsets.iter().copied().filter(|o| (begin..begin + len).contains(o)).collect();
        prop_assert_eq!(offsets(&log.files, begin, begin + len), wanted);
    }

    #[test]
    fn any_bytes_are_walked_to_an_end(bytes in vec(any::<u8>(), 0..2000)) {
        let found = offsets(&[(0, bytes)], 0, u64::MAX);
        prop_assert!(found.len() < 30);
    }
}
