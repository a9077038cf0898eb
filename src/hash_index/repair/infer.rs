//! Inference of the geometry of an index file from its content. Rule: docs/formats/rocketmq-index.md, "Geometry".
//!
//! The length of the file relates S to N; each N above the count is tried. A geometry fits if the newest entry is reachable
//! from its own slot, and so is every other entry (up to [`SAMPLES`] entries, spread over the file: a wrong geometry passes
//! one such test with a probability of about 1 in S). For a file with many slots, or with more than a few entries, the broker's own
//! ratio is tried first, with [`FEW_SAMPLES`]: each sample costs a few random reads, and all other geometries seconds.

use std::io;

use crate::hash_index::format::entry::Entry;
use crate::hash_index::format::geometry::{ENTRY_LEN, Geometry, HEADER_LEN, SLOT_LEN};
use crate::hash_index::format::header::Header;
use crate::hash_index::write::bulk::CHUNK;
use crate::io::{ReadAt, u32_of};

/// Entries checked for each geometry that fits the newest entry.
const SAMPLES: u32 = 4096;
/// Entries checked for the broker's own ratio (N = 4 S).
const FEW_SAMPLES: u32 = 16;
/// Entries checked if a read is a request to another machine, the newest ones: they are adjacent, and their slots are requested
/// together. Each passes in a wrong geometry with a probability of about 1 in S.
const FAR_SAMPLES: u32 = 2;
/// With this many slots, one entry is enough for a certain fit.
const MANY_SLOTS: u32 = 1 << 16;
/// With more entries than this, a fit of that ratio is certain and no other is tried: S is 64 or more.
const CERTAIN: u32 = 256;
/// Fits that an error lists.
const LISTED: usize = 16;

/// The geometries that fit: the first few, and how many there are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fits {
    pub(crate) first: Vec<Geometry>,
    pub(crate) count: usize,
}

/// Tries the geometries that give a file of this length. If the given one fits, no other is tried.
///
/// # Errors
/// An I/O error.
pub(crate) fn infer<S: ReadAt>(source: &S, given: Option<Geometry>) -> io::Result<Fits> {
    let none = Fits { first: Vec::new(), count: 0 };
    if source.len() < HEADER_LEN {
        return Ok(none);
    }
    let header = Header::read(source)?;
    if header.index_count < 0 {
        return Ok(none);
    }
    let count = header.next_position();
    let given = given.filter(|given| given.file_len() == source.len() && given.max_entries() >= count);
    if let Some(given) = given
        && fits(source, given, count, Links::All, samples_of(given, count))?
    {
        return Ok(Fits { first: vec![given], count: 1 });
    }
    if let Some(usual) = usual_geometry(source.len())
        && (count > CERTAIN || (count > 1 && usual.hash_slots() >= MANY_SLOTS))
        && usual.max_entries() >= count
        && fits(source, usual, count, Links::All, FEW_SAMPLES)?
    {
        return Ok(Fits { first: vec![usual], count: 1 });
    }
    // A killed writer can leave the links of one block unwritten. That is only allowed if nothing fits otherwise.
    let strict = search(source, count, Links::All)?;
    if strict.count > 0 || count <= 1 {
        return Ok(strict);
    }
    if let Some(given) = given
        && fits(source, given, count, Links::LastBlockMayMiss, SAMPLES)?
    {
        return Ok(Fits { first: vec![given], count: 1 });
    }
    search(source, count, Links::LastBlockMayMiss)
}

/// Number of entries to check for a given geometry.
fn samples_of(geometry: Geometry, count: u32) -> u32 {
    if count > CERTAIN && geometry.hash_slots() >= CERTAIN / 4 { FEW_SAMPLES } else { SAMPLES }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Links {
    All,
    LastBlockMayMiss,
}

/// The default geometry, or the one of this length with the default ratio.
fn usual_geometry(len: u64) -> Option<Geometry> {
    let slots = u32::try_from(len.checked_sub(HEADER_LEN)? / (SLOT_LEN + 4 * ENTRY_LEN)).ok()?;
    Geometry::new(slots, slots.checked_mul(4)?).ok().filter(|geometry| geometry.file_len() == len)
}

fn search<S: ReadAt>(source: &S, count: u32, links: Links) -> io::Result<Fits> {
    let mut found = Fits { first: Vec::new(), count: 0 };
    let body = source.len() - HEADER_LEN;
    if !body.is_multiple_of(SLOT_LEN) {
        return Ok(found);
    }
    let most = u32_of(body.saturating_sub(SLOT_LEN) / ENTRY_LEN);
    for max_entries in count.max(1)..=most {
        let slots = (body - ENTRY_LEN * u64::from(max_entries)) / SLOT_LEN;
        let Some(geometry) = u32::try_from(slots).ok().and_then(|slots| Geometry::new(slots, max_entries).ok()) else {
            continue;
        };
        if fits(source, geometry, count, links, SAMPLES)? {
            found.count += 1;
            if found.first.len() < LISTED {
                found.first.push(geometry);
            }
        }
    }
    Ok(found)
}

fn fits<S: ReadAt>(source: &S, geometry: Geometry, count: u32, links: Links, samples: u32) -> io::Result<bool> {
    if count <= 1 {
        return Ok(true); // no entry contradicts it
    }
    let newest = count - 1;
    let (samples, step) = if source.is_far() && geometry.hash_slots() >= MANY_SLOTS {
        expect_slots(source, geometry, newest)?;
        (FAR_SAMPLES as usize, 1)
    } else {
        (usize::MAX, (newest / samples).max(1) as usize)
    };
    for position in (1..=newest).rev().step_by(step).take(samples) {
        if !agrees(source, geometry, position, count, links)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Requests the slots of the newest entries together.
fn expect_slots<S: ReadAt>(source: &S, geometry: Geometry, newest: u32) -> io::Result<()> {
    for position in (1..=newest).rev().take(FAR_SAMPLES as usize) {
        let entry = Entry::read(source, geometry, position)?;
        if entry.key_hash >= 0 {
            source.will_need(geometry.slot(geometry.slot_of(entry.key_hash)), SLOT_LEN);
        }
    }
    Ok(())
}

/// Returns whether the chain of its own slot leads to the entry.
#[expect(clippy::cast_sign_loss, reason = "whole entries have links of 0 or more")]
fn agrees<S: ReadAt>(source: &S, geometry: Geometry, position: u32, count: u32, links: Links) -> io::Result<bool> {
    let entry = Entry::read(source, geometry, position)?;
    if entry.key_hash < 0 {
        return Ok(false);
    }
    let slot = geometry.slot_of(entry.key_hash);
    if !entry.is_whole(geometry, position, slot) {
        return Ok(false);
    }
    let [head] = source.words::<1>(geometry.slot(slot))?;
    let mut at = head;
    while at > position {
        if at >= geometry.max_entries() {
            return Ok(false);
        }
        let link = Entry::read(source, geometry, at)?;
        if !link.is_whole(geometry, at, slot) {
            return Ok(false);
        }
        at = link.prev_index as u32;
    }
    if at == position {
        return Ok(true);
    }
    // Then the links below must lead to the entry that the slot still points to.
    let in_last_chunk = count - position <= u32_of(CHUNK);
    if links == Links::All || !in_last_chunk || entry.is_zero() {
        return Ok(false);
    }
    let mut below = entry.prev_index as u32;
    let mut above = position;
    while below > head && below < above {
        above = below;
        below = Entry::read(source, geometry, below)?.prev_index.unsigned_abs();
    }
    Ok(below == head)
}
