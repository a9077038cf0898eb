//! The headers of a segment's batches as record batches.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::batch_columns::{BatchColumns, Column, Details};
use super::segment::Segment;
use super::segment_reader::{OnError, SegmentReader, SegmentRows, Step, UnreadOffsets};
use super::walk::{Reads, Tail, Walk, undecodable};
use crate::error::{Error, Result};
use crate::io::FileSource;
use crate::kafka::format::batch_cursor::BatchCursor;
use crate::kafka::format::control_record::ControlType;
use crate::kafka::format::header::Header;
use crate::kafka::format::record::{Wants, field};
use crate::report::{Finding, Flaw};

/// Which batches to read, and how.
#[derive(Clone, Debug)]
pub struct BatchScan {
    /// Byte offset where a batch begins.
    pub begin_position: u64,
    /// Byte offset of the end; `None`: the end of the segment.
    pub end_position: Option<u64>,
    /// Columns, in this order.
    pub columns: Vec<Column>,
    /// Rows of a record batch.
    pub batch_size: usize,
    /// Compare checksums.
    pub check_crc: bool,
    /// The reaction to an invalid batch size. A wrong checksum is shown in its column.
    pub on_error: OnError,
}

/// A walk over the batches of a segment that collects their headers.
#[derive(Debug)]
struct BatchRows {
    segment: Arc<Segment>,
    source: FileSource,
    scan: BatchScan,
    walk: Walk,
    cursor: BatchCursor,
    columns: BatchColumns,
    findings: Vec<Finding>,
    /// The end of the walk, other than an unfinished end.
    damage: Vec<Finding>,
}

impl SegmentReader {
    /// Reads the headers of a segment's batches.
    ///
    /// # Errors
    /// `InvalidArgument` if `batch_size` is 0; an I/O error.
    pub fn batches(segment: Arc<Segment>, scan: BatchScan) -> Result<Self> {
        let reads = if scan.check_crc { Reads::Whole } else { Reads::Headers };
        let end = scan.end_position.unwrap_or(u64::MAX).min(segment.len());
        let (batch_size, total_bytes) = (scan.batch_size, end.saturating_sub(scan.begin_position));
        let rows = BatchRows {
            source: segment.open_source()?,
            walk: Walk::new(reads, scan.begin_position, end),
            cursor: BatchCursor::new(segment.options().max_batch_bytes),
            columns: BatchColumns::new(&scan.columns),
            segment,
            scan,
            findings: Vec::new(),
            damage: Vec::new(),
        };
        Self::new(Box::new(rows), batch_size, total_bytes)
    }
}

impl SegmentRows for BatchRows {
    fn step(&mut self) -> Result<Step> {
        match self.walk.next(&self.source).map_err(|e| Error::io(self.segment.path(), e))? {
            Ok(header) => self.append(&header)?,
            Err(tail) => {
                self.end(&tail)?;
                return Ok(Step::End);
            }
        }
        Ok(Step::Continue)
    }

    fn rows(&self) -> usize {
        self.columns.rows()
    }

    fn take(&mut self) -> RecordBatch {
        self.columns.take()
    }

    fn schema(&self) -> SchemaRef {
        self.columns.schema()
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }

    fn damage(&self) -> &[Finding] {
        &self.damage
    }

    fn unread(&self) -> &[UnreadOffsets] {
        &[]
    }

    fn position(&self) -> u64 {
        self.walk.at
    }

    fn bytes_read(&self) -> u64 {
        self.walk.window.bytes_read
    }
}

impl BatchRows {
    fn end(&mut self, tail: &Tail) -> Result<()> {
        let Some(flaw) = tail.flaw() else { return Ok(()) };
        let finding = Finding::new(self.segment.path(), self.walk.at, flaw);
        if !tail.is_expected_by(self.segment.options().compat) {
            if self.scan.on_error == OnError::Raise {
                return Err(finding.into());
            }
            self.damage.push(finding.clone());
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
            // Types before an unreadable record count.
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
        if let Err(flaw) = header.check_size(most) {
            return Ok(Err(flaw));
        }
        match self.walk.batch(&self.source, header) {
            Ok(batch) => Ok(Ok(batch)),
            Err(error) => undecodable(error).map(Err).map_err(|e| Error::io(self.segment.path(), e)),
        }
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
                types.push(ControlType::of_key(field(span.key, bytes).unwrap_or_default()).name());
                true
            })
        });
        self.cursor = cursor;
        Ok(read)
    }
}
