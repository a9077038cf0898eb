//! The check of an index: its length, the order of its entries, and whether the log agrees with them.

use super::batch_table::{BatchTable, Contradiction};
use crate::error::Result;
use crate::kafka::index::offset_index::{OffsetEntry, OffsetIndex};
use crate::kafka::index::sparse_index::SparseIndex;
use crate::kafka::index::time_index::{TimeEntry, TimeIndex};
use crate::kafka::read::segment::Segment;
use crate::report::{Finding, Flaw, Kind, Report};

/// The rules that the entries of an index obey.
pub trait VerifiableIndex: SparseIndex {
    /// The name of the entries in a report.
    const ENTRIES: &'static str;

    /// True for the bytes of a slot that the broker has not used.
    fn is_unused(&self, entry: Self::Entry) -> bool;

    /// True if an entry may follow `last`; `None`: if it may be the first.
    fn may_follow(&self, entry: Self::Entry, last: Option<Self::Entry>) -> bool;

    /// The expected entry after `last`, in words.
    fn expected_after(last: Self::Entry) -> String;

    /// An entry, in words.
    fn describe(entry: Self::Entry) -> String;

    /// Returns how the log contradicts an entry.
    fn contradiction(batches: &BatchTable, entry: Self::Entry) -> Option<Contradiction>;
}

impl VerifiableIndex for OffsetIndex {
    const ENTRIES: &'static str = "index entries";

    fn is_unused(&self, entry: OffsetEntry) -> bool {
        entry.offset == self.base_offset() && entry.position == 0
    }

    fn may_follow(&self, entry: OffsetEntry, last: Option<OffsetEntry>) -> bool {
        let ascends = last.is_none_or(|last| entry.offset > last.offset && entry.position > last.position);
        ascends && entry.offset >= self.base_offset() && entry.position >= 0
    }

    fn expected_after(last: OffsetEntry) -> String {
        format!("more than offset {} at {}", last.offset, last.position)
    }

    fn describe(entry: OffsetEntry) -> String {
        format!("offset {} at {}", entry.offset, entry.position)
    }

    fn contradiction(batches: &BatchTable, entry: OffsetEntry) -> Option<Contradiction> {
        batches.contradicts_offset(entry)
    }
}

impl VerifiableIndex for TimeIndex {
    const ENTRIES: &'static str = "time index entries";

    fn is_unused(&self, entry: TimeEntry) -> bool {
        entry.offset == self.base_offset() && entry.timestamp == 0
    }

    fn may_follow(&self, entry: TimeEntry, last: Option<TimeEntry>) -> bool {
        let ascends = last.is_none_or(|last| entry.timestamp > last.timestamp && entry.offset >= last.offset);
        ascends && entry.offset >= self.base_offset() && entry.timestamp >= 0
    }

    fn expected_after(last: TimeEntry) -> String {
        format!("a timestamp above {} and an offset of at least {}", last.timestamp, last.offset)
    }

    fn describe(entry: TimeEntry) -> String {
        format!("timestamp {}, offset {}", entry.timestamp, entry.offset)
    }

    fn contradiction(batches: &BatchTable, entry: TimeEntry) -> Option<Contradiction> {
        batches.contradicts_time(entry)
    }
}

/// Checks every entry of an index, and compares it with the log if that is given. The index must be open with
/// [`Check::Trust`](crate::kafka::index::index_file::Check::Trust).
///
/// # Errors
/// An I/O error.
pub fn verify_index<I: VerifiableIndex>(index: &I, log: Option<&Segment>) -> Result<Report> {
    let mut verified = Report::default();
    let batches = log.map(BatchTable::read).transpose()?;
    check_entries(index, batches.as_ref(), &mut verified);
    Ok(verified)
}

pub(super) fn check_entries<I: VerifiableIndex>(index: &I, batches: Option<&BatchTable>, verified: &mut Report) {
    let (mut last, mut valid) = (None, 0);
    for slot in 0..used_slots(index) {
        let Some(entry) = index.entry(slot) else { break };
        let flaw = if index.may_follow(entry, last) {
            let contradiction = batches.and_then(|batches| I::contradiction(batches, entry));
            contradiction.map(|(expected, found)| Flaw::new(Kind::IndexEntry, expected, found))
        } else {
            let expected = I::expected_after(last.unwrap_or_else(|| index.front()));
            Some(Flaw::new(Kind::IndexOrder, expected, I::describe(entry)))
        };
        match flaw {
            Some(flaw) => verified.findings.push(Finding::new(index.path(), (slot * I::ENTRY_SIZE) as u64, flaw)),
            None => valid += 1,
        }
        last = Some(entry);
    }
    let len = index.file_len();
    let rest = len % I::ENTRY_SIZE as u64;
    if rest > 0 {
        let expected = format!("a multiple of {} bytes", I::ENTRY_SIZE);
        let flaw = Flaw::new(Kind::IndexSize, expected, format_args!("{len} bytes"));
        verified.findings.push(Finding::new(index.path(), len - rest, flaw));
    }
    verified.checked.push((I::ENTRIES, valid));
}

/// Number of slots up to the last that is not zeros: the broker had not used the slots after it.
fn used_slots<I: VerifiableIndex>(index: &I) -> usize {
    let is_used = |slot: &usize| index.entry(*slot).is_some_and(|entry| !index.is_unused(entry));
    (0..index.len()).rev().find(is_used).map_or(0, |slot| slot + 1)
}
