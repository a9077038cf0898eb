//! Any bytes as the files beside a Kafka segment: every reader returns what a plain decoding returns, and no index makes a
//! lookup in a valid log answer something else.
#![no_main]

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use logdex::error::Error;
use logdex::kafka::{
    Check, IndexOptions, OffsetEntry, OffsetIndex, Segment, SegmentOptions, SparseIndex, TimeEntry, TimeIndex,
    VerifiableIndex, producer_snapshot, transaction_index, verify_index,
};
use logdex_fuzz::Scratch;
use logdex_fuzz::kafka::{BATCHES, FIRST_TIME, RECORDS, repair_snapshot, valid_log};

const BASE: i64 = 100;
const LOG: &str = "00000000000000000100.log";
const INDEX: &str = "00000000000000000100.index";
const TIMES: &str = "00000000000000000100.timeindex";
const ABORTED: &str = "00000000000000000100.txnindex";
/// Records of the log.
const ALL: i64 = BATCHES * RECORDS;
const CHECKS: [Check; 2] = [Check::Trust, Check::Verify];

/// Checks lookups with an index that is right, wrong or missing: the answers are those of the log.
fn check_lookups(scratch: &Scratch) {
    let (log, batches) = valid_log(BASE);
    let segment = Segment::open(&scratch.write(LOG, &log), SegmentOptions::default()).expect("a file that is there");
    let segment = Arc::new(segment);
    for target in BASE - 1..=BASE + ALL {
        let expected = batches.iter().find(|batch| batch.last_offset >= target);
        let found = segment.translate_offset(target, 0).expect("a valid log");
        let expected = expected.map(|batch| (batch.base_offset, batch.position));
        assert_eq!(found.map(|found| (found.offset, found.position)), expected, "offset {target}");
    }
    for time in (-1..=ALL).step_by(2) {
        let expected = (time < ALL).then_some(BASE + time.max(0));
        let found = segment.offset_for_timestamp(FIRST_TIME + time, BASE, true).expect("a valid log");
        assert_eq!(found.map(|found| found.offset), expected, "time {time}");
    }
    assert_eq!(segment.next_offset().expect("a valid log"), BASE + ALL);
    assert_eq!(segment.max_timestamp().expect("a valid log").timestamp, FIRST_TIME + ALL - 1);
    let len = |name: &str| std::fs::metadata(segment.path().with_file_name(name)).map_or(0, |data| data.len());
    let verified = segment.verify(true).expect("damage is reported, not raised");
    for finding in &verified.findings {
        let name = finding.path.file_name().and_then(|name| name.to_str()).expect("one of ours");
        assert!(name != LOG && finding.offset <= len(name), "{finding:?}");
    }
}

fn options(check: Check, write: bool) -> IndexOptions {
    IndexOptions { check, write, ..IndexOptions::default() }
}

/// Targets at, before and after values.
fn around(values: impl Iterator<Item = i64>) -> Vec<i64> {
    let near = values.take(40).flat_map(|value| [value.wrapping_sub(1), value, value.wrapping_add(1)]);
    near.chain([i64::MIN, -1, 0, i64::MAX]).collect()
}

/// Allowed results of a change of an index.
fn check_refusal(refused: Result<(), Error>) {
    match refused {
        Ok(()) | Err(Error::InvalidArgument(_) | Error::IndexFull { .. } | Error::Corrupt { .. }) => {}
        Err(other) => panic!("{other}"),
    }
}

/// Opens an index whose file a plain decoding reads as `plain`: it has these entries, all or as far as they ascend, and ranks
/// targets among them as a plain search does.
fn check_entries<I>(
    path: &Path,
    check: Check,
    plain: &[I::Entry],
    key: fn(&I::Entry) -> i64,
    ascends: fn(&[I::Entry]) -> bool,
) -> I
where
    I: VerifiableIndex<Entry: Debug + PartialEq>,
{
    let index = I::open(path, &options(check, false)).expect("a file that is there");
    let entries: Vec<I::Entry> = (0..index.len()).filter_map(|slot| index.entry(slot)).collect();
    assert_eq!(plain.get(..index.len()), Some(entries.as_slice()));
    assert!(
        check == Check::Trust && index.len() == plain.len()
            || check == Check::Verify && entries.windows(2).all(ascends)
    );
    let sorted = entries.is_sorted_by(|a, b| key(a) < key(b));
    let targets = around(entries.iter().map(key));
    let ranks = index.ranks(&targets);
    for (target, rank) in targets.iter().zip(ranks) {
        assert_eq!(index.rank(*target), rank as usize, "{target}");
        if sorted {
            assert_eq!(rank as usize, entries.partition_point(|entry| key(entry) <= *target), "{target}");
        }
    }
    check_refusal(index.sanity_check());
    verify_index(&index, None).expect("damage is reported, not raised");
    index
}

/// Checks that a changed index has its entries after it is opened again.
fn check_kept<I>(path: &Path, mut index: I)
where
    I: VerifiableIndex<Entry: Debug + PartialEq>,
{
    let entries = |index: &I| (0..index.len()).map(|slot| index.entry(slot)).collect::<Vec<_>>();
    index.trim().expect("space is not needed");
    let kept = entries(&index);
    drop(index);
    let index = I::open(path, &options(Check::Trust, false)).expect("a file that is there");
    assert_eq!(entries(&index), kept);
}

fn check_offset_index(path: &Path, bytes: &[u8]) {
    let decode = |entry: &[u8; 8]| {
        let both = i64::from_be_bytes(*entry);
        OffsetEntry { offset: BASE + (both >> 32), position: both as i32 }
    };
    let plain: Vec<OffsetEntry> = bytes.as_chunks::<8>().0.iter().map(decode).collect();
    for check in CHECKS {
        let index = check_entries::<OffsetIndex>(
            path,
            check,
            &plain,
            |entry| entry.offset,
            |pair| pair[0].offset < pair[1].offset && pair[0].position < pair[1].position,
        );
        for target in [0, 1, 700, i32::MAX] {
            index.fetch_upper_bound(target, 100);
        }
    }
    let mut index = OffsetIndex::open(path, &options(Check::Verify, true)).expect("a file that is there");
    let (len, last) = (index.len(), index.last_offset());
    check_refusal(index.append(last.saturating_add(1), 1_000_000));
    assert!(index.len() == len || index.last_offset() == last + 1);
    index.truncate_to(last).expect("open for writing");
    assert!(index.last_offset() < last || index.is_empty() || len == 0);
    check_refusal(index.append(last.saturating_add(7), i32::MAX));
    check_kept(path, index);
}

fn check_time_index(path: &Path, bytes: &[u8]) {
    let decode = |entry: &[u8; 12]| {
        let [.., a, b, c, d] = *entry;
        let time = entry.first_chunk().copied().map_or(0, i64::from_be_bytes);
        TimeEntry { timestamp: time, offset: BASE + i64::from(i32::from_be_bytes([a, b, c, d])) }
    };
    let plain: Vec<TimeEntry> = bytes.as_chunks::<12>().0.iter().map(decode).collect();
    for check in CHECKS {
        check_entries::<TimeIndex>(
            path,
            check,
            &plain,
            |entry| entry.timestamp,
            |pair| pair[0].timestamp < pair[1].timestamp && pair[0].offset <= pair[1].offset,
        );
    }
    let mut index = TimeIndex::open(path, &options(Check::Verify, true)).expect("a file that is there");
    let last = index.last_entry();
    check_refusal(index.maybe_append(last.timestamp.saturating_add(1), last.offset, false).map(drop));
    check_refusal(index.maybe_append(last.timestamp.saturating_add(2), last.offset + 3, true).map(drop));
    index.truncate_to(last.offset).expect("open for writing");
    // Offsets may repeat, and one of equal entries is found.
    assert!(index.last_entry().offset <= last.offset);
    check_kept(path, index);
}

fn check_transactions(path: &Path, bytes: &[u8]) {
    let (entries, left) = transaction_index::read(&path.into()).expect("a file that is there");
    let mut again = Vec::new();
    entries.iter().for_each(|entry| entry.encode(&mut again));
    assert_eq!(again.len() as u64 + left, bytes.len() as u64);
    assert!(bytes.starts_with(&again) && left < transaction_index::ENTRY_SIZE as u64);
}

fn check_snapshot(path: &Path, bytes: &[u8]) {
    match producer_snapshot::read(&path.into()) {
        Ok(producers) => {
            assert_eq!(10 + 46 * producers.len(), bytes.len());
            let ids = bytes[10..]
                .as_chunks::<46>()
                .0
                .iter()
                .map(|entry| entry.first_chunk().copied().map_or(0, i64::from_be_bytes));
            assert!(ids.eq(producers.iter().map(|producer| producer.producer_id)));
        }
        Err(Error::Corrupt { path: at, offset, .. }) => assert!(at == path && offset <= bytes.len() as u64),
        Err(other) => panic!("{other}"),
    }
}

fuzz_target!(|bytes: &[u8]| {
    // The first byte is the kind of file, the second the position that separates two files.
    let [kind, parts, rest @ ..] = bytes else { return };
    let scratch = Scratch::new();
    match kind % 5 {
        0 => {
            let path = scratch.write(INDEX, rest);
            check_lookups(&scratch);
            check_offset_index(&path, rest);
        }
        1 => {
            let path = scratch.write(TIMES, rest);
            check_lookups(&scratch);
            check_time_index(&path, rest);
        }
        2 => {
            let (index, times) = rest.split_at(rest.len().min(usize::from(*parts)));
            scratch.write(INDEX, index);
            scratch.write(TIMES, times);
            check_lookups(&scratch);
        }
        3 => {
            let path = scratch.write(ABORTED, rest);
            check_lookups(&scratch);
            check_transactions(&path, rest);
        }
        _ => check_snapshot(&scratch.write("00000000000000000100.snapshot", rest), rest),
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let size = fuzzer_mutate(data, size, max_size);
    if let Some([kind, _, snapshot @ ..]) = data.get_mut(..size)
        && *kind % 5 == 4
        && !seed.is_multiple_of(4)
    {
        repair_snapshot(snapshot);
    }
    size
});
