//! Lookups: from a key hash to the commit-log offsets of its candidates, newest first.
//!
//! Only the hash of a key is stored, so every answer is a list of candidates: some may belong to another key.
//!
//! The default walk follows a chain while each link is valid: the entry exists, its hash belongs to the slot, and the next
//! link goes down. If a link is invalid, all entries are scanned instead, so the answer is complete, and the [`Damage`] is
//! reported. A walk takes at most one step per entry, because positions fall.

use std::io;
use std::ops::Range;
use std::path::Path;

use crate::hash_index::format::entry::{
    self, Entries, Entry, PREV_INDEX, TIME_DIFF, broker_time, stored_between, times_agree,
};
use crate::hash_index::format::geometry::Geometry;
use crate::hash_index::format::header::Header;
use crate::io::ReadAt;
use crate::time_range::TimeRange;

/// Damage that a walk met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Byte offset in the file.
    pub offset: u64,
    /// The expected value of a valid chain.
    pub expected: String,
    /// The content of the file.
    pub found: String,
}

impl Damage {
    /// The text for the log: the place, and that the answer is complete all the same.
    pub fn note(&self, path: &Path) -> String {
        let Self { offset, expected, found } = self;
        let place = format!("{} at byte {offset}", path.display());
        format!("{place}: expected {expected}, found {found}; the entries were read from end to end instead")
    }
}

/// An index file as it is at the beginning of a call: the bytes, the geometry and the header.
#[derive(Clone, Copy)]
pub(crate) struct View<'a, S> {
    pub(crate) source: &'a S,
    pub(crate) geometry: Geometry,
    pub(crate) header: Header,
    /// Entries that are whole within the file, including entry 0.
    pub(crate) present: u32,
}

impl<'a, S: ReadAt> View<'a, S> {
    /// `file_len` is the length on disk; the source may be extended with zeros.
    pub(crate) fn new(source: &'a S, geometry: Geometry, file_len: u64) -> io::Result<Self> {
        let header = Header::read(source)?;
        Ok(Self { source, geometry, header, present: geometry.entries_within(file_len) })
    }

    pub(crate) fn entry(&self, position: u32) -> io::Result<Entry> {
        Entry::read(self.source, self.geometry, position)
    }

    /// Returns the entries at these positions in blocks. All positions are in the file.
    pub(crate) fn entries(&self, positions: Range<u32>) -> Entries<'a, S> {
        Entries::new(self.source, self.geometry, positions)
    }

    #[expect(clippy::cast_possible_wrap, reason = "bit pattern of the file")]
    pub(crate) fn slot(&self, slot: u32) -> io::Result<i32> {
        self.source.acquire(self.geometry.slot(slot)).map(|word| word as i32)
    }

    /// Entries within both the count and the file, including entry 0.
    pub(crate) fn counted(&self) -> u32 {
        self.header.next_position().min(self.present)
    }

    /// The times of this file, if they are consistent.
    pub(crate) fn times(&self) -> io::Result<Times> {
        let last = self.counted().saturating_sub(1);
        let known = last > 0 && times_agree(&self.header, last, &self.entry(last)?);
        Ok(Times { begin_timestamp: self.header.begin_timestamp, known })
    }
}

/// Reads the first slots of the table, in blocks.
pub(crate) fn read_slots(source: &impl ReadAt, geometry: Geometry, heads: &mut [u32]) -> io::Result<()> {
    /// Slots per read: 128 KiB.
    const BLOCK: usize = 32 * 1024;
    for (block, first) in heads.chunks_mut(BLOCK).zip((0u32..).step_by(BLOCK)) {
        source.word_run(geometry.slot(first), block)?;
    }
    Ok(())
}

/// The store times of a file's messages.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    begin_timestamp: i64,
    /// False if begin is not set or contradicts the end. Then the store time of every entry is unknown.
    known: bool,
}

impl Times {
    /// Unknown times, for a search over all times.
    pub(crate) fn unknown() -> Self {
        Self { begin_timestamp: 0, known: false }
    }

    /// First millisecond of the second in which the message of an entry was stored; `None` if the entry does not store it.
    pub(crate) fn second(self, position: u32, time_diff: i32) -> Option<i64> {
        match stored_between(self.begin_timestamp, position, time_diff) {
            (i64::MIN, _) | (_, i64::MAX) => None,
            (first, _) => (self.known && time_diff >= 0).then_some(first),
        }
    }

    #[inline]
    fn may_match(self, range: TimeRange, position: u32, time_diff: i32) -> bool {
        if !self.known || range.is_all() || time_diff < 0 {
            return true;
        }
        let (first, last) = stored_between(self.begin_timestamp, position, time_diff);
        range.meets(first, last)
    }
}

/// The time differences that a search accepts: computed once from the times of a file and the requested range, so that a walk
/// only compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeWindow {
    /// The differences from `first` on that match, less one; compared in 32 bits that wrap.
    first: u32,
    width: u32,
    /// A position whose match does not depend on its difference: entry 1, by default. 0 = none.
    apart: u32,
    apart_matches: bool,
    /// With the broker's answers, a walk ends after an entry with a smaller difference.
    ends_below: u32,
}

impl TimeWindow {
    /// Accepts every difference.
    pub(crate) const ALL: Self = Self { first: 0, width: u32::MAX, apart: 0, apart_matches: true, ends_below: 0 };

    pub(crate) fn is_all(&self) -> bool {
        *self == Self::ALL
    }

    /// The window of [`Times::may_match`]. `None` if the times of the file overflow: then that function must be called.
    pub(crate) fn new(times: Times, range: TimeRange) -> Option<Self> {
        if !times.known || range.is_all() {
            return Some(Self::ALL);
        }
        let begin = times.begin_timestamp;
        begin.checked_add(i64::from(i32::MAX) * 1000 + 999)?;
        // The smallest difference also represents all earlier times, the largest all later ones.
        let (first, last) = differences(begin, i128::from(range.begin_ms) - 999, i128::from(range.end_ms));
        let between = Self::of(first.min(i128::from(i32::MAX)), last.max(0));
        Some(Self { apart: 1, apart_matches: range.meets(begin, begin), ..between })
    }

    /// The window of the broker. COMPAT(rocketmq IndexFile#selectPhyOffset). `None` as for [`Self::new`].
    pub(crate) fn of_broker(header: &Header, range: TimeRange) -> Option<Self> {
        let begin = header.begin_timestamp;
        if range.is_all() {
            return Some(Self::ALL);
        }
        begin.checked_add(i64::from(i32::MAX) * 1000)?;
        let (first, last) = differences(begin, i128::from(range.begin_ms), i128::from(range.end_ms));
        let ends_below = u32::try_from(first.clamp(0, 1 << 31)).unwrap_or(0);
        Some(Self { ends_below, ..Self::of(first, last) })
    }

    /// `first..=last`, clipped to 0 to `i32::MAX`.
    fn of(first: i128, last: i128) -> Self {
        let (first, last) = (first.max(0), last.min(i128::from(i32::MAX)));
        let none = Self { first: 1 << 31, width: 0, ..Self::ALL };
        let width = u32::try_from(last - first);
        width.map_or(none, |width| Self { first: u32::try_from(first).unwrap_or(1 << 31), width, ..Self::ALL })
    }

    /// Returns whether an entry matches, and whether the walk ends after it. `time_diff` is 0 or more.
    #[inline]
    #[expect(clippy::needless_bitwise_bool, reason = "called where a branch is dear")]
    pub(crate) fn judge(&self, position: u32, time_diff: u32) -> (bool, bool) {
        let inside = time_diff.wrapping_sub(self.first) <= self.width;
        let is_apart = position == self.apart;
        ((inside & !is_apart) | (self.apart_matches & is_apart), time_diff < self.ends_below)
    }
}

/// First and last difference whose time, in whole seconds from `begin`, is in a range of milliseconds.
fn differences(begin: i64, from_ms: i128, until_ms: i128) -> (i128, i128) {
    let begin = i128::from(begin);
    (-(begin - from_ms).div_euclid(1000), (until_ms - begin).div_euclid(1000))
}

/// Appends the candidates of `key_hash` until `out` holds `max_num` in all.
///
/// Returns the damage that made the walk fall back to reading all entries.
pub(crate) fn select<S: ReadAt>(
    view: &View<'_, S>,
    times: Times,
    key_hash: i32,
    max_num: usize,
    range: TimeRange,
    out: &mut Vec<i64>,
) -> io::Result<Option<Damage>> {
    let kept = out.len();
    match walk(view, times, key_hash, max_num, range, u32::MAX, out)? {
        Walk::Damaged(damage) => {
            out.truncate(kept);
            scan(view, times, key_hash, max_num, range, out)?;
            Ok(Some(damage))
        }
        Walk::Done | Walk::Long => Ok(None),
    }
}

/// The result of a walk.
pub(crate) enum Walk {
    /// All candidates were found.
    Done,
    /// The chain has more entries than the walk may read.
    Long,
    /// The candidates are incomplete.
    Damaged(Damage),
}

/// Appends the candidates of `key_hash` until `out` holds `max_num` in total. The walk follows at most `most_links` links of the
/// chain.
#[expect(clippy::cast_sign_loss, reason = "checked to be above 0")]
pub(crate) fn walk<S: ReadAt>(
    view: &View<'_, S>,
    times: Times,
    key_hash: i32,
    max_num: usize,
    range: TimeRange,
    most_links: u32,
    out: &mut Vec<i64>,
) -> io::Result<Walk> {
    if out.len() >= max_num || key_hash < 0 {
        return Ok(Walk::Done);
    }
    let slot = view.geometry.slot_of(key_hash);
    let mut links = 0;
    let mut link = view.slot(slot)?;
    let mut link_at = view.geometry.slot(slot);
    let mut above = view.present; // a link must be below
    loop {
        if link == 0 {
            return Ok(Walk::Done);
        }
        if link < 0 || link as u32 >= above {
            return Ok(Walk::Damaged(Damage {
                offset: link_at,
                expected: format!("0 or an entry of slot {slot} below {above}"),
                found: link.to_string(),
            }));
        }
        if links == most_links {
            return Ok(Walk::Long);
        }
        links += 1;
        let position = link as u32;
        let entry = view.entry(position)?;
        if entry.time_diff < 0 || entry.key_hash < 0 || view.geometry.slot_of(entry.key_hash) != slot {
            return Ok(Walk::Damaged(misplaced(view.geometry, slot, position, &entry, link_at)));
        }
        if entry.key_hash == key_hash && times.may_match(range, position, entry.time_diff) {
            out.push(entry.phy_offset);
            if out.len() >= max_num {
                return Ok(Walk::Done);
            }
        }
        link = entry.prev_index;
        link_at = view.geometry.entry(position) + PREV_INDEX;
        above = position;
    }
}

fn misplaced(geometry: Geometry, slot: u32, position: u32, entry: &Entry, link_at: u64) -> Damage {
    if entry.time_diff < 0 {
        let offset = geometry.entry(position) + TIME_DIFF;
        return Damage {
            offset,
            expected: "a time difference of 0 or more".into(),
            found: entry.time_diff.to_string(),
        };
    }
    let found = format!("{position}, an entry of hash {}", entry.key_hash);
    Damage { offset: link_at, expected: format!("an entry of slot {slot}"), found }
}

/// Linear: finds every entry whose hash is `key_hash`, newest first, without using the links.
fn scan<S: ReadAt>(
    view: &View<'_, S>,
    times: Times,
    key_hash: i32,
    max_num: usize,
    range: TimeRange,
    out: &mut Vec<i64>,
) -> io::Result<()> {
    let mut hits = Vec::new();
    view.source.load();
    for read in view.entries(1..view.present) {
        let (position, entry) = read?;
        if position >= view.counted() && entry.is_zero() {
            break;
        }
        if entry.key_hash == key_hash && times.may_match(range, position, entry.time_diff) {
            hits.push(entry.phy_offset);
        }
    }
    let left_to_find = max_num.saturating_sub(out.len());
    out.extend(hits.into_iter().rev().take(left_to_find));
    Ok(())
}

/// The broker's walk, bit for bit. COMPAT(rocketmq IndexFile#selectPhyOffset): B13, B14, B19, B23, B24.
///
/// `max_num` is the broker's: nothing is appended once `out` holds that many. A walk that would not return ends after one
/// full round without a new match, or after one full round if the caller set no limit.
#[expect(clippy::cast_sign_loss, reason = "checked to be above 0")]
pub(crate) fn select_as_broker<S: ReadAt>(
    view: &View<'_, S>,
    key_hash: i32,
    max_num: Option<usize>,
    range: TimeRange,
    out: &mut Vec<i64>,
) -> io::Result<Option<Damage>> {
    let count = view.header.index_count.max(1);
    let limit = max_num.unwrap_or(usize::MAX);
    let slot = view.geometry.slot_of(key_hash);
    let mut position = view.slot(slot)?;
    if position <= 0 || position > count || count <= 1 {
        return Ok(None);
    }
    // No position at the geometry's end or after it is read, for any count.
    let round = i64::from(count).min(i64::from(view.geometry.max_entries()));
    let mut idle_steps: i64 = 0;
    while out.len() < limit {
        if position as u32 >= view.geometry.max_entries() {
            return Ok(None); // the broker gets an exception at the end of its buffer, logs it and returns its matches so far
        }
        let entry = view.entry(position as u32)?;
        if entry.time_diff < 0 {
            return Ok(None);
        }
        let time = broker_time(view.header.begin_timestamp, entry.time_diff);
        idle_steps += 1;
        if range.begin_ms <= time && time <= range.end_ms && entry.key_hash == key_hash {
            out.push(entry.phy_offset);
            if max_num.is_some() {
                idle_steps = 0;
            }
        }
        let prev = entry.prev_index;
        if prev <= 0 || prev > count || prev == position || time < range.begin_ms {
            return Ok(None);
        }
        if idle_steps > round {
            return Ok(Some(Damage {
                offset: view.geometry.entry(position as u32) + PREV_INDEX,
                expected: format!("a chain of slot {slot} that ends"),
                found: "a cycle, in which the broker would not return".into(),
            }));
        }
        position = prev;
    }
    Ok(None)
}

/// Returns whether a file can hold messages of a time range, by its header alone.
///
/// False only if the range misses the span of the two header times widened by `clock_slack_ms` at both ends: the
/// header has the first and the last time, not the smallest and the largest.
pub(crate) fn may_hold<S: ReadAt>(view: &View<'_, S>, range: TimeRange, clock_slack_ms: i64) -> io::Result<bool> {
    if range.is_all() {
        return Ok(true);
    }
    if !view.times()?.known {
        return Ok(true);
    }
    let Header { begin_timestamp: begin, end_timestamp: end, .. } = view.header;
    Ok(range.meets(begin.min(end).saturating_sub(clock_slack_ms), begin.max(end).saturating_add(clock_slack_ms)))
}

/// The broker's own test. COMPAT(rocketmq IndexFile#isTimeMatched).
pub(crate) fn is_time_matched(header: &Header, range: TimeRange) -> bool {
    let (begin, end) = (range.begin_ms, range.end_ms);
    let file = header.begin_timestamp..=header.end_timestamp;
    (begin < header.begin_timestamp && end > header.end_timestamp) || file.contains(&begin) || file.contains(&end)
}

/// Returns the store time to show for an entry, in milliseconds: the header's for entry 1, else in whole seconds.
pub(crate) fn shown_time(header: &Header, position: u32, time_diff: i32) -> i64 {
    if position == 1 { header.begin_timestamp } else { entry::broker_time(header.begin_timestamp, time_diff) }
}
