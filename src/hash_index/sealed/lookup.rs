//! From key hashes to candidates: one read of one row group for a key, and one pass over the rows for many.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::catalog::{Catalog, KeysFile};
use super::keys_file::Layout;
use super::rows::Row;
use crate::error::{Error, Result};
use crate::hash_index::read::hits::Hits;
use crate::io::remote::{RemoteEntry, RemoteFile, is_remote};
use crate::io::{Access, FileSource, ProcessMutex, ReadAt as _};

/// Keys from which on two threads sort and decode.
const MANY_KEYS: usize = 512;
/// Files of keys that are open.
const MOST_OPEN: usize = 64;

/// The sorted rows of a sealed index, open for lookups.
#[derive(Debug)]
pub struct SealedKeys {
    directory: PathBuf,
    layout: Layout,
    files: Vec<KeysFile>,
    /// Where each row group is: file and number, by its first hash.
    groups: Vec<(i32, usize, usize)>,
    open: ProcessMutex<HashMap<usize, Arc<FileSource>>>,
    reads: AtomicU64,
}

/// The hash of a key above the number of the key, in one word, which sorts faster than a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Asked(u64);

impl Asked {
    fn new(hash: i32, number: u32) -> Option<Self> {
        u32::try_from(hash).ok().map(|hash| Self(u64::from(hash) << 32 | u64::from(number)))
    }

    fn hash(self) -> i32 {
        (self.0 >> 32) as i32
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    fn number(self) -> u32 {
        self.0 as u32
    }
}

/// Keys of a call that one row group may hold.
struct Task {
    group: usize,
    keys: Range<usize>,
}

impl SealedKeys {
    /// Prepares lookups in the files of a catalog, which is in this directory. Nothing is read.
    ///
    /// # Errors
    /// `Corrupt` if row groups are not in the order of their hashes.
    pub fn new(directory: &Path, catalog: &Catalog) -> Result<Self> {
        let of_file = |(number, file): (usize, &KeysFile)| {
            let groups: Vec<i32> = file.groups.iter().map(|group| group.first_key_hash).collect();
            groups.into_iter().enumerate().map(move |(group, first)| (first, number, group))
        };
        let groups: Vec<(i32, usize, usize)> = catalog.keys.iter().enumerate().flat_map(of_file).collect();
        if !groups.is_sorted_by_key(|(first, _, _)| *first) {
            return Err(Error::corrupt(directory, 0, "row groups in the order of their hashes", "another order"));
        }
        Ok(Self {
            directory: directory.to_owned(),
            layout: catalog.layout.clone(),
            files: catalog.keys.clone(),
            groups,
            open: ProcessMutex::default(),
            reads: AtomicU64::new(0),
        })
    }

    /// The columns of the rows.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Row groups that were read.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Number of rows.
    pub fn len(&self) -> u64 {
        self.files.iter().flat_map(|file| &file.groups).map(|group| u64::from(group.rows)).sum()
    }

    /// True without rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `take` with the number of each hash and each row that it has, and returns what it returned: by hash, and of a hash in
    /// the order of the rows. A negative hash has none. If times are not needed, rows come without.
    ///
    /// # Errors
    /// `Corrupt` if a file is not as the catalog says; errors of the system.
    pub fn select<T: Send>(
        &self,
        hashes: &[i32],
        needs_times: bool,
        take: impl Fn(u32, &Row) -> Option<T> + Sync,
    ) -> Result<Vec<T>> {
        Ok(self.select_parts(hashes, needs_times, take)?.into_iter().flatten().collect())
    }

    /// Returns the offsets of the rows of each hash that `accept` takes, one list for each.
    ///
    /// # Errors
    /// As [`Self::select`]; `InvalidArgument` for 2^31 offsets or more.
    pub fn offsets(&self, hashes: &[i32], needs_times: bool, accept: impl Fn(&Row) -> bool + Sync) -> Result<Hits> {
        let found = self.select_parts(hashes, needs_times, |key, row| accept(row).then_some((key, row.offset)))?;
        Hits::of_rows(hashes.len(), found.iter().flatten().copied())
    }

    /// As [`Self::select`], in the parts that threads made.
    fn select_parts<T: Send>(
        &self,
        hashes: &[i32],
        needs_times: bool,
        take: impl Fn(u32, &Row) -> Option<T> + Sync,
    ) -> Result<Vec<Vec<T>>> {
        let keys = hashes.iter().zip(0..).filter_map(|(hash, number)| Asked::new(*hash, number));
        let run = |mut keys: Vec<Asked>| -> Result<Vec<T>> {
            keys.sort_unstable();
            let tasks = self.tasks(&keys);
            for task in &tasks {
                self.expect(task)?;
            }
            let (mut found, mut buffer) = (Vec::with_capacity(keys.len()), Vec::new());
            for task in &tasks {
                self.run(task, &keys, needs_times, &mut buffer, &take, &mut found)?;
            }
            Ok(found)
        };
        if hashes.len() < MANY_KEYS {
            return Ok(vec![run(keys.collect())?]);
        }
        // The rows are spread evenly, and so are most keys.
        let middle = self.groups.get(self.groups.len() / 2).map_or(0, |(first, _, _)| *first);
        let (below, others): (Vec<Asked>, Vec<Asked>) = keys.partition(|key| key.hash() < middle);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| run(others));
            let found = run(below)?;
            Ok(vec![found, other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?])
        })
    }

    /// Passes on all rows in their order, a row group at a time.
    ///
    /// # Errors
    /// As [`Self::select`]; those of `take`.
    pub fn for_each(&self, mut take: impl FnMut(&[Row]) -> Result<()>) -> Result<()> {
        let mut buffer = Vec::new();
        for &(_, file, number) in &self.groups {
            let rows = self.read(file, number, true, &mut buffer, |hashes| (0..hashes.len()).collect())?;
            take(&rows.into_iter().map(|(_, row)| row).collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// The row groups that may hold keys, which are sorted.
    fn tasks(&self, keys: &[Asked]) -> Vec<Task> {
        let mut tasks: Vec<Task> = Vec::new();
        // The first row group that may hold the key: the one before the first that begins with it.
        let mut group = 0;
        for (number, hash) in keys.iter().map(|key| key.hash()).enumerate() {
            let first_of = |group: usize| self.groups.get(group).map(|(first, _, _)| *first);
            while first_of(group + 1).is_some_and(|first| first < hash) {
                group += 1;
            }
            let mut at = group;
            while first_of(at).is_some_and(|first| first <= hash) {
                match tasks.iter_mut().rev().find(|task| task.group <= at) {
                    Some(task) if task.group == at => task.keys.end = number + 1,
                    _ => tasks.push(Task { group: at, keys: number..number + 1 }),
                }
                at += 1;
            }
        }
        tasks
    }

    fn source(&self, number: usize) -> Result<(Arc<FileSource>, PathBuf)> {
        let Some(file) = self.files.get(number) else {
            return Err(Error::corrupt(&self.directory, 0, "a file of keys", "none"));
        };
        let path = self.directory.join(&file.path);
        if let Some(source) = self.open.with(|open| open.get(&number).cloned()) {
            return Ok((source, path));
        }
        let len = u64::try_from(file.size).unwrap_or(0);
        let source = if is_remote(&path) {
            let (modified, etag) = (None, file.etag.clone());
            FileSource::Remote(RemoteFile::known(RemoteEntry { path: path.clone(), len: Some(len), modified, etag }))
        } else {
            FileSource::open(&path, Access::Pread)?
        };
        if source.len() != len {
            let found = format!("{} bytes", source.len());
            return Err(Error::corrupt(&path, len.min(source.len()), format!("{len} bytes, as in the catalog"), found));
        }
        let source = Arc::new(source);
        self.open.with(|open| {
            // A store has more files than a process may have open.
            if open.len() >= MOST_OPEN {
                open.clear();
            }
            open.insert(number, Arc::clone(&source));
        });
        Ok((source, path))
    }

    /// Takes note that a row group will be read.
    fn expect(&self, task: &Task) -> Result<()> {
        if let Some((_, file, number)) = self.groups.get(task.group)
            && let Some(group) = self.files.get(*file).and_then(|file| file.groups.get(*number))
        {
            let (source, _) = self.source(*file)?;
            if source.is_far() {
                source.will_need(group.begin, group.len());
            }
        }
        Ok(())
    }

    fn run<T>(
        &self,
        task: &Task,
        keys: &[Asked],
        needs_times: bool,
        buffer: &mut Vec<u8>,
        take: &impl Fn(u32, &Row) -> Option<T>,
        found: &mut Vec<T>,
    ) -> Result<()> {
        let Some(&(_, file, number)) = self.groups.get(task.group) else { return Ok(()) };
        let mut of_places = Vec::new();
        let rows = self.read(file, number, needs_times, buffer, |hashes| {
            let mut begin = 0;
            let mut places = Vec::new();
            for key in keys.get(task.keys.clone()).unwrap_or_default() {
                let hash = key.hash();
                begin = first_not_below(hashes, begin, hash);
                let equal = hashes.get(begin..).unwrap_or_default().iter().take_while(|each| **each == hash).count();
                places.extend(begin..begin + equal);
                of_places.extend(std::iter::repeat_n(key.number(), equal));
            }
            places
        })?;
        found.extend(rows.iter().zip(of_places).filter_map(|((_, row), key)| take(key, row)));
        Ok(())
    }

    /// Reads a row group into the memory of a buffer, and returns the rows that are wanted.
    fn read(
        &self,
        file: usize,
        number: usize,
        needs_times: bool,
        buffer: &mut Vec<u8>,
        wanted: impl FnOnce(&[i32]) -> Vec<usize>,
    ) -> Result<Vec<(usize, Row)>> {
        let Some(group) = self.files.get(file).and_then(|file| file.groups.get(number)) else { return Ok(Vec::new()) };
        let (source, path) = self.source(file)?;
        let end = group.begin.checked_add(group.len());
        if end.is_none_or(|end| end > source.len()) {
            return Err(Error::corrupt(&path, group.begin, "a row group of the catalog", "the end of the file"));
        }
        let mut bytes = std::mem::take(buffer);
        bytes.resize(usize::try_from(group.len()).unwrap_or(0), 0);
        source.read_exact_at(&mut bytes, group.begin).map_err(|e| Error::io(&path, e))?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        let bytes = Bytes::from(bytes);
        let rows = group.rows(&path, &self.layout, &bytes, needs_times, wanted);
        *buffer = bytes.try_into_mut().map(Vec::from).unwrap_or_default();
        rows
    }
}

/// The first place from `begin` on with a hash that is not below this one.
fn first_not_below(hashes: &[i32], begin: usize, hash: i32) -> usize {
    let mut at = begin;
    // Of many keys the next one is near. To count in a piece of fixed size are some vector instructions, without a branch.
    while let Some(piece) = hashes.get(at..).and_then(<[i32]>::first_chunk::<64>) {
        let below = piece.iter().filter(|each| **each < hash).count();
        at += below;
        if below < piece.len() {
            return at;
        }
    }
    at + hashes.get(at..).unwrap_or_default().partition_point(|each| *each < hash)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::hash_index::sealed::keys_file;
    use crate::hash_index::sealed::rows::{NO_TIME, Rows};

    /// Rows of which one hash fills several row groups.
    fn sealed(directory: &Path) -> (Vec<Row>, SealedKeys) {
        let row = |number: i32| Row {
            key_hash: if number % 2 == 0 { 500_000_000 } else { number.wrapping_mul(92_821) & i32::MAX },
            part: 0,
            offset: i64::from(number),
            time: if number % 3 == 0 { NO_TIME } else { i64::from(number) },
        };
        let given: Vec<Row> = (0..150_000).map(row).collect();
        let mut rows = Rows::new(directory);
        rows.push(&given).unwrap();
        let keys = rows
            .write(2, |number, pieces| {
                let (bytes, groups) = keys_file::encode(&Layout::OneLog, pieces)?;
                let path = format!("{number}.parquet");
                std::fs::write(directory.join(&path), &bytes).unwrap();
                Ok(KeysFile { path, size: i64::try_from(bytes.len()).unwrap(), etag: None, groups })
            })
            .unwrap();
        assert!(keys.len() > 1);
        let catalog = Catalog { layout: Layout::OneLog, files: Vec::new(), keys, notes: BTreeMap::new() };
        (given, SealedKeys::new(directory, &catalog).unwrap())
    }

    #[test]
    fn a_lookup_finds_each_row_of_its_hash_newest_first() {
        let directory = tempfile::tempdir().unwrap();
        let (given, keys) = sealed(directory.path());
        let mut hashes: Vec<i32> = given.iter().step_by(701).map(|row| row.key_hash).collect();
        hashes.extend([0, i32::MAX, -1, 500_000_000, 500_000_001, 499_999_999]);
        let expected: Vec<Vec<i64>> = hashes
            .iter()
            .map(|hash| given.iter().rev().filter(|row| row.key_hash == *hash).map(|row| row.offset).collect())
            .collect();
        let all = keys.offsets(&hashes, false, |_| true).unwrap();
        assert_eq!(all.rows().map(<[i64]>::to_vec).collect::<Vec<_>>(), expected);
        for (hash, expected) in hashes.iter().zip(&expected) {
            let one = keys.offsets(&[*hash], true, |_| true).unwrap();
            assert_eq!(one.phy_offsets(), expected);
        }
        let early = keys.offsets(&[500_000_000], true, |row| row.time != NO_TIME && row.time < 10).unwrap();
        assert_eq!(early.phy_offsets(), [8, 4, 2]);
    }

    #[test]
    fn a_lookup_of_one_key_reads_one_row_group() {
        let directory = tempfile::tempdir().unwrap();
        let (given, keys) = sealed(directory.path());
        let lookups = given.iter().filter(|row| row.key_hash != 500_000_000).step_by(97);
        let mut count = 0;
        for row in lookups {
            assert!(keys.offsets(&[row.key_hash], false, |_| true).unwrap().phy_offsets().contains(&row.offset));
            count += 1;
        }
        // A key that may begin in one group and end in the next reads both.
        assert!(keys.reads() <= count + 2, "{} reads of {count} lookups", keys.reads());
    }

    #[test]
    fn a_damaged_or_short_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let (given, keys) = sealed(directory.path());
        let catalog =
            Catalog { layout: Layout::OneLog, files: Vec::new(), keys: keys.files.clone(), notes: BTreeMap::new() };
        for file in &keys.files {
            let path = directory.path().join(&file.path);
            let mut bytes = std::fs::read(&path).unwrap();
            for group in &file.groups {
                bytes[usize::try_from(group.begin + group.len() / 2).unwrap()] ^= 1;
            }
            std::fs::write(&path, bytes).unwrap();
        }
        let damaged = SealedKeys::new(directory.path(), &catalog).unwrap();
        assert!(matches!(damaged.offsets(&[given[1].key_hash], false, |_| true), Err(Error::Corrupt { .. })));
        let path = directory.path().join(&keys.files[0].path);
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(100).unwrap();
        let short = SealedKeys::new(directory.path(), &catalog).unwrap();
        let hash = keys.files[0].groups[0].first_key_hash;
        assert!(matches!(short.offsets(&[hash], false, |_| true), Err(Error::Corrupt { .. })));
    }
}
