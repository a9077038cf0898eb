//! Lookups in one full index file of the default geometry: one by one, in batches, by one thread and by two, in a file
//! that is in memory and in one that is not, and the traffic limit beside them. `cargo bench --bench select`.
#![allow(missing_docs, reason = "criterion's macros")]

mod support;

use std::path::Path;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use logdex::hash_index::IndexFile;
use support::keys::{Columns, Keys};
use support::{calls, files, is_trial, limit, timed};

const BATCHES: [usize; 6] = [1, 16, 64, 1_024, 16_384, 65_536];
const MAX_NUM: usize = 32;

fn select(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("1");
    let (held, asked) = if is_trial() { (10_000, 1_000) } else { (19_999_999, 131_072) };
    files::touch_memory(&path).expect("space on the disk");
    let file = files::filled(&path, &Columns::new(held));
    let mut group = c.benchmark_group("select");
    group.sample_size(10);
    for (name, present) in [("present", true), ("absent", false)] {
        let keys = Keys::asked(held, asked, 0, present);
        group.throughput(Throughput::Elements(asked as u64));
        warm(&mut group, name, &file, &keys);
        let accesses = limit::Accesses::of(&path, files::geometry(held), keys.all());
        for threads in [1, 2] {
            group.bench_function(BenchmarkId::new(format!("{name}/limit"), format!("{threads}_threads")), |b| {
                b.iter(|| accesses.run(threads));
            });
        }
    }
    drop(file);
    cold(&mut group, &path, held);
    group.finish();
}

fn warm(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, file: &IndexFile, keys: &Keys) {
    group.bench_function(BenchmarkId::new(name, "one_by_one"), |b| {
        b.iter(|| calls::select_one_by_one(file, keys, MAX_NUM));
    });
    for batch in BATCHES {
        group.bench_function(BenchmarkId::new(format!("{name}/batch"), batch), |b| {
            b.iter(|| calls::select(file, keys.all(), batch, MAX_NUM, 1));
        });
    }
    group.bench_function(BenchmarkId::new(format!("{name}/batch"), "max_num_1"), |b| {
        b.iter(|| calls::select(file, keys.all(), 65_536, 1, 1));
    });
    group.bench_function(BenchmarkId::new(format!("{name}/batch"), "2_threads"), |b| {
        b.iter(|| calls::select(file, keys.all(), 65_536, MAX_NUM, 2));
    });
}

/// Serial and batched lookups in a file that is not in memory.
#[cfg(target_os = "linux")]
fn cold(group: &mut BenchmarkGroup<'_, WallTime>, path: &Path, held: usize) {
    for (name, asked, batch) in [("serial", 100, 1), ("batch", 1_000, 1_000)] {
        let keys = Keys::asked(held, asked, 0, true);
        group.throughput(Throughput::Elements(asked as u64));
        group.bench_function(BenchmarkId::new("cold", name), |b| {
            b.iter_custom(|rounds| {
                let one_round = |_| {
                    files::evict(path).expect("ours");
                    let file = files::open(path, held);
                    timed(|| calls::select(&file, keys.all(), batch, MAX_NUM, 1)).0
                };
                (0..rounds).map(one_round).sum()
            });
        });
    }
}

#[cfg(not(target_os = "linux"))]
fn cold(_group: &mut BenchmarkGroup<'_, WallTime>, _path: &Path, _held: usize) {}

criterion_group!(benches, select);
criterion_main!(benches);
