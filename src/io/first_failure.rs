//! The first write or fsync that failed: the end of a writer.
//!
//! After a failed fsync Linux drops the dirty pages, and the next fsync succeeds without them. After a failed write a file may
//! hold any part of the bytes. So a writer that continued would acknowledge what is on no disk. It refuses every later call with
//! the first error instead; a new writer reads what the disk holds.

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::SystemTime;

use crate::error::{Error, Result};

/// The first [`Error::WriteFailed`] of a writer. Checking it costs one load.
#[derive(Debug, Default)]
pub struct FirstFailure(OnceLock<(PathBuf, Source, SystemTime)>);

/// The number of an error of the system, or the kind and the text of another one.
type Source = std::result::Result<i32, (io::ErrorKind, String)>;

impl FirstFailure {
    /// Checks that nothing has failed.
    ///
    /// # Errors
    /// The first failure, again.
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.get().map_or(Ok(()), |(error, _)| Err(error))
    }

    /// Returns the first failure, and when it was.
    #[inline]
    pub fn get(&self) -> Option<(Error, SystemTime)> {
        self.0.get().map(|(path, source, since)| {
            let source = match source {
                Ok(number) => io::Error::from_raw_os_error(*number),
                Err((kind, text)) => io::Error::new(*kind, text.clone()),
            };
            (Error::write_failed(path, source), *since)
        })
    }

    /// Returns the result, and keeps its error if that is the first [`Error::WriteFailed`]. Other errors may pass.
    ///
    /// # Errors
    /// That of the result.
    pub fn keep<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(Error::WriteFailed { path, source }) = &result {
            let source = source.raw_os_error().ok_or_else(|| (source.kind(), source.to_string()));
            self.0.get_or_init(|| (path.clone(), source, SystemTime::now()));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_first_failure_stays_and_other_errors_pass() {
        let first = FirstFailure::default();
        let fail = |error| first.keep::<()>(Err(error)).unwrap_err().to_string();
        fail(Error::io(Path::new("passing"), io::Error::from_raw_os_error(24)));
        first.check().unwrap();
        let told = fail(Error::write_failed(Path::new("file"), io::Error::from_raw_os_error(5)));
        fail(Error::write_failed(Path::new("other"), io::ErrorKind::WriteZero.into()));
        for _ in 0..2 {
            assert_eq!(first.check().unwrap_err().to_string(), told);
        }
    }
}
