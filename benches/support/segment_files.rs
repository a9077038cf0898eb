//! Kafka segments: batches of magic 2 with 16 KiB of records each, as a producer with `batch.size=16384` sends them.
//!
//! A record has a key of 24 bytes, a value that looks like JSON, and a header of 8 and 16 bytes; its timestamp is a few
//! milliseconds after the one before it.

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use super::keys::mix;

/// Only the disk can cause an error here.
const OK: &str = "the disk has space, and numbers are small";
/// Bytes of records in a batch, before compression.
const BATCH: usize = 16 * 1024;
const FIRST_TIMESTAMP: i64 = 1_700_000_000_000;

/// Compression of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    None,
    Lz4,
    Zstd,
}

impl Codec {
    pub(crate) const ALL: [Self; 3] = [Self::None, Self::Lz4, Self::Zstd];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    fn attributes(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    fn compress(self, records: &[u8]) -> Vec<u8> {
        match self {
            Self::None => records.to_vec(),
            Self::Lz4 => {
                use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
                let info = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
                let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
                encoder.write_all(records).expect(OK);
                encoder.finish().expect(OK)
            }
            Self::Zstd => zstd::bulk::compress(records, 3).expect(OK),
        }
    }
}

/// A segment on disk, and its counts.
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) records: u64,
    pub(crate) batches: u64,
}

fn varint(value: i64, out: &mut Vec<u8>) {
    let mut rest = (value << 1 ^ value >> 63).cast_unsigned();
    while rest >= 0x80 {
        out.push(u8::try_from(rest & 0x7f).expect(OK) | 0x80);
        rest >>= 7;
    }
    out.push(u8::try_from(rest).expect(OK));
}

fn field(bytes: &[u8], out: &mut Vec<u8>) {
    varint(i64::try_from(bytes.len()).expect(OK), out);
    out.extend_from_slice(bytes);
}

/// `len` bytes of one JSON object: fields that repeat, and numbers that do not.
fn value(number: u64, len: usize, out: &mut Vec<u8>) {
    use std::fmt::Write as _;
    let noise = mix(number);
    let event =
        ["created", "paid", "shipped", "closed"].into_iter().cycle().nth(usize::from(noise.to_le_bytes()[0] % 4));
    let mut text = format!(
        "{{\"id\":{number},\"user\":\"{:010x}\",\"event\":\"{}\",\"amount\":{}.{:02}",
        noise >> 24,
        event.unwrap_or_default(),
        noise >> 20 & 0xffff,
        noise >> 40 & 63,
    );
    for extra in 0_u8.. {
        if text.len() >= len {
            break;
        }
        let noise = mix(number << 8 | u64::from(extra));
        write!(text, ",\"f{:x}\":{}", extra % 16, noise >> 24).expect(OK);
    }
    text.truncate(len - 1);
    text.push('}');
    out.extend_from_slice(text.as_bytes());
}

/// The record with this number, `delta` slots and `delta_ms` milliseconds after the first of its batch.
fn record(number: u64, delta: i64, delta_ms: i64, value_len: usize, body: &mut Vec<u8>, out: &mut Vec<u8>) {
    body.clear();
    body.push(0);
    varint(delta_ms, body);
    varint(delta, body);
    field(format!("customer-{:015x}", mix(number) >> 4).as_bytes(), body);
    varint(i64::try_from(value_len).expect(OK), body);
    value(number, value_len, body);
    varint(1, body);
    field(b"trace-id", body);
    field([mix(!number), mix(number << 1)].map(u64::to_be_bytes).as_flattened(), body);
    field(body, out);
}

/// Time of a record: three to a millisecond.
fn timestamp(number: u64) -> i64 {
    FIRST_TIMESTAMP + i64::try_from(number / 3).expect(OK)
}

fn batch(first: u64, last: u64, codec: Codec, records: &[u8]) -> Vec<u8> {
    let stored = codec.compress(records);
    let delta = i32::try_from(last - first).expect(OK);
    let mut checked = codec.attributes().to_be_bytes().to_vec();
    checked.extend(delta.to_be_bytes());
    checked.extend(timestamp(first).to_be_bytes());
    checked.extend(timestamp(last).to_be_bytes());
    // No producer id, epoch or sequence.
    checked.extend([0xff; 14]);
    checked.extend((delta + 1).to_be_bytes());
    checked.extend(stored);
    let mut batch = i64::try_from(first).expect(OK).to_be_bytes().to_vec();
    batch.extend(i32::try_from(checked.len() + 9).expect(OK).to_be_bytes());
    batch.extend(0_i32.to_be_bytes());
    batch.push(2);
    batch.extend(crc_fast::crc32_iscsi(&checked).to_be_bytes());
    batch.extend(checked);
    batch
}

/// Writes a segment of about `bytes` bytes into the directory of partition 0 of topic `bench`, without indexes.
pub(crate) fn write(directory: &Path, codec: Codec, value_len: usize, bytes: u64) -> Segment {
    let directory = directory.join(format!("{}-{value_len}", codec.name())).join("bench-0");
    std::fs::create_dir_all(&directory).expect(OK);
    let path = directory.join(format!("{:020}.log", 0));
    let mut out = BufWriter::with_capacity(1 << 20, std::fs::File::create(&path).expect(OK));
    let mut segment = Segment { path, bytes: 0, records: 0, batches: 0 };
    let (mut records, mut body) = (Vec::new(), Vec::new());
    while segment.bytes < bytes {
        let first = segment.records;
        records.clear();
        let mut next = first;
        loop {
            let before = records.len();
            let delta = i64::try_from(next - first).expect(OK);
            record(next, delta, timestamp(next) - timestamp(first), value_len, &mut body, &mut records);
            if records.len() > BATCH && before > 0 {
                records.truncate(before);
                break;
            }
            next += 1;
        }
        let batch = batch(first, next - 1, codec, &records);
        out.write_all(&batch).expect(OK);
        segment.bytes += batch.len() as u64;
        segment.records = next;
        segment.batches += 1;
    }
    out.into_inner().expect(OK);
    segment
}
