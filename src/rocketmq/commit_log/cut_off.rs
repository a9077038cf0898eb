//! Find complete messages that a broker truncated but that are still on the disk (see
//! [`crate::rocketmq::commit_log::decode::suspect`]).
//!
//! Such messages exist in two places. One is after the end of the log in the last file that holds messages: truncation
//! deletes all later files. The other is the padding of a file that was filled later: the broker writes only the first
//! bytes of a BLANK frame. Only a look-up in one of these places needs this check. Its result is kept.

use crate::error::{Error, Result};
use crate::io::ReadAt;
use crate::rocketmq::commit_log::decode::suspect::Suspect;
use crate::rocketmq::commit_log::frame::Found;
use crate::rocketmq::commit_log::log::{AfterEnd, CommitLog};
use crate::rocketmq::commit_log::scan::salvage::{is_whole_blank, next_frame};
use crate::rocketmq::commit_log::scan::window::{LOOKUP_WINDOW, SCAN_WINDOW, Window};
use crate::rocketmq::offset_files::OffsetFile;

/// Padding is shorter than the message that did not fit. By default a message has at most 4 MiB and 64 KiB.
pub(super) const LONGEST_FILLING: u64 = (4 << 20) + (64 << 10) + 8;

impl CommitLog {
    /// Returns whether a complete message at this offset was truncated by a broker.
    ///
    /// With [`crate::rocketmq::commit_log::log::Options::broker_end`] every message after the end of the log counts as
    /// truncated.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(super) fn is_truncated_message(&self, files: &[OffsetFile], number: usize, phy_offset: u64) -> Result<bool> {
        let Some(file) = files.get(number) else {
            return Ok(false);
        };
        let (last, reached) = self.tail().unwrap_or_default();
        if file.start == last && phy_offset <= reached {
            return Ok(false);
        }
        if file.start < last || self.last_written(files)?.is_some_and(|last| last > number) {
            // In a full file a broker returns any message, even one in the padding.
            if self.options.broker_end || phy_offset < file.end().saturating_sub(LONGEST_FILLING) {
                return Ok(false);
            }
            return Ok(self.filling(file)?.is_some_and(|filling| phy_offset >= filling));
        }
        let end = self.max_offset()?;
        if phy_offset < end {
            return Ok(false);
        }
        if self.options.broker_end {
            return Ok(true);
        }
        self.ends.after_end.with(|after_end| {
            if after_end.as_ref().is_none_or(|after_end| (after_end.file, after_end.end) != (file.start, end)) {
                *after_end = Some(AfterEnd { file: file.start, end, cut_off: self.cut_off_after(file, end)? });
            }
            Ok(after_end.as_ref().is_some_and(|after_end| after_end.cut_off.binary_search(&phy_offset).is_ok()))
        })
    }

    /// Returns the number of the last file that was written to.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(super) fn last_written(&self, files: &[OffsetFile]) -> Result<Option<usize>> {
        if let Some(start) = self.pinned.as_ref().and_then(|pinned| pinned.last_written) {
            return Ok(files.iter().position(|file| file.start == start));
        }
        if let Some(known) = self.known_end(files) {
            return Ok(files.iter().position(|file| file.start == known.last_written()));
        }
        for (number, file) in files.iter().enumerate().rev() {
            let mut head = [0u8; 8];
            if file.len >= 8 {
                let source = self.open.get(file, self.options.access)?;
                source.read_exact_at(&mut head, 0).map_err(|e| Error::io(&file.path, e))?;
            }
            if head != [0; 8] {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// Returns the start of the padding of a full file; `None` if the end of the file is corrupt.
    fn filling(&self, file: &OffsetFile) -> Result<Option<u64>> {
        let known = self.ends.filling.with(|filling| filling.get(&file.start).copied());
        if let Some(known) = known {
            return Ok(known);
        }
        let found = self.find_filling(file)?.map(|at| file.start.saturating_add(at));
        self.ends.filling.with(|filling| filling.insert(file.start, found));
        Ok(found)
    }

    /// Walks to the padding, from the first message that begins in the last part of the file.
    fn find_filling(&self, file: &OffsetFile) -> Result<Option<u64>> {
        let source = self.open.get(file, self.options.access)?;
        let fail = |e| Error::io(&file.path, e);
        let [mut window, mut search] = [SCAN_WINDOW, SCAN_WINDOW].map(Window::new);
        let mut probe = Window::new(LOOKUP_WINDOW);
        // Only the starts of messages are needed.
        window.crc = false;
        let versions = self.options.versions;
        let mut next = |after| next_frame(source.as_ref(), file, after, file.len, versions, &mut search, &mut probe);
        let mut at = match file.len.checked_sub(LONGEST_FILLING) {
            Some(from) => next(from).map_err(fail)?,
            None => Some(0),
        };
        while let Some(here) = at {
            let found = window.check(source.as_ref(), here, file.len, self.options.versions).map_err(fail)?;
            at = match found {
                Found::Message(layout) => Some(here + u64::from(layout.total())),
                Found::Blank if is_whole_blank(window.head(here), here, file.len) => return Ok(Some(here)),
                Found::Blank | Found::Refused(_) => next(here).map_err(fail)?,
            };
        }
        Ok(None)
    }

    /// Returns the truncated messages after the end of the log in the last file.
    fn cut_off_after(&self, file: &OffsetFile, end: u64) -> Result<Vec<u64>> {
        let mut walk = self.walk(vec![file.clone()], end, u64::MAX).salvaging(file.start);
        let mut cut_off = Vec::new();
        while walk.advance()? {
            if let Some((place, _)) = walk.message().filter(|_| walk.suspect().has(Suspect::CUT_OFF)) {
                cut_off.push(place.phy_offset);
            }
        }
        Ok(cut_off)
    }
}
