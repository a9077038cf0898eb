//! Bodies of every kind, damaged ones, and ones that would fill the memory.

use std::io::Write as _;

use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

use super::{BodyDecoder, BodyError};

const LIMIT: usize = 300_000;
const ZLIB: i32 = 0x301;
const OLD_ZLIB: i32 = 0x1;
const LZ4: i32 = 0x101;
const ZSTD: i32 = 0x201;

fn zlib(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(5));
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn zstd(body: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(body, 3).unwrap()
}

fn lz4(body: &[u8], info: FrameInfo) -> Vec<u8> {
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn lz4_frames(body: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for mode in [BlockMode::Independent, BlockMode::Linked] {
        for size in [BlockSize::Max64KB, BlockSize::Max4MB] {
            for checks in [false, true] {
                let mut info = FrameInfo::new().block_mode(mode).block_size(size);
                info = info.block_checksums(checks).content_checksum(checks);
                frames.push(lz4(body, info.content_size(checks.then_some(body.len() as u64))));
            }
        }
    }
    frames
}

/// Text that repeats itself at some distance.
fn text(len: usize) -> Vec<u8> {
    (0..len).map(|i| b'a' + u8::try_from((i * i / 7 + i / 3) % 23).unwrap()).collect()
}

fn all_kinds(body: &[u8]) -> Vec<(i32, Vec<u8>)> {
    let mut kinds = vec![(ZLIB, zlib(body)), (OLD_ZLIB, zlib(body)), (ZSTD, zstd(body))];
    kinds.extend(lz4_frames(body).into_iter().map(|frame| (LZ4, frame)));
    kinds
}

#[test]
fn decodes_what_producers_encode() {
    let mut decoder = BodyDecoder::new(LIMIT);
    for len in [1, 10, 5000, 65_535, 65_536, 65_537, 131_072, 299_999, 300_000] {
        let body = text(len);
        for (flag, stored) in all_kinds(&body) {
            assert!(decoder.decode(&stored, flag).unwrap() == body, "flag {flag:x}, {len} bytes");
            assert!(decoder.decode(&stored, 0x300).unwrap() == stored, "not compressed");
        }
    }
    assert_eq!(decoder.decode(b"", ZSTD).unwrap(), b"");
}

#[test]
fn decodes_the_broker_s_own_vector() {
    let stored = [
        0x78, 0x5e, 0xed, 0xc1, 0x31, 0x01, 0x00, 0x00, 0x00, 0xc2, 0xa0, 0xf5, 0x4f, 0x6d, 0x0a, 0x3f, 0xa0, 0x00,
        0x00, 0x00, 0x00, 0x80, 0xb7, 0x01, 0x13, 0x88, 0x00, 0x01,
    ];
    assert_eq!(BodyDecoder::new(LIMIT).decode(&stored, OLD_ZLIB).unwrap(), vec![0; 5000]);
    assert_eq!(crate::rocketmq::commit_log::frame::body_crc(&stored), 0x600f_0065);
}

#[test]
fn one_byte_over_the_limit_is_too_long() {
    let mut decoder = BodyDecoder::new(LIMIT);
    for body in [text(LIMIT + 1), vec![0; LIMIT + 1], vec![0; 5_000_000]] {
        for (flag, stored) in all_kinds(&body) {
            assert_eq!(decoder.decode(&stored, flag), Err(BodyError::TooLong { limit: LIMIT }), "{flag:x}");
            assert!(decoder.output.capacity() <= 2 * LIMIT, "{}", decoder.output.capacity());
        }
    }
    for limit in [0, 1, 2, 100, 65_535, 65_536, 65_537] {
        let mut decoder = BodyDecoder::new(limit);
        for (flag, stored) in all_kinds(&text(limit + 1)) {
            assert_eq!(decoder.decode(&stored, flag), Err(BodyError::TooLong { limit }), "{flag:x}");
        }
        for (flag, stored) in all_kinds(&text(limit)) {
            assert!(decoder.decode(&stored, flag).unwrap() == text(limit), "flag {flag:x}, limit {limit}");
        }
    }
}

#[test]
fn no_prefix_is_a_body() {
    let mut decoder = BodyDecoder::new(LIMIT);
    for (flag, stored) in all_kinds(&text(70_000)).into_iter().chain(all_kinds(b"short")) {
        let step = (stored.len() / 500).max(1);
        for len in (1..stored.len()).step_by(step).chain([stored.len() - 1]) {
            let body = decoder.decode(stored.get(..len).unwrap(), flag);
            assert!(body.is_err(), "flag {flag:x}: {len} of {} bytes", stored.len());
        }
    }
}

#[test]
fn flipped_bytes_never_panic_and_never_pass_a_checksum() {
    let body = text(3000);
    let mut decoder = BodyDecoder::new(LIMIT);
    for (flag, mut stored) in all_kinds(&body) {
        let checked = flag == ZLIB || flag == OLD_ZLIB;
        for at in 0..stored.len() {
            for bit in [0x01, 0x10, 0x80, 0xff] {
                *stored.get_mut(at).unwrap() ^= bit;
                if let Ok(decoded) = decoder.decode(&stored, flag) {
                    assert!(!checked || decoded == body, "flag {flag:x}, byte {at}");
                }
                *stored.get_mut(at).unwrap() ^= bit;
            }
        }
    }
}

#[test]
fn frames_may_follow_each_other() {
    let mut decoder = BodyDecoder::new(LIMIT);
    for info in [FrameInfo::new().block_mode(BlockMode::Linked), FrameInfo::new()] {
        let mut stored = lz4(b"one ", info.clone());
        stored.extend(b"\x50\x2a\x4d\x18\x03\x00\x00\x00xyz");
        stored.extend(lz4(b"two", info.clone()));
        assert_eq!(decoder.decode(&stored, LZ4).unwrap(), b"one two");
        stored.extend(b"junk");
        assert!(decoder.decode(&stored, LZ4).is_err());
    }
    let stored = [zstd(b"one "), zstd(b"two")].concat();
    assert_eq!(decoder.decode(&stored, ZSTD).unwrap(), b"one two");
}

#[test]
fn headers_that_promise_much_reserve_little() {
    // Zstandard: a frame that states 2^60 bytes, and one that requires a window of 2 GiB.
    let stated = b"\x28\xb5\x2f\xfd\xc0\x88\x00\x00\x00\x00\x00\x00\x00\x10\x01\x00\x00";
    let window = b"\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00";
    for stored in [&stated[..], window] {
        let mut decoder = BodyDecoder::new(64 << 20);
        drop(decoder.decode(stored, ZSTD).map(<[u8]>::len));
        assert!(decoder.output.capacity() <= 64 * 1024, "{}", decoder.output.capacity());
    }
    // LZ4: one byte of block in a frame of 4 MiB blocks.
    let mut decoder = BodyDecoder::new(64 << 20);
    assert_eq!(decoder.decode(&lz4(b"x", FrameInfo::new().block_size(BlockSize::Max4MB)), LZ4).unwrap(), b"x");
    assert!(decoder.output.capacity() <= 64 * 1024);
}

#[test]
fn unknown_types_and_wrong_types_are_errors() {
    let mut decoder = BodyDecoder::new(LIMIT);
    for kind in 4..8 {
        assert_eq!(decoder.decode(b"body", 1 | i32::from(kind) << 8), Err(BodyError::UnknownType(kind)));
    }
    let error = decoder.decode(&zlib(b"body"), LZ4).unwrap_err();
    assert_eq!(error.to_string(), "body is no LZ4 data: it does not begin with the magic of a frame");
    assert!(decoder.decode(&zstd(b"body"), ZLIB).is_err());
    assert!(decoder.decode(&zlib(b"body"), ZSTD).is_err());
    assert_eq!(decoder.decode(&zlib(b"body"), ZLIB).unwrap(), b"body");
}
