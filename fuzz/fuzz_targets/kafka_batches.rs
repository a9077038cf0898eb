//! Any bytes as a Kafka segment: heads and records agree, every damage has its place, what recovery keeps it keeps again, and
//! lookups in a valid log answer as a walk over all of it does.
#![no_main]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use logdex::batch_size::BatchSize;
use logdex::error::Error;
use logdex::kafka::{
    BatchScan, Check, Compat, OnError, ProducerState, RecordScan, Recovered, Segment, SegmentOptions, SegmentRange,
    SegmentReader, batch_columns, record_columns,
};
use logdex::report::Finding;
use logdex_fuzz::Scratch;

const LOG: &str = "00000000000000000000.log";
const ALL: usize = 1 << 20;
/// Every batch, stored or decompressed, is below this; some are above.
const MOST: usize = 1 << 15;
fn open(scratch: &Scratch, log: &[u8], check: Check, compat: Option<Compat>) -> Arc<Segment> {
    let options = SegmentOptions { check, compat, max_batch_bytes: MOST, ..SegmentOptions::default() };
    Arc::new(Segment::open(&scratch.write(LOG, log), options).expect("a file with a base offset as its name"))
}

/// The header of a batch, and whether its checksum is right.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Head {
    position: u64,
    last_offset: i64,
    max_time: i64,
    count: Option<i32>,
    valid: bool,
}

fn longs(batch: &RecordBatch, name: &str) -> Vec<i64> {
    batch.column_by_name(name).expect("a column that was chosen").as_primitive::<Int64Type>().values().to_vec()
}

fn times(batch: &RecordBatch, name: &str) -> Vec<i64> {
    let column = batch.column_by_name(name).expect("a column that was chosen");
    column.as_primitive::<TimestampMillisecondType>().values().to_vec()
}

/// Headers of all batches; they are the same with checksums and without.
fn heads(segment: &Arc<Segment>) -> Vec<Head> {
    use batch_columns::Column;
    let read = |check_crc| {
        let columns = Column::ALL.to_vec();
        let scan = BatchScan {
            begin_position: 0,
            end_position: None,
            columns,
            batch_size: ALL,
            check_crc,
            on_error: OnError::Skip,
        };
        let mut reader = SegmentReader::batches(Arc::clone(segment), scan).expect("a file that is there");
        reader.next_batch().expect("damage is reported, not raised")
    };
    let Some(batch) = read(true) else {
        assert!(read(false).is_none());
        return Vec::new();
    };
    let quick = read(false).expect("as many batches");
    let valid_at = batch.schema().index_of("isValid").expect("a column that was chosen");
    for column in (0..batch.num_columns()).filter(|column| *column != valid_at) {
        assert_eq!(batch.column(column), quick.column(column), "column {column}");
    }
    let (positions, last_offsets) = (longs(&batch, "position"), longs(&batch, "lastOffset"));
    let max_times = times(&batch, "maxTimestamp");
    let counts = batch.column_by_name("count").expect("chosen").as_primitive::<Int32Type>().iter();
    let valid = batch.column(valid_at).as_boolean().iter();
    let rows = positions.into_iter().zip(last_offsets).zip(max_times).zip(counts).zip(valid);
    rows.map(|((((position, last_offset), max_time), count), valid)| Head {
        position: u64::try_from(position).expect("a place in the file"),
        last_offset,
        max_time,
        count,
        valid: valid.expect("compared"),
    })
    .collect()
}

struct Read {
    batches: Vec<RecordBatch>,
    findings: Vec<Finding>,
    error: Option<Error>,
}

fn read(segment: &Arc<Segment>, columns: &[record_columns::Column], rows: usize, on_error: OnError, crc: bool) -> Read {
    let scan = RecordScan { on_error, check_crc: crc, ..scan(columns, rows) };
    read_all(segment, scan)
}

fn scan(columns: &[record_columns::Column], rows: usize) -> RecordScan {
    RecordScan {
        columns: columns.to_vec(),
        batch_size: BatchSize::of_rows(rows),
        control: true,
        on_error: OnError::Skip,
        ..RecordScan::default()
    }
}

fn read_all(segment: &Arc<Segment>, scan: RecordScan) -> Read {
    let mut reader =
        SegmentReader::records(vec![SegmentRange::whole(Arc::clone(segment))], scan).expect("a batch has rows");
    let mut batches = Vec::new();
    let error = loop {
        match reader.next_batch() {
            Ok(Some(batch)) => batches.push(batch),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    Read { batches, findings: reader.findings().to_vec(), error }
}

/// Position of the batch, offset and time of each record.
fn records(read: &Read) -> Vec<(u64, i64, i64)> {
    let rows = |batch: &RecordBatch| {
        let positions = longs(batch, "batchPosition").into_iter().map(i64::cast_unsigned);
        let rows = positions.zip(longs(batch, "offset")).zip(times(batch, "timestamp"));
        rows.map(|((position, offset), time)| (position, offset, time)).collect::<Vec<_>>()
    };
    read.batches.iter().flat_map(rows).collect()
}

/// Reads all records in several ways, and returns the result of the first.
fn check_records(segment: &Arc<Segment>, heads: &[Head]) -> Vec<(u64, i64, i64)> {
    use record_columns::Column;
    let all = read(segment, &Column::ALL, ALL, OnError::Skip, true);
    assert!(all.error.is_none(), "damage is reported, not raised: {:?}", all.error);
    let flagged: HashSet<u64> = all.findings.iter().map(|finding| finding.offset).collect();
    for finding in &all.findings {
        assert!(finding.offset <= segment.len() && *finding.path == **segment.path(), "{finding:?}");
    }
    let rows = records(&all);
    let mut found: HashMap<u64, i32> = HashMap::new();
    for (position, _, _) in &rows {
        *found.entry(*position).or_default() += 1;
    }
    for head in heads {
        let found = found.remove(&head.position).unwrap_or(0);
        match (head.valid, flagged.contains(&head.position)) {
            (false, reported) => assert!(reported && found == 0, "{head:?}: {found} records"),
            (true, false) => assert!(head.count.map_or(found > 0, |count| found == count), "{head:?}: {found} records"),
            (true, true) => {}
        }
    }
    assert!(found.is_empty(), "records of no batch: {found:?}");

    // In small batches up to the first damage: the same values.
    let raised = read(segment, &Column::ALL, 7, OnError::Raise, true);
    let mut at = 0;
    for batch in &raised.batches {
        assert_eq!(&all.batches[0].slice(at, batch.num_rows()), batch, "from row {at} on");
        at += batch.num_rows();
    }
    match &raised.error {
        Some(Error::Corrupt { path, offset, .. }) => assert!(**path == **segment.path() && *offset <= segment.len()),
        Some(other) => panic!("{other}"),
        None => assert_eq!(at, rows.len()),
    }

    // As views, of which none is dropped before the last was read.
    let viewed = read_all(segment, RecordScan { views: true, ..scan(&[Column::Key, Column::Value], 7) });
    for (column, name) in ["key", "value"].into_iter().enumerate() {
        let copied =
            all.batches.iter().flat_map(|batch| batch.column_by_name(name).expect("a column").as_binary::<i32>());
        let views = viewed.batches.iter().flat_map(|batch| batch.column(column).as_binary_view());
        assert!(copied.eq(views), "{name}");
    }

    // Without decoding records, and without checksums: the valid batches are the same.
    let valid_offsets: HashSet<u64> =
        heads.iter().filter(|h| h.valid && !flagged.contains(&h.position)).map(|h| h.position).collect();
    let of_valid = |rows: &[(u64, i64, i64)]| {
        rows.iter().filter(|row| valid_offsets.contains(&row.0)).copied().collect::<Vec<_>>()
    };
    let few = [Column::BatchPosition, Column::Offset, Column::Timestamp];
    let unchecked = read(segment, &few, 1000, OnError::Skip, false);
    assert!(unchecked.error.is_none());
    assert_eq!(of_valid(&records(&unchecked)), of_valid(&rows));

    let verified = segment.verify(true).expect("damage is reported, not raised");
    if verified.findings.is_empty() {
        assert!(raised.error.is_none() && all.findings.is_empty(), "{:?} {:?}", raised.error, all.findings);
        let counts = [("batches", heads.len() as u64), ("records", rows.len() as u64)];
        assert_eq!(verified.checked[..2], counts);
    }
    rows
}

fn recover(segment: &Arc<Segment>) -> Option<Recovered> {
    match segment.recover(150, 240, &mut ProducerState::default()) {
        Ok(recovered) => Some(recovered),
        Err(Error::Corrupt { .. } | Error::IndexFull { .. }) => None,
        Err(other) => panic!("{other}"),
    }
}

/// Targets of lookups: at, before and after the values of the first batch, of one in the middle and of the last.
fn asked(values: impl Iterator<Item = i64>) -> Vec<i64> {
    let values: Vec<i64> = values.collect();
    let some = [0, values.len() / 2, values.len().saturating_sub(1)].into_iter().filter_map(|at| values.get(at));
    some.flat_map(|value| [value.saturating_sub(1), *value, value.saturating_add(1)]).collect()
}

/// Every lookup in a valid log, by its rebuilt indexes.
fn check_lookups(segment: &Segment, heads: &[Head], rows: &[(u64, i64, i64)]) {
    for target in asked(heads.iter().map(|head| head.last_offset)) {
        let expected = heads.iter().find(|head| head.last_offset >= target).map(|head| head.position);
        let found = segment.translate_offset(target, 0).expect("a valid log");
        assert_eq!(found.map(|found| found.position), expected, "offset {target}");
    }
    for time in asked(heads.iter().map(|head| head.max_time)) {
        // A batch is searched if its header says that it has such a record.
        let promising: HashSet<u64> = heads.iter().filter(|h| h.max_time >= time).map(|h| h.position).collect();
        let expected = rows.iter().find(|row| promising.contains(&row.0) && row.2 >= time).map(|row| (row.2, row.1));
        let found = segment.offset_for_timestamp(time, 0, true).expect("a valid log");
        assert_eq!(found.map(|found| (found.timestamp, found.offset)), expected, "time {time}");
    }
    let next = heads.last().map_or(0, |head| head.last_offset.saturating_add(1));
    assert_eq!(segment.next_offset().expect("a valid log"), next);
    let largest = heads.iter().map(|head| head.max_time).max().unwrap_or(-1).max(-1);
    assert_eq!(segment.max_timestamp().expect("a valid log").timestamp, largest);
}

/// Every lookup, with any answer.
fn ask(segment: &Segment, heads: &[Head]) {
    let check = |answer: Result<(), Error>| match answer {
        Ok(()) | Err(Error::Corrupt { .. } | Error::InvalidArgument(_)) => {}
        Err(other) => panic!("{other}"),
    };
    for target in asked(heads.iter().map(|head| head.last_offset)) {
        check(segment.translate_offset(target, 0).map(drop));
        check(segment.read(target, 200, None, true).map(drop));
    }
    for time in asked(heads.iter().map(|head| head.max_time)) {
        check(segment.offset_for_timestamp(time, 0, true).map(drop));
    }
    check(segment.next_offset().map(drop));
    check(segment.max_timestamp().map(drop));
}

fuzz_target!(|bytes: &[u8]| {
    let scratch = Scratch::new();
    let segment = open(&scratch, bytes, Check::Verify, None);
    let heads = heads(&segment);
    let rows = check_records(&segment, &heads);
    ask(&segment, &heads);
    ask(&open(&scratch, bytes, Check::Trust, Compat::parse("3.9.0")), &heads);
    ask(&open(&scratch, bytes, Check::Trust, Compat::parse("4.1.0")), &heads);

    let Some(recovered) = recover(&segment) else { return };
    assert_eq!(recovered.valid_bytes + recovered.truncated_bytes, segment.len());
    assert_eq!(recovered.truncated_bytes == 0, recovered.findings.is_empty(), "{:?}", recovered.findings);
    let kept: Vec<Head> = heads.iter().filter(|head| head.position < recovered.valid_bytes).copied().collect();
    assert_eq!(kept.len() as u64, recovered.batches);
    assert!(kept.iter().all(|head| head.valid));

    let valid = bytes.get(..usize::try_from(recovered.valid_bytes).expect("below a length")).expect("checked above");
    let plain = open(&scratch, valid, Check::Verify, None).verify(true).expect("damage is reported, not raised");
    scratch.write("00000000000000000000.index", &recovered.offset_index);
    scratch.write("00000000000000000000.timeindex", &recovered.time_index);
    let repaired = open(&scratch, valid, Check::Verify, None);
    let again = recover(&repaired).expect("what was recovered is recovered again");
    assert_eq!((again.valid_bytes, again.findings.len()), (recovered.valid_bytes, 0));
    assert_eq!((&again.offset_index, &again.time_index), (&recovered.offset_index, &recovered.time_index));
    ask(&repaired, &kept);
    if plain.findings.is_empty() {
        let verified = repaired.verify(true).expect("damage is reported, not raised");
        assert!(verified.findings.is_empty(), "rebuilt indexes: {:?}", verified.findings);
        let rows: Vec<_> = rows.into_iter().filter(|row| row.0 < recovered.valid_bytes).collect();
        check_lookups(&repaired, &kept, &rows);
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    logdex_fuzz::kafka::mutate(data, size, max_size, seed)
});
