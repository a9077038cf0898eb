//! Return one walk of the log as record batches.

use arrow_array::RecordBatch;

use crate::batch_size::BatchSize;
use crate::error::{Error, Result};
use crate::io::ReadAt;
use crate::rocketmq::commit_log::decode::batch::BatchBuilder;
use crate::rocketmq::commit_log::scan::walk::{Located, Scan};

/// Messages that are added together. Their frames stay in the processor's cache.
const BLOCK: usize = 64;
/// A batch ends after this many bytes of log, so that a selective filter does not block the caller.
const WALKED_BYTES: u64 = 16 * 1024 * 1024;

/// A walk, and the builder of its batches.
pub(crate) struct BlockReader<S> {
    pub(crate) scan: Scan<S>,
    pub(crate) builder: BatchBuilder,
    /// The most rows of a batch.
    batch_size: usize,
    /// Messages that the walk found, and how many of them are already in a batch.
    found: Vec<Located>,
    taken: usize,
}

impl<S: ReadAt> BlockReader<S> {
    /// Creates a reader of the messages of `scan`. The builder may have been used before.
    ///
    /// # Errors
    /// `InvalidArgument` when `batch_size` is 0.
    pub(crate) fn new(scan: Scan<S>, builder: BatchBuilder, batch_size: BatchSize) -> Result<Self> {
        if batch_size.rows == 0 {
            return Err(Error::InvalidArgument("batch_size: expected 1 or more, found 0".to_owned()));
        }
        let builder = builder.of_bytes(batch_size.bytes);
        Ok(Self { scan, builder, batch_size: batch_size.rows, found: Vec::new(), taken: 0 })
    }

    /// Returns the next batch; `None` at the end. With a selective filter a batch may be empty.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let begin = self.scan.position();
        while self.builder.rows() < self.batch_size {
            if self.taken >= self.found.len() {
                if self.scan.position().saturating_sub(begin) > WALKED_BYTES {
                    return Ok(Some(self.builder.take()));
                }
                self.taken = 0;
                self.scan.advance_block(BLOCK, &mut self.found)?;
                if self.found.is_empty() {
                    if self.scan.stop().is_none() {
                        continue;
                    }
                    break;
                }
            }
            let left = self.found.get(self.taken..).unwrap_or_default();
            let left = left.get(..self.batch_size - self.builder.rows()).unwrap_or(left);
            let rows = self.scan.rows(left);
            let added = self.builder.append(&rows);
            self.taken += added;
            if added < rows.len() || rows.is_empty() {
                break;
            }
        }
        Ok((self.builder.rows() > 0).then(|| self.builder.take()))
    }
}
