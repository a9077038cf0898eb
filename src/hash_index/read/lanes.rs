//! Many walks at a time, so that a batch of lookups does not wait for memory.
//!
//! A lookup is a chain of dependent reads: the slot, the newest entry, the entry before it, and so on. In a large file each
//! read misses the caches, and the processor waits about a hundred nanoseconds for ten instructions. A single walk cannot be
//! made faster. But memory serves tens of requests at a time, so tens of walks are interleaved (AMAC, "asynchronous memory
//! access chaining": Kocberber, Falsafi, Grot, VLDB 2015):
//!
//! ```text
//! repeat:
//!     for each of the 48 lanes:
//!         read the entry that was prefetched one turn ago
//!         note its offset if the hash matches
//!         prefetch the entry before it, or, at the end of the chain, the first entry of the next key's chain
//! ```
//!
//! Further techniques:
//!
//! - **Slots are resolved ahead** ([`Feed`]), a block at a time, in two steps: while the lanes work, the slots of one
//!   block are prefetched; one block later they are read and the first entries are prefetched. So a lane only goes from
//!   entry to entry, and a finished walk is replaced by one that is ready.
//! - **No branch depends on the content of an entry.** Matches and chain ends are unpredictable, and a mispredicted branch
//!   discards the work on the following lanes. So every entry is written to the next place of the output, which advances
//!   only after a match, and a lane selects its next state, the next entry or the next key, by a conditional move.
//! - **A link is checked without a division.** A chain holds keys of one slot only, so the hash of an entry and the
//!   requested hash differ by a multiple of the slots S. With M = ceil(2^64 / S), d is a multiple of S exactly when d * M,
//!   cut to 64 bits, is below M (Lemire, Kaser, Kurz: "Faster remainder by direct computation", 2019).
//! - **A work item is a key and a file.** So the lanes are full even for one key if there are many files.
//!
//! Damage is not handled here: if an entry does not belong to the chain or a link does not go down, the row is marked as
//! doubtful, and the plain walk (`select`) answers it from the start. Tests compare these lanes with the plain walk.

#![expect(clippy::inline_always, reason = "a call costs more than what it does")]
#![expect(clippy::needless_bitwise_bool, reason = "no branches: see above")]

use std::hint::select_unpredictable;

use super::hits::{Chunk, DOUBTFUL, Found};
use super::select::TimeWindow;
use crate::hash_index::format::geometry::{ENTRY_LEN, Geometry};
use crate::io::{Words, usize_of};

/// Interleaved walks. More do not help: a core cannot wait for more cache lines.
const LANES: usize = 48;
/// Keys whose slots are prefetched together.
const BLOCK: usize = 32;
/// Walks that can be ready: enough to fill the lanes once, and a block.
const READY: usize = 128;
const _: () = assert!(LANES + BLOCK <= READY && READY.is_power_of_two());
/// Places of the output that one turn can fill.
const TURN: usize = LANES.next_power_of_two();

const WORD: u64 = 4;
const ENTRY_WORDS: usize = (ENTRY_LEN / WORD) as usize;

/// The chains of one file.
#[derive(Clone, Copy)]
pub(crate) struct Chains<'a> {
    words: Words<'a>,
    geometry: Geometry,
    /// Offset of entry 0, in words.
    entries: usize,
    /// Every slot points below this position.
    present: u32,
    /// M of the module documentation; 0 accepts every hash.
    multiple: u64,
    window: TimeWindow,
}

impl<'a> Chains<'a> {
    /// `present`: entries that can be read, entry 0 included. `any_hash`: whether a chain may hold keys of other slots.
    pub(crate) fn new(words: Words<'a>, geometry: Geometry, present: u32, any_hash: bool, window: TimeWindow) -> Self {
        let multiple = if any_hash { 0 } else { geometry.inverse() };
        let entries = usize_of(geometry.entry(0) / WORD);
        Self { words, geometry, entries, present, multiple, window }
    }

    fn slot_at(&self, key_hash: i32) -> usize {
        usize_of(self.geometry.slot(self.geometry.slot_of(key_hash)) / WORD)
    }

    #[inline(always)]
    fn entry_at(&self, position: u32) -> usize {
        self.entries + ENTRY_WORDS * position as usize
    }

    /// A quarter of the entries span two cache lines.
    #[inline(always)]
    fn prefetch(&self, position: u32) {
        let at = self.entry_at(position);
        self.words.prefetch(at);
        self.words.prefetch(at + ENTRY_WORDS - 1);
    }
}

/// A walk: the entry it reads next.
#[derive(Clone, Copy, Default)]
struct Walk {
    position: u32,
    key_hash: u32,
    row: u32,
    file: u32,
    /// Matches still wanted; never 0 during a walk.
    left_to_find: u32,
}

/// The fields of an entry that a walk uses.
struct Step {
    phy_offset: i64,
    is_match: bool,
    ends: bool,
    /// Position of the previous entry; 0 = none.
    before: u32,
    /// False if the entry is impossible.
    sound: bool,
}

#[inline(always)]
fn step<const TIMED: bool>(chains: &Chains<'_>, walk: Walk) -> Step {
    // Inside the map, because positions only fall; zeros are not valid.
    let [hash, high, low, time_diff, before] =
        chains.words.copy::<ENTRY_WORDS>(chains.entry_at(walk.position)).unwrap_or([u32::MAX; _]);
    let apart = hash.abs_diff(walk.key_hash);
    let belongs = u64::from(apart).wrapping_mul(chains.multiple) <= chains.multiple.wrapping_sub(1);
    let not_negative = (hash | time_diff) >> 31 == 0;
    let sound = belongs & not_negative & (before < walk.position);
    let (in_time, too_old) = if TIMED { chains.window.judge(walk.position, time_diff) } else { (true, false) };
    let is_match = sound & (apart == 0) & in_time;
    let ends = !sound | too_old | (before == 0) | (walk.left_to_find == u32::from(is_match));
    Step { phy_offset: (u64::from(high) << 32 | u64::from(low)).cast_signed(), is_match, ends, before, sound }
}

/// Walks that are ready to begin, and the keys and files that become walks, file by file, newest first.
struct Feed<'f, 'm> {
    files: &'f [Chains<'m>],
    max_num: u32,
    /// The next key and file.
    row: usize,
    file: usize,
    /// Walks whose slots were prefetched; `position` is the place of the slot, in words.
    asked: [Walk; BLOCK],
    asked_len: usize,
    /// A ring buffer: `begun` walks were taken, `filled` were added.
    ready: [Walk; READY],
    begun: usize,
    filled: usize,
}

impl<'f, 'm> Feed<'f, 'm> {
    fn new(files: &'f [Chains<'m>], max_num: u32) -> Self {
        let none = Walk::default();
        Self {
            files,
            max_num,
            row: 0,
            file: 0,
            asked: [none; BLOCK],
            asked_len: 0,
            ready: [none; READY],
            begun: 0,
            filled: 0,
        }
    }

    #[inline(always)]
    fn ready_len(&self) -> usize {
        self.filled - self.begun
    }

    /// The walk that begins next; any walk if none is ready.
    #[inline(always)]
    fn next(&self) -> Walk {
        self.ready.get(self.begun % READY).copied().unwrap_or_default()
    }

    /// Prepares enough walks that every lane can begin one in a turn, unless the keys end.
    #[inline(always)]
    fn fill(&mut self, key_hashes: &[i32], counts: &mut [u32], doubtful: &mut Vec<u32>) {
        while self.ready_len() < LANES && (self.asked_len > 0 || self.file < self.files.len()) {
            self.read_slots(counts, doubtful);
            self.ask_for_slots(key_hashes, counts);
        }
    }

    fn read_slots(&mut self, counts: &mut [u32], doubtful: &mut Vec<u32>) {
        for walk in self.asked.iter().take(self.asked_len) {
            let Some(chains) = self.files.get(walk.file as usize) else { continue };
            let head = chains.words.acquire(walk.position as usize).unwrap_or(u32::MAX);
            chains.prefetch(head);
            if let Some(place) = self.ready.get_mut(self.filled % READY) {
                *place = Walk { position: head, ..*walk };
            }
            self.filled += usize::from(head != 0);
            if head >= chains.present && head != 0 {
                self.filled -= 1;
                doubtful.push(walk.row);
                if let Some(count) = counts.get_mut(walk.row as usize) {
                    *count |= DOUBTFUL;
                }
            }
        }
        self.asked_len = 0;
    }

    #[expect(clippy::cast_possible_truncation, reason = "a file has fewer than 2^29 words, a chunk fewer rows")]
    fn ask_for_slots(&mut self, key_hashes: &[i32], counts: &[u32]) {
        while self.asked_len < BLOCK
            && let Some(chains) = self.files.get(self.file)
        {
            let rows = key_hashes.iter().zip(counts).enumerate().skip(self.row);
            for (row, (&key_hash, &count)) in rows.take(BLOCK - self.asked_len) {
                let slot_at = chains.slot_at(key_hash);
                chains.words.prefetch(slot_at);
                if let Some(place) = self.asked.get_mut(self.asked_len) {
                    *place = Walk {
                        position: slot_at as u32,
                        key_hash: key_hash.cast_unsigned(),
                        row: row as u32,
                        file: self.file as u32,
                        left_to_find: self.max_num.saturating_sub(count),
                    };
                }
                self.asked_len += usize::from(key_hash >= 0 && count < self.max_num);
                self.row = row + 1;
            }
            if self.row >= key_hashes.len() {
                self.row = 0;
                self.file += 1;
            }
        }
    }
}

/// Walks the chains of every key of the chunk in every file, newest first, and collects the matches.
///
/// `first_file`: the number of the first file in the whole call. `many`: the call has several files; then a row that has
/// `max_num` matches from newer files is skipped in older ones.
pub(crate) fn walk(files: &[Chains<'_>], first_file: u32, many: bool, max_num: u32, chunk: &mut Chunk) {
    let timed = files.iter().any(|chains| !chains.window.is_all());
    match (many, timed) {
        (false, false) => run::<false, false>(files, first_file, max_num, chunk),
        (false, true) => run::<false, true>(files, first_file, max_num, chunk),
        (true, false) => run::<true, false>(files, first_file, max_num, chunk),
        (true, true) => run::<true, true>(files, first_file, max_num, chunk),
    }
}

fn run<const MANY: bool, const TIMED: bool>(files: &[Chains<'_>], first_file: u32, max_num: u32, chunk: &mut Chunk) {
    let Chunk { key_hashes, found, filled, counts, doubtful, .. } = chunk;
    let Some(first) = files.first() else { return };
    let mut feed = Feed::new(files, max_num);
    feed.fill(key_hashes, counts, doubtful);
    let mut lanes = [Walk::default(); LANES];
    let mut busy = 0;
    for lane in lanes.iter_mut().take(feed.ready_len()) {
        *lane = feed.next();
        feed.begun += 1;
        busy += 1;
    }
    let mut places = *filled;
    while busy > 0 {
        feed.fill(key_hashes, counts, doubtful);
        if found.len() < places + TURN {
            found.resize((places + TURN).max(2 * found.len()), Found::default());
        }
        let Some(free) = found.get_mut(places..).and_then(|free| free.first_chunk_mut::<TURN>()) else { return };
        let mut fresh = 0;
        let mut visit = |walk: Walk, chains: &Chains<'_>| {
            let step = step::<TIMED>(chains, walk);
            if let Some(place) = free.get_mut(fresh % TURN) {
                *place = Found { phy_offset: step.phy_offset, row: walk.row, file: first_file + walk.file };
            }
            fresh += usize::from(step.is_match);
            if MANY && let Some(count) = counts.get_mut(walk.row as usize) {
                *count += u32::from(step.is_match);
            }
            if !step.sound {
                doubtful.push(walk.row);
                if let Some(count) = counts.get_mut(walk.row as usize) {
                    *count |= DOUBTFUL;
                }
            }
            step
        };
        let chains_of = |file: u32| if MANY { files.get(file as usize).unwrap_or(first) } else { first };
        if busy == LANES && feed.ready_len() >= LANES {
            for lane in &mut lanes {
                let step = visit(*lane, chains_of(lane.file));
                let next = feed.next();
                feed.begun += usize::from(step.ends);
                lane.position = select_unpredictable(step.ends, next.position, step.before);
                lane.key_hash = select_unpredictable(step.ends, next.key_hash, lane.key_hash);
                lane.row = select_unpredictable(step.ends, next.row, lane.row);
                lane.left_to_find =
                    select_unpredictable(step.ends, next.left_to_find, lane.left_to_find - u32::from(step.is_match));
                if MANY {
                    lane.file = select_unpredictable(step.ends, next.file, lane.file);
                }
                chains_of(lane.file).prefetch(lane.position);
            }
        } else {
            // The last keys: a lane whose walk ended takes one of the remaining walks, or idles.
            let mut at = 0;
            while at < busy
                && let Some(lane) = lanes.get_mut(at)
            {
                let step = visit(*lane, chains_of(lane.file));
                if !step.ends {
                    lane.position = step.before;
                    lane.left_to_find -= u32::from(step.is_match);
                } else if feed.ready_len() > 0 {
                    *lane = feed.next();
                    feed.begun += 1;
                } else {
                    busy -= 1;
                    lanes.swap(at, busy);
                    continue;
                }
                chains_of(lane.file).prefetch(lane.position);
                at += 1;
            }
        }
        places += fresh;
    }
    *filled = places;
}
