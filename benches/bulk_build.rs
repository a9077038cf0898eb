//! A whole index file of the default geometry in one call, by one thread and by two. `cargo bench --bench bulk_build`.
#![allow(missing_docs, reason = "criterion's macros")]

mod support;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use support::keys::Columns;
use support::{calls, files, is_trial, timed};

fn bulk_build(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("1");
    let held = if is_trial() { 10_000 } else { 19_999_999 };
    let columns = Columns::new(held);
    files::touch_memory(&path).expect("space on the disk");
    let mut group = c.benchmark_group("bulk_build");
    group.throughput(Throughput::Elements(held as u64)).sample_size(10);
    for prepared in [false, true] {
        let kind = if prepared { "prepared" } else { "fresh" };
        for threads in [1, 2] {
            group.bench_function(BenchmarkId::new(kind, format!("{threads}_threads")), |b| {
                b.iter_custom(|rounds| {
                    let one_round = |_| {
                        let file = calls::create(&path, held, prepared);
                        let (took, taken) = timed(|| calls::put(&file, &columns, held, threads));
                        assert_eq!(taken, held);
                        drop(file);
                        std::fs::remove_file(&path).expect("ours");
                        took
                    };
                    (0..rounds).map(one_round).sum()
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, bulk_build);
criterion_main!(benches);
