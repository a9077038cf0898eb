//! Puts in blocks and by several threads leave the bytes that puts one by one leave.

use std::io;
use std::sync::RwLock;

use proptest::prelude::*;

use super::bulk::put_bulk;
use super::put::{PutColumns, put_one, read_header};
use super::put_batch::put_batch;
use crate::hash_index::format::entry::Entry;
use crate::hash_index::format::geometry::Geometry;
use crate::hash_index::format::header::Header;
use crate::hash_index::key_hash::java_hash::KeySource;
use crate::io::disk::reserve;
use crate::io::{FileMap, PlainFile, ReadAt, WriteAt};

/// Bytes in memory, with nothing but the plain calls of the trait.
struct Memory(RwLock<Vec<u8>>);

impl ReadAt for Memory {
    fn len(&self) -> u64 {
        self.0.read().unwrap().len() as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read().unwrap().read_exact_at(buf, offset)
    }

    fn words<const N: usize>(&self, offset: u64) -> io::Result<[u32; N]> {
        self.0.read().unwrap().words(offset)
    }
}

impl WriteAt for Memory {
    fn put_words<const N: usize>(&self, offset: u64, words: [u32; N]) -> io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        let bytes = words.map(u32::to_be_bytes);
        let mut all = self.0.write().unwrap();
        all.get_mut(at..at + 4 * N).ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(bytes.as_flattened());
        Ok(())
    }

    fn put_long(&self, offset: u64, value: u64) -> io::Result<()> {
        let bytes = value.to_be_bytes();
        let (high, low) = bytes.split_at(4);
        self.put_words(offset, [high, low].map(|half| u32::from_be_bytes(half.try_into().unwrap())))
    }

    fn publish(&self, offset: u64, word: u32) -> io::Result<()> {
        self.put_words(offset, [word])
    }

    fn flush(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Keys whose hashes are given.
#[derive(Debug)]
struct Given(Vec<i32>);

impl KeySource for Given {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn hash_block(&self, start: usize, hashes: &mut [i32]) {
        hashes.copy_from_slice(&self.0[start..start + hashes.len()]);
    }
}

#[derive(Debug)]
struct Rows {
    keys: Given,
    phy_offsets: Vec<i64>,
    store_timestamps: Vec<i64>,
}

impl Rows {
    fn columns(&self) -> PutColumns<'_, Given> {
        PutColumns { keys: &self.keys, phy_offsets: &self.phy_offsets, store_timestamps: &self.store_timestamps }
    }
}

fn one_by_one(target: &impl WriteAt, geometry: Geometry, rows: &Rows, start: usize) -> usize {
    let mut header = read_header(target).unwrap();
    let all = rows.keys.0.iter().zip(&rows.phy_offsets).zip(&rows.store_timestamps).skip(start);
    all.take_while(|&((&hash, &phy), &time)| put_one(target, geometry, &mut header, hash, phy, time).unwrap()).count()
}

fn whole(target: &impl ReadAt) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(target.len()).unwrap()];
    target.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Bytes of a file as each way of putting leaves it, and how many rows it took.
fn by_all_ways(
    before: &[u8],
    geometry: Geometry,
    rows: &Rows,
    start: usize,
    chunk: usize,
) -> Vec<(String, usize, Vec<u8>)> {
    let columns = rows.columns();
    let mut ways = Vec::new();
    let plain = Memory(RwLock::new(before.to_vec()));
    let taken = one_by_one(&plain, geometry, rows, start);
    ways.push(("one by one".to_owned(), taken, whole(&plain)));
    let blocks = Memory(RwLock::new(before.to_vec()));
    let taken = put_batch(&blocks, geometry, &columns, start).unwrap();
    ways.push(("blocks in memory".to_owned(), taken, whole(&blocks)));

    for threads in [1, 2, 3] {
        let memory = Memory(RwLock::new(before.to_vec()));
        let taken = put_bulk(&memory, geometry, &columns, start, threads, chunk).unwrap();
        ways.push((format!("{threads} threads in memory"), taken, whole(&memory)));

        let file = tempfile::tempfile().unwrap();
        reserve(&file, geometry.file_len()).unwrap();
        let mapped = FileMap::new(&file, true).unwrap();
        PlainFile::new(file.try_clone().unwrap()).unwrap().put_bytes(before);
        let taken = put_bulk(&mapped, geometry, &columns, start, threads, chunk).unwrap();
        ways.push((format!("{threads} threads, mapped"), taken, whole(&mapped)));

        let plain = PlainFile::new(file).unwrap();
        plain.put_bytes(before);
        let taken = put_bulk(&plain, geometry, &columns, start, threads, chunk).unwrap();
        ways.push((format!("{threads} threads, by position"), taken, whole(&plain)));
    }
    ways
}

impl PlainFile {
    fn put_bytes(&self, bytes: &[u8]) {
        for (word, at) in bytes.as_chunks::<4>().0.iter().zip((0..).step_by(4)) {
            self.put_words(at, [u32::from_be_bytes(*word)]).unwrap();
        }
    }
}

fn rows() -> impl Strategy<Value = Rows> {
    let hash = prop_oneof![0..40i32, 0..=i32::MAX, Just(i32::MAX)];
    let time = prop_oneof![
        8 => 1_700_000_000_000..1_700_000_100_000i64,
        1 => any::<i64>(),
        1 => Just(0),
        1 => Just(i64::MIN),
    ];
    prop::collection::vec((hash, any::<i64>(), time), 0..260).prop_map(|rows| Rows {
        keys: Given(rows.iter().map(|row| row.0).collect()),
        phy_offsets: rows.iter().map(|row| row.1).collect(),
        store_timestamps: rows.iter().map(|row| row.2).collect(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn blocks_and_threads_leave_the_bytes_of_single_puts(
        slots in prop_oneof![Just(1u32), 2..40u32, Just(1000), Just(5000)],
        max_entries in 1..300u32,
        seed in prop_oneof![Just(0i64), 1_699_999_000_000..1_700_000_000_000i64, Just(-5)],
        first in rows(),
        then in rows(),
        start in 0usize..40,
        chunk in 1usize..70,
        damage in prop::collection::vec((any::<u32>(), prop_oneof![any::<u32>(), 0..300u32]), 0..12),
    ) {
        let geometry = Geometry::new(slots, max_entries).unwrap();
        let mut bytes = vec![0; usize::try_from(geometry.file_len()).unwrap()];
        let header = Header { begin_timestamp: seed, end_timestamp: seed, ..Header::default() };
        bytes[..40].copy_from_slice(&header.to_bytes());
        for (round, rows) in [first, then].iter().enumerate() {
            let start = start.min(rows.keys.0.len());
            let mut ways = by_all_ways(&bytes, geometry, rows, start, chunk).into_iter();
            let (_, taken, expected) = ways.next().unwrap();
            for (way, took, left) in ways {
                prop_assert_eq!(took, taken, "{}", way);
                prop_assert!(left == expected, "{} differs in round {}", way, round);
            }
            bytes = expected;
            // Slots that no writer left: negative, above the count, equal to it, of another chain.
            for &(slot, value) in &damage {
                let at = usize::try_from(geometry.slot(slot % slots)).unwrap();
                bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
            }
        }
    }
}

#[test]
fn a_store_that_fails_ends_the_work_of_all_threads() {
    let geometry = Geometry::new(50, 1000).unwrap();
    let rows = Rows {
        keys: Given((0..900).collect()),
        phy_offsets: (0..900).collect(),
        store_timestamps: vec![1_700_000_000_000; 900],
    };
    // The file ends before its geometry does, and the bytes are full in the middle of a chunk.
    let short = Memory(RwLock::new(vec![0; usize::try_from(geometry.entry(500)).unwrap()]));
    for threads in [1, 2, 4] {
        let failed = put_bulk(&short, geometry, &rows.columns(), 0, threads, 64);
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{threads} threads");
    }
}

/// Keys of which one cannot be hashed.
struct Bad(usize);

impl KeySource for Bad {
    fn len(&self) -> usize {
        1000
    }

    fn hash_block(&self, start: usize, hashes: &mut [i32]) {
        assert!(!(start..start + hashes.len()).contains(&self.0), "row {} has no hash", self.0);
    }
}

#[test]
fn a_thread_that_dies_does_not_leave_the_others_waiting() {
    let geometry = Geometry::new(50, 2000).unwrap();
    let memory = Memory(RwLock::new(vec![0; usize::try_from(geometry.file_len()).unwrap()]));
    let (phy_offsets, store_timestamps) = (vec![0; 1000], vec![0; 1000]);
    for bad in [300, 999] {
        let (keys, phy_offsets, store_timestamps) = (&Bad(bad), &phy_offsets[..], &store_timestamps[..]);
        let columns = PutColumns { keys, phy_offsets, store_timestamps };
        let died =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| put_bulk(&memory, geometry, &columns, 0, 2, 64)));
        assert!(died.is_err());
    }
}

#[test]
fn puts_of_threads_that_failed_are_not_counted() {
    let geometry = Geometry::new(50, 1000).unwrap();
    let rows = Rows {
        keys: Given((0..900).collect()),
        phy_offsets: (1..=900).collect(),
        store_timestamps: vec![1_700_000_000_000; 900],
    };
    for threads in [2, 3] {
        for round in 0..100 {
            let short = Memory(RwLock::new(vec![0; usize::try_from(geometry.entry(500)).unwrap()]));
            put_bulk(&short, geometry, &rows.columns(), 0, threads, 64).unwrap_err();
            let count = read_header(&short).unwrap().next_position();
            let written =
                (1..500).take_while(|&at| Entry::read(&short, geometry, at).unwrap().phy_offset == i64::from(at));
            assert!(count as usize <= 1 + written.count(), "{count} by {threads} threads, round {round}");
        }
    }
}
