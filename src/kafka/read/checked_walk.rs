//! A walk over the batches of a segment for one look-up. It checks each batch where the caller requests it, so that damage is an
//! error and not another answer.

use std::sync::Arc;

use super::batch_order::BatchOrder;
use super::segment::Segment;
use super::walk::{Reads, Tail, Walk};
use crate::error::{Error, Result};
use crate::io::FileSource;
use crate::kafka::format::header::Header;

/// A walk from a position on.
pub(crate) struct CheckedWalk<'a> {
    segment: &'a Segment,
    source: Arc<FileSource>,
    walk: Walk,
    checks: bool,
    order: BatchOrder,
}

impl<'a> CheckedWalk<'a> {
    /// Begins a walk that checks the size, the checksum and the offsets of each batch.
    pub(crate) fn checked(segment: &'a Segment, position: u64) -> Result<Self> {
        Self::new(segment, position, true)
    }

    /// Begins a walk that takes headers as they are.
    pub(crate) fn unchecked(segment: &'a Segment, position: u64) -> Result<Self> {
        Self::new(segment, position, false)
    }

    /// Begins a walk with or without checks.
    pub(crate) fn new(segment: &'a Segment, position: u64, checks: bool) -> Result<Self> {
        let walk = Walk::new(Reads::Headers, position, segment.len());
        let order = BatchOrder::new(segment.base_offset());
        Ok(Self { segment, source: segment.source()?, walk, checks, order })
    }

    /// Returns the next batch; `None` at the end of the log, also for a torn tail or zeros.
    ///
    /// # Errors
    /// `Corrupt` for a batch or a tail that is not valid; an I/O error.
    pub(crate) fn next(&mut self) -> Result<Option<Header>> {
        let path = self.segment.path();
        match self.walk.next(self.source.as_ref()).map_err(|e| Error::io(path, e))? {
            Ok(header) => {
                if self.checks {
                    self.check(&header)?;
                }
                Ok(Some(header))
            }
            Err(tail) => self.end(&tail),
        }
    }

    fn end(&self, tail: &Tail) -> Result<Option<Header>> {
        match tail.flaw() {
            Some(flaw) if !tail.is_expected_by(self.segment.options().compat) => {
                Err(self.segment.corrupt(self.walk.at, flaw))
            }
            _ => Ok(None),
        }
    }

    fn check(&mut self, header: &Header) -> Result<()> {
        let checked = header.check_size(self.segment.options().max_batch_bytes);
        checked.map_err(|flaw| self.segment.corrupt(header.position, flaw))?;
        let path = self.segment.path();
        let crc = self.walk.check_crc(self.source.as_ref(), header).map_err(|e| Error::io(path, e))?;
        let flaw = crc.err().or_else(|| self.order.check(header));
        flaw.map_or(Ok(()), |flaw| Err(self.segment.corrupt(header.position, flaw)))
    }

    /// Checks the order of the batch after the one that answers: no checksum covers the base offset, so a base offset that
    /// became higher shows only there. Ends the walk.
    ///
    /// # Errors
    /// `Corrupt` if the batches are out of order; an I/O error.
    pub(crate) fn confirm(mut self) -> Result<()> {
        if !self.checks {
            return Ok(());
        }
        let path = self.segment.path();
        let Ok(header) = self.walk.next(self.source.as_ref()).map_err(|e| Error::io(path, e))? else { return Ok(()) };
        self.order.check(&header).map_or(Ok(()), |flaw| Err(self.segment.corrupt(header.position, flaw)))
    }
}
