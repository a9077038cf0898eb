//! The traffic limit: the memory accesses of an operation, their addresses known beforehand, without hashing, compares
//! or answers. No implementation of the format on this machine can be faster; a figure reads as a share of it.
//!
//! - A put reads its key, offset and time in order, reads and writes one slot (asked for 128 puts ahead) and writes one
//!   entry of 20 bytes in order.
//! - A lookup reads its slot and the entries of its chain, 64 accesses in flight.
#![allow(unsafe_code)]
#![expect(clippy::cast_ptr_alignment, reason = "the accesses are unaligned ones")]

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::path::Path;

use logdex::hash_index::{Geometry, KeySource, TextKeys};
use memmap2::{Mmap, MmapMut};

use super::keys::Columns;

const SLOTS_AHEAD: usize = 128;
const LANES: usize = 64;

/// Prefetches the cache line at `at`.
#[inline]
fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing and does not fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast::<i8>());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// A mapped file with the size of an index file; with `prepared` its pages exist already.
pub(crate) fn create(path: &Path, geometry: Geometry, prepared: bool) -> MmapMut {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).expect("a directory for files");
    logdex::io::disk::reserve(&file, geometry.file_len()).expect("space on the disk");
    // SAFETY: only this process uses the file, until it is removed.
    let map = unsafe { MmapMut::map_mut(&file) }.expect("a file can be mapped");
    #[cfg(target_os = "linux")]
    if prepared {
        // Some kernels do not support these calls; the first put then touches the pages.
        let _ = map.advise(memmap2::Advice::HugePage);
        let _ = map.advise(memmap2::Advice::PopulateWrite);
    }
    map
}

/// The slot of each key.
pub(crate) fn slots(columns: &Columns, geometry: Geometry) -> Vec<u32> {
    let mut hashes = vec![0; columns.len()];
    columns.keys.all().hash_block(0, &mut hashes);
    hashes.into_iter().map(|hash| geometry.slot_of(hash)).collect()
}

/// The accesses of a put of all columns into `map`.
pub(crate) fn put(map: &mut MmapMut, geometry: Geometry, columns: &Columns, slots: &[u32]) {
    let (phy_offsets, store_timestamps) = columns.numbers();
    let width = columns.keys.text().len() / columns.len();
    assert!(map.len() as u64 >= geometry.file_len() && columns.len() < geometry.max_entries() as usize);
    assert!(slots.iter().all(|&slot| slot < geometry.hash_slots()) && slots.len() == columns.len());
    let first_entry = usize::try_from(geometry.entry(1)).expect("64 bits");
    let first_slot = usize::try_from(geometry.slot(0)).expect("64 bits");
    // SAFETY: the asserts above hold slots and entries inside the map.
    let (table, mut entry) = unsafe { (map.as_mut_ptr().add(first_slot), map.as_mut_ptr().add(first_entry)) };
    let mut read = 0;
    let numbers = phy_offsets.iter().zip(store_timestamps);
    let texts = columns.keys.text().chunks_exact(width);
    let ahead = slots.iter().skip(SLOTS_AHEAD).chain(slots.iter().rev()).copied();
    for ((((&slot, ahead), (&phy_offset, &time)), text), row) in
        slots.iter().zip(ahead).zip(numbers).zip(texts).zip(0_u32..)
    {
        read ^= sum(text);
        // SAFETY: `slot` and `ahead` are below the number of slots, and there are fewer rows than entries; entries and
        // slots are not aligned for all their parts, so the accesses are unaligned ones.
        unsafe {
            prefetch(table.add(4 * ahead as usize));
            let slot = table.add(4 * slot as usize).cast::<u32>();
            let before = slot.read_unaligned();
            entry.cast::<u64>().write_unaligned(u64::from(row));
            entry.add(8).cast::<i64>().write_unaligned(phy_offset ^ time);
            entry.add(16).cast::<u32>().write_unaligned(before);
            slot.write_unaligned(row);
            entry = entry.add(20);
        }
    }
    black_box(read);
}

/// Reads a text only.
#[inline]
fn sum(text: &[u8]) -> u64 {
    let (words, rest) = text.as_chunks::<8>();
    let read = words.iter().fold(0, |sum, word| sum ^ u64::from_ne_bytes(*word));
    rest.iter().fold(read, |sum, &byte| sum ^ u64::from(byte))
}

/// Offsets in a file that lookups read, in an order with `LANES` lookups at a time.
pub(crate) struct Accesses {
    map: Mmap,
    offsets: Vec<u32>,
    /// Number of lookups.
    pub(crate) lookups: usize,
}

impl Accesses {
    /// Walks the chains of the keys.
    pub(crate) fn of(path: &Path, geometry: Geometry, keys: TextKeys<'_>) -> Self {
        let file = File::open(path).expect("a file of ours");
        // SAFETY: no process changes the file while it is searched.
        let map = unsafe { Mmap::map(&file) }.expect("a file can be mapped");
        let mut hashes = vec![0; keys.len()];
        keys.hash_block(0, &mut hashes);
        let mut offsets = Vec::with_capacity(6 * keys.len());
        for lanes in hashes.chunks(LANES) {
            let chains: Vec<Vec<u32>> = lanes.iter().map(|&hash| chain(&map, geometry, hash)).collect();
            let longest = chains.iter().map(Vec::len).max().unwrap_or(0);
            for step in 0..longest {
                offsets.extend(chains.iter().filter_map(|chain| chain.get(step)));
            }
        }
        Self { map, offsets, lookups: keys.len() }
    }

    /// Number of accesses of a lookup.
    #[expect(clippy::cast_precision_loss, reason = "a mean")]
    pub(crate) fn per_lookup(&self) -> f64 {
        self.offsets.len() as f64 / self.lookups as f64
    }

    /// Makes the accesses, divided among `threads`.
    pub(crate) fn run(&self, threads: usize) {
        std::thread::scope(|scope| {
            for share in self.offsets.chunks(self.offsets.len().div_ceil(threads)) {
                scope.spawn(move || self.read(share));
            }
        });
    }

    fn read(&self, offsets: &[u32]) {
        let start = self.map.as_ptr();
        let mut read = 0;
        let ahead = offsets.iter().skip(LANES).chain(offsets.iter().rev());
        for (&offset, &ahead) in offsets.iter().zip(ahead) {
            // SAFETY: `chain` returns only offsets with the bytes of an entry after them inside the map.
            unsafe {
                let next = start.add(ahead as usize);
                prefetch(next);
                prefetch(next.add(19)); // every fourth entry is in two cache lines
                let here = start.add(offset as usize);
                read ^= here.cast::<u32>().read_unaligned() ^ here.add(16).cast::<u32>().read_unaligned();
            }
        }
        black_box(read);
    }
}

/// Walks the chains of the keys one after another; returns the number of accesses.
pub(crate) fn read_serially(path: &Path, geometry: Geometry, keys: TextKeys<'_>) -> usize {
    let file = File::open(path).expect("a file of ours");
    // SAFETY: no process changes the file while it is searched.
    let map = unsafe { Mmap::map(&file) }.expect("a file can be mapped");
    #[cfg(unix)]
    map.advise(memmap2::Advice::Random).expect("every system knows this advice");
    let mut hashes = vec![0; keys.len()];
    keys.hash_block(0, &mut hashes);
    hashes.into_iter().map(|hash| chain(&map, geometry, hash).len()).sum()
}

/// Offsets of the slot of a hash and of the entries in its chain.
fn chain(map: &Mmap, geometry: Geometry, hash: i32) -> Vec<u32> {
    let word = |offset: u64| {
        let at = usize::try_from(offset).expect("64 bits");
        let bytes = map.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
        u32::from_be_bytes(*bytes.expect("inside the file"))
    };
    let slot = geometry.slot(geometry.slot_of(hash));
    let mut offsets = vec![slot];
    let mut position = word(slot);
    while position > 0 && position < geometry.max_entries() && offsets.len() < 1_000 {
        offsets.push(geometry.entry(position));
        position = word(geometry.entry(position) + 16);
    }
    offsets.into_iter().map(|offset| u32::try_from(offset).expect("files are below 2^31 bytes")).collect()
}
