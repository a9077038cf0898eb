//! Many walks at a time: how a batch of lookups does not wait for memory.
//!
//! A lookup is a chain of reads, each at an address that the one before brought: slot, newest entry, the one before
//! it... In a large file every one of them misses the caches, and the processor waits some hundred nanoseconds to do
//! ten instructions. One walk cannot be made faster. But memory answers tens of requests at a time, so the way out is
//! to have tens of walks under way (AMAC, "asynchronous memory access chaining": Kocberber, Falsafi, Grot, VLDB 2015):
//!
//! ```text
//! for ever:
//!     for each of the 48 lanes:
//!         read the entry that was asked for one turn ago   (it has come meanwhile)
//!         note its offset if the hash is the right one
//!         ask for the entry before it, or, at the end of the chain, for the first entry of the next key's chain
//! ```
//!
//! "To ask" is a prefetch: an instruction that starts a read and does not wait. What makes it fast beyond that:
//!
//! - **Slots are resolved ahead** ([`Feed`]), a block at a time, in two steps: while the lanes work, the slots of one
//!   block are asked for; a block later they are read and the first entries asked for. So a lane does one thing only,
//!   going from entry to entry, and a walk that ended is replaced by one that is ready.
//! - **No branch depends on what an entry holds.** Whether it is a match and whether the chain ends here is as good as
//!   random, and a processor that guesses wrong throws away the work on the lanes after this one. So every entry is
//!   written to the next place of the output, which moves on only after a match; and a lane takes its next state from
//!   two, the next entry or the next key, by a conditional move.
//! - **A link is checked without a division.** A chain holds keys of one slot only, so the hash of an entry and the hash
//!   asked for differ by a multiple of the slots S. With M = ceil(2^64 / S), d is a multiple of S exactly when d * M,
//!   cut to 64 bits, is below M (Lemire, Kaser, Kurz: "Faster remainder by direct computation", 2019).
//! - **Files stand in a row.** A piece of work is a key and a file, so that the lanes are full even for one key, if
//!   there are many files.
//!
//! Whatever looks wrong, an entry that does not belong or a link that does not go down, is not looked into here: the
//! row is noted as doubtful, and the plain walk (`select`) answers it from the start. So these lanes know sound files
//! only, and the plain walk is what they are tested against.

#![expect(clippy::inline_always, reason = "a call costs more than what it does")]
#![expect(clippy::needless_bitwise_bool, reason = "no branches: see above")]

use std::hint::select_unpredictable;

use super::hits::{Chunk, DOUBTFUL, Found};
use super::select::TimeWindow;
use crate::hash_index::format::geometry::{ENTRY_LEN, Geometry};
use crate::io::Words;

/// Walks under way. More bring nothing: a core cannot wait for more lines than that.
const LANES: usize = 48;
/// Keys whose slots are asked for together.
const BLOCK: usize = 32;
/// Walks that can be ready to begin: those that fill the lanes once, and a block.
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
    /// Where entry 0 begins, in words.
    entries: usize,
    /// A slot leads to an entry below.
    present: u32,
    /// M of the module's text; 0 takes every hash.
    multiple: u64,
    window: TimeWindow,
}

impl<'a> Chains<'a> {
    /// `present`: entries that can be read, entry 0 included. `any_hash`: whether a chain may hold keys of other slots.
    pub(crate) fn new(words: Words<'a>, geometry: Geometry, present: u32, any_hash: bool, window: TimeWindow) -> Self {
        let multiple = if any_hash { 0 } else { geometry.inverse() };
        let entries = usize::try_from(geometry.entry(0) / WORD).unwrap_or(usize::MAX);
        Self { words, geometry, entries, present, multiple, window }
    }

    fn slot_at(&self, key_hash: i32) -> usize {
        usize::try_from(self.geometry.slot(self.geometry.slot_of(key_hash)) / WORD).unwrap_or(usize::MAX)
    }

    #[inline(always)]
    fn entry_at(&self, position: u32) -> usize {
        self.entries + ENTRY_WORDS * position as usize
    }

    /// A quarter of the entries lie on two lines.
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
    /// Matches still wanted; never 0 while the walk goes on.
    room: u32,
}

/// What an entry says to a walk.
struct Step {
    phy_offset: i64,
    is_match: bool,
    ends: bool,
    /// Position of the entry before; 0 = none.
    before: u32,
    /// False when the entry cannot be true.
    sound: bool,
}

#[inline(always)]
fn step<const TIMED: bool>(chains: &Chains<'_>, walk: Walk) -> Step {
    // Inside the map, because positions only fall; read as zeros it would not be sound.
    let [hash, high, low, time_diff, before] =
        chains.words.copy::<ENTRY_WORDS>(chains.entry_at(walk.position)).unwrap_or([u32::MAX; _]);
    let apart = hash.abs_diff(walk.key_hash);
    let belongs = u64::from(apart).wrapping_mul(chains.multiple) <= chains.multiple.wrapping_sub(1);
    let not_negative = (hash | time_diff) >> 31 == 0;
    let sound = belongs & not_negative & (before < walk.position);
    let (in_time, too_old) = if TIMED { chains.window.judge(walk.position, time_diff) } else { (true, false) };
    let is_match = sound & (apart == 0) & in_time;
    let ends = !sound | too_old | (before == 0) | (walk.room == u32::from(is_match));
    Step { phy_offset: (u64::from(high) << 32 | u64::from(low)).cast_signed(), is_match, ends, before, sound }
}

/// Walks that are ready to begin, and what becomes one: a key and a file, file by file, the newest first.
struct Feed<'f, 'm> {
    files: &'f [Chains<'m>],
    max_num: u32,
    /// The next key and file.
    row: usize,
    file: usize,
    /// Walks whose slots were asked for; `position` is the place of the slot, in words.
    asked: [Walk; BLOCK],
    asked_len: usize,
    /// A ring: `begun` walks of it were taken, `filled` were put in.
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

    /// The walk that begins next; any walk where none is ready.
    #[inline(always)]
    fn next(&self) -> Walk {
        self.ready.get(self.begun % READY).copied().unwrap_or_default()
    }

    /// Sees to it that every lane could begin a walk in one turn, unless the keys come to an end.
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
                        room: self.max_num.saturating_sub(count),
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

/// Walks the chains of every key of the chunk in every file, newest first, and notes what is found.
///
/// `first_file`: the place of the first file among all that are asked; `many`: whether these are several. Then a row for
/// which newer files gave `max_num` is not asked for in older ones.
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
                lane.room = select_unpredictable(step.ends, next.room, lane.room - u32::from(step.is_match));
                if MANY {
                    lane.file = select_unpredictable(step.ends, next.file, lane.file);
                }
                chains_of(lane.file).prefetch(lane.position);
            }
        } else {
            // The last keys: a lane whose walk ended takes what is left, or stands still.
            let mut at = 0;
            while at < busy
                && let Some(lane) = lanes.get_mut(at)
            {
                let step = visit(*lane, chains_of(lane.file));
                if !step.ends {
                    lane.position = step.before;
                    lane.room -= u32::from(step.is_match);
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
