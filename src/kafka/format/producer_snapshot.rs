//! Snapshots of the producers' state: version i16 = 1, CRC-32C u32 of the rest, count i32, entries of 46 bytes.
//!
//! ```text
//! producerId i64 | producerEpoch i16 | lastSequence i32 | lastOffset i64 | offsetDelta i32 | timestamp i64
//! coordinatorEpoch i32 | currentTxnFirstOffset i64, -1: none
//! ```
//!
//! Source: `ProducerStateManager#readSnapshot`.

use crate::error::{Error, Result};
use crate::io::{Access, FileSource, Location, ReadAt, u32_of, usize_of};
use crate::report::{Finding, Flaw, Kind};

const HEADER_SIZE: usize = 10;
const CRC_FROM: usize = 6;
const ENTRY_SIZE: usize = 46;
const VERSION: i16 = 1;

/// The state of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerEntry {
    /// The producer.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// Sequence number of the last record; -1: none.
    pub last_sequence: i32,
    /// Its offset; -1: none.
    pub last_offset: i64,
    /// Number of offsets in the last batch before the last one.
    pub offset_delta: i32,
    /// Timestamp of the last batch.
    pub timestamp: i64,
    /// Epoch of the coordinator that wrote the last marker; -1: none.
    pub coordinator_epoch: i32,
    /// First offset of the open transaction.
    pub current_txn_first_offset: Option<i64>,
}

impl ProducerEntry {
    fn decode(bytes: &[u8; ENTRY_SIZE]) -> Self {
        fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
            bytes.get(at..).and_then(|b| b.first_chunk()).copied().unwrap_or([0; N])
        }
        let open = i64::from_be_bytes(field(bytes, 38));
        Self {
            producer_id: i64::from_be_bytes(field(bytes, 0)),
            producer_epoch: i16::from_be_bytes(field(bytes, 8)),
            last_sequence: i32::from_be_bytes(field(bytes, 10)),
            last_offset: i64::from_be_bytes(field(bytes, 14)),
            offset_delta: i32::from_be_bytes(field(bytes, 22)),
            timestamp: i64::from_be_bytes(field(bytes, 26)),
            coordinator_epoch: i32::from_be_bytes(field(bytes, 34)),
            current_txn_first_offset: (open != -1).then_some(open),
        }
    }
}

/// Returns the content of a snapshot. Source: `ProducerStateManager#writeSnapshot`.
pub(crate) fn encode(entries: &[ProducerEntry]) -> Vec<u8> {
    let mut body = (u32_of(entries.len())).to_be_bytes().to_vec();
    for entry in entries {
        body.extend(entry.producer_id.to_be_bytes());
        body.extend(entry.producer_epoch.to_be_bytes());
        body.extend(entry.last_sequence.to_be_bytes());
        body.extend(entry.last_offset.to_be_bytes());
        body.extend(entry.offset_delta.to_be_bytes());
        body.extend(entry.timestamp.to_be_bytes());
        body.extend(entry.coordinator_epoch.to_be_bytes());
        body.extend(entry.current_txn_first_offset.unwrap_or(-1).to_be_bytes());
    }
    let mut content = VERSION.to_be_bytes().to_vec();
    content.extend(crc_fast::crc32_iscsi(&body).to_be_bytes());
    content.extend(body);
    content
}

/// Reads a snapshot.
///
/// # Errors
/// `Corrupt` for another version, checksum or length; an I/O error.
pub fn read(path: &Location) -> Result<Vec<ProducerEntry>> {
    let source = FileSource::open(path, Access::Pread)?;
    let len = usize_of(source.len());
    let mut bytes = vec![0; len];
    source.read_exact_at(&mut bytes, 0).map_err(|e| Error::io(path, e))?;
    parse(&bytes)
        .map_err(|(at, expected, found)| Finding::new(path, at, Flaw::new(Kind::FileContent, expected, found)).into())
}

/// Parses the entries; on an error, return its byte offset, what was expected and what was found.
fn parse(bytes: &[u8]) -> std::result::Result<Vec<ProducerEntry>, (u64, String, String)> {
    let Some((head, entries)) = bytes.split_first_chunk::<HEADER_SIZE>() else {
        return Err((0, format!("at least {HEADER_SIZE} bytes"), format!("{} bytes", bytes.len())));
    };
    let [v0, v1, c0, c1, c2, c3, n0, n1, n2, n3] = *head;
    let version = i16::from_be_bytes([v0, v1]);
    if version != VERSION {
        return Err((0, format!("version {VERSION}"), format!("version {version}")));
    }
    let stored = u32::from_be_bytes([c0, c1, c2, c3]);
    let computed = crc_fast::crc32_iscsi(bytes.get(CRC_FROM..).unwrap_or_default());
    if stored != computed {
        return Err((2, format!("crc {computed:08x}, that of the bytes"), format!("{stored:08x}")));
    }
    let count = i32::from_be_bytes([n0, n1, n2, n3]);
    let (whole, rest) = entries.as_chunks::<ENTRY_SIZE>();
    if usize::try_from(count).ok() != Some(whole.len()) || !rest.is_empty() {
        return Err((6, format!("a count of the entries in {} bytes", entries.len()), format!("{count}")));
    }
    Ok(whole.iter().map(ProducerEntry::decode).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    const ONE: &str = "0001229812e9000000010000000000018013006300000029000000000000006a000000010000018bcfe56864\
                       00000003ffffffffffffffff";

    #[test]
    fn snapshots_of_the_broker() {
        assert_eq!(parse(&hex("000148674bc700000000")).unwrap(), []);
        let producer = ProducerEntry {
            producer_id: 98_323,
            producer_epoch: 99,
            last_sequence: 41,
            last_offset: 106,
            offset_delta: 1,
            timestamp: 1_700_000_000_100,
            coordinator_epoch: 3,
            current_txn_first_offset: None,
        };
        assert_eq!(parse(&hex(ONE)).unwrap(), [producer]);
        assert_eq!(encode(&[producer]), hex(ONE));
    }

    #[test]
    fn every_cut_and_flip_is_refused() {
        let good = hex(ONE);
        for len in 0..good.len() {
            assert!(parse(&good[..len]).is_err(), "cut at {len}");
        }
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(parse(&bad).is_err(), "byte {at} bit {bit}");
            }
        }
    }
}
