//! Key hashes alone, by each kernel that this machine can run: no file. `cargo bench --bench hash`.
#![allow(missing_docs, reason = "criterion's macros")]

mod support;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use logdex::hash_index::{Kernel, key_hash};
use support::keys::{KEY_LEN, Keys};

/// Few enough to stay in a core's first cache.
const KEYS: usize = 512;

fn hash(c: &mut Criterion) {
    let keys = Keys::held(KEYS);
    let text: Vec<&str> = keys.iter().collect();
    let mut group = c.benchmark_group("hash");
    group.throughput(Throughput::Elements(KEYS as u64));
    group.bench_function("one_by_one", |b| {
        b.iter(|| text.iter().fold(0, |all, key| all ^ key_hash(black_box(key))));
    });
    let mut hashes = [0; KEYS];
    for kernel in Kernel::available() {
        group.bench_function(BenchmarkId::new("column", format!("{kernel:?}")), |b| {
            b.iter(|| keys.all().hash_with(kernel, 0, black_box(&mut hashes)));
        });
    }
    group.finish();
    assert_eq!(keys.text().len(), KEYS * KEY_LEN);
}

criterion_group!(benches, hash);
criterion_main!(benches);
