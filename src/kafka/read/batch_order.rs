//! The order of batches in a segment. No checksum covers a base offset, so a damaged one shows only here.

use crate::kafka::format::header::Header;
use crate::report::{Flaw, Kind};

/// A check of the offsets of one batch after another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchOrder {
    base: i64,
    last: Option<i64>,
}

impl BatchOrder {
    /// Begins with any batch of a segment.
    pub(crate) fn new(segment_base: i64) -> Self {
        Self { base: segment_base, last: None }
    }

    /// Last offset of the batch before; `None` before the first one. A batch with impossible offsets does not count.
    pub(crate) fn last(self) -> Option<i64> {
        self.last
    }

    /// Returns whether a batch ends at or below the largest offset of the segment.
    pub(crate) fn is_in_range(self, header: &Header) -> bool {
        header.last_offset <= self.highest()
    }

    fn highest(self) -> i64 {
        self.base.saturating_add(i64::from(i32::MAX))
    }

    /// Returns what is wrong if the next batch does not begin after the one before it, or ends above the largest offset of a
    /// segment: indexes have 31 bits for an offset. Source: `LogSegment#ensureOffsetInRange`.
    pub(crate) fn check(&mut self, header: &Header) -> Option<Flaw> {
        let from = self.last.map_or(self.base, |last| last.saturating_add(1));
        let (first, last) = (lowest_offset(header), header.last_offset);
        let found = || format!("{first} to {last}");
        if !self.is_in_range(header) && first >= from {
            return Some(Flaw::new(Kind::BatchOffset, format_args!("offsets up to {}", self.highest()), found()));
        }
        if last >= first.max(self.base) {
            self.last = Some(last);
        }
        (first < from || last < first)
            .then(|| Flaw::new(Kind::BatchOffset, format_args!("offsets from {from} on"), found()))
    }
}

/// Returns the lowest known offset of a batch. The base offset of a legacy wrapper is not in its header.
pub(crate) fn lowest_offset(header: &Header) -> i64 {
    if header.is_legacy() { header.last_offset } else { header.base_offset }
}
