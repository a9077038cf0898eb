//! The commit log's scan, on one file of messages with bodies of 1,024 and of 200 bytes, and the same messages put into a new
//! log: `cargo bench --bench commit_log`.
//!
//! The scanned file is written once for each size, read once before it is measured, and read from the page cache. Its length
//! in MiB is the environment variable `LOGDEX_BENCH_MIB`, 256 unless it is set. Puts begin a log each time, so that making its
//! files is measured, too; they flush as a broker does, in a thread of its own. `make bench-report` has larger logs beside the
//! broker's own classes.
#![allow(missing_docs, reason = "criterion's macros")]

mod support;

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use logdex::rocketmq::commit_log::columns::Column;
use support::{is_trial, log, log_put};

fn scan(criterion: &mut Criterion) {
    let mib = std::env::var("LOGDEX_BENCH_MIB").ok().and_then(|text| text.parse().ok());
    let mib: u64 = mib.unwrap_or(if is_trial() { 4 } else { 256 });
    let few = vec![Column::Topic, Column::QueueOffset, Column::PhyOffset, Column::StoreTimestamp, Column::Keys];
    for body_len in [1024, 200] {
        let directory = tempfile::tempdir().expect("a place for files");
        let written = log::write(directory.path(), 1, mib << 20, body_len);
        let mut group = criterion.benchmark_group(format!("scan/{body_len}"));
        group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
        group.throughput(Throughput::Bytes(written.bytes));
        for (name, columns, threads) in [
            ("all but the body", &log::columns(false), 1),
            ("all but the body, 2 threads", &log::columns(false), 2),
            ("all", &log::columns(true), 1),
            ("all, 2 threads", &log::columns(true), 2),
            ("five columns", &few, 1),
        ] {
            group.bench_function(name, |bencher| {
                bencher.iter(|| {
                    let scanned = log::scan(directory.path(), columns, threads, |_| {});
                    assert_eq!(scanned.rows, written.messages);
                });
            });
        }
        group.bench_function("plain read", |bencher| bencher.iter(|| log::read(directory.path())));
        group.finish();
    }
}

fn put(criterion: &mut Criterion) {
    let mib: u64 = if is_trial() { 1 } else { 32 };
    for body_len in [1024, 200] {
        let directory = tempfile::tempdir().expect("a place for files");
        let written = log::write(directory.path(), 1, mib << 20, body_len);
        let mut group = criterion.benchmark_group(format!("put/{body_len}"));
        group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
        group.throughput(Throughput::Elements(written.messages));
        let count = usize::try_from(written.messages).expect("a number of messages");
        let (messages, target) = (log_put::read(directory.path(), count), directory.path().join("target"));
        for batch_size in [1, 32, 1024] {
            group.bench_function(format!("batches of {batch_size}"), |bencher| {
                bencher.iter_custom(|times| (0..times).map(|_| log_put::put(&target, &messages, batch_size).0).sum());
            });
        }
        group.finish();
    }
}

criterion_group!(benches, scan, put);
criterion_main!(benches);
