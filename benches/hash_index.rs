//! Puts and lookups of one index file: one by one and in batches, by a map.
//!
//! Keys come from a fixed generator; the cost of making them and of building the file is outside the loops. The file is
//! warm. `cargo bench --bench hash_index`.
#![allow(missing_docs, reason = "criterion's macros")]

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use logdex::hash_index::{CreateOptions, Geometry, Hits, IndexFile, KeySource, PutColumns, key_hash};
use logdex::source::Access;
use logdex::time_range::TimeRange;

const T0: i64 = 1_700_000_000_000;
/// Keys in the file that is searched; its geometry has the default ratio of slots to entries.
const HELD: usize = 2_000_000;

/// The keys, all of one length, as an Arrow column would have them: one buffer.
struct Keys {
    text: String,
    width: usize,
}

impl Keys {
    fn new(count: usize, seed: u64) -> Self {
        Self::of((0..count as u64).map(|i| mix(seed ^ i)))
    }

    fn of(numbers: impl Iterator<Item = u64>) -> Self {
        let keys = numbers.map(|number| format!("TopicTest#{number:032x}"));
        Self { text: keys.collect(), width: "TopicTest#".len() + 32 }
    }

    fn get(&self, row: usize) -> &str {
        self.text.get(row * self.width..(row + 1) * self.width).unwrap_or_default()
    }
}

impl KeySource for Keys {
    fn len(&self) -> usize {
        self.text.len() / self.width
    }

    fn hash_block(&self, start: usize, hashes: &mut [i32]) {
        for (hash, row) in hashes.iter_mut().zip(start..) {
            *hash = key_hash(self.get(row));
        }
    }
}

/// One step of splitmix64.
fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn create(path: &Path, entries: usize) -> IndexFile {
    let entries = u32::try_from(entries).expect("small");
    let geometry = Geometry::new(entries / 4, entries + 1).expect("small");
    let options =
        CreateOptions { geometry, begin_timestamp: 0, begin_phy_offset: 0, access: Access::Auto, compat: None };
    IndexFile::create(path, options).expect("a temporary directory takes a file")
}

fn numbers(count: usize, from: i64) -> Vec<i64> {
    (from..).take(count).collect()
}

fn put(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let keys = Keys::new(HELD / 4, 1);
    let (offsets, times) = (numbers(keys.len(), 0), numbers(keys.len(), T0));
    let mut group = c.benchmark_group("put");
    group.throughput(Throughput::Elements(keys.len() as u64)).sample_size(10);
    let mut serial = 0;
    let mut measure = |run: &dyn Fn(&IndexFile)| {
        serial += 1;
        let path = dir.path().join(serial.to_string());
        let file = create(&path, keys.len());
        let start = Instant::now();
        run(&file);
        let took = start.elapsed();
        drop(file);
        std::fs::remove_file(path).expect("ours");
        took
    };
    group.bench_function("one_by_one", |b| {
        b.iter_custom(|rounds| {
            let one_round = |_| {
                measure(&|file| {
                    for (row, (&offset, &time)) in offsets.iter().zip(&times).enumerate() {
                        file.put_key(keys.get(row), offset, time).expect("room");
                    }
                })
            };
            (0..rounds).map(one_round).sum::<Duration>()
        });
    });
    group.bench_function("batch", |b| {
        b.iter_custom(|rounds| {
            let one_round = |_| {
                measure(&|file| {
                    let columns = PutColumns { keys: &keys, phy_offsets: &offsets, store_timestamps: &times };
                    assert_eq!(file.put_batch(&columns, 0).expect("room"), keys.len());
                })
            };
            (0..rounds).map(one_round).sum::<Duration>()
        });
    });
    group.finish();
}

fn select(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = create(&dir.path().join("1"), HELD);
    let keys = Keys::new(HELD, 1);
    let (offsets, times) = (numbers(HELD, 0), numbers(HELD, T0));
    let columns = PutColumns { keys: &keys, phy_offsets: &offsets, store_timestamps: &times };
    file.put_batch(&columns, 0).expect("room");
    let asked = 100_000;
    let in_file = Keys::of((0..asked as u64).map(|i| mix(1 ^ (mix(i) % HELD as u64))));
    let absent = Keys::new(asked, 2);
    let mut hits = Hits::new();
    let mut group = c.benchmark_group("select");
    group.throughput(Throughput::Elements(asked as u64)).sample_size(10);
    for present in [true, false] {
        let (name, asking) = if present { ("present", &in_file) } else { ("absent", &absent) };
        group.bench_function(BenchmarkId::new("one_by_one", name), |b| {
            b.iter(|| {
                for i in 0..asked {
                    black_box(file.select(key_hash(asking.get(i)), Some(32), TimeRange::ALL).expect("readable"));
                }
            });
        });
        group.bench_function(BenchmarkId::new("batch", name), |b| {
            b.iter(|| {
                hits.clear();
                file.select_batch(asking, 0..asked, Some(32), TimeRange::ALL, &mut hits).expect("readable");
                black_box(hits.phy_offsets().len())
            });
        });
    }
    group.finish();
}

criterion_group!(benches, put, select);
criterion_main!(benches);
