//! Store times of messages at many rising offsets, of which only the heads are read.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::io::{FileSource, ReadAt as _};
use crate::rocketmq::commit_log::frame;
use crate::rocketmq::commit_log::log::CommitLog;
use crate::rocketmq::offset_files::{Listing, OffsetFile};

/// Bytes of a read if the next head is near the one before, as in most logs.
const FAR: usize = 1 << 20;
/// Bytes of a read otherwise.
const SHORT: usize = 4 << 10;
/// Distance up to which reading on costs less than another read.
const NEAR: u64 = 64 << 10;

/// Reads store times. Rising offsets read each part of the log once.
#[derive(Debug)]
pub struct HeadTimes {
    log: Arc<CommitLog>,
    files: Listing,
    current: Option<(usize, Arc<FileSource>)>,
    /// Offset in the file of the bytes that are held.
    begin: u64,
    bytes: Vec<u8>,
}

impl HeadTimes {
    /// Prepares to read the files as they are listed now.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn new(log: Arc<CommitLog>) -> Result<Self> {
        Ok(Self { files: log.listing()?, log, current: None, begin: 0, bytes: Vec::new() })
    }

    /// Returns the store time of the message at an offset; `None` if none begins there.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn of(&mut self, phy_offset: i64) -> Result<Option<i64>> {
        let Ok(offset) = u64::try_from(phy_offset) else { return Ok(None) };
        let number = self.files.partition_point(|file| file.start <= offset).checked_sub(1);
        let found = number.and_then(|number| Some((number, self.files.get(number)?)));
        let Some((number, file)) = found.filter(|(_, file)| offset < file.end()) else { return Ok(None) };
        let (at, file) = (offset - file.start, file.clone());
        if self.current.as_ref().is_none_or(|(current, _)| *current != number) {
            let Some(source) = self.log.open_file(&file)? else { return Ok(None) };
            self.current = Some((number, source));
            self.bytes.clear();
        }
        if self.head(at, file.len).is_none() {
            self.read(at, &file)?;
        }
        let Some(head) = self.head(at, file.len) else { return Ok(None) };
        if frame::stated_phy_offset_of_head(head) != Some(phy_offset) {
            return Ok(None);
        }
        Ok(frame::store_timestamp_of_head(head, self.log.options.versions))
    }

    /// The head of the frame at an offset of the file, if it is held.
    fn head(&self, at: u64, file_len: u64) -> Option<&[u8]> {
        let from = usize::try_from(at.checked_sub(self.begin)?).ok()?;
        let len = usize::try_from(file_len - at).unwrap_or(usize::MAX).min(frame::HEAD);
        self.bytes.get(from..from.checked_add(len)?)
    }

    fn read(&mut self, at: u64, file: &OffsetFile) -> Result<()> {
        let Some((_, source)) = &self.current else { return Ok(()) };
        let end = self.begin + self.bytes.len() as u64;
        let is_near = !self.bytes.is_empty() && at >= self.begin && at <= end + NEAR;
        let len = if is_near { FAR } else { SHORT };
        let len = len.min(usize::try_from(file.len - at).unwrap_or(usize::MAX));
        self.bytes.resize(len, 0);
        self.begin = at;
        source.read_exact_at(&mut self.bytes, at).map_err(|e| Error::io(&file.path, e))
    }
}
