//! Streams of every codec, damaged ones, and ones that would fill the memory.

use std::io::Write as _;

use super::*;
use crate::kafka::test_data::hex;

const LIMIT: usize = 300_000;

fn gzip_of(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn xerial_of(data: &[u8]) -> Vec<u8> {
    let mut stream = hex("82534e41505059000000000100000001");
    for block in data.chunks(32_768) {
        let packed = snap::raw::Encoder::new().compress_vec(block).unwrap();
        stream.extend(i32::try_from(packed.len()).unwrap().to_be_bytes());
        stream.extend(packed);
    }
    stream
}

fn lz4_of(data: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn all(data: &[u8]) -> Vec<(Codec, Vec<u8>)> {
    vec![
        (Codec::Gzip, gzip_of(data)),
        (Codec::Snappy, xerial_of(data)),
        (Codec::Snappy, snap::raw::Encoder::new().compress_vec(data).unwrap()),
        (Codec::Lz4, lz4_of(data)),
        (Codec::Zstd, zstd::stream::encode_all(data, 3).unwrap()),
    ]
}

fn text(len: usize) -> Vec<u8> {
    (0..len).map(|i| b'a' + u8::try_from((i * i / 7 + i / 3) % 23).unwrap()).collect()
}

#[test]
fn every_codec_decodes_streams_of_every_length() {
    let mut decoder = Decoder::new(LIMIT);
    for len in [0, 1, 10, 5000, 32_768, 65_537, 70_000, 300_000] {
        for (codec, stream) in all(&text(len)) {
            decoder.decode(codec, &stream, 2).unwrap();
            assert_eq!(decoder.decoded(), text(len), "{codec:?} of {len}");
        }
    }
}

#[test]
fn streams_of_the_broker_are_decoded() {
    let mut decoder = Decoder::new(LIMIT);
    for (codec, magic, stream) in [
        (Codec::Snappy, 2, "82534e4150505900000000010000000100000007051068656c6c6f"),
        (Codec::Lz4, 2, "04224d186040820500008068656c6c6f00000000"),
        (Codec::Lz4, 0, "04224d1860401a0500008068656c6c6f00000000"),
    ] {
        decoder.decode(codec, &hex(stream), magic).unwrap();
        assert_eq!(decoder.decoded(), b"hello");
    }
    let old = hex("04224d1860401a0500008068656c6c6f00000000");
    assert!(decoder.decode(Codec::Lz4, &old, 1).is_err(), "only magic 0 has that checksum");
}

#[test]
fn joined_streams_are_decoded_as_the_broker_does() {
    let mut decoder = Decoder::new(LIMIT);
    decoder.decode(Codec::Gzip, &[gzip_of(b"one "), gzip_of(b"two")].concat(), 2).unwrap();
    assert_eq!(decoder.decoded(), b"one two");
    decoder.decode(Codec::Snappy, &[xerial_of(b"one "), xerial_of(b"two")].concat(), 2).unwrap();
    assert_eq!(decoder.decoded(), b"one two");
}

#[test]
fn damaged_streams_neither_panic_nor_exceed_the_limit() {
    let mut decoder = Decoder::new(LIMIT);
    for (codec, stream) in all(&text(900)) {
        for len in 0..stream.len() {
            let _ = decoder.decode(codec, &stream[..len], 2);
            assert!(decoder.decoded().len() <= 900, "{codec:?}");
        }
        for at in 0..stream.len() {
            for bit in 0..8 {
                let mut bad = stream.clone();
                bad[at] ^= 1 << bit;
                let _ = decoder.decode(codec, &bad, 2);
                assert!(decoder.decoded().len() <= LIMIT + 1);
            }
        }
    }
}

#[test]
fn decompression_bombs_are_errors_before_memory_is_allocated() {
    let bomb = vec![0; 8 * 1024 * 1024];
    for (codec, stream) in all(&bomb) {
        let mut decoder = Decoder::new(LIMIT);
        let flaw = decoder.decode(codec, &stream, 2).unwrap_err();
        assert_eq!(flaw.kind, Kind::Records);
        assert!(flaw.expected.contains("at most 300000 bytes"), "{codec:?}: {flaw:?}");
        assert!(decoder.capacity() <= 2 * LIMIT, "{codec:?} took {}", decoder.capacity());
    }
    // Blocks that claim 4 GiB and 100 MB.
    for block in ["ffffffff0f00", "80c2d72f0000"] {
        let mut decoder = Decoder::new(usize::MAX / 2);
        assert!(decoder.decode(Codec::Snappy, &hex(block), 2).is_err());
        assert!(decoder.capacity() <= 64 * 1024);
    }
}

/// Kafka's reader passes over the size and the checksum of the content; a batch has a checksum of its own.
#[test]
fn size_and_checksum_of_an_lz4_frame_are_ignored() {
    let mut decoder = Decoder::new(LIMIT);
    let info = lz4_flex::frame::FrameInfo::new().content_size(Some(900)).content_checksum(true);
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(&text(900)).unwrap();
    let mut stream = encoder.finish().unwrap();
    *stream.last_mut().unwrap() ^= 1;
    decoder.decode(Codec::Lz4, &stream, 2).unwrap();
    assert_eq!(decoder.decoded(), text(900));
}
