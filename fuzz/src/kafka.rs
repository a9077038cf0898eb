//! Batches of a Kafka log: where they begin, how their sizes and checksums are made right, and a log to hold indexes against.

use crate::{i32_at, mutate_piece, put};

/// Bytes before those that the size of a batch counts.
const LOG_OVERHEAD: usize = 12;
/// Offset of the magic, which is the format of a batch.
const MAGIC_AT: usize = 16;

/// Mutates bytes of a log: anywhere, or one batch, whose size and checksum are right again afterwards.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    if seed.is_multiple_of(4) {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    }
    let pieces = begins(&data[..size]);
    mutate_piece(data, (size, max_size), &pieces, seed, |batch, _| repair(batch))
}

/// Where each batch begins, as their sizes say, and where the last one ends.
fn begins(log: &[u8]) -> Vec<usize> {
    let mut begins = vec![0];
    let mut at = 0;
    let size = |at: usize| usize::try_from(i32_at(log, at + 8)).ok().map(|size| LOG_OVERHEAD + size);
    while let Some(size) = size(at).filter(|size| *size > MAGIC_AT && at + size <= log.len()) {
        at += size;
        begins.push(at);
    }
    begins
}

/// Makes size and checksum those of the bytes.
fn repair(batch: &mut [u8]) {
    let size = i32::try_from(batch.len().saturating_sub(LOG_OVERHEAD)).unwrap_or(0);
    put(batch, 8, &size.to_be_bytes());
    let is_legacy = batch.get(MAGIC_AT).is_none_or(|magic| magic.cast_signed() < 2);
    let covered = batch.get(if is_legacy { 16 } else { 21 }..).unwrap_or_default();
    let (at, crc) = if is_legacy { (12, crc32fast::hash(covered)) } else { (17, crc_fast::crc32_iscsi(covered)) };
    put(batch, at, &crc.to_be_bytes());
}

/// Makes the checksum of a snapshot of producers that of its bytes, and its count that of its entries.
pub fn repair_snapshot(snapshot: &mut [u8]) {
    let count = i32::try_from(snapshot.len().saturating_sub(10) / 46).unwrap_or(0);
    put(snapshot, 6, &count.to_be_bytes());
    let crc = crc_fast::crc32_iscsi(snapshot.get(6..).unwrap_or_default());
    put(snapshot, 2, &crc.to_be_bytes());
}

/// A batch of the log of [`valid_log`].
#[derive(Clone, Copy, Debug)]
pub struct ValidBatch {
    /// Where it begins.
    pub position: u64,
    /// Offset of its first record.
    pub base_offset: i64,
    /// Offset of its last record.
    pub last_offset: i64,
}

/// Batches of [`valid_log`], and records of each.
pub const BATCHES: i64 = 12;
/// Records of each batch.
pub const RECORDS: i64 = 3;
/// The time of the first record of [`valid_log`]; that of each later one is 1 ms later.
pub const FIRST_TIME: i64 = 1_700_000_000_000;

/// A log from offset `base` on, without gaps, each record later than the one before it.
pub fn valid_log(base: i64) -> (Vec<u8>, Vec<ValidBatch>) {
    let (mut log, mut batches) = (Vec::new(), Vec::new());
    for number in 0..BATCHES {
        let first = number * RECORDS;
        let mut batch = (base + first).to_be_bytes().to_vec();
        batch.extend([0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0]);
        batch.extend(i32::try_from(RECORDS - 1).unwrap_or(0).to_be_bytes());
        batch.extend((FIRST_TIME + first).to_be_bytes());
        batch.extend((FIRST_TIME + first + RECORDS - 1).to_be_bytes());
        batch.extend([0xff; 14]);
        batch.extend(i32::try_from(RECORDS).unwrap_or(0).to_be_bytes());
        for record in 0..u8::try_from(RECORDS).unwrap_or(0) {
            // Length, attributes, time and offset behind the first's, no key, a value of one byte, no header; zig-zag.
            batch.extend([14, 0, 2 * record, 2 * record, 1, 2, b'v', 0]);
        }
        repair(&mut batch);
        let position = log.len() as u64;
        batches.push(ValidBatch { position, base_offset: base + first, last_offset: base + first + RECORDS - 1 });
        log.extend(batch);
    }
    (log, batches)
}
