//! Scans over the headers of a segment's batches: transactions, counts, the largest timestamp, places to split.
//!
//! A scan ends at the first damage, as a broker's log does.

use std::io;

use super::batch_order::lowest_offset;
use super::producer_state::ProducerState;
use super::segment::Segment;
use super::walk::{Reads, Walk};
use crate::error::{Error, Result};
use crate::io::FileSource;
use crate::kafka::format::batch_cursor::BatchCursor;
use crate::kafka::format::control_record::ControlType;
use crate::kafka::format::header::{Header, NO_TIMESTAMP};
use crate::kafka::format::record::{Wants, field};
use crate::kafka::index::offset_index::OffsetIndex;
use crate::kafka::index::sparse_index::SparseIndex;
use crate::kafka::index::transaction_index::AbortedTransaction;

impl Segment {
    /// Calls `take` with the header of each batch, up to the first damage.
    pub(crate) fn each_header(&self, mut take: impl FnMut(&Header) -> Result<()>) -> Result<()> {
        let source = self.open_source()?;
        let mut walk = Walk::new(Reads::Headers, 0, self.len());
        while let Ok(header) = walk.next(&source).map_err(|e| Error::io(self.path(), e))? {
            take(&header)?;
        }
        Ok(())
    }

    /// Returns the transactions whose abort markers are in this segment. `producers` has the transactions that are open at its
    /// beginning, and afterwards those that are open at its end.
    ///
    /// # Errors
    /// An I/O error.
    pub fn aborted_transactions(&self, producers: &mut ProducerState) -> Result<Vec<AbortedTransaction>> {
        let mut aborted = Vec::new();
        self.each_header(|header| {
            // A batch that compaction emptied has no records of a transaction.
            if !header.is_transactional() || header.count == Some(0) {
                return Ok(());
            }
            if header.is_control() {
                for kind in self.control_types(header)? {
                    let is_abort = kind == ControlType::Abort;
                    aborted.extend(producers.marker(header.producer_id, header.base_offset, is_abort));
                }
            } else {
                producers.data(header, header.base_offset);
            }
            Ok(())
        })?;
        Ok(aborted)
    }

    /// Returns the types of the control records of a batch, up to one that cannot be read.
    fn control_types(&self, header: &Header) -> Result<Vec<ControlType>> {
        let mut types = Vec::new();
        let limit = self.options().max_batch_bytes;
        if header.size as usize <= limit {
            let source = self.source()?;
            let mut walk = Walk::new(Reads::Headers, header.position, self.len());
            let batch = walk.batch(source.as_ref(), header).map_err(|e| Error::io(self.path(), e))?;
            // The types before a flaw count.
            let _ = BatchCursor::new(limit).each(header, batch, Wants::All, |span, bytes| {
                types.push(ControlType::of_key(field(span.key, bytes).unwrap_or_default()));
                true
            });
        }
        Ok(types)
    }

    /// Returns the number of records by the headers. A message set of magic 0 or 1 has no count; its offsets are counted instead.
    ///
    /// # Errors
    /// An I/O error.
    pub fn record_count(&self) -> Result<u64> {
        let mut total = 0u64;
        self.each_header(|header| {
            let count = match (header.count, self.first_offset(header)) {
                (Some(count), _) => i64::from(count),
                (None, Ok(first)) => header.last_offset.saturating_sub(first).saturating_add(1),
                (None, Err(Error::Corrupt { .. })) => 1,
                (None, Err(error)) => return Err(error),
            };
            total = total.saturating_add(count.max(0).cast_unsigned());
            Ok(())
        })?;
        Ok(total)
    }

    /// Returns the largest timestamp of the data records at or above an offset; -1 without any.
    ///
    /// # Errors
    /// `Corrupt` when the batch that the offset cuts cannot be read; an I/O error.
    pub fn largest_data_timestamp(&self, start: i64) -> Result<i64> {
        let (mut largest, mut before) = (NO_TIMESTAMP, -1);
        self.each_header(|header| {
            // The first batch that ends at or above the start may begin below it. The header of a compressed set of magic 0 or 1
            // does not have its first offset.
            let is_set = header.is_legacy() && header.codec_id() != 0;
            let begins_below = is_set || header.base_offset < start;
            let is_cut = before < start && start <= header.last_offset && begins_below;
            before = header.last_offset;
            // Compaction leaves batches without records, which keep their timestamps.
            let is_empty = header.count == Some(0);
            if header.max_timestamp <= largest || is_empty || header.is_control() || header.last_offset < start {
                return Ok(());
            }
            let time = if is_cut { self.largest_timestamp_within(header, start)? } else { header.max_timestamp };
            largest = largest.max(time);
            Ok(())
        })?;
        Ok(largest)
    }

    /// Returns the largest timestamp of a batch's records at or above an offset.
    fn largest_timestamp_within(&self, header: &Header, start: i64) -> Result<i64> {
        let mut largest = NO_TIMESTAMP;
        self.each_record(header, |timestamp, offset| {
            if offset >= start {
                largest = largest.max(timestamp);
            }
            true
        })?;
        Ok(largest)
    }

    /// Returns the position of the first batch after a position that the offset index names; `None` also without an index.
    pub(crate) fn indexed_position_after(&self, position: u64) -> Option<u64> {
        let index = OffsetIndex::open(self.beside(OffsetIndex::SUFFIX), &self.index_options()).ok()?;
        let positions = (0..index.len()).filter_map(|slot| u64::try_from(index.entry(slot)?.position).ok());
        positions.filter(|at| *at > position).min()
    }

    /// Returns the places of [`Self::cut_points`]; without an index, those that a walk over the headers from `begin` on finds, as far as
    /// they are asked for.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(crate) fn walked_cut_points(&self, piece_bytes: u64, begin: u64) -> Result<CutPoints> {
        let cuts = self.cut_points(piece_bytes);
        if !cuts.is_empty() || self.len() < 2 * piece_bytes {
            return Ok(CutPoints::Known(cuts.into_iter()));
        }
        let walk = Box::new(Walk::new(Reads::Headers, begin, self.len()));
        Ok(CutPoints::Walked { source: self.open_source()?, walk, wanted: begin + piece_bytes, piece_bytes })
    }

    /// Returns places to split the segment, about `piece_bytes` apart, as offset and byte offset. They come from the offset index;
    /// there are none if it is missing or damaged. A wrong index only makes the pieces uneven.
    pub fn cut_points(&self, piece_bytes: u64) -> Vec<(i64, u64)> {
        let pieces = self.len().div_ceil(piece_bytes.max(1));
        if pieces < 2 {
            return Vec::new();
        }
        let Ok(index) = OffsetIndex::open(self.beside(OffsetIndex::SUFFIX), &self.index_options()) else {
            return Vec::new();
        };
        // Pieces of equal size, so that no small one is left.
        let step = self.len() / pieces;
        let mut wanted = step;
        let mut cuts = Vec::new();
        for entry in (0..index.len()).filter_map(|slot| index.entry(slot)) {
            let position = entry.walk_from();
            if position >= wanted {
                // The batch at that position ends at or above the entry's offset, so the next piece begins after that offset.
                cuts.push((entry.offset.saturating_add(1), position));
                wanted = position.saturating_add(step);
            }
        }
        cuts
    }
}

/// Places where a segment can be cut, as offset and byte offset, ascending.
#[derive(Debug)]
pub(crate) enum CutPoints {
    Known(std::vec::IntoIter<(i64, u64)>),
    Walked { source: FileSource, walk: Box<Walk>, wanted: u64, piece_bytes: u64 },
}

impl CutPoints {
    /// Returns the next place.
    ///
    /// # Errors
    /// An I/O error.
    pub(crate) fn next(&mut self) -> io::Result<Option<(i64, u64)>> {
        match self {
            Self::Known(cuts) => Ok(cuts.next()),
            Self::Walked { source, walk, wanted, piece_bytes } => {
                while let Ok(header) = walk.next(source)? {
                    if header.position >= *wanted {
                        *wanted = header.position + *piece_bytes;
                        return Ok(Some((lowest_offset(&header), header.position)));
                    }
                }
                Ok(None)
            }
        }
    }
}
