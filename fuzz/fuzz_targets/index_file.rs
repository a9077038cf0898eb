//! Any bytes as a RocketMQ index file: by a map or by `pread`, one by one or in a batch, the answers are the same, and they
//! are right wherever a check finds nothing; after a repair the links have no finding and the file takes puts.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use logdex::error::Error;
use logdex::hash_index::{Answers, Entry, Geometry, Hits, IndexFile, KeySource, OpenOptions, PutColumns};
use logdex::io::Access;
use logdex::time_range::TimeRange;
use logdex_fuzz::Scratch;

const NAME: &str = "20260101000000000";
/// Upper limits of slots and entries.
const SLOTS: u32 = 24;
const ENTRIES: u32 = 40;

fn read(path: &Path, geometry: Geometry, access: Access, answers: Answers, last_exit_ok: bool) -> IndexFile {
    let options = OpenOptions { write: false, geometry: Some(geometry), access, answers, last_exit_ok };
    IndexFile::open(path, options).expect("a file of any content opens for reading")
}

/// Keys by their hashes.
struct Hashes<'a>(&'a [i32]);

impl KeySource for Hashes<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn hash_block(&self, start: usize, hashes: &mut [i32]) {
        for (to, from) in hashes.iter_mut().zip(self.0.iter().skip(start)) {
            *to = *from;
        }
    }
}

type Answered = Vec<Result<Vec<i64>, String>>;

/// Candidates of each hash, or the damage; without damage the batch returns the same.
fn ask(file: &IndexFile, hashes: &[i32], most: Option<usize>, range: TimeRange) -> Answered {
    let one = |hash: &i32| match file.select(*hash, most, range) {
        Ok((found, _)) => Ok(found),
        Err(Error::Corrupt { path, expected, found, .. }) => {
            assert_eq!(*path, **file.path());
            Err(format!("{expected}, {found}"))
        }
        Err(other) => panic!("{other}"),
    };
    let answers: Answered = hashes.iter().map(one).collect();
    let mut hits = Hits::new();
    match file.select_batch(&Hashes(hashes), 0..hashes.len(), most, range, &mut hits) {
        Ok(_) => {
            let batch: Vec<&[i64]> = hits.rows().collect();
            let alone: Vec<&[i64]> = answers.iter().map(|row| row.as_deref().expect("the batch has none")).collect();
            assert_eq!(batch, alone, "{hashes:?} {most:?} {range:?}");
        }
        Err(Error::Corrupt { .. }) => assert!(answers.iter().any(Result::is_err)),
        Err(other) => panic!("{other}"),
    }
    answers
}

/// The entries that fit in the bytes, unchecked.
fn entries(file: &IndexFile) -> Vec<Entry> {
    file.read_entries(1, u32::MAX).expect("all of it is there")
}

/// Offsets of the entries of a hash, newest first.
fn all_of(entries: &[Entry], hash: i32) -> Vec<i64> {
    entries.iter().rev().filter(|entry| entry.key_hash == hash).map(|entry| entry.phy_offset).collect()
}

fn check_reading(path: &Path, geometry: Geometry, hashes: &[i32]) {
    let begin =
        read(path, geometry, Access::Pread, Answers::Complete, true).header().expect("zeros follow").begin_timestamp;
    let ranges = [
        TimeRange::ALL,
        TimeRange { begin_ms: begin, end_ms: begin },
        TimeRange { begin_ms: begin.saturating_add(1000), end_ms: begin.saturating_add(5999) },
        TimeRange { begin_ms: i64::MIN, end_ms: begin.saturating_add(2_000_000) },
    ];
    for answers in [Answers::Complete, Answers::Broker] {
        let files = [Access::Mmap, Access::Pread].map(|access| read(path, geometry, access, answers, true));
        for range in ranges {
            let [mapped, plain] = files.each_ref().map(|file| ask(file, hashes, None, range));
            assert_eq!(mapped, plain, "{answers:?} {range:?}");
            let few = ask(&files[0], hashes, Some(2), range);
            assert_eq!(few, ask(&files[1], hashes, Some(2), range), "{answers:?} {range:?}, at most 2");
            for file in &files {
                file.is_time_matched(range, 1000).expect("all of it is there");
            }
        }
    }
    let file = read(path, geometry, Access::Auto, Answers::Complete, true);
    let checked = file.verify().expect("damage is reported, not raised");
    let there = entries(&file);
    if checked.findings.is_empty() {
        let all = ask(&file, hashes, None, TimeRange::ALL);
        let few = ask(&file, hashes, Some(2), TimeRange::ALL);
        for ((hash, all), few) in hashes.iter().zip(all.into_iter().flatten()).zip(few.into_iter().flatten()) {
            assert_eq!(all, all_of(&there, *hash), "hash {hash}");
            assert_eq!(few, all[..all.len().min(2)], "hash {hash}");
        }
    }
    for finding in checked.findings {
        assert!(finding.offset <= geometry.file_len(), "{finding:?}");
    }
    // A geometry that is not given must be inferred, or the file rejected.
    let unsaid = OpenOptions { geometry: None, ..OpenOptions::default() };
    match IndexFile::open(path, unsaid) {
        Ok(file) => assert!(file.geometry().file_len() == std::fs::metadata(path).expect("it is there").len()),
        Err(Error::Geometry { .. }) => {}
        Err(other) => panic!("{other}"),
    }
}

/// Opens a file for puts after a crash, and puts. `None` if the file is rejected.
fn check_writing(path: &Path, geometry: Geometry, last_exit_ok: bool, hashes: &[i32]) -> Option<()> {
    let repaired = read(path, geometry, Access::Pread, Answers::Complete, last_exit_ok);
    let (before, answers) = (entries(&repaired), ask(&repaired, hashes, None, TimeRange::ALL));
    let links = |file: &IndexFile| {
        let findings = file.verify().expect("damage is reported, not raised").findings;
        findings.into_iter().find(|finding| ["prev-index", "slot-value", "index-count"].contains(&finding.kind.word()))
    };
    let is_whole = std::fs::metadata(path).expect("it is there").len() >= geometry.file_len();
    if !last_exit_ok && is_whole {
        assert_eq!(links(&repaired), None, "read as repaired");
    }
    let options = OpenOptions { write: true, geometry: Some(geometry), last_exit_ok, ..OpenOptions::default() };
    let file = match IndexFile::open(path, options) {
        Ok(file) => file,
        Err(Error::Corrupt { .. }) => return None,
        Err(other) => panic!("{other}"),
    };
    if !last_exit_ok {
        assert_eq!(links(&file), None, "repaired");
        let kept = entries(&file);
        assert!(before.starts_with(&kept), "a repair adds no entry");
        if kept.len() == before.len() {
            assert_eq!(ask(&file, hashes, None, TimeRange::ALL), answers, "as it was read");
        }
    }
    let was_clean = file.verify().expect("damage is reported, not raised").findings.is_empty();
    let before = entries(&file);
    let begin = file.header().expect("it is there").begin_timestamp.max(1);
    let (keys, times) = ([7, 7 + SLOTS as i32, 0], [begin, begin.saturating_add(5000), begin.saturating_add(9000)]);
    let columns = PutColumns { keys: &Hashes(&keys), phy_offsets: &[1000, 2000, 3000], store_timestamps: &times };
    let put = file.put_batch(&columns, 0).expect("the space is reserved");
    assert_eq!(
        put,
        (geometry.max_entries() as usize - 1 - before.len().min(geometry.max_entries() as usize - 1)).min(3)
    );
    if was_clean {
        let checked = file.verify().expect("damage is reported, not raised");
        assert!(checked.findings.is_empty(), "after puts: {:?}", checked.findings);
        let after = entries(&file);
        assert!(after.starts_with(&before) && after.len() == before.len() + put);
        for hash in hashes.iter().chain(&keys) {
            let (found, damage) = file.select(*hash, None, TimeRange::ALL).expect("all of it is there");
            assert!(damage.is_none() && found == all_of(&after, *hash), "hash {hash}");
        }
    }
    Some(())
}

fuzz_target!(|bytes: &[u8]| {
    // The first two bytes are the geometry: it is not stored in a file.
    let [slots, max, content @ ..] = bytes else { return };
    let geometry = Geometry::new(u32::from(*slots) % SLOTS + 1, u32::from(*max) % ENTRIES + 1).expect("small");
    let content = content.get(..usize::try_from(geometry.file_len()).unwrap_or(0)).unwrap_or(content);
    let scratch = Scratch::new();
    let path = scratch.write(NAME, content);
    let mut hashes: Vec<i32> = vec![0, 1, 7, i32::MAX];
    let first = usize::try_from(geometry.entry(1)).unwrap_or(0);
    let table = content.get(first..).unwrap_or_default();
    hashes.extend(table.chunks_exact(20).map(|entry| entry.first_chunk().copied().map_or(0, i32::from_be_bytes)));
    // No key has a hash below 0.
    hashes.retain(|hash| *hash >= 0);
    hashes.sort_unstable();
    hashes.dedup();

    check_reading(&path, geometry, &hashes);
    assert_eq!(std::fs::read(&path).expect("it is there"), content, "reading changes no byte");
    // A crash of the process and one of the machine, each on its own copy.
    for last_exit_ok in [true, false] {
        let path = scratch.write(NAME, content);
        check_writing(&path, geometry, last_exit_ok, &hashes);
    }
});
