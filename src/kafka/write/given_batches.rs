//! Batches in memory, as a producer or a leader sent them. Source: `ByteBufferLogInputStream`.

use std::path::Path;

use super::refusal::Refusal;
use crate::error::Result;
use crate::kafka::format::header::{self, Header, LEAST_SIZE, LOG_OVERHEAD, UP_TO_MAGIC};

/// The batches in bytes. A batch that the bytes do not hold whole ends them.
#[derive(Debug)]
pub(super) struct GivenBatches<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The log that errors name.
    log: &'a Path,
}

impl<'a> GivenBatches<'a> {
    pub(super) fn new(bytes: &'a [u8], log: &'a Path) -> Self {
        Self { bytes, at: 0, log }
    }
}

impl<'a> Iterator for GivenBatches<'a> {
    type Item = Result<(Header, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.bytes.get(self.at..)?;
        if rest.len() < LOG_OVERHEAD {
            return None;
        }
        let corrupt = |what: &str| {
            let text = format!("{}: byte {} of the input: {what}", self.log.display(), self.at);
            Some(Err(Refusal::CORRUPT_RECORD.because(text)))
        };
        let stated = header::size_field(rest);
        if stated < LEAST_SIZE {
            return corrupt(&format!("a batch of size {stated}, expected {LEAST_SIZE} or more"));
        }
        if rest.len() < UP_TO_MAGIC {
            return None;
        }
        let magic = header::magic(rest);
        if !(0..=2).contains(&magic) {
            return corrupt(&format!("magic {magic}, expected 0, 1 or 2"));
        }
        let size = usize::try_from(stated).ok()? + LOG_OVERHEAD;
        let batch = rest.get(..size)?;
        let Some(header) = Header::parse(batch, self.at as u64, u32::try_from(size).ok()?) else {
            return corrupt(&format!("a batch of {size} bytes, fewer than its header has"));
        };
        self.at += size;
        Some(Ok((header, batch)))
    }
}
