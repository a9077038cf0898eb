//! From key hashes to candidates: one read of one row group for a key, and one pass over the row groups for many.

use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::catalog::{Catalog, KeysFile};
use super::keys_file::{Decoder, Group, Layout};
use super::rows::Row;
use crate::error::{Error, Result};
use crate::hash_index::read::hits::Hits;
use crate::io::remote::{RemoteEntry, RemoteFile};
use crate::io::{Access, FileSource, Location, ProcessMutex, ReadAt, usize_of};

/// Keys from which on two threads sort and decode.
const MANY_KEYS: usize = 512;
/// Keys that are sorted together.
const BUCKET: usize = 64;
/// Row groups of one read.
const GROUPS_PER_READ: usize = 16;
/// Row groups of a file that show whether the file is in memory.
const SAMPLES: usize = 4;
/// Bytes that the disk reads in order in the time of one row group elsewhere.
const BYTES_A_GROUP: u64 = 32 * 1024;
/// Files of keys that are open.
const MOST_OPEN: usize = 64;

/// The sorted rows of a sealed index, open for lookups.
#[derive(Debug)]
pub struct SealedKeys {
    directory: Location,
    layout: Layout,
    files: Vec<KeysFile>,
    /// The first hash of each row group, ascending.
    firsts: Vec<i32>,
    /// The place of each row group: file, and number in it.
    places: Vec<(usize, usize)>,
    open: ProcessMutex<HashMap<usize, Arc<FileSource>>>,
    reads: AtomicU64,
}

/// The hash of a key above the number of the key, in one word, which sorts faster than a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct NumberedHash(u64);

impl NumberedHash {
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

/// Sorts the hashes of a range, each with its number. The first bits choose a bucket, in which sorting needs few steps.
fn sorted(hashes: &[i32], range: RangeInclusive<i32>) -> Vec<NumberedHash> {
    let keys = || hashes.iter().zip(0..).filter(|(hash, _)| range.contains(hash));
    let keys = || keys().filter_map(|(hash, number)| NumberedHash::new(*hash, number));
    if hashes.len() < MANY_KEYS {
        let mut sorted: Vec<NumberedHash> = keys().collect();
        sorted.sort_unstable();
        return sorted;
    }
    let bits = (hashes.len() / BUCKET).max(2).ilog2().min(14);
    let bucket = |key: NumberedHash| usize_of(key.0 >> (63 - bits));
    let mut begins = vec![0usize; (1 << bits) + 1];
    keys().for_each(|key| {
        if let Some(count) = begins.get_mut(bucket(key) + 1) {
            *count += 1;
        }
    });
    let mut sum = 0;
    for begin in &mut begins {
        sum += *begin;
        *begin = sum;
    }
    let mut sorted = vec![NumberedHash(0); sum];
    let mut next = begins.clone();
    keys().for_each(|key| {
        if let Some(at) = next.get_mut(bucket(key)) {
            if let Some(place) = sorted.get_mut(*at) {
                *place = key;
            }
            *at += 1;
        }
    });
    let mut rest = sorted.as_mut_slice();
    for range in begins.windows(2) {
        let [begin, end] = range else { continue };
        let (held, after) = std::mem::take(&mut rest).split_at_mut(end - begin);
        held.sort_unstable();
        rest = after;
    }
    sorted
}

/// Keys of a call that one row group may hold.
struct Task {
    group: usize,
    keys: Range<usize>,
}

/// The memory of one pass over row groups.
#[derive(Default)]
struct Buffers {
    bytes: Vec<u8>,
    decoder: Decoder,
}

impl SealedKeys {
    /// Prepares lookups in the files of a catalog, which is in this directory. Nothing is read.
    ///
    /// # Errors
    /// `Corrupt` if row groups are not in the order of their hashes.
    pub fn new(directory: &Location, catalog: &Catalog) -> Result<Self> {
        let files = catalog.keys.clone();
        let firsts: Vec<i32> = files.iter().flat_map(|file| &file.groups).map(|group| group.first_key_hash).collect();
        if !firsts.is_sorted() {
            return Err(Error::corrupt(directory, 0, "row groups in the order of their hashes", "another order"));
        }
        let places = files.iter().enumerate().flat_map(|(file, held)| (0..held.groups.len()).map(move |at| (file, at)));
        Ok(Self {
            directory: directory.to_owned(),
            layout: catalog.layout.clone(),
            places: places.collect(),
            firsts,
            files,
            open: ProcessMutex::default(),
            reads: AtomicU64::new(0),
        })
    }

    /// The columns of the rows.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Row groups of all files.
    pub fn groups(&self) -> usize {
        self.places.len()
    }

    /// Row groups that were read.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Returns the offsets of the rows of each hash that `accept` takes, one list for each.
    ///
    /// # Errors
    /// As [`Self::select`]; `InvalidArgument` for 2^31 offsets or more.
    pub fn offsets(&self, hashes: &[i32], needs_times: bool, accept: impl Fn(&Row) -> bool + Sync) -> Result<Hits> {
        let found = self.select(hashes, needs_times, |key, row| accept(row).then_some((key, row.offset)))?;
        Hits::of_rows(hashes.len(), found.iter().flatten().copied())
    }

    /// Calls `take` with the number of each hash and each row that it has, and returns what it returned, in the parts that threads
    /// made: by hash, and of a hash in the order of the rows. A negative hash has none. If times are not needed, rows come without.
    ///
    /// # Errors
    /// `Corrupt` if a file differs from its row in the catalog; an I/O error.
    pub fn select<T: Send>(
        &self,
        hashes: &[i32],
        needs_times: bool,
        take: impl Fn(u32, &Row) -> Option<T> + Sync,
    ) -> Result<Vec<Vec<T>>> {
        let run = |range: RangeInclusive<i32>| -> Result<Vec<T>> {
            let keys = sorted(hashes, range);
            let tasks = self.tasks(&keys);
            self.expect(&tasks)?;
            let (mut found, mut buffers) = (Vec::with_capacity(keys.len()), Buffers::default());
            for tasks in tasks.chunk_by(|before, after| self.is_next(before.group, after.group)) {
                for tasks in tasks.chunks(GROUPS_PER_READ) {
                    self.run(tasks, &keys, needs_times, &mut buffers, &take, &mut found)?;
                }
            }
            Ok(found)
        };
        if hashes.len() < MANY_KEYS {
            return Ok(vec![run(0..=i32::MAX)?]);
        }
        // The rows are spread evenly, and so are most keys.
        let middle = self.firsts.get(self.firsts.len() / 2).map_or(0, |first| *first);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| run(middle..=i32::MAX));
            let found = run(0..=middle.saturating_sub(1))?;
            Ok(vec![found, other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?])
        })
    }

    /// Passes on all rows in their order, a row group at a time.
    ///
    /// # Errors
    /// As [`Self::select`]; those of `take`.
    pub fn for_each(&self, mut take: impl FnMut(&[Row]) -> Result<()>) -> Result<()> {
        let (mut buffers, mut rows) = (Buffers::default(), Vec::new());
        let all: Vec<Task> = (0..self.places.len()).map(|group| Task { group, keys: 0..0 }).collect();
        for tasks in all.chunk_by(|before, after| self.is_next(before.group, after.group)) {
            for tasks in tasks.chunks(GROUPS_PER_READ) {
                let every = |_: &Task, hashes: &[i32], wanted: &mut Vec<(usize, u32)>| {
                    wanted.extend((0..hashes.len()).map(|place| (place, 0)));
                };
                self.read(tasks, true, &mut buffers, every, |_, row| rows.push(*row))?;
                take(&rows)?;
                rows.clear();
            }
        }
        Ok(())
    }

    /// Returns the row groups that may hold keys, which are sorted.
    fn tasks(&self, keys: &[NumberedHash]) -> Vec<Task> {
        let mut tasks = Vec::new();
        let count = |keys: &[NumberedHash], is_before: &dyn Fn(i32) -> bool| {
            // The next key of another row group is near.
            let near = keys.iter().take(8).take_while(|key| is_before(key.hash())).count();
            if near < 8 { near } else { keys.partition_point(|key| is_before(key.hash())) }
        };
        let first = self.firsts.first().map_or(i32::MAX, |first| *first);
        let mut from = count(keys, &|hash| hash < first);
        let mut group = 0;
        while let Some((key, rest)) = keys.get(from..).and_then(<[NumberedHash]>::split_first) {
            // The rows of a hash may begin in the row group before the first one that begins with it.
            let rows = self.firsts.get(group + 1..).unwrap_or_default();
            let near = rows.iter().take(8).take_while(|first| **first < key.hash()).count();
            group += if near < 8 { near } else { rows.partition_point(|first| *first < key.hash()) };
            let Some(next) = self.firsts.get(group + 1).copied() else {
                if !self.firsts.is_empty() {
                    tasks.push(Task { group, keys: from..keys.len() });
                }
                return tasks;
            };
            let end = from + 1 + count(rest, &|hash| hash <= next);
            tasks.push(Task { group, keys: from..end });
            let below = count(keys.get(from..end).unwrap_or_default(), &|hash| hash < next);
            if from + below < end {
                // Rows of this hash are in the next row group, too.
                group += 1;
            }
            from += below;
        }
        tasks
    }

    fn group(&self, number: usize) -> Option<(usize, &Group)> {
        let (file, at) = *self.places.get(number)?;
        Some((file, self.files.get(file)?.groups.get(at)?))
    }

    /// Returns the number of a row group's file.
    fn file_of(&self, group: usize) -> Option<usize> {
        self.places.get(group).map(|(file, _)| *file)
    }

    /// Returns whether a row group follows another one in its file.
    fn is_next(&self, before: usize, after: usize) -> bool {
        before + 1 == after && self.file_of(before) == self.file_of(after)
    }

    fn source(&self, number: usize) -> Result<(Arc<FileSource>, Location)> {
        let Some(file) = self.files.get(number) else {
            return Err(Error::corrupt(&self.directory, 0, "a file of keys", "none"));
        };
        let path = self.directory.join(&file.path);
        if let Some(source) = self.open.with(|open| open.get(&number).cloned()) {
            return Ok((source, path));
        }
        // `Catalog::decode` refuses a size below 0.
        let len = file.size.cast_unsigned();
        let source = if let Some(store) = path.objects() {
            let (path, modified, etag) = (path.to_path_buf(), None, file.etag.clone());
            FileSource::Remote(RemoteFile::known(store, RemoteEntry { path, len: Some(len), modified, etag }))
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

    /// Begins to read the row groups, if requests answer the reads or the first groups of a file are not in memory.
    fn expect(&self, tasks: &[Task]) -> Result<()> {
        let is_far = self.directory.is_remote();
        let by_file = tasks.chunk_by(|before, after| self.file_of(before.group) == self.file_of(after.group));
        for tasks in by_file.filter(|tasks| is_far || tasks.len() > 1) {
            let groups = || tasks.iter().filter_map(|task| self.group(task.group));
            let Some((file, _)) = groups().next() else { continue };
            let (source, _) = self.source(file)?;
            let is_cold = || groups().take(SAMPLES).any(|(_, group)| !source.is_in_memory(group.begin));
            if !is_far && !is_cold() {
                continue;
            }
            if !is_far && tasks.len() as u64 * BYTES_A_GROUP >= source.len() {
                source.load();
            } else {
                groups().for_each(|(_, group)| source.will_need(group.begin, group.len()));
            }
        }
        Ok(())
    }

    fn run<T>(
        &self,
        tasks: &[Task],
        keys: &[NumberedHash],
        needs_times: bool,
        buffers: &mut Buffers,
        take: &impl Fn(u32, &Row) -> Option<T>,
        found: &mut Vec<T>,
    ) -> Result<()> {
        let choose = |task: &Task, hashes: &[i32], wanted: &mut Vec<(usize, u32)>| {
            let mut begin = 0;
            for key in keys.get(task.keys.clone()).unwrap_or_default() {
                let hash = key.hash();
                begin = first_not_below(hashes, begin, hash);
                let equal = hashes.get(begin..).unwrap_or_default().iter().take_while(|each| **each == hash);
                wanted.extend((begin..).zip(equal).map(|(place, _)| (place, key.number())));
            }
        };
        self.read(tasks, needs_times, buffers, choose, |key, row| found.extend(take(key, row)))
    }

    /// Reads row groups that follow each other in a file, and passes on the rows that `choose` wants.
    fn read(
        &self,
        tasks: &[Task],
        needs_times: bool,
        Buffers { bytes, decoder }: &mut Buffers,
        choose: impl Fn(&Task, &[i32], &mut Vec<(usize, u32)>),
        mut take: impl FnMut(u32, &Row),
    ) -> Result<()> {
        let span =
            tasks.first().zip(tasks.last()).map(|(first, last)| (self.group(first.group), self.group(last.group)));
        let Some((Some((file, first)), Some((_, last)))) = span else { return Ok(()) };
        let (source, path) = self.source(file)?;
        let end = last.begin.saturating_add(last.len());
        if end > source.len() {
            return Err(Error::corrupt(&path, last.begin, "a row group of the catalog", "the end of the file"));
        }
        let follow = |group: &Group| {
            let found = format!("a row group at byte {} of {} bytes", group.begin, group.len());
            Error::corrupt(&path, first.begin, "row groups of the catalog that follow each other", found)
        };
        bytes.resize(usize_of(end.checked_sub(first.begin).ok_or_else(|| follow(last))?), 0);
        source.read_exact_at(bytes, first.begin).map_err(|e| Error::io(&path, e))?;
        self.reads.fetch_add(tasks.len() as u64, Ordering::Relaxed);
        let mut rest = bytes.as_slice();
        for task in tasks {
            let Some((_, group)) = self.group(task.group) else { return Ok(()) };
            let held;
            (held, rest) = rest.split_at_checked(usize_of(group.len())).ok_or_else(|| follow(group))?;
            let choose = |hashes: &[i32], wanted: &mut Vec<(usize, u32)>| choose(task, hashes, wanted);
            decoder.rows((&path, &self.layout, group), held, needs_times, choose, &mut take)?;
        }
        Ok(())
    }
}

/// The first place from `begin` on with a hash that is not below this one.
fn first_not_below(hashes: &[i32], begin: usize, hash: i32) -> usize {
    let mut at = begin;
    // Of many keys the next one is near. To count in a piece of fixed size are some vector instructions, without a branch.
    while let Some(piece) = hashes.get(at..).and_then(<[i32]>::first_chunk::<32>) {
        let below: u32 = piece.iter().map(|each| u32::from(*each < hash)).sum();
        at += below as usize;
        if below < 32 {
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
    fn sealed(directory: &std::path::Path) -> (Vec<Row>, SealedKeys) {
        let directory = &Location::from(directory);
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
    fn the_row_groups_of_a_key_are_those_that_may_hold_it() {
        let group = |first_key_hash| Group { first_key_hash, rows: 1, ..Group::default() };
        let file = |firsts: &[i32]| KeysFile {
            path: "keys/a".to_owned(),
            size: 0,
            etag: None,
            groups: firsts.iter().copied().map(group).collect(),
        };
        let catalog = Catalog {
            layout: Layout::OneLog,
            files: Vec::new(),
            keys: vec![file(&[5, 10]), file(&[10, 20])],
            notes: BTreeMap::new(),
        };
        let keys = SealedKeys::new(&Location::default(), &catalog).unwrap();
        let tasks = |hashes: &[i32]| -> Vec<(usize, Range<usize>)> {
            let asked = sorted(hashes, 0..=i32::MAX);
            keys.tasks(&asked).into_iter().map(|task| (task.group, task.keys)).collect()
        };
        let groups = |hash| tasks(&[hash]).into_iter().map(|(group, _)| group).collect::<Vec<_>>();
        assert_eq!([3, 5, 7].map(groups), [vec![], vec![0], vec![0]]);
        assert_eq!([10, 15, 20, 25].map(groups), [vec![0, 1, 2], vec![2], vec![2, 3], vec![3]]);
        assert_eq!(tasks(&[25, 3, 20, 5, 15, 7, 10]), [(0, 1..4), (1, 3..4), (2, 3..6), (3, 5..7)]);
        assert!(keys.is_next(0, 1) && keys.is_next(2, 3) && !keys.is_next(1, 2));
    }

    #[test]
    fn many_hashes_are_sorted_with_their_numbers() {
        let hashes: Vec<i32> = (0..100_000i32).map(|number| number.wrapping_mul(92_821_003)).collect();
        let mut expected: Vec<(i32, u32)> = hashes.iter().copied().zip(0..).filter(|(hash, _)| *hash >= 7).collect();
        expected.sort_unstable();
        let found = sorted(&hashes, 7..=i32::MAX);
        assert_eq!(found.iter().map(|key| (key.hash(), key.number())).collect::<Vec<_>>(), expected);
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
    #[cfg(target_os = "linux")]
    fn row_groups_that_are_not_in_memory_answer_alike() {
        use rustix::fs::{Advice, fadvise};
        let directory = tempfile::tempdir().unwrap();
        let (given, keys) = sealed(directory.path());
        let evict = || {
            for file in &keys.files {
                let file = std::fs::File::open(directory.path().join(&file.path)).unwrap();
                file.sync_all().unwrap();
                fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            }
        };
        // Few row groups are requested one by one; for many the file is read in order.
        for step in [40_000, 301] {
            let hashes: Vec<i32> = given.iter().skip(1).step_by(step).map(|row| row.key_hash).collect();
            let in_memory = keys.offsets(&hashes, true, |_| true).unwrap();
            evict();
            assert_eq!(keys.offsets(&hashes, true, |_| true).unwrap(), in_memory);
            evict();
            let tasks = keys.tasks(&sorted(&hashes, 0..=i32::MAX));
            let are_there = || {
                let mut groups = tasks.iter().map(|task| keys.group(task.group).unwrap());
                groups.all(|(file, group)| keys.source(file).unwrap().0.is_in_memory(group.begin))
            };
            if are_there() {
                println!("nothing can be evicted here");
                return;
            }
            keys.expect(&tasks).unwrap();
            let begun = std::time::Instant::now();
            while !are_there() {
                assert!(begun.elapsed().as_secs() < 10);
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn row_groups_that_do_not_follow_each_other_are_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let (_, keys) = sealed(directory.path());
        let is_corrupt = |change: fn(&mut Group)| {
            let mut files = keys.files.clone();
            change(&mut files[0].groups[0]);
            let catalog = Catalog { layout: Layout::OneLog, files: Vec::new(), keys: files, notes: BTreeMap::new() };
            let keys = SealedKeys::new(&directory.path().into(), &catalog).unwrap();
            matches!(keys.for_each(|_| Ok(())), Err(Error::Corrupt { .. }))
        };
        assert!(keys.files[0].groups.len() > 1 && !is_corrupt(|_| ()));
        assert!(is_corrupt(|first| first.begin = u64::MAX / 2));
        assert!(is_corrupt(|first| first.sizes[0] += 1 << 30));
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
        let damaged = SealedKeys::new(&directory.path().into(), &catalog).unwrap();
        assert!(matches!(damaged.offsets(&[given[1].key_hash], false, |_| true), Err(Error::Corrupt { .. })));
        let path = directory.path().join(&keys.files[0].path);
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(100).unwrap();
        let short = SealedKeys::new(&directory.path().into(), &catalog).unwrap();
        let hash = keys.files[0].groups[0].first_key_hash;
        assert!(matches!(short.offsets(&[hash], false, |_| true), Err(Error::Corrupt { .. })));
    }
}
