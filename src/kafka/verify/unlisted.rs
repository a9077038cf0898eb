//! The indexes of aborted transactions, compared with the markers of the log: a broker's committed reads return the records of a
//! transaction that is not listed, and leave out those of one that is listed wrongly.

use std::collections::HashSet;
use std::sync::Arc;

use crate::error::Result;
use crate::io::storage;
use crate::kafka::index::transaction_index::{self, AbortedTransaction};
use crate::kafka::log::any_has_gaps;
use crate::kafka::read::producer_state::ProducerState;
use crate::kafka::read::segment::Segment;
use crate::report::{Finding, Flaw, Kind};

/// Names the first transaction that each index misses or has wrongly, for the segments of a log in their order.
///
/// After a crash the index of the last segment does not count: recovery writes it anew. In a compacted log, and for a transaction that
/// began before it, the log no longer shows what the index must have.
///
/// # Errors
/// An I/O error.
pub fn unlisted_transactions(segments: &[Arc<Segment>], after_crash: bool) -> Result<Vec<Finding>> {
    let mut producers = ProducerState::default();
    let mut findings = Vec::new();
    let counted = segments.len() - usize::from(after_crash && !segments.is_empty());
    for (number, segment) in segments.iter().enumerate() {
        let aborted = segment.aborted_transactions(&mut producers)?;
        if number >= counted {
            continue;
        }
        let path = segment.beside(".txnindex");
        let Some(listed) = transaction_index::read_trusted(&path, segment.base_offset())? else { continue };
        let ends: HashSet<_> = listed.iter().map(|entry| (entry.producer_id, entry.last_offset)).collect();
        let Some(missed) = aborted.iter().find(|entry| !ends.contains(&(entry.producer_id, entry.last_offset))) else {
            let whole: HashSet<_> = aborted.iter().map(range).collect();
            let first = segments.first().map_or(0, |segment| segment.base_offset());
            let wrong =
                (0..).zip(&listed).find(|(_, each)| !whole.contains(&range(each)) && each.first_offset >= first);
            if let Some((at, entry)) = wrong
                && !any_has_gaps(segments)?
            {
                findings.push(Finding::new(&path, at * transaction_index::ENTRY_SIZE as u64, wrong_entry(entry)));
            }
            continue;
        };
        let what = format!(
            "the transaction of producer {} that was aborted at offset {}",
            missed.producer_id, missed.last_offset
        );
        findings.push(match storage::status(&path) {
            Ok(index) => Finding::new(&path, index.len, Flaw::new(Kind::IndexEntry, what, "no entry")),
            Err(_) => Finding::new(&path, 0, Flaw::new(Kind::FileMissing, format!("an index with {what}"), "none")),
        });
    }
    Ok(findings)
}

fn range(entry: &AbortedTransaction) -> (i64, i64, i64) {
    (entry.producer_id, entry.first_offset, entry.last_offset)
}

fn wrong_entry(entry: &AbortedTransaction) -> Flaw {
    let (producer, first, last) = range(entry);
    let found = format!("producer {producer}, from offset {first} to {last}");
    Flaw::new(Kind::IndexEntry, "a transaction that the log aborts", found)
}
