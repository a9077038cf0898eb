//! The check of a whole index file. Linear; changes nothing. Kinds: docs/findings.md.

use std::io;
use std::path::Path;

use crate::hash_index::format::entry::{PREV_INDEX, TIME_DIFF, times_agree};
use crate::hash_index::format::geometry::{Geometry, HEADER_LEN};
use crate::hash_index::format::header::at;
use crate::hash_index::read::select::{self, View};
use crate::io::{ReadAt, u32_of};
use crate::report::{Kind, Report};

/// Compares the header with the entries, each entry's link with the entries before it, and each slot with its newest.
#[expect(clippy::cast_sign_loss, reason = "checked to be 0 or more")]
pub(crate) fn verify<S: ReadAt>(path: &Path, source: &S, geometry: Geometry, file_len: u64) -> io::Result<Report> {
    let mut report = Report::default();
    for (what, number) in [("files", 1), ("slots", 0), ("entries", 0)] {
        report.count(what, number);
    }
    if file_len != geometry.file_len() {
        let bytes = format!("{} bytes", geometry.file_len());
        report.find(path, file_len.min(geometry.file_len()), Kind::FileSize, bytes, format!("{file_len} bytes"));
        if file_len < HEADER_LEN {
            return Ok(report);
        }
    }
    let view = View::new(source, geometry, file_len)?;
    let heads = read_slots(&view, file_len)?;
    report.count("slots", heads.len() as u64);
    let end = counted_end(&view, &heads, path, &mut report)?;

    report.count("entries", u64::from(end.saturating_sub(1)));
    let mut newest = vec![0u32; geometry.hash_slots() as usize];
    for read in view.entries(1..end) {
        let (position, entry) = read?;
        let at = geometry.entry(position);
        if entry.key_hash < 0 {
            report.find(path, at, Kind::EntryHash, "0 or more", entry.key_hash);
            continue;
        }
        if entry.time_diff < 0 {
            report.find(path, at + TIME_DIFF, Kind::TimeDiff, "0 or more", entry.time_diff);
        }
        if let Some(head) = newest.get_mut(geometry.slot_of(entry.key_hash) as usize) {
            if i64::from(entry.prev_index) != i64::from(*head) {
                report.find(path, at + PREV_INDEX, Kind::PrevIndex, *head, entry.prev_index);
            }
            *head = position;
        }
    }
    for (slot, (&head, &expected)) in (0u32..).zip(heads.iter().zip(&newest)) {
        let cut_off = head >= 0 && head as u32 >= view.present;
        if i64::from(head) != i64::from(expected) && !(cut_off && file_len < geometry.file_len()) {
            report.find(path, geometry.slot(slot), Kind::SlotValue, expected, head);
        }
    }
    check_header(&view, end, path, &mut report)?;
    report.findings.sort_by_key(|finding| finding.offset);
    Ok(report)
}

fn read_slots<S: ReadAt>(view: &View<'_, S>, file_len: u64) -> io::Result<Vec<i32>> {
    let within = file_len.saturating_sub(HEADER_LEN) / 4;
    let slots = u32_of(within).min(view.geometry.hash_slots());
    let mut heads = vec![0; slots as usize];
    select::read_slots(view.source, view.geometry, &mut heads)?;
    Ok(heads.into_iter().map(u32::cast_signed).collect())
}

/// Returns the end of the entries: the count, or more if whole entries above the count are linked.
#[expect(clippy::cast_sign_loss, reason = "checked to be above 0")]
fn counted_end<S: ReadAt>(view: &View<'_, S>, heads: &[i32], path: &Path, report: &mut Report) -> io::Result<u32> {
    let header = &view.header;
    let most = view.geometry.max_entries();
    if header.index_count < 0 || header.next_position() > most {
        report.find(path, at::INDEX_COUNT, Kind::IndexCount, format!("at most {most}"), header.index_count);
        return Ok(view.present);
    }
    let mut end = view.counted();
    for (slot, &head) in (0u32..).zip(heads) {
        if head > 0 && head as u32 >= end && (head as u32) < view.present {
            let entry = view.entry(head as u32)?;
            if entry.is_whole(view.geometry, head as u32, slot) && !entry.is_zero() {
                end = head as u32 + 1;
            }
        }
    }
    if end > header.next_position() {
        report.find(path, at::INDEX_COUNT, Kind::IndexCount, format!("at least {end}"), header.index_count);
    }
    Ok(end)
}

fn check_header<S: ReadAt>(view: &View<'_, S>, end: u32, path: &Path, report: &mut Report) -> io::Result<()> {
    let header = &view.header;
    if end <= 1 || end < view.header.next_position().min(view.geometry.max_entries()) {
        return Ok(()); // nothing to compare with: no entry, or the last one is truncated
    }
    let (first, last) = (view.entry(1)?, view.entry(end - 1)?);
    if header.begin_timestamp > 0 && !times_agree(header, end - 1, &last) {
        let expected = format!("an end timestamp {} s after begin {}", last.time_diff, header.begin_timestamp);
        report.find(path, at::BEGIN_TIMESTAMP, Kind::HeaderTime, expected, header.end_timestamp);
    }
    if header.begin_phy_offset != first.phy_offset {
        report.find(path, at::BEGIN_PHY_OFFSET, Kind::BeginPhyOffset, first.phy_offset, header.begin_phy_offset);
    }
    if header.end_phy_offset != last.phy_offset {
        report.find(path, at::END_PHY_OFFSET, Kind::EndPhyOffset, last.phy_offset, header.end_phy_offset);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::hash_index::read::select::select;
    use crate::hash_index::repair::relink::relink;
    use crate::hash_index::{CreateOptions, IndexFile, PutColumns};
    use crate::time_range::TimeRange;

    /// The bytes of a file, and the number of reads.
    struct Counted(Vec<u8>, AtomicUsize);

    impl ReadAt for Counted {
        fn len(&self) -> u64 {
            ReadAt::len(&self.0)
        }

        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.read_exact_at(buf, offset)
        }

        fn words<const N: usize>(&self, offset: u64) -> io::Result<[u32; N]> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.words(offset)
        }
    }

    #[test]
    fn slots_and_entries_are_read_in_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("20260101000000000");
        let geometry = Geometry::new(50_000, 100_001).unwrap();
        let file = IndexFile::create(&path, CreateOptions::new(geometry)).unwrap();
        let keys: Vec<String> = (0..100_000).map(|number| format!("T#{number}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let (phy_offsets, store_timestamps) = ((0..100_000).collect::<Vec<i64>>(), vec![1_700_000_000_000; 100_000]);
        let columns =
            PutColumns { keys: keys.as_slice(), phy_offsets: &phy_offsets, store_timestamps: &store_timestamps };
        assert_eq!(file.put_batch(&columns, 0).unwrap(), 100_000);
        drop(file);

        let mut counted = Counted(std::fs::read(&path).unwrap(), AtomicUsize::new(0));
        let reads = |counted: &Counted| counted.1.swap(0, Ordering::Relaxed);
        let report = verify(&path, &counted, geometry, geometry.file_len()).unwrap();
        assert_eq!(report.findings, []);
        assert!(reads(&counted) < 30);
        let read = View::new(&counted, geometry, geometry.file_len()).unwrap().entries(1..100_001).map(Result::unwrap);
        let offsets: Vec<i64> = read.map(|(position, entry)| i64::from(position) - 1 - entry.phy_offset).collect();
        assert_eq!(offsets, vec![0; 100_000]);
        assert!(reads(&counted) < 20);
        let found = relink(&counted, geometry, geometry.max_entries(), false).unwrap();
        assert_eq!((found.header.index_count, found.links), (100_001, vec![]));
        assert!(reads(&counted) < 20);

        // A damaged chain, so that all entries are read.
        let hash = crate::hash_index::key_hash("T#7");
        let slot = usize::try_from(geometry.slot(geometry.slot_of(hash))).unwrap();
        counted.0[slot..slot + 4].copy_from_slice(&(-5i32).to_be_bytes());
        let view = View::new(&counted, geometry, geometry.file_len()).unwrap();
        let (times, mut hits) = (view.times().unwrap(), Vec::new());
        select(&view, times, hash, usize::MAX, TimeRange::ALL, &mut hits).unwrap().unwrap();
        assert!(hits.contains(&7));
        assert!(reads(&counted) < 30);
    }
}
