//! Puts of the messages of one log into another: how long all of them take, and each.
#![allow(clippy::panic, reason = "a question that makes no sense ends the program")]

use std::path::Path;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use logdex::rocketmq::commit_log::columns::Column;
use logdex::rocketmq::commit_log::write::{
    Append, AppendMode, CommitLogWriter, FlushMode, GivenMessage, Host, Limits, PutOptions, WriterOptions,
};
use logdex::rocketmq::commit_log::{Bodies, CommitLog, Options, ScanOptions};
use logdex::rocketmq::release::Release;

use super::question::Question;
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
    let writer = open(directory, 1 << 30, FlushMode::Async, Append::default());
    let took = if batch == 1 { put_one_by_one(&writer, messages) } else { put_batches(&writer, messages, batch) };
    let end = writer.wrote_offset();
    writer.close().expect(OK);
    std::fs::remove_dir_all(directory).expect(OK);
    (took, end)
}

fn open(directory: &Path, file_size: u64, flush: FlushMode, append: Append) -> CommitLogWriter {
    let options = WriterOptions {
        file_size,
        store_host: Host::parse("127.0.0.1:10911").expect(OK),
        levels: 18,
        flush,
        multi_dispatch: false,
        append,
        limits: Limits { release: Release::V4_9_3, max_message_size: Limits::MAX_MESSAGE_SIZE },
    };
    CommitLogWriter::open(directory, 0, options).expect(OK)
}

/// The puts of some threads, and the time of each put in ns.
pub(crate) struct Latencies {
    pub(crate) messages: usize,
    pub(crate) took: Duration,
    pub(crate) puts: Vec<u64>,
    /// Those of the puts that began a file.
    pub(crate) rolls: Vec<u64>,
}

/// `path`, `file_size`, `append`, `warm`, `sync`, `threads`, `batch`, `seconds`: puts all messages into a new log, each thread its
/// part, or those of some seconds, and deletes it.
pub(crate) fn put_each(question: &Question, messages: &[RecordBatch]) -> Latencies {
    let (directory, file_size) = (question.path(), question.number("file_size") as u64);
    let mode = match question.text("append") {
        "mapped" => AppendMode::Mapped,
        "pool" => AppendMode::Pool,
        _ => AppendMode::Write,
    };
    let append = Append { mode, warm: question.flag("warm"), lock_memory: false };
    let flush = if question.flag("sync") { FlushMode::Sync } else { FlushMode::Async };
    let writer = open(&directory, file_size, flush, append);
    let (batch, threads) = (question.number("batch"), question.number("threads"));
    let singles: Vec<_> = if batch == 1 { messages.iter().flat_map(singles).collect() } else { Vec::new() };
    let batches = if batch == 1 { Vec::new() } else { sliced(messages, batch) };
    let limit = Duration::from_secs(question.number("seconds") as u64);
    let begin = Instant::now();
    let measure = |thread: usize| {
        let (mut puts, mut rolls, mut count) = (Vec::new(), Vec::new(), 0);
        for at in (thread..singles.len().max(batches.len())).step_by(threads) {
            let start = Instant::now();
            if start - begin >= limit {
                break;
            }
            let (end, rolled) = if let Some((message, properties)) = singles.get(at) {
                let place = writer.put_message(*message, properties.iter().copied(), HOW).expect(OK);
                count += 1;
                (Instant::now(), place.phy_offset.is_multiple_of(file_size))
            } else {
                let places = writer.put_messages(batches.get(at).expect(OK), HOW).expect(OK);
                count += places.num_rows();
                let end = Instant::now();
                let offsets = places.column_by_name("phy_offset").expect(OK).as_primitive::<Int64Type>().values();
                (end, offsets.iter().any(|offset| offset.cast_unsigned().is_multiple_of(file_size)))
            };
            let took = u64::try_from((end - start).as_nanos()).expect(OK);
            puts.push(took);
            if rolled {
                rolls.push(took);
            }
        }
        (puts, rolls, count)
    };
    let parts: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || measure(thread))).collect();
        running.into_iter().map(|thread| thread.join().expect(OK)).collect()
    });
    let took = begin.elapsed();
    writer.close().expect(OK);
    std::fs::remove_dir_all(&directory).expect(OK);
    let mut all = Latencies { messages: 0, took, puts: Vec::new(), rolls: Vec::new() };
    for (puts, rolls, count) in parts {
        all.messages += count;
        all.puts.extend(puts);
        all.rolls.extend(rolls);
    }
    all
}

fn sliced(messages: &[RecordBatch], batch: usize) -> Vec<RecordBatch> {
    let pieces = |whole: &RecordBatch| {
        let (whole, rows) = (whole.clone(), whole.num_rows());
        (0..rows).step_by(batch).map(move |first| whole.slice(first, batch.min(rows - first)))
    };
    messages.iter().flat_map(pieces).collect()
}

fn put_batches(writer: &CommitLogWriter, messages: &[RecordBatch], batch: usize) -> Duration {
    let batches = sliced(messages, batch);
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
