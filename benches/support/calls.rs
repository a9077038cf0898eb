//! How the benches call the library: puts and lookups in batches, by one thread or several.

use std::path::Path;

use logdex::hash_index::{IndexFile, KeySource, PutColumns};
use logdex::time_range::TimeRange;

use super::files::{geometry, options};
use super::keys::{Columns, Rows};

/// Creates a file that is full with `held`; with `prepared` its pages are there before the first put.
pub(crate) fn create(path: &Path, held: usize, _prepared: bool) -> IndexFile {
    IndexFile::create(path, options(geometry(held))).expect("a directory that takes a file")
}

/// Puts everything, `batch` rows a call; returns how many were taken.
pub(crate) fn put(file: &IndexFile, columns: &Columns, batch: usize, _threads: usize) -> usize {
    let mut taken = 0;
    columns.batches(batch, |rows: &PutColumns<'_, Rows<'_>>| taken += file.put_batch(rows, 0).expect("writable"));
    taken
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
pub(crate) fn select(file: &IndexFile, keys: Rows<'_>, batch: usize, max_num: usize, threads: usize) -> Found {
    let share = keys.len().div_ceil(threads);
    std::thread::scope(|scope| {
        let asking: Vec<_> =
            keys.chunks(share).map(|share| scope.spawn(move || select_here(file, share, batch, max_num))).collect();
        asking.into_iter().map(|thread| thread.join().expect("no panic")).fold(Found::default(), Found::and)
    })
}

fn select_here(file: &IndexFile, keys: Rows<'_>, batch: usize, max_num: usize) -> Found {
    let mut found = Found::default();
    let mut hashes = vec![0; batch];
    for rows in keys.chunks(batch) {
        let (hashes, _) = hashes.split_at_mut(rows.len());
        rows.hash_block(0, hashes);
        file.select_batch(hashes.iter().copied(), Some(max_num), TimeRange::ALL, |hits| {
            found.count += hits.len() as u64;
            found.sum = hits.iter().fold(found.sum, |sum, &offset| sum.wrapping_add(offset));
        })
        .expect("readable");
    }
    found
}
