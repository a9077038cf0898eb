//! One flush for all puts that wait for the disk (upstream `GroupCommitService`).

use std::path::Path;

use super::{FirstFailure, InterruptibleMutex};
use crate::error::{Error, Result};

/// Flushes of a log, one at a time. A caller that waits for a flush usually finds its bytes on the disk.
#[derive(Debug, Default)]
pub(crate) struct GroupCommit(InterruptibleMutex<()>);

impl GroupCommit {
    /// Calls `flush` until `is_flushed` returns true, unless another caller's flush was enough. Its first failure is kept.
    ///
    /// # Errors
    /// `WriteFailed`, also of an earlier write or flush; an I/O error with the path if a signal handler ends the wait.
    pub(crate) fn flush(
        &self,
        path: &Path,
        failure: &FirstFailure,
        is_flushed: impl Fn() -> Result<bool>,
        flush: impl Fn() -> Result<()>,
    ) -> Result<()> {
        let _turn = self.0.wait().map_err(|e| Error::io(path, e))?;
        loop {
            failure.check()?;
            if is_flushed()? {
                return Ok(());
            }
            failure.keep(flush())?;
        }
    }
}
