//! Compression of record batches and of legacy message sets.
//!
//! The records of a batch are one compressed stream. Its uncompressed length is not stored, so the output grows while the
//! input fills it, up to a limit. Source: `org.apache.kafka.common.compress`.

use std::fmt;

use zstd::zstd_safe;

use crate::decompress::lz4_frame::{self, HeaderChecksum};
use crate::decompress::{DecodeError, Inflater, Output, zstd_frame};
use crate::report::{Flaw, Kind};

/// The magic of a stream of the xerial Snappy library. Two version numbers follow it.
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const XERIAL_HEADER: usize = 16;
/// The most output bytes for one byte of a Snappy block: a copy of 64 bytes takes 3.
const MOST_SNAPPY_GROWTH: usize = 22;

/// The compression of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Not compressed.
    None,
    /// RFC 1952.
    Gzip,
    /// Snappy blocks in the frame of the xerial library, or one block without a frame.
    Snappy,
    /// An LZ4 frame.
    Lz4,
    /// A Zstandard frame.
    Zstd,
}

impl Codec {
    /// Returns the codec of a number in the attributes.
    pub(crate) fn from_id(id: u8) -> Option<Self> {
        [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd].get(usize::from(id)).copied()
    }

    /// Returns the codec of a name.
    pub fn named(name: &str) -> Option<Self> {
        (0..5).filter_map(Self::from_id).find(|codec| codec.name() == name)
    }

    /// Its name in settings and in the output of the broker's dump tool.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// Decoders and their output buffer, reused from batch to batch.
pub(crate) struct Decoder {
    output: Output,
    inflater: Option<Inflater>,
    zstd: Option<zstd_safe::DCtx<'static>>,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder").field("limit", &self.limit()).finish_non_exhaustive()
    }
}

impl Decoder {
    /// More than `limit` uncompressed bytes are an error.
    pub(crate) fn new(limit: usize) -> Self {
        Self { output: Output::new(limit), inflater: None, zstd: None }
    }

    /// The most uncompressed bytes.
    pub(crate) fn limit(&self) -> usize {
        self.output.limit()
    }

    /// Decodes the stream of a batch of this format; [`Self::decoded`] returns the result.
    pub(crate) fn decode(&mut self, codec: Codec, stored: &[u8], magic: i8) -> Result<(), Flaw> {
        self.output.clear();
        let decoded = match codec {
            Codec::None => return Err(undecodable("none", "it is not compressed")),
            Codec::Gzip => self.inflater.get_or_insert_with(Inflater::new).gzip(stored, &mut self.output),
            Codec::Snappy => snappy(stored, &mut self.output),
            Codec::Lz4 => {
                // COMPAT(kafka Lz4BlockInputStream): frames of magic 0 have the checksum of another range.
                let header = if magic == 0 { HeaderChecksum::Ignored } else { HeaderChecksum::Checked };
                lz4_frame::decode_first(stored, header, &mut self.output)
            }
            Codec::Zstd => {
                zstd_frame::decode(self.zstd.get_or_insert_with(zstd_safe::DCtx::create), stored, &mut self.output)
            }
        };
        decoded.map_err(|error| match error {
            DecodeError::TooLong { limit } => {
                Flaw::new(Kind::Records, format_args!("at most {limit} bytes of records"), "more bytes")
            }
            DecodeError::Undecodable { kind, reason } => undecodable(kind, &reason),
        })
    }

    /// The output of [`Self::decode`].
    pub(crate) fn decoded(&self) -> &[u8] {
        self.output.filled()
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.output.capacity()
    }
}

fn undecodable(kind: &str, reason: &str) -> Flaw {
    Flaw::new(Kind::Records, format_args!("{kind} data"), reason)
}

fn snappy(stored: &[u8], output: &mut Output) -> Result<(), DecodeError> {
    if !stored.starts_with(&XERIAL_MAGIC) {
        return snappy_block(stored, output);
    }
    let mut rest = stored.get(XERIAL_HEADER..).ok_or_else(|| snappy_fail("it ends inside its header"))?;
    while !rest.is_empty() {
        let (len, after_len) = rest.split_first_chunk().ok_or_else(|| snappy_fail("it ends inside a length"))?;
        // COMPAT(snappy-java SnappyInputStream): streams may be joined, each with its header.
        if rest.starts_with(&XERIAL_MAGIC) {
            rest = rest.get(XERIAL_HEADER..).ok_or_else(|| snappy_fail("it ends inside its header"))?;
            continue;
        }
        let len = usize::try_from(i32::from_be_bytes(*len)).map_err(|_| snappy_fail("a block of a negative length"))?;
        let (block, next) = after_len.split_at_checked(len).ok_or_else(|| snappy_fail("it ends inside a block"))?;
        snappy_block(block, output)?;
        rest = next;
    }
    Ok(())
}

fn snappy_fail(reason: impl fmt::Display) -> DecodeError {
    DecodeError::Undecodable { kind: "snappy", reason: reason.to_string() }
}

fn snappy_block(block: &[u8], output: &mut Output) -> Result<(), DecodeError> {
    let len = snap::raw::decompress_len(block).map_err(snappy_fail)?;
    if len > block.len().saturating_mul(MOST_SNAPPY_GROWTH) {
        return Err(snappy_fail(format_args!("a block of {} bytes that claims to hold {len}", block.len())));
    }
    let (_, free) = output.free(len);
    let Some(free) = free.get_mut(..len) else {
        return Err(output.too_long());
    };
    snap::raw::Decoder::new().decompress(block, free).map_err(snappy_fail)?;
    output.add(len)
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
