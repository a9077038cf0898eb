//! The common part of the readers of records and of batches: rows are collected until a record batch is full, and an error
//! is returned after the rows before it.

use std::fmt;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};

use crate::error::{Error, Result};
use crate::report::Finding;

/// The reaction of a reader to damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// End with an error.
    Raise,
    /// Note it, and go on after the batch if its size is known.
    Skip,
    /// Note it, and leave the segment.
    Stop,
}

/// Offsets of a partition that a reader could not read because of damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadOffsets {
    /// Topic of the rows.
    pub topic: Option<String>,
    /// Partition of the rows.
    pub partition: Option<i32>,
    /// First offset.
    pub begin_offset: i64,
    /// The offset after the last one; `i64::MAX`: unknown.
    pub end_offset: i64,
    /// Bytes of the log that were skipped.
    pub bytes: u64,
}

/// The result of a step of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Rows may have been added; there may be more.
    Continue,
    /// The batch must be returned now: its rows have many bytes, or many bytes were read for it.
    Full,
    /// The walk is at its end.
    End,
}

/// A walk over segments that collects rows.
pub(crate) trait SegmentRows: fmt::Debug + Send {
    /// Go on with the walk.
    ///
    /// # Errors
    /// `Corrupt` for damage, with `OnError::Raise`; an I/O error.
    fn step(&mut self) -> Result<Step>;

    /// Number of rows collected.
    fn rows(&self) -> usize;

    /// Returns the rows collected, and begins again without any.
    fn take(&mut self) -> RecordBatch;

    /// The schema of the rows.
    fn schema(&self) -> SchemaRef;

    /// Findings that were not raised.
    fn findings(&self) -> &[Finding];

    /// The findings that left out rows: not the unfinished end of a log that a broker may still write.
    fn damage(&self) -> &[Finding];

    /// The offsets that damage hides. Missing segments are only in the findings.
    fn unread(&self) -> &[UnreadOffsets];

    /// Byte offset in the current segment, after the last whole batch.
    fn position(&self) -> u64;

    /// Bytes read from logs so far.
    fn bytes_read(&self) -> u64;
}

/// A reader of record batches of at most `batch_size` rows.
#[derive(Debug)]
pub struct SegmentReader {
    rows: Box<dyn SegmentRows>,
    batch_size: usize,
    total_bytes: u64,
    /// The error that ended the walk, until the rows before it are taken.
    pending: Option<Error>,
    ended: bool,
}

impl SegmentReader {
    pub(crate) fn new(rows: Box<dyn SegmentRows>, batch_size: usize, total_bytes: u64) -> Result<Self> {
        if batch_size == 0 {
            return Err(Error::InvalidArgument("batch_size=0: expected 1 or more".to_owned()));
        }
        Ok(Self { rows, batch_size, total_bytes, pending: None, ended: false })
    }

    /// Returns the next batch; `None` at the end, and after an error.
    ///
    /// # Errors
    /// `Corrupt` for damage, with `OnError::Raise`; an I/O error.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let mut full = false;
        while !self.ended && !full && self.rows.rows() < self.batch_size {
            match self.rows.step() {
                Ok(Step::Continue) => {}
                Ok(Step::Full) => full = true,
                Ok(Step::End) => self.ended = true,
                Err(error) => {
                    self.pending = Some(error);
                    self.ended = true;
                }
            }
        }
        if full || self.rows.rows() > 0 {
            return Ok(Some(self.rows.take()));
        }
        self.pending.take().map_or(Ok(None), Err)
    }

    /// Findings that were not raised.
    pub fn findings(&self) -> &[Finding] {
        self.rows.findings()
    }

    /// The findings that left out rows: not the unfinished end of a log that a broker may still write.
    pub fn damage(&self) -> &[Finding] {
        self.rows.damage()
    }

    /// The offsets that damage hides. Missing segments are only in the findings.
    pub fn unread(&self) -> &[UnreadOffsets] {
        self.rows.unread()
    }

    /// Byte offset in the current segment, after the last whole batch.
    pub fn position(&self) -> u64 {
        self.rows.position()
    }

    /// Bytes read from logs so far.
    pub fn bytes_read(&self) -> u64 {
        self.rows.bytes_read()
    }

    /// Bytes of the ranges, of which the read may pass over some.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }
}

impl Iterator for SegmentReader {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().map_err(|e| ArrowError::ExternalError(Box::new(e))).transpose()
    }
}

impl RecordBatchReader for SegmentReader {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}
