//! Tests of the reader on logs in memory and on disk.

mod corruption;
mod encoder;
mod on_disk;
mod round_trip;
mod salvage;
mod walks;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use self::encoder::TestLog;
use super::{Scan, Stop};
use crate::io::ReadAt;
use crate::rocketmq::commit_log::frame::Versions;
use crate::rocketmq::offset_files::OffsetFile;

/// Bytes in memory that must not be asked for what they do not have.
#[derive(Clone, Debug)]
struct Guarded(Arc<Vec<u8>>);

impl ReadAt for Guarded {
    fn len(&self) -> u64 {
        ReadAt::len(self.0.as_slice())
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        assert!(offset + buf.len() as u64 <= ReadAt::len(self), "read outside of the file");
        self.0.as_slice().read_exact_at(buf, offset)
    }

    fn words<const N: usize>(&self, offset: u64) -> io::Result<[u32; N]> {
        self.0.as_slice().words(offset)
    }
}

fn scan(files: &[(u64, Vec<u8>)], begin: u64, end: u64) -> Scan<Guarded> {
    let list = files
        .iter()
        .map(|(start, bytes)| OffsetFile {
            start: *start,
            len: bytes.len() as u64,
            path: start.to_string().into(),
            etag: None,
        })
        .collect();
    let bytes: HashMap<u64, Guarded> =
        files.iter().map(|(start, bytes)| (*start, Guarded(Arc::new(bytes.clone())))).collect();
    Scan::new(list, move |file| Ok(bytes[&file.start].clone()), Versions::V1AndV2, begin, end)
}

/// Offsets and bodies of the messages, and why the walk ended.
fn walk(files: &[(u64, Vec<u8>)], begin: u64, end: u64) -> (Vec<(u64, Vec<u8>)>, Stop) {
    let mut scan = scan(files, begin, end);
    let mut found = Vec::new();
    while scan.advance().unwrap() {
        let (place, frame) = scan.message().unwrap();
        found.push((place.phy_offset, frame.stored_body().to_vec()));
    }
    assert!(!scan.advance().unwrap(), "the end is the end");
    assert!(scan.message().is_none());
    (found, scan.stop().unwrap().clone())
}

fn offsets(files: &[(u64, Vec<u8>)], begin: u64, end: u64) -> Vec<u64> {
    walk(files, begin, end).0.into_iter().map(|(offset, _)| offset).collect()
}

fn small_log() -> TestLog {
    let messages: Vec<_> = (0..7)
        .map(|i| {
            let mut message = encoder::TestMessage::new("Topic", format!("body {i}").as_bytes(), &[("KEYS", "a b")]);
            message.version_2 = i % 3 == 2;
            if i % 2 == 1 {
                message.born_host = vec![0x20; 20];
            }
            message
        })
        .collect();
    TestLog::write(500, 500, &messages)
}
