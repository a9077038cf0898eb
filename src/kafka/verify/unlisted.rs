//! Aborted transactions that the index of their segment does not list, so that a broker's committed reads return their records.

use std::collections::HashSet;
use std::sync::Arc;

use crate::error::Result;
use crate::io::storage;
use crate::kafka::index::transaction_index;
use crate::kafka::read::producer_state::ProducerState;
use crate::kafka::read::segment::Segment;
use crate::report::{Finding, Flaw, Kind};

/// Names the first transaction that each index misses, for the segments of a log in their order.
///
/// After a crash the index of the last segment does not count: recovery writes it anew.
///
/// # Errors
/// An I/O error.
pub fn unlisted_transactions(segments: &[Arc<Segment>], after_crash: bool) -> Result<Vec<Finding>> {
    let mut producers = ProducerState::default();
    let mut findings = Vec::new();
    let counted = segments.len() - usize::from(after_crash && !segments.is_empty());
    for (number, segment) in segments.iter().enumerate() {
        let aborted = segment.aborted_transactions(&mut producers)?;
        if aborted.is_empty() || number >= counted {
            continue;
        }
        let path = segment.beside(".txnindex");
        let Some(listed) = transaction_index::read_trusted(&path, segment.base_offset())? else { continue };
        let listed: HashSet<_> = listed.iter().map(|entry| (entry.producer_id, entry.last_offset)).collect();
        let Some(missed) = aborted.iter().find(|entry| !listed.contains(&(entry.producer_id, entry.last_offset)))
        else {
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
