//! Puts by several threads, with the same bytes as by one.
//!
//! Puts depend on each other through the chain of a slot: each entry holds the position of the previous one in the same slot.
//! But positions are known beforehand, and slots are independent. So a chunk of rows is divided twice: by rows for entries,
//! and by slots for chains.
//!
//! ```text
//! hash     thread t: its rows       -> one list for each part of the slots, in the order of the rows
//! resolve  thread p: its slots      -> reads the lists (0, p), (1, p), ... in this order; finds each entry's link
//! write    thread t: its rows       -> entries, in the order of the rows
//! count    the last one to finish
//! link     thread p: its slots      -> stores the newest position of each slot
//! ```
//!
//! A thread resolves the lists of its part in the order of the threads, so it sees the puts of a slot in the order of the rows,
//! and every link is the same as with one thread. All threads wait for each other between two steps; the first step of the
//! next chunk needs no wait. The order of publication is that of [`super::put`], with a chunk instead of a put: a killed
//! process leaves at most the entries of one chunk without links.
//!
//! A slot is stored only after the count, so a put finds an earlier one of its own chunk in a table of its thread.
//!
//! The pages of a new file are populated ahead of the puts: each thread regularly brings in one of the following large pages.
//! Otherwise the first store would wait for the system to clear a page, and all other threads for that thread.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::put::{PutColumns, prev_index, read_header};
use super::put_batch::{put_batch, put_first};
use crate::hash_index::format::entry::{Entry, time_diff};
use crate::hash_index::format::geometry::Geometry;
use crate::hash_index::format::header::Header;
use crate::hash_index::key_hash::java_hash::KeySource;
use crate::io::WriteAt;

/// Number of puts that are published together. With 32, as with one thread, two threads take two to eight times as long, because
/// they wait for each other three times per chunk.
pub(crate) const CHUNK: usize = 8192;
/// More threads than any build can use: beyond it, they wait for each other.
const MOST_THREADS: usize = 64;
/// Slots are prefetched this many puts before they are read.
const AHEAD: usize = 64;

/// Bytes that a thread brings into memory at a time: a large page.
const PAGE: u64 = 2 << 20;

/// Puts the rows from `start` on until the file is full, and returns the number of rows put. If a thread cannot be started, the
/// started threads share the work.
///
/// One caller at a time.
pub(crate) fn put_bulk<W: WriteAt, K: KeySource + ?Sized>(
    target: &W,
    geometry: Geometry,
    columns: &PutColumns<'_, K>,
    start: usize,
    threads: usize,
    chunk: usize,
) -> io::Result<usize> {
    let threads = threads.min(MOST_THREADS);
    if threads < 2 || columns.keys.len().saturating_sub(start) <= chunk {
        return put_batch(target, geometry, columns, start);
    }
    let mut header = read_header(target)?;
    let space_left = geometry.max_entries().saturating_sub(header.next_position());
    let taken = (columns.keys.len() - start).min(space_left as usize);
    let mut row = start;
    if header.next_position() == 1 && taken > 0 {
        row += put_first(target, geometry, &mut header, columns, row)?;
    }
    let new_from = if row == start { geometry.entry(header.next_position()) } else { 0 };
    let shared = Shared {
        lists: (0..2 * threads * threads).map(|_| Mutex::default()).collect(),
        threads,
        chunk,
        rows: row..start + taken,
        first: header.next_position(),
        new_from: new_from.max(target.populated()) / PAGE * PAGE,
        begin_timestamp: header.begin_timestamp,
        header: Mutex::new(header),
        empty_slots: AtomicI32::new(0),
        error: Mutex::new(None),
        barrier: Barrier::new(threads),
    };
    let started = std::thread::scope(|scope| {
        for number in 1..threads {
            let shared = &shared;
            let spawned = std::thread::Builder::new()
                .name("logdex-put".into())
                .spawn_scoped(scope, move || shared.work(number, target, geometry, columns));
            if spawned.is_err() {
                // No thread writes before all have arrived at the first barrier.
                shared.barrier.give_up();
                return number;
            }
        }
        shared.work(0, target, geometry, columns);
        threads
    });
    if started < threads {
        let done = row - start;
        return put_bulk(target, geometry, columns, row, started, chunk).map(|taken| done + taken);
    }
    let error = shared.error.into_inner().unwrap_or_else(PoisonError::into_inner);
    error.map_or(Ok(taken), Err)
}

/// A put on its way through the steps.
#[derive(Clone, Copy)]
struct Put {
    slot: u32,
    position: u32,
    prev_index: i32,
}

/// The state that the threads share.
struct Shared {
    /// Puts of the rows of thread t into the slots of part p, at `t * threads + p`. One thread at a time has a list. Twice:
    /// while one thread fills its lists for the next chunk, another may still link those of this one.
    lists: Vec<Mutex<Vec<Put>>>,
    threads: usize,
    chunk: usize,
    rows: Range<usize>,
    /// Position of the first row.
    first: u32,
    /// Offset of the first byte that may not be in memory.
    new_from: u64,
    begin_timestamp: i64,
    header: Mutex<Header>,
    /// Slots of the chunk that were found empty.
    empty_slots: AtomicI32,
    error: Mutex<Option<io::Error>>,
    barrier: Barrier,
}

impl Shared {
    fn work<W: WriteAt, K: KeySource + ?Sized>(
        &self,
        number: usize,
        target: &W,
        geometry: Geometry,
        columns: &PutColumns<'_, K>,
    ) {
        // A thread that dies must not leave the others waiting.
        let _guard = Guard(&self.barrier);
        let mut worker = Worker {
            shared: self,
            number,
            side: 0,
            populated: self.new_from,
            hashes: Vec::new(),
            parts: Vec::new(),
            recent: Recent::new(self.chunk),
        };
        let mut before = self.rows.start;
        for start in self.rows.clone().step_by(self.chunk) {
            let chunk = start..self.rows.end.min(start + self.chunk);
            worker.side ^= 1;
            worker.populate(target, geometry.entry(self.position(chunk.end)));
            worker.hash(geometry, columns.keys, &chunk);
            if !self.barrier.wait(|| self.note(self.write_end(target, columns, before))) {
                return;
            }
            self.note(worker.resolve(target, geometry, &chunk));
            if !self.barrier.wait(|| {}) {
                return;
            }
            self.note(worker.write(target, geometry, columns, &chunk));
            if !self.barrier.wait(|| self.note(self.write_counts(target, chunk.len()))) {
                return;
            }
            self.note(worker.link(target, geometry));
            before = chunk.end;
        }
        self.barrier.wait(|| self.note(self.write_end(target, columns, before)));
    }

    /// The rows of a chunk that a thread has.
    fn share(&self, chunk: &Range<usize>, number: usize) -> Range<usize> {
        let at = |number: usize| chunk.start + chunk.len() * number / self.threads;
        at(number)..at(number + 1)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a file has less than 2^31 entries")]
    fn position(&self, row: usize) -> u32 {
        self.first + (row - self.rows.start) as u32
    }

    fn list(&self, side: usize, thread: usize, part: usize) -> Option<MutexGuard<'_, Vec<Put>>> {
        let at = (side * self.threads + thread) * self.threads + part;
        self.lists.get(at).map(|list| list.lock().unwrap_or_else(PoisonError::into_inner))
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "a chunk is small")]
    fn write_counts(&self, target: &impl WriteAt, puts: usize) -> io::Result<()> {
        let mut header = self.header.lock().unwrap_or_else(PoisonError::into_inner);
        header.hash_slot_count = header.hash_slot_count.wrapping_add(self.empty_slots.swap(0, Ordering::Relaxed));
        header.index_count += puts as i32;
        header.write_counts(target)
    }

    /// Stores the end offset and time of the last put before the row `end`.
    fn write_end<K: ?Sized>(&self, target: &impl WriteAt, columns: &PutColumns<'_, K>, end: usize) -> io::Result<()> {
        let last = end.checked_sub(1).filter(|_| end > self.rows.start);
        let values = last.and_then(|row| Some((columns.phy_offsets.get(row)?, columns.store_timestamps.get(row)?)));
        let Some((&phy_offset, &time)) = values else { return Ok(()) };
        let mut header = self.header.lock().unwrap_or_else(PoisonError::into_inner);
        header.end_phy_offset = phy_offset;
        header.end_timestamp = time;
        header.write_end(target)
    }

    fn note(&self, done: io::Result<()>) {
        if let Err(e) = done {
            self.fail(e);
        }
    }

    /// Ends the work of all threads, and keeps the first error.
    fn fail(&self, error: io::Error) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.barrier.give_up();
    }
}

/// The state of one thread.
struct Worker<'a> {
    shared: &'a Shared,
    number: usize,
    /// Which of the two sets of lists the chunk has.
    side: usize,
    /// Offset of the first byte that no thread has brought into memory.
    populated: u64,
    /// Of its rows: the hash of the key, and the part of the slots that the put goes to.
    hashes: Vec<i32>,
    parts: Vec<u8>,
    recent: Recent,
}

impl Worker<'_> {
    /// Takes part in bringing the file into memory up to `end`: all threads a page, until that is enough.
    fn populate(&mut self, target: &impl WriteAt, end: u64) {
        while self.populated < end {
            target.populate(self.populated + PAGE * self.number as u64, PAGE);
            self.populated += PAGE * self.shared.threads as u64;
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a part is below the number of threads, at most 64")]
    fn hash<K: KeySource + ?Sized>(&mut self, geometry: Geometry, keys: &K, chunk: &Range<usize>) {
        let rows = self.shared.share(chunk, self.number);
        self.hashes.resize(rows.len(), 0);
        self.parts.clear();
        keys.hash_block(rows.start, &mut self.hashes);
        let mut lists: Vec<_> =
            (0..self.shared.threads).filter_map(|part| self.shared.list(self.side, self.number, part)).collect();
        for list in &mut lists {
            list.clear();
        }
        // The part of a slot is slot * threads / S; a division for each put would cost as much as its hash.
        let parts_of_a_slot = ((self.shared.threads as u64) << 32) / u64::from(geometry.hash_slots());
        for (&hash, position) in self.hashes.iter().zip(self.shared.position(rows.start)..) {
            let slot = geometry.slot_of(hash);
            let part = ((u64::from(slot) * parts_of_a_slot) >> 32) as u8;
            if let Some(list) = lists.get_mut(usize::from(part)) {
                list.push(Put { slot, position, prev_index: 0 });
            }
            self.parts.push(part);
        }
    }

    fn resolve(&mut self, target: &impl WriteAt, geometry: Geometry, chunk: &Range<usize>) -> io::Result<()> {
        let mut empty = 0;
        self.recent.begin(self.shared.position(chunk.start));
        for thread in 0..self.shared.threads {
            let Some(mut list) = self.shared.list(self.side, thread, self.number) else { continue };
            for put in list.iter().take(AHEAD) {
                target.prefetch_to_store(geometry.slot(put.slot));
            }
            for at in 0..list.len() {
                if let Some(later) = list.get(at + AHEAD) {
                    target.prefetch_to_store(geometry.slot(later.slot));
                }
                let Some(put) = list.get_mut(at) else { break };
                let head = match self.recent.replace(put.slot, put.position) {
                    Some(earlier) => earlier,
                    None => target.words::<1>(geometry.slot(put.slot)).map(|[head]| head)?,
                };
                put.prev_index = prev_index(head, put.position);
                empty += i32::from(put.prev_index == 0);
            }
        }
        self.shared.empty_slots.fetch_add(empty, Ordering::Relaxed);
        Ok(())
    }

    fn write<K: ?Sized>(
        &self,
        target: &impl WriteAt,
        geometry: Geometry,
        columns: &PutColumns<'_, K>,
        chunk: &Range<usize>,
    ) -> io::Result<()> {
        let rows = self.shared.share(chunk, self.number);
        let lists: Vec<_> =
            (0..self.shared.threads).filter_map(|part| self.shared.list(self.side, self.number, part)).collect();
        let mut links: Vec<_> = lists.iter().map(|list| list.iter()).collect();
        let phy_offsets = columns.phy_offsets.get(rows.clone()).unwrap_or_default();
        let times = columns.store_timestamps.get(rows.clone()).unwrap_or_default();
        let keys = self.hashes.iter().zip(&self.parts);
        let entries = keys.zip(phy_offsets.iter().zip(times)).map(|((&key_hash, &part), (&phy_offset, &time))| {
            let prev_index = links.get_mut(usize::from(part)).and_then(Iterator::next).map_or(0, |put| put.prev_index);
            let time_diff = time_diff(self.shared.begin_timestamp, time);
            Entry { key_hash, phy_offset, time_diff, prev_index }.to_bytes()
        });
        target.put_records(geometry.entry(self.shared.position(rows.start)), rows.len(), entries)
    }

    fn link(&self, target: &impl WriteAt, geometry: Geometry) -> io::Result<()> {
        for thread in 0..self.shared.threads {
            let Some(list) = self.shared.list(self.side, thread, self.number) else { continue };
            list.iter().try_for_each(|put| target.publish(geometry.slot(put.slot), put.position))?;
        }
        Ok(())
    }
}

/// The newest put of the chunk to each slot of a part: a hash table by the low bits of the slot, with linear probing. Items of
/// earlier chunks are recognised by their position.
struct Recent {
    places: Vec<(u32, u32)>,
    first: u32,
}

impl Recent {
    /// Sized for all puts of a chunk in one part, at most half full.
    fn new(chunk: usize) -> Self {
        Self { places: vec![(0, 0); (2 * chunk).next_power_of_two()], first: 0 }
    }

    fn begin(&mut self, first: u32) {
        self.first = first;
    }

    /// Records the put at `position` into `slot`. Returns the previous one of the chunk.
    #[inline]
    fn replace(&mut self, slot: u32, position: u32) -> Option<u32> {
        let mask = self.places.len() - 1;
        let mut at = slot as usize & mask;
        loop {
            let (held, last) = self.places.get_mut(at)?;
            if *last < self.first {
                (*held, *last) = (slot, position);
                return None;
            }
            if *held == slot {
                return Some(std::mem::replace(last, position));
            }
            at = (at + 1) & mask;
        }
    }
}

/// A barrier for many thousand waits a second: threads spin for a while before they yield the processor.
struct Barrier {
    threads: usize,
    arrived: AtomicUsize,
    round: AtomicUsize,
    given_up: AtomicBool,
}

impl Barrier {
    fn new(threads: usize) -> Self {
        Self { threads, arrived: AtomicUsize::new(0), round: AtomicUsize::new(0), given_up: AtomicBool::new(false) }
    }

    /// Waits for all threads. The last thread to arrive runs `last` before the others continue, unless the work has failed.
    /// Returns false if it has.
    fn wait(&self, last: impl FnOnce()) -> bool {
        const LOOKS: u32 = 2000;
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            // A thread records its failure before it arrives. Failed work must not be published.
            if !self.given_up.load(Ordering::Acquire) {
                last();
            }
            self.arrived.store(0, Ordering::Relaxed);
            self.round.store(round + 1, Ordering::Release);
        } else {
            let mut looks = 0;
            while self.round.load(Ordering::Acquire) == round && !self.given_up.load(Ordering::Acquire) {
                looks += 1;
                if looks < LOOKS { std::hint::spin_loop() } else { std::thread::yield_now() }
            }
        }
        !self.given_up.load(Ordering::Acquire)
    }

    fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }
}

/// Ends the work of all when a thread dies.
struct Guard<'a>(&'a Barrier);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.give_up();
        }
    }
}
