//! Recovery after a crash. Rules: docs/formats/rocketmq-index.md, "Recovery".
//!
//! [`repair_tail`] is for process death: the page cache survives, so the file contains a prefix of the writer's stores. [`relink`]
//! is for power loss: any page may be as it was at the last flush. Neither is applied with the broker's own answers, because
//! the broker does nothing.

use std::io;

use crate::hash_index::format::entry::{Entries, Entry, PREV_INDEX, times_agree};
use crate::hash_index::format::geometry::{ENTRY_LEN, Geometry, HEADER_LEN};
use crate::hash_index::format::header::Header;
use crate::hash_index::read::select::read_slots;
use crate::hash_index::write::bulk::CHUNK;
use crate::io::{ReadAt, WriteAt, u32_of, usize_of};

/// Bytes per comparison.
const COMPARED: usize = 64 * 1024;

/// Advances the count over whole entries that a slot already leads to, links the entries of the last chunk that no slot
/// leads to, and sets the end of the header to the last entry.
///
/// Changes no byte of a consistent file.
#[expect(clippy::cast_possible_wrap, reason = "positions are below 2^31")]
pub(crate) fn repair_tail(target: &impl WriteAt, geometry: Geometry) -> io::Result<()> {
    let mut header = Header::read(target)?;
    let before = header;
    header.index_count = header.index_count.max(1);
    // A broker stores the slot before the count. Its first put is different: begin comes after the slot, so an
    // uncounted entry has no time and is discarded.
    while header.index_count > 1 && header.next_position() < geometry.max_entries() {
        let position = header.next_position();
        let entry = Entry::read(target, geometry, position)?;
        if !is_reachable(target, geometry, position, &entry)? {
            break;
        }
        header.hash_slot_count += i32::from(entry.prev_index == 0);
        header.index_count += 1;
    }
    if header.index_count <= 1 {
        return clear_uncounted(target, geometry);
    }
    let count = header.next_position();
    let last_chunk = count.saturating_sub(u32_of(CHUNK)).max(1)..count;
    for read in Entries::new(target, geometry, last_chunk) {
        let (position, entry) = read?;
        let slot = geometry.slot_of(entry.key_hash);
        let head = target.words::<1>(geometry.slot(slot))?[0];
        if entry.is_whole(geometry, position, slot) && (head < position || head >= count) {
            target.publish(geometry.slot(slot), position)?;
        }
    }
    let last = Entry::read(target, geometry, count - 1)?;
    header.end_phy_offset = last.phy_offset;
    if !times_agree(&header, count - 1, &last) && header.begin_timestamp > 0 {
        header.end_timestamp = header.begin_timestamp;
        if count > 2 {
            header.end_timestamp =
                crate::hash_index::format::entry::broker_time(header.begin_timestamp, last.time_diff);
        }
    }
    if header.index_count != before.index_count {
        header.write_counts(target)?;
    }
    if (header.end_phy_offset, header.end_timestamp) != (before.end_phy_offset, before.end_timestamp) {
        header.write_end(target)?;
    }
    debug_assert!(count as i32 == header.index_count);
    Ok(())
}

/// Removes the link to an entry 1 that was never counted.
fn clear_uncounted(target: &impl WriteAt, geometry: Geometry) -> io::Result<()> {
    if geometry.max_entries() < 2 {
        return Ok(());
    }
    let entry = Entry::read(target, geometry, 1)?;
    let slot = geometry.slot_of(entry.key_hash.max(0));
    if target.words::<1>(geometry.slot(slot))? == [1] {
        target.publish(geometry.slot(slot), 0)?;
    }
    Ok(())
}

/// Returns whether the chain of its slot leads to the whole entry at `position`.
fn is_reachable(source: &impl ReadAt, geometry: Geometry, position: u32, entry: &Entry) -> io::Result<bool> {
    let slot = geometry.slot_of(entry.key_hash.max(0));
    if !entry.is_whole(geometry, position, slot) {
        return Ok(false);
    }
    let [mut at] = source.words::<1>(geometry.slot(slot))?;
    let mut above = geometry.max_entries();
    while at > position && at < above {
        let link = Entry::read(source, geometry, at)?;
        if !link.is_whole(geometry, at, slot) {
            return Ok(false);
        }
        above = at;
        at = link.prev_index.unsigned_abs();
    }
    Ok(at == position)
}

/// The header and links that follow from the entries of a file.
pub(crate) struct Relinked {
    pub(crate) header: Header,
    /// Newest entry of each slot.
    pub(crate) heads: Vec<u32>,
    /// Entries with a wrong link, each with the right one, in rising order.
    pub(crate) links: Vec<(u32, u32)>,
}

/// Reads the entries from the first on and rebuilds the links, up to the first impossible entry.
///
/// Entries are written once and never changed, so after power loss each holds its bytes, or zeros on lost pages. An entry is
/// impossible if it has a negative hash, difference or link; a link to a later entry; zeros from its beginning or to its end
/// over most of its offset, unless no earlier entry had a larger offset; or a hash of 0 at the end of a page that the links
/// of its neighbours contradict. A wrong link alone is repaired.
///
/// `keep_undated`: keep entries with an unknown time if the first page of the file, with its begin time, was lost. Otherwise
/// they are discarded.
///
/// # Errors
/// An I/O error.
#[expect(clippy::cast_possible_wrap, clippy::cast_sign_loss, reason = "checked to be 0 or more, below 2^31")]
pub(crate) fn relink(
    source: &impl ReadAt,
    geometry: Geometry,
    present: u32,
    keep_undated: bool,
) -> io::Result<Relinked> {
    let mut header = Header::read(source)?;
    let counted = header.next_position().min(present);
    let undated = counted <= 1;
    let mut found = Relinked { header, heads: vec![0; geometry.hash_slots() as usize], links: Vec::new() };
    if undated && !keep_undated {
        found.header.hash_slot_count = 0;
        return Ok(found);
    }
    // The header repeats the first entry's offset, so a loss of the first entries is detected.
    let mut largest_offset = if undated { 0 } else { header.begin_phy_offset };
    let mut last = (0, Entry::default());
    let mut used_slots = 0;
    for read in Entries::new(source, geometry, 1..present) {
        let (position, entry) = read?;
        // An entry of zeros is only possible as the oldest of slot 0; a second one would link to the first.
        let never_stored =
            entry.is_zero() && (position >= counted || found.heads.first().is_some_and(|&head| head != 0));
        if never_stored || !can_be_true(position, &entry, largest_offset) {
            break;
        }
        let newest_of_zero = found.heads.first().copied().unwrap_or(0);
        if may_have_lost_its_hash(geometry, position, &entry)
            && (position >= counted
                || entry.prev_index as u32 != newest_of_zero
                || has_link_from_another_slot(source, geometry, position, present)?)
        {
            break;
        }
        let slot = geometry.slot_of(entry.key_hash) as usize;
        if let Some(head) = found.heads.get_mut(slot) {
            if *head != entry.prev_index as u32 {
                found.links.push((position, *head));
            }
            used_slots += i32::from(*head == 0);
            *head = position;
        }
        if position == 1 {
            header.begin_phy_offset = entry.phy_offset;
        }
        largest_offset = largest_offset.max(entry.phy_offset);
        last = (position, entry);
    }
    let (position, entry) = last;
    if position == 0 {
        found.header.hash_slot_count = 0;
        found.header.index_count = header.index_count.clamp(0, 1);
        return Ok(found);
    }
    header.hash_slot_count = used_slots;
    header.index_count = position as i32 + 1;
    if undated {
        header.begin_timestamp = 0;
    }
    header.end_phy_offset = entry.phy_offset;
    if header.begin_timestamp > 0 && !times_agree(&header, position, &entry) {
        header.end_timestamp = crate::hash_index::read::select::shown_time(&header, position, entry.time_diff);
    }
    found.header = header;
    Ok(found)
}

fn can_be_true(position: u32, entry: &Entry, largest_offset: i64) -> bool {
    let signs = entry.key_hash >= 0 && entry.time_diff >= 0 && entry.prev_index >= 0;
    let head_lost = entry.key_hash == 0 && entry.phy_offset >> 32 == 0;
    let tail_lost = entry.phy_offset.trailing_zeros() >= 32 && entry.time_diff == 0 && entry.prev_index == 0;
    let offset_lost = (head_lost || tail_lost) && entry.phy_offset < largest_offset;
    signs && entry.prev_index.unsigned_abs() <= position && !offset_lost
}

/// Returns whether only the hash of an entry, and at most the high half of its offset, is on the page before the rest. Then
/// a hash of 0, which is very rare, can be a lost page. A page is 4096 bytes or a multiple.
fn may_have_lost_its_hash(geometry: Geometry, position: u32, entry: &Entry) -> bool {
    const PAGE: u64 = 4096;
    entry.key_hash == 0 && PAGE - geometry.entry(position) % PAGE <= 8
}

/// Returns whether a later entry of another slot links to the one at `position`. Then its hash was not 0 when it was put.
fn has_link_from_another_slot(
    source: &impl ReadAt,
    geometry: Geometry,
    position: u32,
    present: u32,
) -> io::Result<bool> {
    for later in position + 1..present {
        let entry = Entry::read(source, geometry, later)?;
        if entry.is_zero() || entry.key_hash < 0 {
            break;
        }
        if entry.prev_index.unsigned_abs() == position {
            return Ok(geometry.slot_of(entry.key_hash) != 0);
        }
    }
    Ok(false)
}

/// Writes the result of [`relink`]: slots, links, zeros after the last entry, header. Then flushes the file.
///
/// Stores only the differences and returns whether there were any. If a crash interrupts it, [`relink`] returns the same result.
pub(crate) fn apply(target: &impl WriteAt, geometry: Geometry, found: &Relinked) -> io::Result<bool> {
    let mut changed = !found.links.is_empty();
    let mut stored = vec![0; found.heads.len()];
    read_slots(target, geometry, &mut stored)?;
    for (slot, (&head, &stored)) in (0u32..).zip(found.heads.iter().zip(&stored)) {
        if stored != head {
            target.publish(geometry.slot(slot), head)?;
            changed = true;
        }
    }
    for &(position, link) in &found.links {
        target.put_words(geometry.entry(position) + PREV_INDEX, [link])?;
    }
    for read in Entries::new(target, geometry, found.header.next_position()..geometry.max_entries()) {
        let (position, entry) = read?;
        if !entry.is_zero() {
            Entry::default().write(target, geometry, position)?;
            changed = true;
        }
    }
    if Header::read(target)? != found.header {
        changed = true;
        found.header.write_begin(target)?;
        found.header.write_counts(target)?;
        found.header.write_end(target)?;
    }
    target.flush(0, target.len())?;
    Ok(changed)
}

/// A view of a file as [`apply`] would leave it. The file itself does not change.
#[derive(Debug)]
pub(crate) struct Overlay<S> {
    pub(crate) base: S,
    geometry: Geometry,
    /// Header and slot table.
    head: Vec<u8>,
    links: Vec<(u32, u32)>,
    count: u32,
}

impl<S: ReadAt> Overlay<S> {
    pub(crate) fn new(base: S, geometry: Geometry, found: Relinked) -> Self {
        let mut head = Vec::with_capacity(usize_of(geometry.entry(0)));
        head.extend_from_slice(&found.header.to_bytes());
        head.extend(found.heads.iter().flat_map(|head| head.to_be_bytes()));
        Self { base, geometry, head, links: found.links, count: found.header.next_position() }
    }

    /// Returns whether [`apply`] would change the file.
    pub(crate) fn differs(&self) -> io::Result<bool> {
        if !self.links.is_empty() || Header::read(&self.base)? != Header::read(&self.head)? {
            return Ok(true);
        }
        let mut bytes = vec![0; COMPARED];
        let (slots, entries) = (self.geometry.slot(0), self.geometry.entry(0));
        let mut at = slots;
        while at < self.geometry.file_len() {
            // The slots, then the bytes after the last entry.
            let end = if at < entries { entries } else { self.geometry.file_len() };
            let len = usize_of(end - at).min(COMPARED);
            let (chunk, _) = bytes.split_at_mut(len);
            self.base.read_exact_at(chunk, at)?;
            let begin = usize_of(at);
            let is_same = if at < entries {
                self.head.get(begin..begin.saturating_add(len)) == Some(&*chunk)
            } else {
                chunk.iter().all(|byte| *byte == 0)
            };
            if !is_same {
                return Ok(true);
            }
            at += len as u64;
            if at == entries {
                at = self.geometry.entry(self.count);
            }
        }
        Ok(false)
    }
}

impl<S: ReadAt> ReadAt for Overlay<S> {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        // The index reads whole words only; a mixed read would need both parts.
        if offset + buf.len() as u64 <= self.head.len() as u64 {
            return self.head.read_exact_at(buf, offset);
        }
        self.base.read_exact_at(buf, offset)
    }

    fn words<const N: usize>(&self, offset: u64) -> io::Result<[u32; N]> {
        if offset < self.geometry.entry(0) {
            return self.head.words(offset);
        }
        let position = u32_of((offset - self.geometry.entry(0)) / ENTRY_LEN);
        if position >= self.count {
            return Ok([0; N]);
        }
        let mut words = self.base.words::<N>(offset)?;
        if let Ok(at) = self.links.binary_search_by_key(&position, |&(p, _)| p) {
            let word = usize_of((self.geometry.entry(position) + PREV_INDEX - offset) / 4);
            if let (Some(to), Some(&(_, link))) = (words.get_mut(word), self.links.get(at)) {
                *to = link;
            }
        }
        Ok(words)
    }

    fn word_run(&self, offset: u64, words: &mut [u32]) -> io::Result<()> {
        if offset < self.geometry.entry(0) {
            return self.head.word_run(offset, words);
        }
        self.base.word_run(offset, words)?;
        let word = |at: u64| usize_of((at - offset) / 4);
        let first = u32_of((offset - self.geometry.entry(0)) / ENTRY_LEN);
        for &(position, link) in self.links.iter().skip(self.links.partition_point(|&(at, _)| at < first)) {
            let Some(to) = words.get_mut(word(self.geometry.entry(position) + PREV_INDEX)) else { break };
            *to = link;
        }
        if let Some(gone) = words.get_mut(word(self.geometry.entry(self.count.max(first)))..) {
            gone.fill(0);
        }
        Ok(())
    }

    fn is_in_memory(&self, offset: u64) -> bool {
        offset < self.geometry.entry(0) || self.base.is_in_memory(offset)
    }

    fn is_far(&self) -> bool {
        self.base.is_far()
    }

    fn will_need(&self, offset: u64, len: u64) {
        self.base.will_need(offset, len);
    }

    fn load(&self) {
        self.base.load();
    }
}

/// A view of a short file, extended with zeros to the length of its geometry.
#[derive(Debug)]
pub(crate) struct ZeroExtended<S> {
    pub(crate) base: S,
    pub(crate) len: u64,
}

impl<S: ReadAt> ReadAt for ZeroExtended<S> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let there = usize_of(self.base.len().saturating_sub(offset)).min(buf.len());
        let (have, miss) = buf.split_at_mut(there);
        miss.fill(0);
        if have.is_empty() { Ok(()) } else { self.base.read_exact_at(have, offset) }
    }

    fn words<const N: usize>(&self, offset: u64) -> io::Result<[u32; N]> {
        let mut words = [[0u8; 4]; N];
        self.read_exact_at(words.as_flattened_mut(), offset)?;
        Ok(words.map(u32::from_be_bytes))
    }

    fn is_in_memory(&self, offset: u64) -> bool {
        offset >= self.base.len() || self.base.is_in_memory(offset)
    }

    fn is_far(&self) -> bool {
        self.base.is_far()
    }

    fn will_need(&self, offset: u64, len: u64) {
        self.base.will_need(offset, len);
    }

    fn load(&self) {
        self.base.load();
    }
}

const _: () = assert!(HEADER_LEN == 40, "Overlay keeps header and slots in one piece");
