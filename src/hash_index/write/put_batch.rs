//! Puts in blocks of 32, so that the processor never waits for one of them.
//!
//! A single put waits for memory once: its slot can be anywhere in 20 MB. But the slot depends on the key alone, so it can be
//! prefetched long before it is needed. A batch goes through two stages, one block apart:
//!
//! ```text
//! block      0               1               2               3
//! stage one  hash, prefetch  hash, prefetch  hash, prefetch  hash, prefetch
//! stage two                  write 0         write 1         write 2
//! ```
//!
//! While the keys of the next block are hashed and the current one is written, memory fetches 32 cache lines at once. More
//! would not fit into the processor's queue of fetches, and the first would wait for the last.
//!
//! A block is published in the order of [`super::put`], each step for all of its puts: the contiguous entries in one
//! copy; the counts; the slots; the end. The slots are stored last, so [`Recent`] detects cheaply that the block may hold an
//! earlier put to the same slot.

use std::io;
use std::ops::Range;

use super::put::{PutColumns, prev_index, put_one, read_header};
use crate::hash_index::format::entry::{Entry, time_diff};
use crate::hash_index::format::geometry::{ENTRY_LEN, Geometry};
use crate::hash_index::format::header::Header;
use crate::hash_index::key_hash::java_hash::KeySource;
use crate::io::WriteAt;

/// Puts published together.
pub(crate) const BLOCK: usize = 32;

/// Bytes that come from memory together.
const LINE: u64 = 64;
const ENTRIES_LINES: u64 = (BLOCK as u64 * ENTRY_LEN).div_ceil(LINE);

/// Puts the rows from `start` on until the file is full; returns how many were taken.
///
/// One caller at a time.
#[expect(clippy::cast_possible_truncation, reason = "a block has 32 puts")]
pub(crate) fn put_batch<W: WriteAt, K: KeySource + ?Sized>(
    target: &W,
    geometry: Geometry,
    columns: &PutColumns<'_, K>,
    start: usize,
) -> io::Result<usize> {
    let mut header = read_header(target)?;
    let space_left = geometry.max_entries().saturating_sub(header.next_position());
    let taken = columns.keys.len().saturating_sub(start).min(space_left as usize);
    let mut row = start;
    let end = start + taken;
    if header.next_position() == 1 && row < end {
        row += put_first(target, geometry, &mut header, columns, row)?;
    }
    let (mut one, mut other, mut recent) = (Block::new(), Block::new(), Recent::new());
    let (mut current, mut next) = (&mut one, &mut other);
    current.prepare(target, geometry, columns, row..end, header.next_position());
    while current.len > 0 {
        row += current.len;
        next.prepare(target, geometry, columns, row..end, current.first + current.len as u32);
        current.write(target, geometry, &mut header, &mut recent)?;
        (current, next) = (next, current);
    }
    Ok(taken)
}

/// The first put of a file moves the start that all others count from, so it goes by itself.
pub(crate) fn put_first<K: KeySource + ?Sized>(
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

/// Up to 32 puts whose slots were prefetched.
struct Block {
    hashes: [i32; BLOCK],
    slots: [u32; BLOCK],
    phy_offsets: [i64; BLOCK],
    store_timestamps: [i64; BLOCK],
    len: usize,
    /// Position of the first of them.
    first: u32,
}

impl Block {
    fn new() -> Self {
        Self { hashes: [0; _], slots: [0; _], phy_offsets: [0; _], store_timestamps: [0; _], len: 0, first: 0 }
    }

    /// Stage one: takes the first of the rows, at most 32, hashes their keys, and prefetches their slots.
    #[inline]
    fn prepare<W: WriteAt, K: KeySource + ?Sized>(
        &mut self,
        target: &W,
        geometry: Geometry,
        columns: &PutColumns<'_, K>,
        rows: Range<usize>,
        first: u32,
    ) {
        self.first = first;
        self.len = rows.len().min(BLOCK);
        if self.len == 0 {
            return;
        }
        let (hashes, _) = self.hashes.split_at_mut(self.len);
        columns.keys.hash_block(rows.start, hashes);
        for (slot, &hash) in self.slots.iter_mut().zip(hashes.iter()) {
            *slot = geometry.slot_of(hash);
            target.prefetch_to_store(geometry.slot(*slot));
        }
        for line in 0..ENTRIES_LINES {
            target.prefetch_to_store(geometry.entry(first) + LINE * line);
        }
        copy(&mut self.phy_offsets, columns.phy_offsets, rows.start);
        copy(&mut self.store_timestamps, columns.store_timestamps, rows.start);
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
    ) -> io::Result<()> {
        let table = geometry.slot(0);
        let first = self.first;
        let (slots, _) = self.slots.split_at(self.len);
        let mut heads = [0; BLOCK];
        target.gather(table, slots, &mut heads)?;
        let begin_timestamp = header.begin_timestamp;
        let mut links = 0;
        let keys = self.hashes.iter().zip(&self.slots).zip(&heads);
        let rows = self.phy_offsets.iter().zip(&self.store_timestamps);
        let entries =
            keys.zip(rows).zip(first..).map(|((((&key_hash, &slot), &head), (&phy_offset, &time)), position)| {
                let head = if recent.replace(slot, position) < first {
                    head
                } else {
                    find_in_block(&self.slots, slot, first, position).unwrap_or(head)
                };
                let prev_index = prev_index(head, position);
                links += i32::from(prev_index != 0);
                Entry { key_hash, phy_offset, time_diff: time_diff(begin_timestamp, time), prev_index }.to_bytes()
            });
        target.put_records(geometry.entry(first), self.len, entries)?;
        header.hash_slot_count = header.hash_slot_count.wrapping_add(self.len as i32 - links);
        header.index_count += self.len as i32;
        header.write_counts(target)?;
        target.scatter(table, slots, first..)?;
        if let (Some(&phy_offset), Some(&time)) =
            (self.phy_offsets.get(self.len - 1), self.store_timestamps.get(self.len - 1))
        {
            header.end_phy_offset = phy_offset;
            header.end_timestamp = time;
        }
        header.write_end(target)
    }
}

/// Copies a block of a column; a whole one by a few wide loads.
#[inline]
fn copy(to: &mut [i64; BLOCK], column: &[i64], start: usize) {
    let from = column.get(start..).unwrap_or_default();
    if let Some(block) = from.first_chunk::<BLOCK>() {
        *to = *block;
    } else {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    }
}

/// Remembers which put went last into a slot, for the puts of a block: slots share 1,024 places.
struct Recent {
    last: [u32; Self::PLACES],
}

impl Recent {
    const PLACES: usize = 1024;

    fn new() -> Self {
        Self { last: [0; Self::PLACES] }
    }

    /// Records a put into `slot`. Returns the position of the last put to the same place: if that is in the same block, it may
    /// have been to the same slot.
    #[inline]
    fn replace(&mut self, slot: u32, position: u32) -> u32 {
        self.last.get_mut(slot as usize % Self::PLACES).map_or(0, |last| std::mem::replace(last, position))
    }
}

/// The position of the last put of a block into `slot` before the one at `position`.
#[cold]
fn find_in_block(slots: &[u32; BLOCK], slot: u32, first: u32, position: u32) -> Option<u32> {
    let (before, _) = slots.split_at_checked((position - first) as usize)?;
    before.iter().rposition(|&earlier| earlier == slot).and_then(|number| u32::try_from(number).ok()).map(|n| first + n)
}
