//! Batches of lookups against the plain walk of each key in each file: valid and damaged files, one and many, by map and
//! by position, answers of ours and of the broker.

#![expect(clippy::cast_possible_wrap, clippy::cast_possible_truncation, reason = "small numbers")]
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops where it fails")]

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use logdex::error::Error;
use logdex::hash_index::{
    Answers, CreateOptions, Geometry, Hits, IndexFile, KeySource, OpenOptions, PutColumns, key_hash, select_files,
};
use logdex::io::Access;
use logdex::time_range::TimeRange;
use proptest::prelude::*;

const T0: i64 = 1_700_000_000_000;

/// Key hashes that are there already; a negative one is no key.
#[derive(Clone, Debug)]
struct Hashes(Vec<i32>);

impl KeySource for Hashes {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn hash_block(&self, start: usize, hashes: &mut [i32]) {
        hashes.copy_from_slice(&self.0[start..start + hashes.len()]);
    }
}

fn create(path: &Path, geometry: Geometry, access: Access) -> IndexFile {
    let options = CreateOptions { access, ..CreateOptions::new(geometry) };
    IndexFile::create(path, options).unwrap()
}

/// The answers of the plain walk, key by key and file by file, and whether it met damage.
fn plain(
    files: &[&IndexFile],
    hashes: &[i32],
    max_num: Option<usize>,
    range: TimeRange,
) -> Result<(Vec<Vec<i64>>, bool), Error> {
    let mut damaged = false;
    let mut answers = Vec::new();
    for &hash in hashes {
        let mut answer = Vec::new();
        for file in files {
            let left = max_num.map(|most| most - answer.len());
            if hash >= 0 && left != Some(0) {
                let (hits, damage) = file.select(hash, left, range)?;
                damaged |= damage.is_some();
                answer.extend(hits);
            }
        }
        answers.push(answer);
    }
    Ok((answers, damaged))
}

fn by_batch(
    files: &[&IndexFile],
    hashes: &Hashes,
    max_num: Option<usize>,
    range: TimeRange,
) -> Result<(Vec<Vec<i64>>, bool), Error> {
    let mut hits = Hits::new();
    // In two calls: rows are appended.
    let middle = hashes.len() / 3;
    let first = select_files(files, hashes, 0..middle, max_num, range, &mut hits)?.is_some();
    let second = select_files(files, hashes, middle..hashes.len(), max_num, range, &mut hits)?.is_some();
    assert_eq!(hits.len(), hashes.len());
    Ok((hits.rows().map(<[i64]>::to_vec).collect(), first || second))
}

/// One file of a case: what is put, and what becomes of it then.
#[derive(Clone, Debug)]
struct Case {
    slots: u32,
    max_entries: u32,
    /// Hash, and seconds after the one before.
    puts: Vec<(i32, i64)>,
    /// Words that are overwritten.
    damage: Vec<(u32, u32)>,
    /// Bytes that are missing at the end.
    cut: u64,
    mapped: bool,
}

/// Hashes that meet in slots, and some that nobody put.
fn hash() -> impl Strategy<Value = i32> {
    prop_oneof![6 => 0i32..40, 2 => (0i32..20).prop_map(|h| i32::MAX - h), 1 => Just(0)]
}

fn case() -> impl Strategy<Value = Case> {
    let value = prop_oneof![0u32..200, any::<u32>(), Just(u32::MAX), Just(0), Just(1 << 31)];
    let damage = prop_oneof![
        3 => Just(Vec::new()).boxed(),
        1 => prop::collection::vec((any::<u32>(), value), 1..6).boxed(),
    ];
    let cut = prop_oneof![6 => Just(0), 1 => 0u64..300];
    let puts = prop::collection::vec((hash(), -3i64..40), 0..160);
    let mapped = prop::bool::weighted(0.8);
    (1u32..24, 1u32..150, puts, damage, cut, mapped).prop_map(|(slots, max_entries, puts, damage, cut, mapped)| Case {
        slots,
        max_entries,
        puts,
        damage,
        cut,
        mapped,
    })
}

fn build(path: &Path, case: &Case, answers: Answers, file: i64) -> IndexFile {
    let geometry = Geometry::new(case.slots, case.max_entries).unwrap();
    let writer = create(path, geometry, Access::Auto);
    let hashes = Hashes(case.puts.iter().map(|&(hash, _)| hash).collect());
    let phy_offsets: Vec<i64> = (0..case.puts.len() as i64).map(|i| file * 1_000_000 + i).collect();
    let times: Vec<i64> = case
        .puts
        .iter()
        .scan(T0 + file * 1000, |now, &(_, after)| {
            *now += after * 700;
            Some(*now)
        })
        .collect();
    writer.put_batch(&PutColumns { keys: &hashes, phy_offsets: &phy_offsets, store_timestamps: &times }, 0).unwrap();
    drop(writer);
    let mut bytes = fs::read(path).unwrap();
    for &(at, word) in &case.damage {
        let at = at as usize % (bytes.len() / 4) * 4;
        bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }
    bytes.truncate(bytes.len() - (case.cut as usize).min(bytes.len()));
    fs::write(path, bytes).unwrap();
    let access = if case.mapped { Access::Auto } else { Access::Pread };
    IndexFile::open(path, OpenOptions { geometry: Some(geometry), access, answers, ..OpenOptions::default() }).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn batches_answer_as_the_plain_walk(
        cases in prop::collection::vec(case(), 1..5),
        mut hashes in prop::collection::vec(hash(), 0..200),
        no_keys in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
        max_num in prop_oneof![Just(None), (0usize..6).prop_map(Some), Just(Some(usize::MAX))],
        bounds in prop_oneof![
            Just((None, None)),
            (prop::option::of(-10_000i64..100_000), prop::option::of(-10_000i64..100_000)),
        ],
        answers in prop_oneof![3 => Just(Answers::Complete), 1 => Just(Answers::Broker)],
    ) {
        let dir = tempfile::tempdir().unwrap();
        let files: Vec<IndexFile> = (0i64..)
            .zip(&cases)
            .map(|(i, case)| build(&dir.path().join(i.to_string()), case, answers, i))
            .collect();
        let files: Vec<&IndexFile> = files.iter().rev().collect();
        for index in no_keys {
            if !hashes.is_empty() {
                *index.get_mut(&mut hashes) = -1;
            }
        }
        let range = TimeRange::new(bounds.0.map(|ms| T0 + ms), bounds.1.map(|ms| T0 + ms));
        let hashes = Hashes(hashes);
        match (plain(&files, &hashes.0, max_num, range), by_batch(&files, &hashes, max_num, range)) {
            (Ok(expected), Ok(found)) => prop_assert_eq!(found, expected),
            (Err(Error::Corrupt { .. }), Err(Error::Corrupt { .. })) => prop_assert_eq!(answers, Answers::Broker),
            (expected, found) => prop_assert!(false, "{expected:?} but {found:?}"),
        }
    }
}

#[test]
fn the_first_damage_is_that_of_the_first_row() {
    let dir = tempfile::tempdir().unwrap();
    let (hash_a, hash_b) = (3, 4);
    let puts = vec![(hash_a, 0), (hash_b, 0), (hash_a, 0), (hash_b, 0)];
    // The newest entries of both slots link to themselves.
    let word = |entry: u32, field: u32| 10 + 10 + 5 * entry + field;
    let damage = vec![(word(3, 4), 3), (word(4, 4), 4)];
    let case = Case { slots: 10, max_entries: 8, puts, damage, cut: 0, mapped: true };
    let file = build(&dir.path().join("1"), &case, Answers::Complete, 0);
    let mut hits = Hits::new();
    let damage = file.select_batch(&Hashes(vec![hash_b, hash_a]), 0..2, None, TimeRange::ALL, &mut hits).unwrap();
    assert_eq!(damage, file.select(hash_b, None, TimeRange::ALL).unwrap().1);
    assert_eq!(damage.unwrap().offset, u64::from(word(4, 4)) * 4);
    assert_eq!(hits.rows().collect::<Vec<_>>(), [&[3, 1], &[2, 0]]);
}

/// More keys than a chunk has rows, and more files than a batch has lanes for one key.
#[test]
fn large_batches_and_many_files_answer_as_the_plain_walk() {
    let dir = tempfile::tempdir().unwrap();
    let geometry = Geometry::new(701, 3_000).unwrap();
    let held: Vec<IndexFile> = (0i64..120)
        .map(|place| {
            let file = create(&dir.path().join(place.to_string()), geometry, Access::Auto);
            let hashes = Hashes((0i64..2_999).map(|i| ((i + place) * 7919 % 100_003) as i32).collect());
            let numbers: Vec<i64> = (0i64..2_999).map(|i| place * 10_000 + i).collect();
            let columns = PutColumns { keys: &hashes, phy_offsets: &numbers, store_timestamps: &numbers };
            assert_eq!(file.put_batch(&columns, 0).unwrap(), 2_999);
            file
        })
        .collect();
    let files: Vec<&IndexFile> = held.iter().rev().collect();
    for (count, files, max_num) in [
        (40_000, &files[..2], Some(32)),
        (40_000, &files[..1], None),
        (300, &files[..], Some(3)),
        (300, &files[..], None),
        (1, &files[..], None),
        (1, &files[..], Some(2)),
    ] {
        let hashes = Hashes((0..count).map(|i| i64::from(i) * 7919 % 100_003).map(|h| h as i32).collect());
        let expected = plain(files, &hashes.0, max_num, TimeRange::ALL).unwrap();
        assert!(expected.0.iter().any(|answer| !answer.is_empty()));
        assert_eq!(by_batch(files, &hashes, max_num, TimeRange::ALL).unwrap(), expected);
    }
}

#[test]
fn batches_see_whole_puts_while_a_writer_writes() {
    for access in [Access::Mmap, Access::Pread] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1");
        let geometry = Geometry::new(101, 20_000).unwrap();
        let writer = create(&path, geometry, access);
        let options = OpenOptions { geometry: Some(geometry), access, ..OpenOptions::default() };
        let reader = IndexFile::open(&path, options).unwrap();
        let put = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let keys: Vec<String> = (0..19_999).map(|i| format!("T#{}", i % 300)).collect();
                let numbers: Vec<i64> = (0..19_999).collect();
                for start in (0..19_999).step_by(50) {
                    let part = start..(start + 50).min(19_999);
                    let columns = PutColumns {
                        keys: &keys[part.clone()],
                        phy_offsets: &numbers[part.clone()],
                        store_timestamps: &numbers[part.clone()],
                    };
                    writer.put_batch(&columns, 0).unwrap();
                    put.store(part.end, Ordering::Release);
                }
            });
            let hashes = Hashes((0..300).map(|k| key_hash(&format!("T#{k}"))).collect());
            let mut hits = Hits::new();
            let mut seen = 0;
            while !writing.is_finished() || seen == 0 {
                let before = put.load(Ordering::Acquire) as i64;
                hits.clear();
                let damage = reader.select_batch(&hashes, 0..300, None, TimeRange::ALL, &mut hits).unwrap();
                assert_eq!(damage, None);
                for (k, row) in (0i64..).zip(hits.rows()) {
                    let newest = row.first().copied().unwrap_or(k - 300);
                    let whole: Vec<i64> = (0..=newest).rev().filter(|i| i % 300 == k).collect();
                    assert_eq!(row, whole, "nothing between is missing");
                    assert!(newest + 300 >= before, "what was put before the call is found");
                    seen += row.len();
                }
            }
        });
    }
}
