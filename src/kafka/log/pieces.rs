//! A range of offsets cut into pieces, for readers that work in parallel: at segments, and in large ones at entries of an index.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::kafka::read::segment::Segment;

/// Offsets from `begin` on, before `end`, in about `size` bytes of the segment with this base offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The first offset.
    pub begin: i64,
    /// The offset after the last one.
    pub end: i64,
    /// Bytes of the log.
    pub size: u64,
    /// The base offset of the segment.
    pub base_offset: i64,
}

/// Cuts the offsets `begin..end` of a log, of which these are the segments, into pieces of about `piece_bytes`.
///
/// # Errors
/// An I/O error, with the path.
pub fn cut_segments(segments: &[Arc<Segment>], begin: i64, end: i64, piece_bytes: u64) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    let bases = segments.iter().skip(1).map(|segment| segment.base_offset()).chain([i64::MAX]);
    for (number, (segment, following)) in segments.iter().zip(bases).enumerate() {
        let base_offset = segment.base_offset();
        // Before the first segment there may be one whose file is not read.
        let low = if number == 0 { begin } else { begin.max(base_offset) };
        let high = end.min(following);
        if low >= high {
            continue;
        }
        let mut last = (low, if low <= base_offset { 0 } else { position(segment, low)? });
        let stop = if high == following { segment.len() } else { position(segment, high)? };
        let first = last.1;
        let inside = segment.cut_points(piece_bytes).into_iter();
        let inside = inside.filter(|(at, place)| low < *at && *at < high && first < *place && *place < stop);
        for (at, place) in inside.chain([(high, stop.max(first))]) {
            pieces.push(Piece { begin: last.0, end: at, size: place - last.1, base_offset });
            last = (at, place);
        }
    }
    Ok(pieces)
}

/// Returns where the batch of an offset begins; the end of the segment if it has none, or is damaged before it.
fn position(segment: &Segment, offset: i64) -> Result<u64> {
    match segment.translate_offset(offset, 0) {
        Ok(found) => Ok(found.map_or(segment.len(), |batch| batch.position)),
        Err(Error::Corrupt { .. }) => Ok(segment.len()),
        Err(error) => Err(error),
    }
}
