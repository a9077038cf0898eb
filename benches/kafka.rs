//! Kafka's segments and offset index, one of each shape, from the page cache: `cargo bench --bench kafka`.
//!
//! Segments are written once for each codec and length of values, and read once before they are measured. Their length
//! in MiB is the environment variable `LOGDEX_BENCH_MIB`, 256 unless it is set.
#![allow(missing_docs, reason = "criterion's macros")]

mod support;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime};
use logdex::kafka::batch_columns::Column;
use logdex::kafka::{
    Check, IndexOptions, OffsetIndex, ProducerState, Segment, SegmentOptions, SegmentRange, SparseIndex,
};
use support::keys::mix;
use support::segment_files::{self, Codec};
use support::segments;

/// Only the disk can cause an error here.
const OK: &str = "the bench wrote the file itself";
/// Entries of a full index of 10 MiB.
const ENTRIES: u32 = 10 * 1024 * 1024 / 8;

fn bytes() -> u64 {
    let mib = std::env::var("LOGDEX_BENCH_MIB").ok().and_then(|text| text.parse().ok());
    mib.unwrap_or(if support::is_trial() { 2 } else { 256 }) << 20
}

fn group<'c>(criterion: &'c mut Criterion, name: &str) -> BenchmarkGroup<'c, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    group
}

/// The segment in `pieces` parts of about the same size, each beginning with a batch.
fn parts(segment: &Arc<Segment>, pieces: u64) -> Vec<SegmentRange> {
    let mut begins = vec![0];
    for batch in segments::heads(Arc::clone(segment), vec![Column::Position], false) {
        let positions = batch.expect(OK);
        let positions = positions.column(0).as_primitive::<Int64Type>().values().iter();
        for position in positions.map(|position| u64::try_from(*position).expect(OK)) {
            if position * pieces >= segment.len() * begins.len() as u64 {
                begins.push(position);
            }
        }
    }
    let ends = begins.iter().skip(1).map(|end| Some(*end)).chain([None]);
    let part = |(begin, end): (&u64, Option<u64>)| SegmentRange {
        begin_position: Some(*begin),
        end_position: end,
        ..SegmentRange::whole(Arc::clone(segment))
    };
    begins.iter().zip(ends).map(part).collect()
}

fn decode(criterion: &mut Criterion) {
    for codec in Codec::ALL {
        for value_len in [100, 1024] {
            let directory = tempfile::tempdir().expect(OK);
            let written = segment_files::write(directory.path(), codec, value_len, bytes());
            let segment = Arc::new(Segment::open(&written.path, SegmentOptions::default()).expect(OK));
            let mut group = group(criterion, &format!("kafka/{}/{value_len}", codec.name()));
            group.throughput(Throughput::Elements(written.records));
            group.bench_function("decode", |bencher| {
                bencher.iter(|| {
                    assert_eq!(
                        segments::read(SegmentRange::whole(Arc::clone(&segment)), false) as u64,
                        written.records
                    );
                });
            });
            group.bench_function("decode, 2 threads", |bencher| {
                bencher.iter(|| {
                    let read: usize = std::thread::scope(|scope| {
                        let parts = parts(&segment, 2).into_iter();
                        let threads: Vec<_> = parts.map(|part| scope.spawn(|| segments::read(part, false))).collect();
                        threads.into_iter().map(|thread| thread.join().expect(OK)).sum()
                    });
                    assert_eq!(read as u64, written.records);
                });
            });
            if codec == Codec::None {
                group.throughput(Throughput::Bytes(written.bytes));
                group
                    .bench_function("heads and checksums", |bencher| bencher.iter(|| heads(&segment, written.batches)));
                group.bench_function("recover", |bencher| bencher.iter(|| recover(&segment, &written)));
            }
            group.finish();
        }
    }
}

/// Reads the headers of all batches and compares their checksums.
fn heads(segment: &Arc<Segment>, batches: u64) {
    let mut reader = segments::heads(Arc::clone(segment), Column::ALL.to_vec(), true);
    assert_eq!(segments::rows(&mut reader) as u64, batches);
    assert!(reader.findings().is_empty());
}

/// Rebuilds both indexes with an entry every 4 KiB, as a broker does by default.
fn recover(segment: &Arc<Segment>, written: &segment_files::Segment) {
    let recovered = segment.recover(4_096, 10 << 20, &mut ProducerState::default()).expect(OK);
    assert_eq!((recovered.valid_bytes, recovered.batches), (written.bytes, written.batches));
    black_box(recovered);
}

fn lookups(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect(OK);
    let path = directory.path().join(format!("{:020}.index", 0));
    let entries: Vec<u8> =
        (0..ENTRIES).flat_map(|slot| [slot * 100 + 99, slot * 1_000]).flat_map(u32::to_be_bytes).collect();
    std::fs::write(&path, entries).expect(OK);
    let options = IndexOptions { check: Check::Trust, ..IndexOptions::default() };
    let index = OffsetIndex::open(&path, &options).expect(OK);
    let asked = if support::is_trial() { 1_000 } else { 1 << 20 };
    let target = |number: u64| i64::try_from(mix(number) % (u64::from(ENTRIES) * 100)).expect(OK);
    let targets: Vec<i64> = (0..asked).map(target).collect();
    let mut group = group(criterion, "kafka/offset_index");
    group.throughput(Throughput::Elements(asked));
    group.bench_function("lookup", |bencher| {
        bencher.iter(|| targets.iter().map(|target| i64::from(index.lookup(*target).position)).sum::<i64>());
    });
    group.bench_function("lookup_batch", |bencher| bencher.iter(|| black_box(index.ranks(&targets))));
    group.finish();
}

criterion_group!(benches, decode, lookups);
criterion_main!(benches);
