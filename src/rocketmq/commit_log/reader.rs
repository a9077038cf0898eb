//! Messages as a stream of record batches.

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};

use super::batch::{BatchBuilder, Bodies};
use super::columns::Column;
use super::parallel::Parallel;
use super::scan::{Located, Scan, Stop};
use crate::error::{Error, Result};
use crate::io::ReadAt;
use crate::report::Report;

/// Messages that are added in one go: their frames stay in the processor's cache meanwhile.
const BLOCK: usize = 64;

/// Where batches come from.
enum Source<S> {
    /// A walk, here.
    Walk(Box<Scan<S>>),
    /// Walks of other threads.
    Threads(Box<Parallel>),
}

/// A walk of the log that gives record batches.
pub struct MessageReader<S> {
    source: Source<S>,
    builder: BatchBuilder,
    batch_size: usize,
    /// Messages that the scan went over, and how many of them are in a batch already.
    found: Vec<Located>,
    taken: usize,
    failed: bool,
}

impl<S> std::fmt::Debug for MessageReader<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageReader").field("batch_size", &self.batch_size).finish_non_exhaustive()
    }
}

impl<S: ReadAt> MessageReader<S> {
    /// Reads what `scan` walks over into these columns.
    ///
    /// # Errors
    /// `InvalidArgument` when `batch_size` is 0.
    pub fn new(
        scan: Scan<S>,
        columns: &[Column],
        bodies: Bodies,
        max_body_bytes: usize,
        batch_size: usize,
    ) -> Result<Self> {
        Self::with_builder(scan, BatchBuilder::new(columns, bodies, max_body_bytes), batch_size)
    }

    /// Reads what `scan` walks over with a builder that served before.
    pub(super) fn with_builder(scan: Scan<S>, builder: BatchBuilder, batch_size: usize) -> Result<Self> {
        Self::of(Source::Walk(Box::new(scan)), builder, batch_size)
    }

    /// The builder, whose memory comes back once its batches are dropped.
    pub(super) fn into_builder(self) -> BatchBuilder {
        self.builder
    }

    /// Gives what other threads read into these columns.
    pub(super) fn of_threads(parallel: Parallel, columns: &[Column], batch_size: usize) -> Result<Self> {
        let builder = BatchBuilder::new(columns, Bodies::Stored, 0);
        Self::of(Source::Threads(Box::new(parallel)), builder, batch_size)
    }

    fn of(source: Source<S>, builder: BatchBuilder, batch_size: usize) -> Result<Self> {
        if batch_size == 0 {
            return Err(Error::InvalidArgument("batch_size is 1 or more, not 0".to_owned()));
        }
        Ok(Self { source, builder, batch_size, found: Vec::new(), taken: 0, failed: false })
    }

    /// The next batch; `None` at the end. After an error there is nothing more.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.failed {
            return Ok(None);
        }
        let batch = match &mut self.source {
            Source::Threads(parallel) => parallel.next_batch(),
            Source::Walk(_) => self.fill().map(|()| (self.builder.rows() > 0).then(|| self.builder.take())),
        };
        self.failed = batch.is_err();
        batch
    }

    fn fill(&mut self) -> Result<()> {
        let Source::Walk(scan) = &mut self.source else {
            return Ok(());
        };
        while self.builder.rows() < self.batch_size {
            if self.taken >= self.found.len() {
                self.taken = 0;
                scan.advance_block(BLOCK, &mut self.found)?;
                if self.found.is_empty() {
                    break;
                }
            }
            let left = self.found.get(self.taken..).unwrap_or_default();
            let left = left.get(..self.batch_size - self.builder.rows()).unwrap_or(left);
            let rows = scan.rows(left);
            let added = self.builder.append(&rows);
            self.taken += added;
            if added < rows.len() || rows.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// What was refused so far.
    pub fn checked(&self) -> &Report {
        match &self.source {
            Source::Walk(scan) => scan.checked(),
            Source::Threads(parallel) => parallel.checked(),
        }
    }

    /// Why and where the walk ended; `None` while it goes on.
    pub fn stop(&self) -> Option<&Stop> {
        match &self.source {
            Source::Walk(scan) => scan.stop(),
            Source::Threads(parallel) => parallel.stop(),
        }
    }
}

impl<S: ReadAt> Iterator for MessageReader<S> {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().map_err(|e| ArrowError::ExternalError(Box::new(e))).transpose()
    }
}

impl<S: ReadAt> RecordBatchReader for MessageReader<S> {
    fn schema(&self) -> SchemaRef {
        self.builder.schema()
    }
}
