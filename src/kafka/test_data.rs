//! Logs and files for tests: literal bytes, and an encoder of batches.

use std::path::{Path, PathBuf};

/// The millisecond that the literal batches count from.
pub(crate) const T: i64 = 1_700_000_000_000;

pub(crate) fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Seven batches from offset 100 on, at 0, 115, 244, 356, 496, 601 and 709.
pub(crate) const SEVEN: &str = "00000000000000640000006700000001027bc17bfc0000000000010000018bcfe568000000018bcfe5680affffffffffffff\
    ffffffffffffff00000002340000000128787878787878787878787878787878787878787800340014020128787878787878\
    7878787878787878787878787878000000000000000066000000750000000102547b6a120000000000000000018bcfe56805\
    0000018bcfe56805ffffffffffffffffffffffffffff00000001840100000001787878787878787878787878787878787878\
    7878787878787878787878787878787878787878787878787878787878787878787878787878787878787800000000000000\
    00670000006400000001022f7c17930000000000020000018bcfe5681e0000018bcfe5681effffffffffffffffffffffffff\
    ff00000003200000000114787878787878787878780020001302011478787878787878787878002000090401147878787878\
    787878787800000000000000006a0000008000000001021db221fe0000000000000000018bcfe5681e0000018bcfe5681eff\
    ffffffffffffffffffffffffff000000019a01000000018c0178787878787878787878787878787878787878787878787878\
    7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878780000000000\
    0000006b0000005d0000000102f2e1c6c70000000000010000018bcfe568010000018bcfe56802ffffffffffffffffffffff\
    ffffff000000022a000000011e787878787878787878787878787878002a000202011e787878787878787878787878787878\
    00000000000000006d0000006000000001023eebafc40000000000000000018bcfe568320000018bcfe56832ffffffffffff\
    ffffffffffffffff000000015c00000001507878787878787878787878787878787878787878787878787878787878787878\
    787878787878787800000000000000006e000000570000000102cdadc2ff0000000000010000018bcfe568310000018bcfe5\
    683cffffffffffffffffffffffffffff00000002240000000118787878787878787878787878002400160201187878787878\
    7878787878787800";
/// Their index at an interval of 150 bytes, and their time index.
pub(crate) const SEVEN_INDEX: &str = "00000005000000f400000008000001f00000000b000002c5";
pub(crate) const SEVEN_TIMES: &str = "0000018bcfe5681e000000050000018bcfe5683c0000000b";
/// Position, size, first and last offset, largest timestamp after `T`.
pub(crate) const SEVEN_BATCHES: [(u64, u32, i64, i64, i64); 7] = [
    (0, 115, 100, 101, 10),
    (115, 129, 102, 102, 5),
    (244, 112, 103, 105, 30),
    (356, 140, 106, 106, 30),
    (496, 105, 107, 108, 2),
    (601, 108, 109, 109, 50),
    (709, 99, 110, 111, 60),
];
/// Timestamps of its records after `T`, from offset 100 on.
pub(crate) const SEVEN_RECORDS: [i64; 12] = [0, 10, 5, 30, 20, 25, 30, 1, 2, 50, 49, 60];
/// Three records from offset 1000 on: key and headers; no key; no value.
pub(crate) const PLAIN: &str = "00000000000003e80000005c00000007029d2a9db50000000000020000018bcfe568000000018bcfe56805ffffffffffffff\
    ffffffffffffff0000000330000000046b310e76616c75652d310404683102780468320110000a0201047632001000130404\
    6b330100";
/// A COMMIT marker at offset 42.
pub(crate) const MARKER: &str = "000000000000002a00000042000000050232e6fec90030000000000000018bcfe568640000018bcfe5686400000000000180\
    130063ffffffff000000012000000008000000010c00000000000300";
/// Two records with the time of the append.
pub(crate) const APPEND_TIME: &str = "00000000000001f4000000410000000002b76943230008000000010000018bcfe568000000018bcfe6ee9fffffffffffffff\
    ffffffffffffff000000020e000000010261000e00020201026200";
/// The rest of a batch of ten after compaction.
pub(crate) const EMPTIED: &str = "00000000000002bc0000003100000003026ae991ff000000000009ffffffffffffffff0000018bcfe56b0900000000000000\
    0500010000002800000000";
/// A message of magic 0 at offset 5, and one of magic 1 at offset 6.
pub(crate) const MAGIC_0: &str = "0000000000000005000000101fecd70a0000000000016b0000000176";
pub(crate) const MAGIC_1: &str = "00000000000000060000001bca1882f401000000015d3ef79800ffffffff0000000568656c6c6f";

/// A segment of these files in a directory of a partition.
pub(crate) fn segment(dir: &Path, base: i64, log: &[u8], index: Option<&[u8]>, times: Option<&[u8]>) -> PathBuf {
    let partition = dir.join("topic-3");
    std::fs::create_dir_all(&partition).unwrap();
    let file = |suffix: &str| partition.join(format!("{base:020}{suffix}"));
    std::fs::write(file(".log"), log).unwrap();
    for (suffix, bytes) in [(".index", index), (".timeindex", times)] {
        match bytes {
            Some(bytes) => std::fs::write(file(suffix), bytes).unwrap(),
            None => drop(std::fs::remove_file(file(suffix))),
        }
    }
    file(".log")
}

pub(crate) fn varint(value: i64, out: &mut Vec<u8>) {
    let mut rest = (value << 1 ^ value >> 63).cast_unsigned();
    while rest >= 0x80 {
        out.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
        rest >>= 7;
    }
    out.push(u8::try_from(rest).unwrap());
}

fn field(bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    varint(bytes.map_or(-1, |b| i64::try_from(b.len()).unwrap()), out);
    out.extend(bytes.unwrap_or_default());
}

/// A record without headers.
pub(crate) fn record(time_delta: i64, delta: i64, key: Option<&[u8]>, value: Option<&[u8]>, out: &mut Vec<u8>) {
    let mut body = vec![0];
    varint(time_delta, &mut body);
    varint(delta, &mut body);
    field(key, &mut body);
    field(value, &mut body);
    body.push(0);
    varint(i64::try_from(body.len()).unwrap(), out);
    out.extend(body);
}

/// A batch of magic 2 around these bytes.
pub(crate) fn batch(
    base: i64,
    last_delta: i32,
    count: i32,
    attributes: i16,
    times: (i64, i64),
    records: &[u8],
) -> Vec<u8> {
    let mut covered = Vec::new();
    covered.extend(attributes.to_be_bytes());
    covered.extend(last_delta.to_be_bytes());
    covered.extend(times.0.to_be_bytes());
    covered.extend(times.1.to_be_bytes());
    covered.extend((-1i64).to_be_bytes());
    covered.extend((-1i16).to_be_bytes());
    covered.extend((-1i32).to_be_bytes());
    covered.extend(count.to_be_bytes());
    covered.extend(records);
    let mut out = base.to_be_bytes().to_vec();
    out.extend(i32::try_from(covered.len() + 9).unwrap().to_be_bytes());
    out.extend([0, 0, 0, 1, 2]);
    out.extend(crc_fast::crc32_iscsi(&covered).to_be_bytes());
    out.extend(covered);
    out
}

/// A message of magic 0 or 1.
pub(crate) fn message(
    offset: i64,
    magic: i8,
    attributes: u8,
    time: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) -> Vec<u8> {
    let mut covered = vec![magic.to_be_bytes()[0], attributes];
    if magic == 1 {
        covered.extend(time.to_be_bytes());
    }
    for bytes in [key, value] {
        covered.extend(bytes.map_or(-1, |b| i32::try_from(b.len()).unwrap()).to_be_bytes());
        covered.extend(bytes.unwrap_or_default());
    }
    let mut out = offset.to_be_bytes().to_vec();
    out.extend(i32::try_from(covered.len() + 4).unwrap().to_be_bytes());
    out.extend(crc32fast::hash(&covered).to_be_bytes());
    out.extend(covered);
    out
}
