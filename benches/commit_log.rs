//! The commit log's scan, on one file of messages with bodies of 1,024 and of 200 bytes: `cargo bench --bench commit_log`.
//!
//! The file is written once for each size, read once before it is measured, and read from the page cache. Its length in MiB
//! is the environment variable `LOGDEX_BENCH_MIB`, 256 unless it is set.

use std::hint::black_box;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use logdex::rocketmq::commit_log::columns::Column;
use logdex::rocketmq::commit_log::frame::{MAGIC_V1, body_crc};
use logdex::rocketmq::commit_log::{CommitLog, Options, ScanOptions};

/// A frame as a producer with keys, tags and a unique key makes it: five properties, hosts of IPv4, a body of noise.
fn frame(number: u64, phy_offset: u64, body_len: usize, frame: &mut Vec<u8>) {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let body: Vec<u8> = std::iter::repeat_with(&mut noise).flatten().take(body_len).collect();
    let topic = format!("orders_{:02}", number % 20);
    let unique = format!("7F000001{:08X}{:08X}{:08X}", 0x6484_5ffd, 0x2b27_68ac_u32, number);
    let properties = format!(
        "KEYS\u{1}order-{number:010}\u{2}UNIQ_KEY\u{1}{unique}\u{2}CLUSTER\u{1}DefaultCluster\u{2}TAGS\u{1}Tag{}\u{2}WAIT\u{1}true",
        number % 5
    );
    frame.clear();
    frame.extend([0; 4]);
    frame.extend(MAGIC_V1.to_be_bytes());
    frame.extend(body_crc(&body).to_be_bytes());
    frame.extend((u32::try_from(number % 8).unwrap()).to_be_bytes());
    frame.extend(0u32.to_be_bytes());
    frame.extend((number / 8).to_be_bytes());
    frame.extend(phy_offset.to_be_bytes());
    frame.extend(0u32.to_be_bytes());
    frame.extend((1_700_000_000_000 + number / 10).to_be_bytes());
    frame.extend([10, 1, 2, u8::try_from(number % 3).unwrap(), 0, 0, 0x12, 0x34]);
    frame.extend((1_700_000_000_001 + number / 10).to_be_bytes());
    frame.extend([192, 168, 0, 9, 0, 0, 0x2a, 0x9f]);
    frame.extend([0; 12]);
    frame.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    frame.extend(&body);
    frame.push(u8::try_from(topic.len()).unwrap());
    frame.extend(topic.as_bytes());
    frame.extend(u16::try_from(properties.len()).unwrap().to_be_bytes());
    frame.extend(properties.as_bytes());
    let total = u32::try_from(frame.len()).unwrap();
    frame.splice(..4, total.to_be_bytes());
}

/// Writes one file of `bytes` bytes and gives how many messages and bytes of messages it holds.
fn write_log(directory: &Path, bytes: u64, body_len: usize) -> (u64, u64) {
    let file = std::fs::File::create(directory.join(format!("{:020}", 0))).unwrap();
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let (mut at, mut number, mut bytes_of_frame) = (0, 0, Vec::new());
    loop {
        frame(number, at, body_len, &mut bytes_of_frame);
        if at + bytes_of_frame.len() as u64 + 8 > bytes {
            break;
        }
        out.write_all(&bytes_of_frame).unwrap();
        at += bytes_of_frame.len() as u64;
        number += 1;
    }
    out.into_inner().unwrap().set_len(bytes).unwrap();
    (number, at)
}

fn scan(criterion: &mut Criterion) {
    let mib: u64 = std::env::var("LOGDEX_BENCH_MIB").ok().and_then(|text| text.parse().ok()).unwrap_or(256);
    let without_body: Vec<Column> = Column::ALL.into_iter().filter(|column| *column != Column::Body).collect();
    let few = vec![Column::Topic, Column::PhyOffset, Column::StoreTimestamp, Column::Keys];
    for body_len in [1024, 200] {
        let directory = tempfile::tempdir().unwrap();
        let (messages, bytes) = write_log(directory.path(), mib << 20, body_len);
        let log = CommitLog::open(directory.path(), Options::default()).unwrap();
        let mut group = criterion.benchmark_group(format!("scan/{body_len}"));
        group.sample_size(10).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
        group.throughput(Throughput::Bytes(bytes));
        for (name, columns, threads) in [
            ("all but the body", &without_body, 1),
            ("all but the body, 2 threads", &without_body, 2),
            ("all", &Column::ALL.to_vec(), 1),
            ("all, 2 threads", &Column::ALL.to_vec(), 2),
            ("four columns", &few, 1),
        ] {
            let options = ScanOptions { columns: columns.clone(), threads, ..ScanOptions::default() };
            group.bench_function(name, |bencher| {
                bencher.iter(|| {
                    let rows: usize =
                        log.scan(&options).unwrap().map(|batch| black_box(batch.unwrap()).num_rows()).sum();
                    assert_eq!(rows as u64, messages);
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, scan);
criterion_main!(benches);
