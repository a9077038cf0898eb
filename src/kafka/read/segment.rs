//! One segment: a `.log` file and the indexes next to it, read only.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use super::checked_index::CheckedIndex;
use crate::error::{Error, Result};
use crate::io::Location;
use crate::io::open_cache::{OpenCache, Slot};
use crate::io::regular_file::{NotAFile, open_file};
use crate::io::storage::{self, Kind, Status};
use crate::io::{Access, FileSource};
use crate::kafka::compat::Compat;
use crate::kafka::format::names::{base_offset, topic_partition};
use crate::kafka::index::index_file::{Check, IndexOptions};
use crate::kafka::index::offset_index::OffsetIndex;
use crate::kafka::index::sparse_index::SparseIndex;
use crate::kafka::index::time_index::TimeIndex;
use crate::report::{Finding, Flaw};

/// Segments that keep their log and indexes open. With segments and an index interval of the usual size that is at most
/// 350 MiB.
const OPEN_SEGMENTS: usize = 64;

static OPEN: OpenCache<OpenFiles> = OpenCache::new(OPEN_SEGMENTS);

/// The open files of a segment: opened by the first look-up that needs them.
#[derive(Debug, Default)]
struct OpenFiles {
    log: Option<Arc<FileSource>>,
    offset_index: Option<Arc<CheckedIndex<OffsetIndex>>>,
    time_index: Option<Arc<CheckedIndex<TimeIndex>>>,
}

/// Options to open a segment.
#[derive(Clone, Copy, Debug)]
pub struct SegmentOptions {
    /// Which entries of the indexes are used.
    pub check: Check,
    /// Map or `pread`. `Auto` is `pread` here, because a broker may truncate the file.
    pub access: Access,
    /// The release whose answers are given; `None`: the right ones.
    pub compat: Option<Compat>,
    /// The largest batch that is read, in bytes, stored and uncompressed.
    pub max_batch_bytes: usize,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self { check: Check::Verify, access: Access::Auto, compat: None, max_batch_bytes: 64 * 1024 * 1024 }
    }
}

/// A segment. Its length is that of the log when it was opened; batches that are appended later are not read. A log that was
/// truncated, compacted or deleted since is an error of every reader, because a part of it would be missing.
#[derive(Debug)]
pub struct Segment {
    path: Location,
    topic_partition: Option<(String, i32)>,
    base_offset: i64,
    opened: Status,
    options: SegmentOptions,
    open: Arc<Slot<OpenFiles>>,
}

impl Segment {
    /// Opens a `.log` file. The indexes next to it are read when they are needed, and may be missing.
    ///
    /// # Errors
    /// An I/O error; `InvalidArgument` for a name without a base offset.
    pub fn open(path: impl Into<Location>, options: SegmentOptions) -> Result<Self> {
        let path = &path.into();
        let base_offset = base_offset(path).ok_or_else(|| {
            Error::InvalidArgument(format!("{}: the name does not begin with a base offset", path.display()))
        })?;
        // A directory is an error here, not at the first look-up.
        let opened = if path.is_remote() {
            storage::status(path)?
        } else {
            Status::from(open_file(path, false)?.metadata().map_err(|e| Error::io(path, e))?)
        };
        if opened.kind == Kind::Directory {
            return Err(NotAFile::Directory.error(path));
        }
        let topic_partition = std::path::absolute(path)
            .ok()
            .and_then(|path| path.parent().and_then(topic_partition).map(|(topic, id)| (topic.to_owned(), id)));
        Ok(Self { path: path.to_owned(), topic_partition, base_offset, opened, options, open: Arc::default() })
    }

    /// Path of the log.
    pub fn path(&self) -> &Location {
        &self.path
    }

    /// Topic and partition, from the name of the directory.
    pub fn topic_partition(&self) -> Option<(&str, i32)> {
        self.topic_partition.as_ref().map(|(topic, partition)| (topic.as_str(), *partition))
    }

    /// Base offset, from the file's name.
    pub fn base_offset(&self) -> i64 {
        self.base_offset
    }

    /// The log as it was when it was opened.
    pub(crate) fn status(&self) -> &Status {
        &self.opened
    }

    /// Length of the log in bytes when it was opened.
    pub fn len(&self) -> u64 {
        self.opened.len
    }

    /// True if the log is empty.
    pub fn is_empty(&self) -> bool {
        self.opened.len == 0
    }

    /// The options that it was opened with.
    pub fn options(&self) -> SegmentOptions {
        self.options
    }

    /// Opens the log again, for a reader of its own.
    pub(crate) fn open_source(&self) -> Result<FileSource> {
        let file = if self.path.is_remote() { None } else { Some(open_file(&self.path, false)?) };
        let now = match &file {
            None => storage::status(&self.path)?,
            Some(file) => Status::from(file.metadata().map_err(|e| Error::io(&self.path, e))?),
        };
        if let Some(found) = self.changed_to(&now) {
            let text = format!(
                "expected the segment of {} bytes, as it was when the read was planned, found {found}: it was truncated or \
                 compacted since; read again",
                self.opened.len
            );
            return Err(Error::io(&self.path, io::Error::new(ErrorKind::StaleNetworkFileHandle, text)));
        }
        let access = match self.options.access {
            Access::Auto | Access::Pread => Access::Pread,
            Access::Mmap => Access::Mmap,
        };
        file.map_or_else(
            || FileSource::open(&self.path, access),
            |file| FileSource::new(file, &self.path, false, access),
        )
    }

    /// Returns what is at the path instead of this log; `None` for the log itself, which may have grown.
    fn changed_to(&self, now: &Status) -> Option<String> {
        if now.len < self.opened.len {
            return Some(format!("{} bytes", now.len));
        }
        // Some network file systems invent an inode whenever they meet a file, but not its length and time.
        let is_other =
            now.identity != self.opened.identity && (now.len, now.modified) != (self.opened.len, self.opened.modified);
        is_other.then(|| "another file".to_owned())
    }

    /// The open log for look-ups.
    pub(crate) fn source(&self) -> Result<Arc<FileSource>> {
        self.open_once(|open| &mut open.log, || self.open_source())
    }

    /// The offset index, empty if the segment has none.
    pub(crate) fn offset_index(&self) -> Result<Arc<CheckedIndex<OffsetIndex>>> {
        self.open_once(|open| &mut open.offset_index, || self.open_index())
    }

    /// The time index, empty if the segment has none.
    pub(crate) fn time_index(&self) -> Result<Arc<CheckedIndex<TimeIndex>>> {
        self.open_once(|open| &mut open.time_index, || self.open_index())
    }

    fn open_once<T>(
        &self,
        file: impl FnOnce(&mut OpenFiles) -> &mut Option<Arc<T>>,
        open: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        OPEN.with(&self.open, |files| {
            let file = file(files);
            match file {
                Some(known) => Ok(Arc::clone(known)),
                None => Ok(Arc::clone(file.insert(Arc::new(open()?)))),
            }
        })
    }

    fn open_index<I: SparseIndex>(&self) -> Result<CheckedIndex<I>> {
        let index = match if_exists(I::open(self.beside(I::SUFFIX), &self.index_options())) {
            // The log itself has all answers.
            Err(Error::Corrupt { .. }) if self.path.is_joined() => None,
            opened => opened?,
        };
        Ok(CheckedIndex::new(index))
    }

    /// Options to open the indexes next to the log.
    pub(crate) fn index_options(&self) -> IndexOptions {
        IndexOptions {
            check: self.options.check,
            base_offset: Some(self.base_offset),
            log_len: Some(self.opened.len),
            ..IndexOptions::default()
        }
    }

    /// Path of the file next to the log with this suffix: `.index` for `x.log`, `.index.deleted` for `x.log.deleted`.
    pub fn beside(&self, suffix: &str) -> Location {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(name.replacen(".log", suffix, 1))
    }

    /// An error about a place in the log.
    pub(crate) fn corrupt(&self, offset: u64, flaw: Flaw) -> Error {
        Finding::new(self.path(), offset, flaw).into()
    }
}

/// Replaces the error about a missing file by `None`; a pipe or a device at its path is no file.
pub(crate) fn if_exists<T>(opened: Result<T>) -> Result<Option<T>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(Error::Io { source, .. }) if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotSeekable) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::kafka::test_data::{SEVEN, SEVEN_INDEX, SEVEN_TIMES, hex, segment};

    #[test]
    fn a_log_that_is_not_the_planned_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = hex(SEVEN);
        let path = segment(dir.path(), 100, &bytes, None, None);
        let planned = Segment::open(&path, SegmentOptions::default()).unwrap();
        let says = || planned.open_source().map(|_| ()).map_err(|error| error.to_string());
        assert_eq!(says(), Ok(()));
        fs::write(&path, [bytes.as_slice(), &bytes].concat()).unwrap();
        assert_eq!(says(), Ok(()), "a broker appends");
        let copy = dir.path().join("copy");
        fs::copy(&path, &copy).unwrap();
        fs::rename(&copy, &path).unwrap();
        assert!(says().unwrap_err().contains("found another file"));
        fs::write(&copy, &bytes).unwrap();
        fs::File::options().write(true).open(&copy).unwrap().set_modified(planned.opened.modified.unwrap()).unwrap();
        fs::rename(&copy, &path).unwrap();
        assert_eq!(says(), Ok(()), "another inode, the same length and time");
        fs::write(&path, &bytes[..100]).unwrap();
        assert!(says().unwrap_err().contains("found 100 bytes"));
        fs::remove_file(&path).unwrap();
        assert!(matches!(planned.open_source(), Err(error) if error.is_missing()));
    }

    #[test]
    fn only_a_bounded_number_of_segments_keeps_files_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = segment(dir.path(), 100, &hex(SEVEN), Some(&hex(SEVEN_INDEX)), Some(&hex(SEVEN_TIMES)));
        let segments: Vec<Segment> =
            (0..3 * OPEN_SEGMENTS).map(|_| Segment::open(&path, SegmentOptions::default()).unwrap()).collect();
        for _ in 0..2 {
            for segment in &segments {
                assert_eq!(segment.translate_offset(109, 0).unwrap().unwrap().position, 601);
                assert_eq!(segment.max_timestamp().unwrap().offset, 111);
            }
            let open = segments.iter().filter(|segment| segment.open.peek(|files| files.log.is_some())).count();
            assert!((1..=OPEN_SEGMENTS).contains(&open), "{open}");
        }
    }
}
