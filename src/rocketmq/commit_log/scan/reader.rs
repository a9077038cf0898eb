//! Return messages as a stream of record batches.

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};

use crate::batch_size::BatchSize;
use crate::error::Result;
use crate::io::ReadAt;
use crate::report::{Finding, Report};
use crate::rocketmq::commit_log::decode::batch::{BatchBuilder, Bodies};
use crate::rocketmq::commit_log::decode::columns::{self, Column};
use crate::rocketmq::commit_log::decode::search::Search;
use crate::rocketmq::commit_log::frame::Stop;
use crate::rocketmq::commit_log::frames_at::OffsetReader;
use crate::rocketmq::commit_log::scan::block_reader::BlockReader;
use crate::rocketmq::commit_log::scan::parallel::Parallel;
use crate::rocketmq::commit_log::scan::walk::Scan;

/// The source of batches.
enum Source<S> {
    /// A walk in the caller's thread.
    Walk(Box<BlockReader<S>>),
    /// Walks in other threads.
    Threads(Box<Parallel>),
    /// Look-ups at offsets.
    Offsets(Box<OffsetReader>, Report),
}

/// A scan of the log that returns record batches.
pub struct MessageReader<S> {
    source: Source<S>,
    schema: SchemaRef,
    failed: bool,
}

impl<S> std::fmt::Debug for MessageReader<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageReader").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl<S: ReadAt> MessageReader<S> {
    /// Returns a reader of the walk `scan` with these columns.
    ///
    /// # Errors
    /// `InvalidArgument` when `batch_size` is 0.
    pub fn new(
        scan: Scan<S>,
        columns: &[Column],
        bodies: Bodies,
        max_body_bytes: usize,
        batch_size: BatchSize,
    ) -> Result<Self> {
        let builder = BatchBuilder::new(columns, bodies, max_body_bytes).searching(scan.filter().search.as_ref());
        let reader = BlockReader::new(scan, builder, batch_size)?;
        Ok(Self { source: Source::Walk(Box::new(reader)), schema: columns::schema(columns), failed: false })
    }

    /// Returns a reader of walks in other threads with these columns.
    pub(crate) fn of_threads(parallel: Parallel, columns: &[Column]) -> Self {
        Self { source: Source::Threads(Box::new(parallel)), schema: columns::schema(columns), failed: false }
    }

    /// Returns a reader of look-ups at offsets.
    pub(crate) fn of_offsets(reader: OffsetReader, columns: &[Column]) -> Self {
        let source = Source::Offsets(Box::new(reader), Report::default());
        Self { source, schema: columns::schema(columns), failed: false }
    }

    /// Returns the next batch; `None` at the end, and after an error.
    ///
    /// A batch may be empty, so that a selective filter does not block the caller.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.failed {
            return Ok(None);
        }
        let batch = match &mut self.source {
            Source::Threads(parallel) => parallel.next_batch(),
            Source::Walk(reader) => reader.next_batch(),
            Source::Offsets(reader, _) => reader.next_batch(),
        };
        self.failed = batch.is_err();
        batch
    }

    /// Returns the offset of the log to which was read so far.
    pub fn position(&self) -> u64 {
        match &self.source {
            Source::Walk(reader) => reader.scan.position(),
            Source::Threads(parallel) => parallel.position(),
            Source::Offsets(reader, _) => reader.position(),
        }
    }

    /// Returns the report of what was refused so far.
    pub fn checked(&self) -> &Report {
        match &self.source {
            Source::Walk(reader) => reader.scan.checked(),
            Source::Offsets(_, report) => report,
            Source::Threads(parallel) => parallel.checked(),
        }
    }

    /// Returns the bodies that could not be searched so far.
    pub fn unsearched(&self) -> Vec<Finding> {
        let filter = match &self.source {
            Source::Walk(reader) => Some(reader.scan.filter()),
            Source::Threads(parallel) => Some(parallel.filter()),
            Source::Offsets(reader, _) => reader.filter(),
        };
        filter.and_then(|filter| filter.search.as_ref()).map(Search::unsearched).unwrap_or_default()
    }

    /// The offsets read so far without a valid message, if look-ups at offsets have a filter.
    pub fn missing(&self) -> &[i64] {
        match &self.source {
            Source::Offsets(reader, _) => reader.missing(),
            Source::Walk(_) | Source::Threads(_) => &[],
        }
    }

    /// Returns why and where the walk ended; `None` before its end.
    pub fn stop(&self) -> Option<&Stop> {
        match &self.source {
            Source::Walk(reader) => reader.scan.stop(),
            Source::Offsets(..) => None,
            Source::Threads(parallel) => parallel.stop(),
        }
    }
}

impl<S: ReadAt> Iterator for MessageReader<S> {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_batch() {
                Ok(Some(batch)) if batch.num_rows() == 0 => {}
                other => return other.map_err(|e| ArrowError::ExternalError(Box::new(e))).transpose(),
            }
        }
    }
}

impl<S: ReadAt> RecordBatchReader for MessageReader<S> {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }
}
