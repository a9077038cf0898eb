//! Writing the rebuilt indexes of a segment: each file whole or not at all, and never while a broker runs on them.

use std::fs;
use std::io;
use std::path::Path;

use super::Recovered;
use crate::error::{Error, Result};
use crate::io::disk;
use crate::io::store_lock::fcntl_lock_holder;

/// The lock file of a log directory, in the target directory or in the one above it.
const LOCK: &str = ".lock";

impl Recovered {
    /// Writes the rebuilt indexes of the segment with this base offset, and returns the number of files.
    ///
    /// With `overwrite` files that exist are replaced, and an index of aborted transactions is removed where none belongs.
    ///
    /// # Errors
    /// `Locked` when a running broker holds the log directory; `AlreadyExists`, before anything is written, without
    /// `overwrite`; other I/O errors.
    pub fn write_indexes(&self, directory: &Path, base_offset: i64, overwrite: bool) -> Result<u64> {
        let absolute = std::path::absolute(directory).map_err(|e| Error::io(directory, e))?;
        for folder in [Some(directory), absolute.parent()].into_iter().flatten() {
            let path = folder.join(LOCK);
            if let Some(pid) = fcntl_lock_holder(&path)? {
                return Err(Error::Locked { path, pid });
            }
        }
        fs::create_dir_all(directory).map_err(|e| Error::io(directory, e))?;
        let files = [
            (".index", Some(&self.offset_index)),
            (".timeindex", Some(&self.time_index)),
            (".txnindex", self.transaction_index.as_ref()),
        ]
        .map(|(suffix, content)| (directory.join(format!("{base_offset:020}{suffix}")), content));
        if !overwrite && let Some((path, _)) = files.iter().find(|(path, _)| path.exists()) {
            return Err(Error::io(path, io::ErrorKind::AlreadyExists.into()));
        }
        let mut written = 0;
        for (path, content) in &files {
            if let Some(content) = content {
                disk::replace_file(path, content)?;
                written += 1;
            } else if let Err(error) = fs::remove_file(path)
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(Error::io(path, error));
            }
        }
        Ok(written)
    }
}
