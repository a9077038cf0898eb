//! The log of a store directory.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use arrow_array::RecordBatch;

use super::batch::{BatchBuilder, Bodies, Row};
use super::columns::Column;
use super::cut_off::Ends;
use super::frame::Versions;
use super::lookup::LookUp;
use super::message::Message;
use super::parallel::Parallel;
use super::reader::MessageReader;
use super::scan::Scan;
use super::suspect::Suspect;
use crate::error::{Error, Result};
use crate::io::{Access, FileSource};
use crate::report::Report;
use crate::rocketmq::offset_files::{self, OffsetFile, OpenFiles};

/// How a log is read.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How files are reached; `Auto` is `pread`.
    pub access: Access,
    /// Which frames are messages.
    pub versions: Versions,
    /// Larger bodies are not decompressed.
    pub max_body_bytes: usize,
    /// Nothing behind the end of the log is a message, as for a broker; else only what was cut off is none.
    pub broker_end: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { access: Access::Auto, versions: Versions::V1AndV2, max_body_bytes: 64 * 1024 * 1024, broker_end: false }
    }
}

/// What a scan gives.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// No message begins before this offset.
    pub begin_phy_offset: u64,
    /// No message begins at or after this offset.
    pub end_phy_offset: u64,
    /// The columns, in their order.
    pub columns: Vec<Column>,
    /// Rows of a batch, unless 64 MiB are reached before.
    pub batch_size: usize,
    /// What the body column holds.
    pub bodies: Bodies,
    /// Goes on behind what a broker would refuse; the column `suspect` then comes after the others.
    pub salvage: bool,
    /// Bodies are checked; else a wrong one is given as it is.
    pub check_crc: bool,
    /// Threads that check and decode beside the caller's, 1 for the caller's alone.
    pub threads: usize,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            begin_phy_offset: 0,
            end_phy_offset: u64::MAX,
            columns: Column::ALL.to_vec(),
            batch_size: 8192,
            bodies: Bodies::Decoded,
            salvage: false,
            check_crc: true,
            threads: 1,
        }
    }
}

/// The commit log of one directory, for reading. Calls list the directory anew: a broker adds and deletes files.
#[derive(Debug)]
pub struct CommitLog {
    path: PathBuf,
    directories: Vec<PathBuf>,
    pub(super) options: Options,
    pub(super) open: OpenFiles,
    /// Beginning of the last message that [`Self::max_offset`] met, and of its file.
    tail: Mutex<Option<(u64, u64)>>,
    pub(super) ends: Ends,
}

impl CommitLog {
    /// Opens the directory, in a store named `commitlog`; or several, separated by commas, that make one log together.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn open(directory: &Path, options: Options) -> Result<Self> {
        let directories = offset_files::directories(directory);
        offset_files::list(&directories)?;
        let (open, ends) = (OpenFiles::default(), Ends::default());
        Ok(Self { path: directory.to_owned(), directories, options, open, tail: Mutex::new(None), ends })
    }

    /// The directory, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How the log is read.
    pub fn options(&self) -> Options {
        self.options
    }

    /// The files in the order of their offsets, without strays.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn files(&self) -> Result<Vec<OffsetFile>> {
        offset_files::list(&self.directories)
    }

    /// Looks for strays, gaps, and files of another length.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn check_files(&self) -> Result<Report> {
        offset_files::check(&self.directories)
    }

    /// Length of the log's files (`mappedFileSizeCommitLog` of the broker): the commonest one, 0 without files.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn file_size(&self) -> Result<u64> {
        Ok(offset_files::file_size(&self.files()?))
    }

    /// Offset of the first byte of the first file, 0 without files.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn min_offset(&self) -> Result<u64> {
        Ok(self.files()?.first().map_or(0, |file| file.start))
    }

    /// Offset after the last good frame of the last file in which anything was written, 0 without files.
    ///
    /// Linear in that file at the first call (see [`Self::expect_message`]), later in what was added since.
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
            // Only where the message is still there; else somebody has truncated the log.
            if walk.advance()? && walk.message().is_some_and(|(_, frame)| frame.stated_phy_offset() == at.cast_signed())
            {
                return Self::walk_to_end(walk, file, &mut tail);
            }
        }
        Self::walk_to_end(self.walk(vec![file.clone()], file.start, u64::MAX), file, &mut tail)
    }

    /// Beginning of the last file that holds messages, and of the last message that was met in it.
    pub(super) fn tail(&self) -> Option<(u64, u64)> {
        *self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the first [`Self::max_offset`] begin at a message that is known to belong to the log. It looks whether one is
    /// there; where files behind were written it begins at their last one as ever.
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

    pub(super) fn walk(&self, files: Vec<OffsetFile>, begin: u64, end: u64) -> Scan<FileSource> {
        let access = self.options.access;
        Scan::new(files, move |file| offset_files::open(file, access), self.options.versions, begin, end)
    }

    /// A walk over the frames of a range of the log. It starts at `begin` where a message begins there, else at the
    /// beginning of the file that holds it. With `salvage` it continues after a corrupt region.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn frames(&self, begin: u64, end: u64, salvage: bool) -> Result<Scan<FileSource>> {
        let files = self.files()?;
        if salvage {
            let last = self.last_written(&files)?.and_then(|number| files.get(number)).map_or(0, |file| file.start);
            return Ok(self.walk(files, begin, end).salvaging(last));
        }
        let walk = self.walk(files, begin, end);
        if begin > 0 && LookUp::new(self)?.is_message(begin)? { walk.starting_at_begin() } else { Ok(walk) }
    }

    /// The messages in log order, as record batches, up to the first frame that a broker would refuse.
    ///
    /// The walk starts at the offset asked for where a message begins there; else at the beginning of the file that
    /// holds it.
    ///
    /// # Errors
    /// The system's error, with the path; `InvalidArgument` when `batch_size` is 0.
    pub fn scan(&self, scan: &ScanOptions) -> Result<MessageReader<FileSource>> {
        let begin = scan.begin_phy_offset;
        let files = self.files()?;
        // Saves the walk of up to a whole file where a message is known to begin.
        let known = begin > 0 && !scan.salvage && LookUp::new(self)?.is_message(begin)?;
        let first = files.iter().find(|file| file.end() > begin).is_none_or(|file| file.start >= begin);
        if scan.threads > 1 && scan.batch_size > 0 && !scan.salvage && (known || first) {
            let parallel = Parallel::new(&files, begin, self.options, scan)?;
            return MessageReader::of_threads(parallel, &scan.columns, scan.batch_size);
        }
        let last = if scan.salvage { self.last_written(&files)? } else { None };
        let last_begin = last.and_then(|number| files.get(number)).map_or(0, |file| file.start);
        let mut walk = self.walk(files, begin, scan.end_phy_offset).checking(scan.check_crc);
        let mut columns = scan.columns.clone();
        if scan.salvage {
            walk = walk.salvaging(last_begin);
            columns.push(Column::Suspect);
        }
        if known {
            walk = walk.starting_at_begin()?;
        }
        MessageReader::new(walk, &columns, scan.bodies, self.options.max_body_bytes, scan.batch_size)
    }

    /// The message that begins at this offset; `None` where none does, where its checksum is wrong, or where a broker cut it
    /// off and left it on the disk.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn message(&self, phy_offset: u64) -> Result<Option<Message>> {
        let mut look_up = LookUp::new(self)?;
        look_up.find(Some(phy_offset), |found| {
            found.map(|(frame, place)| Message::new(&frame, place, self.options.max_body_bytes))
        })
    }

    /// True when what begins at this offset is a whole message that a broker cut off; with [`Options::broker_end`] also when
    /// it only lies behind the end of the log.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn is_cut_off(&self, phy_offset: u64) -> Result<bool> {
        LookUp::new(self)?.is_cut_off(phy_offset)
    }

    /// One row for each offset, in their order: the message that begins there (see [`Self::message`]), or nulls and the offset.
    ///
    /// # Errors
    /// The system's error, with the path; `InvalidArgument` when the bodies together are too large for one batch.
    pub fn messages(
        &self,
        phy_offsets: impl IntoIterator<Item = Option<i64>>,
        columns: &[Column],
        bodies: Bodies,
    ) -> Result<RecordBatch> {
        let (batch, is_whole) = self.rows_of(phy_offsets, self.builder(columns, bodies).unbounded())?;
        if !is_whole {
            let text = "these messages do not fit into one batch: ask for fewer offsets at a time";
            return Err(Error::InvalidArgument(text.to_owned()));
        }
        Ok(batch)
    }

    /// The rows of [`Self::messages`] for the first of the offsets: as many as a batch holds, one at least.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn first_messages(
        &self,
        phy_offsets: impl IntoIterator<Item = Option<i64>>,
        columns: &[Column],
        bodies: Bodies,
    ) -> Result<RecordBatch> {
        Ok(self.rows_of(phy_offsets, self.builder(columns, bodies))?.0)
    }

    pub(in crate::rocketmq) fn builder(&self, columns: &[Column], bodies: Bodies) -> BatchBuilder {
        BatchBuilder::new(columns, bodies, self.options.max_body_bytes)
    }

    /// The rows that find room, and whether all do.
    fn rows_of(
        &self,
        phy_offsets: impl IntoIterator<Item = Option<i64>>,
        mut builder: BatchBuilder,
    ) -> Result<(RecordBatch, bool)> {
        let mut look_up = LookUp::new(self)?;
        for phy_offset in phy_offsets {
            let offset = phy_offset.and_then(|offset| u64::try_from(offset).ok());
            let fits = look_up.find(offset, |found| {
                if let Some((frame, place)) = found {
                    builder.append(&[Row { frame, place, suspect: Suspect::default() }]) == 1
                } else {
                    builder.append_missing(phy_offset);
                    true
                }
            })?;
            if !fits {
                return Ok((builder.take(), false));
            }
        }
        Ok((builder.take(), true))
    }

    /// Look-ups of store times alone, with the files as they are listed now.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn store_times(&self) -> Result<StoreTimes<'_>> {
        Ok(StoreTimes(LookUp::new(self)?))
    }
}

/// Look-ups of store times.
#[derive(Debug)]
pub struct StoreTimes<'a>(LookUp<'a>);

impl StoreTimes<'_> {
    /// Offset of the first byte of the log.
    pub fn begin(&self) -> i64 {
        self.0.begin().cast_signed()
    }

    /// Store time of the message of `size` bytes that begins at an offset; `None` where no message's head is, or where
    /// its file ends before it does. Only the head is looked at.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn of(&mut self, phy_offset: i64, size: i32) -> Result<Option<i64>> {
        match (u64::try_from(phy_offset), u64::try_from(size)) {
            (Ok(phy_offset), Ok(size)) => self.0.store_timestamp(phy_offset, size),
            _ => Ok(None),
        }
    }
}
