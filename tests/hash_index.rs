//! The public face of the key index, on real files, by both ways of access.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use logdex::error::Error;
use logdex::hash_index::{
    Answers, CreateOptions, Geometry, Hits, IndexFile, OpenOptions, PutColumns, key_hash, select_files,
};
use logdex::io::Access;
use logdex::time_range::TimeRange;
use proptest::prelude::*;

const T0: i64 = 1_700_000_000_000;
const BOTH: [Access; 2] = [Access::Mmap, Access::Pread];

fn geometry(hash_slots: u32, max_entries: u32) -> Geometry {
    Geometry::new(hash_slots, max_entries).unwrap()
}

fn create(path: &Path, geometry: Geometry, access: Access) -> IndexFile {
    let options = CreateOptions { access, ..CreateOptions::new(geometry) };
    IndexFile::create(path, options).unwrap()
}

fn open(path: &Path, options: OpenOptions) -> IndexFile {
    IndexFile::open(path, options).unwrap()
}

fn ask(file: &IndexFile, key: &str, max_num: usize, begin: i64, end: i64) -> Vec<i64> {
    file.select(key_hash(key), Some(max_num), TimeRange { begin_ms: begin, end_ms: end }).unwrap().0
}

fn all(file: &IndexFile, key: &str) -> Vec<i64> {
    file.select(key_hash(key), None, TimeRange::ALL).unwrap().0
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Seven puts as a broker wrote them (section 7 of docs/formats/rocketmq-index.md); the eighth finds the file full.
const EXAMPLE: [(&str, i64, i64); 7] = [
    ("T#a", 1000, T0),
    ("T#b", 1100, T0 + 999),
    ("T#a", 1200, T0 + 1000),
    ("T#k", 1300, T0 + 1999),
    ("T#Aa", 1400, T0 + 5500),
    ("T#BB", 1500, T0 - 3000),
    ("T#a", 1600, T0 + 70_000),
];
const EXAMPLE_BYTES: &str = concat!(
    "0000018bcfe568000000018bcfe6797000000000000003e800000000000006400000000300000008",
    "00000000000000060000000000000000000000000000000000000007000000020000000000000000",
    "0000000000000000000000000000000000000000",
    "00013ff200000000000003e80000000000000000",
    "00013ff3000000000000044c0000000000000000",
    "00013ff200000000000004b00000000100000001",
    "00013ffc00000000000005140000000100000003",
    "0026bacf00000000000005780000000500000000",
    "0026bacf00000000000005dc0000000000000005",
    "00013ff200000000000006400000004600000004",
);

fn example(path: &Path, access: Access) -> IndexFile {
    let file = create(path, geometry(10, 8), access);
    for (key, phy_offset, store_timestamp) in EXAMPLE {
        assert!(file.put_key(key, phy_offset, store_timestamp).unwrap());
    }
    file
}

#[test]
fn one_by_one_and_batch_write_the_brokers_bytes() {
    for access in BOTH {
        let dir = tempfile::tempdir().unwrap();
        let file = example(&dir.path().join("1"), access);
        assert!(!file.put_key("T#z", 9999, T0).unwrap(), "full");
        assert!(file.is_full().unwrap());
        drop(file);
        assert_eq!(hex(&fs::read(dir.path().join("1")).unwrap()), EXAMPLE_BYTES);

        let (keys, rest): (Vec<&str>, Vec<(i64, i64)>) =
            EXAMPLE.iter().map(|&(key, phy_offset, time)| (key, (phy_offset, time))).unzip();
        let (offsets, times): (Vec<i64>, Vec<i64>) = rest.into_iter().unzip();
        let columns = PutColumns { keys: &keys[..], phy_offsets: &offsets, store_timestamps: &times };
        let file = create(&dir.path().join("2"), geometry(10, 8), access);
        assert_eq!(file.put_batch(&columns, 0).unwrap(), 7);
        assert_eq!(file.put_batch(&columns, 0).unwrap(), 0, "full");
        drop(file);
        assert_eq!(hex(&fs::read(dir.path().join("2")).unwrap()), EXAMPLE_BYTES);
    }
}

#[test]
fn compat_answers_as_the_broker() {
    let dir = tempfile::tempdir().unwrap();
    drop(example(&dir.path().join("1"), Access::Auto));
    for access in BOTH {
        let file =
            open(&dir.path().join("1"), OpenOptions { access, answers: Answers::Broker, ..OpenOptions::default() });
        for (key, max_num, begin, end, offsets) in [
            ("T#a", 64, 0, i64::MAX, &[1600, 1200, 1000][..]),
            ("T#a", 2, 0, i64::MAX, &[1600, 1200]),
            ("T#a", 0, 0, i64::MAX, &[]),
            ("T#a", 64, T0 + 1, i64::MAX, &[1600, 1200]),
            ("T#a", 64, T0 + 1000, T0 + 1000, &[1200]),
            ("T#b", 64, T0 + 999, T0 + 999, &[]),
            ("T#b", 64, T0, T0, &[1100]),
            ("T#k", 64, T0 + 1999, i64::MAX, &[]),
            ("T#Aa", 64, 0, i64::MAX, &[1500, 1400]),
            ("T#Aa", 64, T0 + 1000, i64::MAX, &[]),
            ("T#zz", 64, 0, i64::MAX, &[]),
        ] {
            assert_eq!(ask(&file, key, max_num, begin, end), offsets, "{key} {max_num} {begin} {end}");
        }
    }
}

#[test]
fn default_answers_miss_no_time_inside_the_range() {
    let dir = tempfile::tempdir().unwrap();
    let file = example(&dir.path().join("1"), Access::Auto);
    // The stored second of T#b is 0, its true time 999 ms later; the broker misses it.
    assert_eq!(ask(&file, "T#b", 64, T0 + 999, T0 + 999), [1100]);
    assert_eq!(ask(&file, "T#k", 64, T0 + 1999, i64::MAX), [1300]);
    // Put 6 went back in time; the broker's walk stops there and hides put 5.
    assert_eq!(ask(&file, "T#Aa", 64, T0 + 1000, i64::MAX), [1400]);
    assert_eq!(ask(&file, "T#Aa", 64, T0 - 3000, T0 - 3000), [1500]);
    // Entry 1 is exact.
    assert_eq!(ask(&file, "T#a", 64, T0 + 1, T0 + 500), [0i64; 0]);
    assert_eq!(ask(&file, "T#a", 64, T0, T0), [1000]);
}

#[test]
fn the_first_entry_of_a_seeded_file_has_its_own_time() {
    for access in BOTH {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1");
        let options = CreateOptions {
            geometry: geometry(10, 8),
            begin_timestamp: T0,
            begin_phy_offset: 5000,
            access,
            answers: Answers::Complete,
        };
        let file = IndexFile::create(&path, options).unwrap();
        let seeded = "0000018bcfe568000000018bcfe56800000000000000138800000000000013880000000000000000";
        assert_eq!(hex(&fs::read(&path).unwrap()[..40]), seeded);
        assert!(file.put_key("T#x", 6000, T0 + 3_600_000).unwrap());
        let bytes = fs::read(&path).unwrap();
        let header = "0000018bd01c56800000018bd01c5680000000000000177000000000000017700000000100000002";
        assert_eq!(hex(&bytes[..40]), header);
        assert_eq!(hex(&bytes[100..120]), "00014009000000000000177000000e1000000000", "counted from the seed (B3)");
        // The broker puts the entry an hour into the future.
        assert_eq!(ask(&file, "T#x", 64, T0 + 3_600_000, T0 + 3_600_000), [6000]);
        let broker = open(&path, OpenOptions { answers: Answers::Broker, ..OpenOptions::default() });
        assert_eq!(ask(&broker, "T#x", 64, T0 + 3_600_000, T0 + 3_600_000), [0i64; 0]);
        assert_eq!(ask(&broker, "T#x", 64, T0 + 7_200_000, T0 + 7_200_000), [6000]);
    }
}

/// Section 12 of docs/formats/rocketmq-index.md: three puts of one key, the count of the third lost.
fn interrupted(path: &Path, count: u8) {
    let file = create(path, geometry(10, 8), Access::Auto);
    for phy_offset in 1..=3 {
        file.put_key("T#a", phy_offset, T0).unwrap();
    }
    drop(file);
    let mut bytes = fs::read(path).unwrap();
    bytes[39] = count;
    fs::write(path, bytes).unwrap();
}

#[test]
fn an_interrupted_put_hides_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1");
    interrupted(&path, 3);
    let given = OpenOptions { geometry: Some(geometry(10, 8)), ..OpenOptions::default() };
    let compat = OpenOptions { answers: Answers::Broker, ..given };
    assert_eq!(all(&open(&path, given), "T#a"), [3, 2, 1]);
    assert_eq!(all(&open(&path, compat), "T#a"), [3, 2, 1]);
    let file = open(&path, OpenOptions { write: true, ..given });
    file.put_key("T#a", 33, T0).unwrap();
    assert_eq!(all(&file, "T#a"), [33, 3, 2, 1]);
    assert!(file.verify().unwrap().findings.is_empty());
}

#[test]
fn compat_repeats_what_the_broker_does_after_an_interrupted_put() {
    let dir = tempfile::tempdir().unwrap();
    let given = OpenOptions { geometry: Some(geometry(10, 8)), ..OpenOptions::default() };
    let compat = OpenOptions { write: true, answers: Answers::Broker, ..given };
    let path = dir.path().join("1");
    interrupted(&path, 3);
    let file = open(&path, compat);
    file.put_key("T#a", 33, T0).unwrap();
    assert_eq!(all(&file, "T#a"), [33]);
    drop(file);
    let expected = concat!(
        "0000018bcfe568000000018bcfe56800000000000000000100000000000000210000000100000004",
        "00000000000000000000000000000000000000000000000000000003000000000000000000000000",
        "0000000000000000000000000000000000000000",
        "00013ff200000000000000010000000000000000",
        "00013ff200000000000000020000000000000001",
        "00013ff200000000000000210000000000000003",
    );
    assert_eq!(hex(&fs::read(&path).unwrap()[..160]), expected);
    // By default the same file still gives the older ones, and the check names the loop.
    let file = open(&path, given);
    assert_eq!(all(&file, "T#a"), [33, 2, 1]);
    let findings = file.verify().unwrap().findings;
    assert_eq!(findings.iter().map(|f| (f.kind.word(), f.offset)).collect::<Vec<_>>(), [("prev-index", 80 + 60 + 16)]);

    let path = dir.path().join("2");
    interrupted(&path, 2);
    let file = open(&path, compat);
    assert_eq!(all(&file, "T#a"), [0i64; 0]);
    file.put_key("T#a", 44, T0).unwrap();
    assert_eq!(all(&file, "T#a"), [44]);
    let header = file.header().unwrap();
    assert_eq!((header.hash_slot_count, header.index_count), (2, 3));
}

#[test]
fn geometry_is_found_from_the_content() {
    let dir = tempfile::tempdir().unwrap();
    for (number, (slots, entries)) in [(10, 8), (64, 256), (50, 200), (1, 300), (997, 251)].into_iter().enumerate() {
        let path = dir.path().join(number.to_string());
        let file = create(&path, geometry(slots, entries), Access::Auto);
        let mut put = 0;
        while put < 150 && file.put_key(&format!("T#{put}"), put * 100, T0 + put).unwrap() {
            put += 1;
        }
        drop(file);
        for access in BOTH {
            let file = open(&path, OpenOptions { access, ..OpenOptions::default() });
            assert_eq!(file.geometry(), geometry(slots, entries));
        }
    }
}

#[test]
fn geometry_that_cannot_be_told_is_an_error_with_the_fits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1");
    drop(create(&path, geometry(10, 8), Access::Auto));
    match IndexFile::open(&path, OpenOptions::default()) {
        Err(Error::Geometry { fits, count, size, .. }) => {
            assert_eq!((count, size), (9, 240));
            assert!(fits.contains(&(10, 8)));
        }
        other => panic!("{other:?}"),
    }
    fs::write(&path, vec![0xff; 240]).unwrap();
    assert!(matches!(IndexFile::open(&path, OpenOptions::default()), Err(Error::Geometry { count: 0, .. })));
}

#[test]
fn another_geometry_of_the_default_size_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1");
    let other = geometry(5_000_000 + 50, 20_000_000 - 10);
    assert_eq!(other.file_len(), Geometry::DEFAULT.file_len());
    let file = create(&path, other, Access::Auto);
    for i in 0..5000 {
        file.put_key(&format!("T#{i}"), i * 100, T0 + i).unwrap();
    }
    drop(file);
    assert_eq!(open(&path, OpenOptions::default()).geometry(), other);
}

#[test]
fn a_second_writer_is_refused_and_readers_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1");
    let writer = example(&path, Access::Auto);
    let write = OpenOptions { write: true, geometry: Some(geometry(10, 8)), ..OpenOptions::default() };
    match IndexFile::open(&path, write) {
        Err(Error::Locked { path: locked, .. }) => assert_eq!(locked, path),
        other => panic!("{other:?}"),
    }
    assert_eq!(all(&open(&path, OpenOptions::default()), "T#a"), [1600, 1200, 1000]);
    drop(writer);
    assert!(IndexFile::open(&path, write).is_ok());
}

#[test]
fn creating_is_exclusive_and_leaves_nothing_when_it_fails() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1");
    drop(example(&path, Access::Auto));
    let before = fs::read(&path).unwrap();
    let options = CreateOptions::new(geometry(10, 8));
    match IndexFile::create(&path, options) {
        Err(Error::Io { source, .. }) => assert_eq!(source.kind(), std::io::ErrorKind::AlreadyExists),
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::read(&path).unwrap(), before);
    assert!(IndexFile::create(&dir.path().join("none/2"), options).is_err());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn reading_changes_no_byte() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1");
    interrupted(&path, 3);
    let (bytes, modified) = (fs::read(&path).unwrap(), fs::metadata(&path).unwrap().modified().unwrap());
    for access in BOTH {
        for answers in [Answers::Complete, Answers::Broker] {
            for last_exit_ok in [true, false] {
                let given = Some(geometry(10, 8));
                let file = open(&path, OpenOptions { access, answers, last_exit_ok, geometry: given, write: false });
                assert_eq!(all(&file, "T#a"), [3, 2, 1]);
                file.verify().unwrap();
                file.flush().unwrap();
                assert!(file.put_key("T#a", 4, T0).is_err());
            }
        }
    }
    assert_eq!(fs::read(&path).unwrap(), bytes);
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), modified);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// Every file that one change of the example makes: truncations and single bits.
fn damaged_examples(dir: &Path) -> Vec<(String, PathBuf)> {
    let valid = dir.join("valid");
    let file = create(&valid, geometry(4, 8), Access::Auto);
    for (key, phy_offset, store_timestamp) in EXAMPLE {
        file.put_key(key, phy_offset, store_timestamp).unwrap();
    }
    drop(file);
    let bytes = fs::read(&valid).unwrap();
    assert_eq!(bytes.len(), 216);
    let mut all = Vec::new();
    let mut add = |name: String, bytes: &[u8]| {
        let path = dir.join(&name);
        fs::write(&path, bytes).unwrap();
        all.push((name, path));
    };
    for len in 0..bytes.len() {
        add(format!("cut-{len}"), &bytes[..len]);
    }
    for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << bit;
        add(format!("flip-{at}-{bit}"), &changed);
    }
    all
}

#[test]
fn every_truncation_and_flipped_bit_is_answered_or_reported() {
    let dir = tempfile::tempdir().unwrap();
    let damaged = damaged_examples(dir.path());
    assert_eq!(damaged.len(), 216 + 216 * 8);
    let keys = ["T#a", "T#b", "T#k", "T#Aa", "T#zz"];
    let (mut right, mut reported, mut one_entry) = (0, 0, 0);
    for (name, path) in &damaged {
        for answers in [Answers::Complete, Answers::Broker] {
            for access in BOTH {
                for last_exit_ok in [true, false] {
                    let given = Some(geometry(4, 8));
                    let file = open(path, OpenOptions { access, answers, last_exit_ok, geometry: given, write: false });
                    for key in keys {
                        // It ends, and nothing outside the file is read: what comes are offsets of 8 bytes of the file.
                        let _ = file.select(key_hash(key), Some(64), TimeRange { begin_ms: T0, end_ms: T0 + 999 });
                        let _ = file.select(key_hash(key), None, TimeRange::ALL);
                    }
                    file.verify().unwrap();
                }
            }
        }
        let _ = IndexFile::open(path, OpenOptions::default()); // inference ends, too
        let file = open(path, OpenOptions { geometry: Some(geometry(4, 8)), ..OpenOptions::default() });
        let found = !file.verify().unwrap().findings.is_empty();
        let answers: Vec<Vec<i64>> = keys.iter().map(|key| all(&file, key)).collect();
        let truth = [&[1600, 1200, 1000][..], &[1100], &[1300], &[1500, 1400], &[]];
        let wrong: usize = answers.iter().zip(truth).filter(|(answer, truth)| answer != truth).count();
        if found {
            reported += 1;
        } else if wrong == 0 {
            right += 1;
        } else {
            // A flip in an entry's own hash (by a multiple of the slots) or offset: the file has no checksum to tell.
            // The message at that offset, or its absence, does: MessageStore checks every candidate.
            let (at, _) = name.strip_prefix("flip-").unwrap().split_once('-').unwrap();
            let in_entry = (at.parse::<u64>().unwrap() - 56) % 20;
            assert!(in_entry < 12, "{name}: {answers:?}");
            assert_eq!(wrong, 1, "{name}: {answers:?}");
            one_entry += 1;
        }
    }
    println!("{right} answered rightly, {reported} reported, {one_entry} left to the check against the message");
    assert_eq!(right + reported + one_entry, damaged.len());
    assert!(one_entry < damaged.len() / 3);
}

#[test]
fn writers_survive_every_truncation_and_flipped_bit() {
    let dir = tempfile::tempdir().unwrap();
    for (name, path) in damaged_examples(dir.path()) {
        for last_exit_ok in [true, false] {
            let options =
                OpenOptions { write: true, geometry: Some(geometry(4, 8)), last_exit_ok, ..OpenOptions::default() };
            match IndexFile::open(&path, options) {
                Ok(file) => {
                    let _ = file.put_key("T#new", 5000, T0 + 80_000).unwrap();
                    file.verify().unwrap();
                }
                Err(Error::Corrupt { offset, .. }) => assert!(name.starts_with("cut") || offset == 36, "{name}"),
                Err(other) => panic!("{name}: {other}"),
            }
        }
    }
}

#[test]
fn many_files_are_asked_newest_first() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("1"), dir.path().join("2"));
    let old = example(&old, Access::Auto);
    let new = create(&new, geometry(10, 8), Access::Auto);
    new.put_key("T#a", 2000, T0).unwrap();
    let ask = |max_num| {
        let mut hits = Hits::new();
        select_files(&[&new, &old], &["T#a", "T#b"][..], 0..2, max_num, TimeRange::ALL, &mut hits).unwrap();
        hits.rows().map(<[i64]>::to_vec).collect::<Vec<_>>()
    };
    assert_eq!(ask(None), [&[2000, 1600, 1200, 1000][..], &[1100]]);
    assert_eq!(ask(Some(2)), [&[2000, 1600][..], &[1100]]);
    assert!(ask(Some(0)).iter().all(Vec::is_empty));
}

#[test]
fn readers_see_whole_puts_while_a_writer_writes() {
    for access in BOTH {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1");
        let shape = geometry(101, 20_000);
        let writer = create(&path, shape, access);
        let reader = open(&path, OpenOptions { geometry: Some(shape), access, ..OpenOptions::default() });
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let keys: Vec<String> = (0..19_999).map(|i| format!("T#{}", i % 300)).collect();
                let numbers: Vec<i64> = (0..19_999).collect();
                let columns = PutColumns { keys: &keys[..], phy_offsets: &numbers, store_timestamps: &numbers };
                (0..19_999).step_by(50).for_each(|start| {
                    let end = (start + 50).min(19_999);
                    let part = PutColumns {
                        keys: &columns.keys[start..end],
                        phy_offsets: &columns.phy_offsets[start..end],
                        store_timestamps: &columns.store_timestamps[start..end],
                    };
                    assert_eq!(writer.put_batch(&part, 0).unwrap(), end - start);
                });
            });
            let mut seen = 0;
            while !writing.is_finished() || seen == 0 {
                for k in [0, 17, 299] {
                    let (hits, damage) = reader.select(key_hash(&format!("T#{k}")), None, TimeRange::ALL).unwrap();
                    assert_eq!(damage, None);
                    let newest = hits.first().copied().unwrap_or(k - 300);
                    let whole: Vec<i64> = (0..=newest).rev().filter(|i| i % 300 == k).collect();
                    assert_eq!(hits, whole, "nothing between is missing");
                    seen += hits.len();
                }
            }
        });
    }
}

/// What a file should hold, in plain words: every put that fitted, in order.
fn model(puts: &[(String, i64, i64)], max_entries: usize, key: &str) -> Vec<i64> {
    let fitted = &puts[..puts.len().min(max_entries - 1)];
    fitted.iter().rev().filter(|(k, _, _)| key_hash(k) == key_hash(key)).map(|&(_, phy_offset, _)| phy_offset).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_file_is_a_list_of_puts_seen_through_a_hash(
        slots in 1u32..20,
        max_entries in 1u32..120,
        keys in prop::collection::vec(("[a-c]{0,2}", 0i64..1_000_000, -5_000i64..100_000), 0..150),
        cuts in prop::collection::vec(0usize..150, 0..6),
        mapped in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let access = if mapped { Access::Mmap } else { Access::Pread };
        let puts: Vec<(String, i64, i64)> =
            keys.into_iter().map(|(key, offset, dt)| (format!("T#{key}"), offset, T0 + dt)).collect();
        let by_one = create(&dir.path().join("1"), geometry(slots, max_entries), access);
        for (key, offset, time) in &puts {
            by_one.put_key(key, *offset, *time).unwrap();
        }
        let by_batch = create(&dir.path().join("2"), geometry(slots, max_entries), access);
        let mut bounds: Vec<usize> = cuts.into_iter().map(|c| c.min(puts.len())).chain([0, puts.len()]).collect();
        bounds.sort_unstable();
        for pair in bounds.windows(2) {
            let part = &puts[pair[0]..pair[1]];
            let keys: Vec<&str> = part.iter().map(|(k, _, _)| k.as_str()).collect();
            let offsets: Vec<i64> = part.iter().map(|&(_, o, _)| o).collect();
            let times: Vec<i64> = part.iter().map(|&(_, _, t)| t).collect();
            by_batch.put_batch(&PutColumns { keys: &keys[..], phy_offsets: &offsets, store_timestamps: &times }, 0).unwrap();
        }
        prop_assert_eq!(fs::read(dir.path().join("1")).unwrap(), fs::read(dir.path().join("2")).unwrap());
        prop_assert_eq!(by_one.verify().unwrap().findings, vec![]);
        for key in ["T#", "T#a", "T#b", "T#ab", "T#cc", "T#never"] {
            let expected = model(&puts, max_entries as usize, key);
            prop_assert_eq!(&all(&by_one, key), &expected);
            let broker = open(&dir.path().join("2"), OpenOptions {
                geometry: Some(geometry(slots, max_entries)), access, answers: Answers::Broker, ..OpenOptions::default()
            });
            prop_assert_eq!(&all(&broker, key), &expected);
            // By time: nothing stored inside the range is missed, and nothing comes that is seconds away.
            let (begin, end) = (T0 + 10_000, T0 + 30_000);
            let hits = ask(&by_one, key, usize::MAX, begin, end);
            let stored = puts.iter().take(max_entries as usize - 1).rev().filter(|(k, _, _)| key_hash(k) == key_hash(key));
            let inside: Vec<i64> = stored.filter(|(_, _, t)| (begin..=end).contains(t)).map(|&(_, o, _)| o).collect();
            prop_assert!(inside.iter().all(|offset| hits.contains(offset)));
        }
    }
}
