//! Compression of record batches: the streams of the libraries that a broker uses, byte for byte.
//!
//! The broker feeds its libraries in pieces, which does not change their streams. Source: `org.apache.kafka.common.compress`.

use std::cell::RefCell;
use std::io;

use zstd::stream::raw::{self, Operation as _};

use super::codec::Codec;
use super::{deflate, snappy_block};
use crate::io::u32_of;

/// Blocks of `Lz4BlockOutputStream`, and of the xerial library.
const LZ4_BLOCK: usize = 64 * 1024;
const SNAPPY_BLOCK: usize = 32 * 1024;
const _: () = assert!(SNAPPY_BLOCK <= snappy_block::MOST);
/// Magic, flags, block size, checksum of the header.
const LZ4_HEADER: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
/// The size of a block that is stored as it is.
const LZ4_STORED: u32 = 1 << 31;
const SNAPPY_HEADER: [u8; 16] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1];
/// Flags, time and compression level are 0, the system is unknown.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// Above the default level, the compressor is the slow one.
const LZ4_DEFAULT_LEVEL: i32 = 9;
const ZSTD_DEFAULT_LEVEL: i32 = 3;
/// The room for a step of the compressor, whose result does not depend on it.
const ZSTD_STEP: usize = 4096;

/// Appends the compressed records. `level`: of the codec; `None`: its default.
pub(crate) fn encode(codec: Codec, level: Option<i32>, records: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    match codec {
        Codec::None => out.extend(records),
        Codec::Gzip => {
            out.extend(GZIP_HEADER);
            deflate::raw(records, level.unwrap_or(-1), out)?;
            out.extend(crc32fast::hash(records).to_le_bytes());
            out.extend(length(records).to_le_bytes());
        }
        Codec::Snappy => {
            out.extend(SNAPPY_HEADER);
            let mut block = Vec::new();
            for stored in records.chunks(SNAPPY_BLOCK) {
                block.clear();
                snappy_block::encode(stored, &mut block);
                out.extend(length(&block).to_be_bytes());
                out.extend(&block);
            }
        }
        Codec::Lz4 => {
            let mode = level.filter(|level| *level != LZ4_DEFAULT_LEVEL);
            let mode = mode.map(lz4::block::CompressionMode::HIGHCOMPRESSION);
            out.extend(LZ4_HEADER);
            for stored in records.chunks(LZ4_BLOCK) {
                let block = lz4::block::compress(stored, mode, false)?;
                let (size, block) = if block.len() < stored.len() {
                    (length(&block), block.as_slice())
                } else {
                    (length(stored) | LZ4_STORED, stored)
                };
                out.extend(size.to_le_bytes());
                out.extend(block);
            }
            out.extend([0; 4]);
        }
        Codec::Zstd => zstd(level.unwrap_or(ZSTD_DEFAULT_LEVEL), records, out)?,
    }
    Ok(())
}

thread_local! {
    /// To allocate and clear the memory of a compressor takes longer than to compress a batch.
    static ZSTD: RefCell<Option<raw::Encoder<'static>>> = const { RefCell::new(None) };
}

fn zstd(level: i32, records: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    // Compressors of other levels are not kept: those of the highest ones have hundreds of megabytes.
    let kept = ZSTD.take().filter(|_| level == ZSTD_DEFAULT_LEVEL);
    let mut encoder = kept.map_or_else(|| raw::Encoder::new(level), Ok)?;
    encoder.reinit()?;
    let mut input = raw::InBuffer::around(records);
    while input.pos() < records.len() {
        encoder.run(&mut input, &mut end_of(out))?;
    }
    // As the broker's stream does when it is closed: the last block is empty.
    while encoder.flush(&mut end_of(out))? > 0 {}
    while encoder.finish(&mut end_of(out), true)? > 0 {}
    if level == ZSTD_DEFAULT_LEVEL {
        ZSTD.set(Some(encoder));
    }
    Ok(())
}

/// A buffer after the bytes of `out`.
fn end_of(out: &mut Vec<u8>) -> raw::OutBuffer<'_, Vec<u8>> {
    out.reserve(ZSTD_STEP);
    let end = out.len();
    raw::OutBuffer::around_pos(out, end)
}

/// A length in the 32 bits that the streams have for it.
fn length(bytes: &[u8]) -> u32 {
    u32_of(bytes.len())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::kafka::format::codec::Decoder;

    #[test]
    fn streams_decode_and_are_those_of_the_broker() {
        let text: Vec<u8> = (0..200_000u32).flat_map(|i| (i / 7 % 251).to_be_bytes()).collect();
        let mut decoder = Decoder::new(1 << 30);
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            for (records, level) in [(&text[..], None), (b"x", None), (&text[..100], Some(1))] {
                let mut out = vec![7];
                encode(codec, level, records, &mut out).unwrap();
                decoder.decode(codec, &out[1..], 2).unwrap();
                assert_eq!(decoder.decoded(), records, "{codec:?}");
            }
        }
        let mut zstd = Vec::new();
        encode(Codec::Zstd, None, b"x", &mut zstd).unwrap();
        assert!(zstd.ends_with(&[1, 0, 0]), "an empty last block");
        for len in [0, 1, 5_000, 200_000, 800_000, 17] {
            let (mut again, mut once) = (Vec::new(), zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap());
            encode(Codec::Zstd, None, &text[..len], &mut again).unwrap();
            once.write_all(&text[..len]).unwrap();
            once.flush().unwrap();
            assert_eq!(again, once.finish().unwrap(), "a compressor that was used before, {len} bytes");
        }
        let mut gzip = Vec::new();
        encode(Codec::Gzip, None, b"aaaaaaaaaa", &mut gzip).unwrap();
        assert_eq!(gzip[..13], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 0x4b, 0x4c, 0x84]);
    }
}
