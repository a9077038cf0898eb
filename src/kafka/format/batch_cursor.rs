//! The records of one batch after the other: decompressed once, read as far as there is room for them.

use super::codec::{Codec, Decoder};
use super::header::{HEADER_SIZE, Header};
use super::legacy::Set;
use super::record::{self, LEAST_RECORD, Span, Wants};
use super::varint::Cursor;
use crate::kafka::finding::{Flaw, Kind};

/// Records that are looked at together: their spans stay in the processor's first-level cache.
pub(crate) const CHUNK: usize = 256;

/// Where the reading of a batch stands.
#[derive(Debug)]
pub(crate) struct BatchCursor {
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
    pub(crate) fn new(limit: usize) -> Self {
        Self { decoder: Decoder::new(limit), kind: Format::V2 { left: 0 }, decoded: false, at: 0 }
    }

    /// Starts with a batch: decompresses it and looks whether it can hold the records that it claims.
    pub(crate) fn begin(&mut self, header: &Header, batch: &[u8]) -> Result<(), Flaw> {
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

    /// The bytes that spans point into: those of the batch, or what came out of the decoder.
    pub(crate) fn bytes<'a>(&'a self, batch: &'a [u8]) -> &'a [u8] {
        if self.decoded { self.decoder.decoded() } else { batch }
    }

    /// Adds the next records to `spans`, up to `most` in all. True when the batch is at its end; after a flaw `spans` has
    /// the records before it.
    pub(crate) fn fill(
        &mut self,
        header: &Header,
        batch: &[u8],
        wants: Wants,
        most: usize,
        spans: &mut Vec<Span>,
    ) -> Result<bool, Flaw> {
        let bytes = if self.decoded { self.decoder.decoded() } else { batch };
        match &mut self.kind {
            Format::V2 { left } => {
                let mut cursor = Cursor::new(bytes.get(self.at..).unwrap_or_default());
                let mut todo = *left;
                let mut flaw = None;
                while todo > 0 && spans.len() < most {
                    let Some(span) = record::parse(&mut cursor, bytes.len(), header, wants) else {
                        flaw = Some(broken(header, todo));
                        break;
                    };
                    spans.push(span);
                    todo -= 1;
                }
                *left = todo;
                self.at = bytes.len() - cursor.rest.len();
                match flaw {
                    Some(flaw) => Err(flaw),
                    None if todo > 0 => Ok(false),
                    None if cursor.rest.is_empty() => Ok(true),
                    None => Err(Flaw::new(Kind::Records, "no byte behind the last record", cursor.rest.len())),
                }
            }
            Format::Legacy(set) => {
                while spans.len() < most {
                    let Some((span, size)) = set.next(header, bytes, self.at)? else { return Ok(true) };
                    spans.push(span);
                    self.at += size;
                }
                Ok(false)
            }
        }
    }

    /// Gives the records of a whole batch and their bytes to `take` until it says no.
    pub(crate) fn each(
        &mut self,
        header: &Header,
        batch: &[u8],
        wants: Wants,
        mut take: impl FnMut(&Span, &[u8]) -> bool,
    ) -> Result<(), Flaw> {
        self.begin(header, batch)?;
        let mut spans = Vec::with_capacity(CHUNK);
        loop {
            spans.clear();
            let filled = self.fill(header, batch, wants, CHUNK, &mut spans);
            let bytes = self.bytes(batch);
            if !spans.iter().all(|span| take(span, bytes)) || filled? {
                return Ok(());
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.decoder.capacity()
    }
}

fn broken(header: &Header, left: i32) -> Flaw {
    let number = header.count.unwrap_or(0).wrapping_sub(left);
    Flaw::new(Kind::Records, "records as they are written", format_args!("no such record at number {number}"))
}

#[cfg(test)]
#[path = "batch_cursor_tests.rs"]
mod tests;
