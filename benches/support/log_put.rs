//! Puts of the messages of one log into another.
#![allow(clippy::panic, reason = "a question that makes no sense ends the program")]

use std::path::Path;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, TimestampMillisecondType};
use logdex::rocketmq::commit_log::columns::Column;
use logdex::rocketmq::commit_log::write::{
    CommitLogWriter, FlushMode, GivenMessage, Host, Limits, PutOptions, WriterOptions,
};
use logdex::rocketmq::commit_log::{Bodies, CommitLog, Options, ScanOptions};
use logdex::rocketmq::release::Release;

use super::timed;

const OK: &str = "the log is ours, and the disk has space";
const HOW: PutOptions = PutOptions { bodies: Bodies::Stored, park: true };

/// The first messages of a log, without their store times.
pub(crate) fn read(directory: &Path, count: usize) -> Vec<RecordBatch> {
    let columns = Column::ALL.into_iter().filter(|column| *column != Column::StoreTimestamp).collect();
    let log = CommitLog::open(directory, Options::default()).expect(OK);
    let options = ScanOptions { columns, ..ScanOptions::default() };
    let mut left = count;
    let mut batches = Vec::new();
    for batch in log.scan(&options).expect(OK).map(|batch| batch.expect(OK)) {
        let rows = batch.num_rows().min(left);
        batches.push(batch.slice(0, rows));
        left -= rows;
        if left == 0 {
            return batches;
        }
    }
    panic!("{} has {left} messages less than {count}", directory.display());
}

/// Puts all messages into a new log of the broker's default file size, in batches of a size or one by one, and deletes it.
pub(crate) fn put(directory: &Path, messages: &[RecordBatch], batch: usize) -> (Duration, u64) {
    let options = WriterOptions {
        file_size: 1 << 30,
        store_host: Host::parse("127.0.0.1:10911").expect(OK),
        levels: 18,
        flush: FlushMode::Async,
        multi_dispatch: false,
        limits: Limits { release: Release::V4_9_3, max_message_size: Limits::MAX_MESSAGE_SIZE },
    };
    let writer = CommitLogWriter::open(directory, 0, options).expect(OK);
    let took = if batch == 1 { put_one_by_one(&writer, messages) } else { put_batches(&writer, messages, batch) };
    let end = writer.wrote_offset();
    writer.close().expect(OK);
    std::fs::remove_dir_all(directory).expect(OK);
    (took, end)
}

fn put_batches(writer: &CommitLogWriter, messages: &[RecordBatch], batch: usize) -> Duration {
    let pieces = |whole: &RecordBatch| {
        let (whole, rows) = (whole.clone(), whole.num_rows());
        (0..rows).step_by(batch).map(move |first| whole.slice(first, batch.min(rows - first)))
    };
    let batches: Vec<RecordBatch> = messages.iter().flat_map(pieces).collect();
    let (took, ()) = timed(|| {
        for batch in &batches {
            writer.put_messages(batch, HOW).expect(OK);
        }
    });
    took
}

fn put_one_by_one(writer: &CommitLogWriter, messages: &[RecordBatch]) -> Duration {
    let given: Vec<_> = messages.iter().flat_map(singles).collect();
    let (took, ()) = timed(|| {
        for (message, properties) in &given {
            writer.put_message(*message, properties.iter().copied(), HOW).expect(OK);
        }
    });
    took
}

type Single<'a> = (GivenMessage<'a>, Vec<(&'a str, &'a str)>);

/// Messages of a caller without Arrow.
fn singles(batch: &RecordBatch) -> impl Iterator<Item = Single<'_>> {
    let column = |column: Column| batch.column_by_name(column.name()).expect(OK);
    let properties = column(Column::Properties).as_map();
    let (names, values) = (properties.keys().as_string::<i32>(), properties.values().as_string::<i32>());
    let (topic, body) = (column(Column::Topic).as_string::<i32>(), column(Column::Body).as_binary::<i32>());
    let (born_host, store_host) =
        (column(Column::BornHost).as_string::<i32>(), column(Column::StoreHost).as_string::<i32>());
    let born = column(Column::BornTimestamp).as_primitive::<TimestampMillisecondType>();
    let queue_id = column(Column::QueueId).as_primitive::<Int32Type>();
    let entry = |at: &i32| usize::try_from(*at).expect(OK);
    let begins = properties.value_offsets();
    let entries = begins.iter().zip(begins.iter().skip(1)).map(move |(from, to)| entry(from)..entry(to));
    entries.enumerate().map(move |(row, entries)| {
        let message = GivenMessage {
            topic: topic.value(row),
            queue_id: queue_id.value(row),
            body: body.value(row),
            born_timestamp: Some(born.value(row)),
            born_host: Some(Host::parse(born_host.value(row)).expect(OK)),
            store_host: Some(Host::parse(store_host.value(row)).expect(OK)),
            ..GivenMessage::default()
        };
        (message, entries.map(|at| (names.value(at), values.value(at))).collect())
    })
}
