//! Looking through a whole index file for what cannot be true. Linear; changes nothing. Kinds: docs/findings.md.

use std::fmt::Display;
use std::io;

use crate::hash_index::format::entry::{PREV_INDEX, TIME_DIFF, times_agree};
use crate::hash_index::format::geometry::{Geometry, HEADER_LEN};
use crate::hash_index::format::header::at;
use crate::hash_index::read::select::View;
use crate::io::ReadAt;

/// One thing that cannot be true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Byte offset in the file.
    pub offset: u64,
    /// A word of the closed list in docs/findings.md.
    pub kind: &'static str,
    /// What the format or its neighbours ask for.
    pub expected: String,
    /// What the file holds.
    pub found: String,
}

/// What a check found and how much it looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// In the order of their offsets.
    pub findings: Vec<Finding>,
    /// Slots compared.
    pub slots: u64,
    /// Entries compared.
    pub entries: u64,
}

impl Checked {
    fn find(&mut self, offset: u64, kind: &'static str, expected: impl Display, found: impl Display) {
        self.findings.push(Finding { offset, kind, expected: expected.to_string(), found: found.to_string() });
    }
}

/// Compares the header with the entries, each entry's link with the entries before it, and each slot with its newest.
#[expect(clippy::cast_sign_loss, reason = "checked to be 0 or more")]
pub(crate) fn verify<S: ReadAt>(source: &S, geometry: Geometry, file_len: u64) -> io::Result<Checked> {
    let mut report = Checked::default();
    if file_len != geometry.file_len() {
        let bytes = format!("{} bytes", geometry.file_len());
        report.find(file_len.min(geometry.file_len()), "file-size", bytes, format!("{file_len} bytes"));
        if file_len < HEADER_LEN {
            return Ok(report);
        }
    }
    let view = View::new(source, geometry, file_len)?;
    let heads = read_slots(&view, file_len)?;
    report.slots = heads.len() as u64;
    let end = counted_end(&view, &heads, &mut report)?;

    let mut newest = vec![0u32; geometry.hash_slots() as usize];
    for position in 1..end {
        let entry = view.entry(position)?;
        let at = geometry.entry(position);
        report.entries += 1;
        if entry.key_hash < 0 {
            report.find(at, "entry-hash", "0 or more", entry.key_hash);
            continue;
        }
        if entry.time_diff < 0 {
            report.find(at + TIME_DIFF, "time-diff", "0 or more", entry.time_diff);
        }
        if let Some(head) = newest.get_mut(geometry.slot_of(entry.key_hash) as usize) {
            if i64::from(entry.prev_index) != i64::from(*head) {
                report.find(at + PREV_INDEX, "prev-index", *head, entry.prev_index);
            }
            *head = position;
        }
    }
    for (slot, (&head, &expected)) in (0u32..).zip(heads.iter().zip(&newest)) {
        let cut_off = head >= 0 && head as u32 >= view.present;
        if i64::from(head) != i64::from(expected) && !(cut_off && file_len < geometry.file_len()) {
            report.find(geometry.slot(slot), "slot-value", expected, head);
        }
    }
    check_header(&view, end, &mut report)?;
    report.findings.sort_by_key(|finding| finding.offset);
    Ok(report)
}

fn read_slots<S: ReadAt>(view: &View<'_, S>, file_len: u64) -> io::Result<Vec<i32>> {
    let within = file_len.saturating_sub(HEADER_LEN) / 4;
    let slots = u32::try_from(within).unwrap_or(u32::MAX).min(view.geometry.hash_slots());
    (0..slots).map(|slot| view.slot(slot)).collect()
}

/// Where the entries end: at the count, or above it where whole entries are linked that the count leaves out.
#[expect(clippy::cast_sign_loss, reason = "checked to be above 0")]
fn counted_end<S: ReadAt>(view: &View<'_, S>, heads: &[i32], report: &mut Checked) -> io::Result<u32> {
    let header = &view.header;
    let most = view.geometry.max_entries();
    if header.index_count < 0 || header.next_position() > most {
        report.find(at::INDEX_COUNT, "index-count", format!("at most {most}"), header.index_count);
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
        report.find(at::INDEX_COUNT, "index-count", format!("at least {end}"), header.index_count);
    }
    Ok(end)
}

fn check_header<S: ReadAt>(view: &View<'_, S>, end: u32, report: &mut Checked) -> io::Result<()> {
    let header = &view.header;
    if end <= 1 || end < view.header.next_position().min(view.geometry.max_entries()) {
        return Ok(()); // nothing to compare with: no entry, or the last one is cut off
    }
    let (first, last) = (view.entry(1)?, view.entry(end - 1)?);
    if header.begin_timestamp > 0 && !times_agree(header, end - 1, &last) {
        let expected = format!("an end timestamp {} s after begin {}", last.time_diff, header.begin_timestamp);
        report.find(at::BEGIN_TIMESTAMP, "header-time", expected, header.end_timestamp);
    }
    if header.begin_phy_offset != first.phy_offset {
        report.find(at::BEGIN_PHY_OFFSET, "begin-phy-offset", first.phy_offset, header.begin_phy_offset);
    }
    if header.end_phy_offset != last.phy_offset {
        report.find(at::END_PHY_OFFSET, "end-phy-offset", last.phy_offset, header.end_phy_offset);
    }
    Ok(())
}
