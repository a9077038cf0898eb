//! An index of a segment, and which of its entries agree with the log: checked once for each entry that a look-up reaches.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::Result;
use crate::kafka::index::sparse_index::SparseIndex;

/// Answers about an entry.
const UNKNOWN: u8 = 0;
const VALID: u8 = 1;
const INVALID: u8 = 2;

/// An index, and the answers about its entries.
#[derive(Debug)]
pub(crate) struct CheckedIndex<I> {
    index: Option<I>,
    answers: Vec<AtomicU8>,
}

impl<I: SparseIndex> CheckedIndex<I> {
    /// `None`: the segment has no such index.
    pub(crate) fn new(index: Option<I>) -> Self {
        let entries = index.as_ref().map_or(0, I::len);
        Self { index, answers: std::iter::repeat_with(|| AtomicU8::new(UNKNOWN)).take(entries).collect() }
    }

    /// Number of entries, valid or not; 0 without an index.
    pub(crate) fn len(&self) -> usize {
        self.answers.len()
    }

    /// Number of entries at or below the target.
    pub(crate) fn rank(&self, target: i64) -> usize {
        self.index.as_ref().map_or(0, |index| index.rank(target))
    }

    /// The last valid entry of the first `rank` entries.
    pub(crate) fn entry_before(
        &self,
        rank: usize,
        is_valid: impl Fn(I::Entry) -> Result<bool>,
    ) -> Result<Option<I::Entry>> {
        let entries = (0..rank).rev().filter_map(|slot| Some((slot, self.index.as_ref()?.entry(slot)?)));
        for (slot, entry) in entries {
            if self.is_valid(slot, || is_valid(entry))? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    fn is_valid(&self, slot: usize, ask: impl FnOnce() -> Result<bool>) -> Result<bool> {
        let answer = self.answers.get(slot);
        match answer.map_or(UNKNOWN, |answer| answer.load(Ordering::Relaxed)) {
            UNKNOWN => {
                let is_valid = ask()?;
                if let Some(answer) = answer {
                    answer.store(if is_valid { VALID } else { INVALID }, Ordering::Relaxed);
                }
                Ok(is_valid)
            }
            known => Ok(known == VALID),
        }
    }
}
