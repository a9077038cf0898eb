//! Heads of the batches of a segment as a stream of record batches.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};

use super::batch_columns::{BatchColumns, Column, Details};
use super::lookup::too_large;
use super::segment::Segment;
use super::walk::{Reads, Tail, Walk};
use crate::error::{Error, Result};
use crate::io::FileSource;
use crate::kafka::finding::{Finding, Flaw, OnError};
use crate::kafka::format::batch_cursor::BatchCursor;
use crate::kafka::format::header::Header;
use crate::kafka::format::record::{Wants, field};

/// Types of control records by their number. Source: `ControlRecordType`.
const CONTROL_TYPES: [&str; 7] =
    ["ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS"];

/// What to read.
#[derive(Clone, Debug)]
pub struct BatchScan {
    /// Byte offset where a batch begins.
    pub begin_position: u64,
    /// Byte offset of the end; `None`: of the segment.
    pub end_position: Option<u64>,
    /// Columns in this order.
    pub columns: Vec<Column>,
    /// Rows of a batch.
    pub batch_size: usize,
    /// Compare checksums.
    pub check_crc: bool,
    /// What to do at a size that no batch has. A wrong checksum is told in its column.
    pub on_error: OnError,
}

/// A walk over the batches of a segment that gives record batches.
#[derive(Debug)]
pub struct BatchReader {
    segment: Arc<Segment>,
    source: FileSource,
    scan: BatchScan,
    walk: Walk,
    cursor: BatchCursor,
    columns: BatchColumns,
    findings: Vec<Finding>,
    pending: Option<Error>,
    ended: bool,
}

impl BatchReader {
    /// Reads the batches of a segment.
    ///
    /// # Errors
    /// `InvalidArgument` when `batch_size` is 0; the system's error.
    pub fn new(segment: Arc<Segment>, scan: BatchScan) -> Result<Self> {
        if scan.batch_size == 0 {
            return Err(Error::InvalidArgument("batch_size is 1 or more, not 0".to_owned()));
        }
        let reads = if scan.check_crc { Reads::Whole } else { Reads::Heads };
        let end = scan.end_position.unwrap_or(u64::MAX).min(segment.len());
        Ok(Self {
            source: segment.open_source()?,
            walk: Walk::new(reads, scan.begin_position, end),
            cursor: BatchCursor::new(segment.options().max_batch_bytes),
            columns: BatchColumns::new(&scan.columns),
            segment,
            scan,
            findings: Vec::new(),
            pending: None,
            ended: false,
        })
    }

    /// What was met and not raised.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Byte offset behind the last whole batch.
    pub fn position(&self) -> u64 {
        self.walk.at
    }

    /// Bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.walk.window.bytes_read
    }

    /// The next batch; `None` at the end. After an error there is nothing more.
    ///
    /// # Errors
    /// `Corrupt` for a size that no batch has, with [`OnError::Raise`]; the system's error.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        while !self.ended && self.columns.rows() < self.scan.batch_size {
            if let Err(error) = self.step() {
                self.pending = Some(error);
                self.ended = true;
            }
        }
        if self.columns.rows() > 0 {
            return Ok(Some(self.columns.take()));
        }
        self.pending.take().map_or(Ok(None), Err)
    }

    fn step(&mut self) -> Result<()> {
        match self.walk.next(&self.source).map_err(|e| Error::io(self.segment.path(), e))? {
            Ok(header) => self.append(&header),
            Err(tail) => self.end(&tail),
        }
    }

    fn end(&mut self, tail: &Tail) -> Result<()> {
        self.ended = true;
        let Some(flaw) = tail.flaw() else { return Ok(()) };
        let finding = Finding::new(self.segment.path(), self.walk.at, flaw);
        if self.scan.on_error == OnError::Raise && !tail.is_quiet_in(self.segment.options().compat) {
            return Err(finding.into());
        }
        self.findings.push(finding);
        Ok(())
    }

    fn append(&mut self, header: &Header) -> Result<()> {
        let mut details = Details { base_offset: Some(header.base_offset), ..Details::default() };
        if self.scan.check_crc {
            let checked = self.walk.check_crc(&self.source, header).map_err(|e| Error::io(self.segment.path(), e))?;
            details.is_valid = Some(checked.is_ok());
            if let Err(flaw) = checked {
                self.findings.push(Finding::new(self.segment.path(), header.position, flaw));
            }
        }
        if header.is_legacy() && header.codec_id() != 0 && self.wants(Column::BaseOffset) {
            details.base_offset = self.first_offset(header)?.ok();
        }
        let mut types = Vec::new();
        if header.is_control() && self.wants(Column::ControlTypes) {
            // What cannot be read is an empty list.
            let _ = self.control_types(header, &mut types)?;
            details.control_types = Some(&types);
        }
        self.columns.append(header, &details);
        Ok(())
    }

    fn wants(&self, column: Column) -> bool {
        self.scan.columns.contains(&column)
    }

    fn batch(&mut self, header: &Header) -> Result<std::result::Result<&[u8], Flaw>> {
        let most = self.segment.options().max_batch_bytes;
        if header.size as usize > most {
            return Ok(Err(too_large(header, most)));
        }
        self.walk.batch(&self.source, header).map(Ok).map_err(|e| Error::io(self.segment.path(), e))
    }

    fn first_offset(&mut self, header: &Header) -> Result<std::result::Result<i64, Flaw>> {
        let mut cursor = std::mem::replace(&mut self.cursor, BatchCursor::new(0));
        let mut first = header.last_offset;
        let read = self.batch(header)?.and_then(|batch| {
            cursor.each(header, batch, Wants::Times, |span, _| {
                first = span.offset;
                false
            })
        });
        self.cursor = cursor;
        Ok(read.map(|()| first))
    }

    fn control_types(
        &mut self,
        header: &Header,
        types: &mut Vec<&'static str>,
    ) -> Result<std::result::Result<(), Flaw>> {
        let mut cursor = std::mem::replace(&mut self.cursor, BatchCursor::new(0));
        let read = self.batch(header)?.and_then(|batch| {
            cursor.each(header, batch, Wants::All, |span, bytes| {
                types.push(control_type(field(span.key, bytes)));
                true
            })
        });
        self.cursor = cursor;
        Ok(read)
    }
}

/// What a control record is, by its key: version i16, type i16.
pub(crate) fn control_type(key: Option<&[u8]>) -> &'static str {
    let number = key.and_then(|key| key.get(2..4)?.first_chunk().copied()).map(i16::from_be_bytes);
    number.and_then(|n| usize::try_from(n).ok()).and_then(|n| CONTROL_TYPES.get(n)).copied().unwrap_or("UNKNOWN")
}

impl Iterator for BatchReader {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().map_err(|e| ArrowError::ExternalError(Box::new(e))).transpose()
    }
}

impl RecordBatchReader for BatchReader {
    fn schema(&self) -> SchemaRef {
        self.columns.schema()
    }
}
