//! The index of aborted transactions: entries of 34 bytes, in the order of their markers.
//!
//! ```text
//! version i16 | producerId i64 | firstOffset i64 | lastOffset i64, of the marker | lastStableOffset i64
//! ```
//!
//! Source: `TransactionIndex`, `AbortedTxn`.

use super::index_file::{IndexFile, IndexOptions};
use crate::error::{Error, Result};
use crate::io::Location;

/// Bytes of an entry.
pub const ENTRY_SIZE: usize = 34;

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Always 0.
    pub version: i16,
    /// Producer of the transaction.
    pub producer_id: i64,
    /// Offset of its first record.
    pub first_offset: i64,
    /// Offset of its marker.
    pub last_offset: i64,
    /// All transactions below it were decided when the marker was written.
    pub last_stable_offset: i64,
}

impl AbortedTransaction {
    /// Decodes an entry.
    pub fn decode(bytes: &[u8; ENTRY_SIZE]) -> Self {
        let long = |at: usize| bytes.get(at..).and_then(|b| b.first_chunk()).copied().map_or(0, i64::from_be_bytes);
        let [high, low, ..] = *bytes;
        Self {
            version: i16::from_be_bytes([high, low]),
            producer_id: long(2),
            first_offset: long(10),
            last_offset: long(18),
            last_stable_offset: long(26),
        }
    }

    /// Encodes an entry.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.version.to_be_bytes());
        for value in [self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset] {
            out.extend(value.to_be_bytes());
        }
    }
}

/// Reads all whole entries of a file, and the number of bytes after them.
///
/// # Errors
/// An I/O error.
pub fn read(path: &Location) -> Result<(Vec<AbortedTransaction>, u64)> {
    let mut entries = Vec::new();
    let options = IndexOptions { base_offset: Some(0), ..IndexOptions::default() };
    let file = IndexFile::open::<ENTRY_SIZE>(path, &options, |bytes| {
        entries.push(AbortedTransaction::decode(bytes));
        true
    })?;
    Ok((entries, file.len % ENTRY_SIZE as u64))
}

/// Reads the entries of a file; none if it is missing. `Ok(None)` if the file is not valid: it ends with part of an entry, or an
/// entry ends before its segment begins.
///
/// # Errors
/// An I/O error.
pub fn read_trusted(path: &Location, base_offset: i64) -> Result<Option<Vec<AbortedTransaction>>> {
    let (entries, torn) = match read(path) {
        Ok(read) => read,
        Err(error) if error.is_missing() => return Ok(Some(Vec::new())),
        Err(Error::Corrupt { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let holds = |entry: &AbortedTransaction| base_offset.max(entry.first_offset) <= entry.last_offset;
    Ok((torn == 0 && entries.iter().all(holds)).then_some(entries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_those_of_the_broker() {
        let entry = AbortedTransaction {
            version: 0,
            producer_id: 98_323,
            first_offset: 102,
            last_offset: 106,
            last_stable_offset: 100,
        };
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        let literal = "000000000000000180130000000000000066000000000000006a0000000000000064";
        assert_eq!(bytes, crate::kafka::test_data::hex(literal));
        assert_eq!(AbortedTransaction::decode(bytes.first_chunk().unwrap()), entry);

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("00000000000000000100.txnindex");
        let mut file = bytes.repeat(700);
        file.extend([1, 2, 3]);
        std::fs::write(&path, &file).unwrap();
        let (entries, left) = read(&path.into()).unwrap();
        assert_eq!((entries.len(), left), (700, 3));
        assert!(entries.iter().all(|e| *e == entry));
    }
}
