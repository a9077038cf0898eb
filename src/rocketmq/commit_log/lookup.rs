//! Look-ups of single messages.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::io::{FileSource, ReadAt, usize_of};
use crate::rocketmq::commit_log::decode::block::Place;
use crate::rocketmq::commit_log::frame::{self, Found, Frame};
use crate::rocketmq::commit_log::log::CommitLog;
use crate::rocketmq::commit_log::scan::salvage;
use crate::rocketmq::commit_log::scan::window::{LOOKUP_WINDOW, SCAN_WINDOW, Window};
use crate::rocketmq::offset_files::{Listing, OffsetFile};

/// Looks up single messages, in the files as listed when it was created.
#[derive(Debug)]
pub(super) struct LookUp<'a> {
    log: &'a CommitLog,
    files: Listing,
    window: Window,
    /// The number of the file that the window holds, and the open file.
    current: Option<(u64, Arc<FileSource>)>,
}

impl<'a> LookUp<'a> {
    pub(super) fn new(log: &'a CommitLog) -> Result<Self> {
        Ok(Self { log, files: log.listing()?, window: Window::new(LOOKUP_WINDOW), current: None })
    }

    /// Sets the number of bytes per read.
    pub(super) fn set_window(&mut self, bytes: usize) {
        if !self.window.has_size(bytes) {
            self.window = Window::new(bytes);
        }
    }

    /// Returns whether a message begins at this offset, truncated by a broker or not.
    pub(super) fn is_message(&mut self, phy_offset: u64) -> Result<bool> {
        self.find_any(phy_offset, |_, _| Ok(false), |found| found.is_some())
    }

    /// Calls `take` with the message that begins at this offset. `None` if there is none, or a broker truncated it.
    pub(super) fn find<T>(
        &mut self,
        phy_offset: Option<u64>,
        take: impl FnOnce(Option<(Frame<'_>, Place<'_>)>) -> T,
    ) -> Result<T> {
        let Some(phy_offset) = phy_offset else {
            return Ok(take(None));
        };
        let log = self.log;
        self.find_any(phy_offset, |files, number| log.is_truncated_message(files, number, phy_offset), take)
    }

    /// Returns whether a complete message that a broker truncated begins at this offset.
    pub(super) fn is_cut_off(&mut self, phy_offset: u64) -> Result<bool> {
        let Some((number, _)) = self.source(phy_offset)? else {
            return Ok(false);
        };
        Ok(self.is_message(phy_offset)? && self.log.is_truncated_message(&self.files, number, phy_offset)?)
    }

    fn find_any<T>(
        &mut self,
        phy_offset: u64,
        is_none: impl FnOnce(&[OffsetFile], usize) -> Result<bool>,
        take: impl FnOnce(Option<(Frame<'_>, Place<'_>)>) -> T,
    ) -> Result<T> {
        let Some((number, source)) = self.source(phy_offset)? else {
            return Ok(take(None));
        };
        let Some(file) = self.files.get(number) else {
            return Ok(take(None));
        };
        let at = phy_offset - file.start;
        let found = self.window.check(source.as_ref(), at, file.len, self.log.options.versions);
        let Found::Message(layout) = found.map_err(|e| Error::io(&file.path, e))? else {
            return Ok(take(None));
        };
        let place = Place { phy_offset, path: &file.path, file_offset: at };
        let frame = self.window.frame(at, layout);
        if frame.stated_phy_offset() != phy_offset.cast_signed() && !self.is_reached(file, phy_offset)? {
            return Ok(take(None));
        }
        if is_none(&self.files, number)? {
            return Ok(take(None));
        }
        Ok(take(Some((frame, place))))
    }

    /// Reads ahead the messages at these offsets, so that a disk reads many at the same time. If some of them are in memory
    /// the others will be, too, and the call costs little.
    pub(super) fn expect(&mut self, offsets: &[i64]) -> Result<()> {
        let samples = [offsets.first(), offsets.get(offsets.len() / 2), offsets.last()];
        let mut is_cold = false;
        for offset in samples.into_iter().flatten() {
            is_cold |= self.local_place(*offset)?.is_some_and(|(at, source)| !source.is_in_memory(at));
        }
        for offset in offsets.iter().filter(|_| is_cold) {
            if let Some((at, source)) = self.local_place(*offset)? {
                source.will_need(at, LOOKUP_WINDOW as u64);
            }
        }
        Ok(())
    }

    /// Returns the open file of this machine that holds an offset, and the offset in it.
    fn local_place(&mut self, phy_offset: i64) -> Result<Option<(u64, Arc<FileSource>)>> {
        let Ok(phy_offset) = u64::try_from(phy_offset) else { return Ok(None) };
        let found = self.source(phy_offset)?.filter(|(_, source)| source.is_local());
        Ok(found.and_then(|(number, source)| Some((phy_offset - self.files.get(number)?.start, source))))
    }

    /// Returns the log offset of the first byte of the first file, 0 without files.
    pub(super) fn begin(&self) -> u64 {
        self.files.first().map_or(0, |file| file.start)
    }

    /// Returns the store time of the first message of this file, read from its head.
    pub(super) fn first_store_timestamp(&mut self, file: &OffsetFile) -> Result<Option<i64>> {
        self.store_timestamp(file.start, 0)
    }

    /// Returns the store time of the message of `size` bytes that begins at this offset. Only its head is read.
    ///
    /// `None` if there is no message head, or the file ends before the message does.
    pub(super) fn store_timestamp(&mut self, phy_offset: u64, size: u64) -> Result<Option<i64>> {
        let Some((number, source)) = self.source(phy_offset)? else {
            return Ok(None);
        };
        let Some(file) = self.files.get(number) else {
            return Ok(None);
        };
        let mut head = [0u8; frame::HEAD];
        let at = phy_offset - file.start;
        if size > file.len - at {
            return Ok(None);
        }
        let there = usize_of(file.len.saturating_sub(at)).min(head.len());
        let (head, _) = head.split_at_mut(there);
        source.read_exact_at(head, at).map_err(|e| Error::io(&file.path, e))?;
        Ok(frame::store_timestamp_of_head(head, self.log.options.versions))
    }

    /// Opens the file that holds this offset and returns it with its number. `None` if there is none, or it was
    /// deleted.
    fn source(&mut self, phy_offset: u64) -> Result<Option<(usize, Arc<FileSource>)>> {
        let after = self.files.partition_point(|file| file.start <= phy_offset);
        let Some(number) = after.checked_sub(1) else {
            return Ok(None);
        };
        let Some(file) = self.files.get(number).filter(|file| phy_offset < file.end()) else {
            return Ok(None);
        };
        if let Some((start, source)) = &self.current
            && *start == file.start
        {
            return Ok(Some((number, Arc::clone(source))));
        }
        let source = self.log.open_file(file)?;
        if let Some(source) = &source {
            self.window.clear();
            self.current = Some((file.start, Arc::clone(source)));
        }
        Ok(source.map(|source| (number, source)))
    }

    /// Returns whether a walk of the file reaches a message at this offset.
    ///
    /// A frame that states another offset may be part of a body, such as a copy of a log. Only a walk shows it.
    fn is_reached(&self, file: &OffsetFile, phy_offset: u64) -> Result<bool> {
        let mut walk = self.log.walk(vec![file.clone()], phy_offset, phy_offset.saturating_add(1));
        walk.advance()
    }
}

impl CommitLog {
    /// Returns the offset of the first message in a range of the log that states its own offset, or of the first byte of a file.
    /// It is found without a walk from the beginning of the file.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn next_message(&self, begin: u64, end: u64) -> Result<Option<u64>> {
        let (mut search, mut probe) = (Window::new(SCAN_WINDOW), Window::new(LOOKUP_WINDOW));
        for file in self.listing()?.iter().filter(|file| file.end() > begin && file.start < end) {
            if begin <= file.start {
                return Ok(Some(file.start));
            }
            let (after, until) = (begin - file.start - 1, end - file.start);
            let Some(source) = self.open_file(file)? else { continue };
            let versions = self.options.versions;
            let found = salvage::next_frame(source.as_ref(), file, after, until, versions, &mut search, &mut probe);
            if let Some(at) = found.map_err(|e| Error::io(&file.path, e))? {
                let found = file.start.saturating_add(at);
                // Padding is no message, and the next file follows it.
                if LookUp::new(self)?.is_message(found)? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }
}
