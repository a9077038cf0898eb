//! The files of a log that is being written. A file is created when the log reaches it, with its whole length reserved.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::io::disk::{self, Parent};
use crate::io::regular_file::open_file;
use crate::rocketmq::file_name;
use crate::rocketmq::offset_files::{self, Space};

/// Open files by the offset of their first byte.
#[derive(Debug)]
pub(super) struct LogFiles {
    directory: PathBuf,
    file_size: u64,
    /// The file written last, and the ones after it.
    open: BTreeMap<u64, Arc<File>>,
    /// Files with bytes that are not flushed.
    dirty: BTreeMap<u64, Arc<File>>,
}

impl LogFiles {
    pub(super) fn new(directory: &Path, file_size: u64) -> Self {
        Self { directory: directory.to_owned(), file_size, open: BTreeMap::new(), dirty: BTreeMap::new() }
    }

    fn path(&self, start: u64) -> PathBuf {
        self.directory.join(file_name::of_offset(start))
    }

    /// Opens the file of an offset, or creates it. A broker that was killed leaves the next file: it is used.
    ///
    /// # Errors
    /// An I/O error, for example `StorageFull`, with the path; `WriteFailed` if the name of a new file cannot be synced;
    /// `Corrupt` for a file of another length.
    pub(super) fn ready(&mut self, phy_offset: u64) -> Result<()> {
        let start = phy_offset - phy_offset % self.file_size;
        if self.open.contains_key(&start) {
            return Ok(());
        }
        let path = self.path(start);
        let fail = |e| Error::io(&path, e);
        let file = match open_file(&path, true) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                fs::create_dir_all(&self.directory).map_err(|e| Error::io(&self.directory, e))?;
                let parent = Parent::open(&path)?;
                let file = offset_files::create(&path, self.file_size, Space::Reserved)?;
                parent.sync()?;
                file
            }
            opened => {
                let file = opened?;
                let len = file.metadata().map_err(fail)?.len();
                if len != self.file_size {
                    return Err(Error::corrupt(&path, 0, format!("{} bytes", self.file_size), format!("{len} bytes")));
                }
                disk::reserve(&file, self.file_size).map_err(fail)?;
                file
            }
        };
        self.open.insert(start, Arc::new(file));
        Ok(())
    }

    /// Writes bytes of one file, which [`Self::ready`] opened.
    ///
    /// # Errors
    /// `WriteFailed`, with the path; some bytes may be written.
    pub(super) fn write(&mut self, phy_offset: u64, bytes: &[u8]) -> Result<()> {
        let start = phy_offset - phy_offset % self.file_size;
        let Some(file) = self.open.get(&start).map(Arc::clone) else {
            return Err(Error::io(&self.path(start), std::io::ErrorKind::NotFound.into()));
        };
        self.dirty.entry(start).or_insert_with(|| Arc::clone(&file));
        disk::write_all_at(&file, bytes, phy_offset - start).map_err(|e| Error::write_failed(&self.path(start), e))
    }

    /// Returns the files to flush, and counts them as flushed.
    pub(super) fn take_dirty(&mut self) -> Vec<(PathBuf, Arc<File>)> {
        std::mem::take(&mut self.dirty).into_iter().map(|(start, file)| (self.path(start), file)).collect()
    }

    /// Closes the files before the one of an offset.
    pub(super) fn leave(&mut self, phy_offset: u64) {
        if self.open.len() > 1 {
            let start = phy_offset - phy_offset % self.file_size;
            self.open.retain(|other, _| *other >= start);
        }
    }

    /// Closes all files.
    pub(super) fn close(&mut self) {
        self.open.clear();
        self.dirty.clear();
    }
}
