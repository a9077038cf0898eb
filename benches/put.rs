//! Puts into one index file of the default geometry: one by one, in batches, into fresh and into prepared files, and the
//! traffic limit beside them. `cargo bench --bench put`.
//!
//! Each iteration puts the same keys into a new file; creating it is outside the time taken.
#![allow(missing_docs, reason = "criterion's macros")]

mod support;

use std::path::Path;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use support::keys::Columns;
use support::{calls, files, is_trial, limit, timed};

const BATCHES: [usize; 6] = [1, 16, 64, 1_024, 16_384, 65_536];

/// Adds up the time of `run` with a new file each time.
fn new_files(rounds: u64, path: &Path, run: impl Fn(&Path) -> Duration) -> Duration {
    let one_round = |_| {
        let took = run(path);
        std::fs::remove_file(path).expect("ours");
        took
    };
    (0..rounds).map(one_round).sum()
}

fn put(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("1");
    let held = if is_trial() { 10_000 } else { 4_000_000 };
    let columns = Columns::new(held);
    let geometry = files::geometry(held);
    let slots = limit::slots(&columns, geometry);
    files::touch_memory(&path).expect("space on the disk");
    let mut group = c.benchmark_group("put");
    group.throughput(Throughput::Elements(held as u64)).sample_size(10);
    group.bench_function("one_by_one", |b| {
        b.iter_custom(|rounds| {
            new_files(rounds, &path, |path| {
                let file = calls::create(path, held, false);
                timed(|| calls::put_one_by_one(&file, &columns)).0
            })
        });
    });
    for prepared in [false, true] {
        let kind = if prepared { "prepared" } else { "fresh" };
        for batch in BATCHES {
            group.bench_function(BenchmarkId::new(kind, batch), |b| {
                b.iter_custom(|rounds| {
                    new_files(rounds, &path, |path| {
                        let file = calls::create(path, held, prepared);
                        timed(|| calls::put(&file, &columns, batch, 1)).0
                    })
                });
            });
        }
        group.bench_function(BenchmarkId::new("limit", kind), |b| {
            b.iter_custom(|rounds| {
                new_files(rounds, &path, |path| {
                    let mut map = limit::create(path, geometry, prepared);
                    timed(|| limit::put(&mut map, geometry, &columns, &slots)).0
                })
            });
        });
    }
    group.finish();
}

criterion_group!(benches, put);
criterion_main!(benches);
