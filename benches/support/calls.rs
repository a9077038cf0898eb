//! Calls of the library in the benches: puts and lookups in batches, by one thread or several.

use std::ops::Range;
use std::path::Path;

use logdex::hash_index::{Hits, IndexFile, Kernel, KeySource, Prepared, PutColumns, TextKeys, key_hash};
use logdex::time_range::TimeRange;

use super::files::{geometry, options};
use super::keys::{Batch, Columns, Keys};

/// Creates a file that `held` entries fill; with `prepared` its pages exist before the first put.
pub(crate) fn create(path: &Path, held: usize, prepared: bool) -> IndexFile {
    let options = options(geometry(held));
    if prepared {
        let directory = path.parent().expect("a file lies in a directory");
        let mut next = Prepared::start(directory, options.geometry, options.access);
        return next.publish(path, options).expect("space on the disk").expect("files without a name are known here");
    }
    IndexFile::create(path, options).expect("a directory that takes a file")
}

/// Keys that the chosen kernel hashes.
struct Forced<'a>(TextKeys<'a>, Kernel);

impl KeySource for Forced<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn hash_block(&self, start: usize, hashes: &mut [i32]) {
        self.0.hash_with(self.1, start, hashes);
    }
}

/// Puts all rows, `batch` rows in each call and with `threads` threads; returns how many were put.
pub(crate) fn put(file: &IndexFile, columns: &Columns, batch: usize, threads: usize) -> usize {
    let take = |rows: Batch<'_>| file.put_batch_threads(&rows.columns(), 0, threads).expect("writable");
    columns.batches(batch).map(take).sum()
}

/// Puts all rows in one call; the chosen kernel hashes the keys.
pub(crate) fn put_with(kernel: Kernel, file: &IndexFile, columns: &Columns) -> usize {
    let keys = Forced(columns.keys.all(), kernel);
    let (phy_offsets, store_timestamps) = columns.numbers();
    file.put_batch(&PutColumns { keys: &keys, phy_offsets, store_timestamps }, 0).expect("writable")
}

/// Puts all rows, one in each call; returns how many were put.
pub(crate) fn put_one_by_one(file: &IndexFile, columns: &Columns) -> usize {
    let (phy_offsets, store_timestamps) = columns.numbers();
    let rows = columns.keys.iter().zip(phy_offsets).zip(store_timestamps);
    rows.filter(|((key, phy_offset), time)| file.put_key(key, **phy_offset, **time).expect("writable")).count()
}

/// The number of candidates found, and the sum of their offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Candidates.
    pub(crate) count: u64,
    /// Of their offsets, wrapping.
    pub(crate) sum: i64,
}

impl Found {
    fn of(offsets: &[i64]) -> Self {
        Self { count: offsets.len() as u64, sum: offsets.iter().fold(0, |sum, &offset| sum.wrapping_add(offset)) }
    }

    fn and(self, other: Self) -> Self {
        Self { count: self.count + other.count, sum: self.sum.wrapping_add(other.sum) }
    }
}

/// Looks all keys up, `batch` in each call, divided among `threads`.
pub(crate) fn select(file: &IndexFile, keys: TextKeys<'_>, batch: usize, max_num: usize, threads: usize) -> Found {
    let share = keys.len().div_ceil(threads);
    let shares = (0..keys.len()).step_by(share).map(|first| first..keys.len().min(first + share));
    std::thread::scope(|scope| {
        let asking: Vec<_> =
            shares.map(|rows| scope.spawn(move || select_rows(file, keys, rows, batch, max_num))).collect();
        asking.into_iter().map(|thread| thread.join().expect("no panic")).fold(Found::default(), Found::and)
    })
}

fn select_rows(file: &IndexFile, keys: TextKeys<'_>, rows: Range<usize>, batch: usize, max_num: usize) -> Found {
    let mut found = Found::default();
    let mut hits = Hits::new();
    for first in rows.clone().step_by(batch) {
        hits.clear();
        let some = first..rows.end.min(first + batch);
        file.select_batch(&keys, some, Some(max_num), TimeRange::ALL, &mut hits).expect("readable");
        found = found.and(Found::of(hits.phy_offsets()));
    }
    found
}

/// Looks all keys up, one in each call.
pub(crate) fn select_one_by_one(file: &IndexFile, keys: &Keys, max_num: usize) -> Found {
    let mut found = Found::default();
    for key in keys.iter() {
        let (offsets, _) = file.select(key_hash(key), Some(max_num), TimeRange::ALL).expect("readable");
        found = found.and(Found::of(&offsets));
    }
    found
}
