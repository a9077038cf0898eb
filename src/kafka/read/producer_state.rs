//! Open transactions of a partition's producers, as far as a rebuilt index of aborted transactions needs them.
//!
//! Source: `ProducerStateManager`, `ProducerAppendInfo#append`, `#appendEndTxnMarker`. Sequence numbers and epochs are not
//! checked: the broker checked them when it appended the batches.

use std::collections::{BTreeMap, HashMap};

use crate::error::Result;
use crate::io::Location;
use crate::kafka::format::header::Header;
use crate::kafka::format::producer_snapshot::{self, ProducerEntry};
use crate::kafka::index::transaction_index::AbortedTransaction;

/// Open transactions, carried from segment to segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProducerState {
    /// First offset of the open transaction of each producer.
    open: HashMap<i64, i64>,
    /// Producers of the open transactions, by first offset.
    by_offset: BTreeMap<i64, i64>,
}

impl ProducerState {
    /// Reads the open transactions from a snapshot of the producers.
    ///
    /// # Errors
    /// `Corrupt` if the snapshot is damaged; an I/O error.
    pub fn of_snapshot(path: &Location) -> Result<Self> {
        let mut state = Self::default();
        for producer in producer_snapshot::read(path)? {
            if let Some(first) = producer.current_txn_first_offset {
                state.open.insert(producer.producer_id, first);
                state.by_offset.insert(first, producer.producer_id);
            }
        }
        Ok(state)
    }

    /// The first offset of the open transactions; `None` if none is open.
    pub fn first_open_offset(&self) -> Option<i64> {
        self.open.values().min().copied()
    }

    /// The first offsets of the open transactions, with their producers.
    pub(crate) fn open_transactions(&self) -> impl Iterator<Item = (i64, i64)> {
        self.by_offset.iter().map(|(first, id)| (*first, *id))
    }

    /// Returns whether a snapshot has a producer with transactions, ended or open; true also for one that cannot be read.
    pub fn is_transactional(snapshot: &Location) -> bool {
        // The epoch of a coordinator comes with a marker, and stays.
        let has = |each: &ProducerEntry| each.coordinator_epoch >= 0 || each.current_txn_first_offset.is_some();
        producer_snapshot::read(snapshot).map_or(true, |producers| producers.iter().any(has))
    }

    /// Adds a data batch of a producer.
    pub(crate) fn data(&mut self, header: &Header, first_offset: i64) {
        if header.is_transactional() && !self.open.contains_key(&header.producer_id) {
            self.open.insert(header.producer_id, first_offset);
            self.by_offset.insert(first_offset, header.producer_id);
        }
    }

    /// Adds a marker, and returns the index entry of the transaction that it aborted.
    pub(crate) fn marker(&mut self, producer_id: i64, offset: i64, is_abort: bool) -> Option<AbortedTransaction> {
        let first_offset = self.open.remove(&producer_id)?;
        self.by_offset.remove(&first_offset);
        // Everything before the first transaction that is still open is decided.
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
