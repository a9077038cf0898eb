//! Open transactions of a partition's producers, as far as a rebuilt index of aborted transactions needs them.
//!
//! Source: `ProducerStateManager`, `ProducerAppendInfo#append`, `#appendEndTxnMarker`. Sequence numbers and epochs are not
//! checked, because what lies in the log was accepted when it was written.

use std::collections::{BTreeMap, HashMap};

use crate::kafka::format::header::Header;
use crate::kafka::index::transaction_index::AbortedTransaction;

/// Carried from segment to segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerState {
    /// First offset of the open transaction of each producer.
    open: HashMap<i64, i64>,
    /// Producers of the open transactions, by first offset.
    by_offset: BTreeMap<i64, i64>,
}

impl ProducerState {
    /// Takes the batches of a producer.
    pub(crate) fn data(&mut self, header: &Header, first_offset: i64) {
        if header.is_transactional() && !self.open.contains_key(&header.producer_id) {
            self.open.insert(header.producer_id, first_offset);
            self.by_offset.insert(first_offset, header.producer_id);
        }
    }

    /// Takes a marker; what it rolled back is an entry of the index.
    pub(crate) fn marker(&mut self, producer_id: i64, offset: i64, is_abort: bool) -> Option<AbortedTransaction> {
        let first_offset = self.open.remove(&producer_id)?;
        self.by_offset.remove(&first_offset);
        // All before the first transaction that is still open is decided.
        let undecided = self.by_offset.keys().next().copied();
        is_abort.then(|| AbortedTransaction {
            version: 0,
            producer_id,
            first_offset,
            last_offset: offset,
            last_stable_offset: undecided.unwrap_or_else(|| offset.saturating_add(1)),
        })
    }
}
