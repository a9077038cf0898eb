//! The transactions of a log: which were aborted, which are open, and so how far a read-committed consumer gets.
//!
//! The `.txnindex` of a segment lists the transactions whose abort markers are in that segment. If the file cannot be trusted, or
//! lists none in a log with transactions, the markers themselves are read: the file may be lost.
//!
//! Source: `TransactionIndex#collectAbortedTxns`, `ProducerStateManager`.

use super::open::LogView;
use crate::error::{Error, Result};
use crate::kafka::index::transaction_index::{self, AbortedTransaction};
use crate::kafka::read::producer_state::ProducerState;

const TXN_INDEX: &str = ".txnindex";

impl LogView {
    /// Returns the aborted transactions with records in [begin, end), in the order of their markers. With a release: as its broker
    /// answers.
    ///
    /// # Errors
    /// `Corrupt`; an I/O error.
    pub fn aborted_between(&self, begin: i64, end: i64) -> Result<Vec<AbortedTransaction>> {
        let aborted = self.aborted_from(begin, end)?.into_iter().map(|(_, entry)| entry);
        Ok(aborted.filter(|entry| entry.last_offset >= begin && entry.first_offset < end).collect())
    }

    /// Returns the aborted transactions with markers from the segment of `begin` on, each with the number of its segment.
    ///
    /// A marker may be many segments after its transaction's records, so all later segments are searched, each once. Only a
    /// transaction that begins at or after `end` may be left out.
    pub(super) fn aborted_from(&self, begin: i64, end: i64) -> Result<Vec<(usize, AbortedTransaction)>> {
        // COMPAT(kafka TransactionIndex#collectAbortedTxns): to a broker, a missing file means that none was aborted.
        let may_miss = self.options.compat.is_none() && self.has_transactions()?;
        let mut producers: Option<ProducerState> = None;
        let mut found = Vec::new();
        for (number, segment) in self.segments.iter().enumerate().skip(self.index_of(begin)) {
            let listed = self.listed(number)?;
            let is_enough = match &listed {
                None => false,
                Some(listed) => !may_miss || (!listed.is_empty() && producers.is_none()),
            };
            let aborted = if is_enough {
                listed.unwrap_or_default()
            } else {
                let state = match producers.as_mut().filter(|_| may_miss) {
                    Some(state) => state,
                    None => producers.insert(self.producers_at(number)?),
                };
                if segment.base_offset() >= end && state.first_open_offset().is_none_or(|first| first >= end) {
                    break;
                }
                // Carried on through a segment with an index, too: there may be no snapshot after it.
                let read = segment.aborted_transactions(state)?;
                listed.filter(|listed| !listed.is_empty()).unwrap_or(read)
            };
            found.extend(aborted.into_iter().map(|entry| (number, entry)));
        }
        Ok(found)
    }

    /// Returns whether a log may hold transactions: an index or a snapshot of the producers shows one, or a snapshot is missing.
    ///
    /// A broker writes a snapshot where each segment ends.
    fn has_transactions(&self) -> Result<bool> {
        if self.listing.segments.values().any(|files| files.contains_key(TXN_INDEX)) {
            return Ok(true);
        }
        let mut ends: Vec<i64> = self.segments.iter().skip(1).map(|segment| segment.base_offset()).collect();
        if !self.segments.is_empty() && !self.is_after_crash() {
            ends.push(self.end()?);
        }
        let snapshot = |end| self.listing.snapshots.get(end);
        Ok(ends.iter().any(|end| snapshot(end).is_none_or(ProducerState::is_transactional)))
    }

    /// Returns the aborted transactions that a segment's index lists; none without the file, `None` if it cannot be trusted.
    fn listed(&self, number: usize) -> Result<Option<Vec<AbortedTransaction>>> {
        if number + 1 == self.segments.len() && self.is_after_crash() {
            return Ok(None);
        }
        let Some(segment) = self.segments.get(number) else { return Ok(None) };
        let files = self.listing.segments.get(&segment.base_offset());
        let path = files.and_then(|files| files.get(TXN_INDEX));
        path.map_or(Ok(Some(Vec::new())), |path| transaction_index::read_trusted(path, segment.base_offset()))
    }

    /// Returns the offset below which every transaction has ended: that of the first open transaction, or the log's end.
    ///
    /// # Errors
    /// `Corrupt`; an I/O error.
    pub fn last_stable_offset(&self) -> Result<i64> {
        let end = self.end()?;
        let Some((last, number)) = self.segments.last().zip(self.segments.len().checked_sub(1)) else { return Ok(end) };
        let mut producers = self.producers_at(number)?;
        last.aborted_transactions(&mut producers)?;
        Ok(producers.first_open_offset().map_or(end, |first| first.min(end)))
    }

    /// Returns the open transactions at the start of a segment: the last valid snapshot before it, carried on from there.
    fn producers_at(&self, number: usize) -> Result<ProducerState> {
        let (mut first, mut producers) = (0, ProducerState::default());
        for (at, segment) in self.segments.iter().enumerate().take(number + 1).rev() {
            let Some(path) = self.listing.snapshots.get(&segment.base_offset()) else { continue };
            match ProducerState::of_snapshot(path) {
                Ok(state) => {
                    (first, producers) = (at, state);
                    break;
                }
                Err(Error::Corrupt { .. }) => {}
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error),
            }
        }
        for segment in self.segments.get(first..number).unwrap_or_default() {
            segment.aborted_transactions(&mut producers)?;
        }
        Ok(producers)
    }
}
