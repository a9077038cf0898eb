//! Rows in the order of a sealed index, with a bound on memory.
//!
//! Rows are put into buckets by the first bits of their hash. Beyond the bound all buckets are appended to a temporary file. At the
//! end a bucket is read back and sorted when its turn comes. So memory is bounded by the rows of one index file, the bound, and a
//! bucket for each thread.

use std::cmp::Reverse;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::io::disk::{NewFile, write_all_at};
use crate::io::{PlainFile, ReadAt as _, usize_of};

/// Bits of a hash that choose a bucket; a hash has 31.
const BUCKET_BITS: u32 = 11;
const BUCKETS: usize = 1 << BUCKET_BITS;
/// Name for which the temporary file has a temporary name, if it needs one.
pub(super) const TEMPORARY: &str = "rows";
/// Rows in memory, beyond which they go to the temporary file.
const MOST_ROWS: usize = 8 << 20;
/// The most rows of a file of keys, unless one bucket has more.
const ROWS_PER_FILE: usize = 4 << 20;
/// A store of fewer rows has one file of keys.
const FEWEST_PER_FILE: usize = 1 << 16;
/// Bytes of a row in the temporary file.
const ROW_LEN: usize = 24;

/// Rows of a range that one task of a parallel sort has in memory, if the hashes are spread as their sample is.
const ROWS_PER_RANGE: u64 = 2 << 20;
/// Rows of which one is in a sample. A prime: keys of several kinds take turns in an index file.
const SAMPLE: usize = 16_381;
/// Bytes of packed rows after which a piece begins: Spark passes up to ten thousand pieces on together, which is below 2 GiB.
const MOST_PACKED: usize = 5_000 * ROW_LEN;

/// The time of a row whose time is not known, in ms.
pub const NO_TIME: i64 = -1;

/// One index entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The hash of the key, 0 or more.
    pub key_hash: i32,
    /// Number of the part that the offset belongs to: a partition of Kafka; 0 for a store of one log.
    pub part: u32,
    /// Offset in the log.
    pub offset: i64,
    /// Store time in ms, or [`NO_TIME`].
    pub time: i64,
}

impl Row {
    pub(super) fn order(&self) -> (i32, u32, Reverse<i64>, Reverse<i64>) {
        (self.key_hash, self.part, Reverse(self.offset), Reverse(self.time))
    }

    fn to_bytes(self) -> [u8; ROW_LEN] {
        let mut bytes = [0; ROW_LEN];
        let words = [
            u64::from(self.key_hash.cast_unsigned()) << 32 | u64::from(self.part),
            self.offset.cast_unsigned(),
            self.time.cast_unsigned(),
        ];
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    #[expect(clippy::cast_possible_truncation, reason = "two halves of a word")]
    fn of_bytes(bytes: &[u8; ROW_LEN]) -> Self {
        let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let [first, offset, time] = [words.next(), words.next(), words.next()].map(Option::unwrap_or_default);
        Self {
            key_hash: ((first >> 32) as u32).cast_signed(),
            part: first as u32,
            offset: offset.cast_signed(),
            time: time.cast_signed(),
        }
    }
}

/// Rows in any order, on their way into sorted files.
#[derive(Debug)]
pub struct Rows {
    buckets: Vec<Vec<Row>>,
    in_memory: usize,
    most_in_memory: usize,
    /// Rows that were added since the last [`Self::keep`].
    new: usize,
    /// Lengths of the buckets at the last [`Self::keep`].
    kept: Vec<usize>,
    spill: Option<Spill>,
    directory: PathBuf,
}

/// Rows in a temporary file.
#[derive(Debug)]
struct Spill {
    file: NewFile,
    len: u64,
    /// The parts of each bucket: byte offset and rows.
    parts: Vec<Vec<(u64, usize)>>,
}

impl Rows {
    /// No rows yet. The temporary file, if one is needed, is in this directory.
    pub fn new(directory: &Path) -> Self {
        Self::with_bound(directory, MOST_ROWS)
    }

    fn with_bound(directory: &Path, most_in_memory: usize) -> Self {
        let (buckets, kept) = (vec![Vec::new(); BUCKETS], vec![0; BUCKETS]);
        Self { buckets, in_memory: 0, most_in_memory, new: 0, kept, spill: None, directory: directory.to_owned() }
    }

    /// Adds rows. Those with a negative hash are left out: no key has one. If too many rows were kept, they are written to the
    /// temporary file first: so the last rows never are.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn push(&mut self, rows: &[Row]) -> Result<()> {
        if self.new == 0 && self.in_memory > self.most_in_memory {
            self.write_out()?;
        }
        let before = self.in_memory;
        for row in rows {
            let bucket = usize::try_from(row.key_hash >> (31 - BUCKET_BITS)).ok();
            if let Some(bucket) = bucket.and_then(|bucket| self.buckets.get_mut(bucket)) {
                bucket.push(*row);
                self.in_memory += 1;
            }
        }
        self.new += self.in_memory - before;
        Ok(())
    }

    /// Keeps the rows that were added since the last call.
    pub fn keep(&mut self) {
        self.new = 0;
        for (kept, bucket) in self.kept.iter_mut().zip(&self.buckets) {
            *kept = bucket.len();
        }
    }

    /// Removes the rows that were added since the last [`Self::keep`].
    pub fn drop_new(&mut self) {
        self.in_memory -= std::mem::take(&mut self.new);
        for (kept, bucket) in self.kept.iter().zip(&mut self.buckets) {
            bucket.truncate(*kept);
        }
    }

    fn write_out(&mut self) -> Result<()> {
        let directory = self.directory.as_path();
        let fail = |e| Error::io(directory, e);
        if self.spill.is_none() {
            let file = NewFile::temporary(&directory.join(TEMPORARY))?;
            self.spill = Some(Spill { file, len: 0, parts: vec![Vec::new(); BUCKETS] });
        }
        let Some(spill) = &mut self.spill else { return Ok(()) };
        let mut bytes = Vec::new();
        for (bucket, parts) in self.buckets.iter_mut().zip(&mut spill.parts) {
            if bucket.is_empty() {
                continue;
            }
            bytes.clear();
            for row in bucket.iter() {
                bytes.extend_from_slice(&row.to_bytes());
            }
            write_all_at(spill.file.file(), &bytes, spill.len).map_err(fail)?;
            parts.push((spill.len, bucket.len()));
            spill.len += bytes.len() as u64;
            *bucket = Vec::new();
        }
        self.in_memory = 0;
        self.kept.fill(0);
        Ok(())
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        let spilled = self.spill.iter().flat_map(|spill| spill.parts.iter().flatten());
        self.in_memory + spilled.map(|(_, rows)| rows).sum::<usize>()
    }

    /// True without rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sorts the rows and passes them on, a file of keys at a time: `write` gets the number of the file, and its rows piece by piece.
    /// `threads` files are made at a time. Returns what `write` returned, in the order of the files.
    ///
    /// # Errors
    /// The system's error, with the path; those of `write`.
    pub fn write<T: Send>(
        self,
        threads: usize,
        write: impl Fn(usize, &mut dyn Iterator<Item = Result<Vec<Row>>>) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let threads = threads.max(1);
        // As many files for each thread.
        let rounds = self.len().div_ceil(threads * ROWS_PER_FILE).max(1);
        let files = self.cut(self.len().div_ceil(rounds * threads).max(FEWEST_PER_FILE));
        let buckets = self.into_sorted()?;
        let next = AtomicUsize::new(0);
        let work = || -> Result<Vec<(usize, T)>> {
            let mut made = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(range) = files.get(number) else { return Ok(made) };
                made.push((number, write(number, &mut range.clone().map(|number| buckets.take(number)))?));
            }
        };
        let mut made = std::thread::scope(|scope| -> Result<Vec<(usize, T)>> {
            let others: Vec<_> = (1..threads.min(files.len())).map(|_| scope.spawn(work)).collect();
            let mut made = work()?;
            for other in others {
                made.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            Ok(made)
        })?;
        made.sort_by_key(|(number, _)| *number);
        Ok(made.into_iter().map(|(_, made)| made).collect())
    }

    fn into_sorted(self) -> Result<Sorted> {
        let fail = |e| Error::io(&self.directory, e);
        let spill = match self.spill {
            Some(spill) => {
                let source = spill.file.file().try_clone().and_then(PlainFile::new).map_err(fail)?;
                Some((source, spill))
            }
            None => None,
        };
        Ok(Sorted { buckets: self.buckets.into_iter().map(Mutex::new).collect(), spill, directory: self.directory })
    }

    /// The buckets of each file.
    fn cut(&self, rows_per_file: usize) -> Vec<Range<usize>> {
        let mut files = Vec::new();
        let (mut begin, mut rows) = (0, 0);
        for (number, bucket) in self.buckets.iter().enumerate() {
            let spilled = self.spill.as_ref().and_then(|spill| spill.parts.get(number));
            rows += bucket.len() + spilled.map_or(0, |parts| parts.iter().map(|(_, rows)| rows).sum());
            if rows >= rows_per_file || (number + 1 == BUCKETS && rows > 0) {
                files.push(begin..number + 1);
                (begin, rows) = (number + 1, 0);
            }
        }
        files
    }
}

/// Buckets of rows that are complete.
struct Sorted {
    buckets: Vec<Mutex<Vec<Row>>>,
    spill: Option<(PlainFile, Spill)>,
    directory: PathBuf,
}

impl Sorted {
    /// Takes the rows of a bucket, sorted.
    fn take(&self, number: usize) -> Result<Vec<Row>> {
        let mut rows = match self.buckets.get(number) {
            Some(bucket) => std::mem::take(&mut *bucket.lock().unwrap_or_else(PoisonError::into_inner)),
            None => Vec::new(),
        };
        if let Some((source, spill)) = &self.spill
            && let Some(parts) = spill.parts.get(number)
        {
            read_back(source, parts, &mut rows).map_err(|e| Error::io(&self.directory, e))?;
        }
        rows.sort_unstable_by_key(Row::order);
        Ok(rows)
    }
}

fn read_back(source: &PlainFile, parts: &[(u64, usize)], rows: &mut Vec<Row>) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    for (offset, count) in parts {
        bytes.resize(count * ROW_LEN, 0);
        source.read_exact_at(&mut bytes, *offset)?;
        rows.extend(bytes.as_chunks::<ROW_LEN>().0.iter().map(Row::of_bytes));
    }
    Ok(())
}

/// Packed rows, and the number of their range.
pub type Packed = (i32, Vec<u8>);

/// Packs rows by ranges of their hashes, for a sort by several processes.
#[derive(Debug)]
pub struct Packer<'a> {
    /// The first hash of each range but the first, ascending.
    bounds: &'a [i32],
    pending: Vec<Vec<u8>>,
    packed: Vec<Packed>,
}

impl<'a> Packer<'a> {
    /// No rows yet. Bounds are the first hashes of all ranges but the first, ascending.
    pub fn new(bounds: &'a [i32]) -> Self {
        Self { bounds, pending: vec![Vec::new(); bounds.len() + 1], packed: Vec::new() }
    }

    /// Adds rows. Those with a negative hash are left out: no key has one.
    pub fn push(&mut self, rows: &[Row]) {
        for row in rows.iter().filter(|row| row.key_hash >= 0) {
            let range = self.bounds.partition_point(|bound| *bound <= row.key_hash);
            let Some(pending) = self.pending.get_mut(range) else { continue };
            pending.extend_from_slice(&row.to_bytes());
            if pending.len() >= MOST_PACKED {
                self.packed.push((i32::try_from(range).unwrap_or(i32::MAX), std::mem::take(pending)));
            }
        }
    }

    /// Returns the rows in pieces, each with the number of its range.
    pub fn finish(mut self) -> Vec<Packed> {
        let rest = (0..).zip(self.pending).filter(|(_, rows)| !rows.is_empty());
        self.packed.extend(rest);
        self.packed
    }
}

/// Adds packed rows to rows.
///
/// # Errors
/// `InvalidArgument` if a part of a row is at the end.
pub fn unpack(packed: &[u8], rows: &mut Vec<Row>) -> Result<()> {
    let (whole, rest) = packed.as_chunks::<ROW_LEN>();
    if !rest.is_empty() {
        let text = format!("packed rows: expected a multiple of {ROW_LEN} bytes, found {}", packed.len());
        return Err(Error::InvalidArgument(text));
    }
    rows.extend(whole.iter().map(Row::of_bytes));
    Ok(())
}

/// Hashes of some rows, from which the ranges of a sort by several processes are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Number of rows.
    pub rows: u64,
    /// The hash of each 16,381st row of each source.
    pub hashes: Vec<i32>,
}

impl Sample {
    /// Takes note of the next rows of a source.
    pub fn note(&mut self, rows: &[Row]) {
        let seen = usize_of(self.rows) % SAMPLE;
        let next = if seen == 0 { 0 } else { SAMPLE - seen };
        self.hashes.extend(rows.iter().skip(next).step_by(SAMPLE).map(|row| row.key_hash));
        self.rows += rows.len() as u64;
    }

    /// Adds the sample of another source.
    pub fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.hashes.extend(other.hashes);
    }

    /// The first hashes of as many ranges as are needed, but for the first range.
    pub fn bounds(&self) -> Vec<i32> {
        let mut hashes = self.hashes.clone();
        hashes.sort_unstable();
        let ranges = usize_of(self.rows.div_ceil(ROWS_PER_RANGE));
        let ranges = ranges.clamp(1, hashes.len().max(1));
        let bound = |number: usize| hashes.get(number * hashes.len() / ranges).copied();
        let mut bounds: Vec<i32> = (1..ranges).filter_map(bound).collect();
        bounds.dedup();
        bounds
    }
}

/// Calls `differs` with each row that only one side has, and with true if it is the first side. A row of the first side without a
/// time is equal to one with any.
///
/// # Errors
/// The system's error, with the path.
pub fn compare(first: Rows, second: Rows, mut differs: impl FnMut(&Row, bool)) -> Result<()> {
    let (first, second) = (first.into_sorted()?, second.into_sorted()?);
    for number in 0..BUCKETS {
        let (here, there) = (first.take(number)?, second.take(number)?);
        let (mut here, mut there) = (here.iter().peekable(), there.iter().peekable());
        loop {
            let place = |row: &&Row| (row.key_hash, row.part, Reverse(row.offset));
            match (here.peek().copied(), there.peek().copied()) {
                (None, None) => break,
                (Some(a), Some(b)) if place(&a) == place(&b) => {
                    if a.time != b.time && a.time != NO_TIME {
                        differs(a, true);
                        differs(b, false);
                    }
                    here.next();
                    there.next();
                }
                (Some(a), b) if b.is_none_or(|b| place(&a) < place(&b)) => {
                    differs(a, true);
                    here.next();
                }
                (_, b) => {
                    if let Some(b) = b {
                        differs(b, false);
                    }
                    there.next();
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_rows(count: u32) -> Vec<Row> {
        let row = |number: u32| Row {
            key_hash: (number.wrapping_mul(2_654_435_761) >> 1).cast_signed() % 1000 * 2_000_000,
            part: number % 3,
            offset: i64::from(number) * 100 - 7,
            time: if number.is_multiple_of(5) { NO_TIME } else { i64::from(number) },
        };
        (0..count).map(row).collect()
    }

    #[test]
    fn rows_come_sorted_with_and_without_a_temporary_file() {
        let directory = tempfile::tempdir().unwrap();
        let given = some_rows(50_000);
        let mut expected = given.clone();
        expected.sort_by_key(Row::order);
        for (bound, threads) in [(MOST_ROWS, 1), (MOST_ROWS, 2), (7_000, 2)] {
            let mut rows = Rows::with_bound(directory.path(), bound);
            for part in given.chunks(3_000) {
                rows.push(part).unwrap();
                rows.keep();
                rows.push(&some_rows(100)).unwrap();
                rows.drop_new();
            }
            assert_eq!((rows.len(), rows.spill.is_some()), (given.len(), bound == 7_000));
            let written = rows.write(threads, |_, pieces| pieces.collect::<Result<Vec<_>>>()).unwrap();
            assert_eq!(written.concat().concat(), expected);
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn packed_rows_come_back_by_ranges() {
        let given = some_rows(30_000);
        for ranges in [1, 4] {
            let hashes = given.iter().step_by(7).map(|row| row.key_hash).collect();
            let bounds = Sample { rows: ranges * ROWS_PER_RANGE, hashes }.bounds();
            assert_eq!(bounds.len() as u64, ranges - 1);
            let mut packer = Packer::new(&bounds);
            given.chunks(3_000).for_each(|part| packer.push(part));
            packer.push(&[Row { key_hash: -1, part: 0, offset: 0, time: 0 }]);
            let mut back = vec![Vec::new(); bounds.len() + 1];
            for (range, piece) in packer.finish() {
                unpack(&piece, back.get_mut(usize::try_from(range).unwrap()).unwrap()).unwrap();
            }
            let lens: Vec<usize> = back.iter().map(Vec::len).collect();
            assert!(lens.iter().all(|len| len.abs_diff(given.len() / back.len()) < 1_000), "{lens:?}");
            for rows in &mut back {
                rows.sort_unstable_by_key(Row::order);
            }
            let mut expected = given.clone();
            expected.sort_unstable_by_key(Row::order);
            assert_eq!(back.concat(), expected);
        }
        assert!(unpack(&[0; ROW_LEN + 1], &mut Vec::new()).is_err());
    }

    #[test]
    fn a_sample_does_not_depend_on_the_blocks() {
        let given = some_rows(50_000);
        let expected: Vec<i32> = given.iter().step_by(SAMPLE).map(|row| row.key_hash).collect();
        for len in [1_000, 16_381, 20_000, 50_000] {
            let mut sample = Sample::default();
            given.chunks(len).for_each(|block| sample.note(block));
            assert_eq!(sample, Sample { rows: 50_000, hashes: expected.clone() });
        }
        assert_eq!(Sample { rows: 100 * ROWS_PER_RANGE, hashes: Vec::new() }.bounds(), [0; 0]);
    }

    #[test]
    fn rows_of_one_side_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let given = some_rows(20_000);
        let mut sides = [(); 2].map(|()| Rows::with_bound(directory.path(), 5_000));
        for (number, side) in sides.iter_mut().enumerate() {
            let others = given.iter().enumerate().filter(|(at, _)| at % 5_000 != 100 + number);
            side.push(&others.map(|(_, row)| *row).collect::<Vec<_>>()).unwrap();
            side.keep();
        }
        let [first, second] = sides;
        let mut found = Vec::new();
        compare(first, second, |row, is_first| found.push((row.offset, is_first))).unwrap();
        found.sort_unstable();
        let expected = (0..4).flat_map(|part| {
            [(100, false), (101, true)].map(|(at, is_first)| (i64::from(part * 5_000 + at) * 100 - 7, is_first))
        });
        assert_eq!(found, expected.collect::<Vec<_>>());
    }

    #[test]
    fn without_rows_there_is_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let mut rows = Rows::new(directory.path());
        rows.push(&[Row { key_hash: -1, part: 0, offset: 0, time: 0 }]).unwrap();
        assert!(rows.is_empty());
        assert_eq!(rows.write(2, |_, pieces| pieces.collect::<Result<Vec<_>>>()).unwrap().len(), 0);
    }
}
