//! Any bytes as a file of the log: every walk ends, and what a broker's walk gives a walk behind damage gives, too.
#![no_main]

use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use logdex::rocketmq::commit_log::columns::Column;
use logdex::rocketmq::commit_log::frame::Versions;
use logdex::rocketmq::commit_log::{Bodies, MessageReader, Scan};
use logdex::rocketmq::offset_files::OffsetFile;

fn walk(bytes: &[u8], salvage: bool) -> usize {
    let file = OffsetFile { start: 0, len: bytes.len() as u64, path: PathBuf::from("f") };
    let bytes = bytes.to_vec();
    let scan = Scan::new(vec![file], move |_| Ok(bytes.clone()), Versions::V1AndV2, 0, u64::MAX);
    let (scan, mut columns) = (if salvage { scan.salvaging() } else { scan }, Column::ALL.to_vec());
    if salvage {
        columns.push(Column::Suspect);
    }
    let reader = MessageReader::new(scan, &columns, Bodies::Decoded, 1 << 20, 7).expect("a batch has rows");
    reader.map(|batch| batch.expect("bytes in memory are always read").num_rows()).sum()
}

fuzz_target!(|bytes: &[u8]| {
    assert!(walk(bytes, false) <= walk(bytes, true));
});
