//! Puts in blocks of 32, so that the processor never waits for one of them.
//!
//! The technique. A put by itself is one wait for memory: its slot lies anywhere in 20 MB. But the slot follows from the
//! key alone, so it can be asked for long before it is needed. A batch goes through two stages, one block apart:
//!
//! ```text
//! block      0          1          2          3
//! stage one  hash, ask  hash, ask  hash, ask  hash, ask
//! stage two             write 0    write 1    write 2
//! ```
//!
//! While the keys of the next block are hashed and the current one is written, memory fetches 32 lines at once. More
//! than 32 would not fit into the processor's queue of fetches, and the first would wait for the last.
//!
//! A block is published in the order of [`super::put`], each step for all of its puts: the entries, which lie one after
//! the other and are copied in one piece; the counts; the slots; the end. The slots are stored last, so a put must find
//! an earlier one of its own block by other means: [`Recent`].

use std::io;

use super::entry::{Entry, time_diff};
use super::header::Header;
use super::key_hash::KeySource;
use super::layout::Geometry;
use super::put::{PutColumns, prev_index, put_one, read_header};
use crate::source::WriteAt;

/// Puts published together.
pub(crate) const BLOCK: usize = 32;

/// Puts the rows from `start` on until the file is full; returns how many were taken.
///
/// One caller at a time.
pub(crate) fn put_batch<W: WriteAt, K: KeySource + ?Sized>(
    target: &W,
    geometry: Geometry,
    columns: &PutColumns<'_, K>,
    start: usize,
) -> io::Result<usize> {
    let mut header = read_header(target)?;
    let room = geometry.max_entries().saturating_sub(header.next_position());
    let taken = columns.keys.len().saturating_sub(start).min(room as usize);
    let mut row = start;
    let end = start + taken;
    if header.next_position() == 1 && row < end {
        row += put_first(target, geometry, &mut header, columns, row)?;
    }
    let (mut one, mut other, mut recent) = (Block::new(), Block::new(), Recent::new());
    let (mut current, mut next) = (&mut one, &mut other);
    current.prepare(target, geometry, columns.keys, row, end);
    while current.len > 0 {
        next.prepare(target, geometry, columns.keys, row + current.len, end);
        let rows = row..row + current.len;
        let phy_offsets = columns.phy_offsets.get(rows.clone()).unwrap_or_default();
        let store_timestamps = columns.store_timestamps.get(rows).unwrap_or_default();
        current.write(target, geometry, &mut header, &mut recent, phy_offsets, store_timestamps)?;
        row += current.len;
        (current, next) = (next, current);
    }
    Ok(taken)
}

/// The first put of a file moves the begin that all others count from, so it goes by itself.
pub(super) fn put_first<K: KeySource + ?Sized>(
    target: &impl WriteAt,
    geometry: Geometry,
    header: &mut Header,
    columns: &PutColumns<'_, K>,
    row: usize,
) -> io::Result<usize> {
    let mut hash = [0];
    columns.keys.hash_block(row, &mut hash);
    let (&[hash], Some(&phy_offset), Some(&time)) =
        (&hash, columns.phy_offsets.get(row), columns.store_timestamps.get(row))
    else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    put_one(target, geometry, header, hash, phy_offset, time).map(usize::from)
}

/// A block of keys whose slots have been asked for.
struct Block {
    hashes: [i32; BLOCK],
    slots: [u32; BLOCK],
    len: usize,
}

impl Block {
    fn new() -> Self {
        Self { hashes: [0; BLOCK], slots: [0; BLOCK], len: 0 }
    }

    /// Stage one: hashes the keys of the rows from `start` on, at most to `end`, and asks for their slots.
    #[inline]
    fn prepare<W: WriteAt, K: KeySource + ?Sized>(
        &mut self,
        target: &W,
        geometry: Geometry,
        keys: &K,
        start: usize,
        end: usize,
    ) {
        self.len = (end - start).min(BLOCK);
        if self.len == 0 {
            return;
        }
        let (hashes, _) = self.hashes.split_at_mut(self.len);
        keys.hash_block(start, hashes);
        for (slot, &hash) in self.slots.iter_mut().zip(hashes.iter()) {
            *slot = geometry.slot_of(hash);
            target.prefetch_to_store(geometry.slot(*slot));
        }
    }

    /// Stage two: writes the block and publishes it.
    #[inline]
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "a block has 32 puts")]
    fn write<W: WriteAt>(
        &self,
        target: &W,
        geometry: Geometry,
        header: &mut Header,
        recent: &mut Recent,
        phy_offsets: &[i64],
        store_timestamps: &[i64],
    ) -> io::Result<()> {
        let table = geometry.slot(0);
        let first = header.next_position();
        let (slots, _) = self.slots.split_at(self.len);
        let mut heads = [0; BLOCK];
        target.gather(table, slots, &mut heads)?;
        let mut positions = [0; BLOCK];
        let mut links = 0;
        let begin_timestamp = header.begin_timestamp;
        let keys = self.hashes.iter().zip(slots).zip(heads);
        let rows = phy_offsets.iter().zip(store_timestamps);
        let places = positions.iter_mut().zip(first..);
        let entries = keys.zip(rows).zip(places).map(|((((&key_hash, &slot), head), (&phy_offset, &time)), (to, position))| {
            let prev_index = prev_index(recent.replace(first, slots, slot, position).unwrap_or(head), position);
            links += i32::from(prev_index != 0);
            *to = position;
            Entry { key_hash, phy_offset, time_diff: time_diff(begin_timestamp, time), prev_index }.to_bytes()
        });
        target.put_records(geometry.entry(first), self.len, entries)?;
        header.hash_slot_count = header.hash_slot_count.wrapping_add(self.len as i32 - links);
        header.index_count += self.len as i32;
        header.write_counts(target)?;
        target.scatter(table, slots, &positions)?;
        if let (Some(&phy_offset), Some(&time)) = (phy_offsets.last(), store_timestamps.last()) {
            header.end_phy_offset = phy_offset;
            header.end_timestamp = time;
        }
        header.write_end(target)
    }
}

/// Remembers which put went last into a slot, as far as the block asks: slots share 1,024 places, and what an earlier
/// block left is recognised by its position. Puts of one block that share a place form a chain, the newest first.
struct Recent {
    /// Position of the last put to each place.
    last: [u32; Self::PLACES],
    /// Position of the put before in the same place, for each put of the block.
    before: [u32; BLOCK],
}

impl Recent {
    const PLACES: usize = 1024;

    fn new() -> Self {
        Self { last: [0; Self::PLACES], before: [0; BLOCK] }
    }

    /// Notes the put at `position` into `slot`; gives the one before it into the same slot, if the block has one.
    #[inline]
    fn replace(&mut self, first: u32, slots: &[u32], slot: u32, position: u32) -> Option<u32> {
        let last = self.last.get_mut(slot as usize % Self::PLACES)?;
        let earlier = std::mem::replace(last, position);
        if let Some(before) = self.before.get_mut((position - first) as usize) {
            *before = earlier;
        }
        if earlier < first { None } else { self.find(first, slots, slot, earlier) }
    }

    #[cold]
    fn find(&self, first: u32, slots: &[u32], slot: u32, newest: u32) -> Option<u32> {
        let mut at = newest;
        while at >= first {
            let number = (at - first) as usize;
            if *slots.get(number)? == slot {
                return Some(at);
            }
            at = *self.before.get(number)?;
        }
        None
    }
}
