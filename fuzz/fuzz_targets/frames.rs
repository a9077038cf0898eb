//! Any bytes as a file of the log: every walk ends, a walk that continues after damage includes all messages of a broker's
//! walk, and neither the columns nor the size of a batch change a value.
#![no_main]

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use logdex::batch_size::BatchSize;
use logdex::rocketmq::commit_log::columns::Column;
use logdex::rocketmq::commit_log::frame::Versions;
use logdex::rocketmq::commit_log::{Bodies, MessageReader, Scan};
use logdex::rocketmq::offset_files::OffsetFile;
use logdex_fuzz as _;

const ALL: usize = 1 << 20;

fn scan(bytes: &[u8]) -> Scan<Vec<u8>> {
    let file = OffsetFile { start: 0, len: bytes.len() as u64, path: "f".into(), etag: None };
    let bytes = bytes.to_vec();
    Scan::new(vec![file], move |_| Ok(bytes.clone()), Versions::V1AndV2, 0, u64::MAX)
}

fn read(scan: Scan<Vec<u8>>, columns: &[Column], rows: usize) -> Vec<RecordBatch> {
    let reader = MessageReader::new(scan, columns, Bodies::Decoded, 1 << 16, BatchSize::of_rows(rows))
        .expect("a batch has rows");
    reader.map(|batch| batch.expect("bytes in memory are always read")).collect()
}

/// Offset and length of each frame.
fn places(batches: &[RecordBatch]) -> Vec<(i64, i64)> {
    let places = |batch: &RecordBatch| {
        let column = |name| batch.column_by_name(name).expect("a column that was chosen");
        let offsets = column("phy_offset").as_primitive::<Int64Type>().values().to_vec();
        let sizes = column("store_size").as_primitive::<Int32Type>().values().to_vec();
        offsets.into_iter().zip(sizes.into_iter().map(i64::from)).collect::<Vec<_>>()
    };
    batches.iter().flat_map(places).collect()
}

fuzz_target!(|bytes: &[u8]| {
    let batches = read(scan(bytes), &Column::ALL, ALL);
    let broker = places(&batches);
    for pair in broker.windows(2) {
        assert!(pair[0].0 + pair[0].1 <= pair[1].0, "frames do not overlap: {pair:?}");
    }
    assert!(broker.last().is_none_or(|(at, len)| at + len <= bytes.len() as i64));

    let mut at = 0;
    for batch in read(scan(bytes), &Column::ALL, 7) {
        assert_eq!(batches[0].slice(at, batch.num_rows()), batch, "from row {at} on");
        at += batch.num_rows();
    }
    assert_eq!(at, broker.len());
    let few = [Column::PhyOffset, Column::StoreSize];
    assert_eq!(places(&read(scan(bytes), &few, ALL)), broker);

    // A walk without checksums, or one that continues after damage, gets at least as far.
    let unchecked = places(&read(scan(bytes).checking(false), &Column::ALL, ALL));
    assert_eq!(unchecked.get(..broker.len()), Some(broker.as_slice()));
    let with_signs = [Column::ALL.as_slice(), &[Column::Suspect]].concat();
    let salvaged = places(&read(scan(bytes).salvaging(0), &with_signs, ALL));
    assert_eq!(salvaged.get(..broker.len()), Some(broker.as_slice()));
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    logdex_fuzz::frames::mutate(data, size, max_size, seed)
});
