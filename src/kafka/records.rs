//! The records of one batch after the other: decompressed once, read as far as there is room for them.

use super::codec::{Codec, Decoder};
use super::finding::{Flaw, Kind};
use super::header::{HEADER_SIZE, Header};
use super::legacy::Set;
use super::record::{self, LEAST_RECORD, Record, Wants};
use super::varint::Cursor;

/// Where the reading of a batch stands.
#[derive(Debug)]
pub(super) struct BatchCursor {
    decoder: Decoder,
    kind: Format,
    /// The bytes of the records are in the decoder, not in the batch.
    decoded: bool,
    /// Byte offset of the next record there.
    at: usize,
}

#[derive(Clone, Copy, Debug)]
enum Format {
    /// Records of magic 2 that are left.
    V2 {
        left: i32,
    },
    Legacy(Set),
}

impl BatchCursor {
    /// Batches of more than `limit` uncompressed bytes are refused.
    pub(super) fn new(limit: usize) -> Self {
        Self { decoder: Decoder::new(limit), kind: Format::V2 { left: 0 }, decoded: false, at: 0 }
    }

    /// Starts with a batch: decompresses it and looks whether it can hold the records that it claims.
    pub(super) fn begin(&mut self, header: &Header, batch: &[u8]) -> Result<(), Flaw> {
        (self.kind, self.decoded, self.at) = (Format::V2 { left: 0 }, false, 0);
        let Some(count) = header.count else {
            let set = Set::open(header, batch, &mut self.decoder)?;
            (self.kind, self.decoded) = (Format::Legacy(set), set.is_wrapped());
            return Ok(());
        };
        let codec = header.codec()?;
        let stored = batch.get(HEADER_SIZE..).unwrap_or_default();
        self.decoded = codec != Codec::None;
        let bytes = if self.decoded {
            // COMPAT(kafka LogCleaner): what compaction emptied keeps its codec, without a stream.
            if count == 0 && stored.is_empty() {
                self.decoded = false;
                self.at = HEADER_SIZE;
                return Ok(());
            }
            self.decoder.decode(codec, stored, header.magic)?;
            self.decoder.decoded().len()
        } else {
            self.at = HEADER_SIZE;
            stored.len()
        };
        if !usize::try_from(count).is_ok_and(|count| count <= bytes / LEAST_RECORD) {
            let most = format_args!("at most {} records in {bytes} bytes", bytes / LEAST_RECORD).to_string();
            return Err(Flaw::new(Kind::Records, most, format_args!("a count of {count}")));
        }
        self.kind = Format::V2 { left: count };
        Ok(())
    }

    /// Gives records to `take` until it does not take one, which is then the next. True when the batch is at its end.
    pub(super) fn run(
        &mut self,
        header: &Header,
        batch: &[u8],
        wants: Wants,
        mut take: impl FnMut(&Record<'_>) -> bool,
    ) -> Result<bool, Flaw> {
        let bytes = if self.decoded { self.decoder.decoded() } else { batch };
        match &mut self.kind {
            Format::V2 { left } => {
                let mut cursor = Cursor::new(bytes.get(self.at..).unwrap_or_default());
                while *left > 0 {
                    let before = cursor.rest.len();
                    let record = record::parse(&mut cursor, header, wants).ok_or_else(|| broken(header, *left))?;
                    if !take(&record) {
                        return Ok(false);
                    }
                    self.at += before - cursor.rest.len();
                    *left -= 1;
                }
                if cursor.rest.is_empty() {
                    return Ok(true);
                }
                Err(Flaw::new(Kind::Records, "no byte behind the last record", format_args!("{}", cursor.rest.len())))
            }
            Format::Legacy(set) => {
                while let Some((record, size)) = set.first(header, bytes.get(self.at..).unwrap_or_default())? {
                    if !take(&record) {
                        return Ok(false);
                    }
                    self.at += size;
                }
                Ok(true)
            }
        }
    }

    /// Gives offsets and timestamps of a whole batch to `take` until it says no.
    pub(super) fn each(
        &mut self,
        header: &Header,
        batch: &[u8],
        take: impl FnMut(&Record<'_>) -> bool,
    ) -> Result<(), Flaw> {
        self.begin(header, batch)?;
        self.run(header, batch, Wants::Times, take).map(|_| ())
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.decoder.capacity()
    }
}

fn broken(header: &Header, left: i32) -> Flaw {
    let number = header.count.unwrap_or(0).wrapping_sub(left);
    Flaw::new(Kind::Records, "records as they are written", format_args!("no such record at number {number}"))
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
