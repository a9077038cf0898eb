//! One segment: a `.log` file and the indexes beside it, read only.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::checked_index::CheckedIndex;
use super::open_cache::{OpenFiles, Things};
use crate::error::{Error, Result};
use crate::io::{Access, FileSource};
use crate::kafka::compat::Compat;
use crate::kafka::format::names::{base_offset, topic_partition};
use crate::kafka::index::index_file::{Check, IndexOptions};
use crate::kafka::index::offset_index::OffsetIndex;
use crate::kafka::index::sparse_index::SparseIndex;
use crate::kafka::index::time_index::TimeIndex;

/// How to open a segment.
#[derive(Clone, Copy, Debug)]
pub struct SegmentOptions {
    /// Which entries of the indexes are taken.
    pub check: Check,
    /// Map or `pread`; `Auto` is `pread` here, because a broker may cut the file.
    pub access: Access,
    /// Whose answers.
    pub compat: Option<Compat>,
    /// The most bytes of one batch, stored and uncompressed.
    pub max_batch_bytes: usize,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        Self { check: Check::Verify, access: Access::Auto, compat: None, max_batch_bytes: 64 * 1024 * 1024 }
    }
}

/// A segment. Its length is that of the log when it was opened; batches that are added later are not seen.
#[derive(Debug)]
pub struct Segment {
    path: PathBuf,
    topic_partition: Option<(String, i32)>,
    base_offset: i64,
    len: u64,
    pub(crate) options: SegmentOptions,
    kept: Arc<OpenFiles>,
}

impl Segment {
    /// Opens a `.log` file; the indexes beside it are read when they are needed, and may be missing.
    ///
    /// # Errors
    /// The system's error; `InvalidArgument` for a name without a base offset.
    pub fn open(path: &Path, options: SegmentOptions) -> Result<Self> {
        let base_offset = base_offset(path).ok_or_else(|| {
            Error::InvalidArgument(format!("{}: the name does not begin with a base offset", path.display()))
        })?;
        let len = std::fs::metadata(path).map_err(|e| Error::io(path, e))?.len();
        // A directory or the like is refused at once.
        drop(crate::io::disk::open_file(path, false)?);
        let topic_partition = std::path::absolute(path)
            .ok()
            .and_then(|path| path.parent().and_then(topic_partition).map(|(topic, id)| (topic.to_owned(), id)));
        Ok(Self { path: path.to_owned(), topic_partition, base_offset, len, options, kept: Arc::default() })
    }

    /// Where the log lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Topic and partition by the name of the directory.
    pub fn topic_partition(&self) -> Option<(&str, i32)> {
        self.topic_partition.as_ref().map(|(topic, partition)| (topic.as_str(), *partition))
    }

    /// Offset in the file's name.
    pub fn base_offset(&self) -> i64 {
        self.base_offset
    }

    /// Length of the log in bytes when it was opened.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True when the log has no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How it was opened.
    pub fn options(&self) -> SegmentOptions {
        self.options
    }

    /// Another handle of the log, for a reader that goes its own way.
    pub(crate) fn open_source(&self) -> Result<FileSource> {
        let access = if self.options.access == Access::Auto { Access::Pread } else { self.options.access };
        FileSource::open(&self.path, access)
    }

    /// The log for look-ups; see [`OpenFiles`].
    pub(crate) fn source(&self) -> Result<Arc<FileSource>> {
        self.kept.get(|kept| &mut kept.source, || self.open_source())
    }

    #[cfg(test)]
    pub(crate) fn keeps_open(&self) -> bool {
        self.kept.is_open()
    }

    /// The file beside the log with this suffix: `.index` for `x.log`, `.index.deleted` for `x.log.deleted`.
    pub fn beside(&self, suffix: &str) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(name.replacen(".log", suffix, 1))
    }

    fn index_options(&self) -> IndexOptions {
        IndexOptions {
            check: self.options.check,
            base_offset: Some(self.base_offset),
            log_len: Some(self.len),
            ..IndexOptions::default()
        }
    }

    /// The offset index, where there is one.
    pub(crate) fn offset_index(&self) -> Result<Arc<CheckedIndex<OffsetIndex>>> {
        self.index_beside(|kept| &mut kept.offset_index)
    }

    /// The time index, where there is one.
    pub(crate) fn time_index(&self) -> Result<Arc<CheckedIndex<TimeIndex>>> {
        self.index_beside(|kept| &mut kept.time_index)
    }

    fn index_beside<I: SparseIndex>(
        &self,
        place: impl FnOnce(&mut Things) -> &mut Option<Arc<CheckedIndex<I>>>,
    ) -> Result<Arc<CheckedIndex<I>>> {
        self.kept.get(place, || {
            let index = if_there(I::open(&self.beside(I::SUFFIX), &self.index_options()))?;
            Ok(CheckedIndex::new(index))
        })
    }
}

/// `None` for a file that is not there.
pub(crate) fn if_there<T>(opened: Result<T>) -> Result<Option<T>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
