//! The log of a store directory.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::io::{Access, FileSource};
use crate::report::Report;
use crate::rocketmq::commit_log::frame::Versions;
use crate::rocketmq::commit_log::scan::walk::Scan;
use crate::rocketmq::offset_files::{self, Gap, OffsetFile, OpenFiles};

/// Options for reading a log.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How files are read; `Auto` is `pread`.
    pub access: Access,
    /// The frame versions that count as messages.
    pub versions: Versions,
    /// Limit of a decompressed body, in bytes.
    pub max_body_bytes: usize,
    /// True: no message behind the end of the log is valid, as for a broker. False: only truncated messages are not
    /// valid.
    pub broker_end: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { access: Access::Auto, versions: Versions::V1AndV2, max_body_bytes: 64 * 1024 * 1024, broker_end: false }
    }
}

/// What is known about the ends of files.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// Start of the padding in each full file, by the start of the file.
    pub(super) filling: Mutex<HashMap<u64, Option<u64>>>,
    pub(super) behind: Mutex<Option<Behind>>,
}

/// The messages behind the end of the log.
#[derive(Debug)]
pub(super) struct Behind {
    pub(super) file: u64,
    pub(super) end: u64,
    /// Offsets of the truncated messages, ascending.
    pub(super) cut_off: Vec<u64>,
}

/// The commit log of one directory, for reading. Each call lists the directory anew, because a broker adds and deletes
/// files.
#[derive(Debug)]
pub struct CommitLog {
    path: PathBuf,
    directories: Vec<PathBuf>,
    pub(super) options: Options,
    pub(super) open: OpenFiles,
    /// Start of the last message that [`Self::max_offset`] found, and of its file.
    tail: Mutex<Option<(u64, u64)>>,
    pub(super) ends: Ends,
}

impl CommitLog {
    /// Opens the directory, in a store named `commitlog`. Several directories, separated by commas, make one log.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn open(directory: &Path, options: Options) -> Result<Self> {
        let directories = offset_files::directories(directory);
        offset_files::list(&directories)?;
        let (open, ends) = (OpenFiles::default(), Ends::default());
        Ok(Self { path: directory.to_owned(), directories, options, open, tail: Mutex::new(None), ends })
    }

    /// Returns the directory as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the options.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Returns the files in the order of their offsets. Files with other names are skipped.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn files(&self) -> Result<Vec<OffsetFile>> {
        offset_files::list(&self.directories)
    }

    /// Returns a report of unexpected files, gaps, and files of another length.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn check_files(&self) -> Result<Report> {
        offset_files::check(&self.directories)
    }

    /// Returns the length of the log's files (the broker's `mappedFileSizeCommitLog`): the most frequent one, 0 without
    /// files.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn file_size(&self) -> Result<u64> {
        Ok(offset_files::file_size(&self.files()?))
    }

    /// Returns the ranges between the files of the log that no file holds, in ascending order.
    ///
    /// Missing files before the first file are expired, and missing files behind the last written one were never needed.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn gaps(&self) -> Result<Vec<Gap>> {
        self.gaps_between(&self.files()?)
    }

    /// Returns the gaps between these files.
    pub(super) fn gaps_between(&self, files: &[OffsetFile]) -> Result<Vec<Gap>> {
        let mut gaps = offset_files::gaps(files);
        if !gaps.is_empty() {
            let last = self.last_written(files)?.and_then(|number| files.get(number)).map_or(0, |file| file.start);
            // A broker deletes expired files while the directory is listed, the oldest first.
            gaps.retain(|gap| gap.end <= last && gap.before.exists());
        }
        Ok(gaps)
    }

    /// Returns the log offset of the first byte of the first file, 0 without files.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn min_offset(&self) -> Result<u64> {
        Ok(self.files()?.first().map_or(0, |file| file.start))
    }

    /// Returns the offset after the last valid frame of the last written file, 0 without files.
    ///
    /// The first call reads this file, unless [`Self::expect_message`] was called. Later calls read only what was added
    /// since.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn max_offset(&self) -> Result<u64> {
        let files = self.files()?;
        let Some(first) = files.first() else {
            return Ok(0);
        };
        let Some(file) = self.last_written(&files)?.and_then(|number| files.get(number)) else {
            return Ok(first.start);
        };
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((start, at)) = *tail
            && start == file.start
            && at < file.end()
        {
            let mut walk = self.walk(vec![file.clone()], at, u64::MAX).starting_at_begin()?;
            // If this message is gone, the log was truncated meanwhile.
            if walk.advance()? && walk.message().is_some_and(|(_, frame)| frame.stated_phy_offset() == at.cast_signed())
            {
                return Self::walk_to_end(walk, file, &mut tail);
            }
        }
        Self::walk_to_end(self.walk(vec![file.clone()], file.start, u64::MAX), file, &mut tail)
    }

    /// Returns the start of the last file that holds messages, and of the last message found in it.
    pub(super) fn tail(&self) -> Option<(u64, u64)> {
        *self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Let the first [`Self::max_offset`] start at a message that is known to belong to the log.
    ///
    /// The call checks that a message begins there. If later files were written, the search starts in the last of them.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn expect_message(&self, phy_offset: u64) -> Result<()> {
        let files = self.files()?;
        if let Some(file) = files.iter().find(|file| (file.start..file.end()).contains(&phy_offset)) {
            self.tail.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert((file.start, phy_offset));
        }
        Ok(())
    }

    fn walk_to_end(mut walk: Scan<FileSource>, file: &OffsetFile, tail: &mut Option<(u64, u64)>) -> Result<u64> {
        loop {
            if let Some((place, _)) = walk.message() {
                *tail = Some((file.start, place.phy_offset));
            }
            if !walk.advance()? {
                return Ok(walk.stop().map_or(file.start, |stop| stop.phy_offset));
            }
        }
    }

    /// Opens a file of the log. `None` if the broker deleted it since the directory was listed.
    pub(super) fn open_file(&self, file: &OffsetFile) -> Result<Option<Arc<FileSource>>> {
        match self.open.get(file, self.options.access) {
            Ok(source) => Ok(Some(source)),
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn walk(&self, files: Vec<OffsetFile>, begin: u64, end: u64) -> Scan<FileSource> {
        let access = self.options.access;
        Scan::new(files, move |file| offset_files::open(file, access), self.options.versions, begin, end)
    }
}
