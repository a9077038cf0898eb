//! The possible losses of each kind of crash. The stores of a writer are recorded; every prefix of them is a possible file after
//! the death of the process, and every mixture of old and new pages a possible file after the loss of power.

#![expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "small numbers")]

use std::io;
use std::sync::{Mutex, RwLock};

use proptest::prelude::*;

use super::relink::{Overlay, apply, relink, repair_tail};
use super::verify::verify;
use std::path::Path;

use crate::hash_index::format::entry::{Entry, time_diff};
use crate::hash_index::format::geometry::Geometry;
use crate::hash_index::format::header::Header;
use crate::hash_index::key_hash::java_hash::key_hash;
use crate::hash_index::read::select::{Times, View, select};
use crate::hash_index::write::bulk::put_bulk;
use crate::hash_index::write::put::PutColumns;
use crate::hash_index::write::put_batch::put_batch;
use crate::io::{ReadAt, WriteAt};
use crate::time_range::TimeRange;

const T0: i64 = 1_700_000_000_000;

/// Bytes in memory that remember every store, a word or a long at a time.
struct Recorder {
    bytes: RwLock<Vec<u8>>,
    stores: Mutex<Vec<(usize, Vec<u8>)>>,
}

impl Recorder {
    fn new(bytes: Vec<u8>) -> Self {
        Self { bytes: RwLock::new(bytes), stores: Mutex::new(Vec::new()) }
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        let mut all = self.bytes.write().unwrap();
        all.get_mut(at..at + bytes.len()).ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(bytes);
        self.stores.lock().unwrap().push((at, bytes.to_vec()));
        Ok(())
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.read().unwrap().clone()
    }
}

impl ReadAt for Recorder {
    fn len(&self) -> u64 {
        self.bytes.read().unwrap().len() as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.bytes.read().unwrap().read_exact_at(buf, offset)
    }

    fn words<const N: usize>(&self, offset: u64) -> io::Result<[u32; N]> {
        self.bytes.read().unwrap().words(offset)
    }
}

impl WriteAt for Recorder {
    fn put_words<const N: usize>(&self, offset: u64, words: [u32; N]) -> io::Result<()> {
        (offset..).step_by(4).zip(words).try_for_each(|(at, word)| self.store(at, &word.to_be_bytes()))
    }

    fn put_long(&self, offset: u64, value: u64) -> io::Result<()> {
        self.store(offset, &value.to_be_bytes())
    }

    fn publish(&self, offset: u64, word: u32) -> io::Result<()> {
        self.store(offset, &word.to_be_bytes())
    }

    fn flush(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
}

fn empty(geometry: Geometry) -> Vec<u8> {
    vec![0; usize::try_from(geometry.file_len()).unwrap()]
}

/// Puts `i`: several puts share a key, a slot, an offset.
fn key(i: usize) -> String {
    format!("T#k{}", i * i % 23)
}

fn phy(i: usize) -> i64 {
    100 * (i as i64 / 2)
}

fn stored(i: usize) -> i64 {
    T0 + 700 * i as i64
}

fn put(target: &Recorder, geometry: Geometry, from: usize, to: usize) -> usize {
    let keys: Vec<String> = (from..to).map(key).collect();
    let offsets: Vec<i64> = (from..to).map(phy).collect();
    let times: Vec<i64> = (from..to).map(stored).collect();
    let columns = PutColumns { keys: &keys[..], phy_offsets: &offsets, store_timestamps: &times };
    put_batch(target, geometry, &columns, 0).unwrap()
}

/// The broker's own order of stores: entry, slot, begin, slot count, count, end.
fn put_as_broker(target: &Recorder, geometry: Geometry, i: usize) {
    let mut header = Header::read(target).unwrap();
    let position = header.next_position();
    let key_hash = key_hash(&key(i));
    let slot = geometry.slot(geometry.slot_of(key_hash));
    let [head] = target.words::<1>(slot).unwrap();
    let prev_index = if head <= position { head as i32 } else { 0 };
    let entry =
        Entry { key_hash, phy_offset: phy(i), time_diff: time_diff(header.begin_timestamp, stored(i)), prev_index };
    entry.write(target, geometry, position).unwrap();
    target.publish(slot, position).unwrap();
    if position == 1 {
        header.begin_phy_offset = phy(i);
        header.begin_timestamp = stored(i);
        header.write_begin(target).unwrap();
    }
    header.hash_slot_count += i32::from(prev_index == 0);
    header.index_count = position as i32 + 1;
    header.write_counts(target).unwrap();
    header.end_phy_offset = phy(i);
    header.end_timestamp = stored(i);
    header.write_end(target).unwrap();
}

fn hits(source: &impl ReadAt, geometry: Geometry, key: &str) -> Vec<i64> {
    let view = View::new(source, geometry, geometry.file_len()).unwrap();
    let mut out = Vec::new();
    select(&view, Times::unknown(), key_hash(key), usize::MAX, TimeRange::ALL, &mut out).unwrap();
    out
}

/// The entries of puts `0..n` for a key, newest first.
fn truth(n: usize, wanted: &str) -> Vec<i64> {
    (0..n).rev().filter(|&i| key(i) == wanted).map(phy).collect()
}

/// Every file that a death between two stores leaves.
fn prefixes(before: &[u8], stores: &[(usize, Vec<u8>)]) -> impl Iterator<Item = Vec<u8>> {
    let mut bytes = before.to_vec();
    std::iter::once(bytes.clone()).chain(stores.iter().map(move |(at, store)| {
        bytes[*at..at + store.len()].copy_from_slice(store);
        bytes.clone()
    }))
}

#[test]
fn process_death_costs_at_most_the_last_block() {
    let geometry = Geometry::new(7, 100).unwrap();
    let mut cuts = 0;
    for seed in [0, T0 - 60_000] {
        let file = Recorder::new(empty(geometry));
        if seed > 0 {
            let header = Header { begin_timestamp: seed, end_timestamp: seed, ..Header::default() };
            file.bytes.write().unwrap()[..40].copy_from_slice(&header.to_bytes());
        }
        let (mut done, mut before) = (0, file.bytes());
        for block in [1, 5, 32, 3, 32, 40] {
            file.stores.lock().unwrap().clear();
            let put_now = put(&file, geometry, done, done + block);
            // A put of more than 32 is two blocks; the first of them is whole once the second begins.
            let stores = std::mem::take(&mut *file.stores.lock().unwrap());
            for bytes in prefixes(&before, &stores) {
                check_after_death(bytes, geometry, done, done + put_now);
                cuts += 1;
            }
            done += put_now;
            before = file.bytes();
        }
        assert_eq!(done, 99, "the file is full");
        check_after_death(before, geometry, 99, 99);
    }
    assert!(cuts > 1000, "{cuts}");
}

#[test]
fn process_death_in_a_bulk_build_costs_at_most_a_chunk() {
    let geometry = Geometry::new(7, 100).unwrap();
    for threads in [2, 3] {
        let file = Recorder::new(empty(geometry));
        let before = file.bytes();
        let keys: Vec<String> = (0..120).map(key).collect();
        let offsets: Vec<i64> = (0..120).map(phy).collect();
        let times: Vec<i64> = (0..120).map(stored).collect();
        let columns = PutColumns { keys: &keys[..], phy_offsets: &offsets, store_timestamps: &times };
        assert_eq!(put_bulk(&file, geometry, &columns, 0, threads, 16).unwrap(), 99, "the file is full");
        let stores = std::mem::take(&mut *file.stores.lock().unwrap());
        for bytes in prefixes(&before, &stores) {
            check_after_death(bytes, geometry, 0, 99);
        }
        check_after_death(file.bytes(), geometry, 99, 99);
    }
}

/// `whole`: puts of completed calls; `begun`: with those of the call that was cut.
fn check_after_death(bytes: Vec<u8>, geometry: Geometry, whole: usize, begun: usize) {
    for k in 0..23 {
        let key = format!("T#k{k}");
        let found = hits(&bytes, geometry, &key);
        let least = truth(whole, &key);
        assert!(found.ends_with(&least), "reader after a death: {key} {found:?} misses some of {least:?}");
        assert!(truth(begun, &key).ends_with(&found), "reader after a death: {key} {found:?} invents");
    }
    let repaired = Recorder::new(bytes);
    repair_tail(&repaired, geometry).unwrap();
    let counted = Header::read(&repaired).unwrap().next_position() as usize - 1;
    assert!((whole..=begun).contains(&counted));
    let report = verify(Path::new("f"), &repaired, geometry, geometry.file_len()).unwrap();
    assert_eq!(report.findings, [], "after repair {whole}..{begun}");
    for k in 0..23 {
        let key = format!("T#k{k}");
        assert_eq!(hits(&repaired, geometry, &key), truth(counted, &key));
    }
    // The writer goes on where the file ends, and nothing that was there is hidden.
    put(&repaired, geometry, counted, counted + 20);
    let counted = Header::read(&repaired).unwrap().next_position() as usize - 1;
    for k in 0..23 {
        let key = format!("T#k{k}");
        assert_eq!(hits(&repaired, geometry, &key), truth(counted, &key));
    }
    assert_eq!(verify(Path::new("f"), &repaired, geometry, geometry.file_len()).unwrap().findings, []);
}

#[test]
fn a_file_in_order_is_not_touched_by_mending() {
    let geometry = Geometry::new(7, 100).unwrap();
    for puts in [0, 1, 2, 31, 32, 33, 99] {
        let file = Recorder::new(empty(geometry));
        put(&file, geometry, 0, puts);
        file.stores.lock().unwrap().clear();
        repair_tail(&file, geometry).unwrap();
        assert_eq!(*file.stores.lock().unwrap(), [], "{puts} puts");
        let found = relink(&file, geometry, 100, false).unwrap();
        apply(&file, geometry, &found).unwrap();
        assert_eq!(*file.stores.lock().unwrap(), [], "{puts} puts");
    }
}

#[test]
fn death_of_a_broker_between_two_stores_hides_nothing() {
    let geometry = Geometry::new(7, 60).unwrap();
    let file = Recorder::new(empty(geometry));
    for i in 0..50 {
        let before = file.bytes();
        file.stores.lock().unwrap().clear();
        put_as_broker(&file, geometry, i);
        let stores = std::mem::take(&mut *file.stores.lock().unwrap());
        for bytes in prefixes(&before, &stores) {
            check_after_death(bytes, geometry, i, i + 1);
        }
    }
}

/// One page from each of the two images.
fn mixture(old: &[u8], new: &[u8], from_new: &[bool]) -> Vec<u8> {
    let pages = old.chunks(4096).zip(new.chunks(4096)).zip(from_new.iter().cycle());
    pages.flat_map(|((old, new), &is_new)| if is_new { new } else { old }).copied().collect()
}

fn entries(source: &impl ReadAt, geometry: Geometry) -> Vec<Entry> {
    let count = Header::read(source).unwrap().next_position();
    (1..count).map(|position| Entry::read(source, geometry, position).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn power_loss_costs_nothing_that_was_flushed(
        flushed in 0usize..1400,
        more in 1usize..1400,
        from_new in prop::collection::vec(any::<bool>(), 9),
    ) {
        let geometry = Geometry::new(501, 1500).unwrap();
        let file = Recorder::new(empty(geometry));
        put(&file, geometry, 0, flushed);
        let old = file.bytes();
        put(&file, geometry, flushed, flushed + more);
        let new = file.bytes();
        let truth_of_all = entries(&file, geometry);

        let image = Recorder::new(mixture(&old, &new, &from_new));
        let overlay = Overlay::new(image.bytes(), geometry, relink(&image, geometry, 1500, true).unwrap());
        let found = relink(&image, geometry, 1500, false).unwrap();
        apply(&image, geometry, &found).unwrap();
        let kept = entries(&image, geometry);

        prop_assert!(kept.len() >= flushed, "{} of {flushed} flushed entries", kept.len());
        for (at, (kept, truth)) in kept.iter().zip(&truth_of_all).enumerate() {
            // An entry across two pages can lose its time with the second of them, and nothing shows it; its key and its
            // offset are right.
            let across = geometry.entry(at as u32 + 1) % 4096 > 4096 - 20;
            let but_for_the_time = Entry { time_diff: truth.time_diff, ..*kept };
            prop_assert!(
                kept == truth || (across && at >= flushed && but_for_the_time == *truth),
                "entry {}: {kept:?} is not {truth:?}",
                at + 1
            );
        }
        let report = verify(Path::new("f"), &image, geometry, geometry.file_len()).unwrap();
        prop_assert_eq!(&report.findings, &[]);
        for k in 0..23 {
            let key = format!("T#k{k}");
            let found = hits(&image, geometry, &key);
            prop_assert!(found.ends_with(&truth(flushed, &key)));
            let seen = hits(&overlay, geometry, &key);
            prop_assert!(seen.ends_with(&found), "a reader sees what a writer keeps");
        }
        // Opening again finds the same.
        let again = relink(&image, geometry, 1500, false).unwrap();
        prop_assert_eq!(again.header, Header::read(&image).unwrap());
        prop_assert!(again.links.is_empty());
    }
}
