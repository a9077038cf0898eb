//! The records of a batch: decompressed once, parsed in chunks.

use super::codec::{Codec, Decoder};
use super::header::{HEADER_SIZE, Header};
use super::legacy::Set;
use super::record::{self, LEAST_RECORD, Span, Wants};
use super::varint::Cursor;
use crate::report::{Flaw, Kind};

/// Records that are parsed together: their spans stay in the processor's first-level cache.
pub(crate) const CHUNK: usize = 256;

/// A cursor over the records of one batch after another.
#[derive(Debug)]
pub(crate) struct BatchCursor {
    decoder: Decoder,
    kind: Format,
    /// The records are in the decoder, not in the batch.
    decoded: bool,
    /// Byte offset of the next record.
    at: usize,
}

#[derive(Clone, Copy, Debug)]
enum Format {
    /// Magic 2, with the number of remaining records.
    V2 {
        left: i32,
    },
    Legacy(Set),
}

impl BatchCursor {
    /// A batch of more than `limit` uncompressed bytes is an error.
    pub(crate) fn new(limit: usize) -> Self {
        Self { decoder: Decoder::new(limit), kind: Format::V2 { left: 0 }, decoded: false, at: 0 }
    }

    /// Sets the limit of a batch in uncompressed bytes.
    pub(crate) fn limit(&mut self, limit: usize) {
        if self.decoder.limit() != limit {
            self.decoder = Decoder::new(limit);
        }
    }

    /// Begins a batch: decompresses it, and checks that it is large enough for the number of records in its header.
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
            // COMPAT(kafka LogCleaner): a batch that compaction emptied keeps its codec, without compressed data.
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

    /// Returns whether spans point into the output of the decoder.
    pub(crate) fn is_decoded(&self) -> bool {
        self.decoded
    }

    /// Returns the bytes that spans point into: the batch, or the output of the decoder.
    pub(crate) fn bytes<'a>(&'a self, batch: &'a [u8]) -> &'a [u8] {
        if self.decoded { self.decoder.decoded() } else { batch }
    }

    /// Adds the next records to `spans`, up to `most` in all. True at the end of the batch. After a flaw `spans` has the
    /// records before it.
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
                    None => Err(Flaw::new(Kind::Records, "no bytes after the last record", cursor.rest.len())),
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

    /// Calls `take` with each record of a whole batch and the bytes that it points into, until it returns false.
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
    Flaw::new(Kind::Records, "a record", format_args!("other bytes at record {number}"))
}

#[cfg(test)]
#[path = "batch_cursor_tests.rs"]
mod tests;
