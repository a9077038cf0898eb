//! Puts. Source of the bytes: `IndexFile#putKey`; source of the order: docs/formats/rocketmq-index.md, "Publication".
//!
//! A batch goes in blocks of at most 32 puts. A block is published in this order, each step after the one before it:
//!
//! 1. `begin_phy_offset`, `begin_timestamp` (first put of a file only)
//! 2. the entries
//! 3. `hash_slot_count` and `index_count`
//! 4. the slots
//! 5. `end_phy_offset`, `end_timestamp`
//!
//! So a reader, ours or the broker's, never meets a slot above the count. The broker itself stores one put at a time
//! and the slot before the count; the bytes are the same in the end. Process death between two steps leaves whole
//! entries without links, which [`super::relink`] mends.
//!
//! Two stages keep the processor busy while memory answers: the next block is hashed and its slots are asked for before
//! the current block is written.

use std::io;

use super::entry::{Entry, time_diff};
use super::header::Header;
use super::key_hash::KeySource;
use super::layout::Geometry;
use crate::source::WriteAt;

/// Puts published together.
pub(crate) const BLOCK: usize = 32;

/// The columns of a batch of puts, all of one length.
pub struct PutColumns<'a, K: ?Sized> {
    /// Index keys.
    pub keys: &'a K,
    /// Commit-log offsets.
    pub phy_offsets: &'a [i64],
    /// Store times in milliseconds.
    pub store_timestamps: &'a [i64],
}

/// Puts the rows from `start` on until the file is full; returns how many were taken.
///
/// One caller at a time.
pub(crate) fn put_batch<W: WriteAt, K: KeySource + ?Sized>(
    target: &W,
    geometry: Geometry,
    columns: &PutColumns<'_, K>,
    start: usize,
) -> io::Result<usize> {
    let mut header = Header::read(target)?;
    header.index_count = header.index_count.max(1);
    let room = geometry.max_entries().saturating_sub(header.next_position());
    let taken = columns.keys.len().saturating_sub(start).min(room as usize);
    let mut next = Hashed::of(target, geometry, columns.keys, start, taken);
    let mut row = start;
    while next.len > 0 {
        let block = next;
        next = Hashed::of(target, geometry, columns.keys, row + block.len, taken - (row - start) - block.len);
        let offsets = columns.phy_offsets.iter().skip(row);
        let times = columns.store_timestamps.iter().skip(row);
        put_block(target, geometry, &mut header, &block, offsets.zip(times))?;
        row += block.len;
    }
    Ok(taken)
}

/// Hashes of a block of keys whose slots have been asked for.
#[derive(Clone, Copy)]
struct Hashed {
    hashes: [i32; BLOCK],
    len: usize,
}

impl Hashed {
    fn of<W: WriteAt, K: KeySource + ?Sized>(
        target: &W,
        geometry: Geometry,
        keys: &K,
        start: usize,
        left: usize,
    ) -> Self {
        let mut block = Self { hashes: [0; BLOCK], len: left.min(BLOCK) };
        let (hashes, _) = block.hashes.split_at_mut(block.len);
        if !hashes.is_empty() {
            keys.hash_block(start, hashes);
        }
        for &hash in hashes.iter() {
            target.prefetch(geometry.slot(geometry.slot_of(hash)));
        }
        block
    }
}

/// The newest entry of each slot that the block itself has touched: its slots are stored last, so later puts of the
/// block must find the earlier ones here. A table of 64 buckets, each a chain through the block, newest first.
struct BlockHeads {
    /// Newest put of a bucket, as its number in the block + 1; 0 = none.
    newest: [u8; 64],
    /// The put before in the same bucket, likewise.
    before: [u8; BLOCK],
    slots: [u32; BLOCK],
}

impl BlockHeads {
    fn new() -> Self {
        Self { newest: [0; 64], before: [0; BLOCK], slots: [0; BLOCK] }
    }

    /// Number in the block of the newest put into `slot`.
    fn find(&self, slot: u32) -> Option<u8> {
        let mut at = *self.newest.get(slot as usize % 64)?;
        while at > 0 {
            if *self.slots.get(at as usize - 1)? == slot {
                return Some(at - 1);
            }
            at = *self.before.get(at as usize - 1)?;
        }
        None
    }

    /// Notes that the put `number` of the block went into `slot`.
    fn note(&mut self, number: u8, slot: u32) {
        let places = (
            self.newest.get_mut(slot as usize % 64),
            self.before.get_mut(number as usize),
            self.slots.get_mut(number as usize),
        );
        if let (Some(newest), Some(before), Some(place)) = places {
            *before = *newest;
            *newest = number + 1;
            *place = slot;
        }
    }
}

#[expect(clippy::cast_possible_wrap, clippy::cast_sign_loss, reason = "positions are below 2^31")]
#[expect(clippy::cast_possible_truncation, reason = "a block has 32 puts")]
fn put_block<'a, W: WriteAt>(
    target: &W,
    geometry: Geometry,
    header: &mut Header,
    block: &Hashed,
    rows: impl Iterator<Item = (&'a i64, &'a i64)>,
) -> io::Result<()> {
    let first = header.next_position();
    let mut heads = BlockHeads::new();
    for (number, (&key_hash, (&phy_offset, &store_timestamp))) in
        block.hashes.iter().take(block.len).zip(rows).enumerate()
    {
        let position = header.next_position();
        let slot = geometry.slot_of(key_hash);
        let prev_index = if let Some(earlier) = heads.find(slot) {
            (first + u32::from(earlier)) as i32
        } else {
            // A value of 0, below 0 or above the count is no entry; one equal to the count is (IndexFile#putKey).
            let head = target.words::<1>(geometry.slot(slot)).map(|[word]| word as i32)?;
            if head > 0 && head as u32 <= position { head } else { 0 }
        };
        // The first put of a seeded file counts from the seed (B3), so the difference is taken before begin moves.
        let time_diff = time_diff(header.begin_timestamp, store_timestamp);
        if position == 1 {
            header.begin_phy_offset = phy_offset;
            header.begin_timestamp = store_timestamp;
            header.write_begin(target)?;
        }
        Entry { key_hash, phy_offset, time_diff, prev_index }.write(target, geometry, position)?;
        heads.note(number as u8, slot);
        header.hash_slot_count = header.hash_slot_count.wrapping_add(i32::from(prev_index == 0));
        header.index_count += 1;
        header.end_phy_offset = phy_offset;
        header.end_timestamp = store_timestamp;
    }
    header.write_counts(target)?;
    for (number, slot) in heads.slots.iter().take(block.len).enumerate() {
        target.publish(geometry.slot(*slot), first + number as u32)?;
    }
    header.write_end(target)
}
