//! The cache of blocks of remote files, and reading ahead.
//!
//! A request costs some ten milliseconds for any number of bytes, so there are two ways to read:
//!
//! - **Look-ups** read blocks of [`BLOCK`] bytes, which stay in a cache. A caller that can name its next reads does so first
//!   ([`Cache::expect`]); the first read that has to wait then requests all of them together, and ranges that are closer than
//!   [`NEAR`] are one request. So a batch of look-ups goes in rounds, each as long as one request.
//! - **Scans** read one range after the other. From the second such read on, windows of up to [`WINDOW`] bytes are read
//!   ahead, first few, then up to [`MOST_AHEAD`] at a time, and at most [`MOST_BYTES`] in the process.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use lru::LruCache;

use super::client::{Client, Session, client, lock};
use super::failure::Failure;
use super::object::Object;
use super::objects::Objects;
use crate::io::usize_of;

/// Bytes of a block of the cache.
const BLOCK: u64 = 64 << 10;
/// Blocks in the cache: 64 MiB.
const MOST_BLOCKS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
/// Ranges that are closer than this are one request.
const NEAR: u64 = 1 << 20;
/// The longest request.
const WINDOW: u64 = 8 << 20;
/// The first window of a scan.
const FIRST_WINDOW: u64 = 1 << 20;
/// Windows that are read ahead of a scan.
const MOST_AHEAD: usize = 16;
/// Bytes of all windows.
const MOST_BYTES: u64 = 256 << 20;
/// Reads of this many bytes, one after the other, are a scan. A file of at most this many bytes is read whole.
const LONG_READ: u64 = 256 << 10;
/// Blocks that are requested together: fewer than the cache holds, so that they are still there when they are read.
const MOST_TOGETHER: usize = MOST_BLOCKS.get() / 2;
/// Reads that are noted. Further ones are not worth the memory.
const MOST_EXPECTED: usize = 1 << 16;
/// Scans of one handle; its threads may read several parts.
const MOST_SCANS: usize = 8;
/// Bytes after a scan that are kept for its other threads.
const KEPT_BEHIND: u64 = 2 * WINDOW;

/// Requested bytes; each waiting thread gets them.
type Coming = Shared<BoxFuture<'static, Result<Bytes, Failure>>>;

/// A request for a part of a file.
#[derive(Clone, Debug)]
struct Part {
    begin: u64,
    end: u64,
    requested: Instant,
    bytes: Coming,
}

/// A window of a scan, which counts against [`MOST_BYTES`] as long as it is kept.
#[derive(Debug)]
struct Window(Part);

static WINDOW_BYTES: AtomicU64 = AtomicU64::new(0);

impl Window {
    fn new(part: Part) -> Self {
        WINDOW_BYTES.fetch_add(part.end - part.begin, Ordering::Relaxed);
        Self(part)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        WINDOW_BYTES.fetch_sub(self.0.end - self.0.begin, Ordering::Relaxed);
    }
}

/// One range after the other.
#[derive(Debug, Default)]
struct Scan {
    /// The end of the last read.
    next: u64,
    /// Bytes of the reads that followed each other.
    bytes: u64,
    windows: VecDeque<Window>,
    /// Length of the last window.
    window: u64,
    ahead: usize,
}

/// A block of a file.
type Place = (Arc<Object>, u64);

/// Bytes of a file, and where they begin.
pub(super) type Held = (u64, Bytes);

/// The cached blocks, and the requested ones.
#[derive(Debug)]
pub(super) struct Blocks {
    held: LruCache<Place, Bytes>,
    coming: HashMap<Place, Part>,
    /// Reads that will follow. A store is not kept for them.
    expected: VecDeque<(Weak<Session>, Arc<Object>, Range<u64>)>,
    scans: HashMap<u64, Vec<Scan>>,
}

impl Default for Blocks {
    fn default() -> Self {
        let held = LruCache::new(MOST_BLOCKS);
        Self { held, coming: HashMap::new(), expected: VecDeque::new(), scans: HashMap::new() }
    }
}

impl Blocks {
    fn has(&self, place: &Place) -> bool {
        self.held.contains(place) || self.coming.contains_key(place)
    }
}

/// The blocks of a range.
fn blocks(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK..range.end.div_ceil(BLOCK)
}

/// The blocks that one client read. A process that was forked has its own.
pub(super) struct Cache {
    client: Arc<Client>,
    blocks: Mutex<Blocks>,
}

static CACHE: ArcSwapOption<Cache> = ArcSwapOption::const_empty();

/// Returns the cache of this process.
pub(super) fn cache() -> io::Result<Arc<Cache>> {
    let client = client()?;
    let held = CACHE.load_full();
    if let Some(cache) = held.as_ref().filter(|cache| Arc::ptr_eq(&cache.client, &client)) {
        return Ok(Arc::clone(cache));
    }
    let new = Arc::new(Cache { client, blocks: Mutex::default() });
    let before = CACHE.compare_and_swap(&held, Some(Arc::clone(&new)));
    // What the parent of this process requested never comes here, and its threads may have left a lock held.
    std::mem::forget(held);
    match before.as_ref() {
        // Another thread was faster.
        Some(other) if Arc::ptr_eq(&other.client, &new.client) => Ok(Arc::clone(other)),
        _ => Ok(new),
    }
}

impl Cache {
    /// Returns whether a byte can be read without a request.
    pub(super) fn holds(&self, object: &Arc<Object>, offset: u64) -> bool {
        lock(&self.blocks).held.contains(&(Arc::clone(object), offset / BLOCK))
    }

    /// Takes note of a read that will follow. A range as long as the cache is not worth it.
    pub(super) fn expect(&self, session: &Arc<Session>, object: &Arc<Object>, range: Range<u64>) {
        if range.end.saturating_sub(range.start) <= MOST_BLOCKS.get() as u64 * BLOCK / 2 {
            let mut state = lock(&self.blocks);
            if state.expected.len() < MOST_EXPECTED {
                state.expected.push_back((Arc::downgrade(session), Arc::clone(object), range));
            }
        }
    }

    /// Forgets what was read ahead for a handle that is closed.
    pub(super) fn forget(handle: u64) {
        let held = CACHE.load_full().filter(|cache| cache.client.is_of_this_process());
        if let Some(cache) = held {
            let scans = lock(&cache.blocks).scans.remove(&handle);
            drop(scans);
        }
    }

    /// Reads a range that the object has. Returns the block around a short one, with the place where it begins.
    pub(super) fn read(
        self: &Arc<Self>,
        store: &Objects,
        object: &Arc<Object>,
        handle: u64,
        buf: &mut [u8],
        offset: u64,
    ) -> io::Result<Option<Held>> {
        let range = offset..offset + buf.len() as u64;
        if range.is_empty() {
            return Ok(None);
        }
        if range.end - range.start < LONG_READ
            && let Some(held) = self.copy_held(object, &range, buf)
        {
            return Ok(Some(held));
        }
        let (session, began) = (store.session()?, Instant::now());
        let mut parts = self.parts(&session, object, handle, &range)?;
        let mut last = None;
        while let Some(part) = parts.pop_front() {
            match session.wait(part.bytes.clone())? {
                Ok(bytes) => {
                    copy(&bytes, part.begin, buf, offset);
                    last = Some((part.begin, bytes));
                }
                // The failure of an earlier read's request is not this read's: it makes its own.
                Err(_) if part.requested < began => parts = self.parts(&session, object, handle, &range)?,
                Err(failure) => return Err(failure.into()),
            }
        }
        // A copy: a slice would keep a window in memory.
        let around = last.filter(|_| range.end - range.start < BLOCK).and_then(|(begin, bytes)| {
            let from = usize::try_from(offset.checked_sub(begin)?).ok()?;
            let to = bytes.len().min(from.saturating_add(usize::try_from(BLOCK).ok()?));
            Some((offset, Bytes::copy_from_slice(bytes.get(from..to)?)))
        });
        Ok(around)
    }

    /// Returns what holds the range, requested if no earlier read did.
    fn parts(
        self: &Arc<Self>,
        session: &Arc<Session>,
        object: &Arc<Object>,
        handle: u64,
        range: &Range<u64>,
    ) -> io::Result<VecDeque<Part>> {
        let mut parts = self.scan(session, object, handle, range)?;
        if parts.is_empty() {
            parts = self.request_blocks(session, object, range)?;
        }
        Ok(parts.into())
    }

    /// Copies the range if the cache holds all of it. Returns its last block.
    fn copy_held(&self, object: &Arc<Object>, range: &Range<u64>, buf: &mut [u8]) -> Option<Held> {
        let mut state = lock(&self.blocks);
        let places = blocks(range).map(|block| (Arc::clone(object), block));
        let held: Option<Vec<Held>> =
            places.map(|place| state.held.get(&place).map(|bytes| (place.1 * BLOCK, bytes.clone()))).collect();
        drop(state);
        let held = held?;
        for (begin, bytes) in &held {
            copy(bytes, *begin, buf, range.start);
        }
        held.into_iter().last()
    }

    /// Requests the missing blocks of a range, together with all that is expected. Returns what holds the range.
    fn request_blocks(
        self: &Arc<Self>,
        session: &Arc<Session>,
        object: &Arc<Object>,
        range: &Range<u64>,
    ) -> io::Result<Vec<Part>> {
        let mut state = lock(&self.blocks);
        let mut wanted: HashMap<Arc<Object>, (Arc<Session>, BTreeSet<u64>)> = HashMap::new();
        let whole = if object.len <= LONG_READ { 0..object.len } else { range.clone() };
        let mut next = Some((Arc::clone(session), Arc::clone(object), whole));
        let mut together = 0;
        while let Some((session, object, range)) = next.take() {
            for block in blocks(&range) {
                let place = (Arc::clone(&object), block);
                let (_, blocks) =
                    wanted.entry(place.0.clone()).or_insert_with(|| (Arc::clone(&session), BTreeSet::new()));
                if !state.has(&place) && blocks.insert(block) {
                    together += 1;
                }
            }
            if together < MOST_TOGETHER {
                let mut expected = std::iter::from_fn(|| state.expected.pop_front());
                next = expected.find_map(|(of, object, range)| Some((of.upgrade()?, object, range)));
            }
        }
        // The others wait in line after the range itself.
        let own = wanted.remove_entry(object);
        for (object, (of, missing)) in own.into_iter().chain(wanted) {
            for run in runs(&missing) {
                let part = self.request(&of, &object, run.start * BLOCK..(run.end * BLOCK).min(object.len), true)?;
                for block in run {
                    state.coming.insert((Arc::clone(&object), block), part.clone());
                }
            }
        }
        let mut parts: Vec<Part> = Vec::new();
        for block in blocks(range) {
            let place = (Arc::clone(object), block);
            if let Some(part) = state.coming.get(&place) {
                parts.push(part.clone());
            } else if let Some(bytes) = state.held.get(&place) {
                let (begin, bytes) = (block * BLOCK, bytes.clone());
                let end = begin + bytes.len() as u64;
                let bytes = async { Ok(bytes) }.boxed().shared();
                parts.push(Part { begin, end, requested: Instant::now(), bytes });
            }
        }
        parts.dedup_by_key(|part| part.begin);
        Ok(parts)
    }

    /// Begins a request. Its blocks go to the cache if it is a look-up's.
    fn request(
        self: &Arc<Self>,
        session: &Session,
        object: &Arc<Object>,
        range: Range<u64>,
        is_cached: bool,
    ) -> io::Result<Part> {
        let fetch = session.fetch(object, range.clone())?;
        let (begin, end, requested) = (range.start, range.end, Instant::now());
        let (cache, object) = (Arc::downgrade(self), Arc::clone(object));
        let task = self.client.runtime.spawn(async move {
            let fetched = fetch.await;
            if let Some(cache) = cache.upgrade().filter(|_| is_cached) {
                cache.keep(&object, &range, fetched.as_ref().ok());
            }
            fetched
        });
        let ended = |task: Result<_, _>| task.unwrap_or_else(|_| Err(Failure::other("the request was given up")));
        Ok(Part { begin, end, requested, bytes: task.map(ended).boxed().shared() })
    }

    /// Moves the blocks of a request that ended to the cache.
    fn keep(&self, object: &Arc<Object>, range: &Range<u64>, bytes: Option<&Bytes>) {
        let mut state = lock(&self.blocks);
        for block in blocks(range) {
            let place = (Arc::clone(object), block);
            state.coming.remove(&place);
            let from = usize_of(block * BLOCK - range.start);
            let to = usize_of(((block + 1) * BLOCK).min(range.end) - range.start);
            // A copy: a slice would keep the whole request in memory.
            if let Some(bytes) = bytes.and_then(|bytes| bytes.get(from..to)) {
                state.held.put(place, Bytes::copy_from_slice(bytes));
            }
        }
    }

    /// The windows of the scan that a read belongs to; none if it belongs to no scan.
    fn scan(
        self: &Arc<Self>,
        session: &Session,
        object: &Arc<Object>,
        handle: u64,
        range: &Range<u64>,
    ) -> io::Result<Vec<Part>> {
        let mut state = lock(&self.blocks);
        let scans = state.scans.entry(handle).or_default();
        let len = range.end - range.start;
        let known = scans.iter().position(|scan| scan.is_continued_by(range));
        let mut scan = known.map_or_else(Scan::default, |at| scans.remove(at));
        scan.bytes = scan.bytes.saturating_add(len);
        // The first read of a range does not predict the next one: most are the only one.
        let is_scan = (known.is_some() && scan.bytes >= LONG_READ) || !scan.windows.is_empty();
        scan.next = range.end;
        let mut parts = Vec::new();
        if is_scan {
            scan.drop_behind(range.start);
            for window in &mut scan.windows {
                if matches!(window.0.bytes.peek(), Some(Err(_))) {
                    *window = Window::new(self.request(session, object, window.0.begin..window.0.end, false)?);
                }
            }
            let mut at = scan.windows.back().map_or(range.start, |window| window.0.end);
            let mut ahead = scan.windows.iter().filter(|window| window.0.begin >= range.end).count();
            if ahead < scan.ahead || scan.ahead == 0 {
                // It came as far as the windows of the last time.
                scan.ahead = (scan.ahead * 2).clamp(1, MOST_AHEAD);
            }
            while at < object.len {
                let is_needed = at < range.end;
                if !is_needed && (ahead >= scan.ahead || WINDOW_BYTES.load(Ordering::Relaxed) + WINDOW > MOST_BYTES) {
                    break;
                }
                scan.window = (scan.window * 2).clamp(FIRST_WINDOW, WINDOW);
                let end = (at + scan.window).min(object.len);
                scan.windows.push_back(Window::new(self.request(session, object, at..end, false)?));
                ahead += usize::from(!is_needed);
                at = end;
            }
            parts = scan
                .windows
                .iter()
                .map(|window| &window.0)
                .filter(|part| part.begin < range.end && range.start < part.end)
                .cloned()
                .collect();
        }
        scans.push(scan);
        if scans.len() > MOST_SCANS {
            scans.remove(0);
        }
        Ok(parts)
    }
}

impl Scan {
    fn is_continued_by(&self, range: &Range<u64>) -> bool {
        let windows = self.windows.front().zip(self.windows.back());
        self.next == range.start
            || windows.is_some_and(|(first, last)| (first.0.begin..last.0.end).contains(&range.start))
    }

    fn drop_behind(&mut self, offset: u64) {
        while self.windows.front().is_some_and(|window| window.0.end + KEPT_BEHIND <= offset) {
            self.windows.pop_front();
        }
    }
}

/// Consecutive blocks, with the gaps that are not worth a request of their own.
fn runs(missing: &BTreeSet<u64>) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for &block in missing {
        match runs.last_mut() {
            Some(run) if (block - run.end) * BLOCK < NEAR && (block + 1 - run.start) * BLOCK <= WINDOW => {
                run.end = block + 1;
            }
            _ => runs.push(block..block + 1),
        }
    }
    runs
}

/// Copies the part of `bytes`, which begin at `begin`, that `buf` wants, which begins at `offset`.
fn copy(bytes: &Bytes, begin: u64, buf: &mut [u8], offset: u64) {
    let skip = usize_of(offset.saturating_sub(begin));
    let at = usize_of(begin.saturating_sub(offset));
    let (Some(from), Some(to)) = (bytes.get(skip..), buf.get_mut(at..)) else { return };
    let len = from.len().min(to.len());
    if let (Some(to), Some(from)) = (to.get_mut(..len), from.get(..len)) {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_blocks_are_one_request() {
        let near = NEAR / BLOCK;
        let runs = |blocks: &[u64]| runs(&blocks.iter().copied().collect());
        assert_eq!(runs(&[]), []);
        assert_eq!(runs(&[3, 4, 5]), vec![3..6]);
        assert_eq!(runs(&[3, 3 + near]), vec![3..4 + near]);
        assert_eq!(runs(&[3, 4 + near]), [3..4, 4 + near..5 + near]);
        let long: Vec<u64> = (0..=WINDOW / BLOCK).collect();
        assert_eq!(runs(&long), [0..WINDOW / BLOCK, WINDOW / BLOCK..WINDOW / BLOCK + 1]);
    }

    #[test]
    fn each_part_fills_what_it_holds() {
        let mut buf = [0; 6];
        copy(&Bytes::from_static(b"abcd"), 2, &mut buf, 4);
        copy(&Bytes::from_static(b"efgh"), 6, &mut buf, 4);
        assert_eq!(&buf, b"cdefgh");
    }
}
