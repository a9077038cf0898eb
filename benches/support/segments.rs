//! Kafka's segments as the benches read them, and the operations that stand beside those of the Java driver (`Rounds.java`).
//!
//! The whole operation is timed, with opening; for lookups only the lookups.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use arrow_array::RecordBatchReader;
use logdex::kafka::batch_columns::Column;
use logdex::kafka::{
    BatchScan, IndexOptions, OffsetIndex, OnError, ProducerState, RecordScan, Segment, SegmentOptions, SegmentRange,
    SegmentReader, SparseIndex,
};
use serde_json::{Value, json};

use super::keys::mix;
use super::question::Question;
use super::timed;

const OK: &str = "a valid file of ours";
/// Rows of a batch, as Python's default has it.
const ROWS: usize = 8_192;
/// Fields of a batch header that the Java driver reads.
const HEADS: [&str; 7] = ["position", "size", "baseOffset", "lastOffset", "maxTimestamp", "producerId", "baseSequence"];

/// The answer; `None` for an operation that is not one of these.
pub(crate) fn answer(op: &str, question: &Question) -> Option<Value> {
    Some(match op {
        "kafka_records" => records(question),
        "kafka_headers" => headers(question),
        "kafka_recover" => recover(question),
        "kafka_lookup" => lookup(question),
        _ => return None,
    })
}

fn open(path: &Path) -> Arc<Segment> {
    Arc::new(Segment::open(path, SegmentOptions::default()).expect(OK))
}

/// `threads`: every record to Arrow, checksums compared; each thread reads a part of the offsets. `views`: keys and values are views.
fn records(question: &Question) -> Value {
    let path = question.path();
    let threads = i64::try_from(question.number("threads")).expect("few");
    let views = question.flag("views");
    let (took, rows) = timed(|| {
        let segment = open(&path);
        let end = if threads > 1 { segment.next_offset().expect(OK) } else { 0 };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|worker| {
                    let mut part = SegmentRange::whole(Arc::clone(&segment));
                    if threads > 1 {
                        part.begin_offset = end * worker / threads;
                        part.end_offset = end * (worker + 1) / threads;
                    }
                    scope.spawn(move || read(part, views))
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().expect(OK)).sum::<usize>()
        })
    });
    json!({"seconds": took.as_secs_f64(), "records": rows})
}

/// Reads a part to record batches with the columns that are given by default, checksums compared, and counts its rows.
pub(crate) fn read(part: SegmentRange, views: bool) -> usize {
    let scan = RecordScan { views, ..RecordScan::default() };
    rows(&mut SegmentReader::records(vec![part], scan).expect(OK))
}

/// A reader of all batch headers.
pub(crate) fn heads(segment: Arc<Segment>, columns: Vec<Column>, check_crc: bool) -> SegmentReader {
    let scan = BatchScan {
        begin_position: 0,
        end_position: None,
        columns,
        batch_size: ROWS,
        check_crc,
        on_error: OnError::Raise,
    };
    SegmentReader::batches(segment, scan).expect(OK)
}

/// Reads to the end and counts the rows.
pub(crate) fn rows(reader: &mut impl RecordBatchReader) -> usize {
    reader.map(|batch| black_box(batch.expect(OK)).num_rows()).sum()
}

/// `crc`, `all`: batch headers, with the columns that the Java driver reads, or `all`.
fn headers(question: &Question) -> Value {
    let path = question.path();
    let columns =
        if question.flag("all") { Column::choose::<&str>(None) } else { Column::choose(Some(HEADS.as_slice())) };
    let columns = columns.expect(OK);
    let (took, rows) = timed(|| rows(&mut heads(open(&path), columns, question.flag("crc"))));
    json!({"seconds": took.as_secs_f64(), "batches": rows})
}

/// `directory`, `index_interval_bytes`, `max_index_bytes`: rebuilds both indexes and writes them there.
fn recover(question: &Question) -> Value {
    let (path, directory) = (question.path(), Path::new(question.text("directory")));
    let (interval, most) = (question.number("index_interval_bytes") as u64, question.number("max_index_bytes") as u64);
    let (took, batches) = timed(|| {
        let recovered = open(&path).recover(interval, most, &mut ProducerState::default()).expect(OK);
        let name = path.file_stem().expect("a name").to_string_lossy();
        std::fs::write(directory.join(format!("{name}.index")), &recovered.offset_index).expect(OK);
        std::fs::write(directory.join(format!("{name}.timeindex")), &recovered.time_index).expect(OK);
        recovered.batches
    });
    json!({"seconds": took.as_secs_f64(), "batches": batches})
}

/// `asked`, `below`, `round`, `single`: random offsets, in one batch or one in each call; the index is opened before.
fn lookup(question: &Question) -> Value {
    let (asked, below) = (question.number("asked") as u64, question.number("below") as u64);
    let first = 777_000_000 + question.number("round") as u64 * asked;
    let targets: Vec<i64> = (first..first + asked).map(|query| (mix(query) % below).cast_signed()).collect();
    let index = OffsetIndex::open(question.path(), &IndexOptions::default()).expect(OK);
    let ask = || {
        let mut sum = 0;
        if question.flag("single") {
            for target in &targets {
                let entry = index.lookup(*target);
                sum += entry.offset + i64::from(entry.position);
            }
        } else {
            for rank in index.ranks(&targets) {
                let entry = index.entry_of_rank(rank as usize);
                sum += entry.offset + i64::from(entry.position);
            }
        }
        sum
    };
    ask();
    let (took, sum) = timed(ask);
    json!({"seconds": took.as_secs_f64(), "sum": sum})
}
