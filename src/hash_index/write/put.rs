//! A single put, the reference implementation. Source of the bytes: `IndexFile#putKey`; source of the order: docs/formats/rocketmq-index.md,
//! "Publication".
//!
//! A put is published in this order, each step after the one before it:
//!
//! 1. `begin_phy_offset`, `begin_timestamp` (first put of a file only)
//! 2. the entry
//! 3. `hash_slot_count` and `index_count`
//! 4. the slot
//! 5. `end_phy_offset`, `end_timestamp`
//!
//! So no reader, logdex's or the broker's, sees a slot above the count. The broker itself stores the slot before the count; the
//! final bytes are the same. Process death between two steps leaves a whole entry without a link, which
//! `repair::relink` links.
//!
//! [`super::put_batch`] does the same for blocks of puts, many times faster, and [`super::bulk`] with several threads. Tests
//! compare both with this module.

use std::io;

use crate::hash_index::format::entry::{Entry, time_diff};
use crate::hash_index::format::geometry::Geometry;
use crate::hash_index::format::header::Header;
use crate::io::WriteAt;

/// The columns of a batch of puts, all of one length.
pub struct PutColumns<'a, K: ?Sized> {
    /// Index keys.
    pub keys: &'a K,
    /// Commit-log offsets.
    pub phy_offsets: &'a [i64],
    /// Store times in milliseconds.
    pub store_timestamps: &'a [i64],
}

/// Reads the header for puts; a count of 0 or less is that of an empty file. Source: `IndexHeader#load`.
pub(crate) fn read_header(target: &impl WriteAt) -> io::Result<Header> {
    let mut header = Header::read(target)?;
    header.index_count = header.index_count.max(1);
    Ok(header)
}

/// Puts one key; false when the file is full, which changes nothing.
#[inline]
pub(crate) fn put_one(
    target: &impl WriteAt,
    geometry: Geometry,
    header: &mut Header,
    key_hash: i32,
    phy_offset: i64,
    store_timestamp: i64,
) -> io::Result<bool> {
    let position = header.next_position();
    if position >= geometry.max_entries() {
        return Ok(false);
    }
    let slot = geometry.slot(geometry.slot_of(key_hash));
    let [head] = target.words(slot)?;
    let prev_index = prev_index(head, position);
    // The first put of a seeded file counts from the seed (B3), so the difference is taken before begin moves.
    let time_diff = time_diff(header.begin_timestamp, store_timestamp);
    if position == 1 {
        header.begin_phy_offset = phy_offset;
        header.begin_timestamp = store_timestamp;
        header.write_begin(target)?;
    }
    Entry { key_hash, phy_offset, time_diff, prev_index }.write(target, geometry, position)?;
    header.hash_slot_count = header.hash_slot_count.wrapping_add(i32::from(prev_index == 0));
    header.index_count += 1;
    header.write_counts(target)?;
    target.publish(slot, position)?;
    header.end_phy_offset = phy_offset;
    header.end_timestamp = store_timestamp;
    header.write_end(target)?;
    Ok(true)
}

/// Returns the entry that a put at `position` links to, from the value of its slot. A value of 0, below 0 or above the count
/// is no entry; a value equal to the count is one (`IndexFile#putKey`).
#[inline]
#[expect(clippy::cast_possible_wrap, reason = "a position is below 2^31")]
pub(crate) fn prev_index(head: u32, position: u32) -> i32 {
    if head.wrapping_sub(1) < position { head as i32 } else { 0 }
}
