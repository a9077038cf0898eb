//! How the benches call the library: puts and lookups in batches, by one thread or several.

use std::path::Path;

use logdex::hash_index::{Hits, IndexFile, Kernel, KeySource, Prepared, PutColumns, TextKeys};
use logdex::time_range::TimeRange;

use super::files::{geometry, options};
use super::keys::Columns;

/// Creates a file that is full with `held`; with `prepared` its pages are there before the first put.
pub(crate) fn create(path: &Path, held: usize, prepared: bool) -> IndexFile {
    let options = options(geometry(held));
    if prepared {
        let directory = path.parent().expect("a file lies in a directory");
        let mut next = Prepared::start(directory, options.geometry, options.access).expect("a thread");
        return next.publish(path, options).expect("room on the disk").expect("files without a name are known here");
    }
    IndexFile::create(path, options).expect("a directory that takes a file")
}

/// Keys that a kernel of choice hashes.
struct Forced<'a>(TextKeys<'a>, Kernel);

impl KeySource for Forced<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn hash_block(&self, start: usize, hashes: &mut [i32]) {
        self.0.hash_with(self.1, start, hashes);
    }
}

/// Puts everything, `batch` rows a call; returns how many were taken.
pub(crate) fn put(file: &IndexFile, columns: &Columns, batch: usize, _threads: usize) -> usize {
    columns.batches(batch).map(|rows| file.put_batch(&rows.columns(), 0).expect("writable")).sum()
}

/// Puts everything in one call, the keys hashed by a kernel of choice.
pub(crate) fn put_with(kernel: Kernel, file: &IndexFile, columns: &Columns) -> usize {
    let keys = Forced(columns.keys.all(), kernel);
    let (phy_offsets, store_timestamps) = columns.numbers();
    file.put_batch(&PutColumns { keys: &keys, phy_offsets, store_timestamps }, 0).expect("writable")
}

/// How many candidates were found, and the sum of their offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Candidates.
    pub(crate) count: u64,
    /// Of their offsets, wrapping.
    pub(crate) sum: i64,
}

impl Found {
    fn and(self, other: Self) -> Self {
        Self { count: self.count + other.count, sum: self.sum.wrapping_add(other.sum) }
    }
}

/// Asks for all keys, `batch` a call, the calls shared out among `threads`.
pub(crate) fn select(file: &IndexFile, keys: TextKeys<'_>, batch: usize, max_num: usize, threads: usize) -> Found {
    let share = keys.len().div_ceil(threads);
    std::thread::scope(|scope| {
        let shares = (0..keys.len()).step_by(share).map(|first| first..keys.len().min(first + share));
        let asking: Vec<_> = shares
            .map(|rows| {
                scope.spawn(move || {
                    let mut found = Found::default();
                    let mut hits = Hits::new();
                    for first in rows.clone().step_by(batch) {
                        let some = first..rows.end.min(first + batch);
                        hits.clear();
                        file.select_batch(&keys, some, Some(max_num), TimeRange::ALL, &mut hits).expect("readable");
                        let offsets = hits.phy_offsets();
                        let sum = offsets.iter().fold(0, |sum: i64, &offset| sum.wrapping_add(offset));
                        found = found.and(Found { count: offsets.len() as u64, sum });
                    }
                    found
                })
            })
            .collect();
        asking.into_iter().map(|thread| thread.join().expect("no panic")).fold(Found::default(), Found::and)
    })
}
