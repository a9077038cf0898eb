//! Lookups in files that are not in the page cache: the reads of a batch overlap.
//!
//! A walk through a file that is not in memory waits at every entry until the disk has read a page: about six times some ten
//! microseconds. As with memory (`lanes`), one walk cannot be made faster, but the disk serves many requests at a time. A
//! page fault stops the whole thread, so the walks advance in rounds, one step per round:
//!
//! ```text
//! round 1   request the page of every key's slot          then read the slots
//! round 2   request the page of every newest entry        then read these entries
//! round 3   request the page of every entry before that   ... until every chain has ended
//! ```
//!
//! A request is an advice to the system (`MADV_WILLNEED`, `POSIX_FADV_WILLNEED`), which starts the read and returns. When
//! the last page of a round has been requested, the first ones have arrived.
//!
//! The rounds only bring pages into memory; the usual code then computes the answers. So an error here cannot make an answer
//! wrong, and an unsupported hint only costs time.
//!
//! Related:
//!
//! - A file opened for reading is advised for random reads. Otherwise each fault would also read neighbouring pages, up to
//!   megabytes, which are not needed. Code that reads the whole file requests it first.
//! - Remote files always go by rounds, which are requests then.
//! - For many keys it is cheaper to read the whole file: rounds cost several random reads per key, and a sequential read moves
//!   about [`BYTES_A_KEY`] in that time.
//! - Whether a file is in memory is sampled at a few of the pages that the keys need. After a positive sample the question is
//!   not repeated for some milliseconds, so a file in memory costs one clock read per call.

use std::io;

use super::bytes::on_bytes;
use super::index_file::IndexFile;
use super::last_warm;
use crate::hash_index::format::entry::Entry;
use crate::hash_index::format::geometry::{ENTRY_LEN, SLOT_LEN};
use crate::hash_index::read::hits::Chunk;
use crate::io::{ReadAt, u32_of};

/// Walks in one round. More walks per round mean less waiting for the first reads.
pub(super) const WALKS: usize = 4096;
/// Bytes that the disk reads sequentially in the time of one lookup by rounds: measured, 2 GB/s and 48 us.
const BYTES_A_KEY: u64 = 96 * 1024;
/// For fewer walks than this the residency is not sampled.
const FEW: usize = 4;
/// Keys whose pages are sampled.
const SAMPLES: usize = 8;

/// Returns whether the pages that keys need are probably not in memory, in any of the files. A negative hash needs none.
pub(super) fn are_cold(files: &[&IndexFile], key_hashes: &[i32]) -> bool {
    let walks = files.len() * key_hashes.len();
    let Some(first) = files.first() else { return false };
    if on_bytes!(&first.bytes, source => source.is_far()) {
        // A remote file cannot be read without waiting, and cached blocks end a round at once.
        return walks > 1;
    }
    walks >= FEW && are_samples_cold(files, key_hashes)
}

/// Returns whether the pages that some of the keys need are not in memory, in any of these files of this machine. A negative hash
/// needs none.
pub fn are_samples_cold(files: &[&IndexFile], key_hashes: &[i32]) -> bool {
    let walks = files.len() * key_hashes.len();
    let now = last_warm::now_ms();
    if files.first().is_some_and(|first| first.last_warm.is_recent(now)) {
        return false;
    }
    let mut samples = (0..SAMPLES.min(walks)).map(|i| i * walks / SAMPLES.min(walks));
    let is_cold = samples.any(|walk| {
        let file = files.get(walk / key_hashes.len());
        let key_hash = key_hashes.get(walk % key_hashes.len());
        file.zip(key_hash).is_some_and(|(file, &key_hash)| key_hash >= 0 && file.is_cold_for(key_hash))
    });
    if !is_cold {
        for file in files {
            file.last_warm.set(now);
        }
    }
    is_cold
}

/// Brings the pages into memory that the walks of a chunk will read. `keys_ahead`: keys of the whole call that are not
/// looked up yet, including those of the chunk.
pub(super) fn fetch(files: &[&IndexFile], chunk: &Chunk, max_num: Option<usize>, keys_ahead: usize) {
    let mut walks = Vec::new();
    for file in files {
        if (keys_ahead as u64).saturating_mul(BYTES_A_KEY) >= file.file_len {
            on_bytes!(&file.bytes, source => source.load());
            continue;
        }
        for row in 0..u32_of(chunk.key_hashes.len()) {
            if let Some((key_hash, left_to_find)) = chunk.wanted(row, max_num) {
                walks.push(Walk::new(file, key_hash, left_to_find));
                if walks.len() == WALKS {
                    go(&mut walks);
                }
            }
        }
    }
    go(&mut walks);
}

/// Runs rounds until all walks have ended.
fn go(walks: &mut Vec<Walk<'_>>) {
    while !walks.is_empty() {
        for walk in walks.iter() {
            let (offset, len) = walk.place();
            on_bytes!(&walk.file.bytes, source => source.will_need(offset, len));
        }
        // An error ends a walk here; the code that answers gets it again and reports it.
        walks.retain_mut(|walk| on_bytes!(&walk.file.bytes, source => walk.step(source)).unwrap_or(false));
    }
}

struct Walk<'a> {
    file: &'a IndexFile,
    key_hash: i32,
    /// Matches still wanted.
    left_to_find: usize,
    /// The entry to read next; `None`: the slot.
    position: Option<u32>,
}

impl<'a> Walk<'a> {
    fn new(file: &'a IndexFile, key_hash: i32, left_to_find: Option<usize>) -> Self {
        Self { file, key_hash, left_to_find: left_to_find.unwrap_or(usize::MAX), position: None }
    }

    /// Offset and length of the next read.
    fn place(&self) -> (u64, u64) {
        let geometry = self.file.geometry;
        match self.position {
            None => (geometry.slot(geometry.slot_of(self.key_hash)), SLOT_LEN),
            Some(position) => (geometry.entry(position), ENTRY_LEN),
        }
    }

    /// Reads it. Returns whether the walk continues. Positions only fall, so it ends.
    fn step<S: ReadAt>(&mut self, source: &S) -> io::Result<bool> {
        let (link, below) = match self.position {
            None => (source.acquire(self.place().0)?, self.file.geometry.entries_within(self.file.file_len)),
            Some(position) => {
                let entry = Entry::read(source, self.file.geometry, position)?;
                self.left_to_find -= usize::from(entry.key_hash == self.key_hash);
                (entry.prev_index.cast_unsigned(), position)
            }
        };
        self.position = Some(link);
        Ok(link > 0 && link < below && self.left_to_find > 0)
    }
}

impl IndexFile {
    /// Returns whether the slot of a key or the newest entry of its chain is not in memory.
    fn is_cold_for(&self, key_hash: i32) -> bool {
        let mut walk = Walk::new(self, key_hash, None);
        on_bytes!(&self.bytes, source => {
            !source.is_in_memory(walk.place().0)
                || (walk.step(source).unwrap_or(false) && !source.is_in_memory(walk.place().0))
        })
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::fs::File;
    use std::path::Path;

    use rustix::fs::{Advice, fadvise};

    use super::*;
    use crate::hash_index::Geometry;
    use crate::hash_index::read::hits::Hits;
    use crate::hash_index::{CreateOptions, OpenOptions, PutColumns, key_hash, select_files};
    use crate::io::Access;
    use crate::time_range::TimeRange;

    const ENTRIES: u32 = 60_000;

    fn key(number: u32) -> String {
        format!("T#{}", number % (ENTRIES / 3))
    }

    /// A full file of 1.3 MB in which every key was put three times.
    fn build(path: &Path) {
        let geometry = Geometry::new(ENTRIES / 4, ENTRIES + 1).unwrap();
        let options = CreateOptions::new(geometry);
        let file = IndexFile::create(path, options).unwrap();
        let keys: Vec<String> = (0..ENTRIES).map(key).collect();
        let numbers: Vec<i64> = (0..i64::from(ENTRIES)).collect();
        let columns = PutColumns { keys: &keys[..], phy_offsets: &numbers, store_timestamps: &numbers };
        assert_eq!(file.put_batch(&columns, 0).unwrap(), ENTRIES as usize);
        file.flush().unwrap();
    }

    /// Opens a file without pages in memory, except for those that opening reads, and on a file system without a disk.
    fn open_evicted(path: &Path, access: Access) -> IndexFile {
        let file = File::open(path).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        let geometry = Some(Geometry::new(ENTRIES / 4, ENTRIES + 1).unwrap());
        IndexFile::open(path, OpenOptions { geometry, access, ..OpenOptions::default() }).unwrap()
    }

    fn loaded(keys: &[String]) -> Chunk {
        let mut chunk = Chunk::default();
        chunk.load(keys, &(0..keys.len()));
        chunk
    }

    #[test]
    fn files_that_are_not_in_memory_answer_alike() {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("1"), dir.path().join("2")];
        for path in &paths {
            build(path);
        }
        // Few keys go in rounds, many load the file; missing keys end without a match.
        for (count, access) in [(7, Access::Mmap), (7, Access::Pread), (500, Access::Mmap), (500, Access::Pread)] {
            let keys: Vec<String> = (0..count).map(|i| key(i * 7919)).chain([String::from("T#absent")]).collect();
            let files = paths.each_ref().map(|path| open_evicted(path, access));
            let mut hits = Hits::new();
            let files = files.each_ref();
            select_files(&files, &keys[..], 0..keys.len(), None, TimeRange::ALL, &mut hits).unwrap();
            assert_eq!(hits.len(), keys.len());
            for (key, row) in keys.iter().zip(hits.rows()) {
                let one: Vec<i64> =
                    files.iter().flat_map(|f| f.select(key_hash(key), None, TimeRange::ALL).unwrap().0).collect();
                assert_eq!(row, one, "{key}");
                assert_eq!(row.len(), if key == "T#absent" { 0 } else { 6 }, "{key}");
            }
        }
    }

    #[test]
    fn rounds_bring_in_what_the_walks_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1");
        build(&path);
        let keys: Vec<String> = (0..5).map(|i| key(i * 7919)).collect();
        let chunk = loaded(&keys);
        for access in [Access::Mmap, Access::Pread] {
            let file = open_evicted(&path, access);
            if !are_cold(&[&file], &chunk.key_hashes) {
                println!("nothing can be evicted here");
                continue;
            }
            fetch(&[&file], &chunk, None, keys.len());
            for key in &keys {
                let mut walk = Walk::new(&file, key_hash(key), None);
                on_bytes!(&file.bytes, source => {
                    assert!(source.is_in_memory(walk.place().0));
                    while walk.step(source).unwrap() {
                        assert!(source.is_in_memory(walk.place().0));
                    }
                });
            }
            assert!(!are_cold(&[&file], &chunk.key_hashes));
            drop(file); // pages of a map are not given up
            let other = open_evicted(&path, access);
            assert!(are_cold(&[&other], &chunk.key_hashes));
            fetch(&[&other], &chunk, None, usize::MAX); // enough keys that the file is read from end to end
            let pages = (0..other.file_len).step_by(4096);
            assert!(on_bytes!(&other.bytes, source => pages.clone().all(|at| source.is_in_memory(at))));
        }
    }
}
