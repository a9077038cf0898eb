//! The log of a store directory.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use crate::error::{Error, Result};
use crate::io::Location;
use crate::io::fork::Generation;
use crate::io::signals;
use crate::io::storage;
use crate::io::{Access, FileSource, ProcessMutex, ReadAt as _};
use crate::report::{Finding, Report};
use crate::rocketmq::commit_log::frame::{Frame, HEAD, Versions};
use crate::rocketmq::commit_log::scan::walk::Scan;
use crate::rocketmq::offset_files::{self, Gap, KeptListing, Listing, OffsetFile, OpenFiles, Sign};

/// Options for reading a log.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The way to read files; `Auto` is `pread`.
    pub access: Access,
    /// The frame versions that count as messages.
    pub versions: Versions,
    /// Limit of a decompressed body, in bytes.
    pub max_body_bytes: usize,
    /// True: no message after the end of the log is valid, as for a broker. False: only truncated messages are not
    /// valid.
    pub broker_end: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { access: Access::Auto, versions: Versions::V1AndV2, max_body_bytes: 64 * 1024 * 1024, broker_end: false }
    }
}

/// Bytes at the beginning of a range that are requested with those of other ranges.
const EXPECTED: u64 = 64 << 10;
/// Bytes after the end in which a frame would begin.
const NEXT: usize = 8;
/// Bytes of a log file by default (`mappedFileSizeCommitLog`).
const DEFAULT_SIZE: u64 = 1 << 30;

/// The facts known about the ends of files.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// Start of the padding in each full file, by the start of the file.
    pub(super) filling: ProcessMutex<HashMap<u64, Option<u64>>>,
    pub(super) after_end: ProcessMutex<Option<AfterEnd>>,
}

/// The messages after the end of the log.
#[derive(Debug)]
pub(super) struct AfterEnd {
    pub(super) file: u64,
    pub(super) end: u64,
    /// Offsets of the truncated messages, ascending.
    pub(super) cut_off: Vec<u64>,
}

/// A known end of a log, and the files that show that nothing was added since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownEnd {
    /// Offset of the last message.
    pub last_message: u64,
    /// Offset after it.
    pub end: u64,
    /// The last file with messages and the files after it, each with its `ETag`.
    pub files: Vec<OffsetFile>,
}

impl KnownEnd {
    /// Starts of the last file with messages.
    pub(super) fn last_written(&self) -> u64 {
        self.files.first().map_or(0, |file| file.start)
    }
}

/// The bytes at the end of a file that show that it did not change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LastEnd {
    /// Start of the file.
    start: u64,
    /// Offset of the last message, and its head, which no other message shares.
    message: u64,
    head: [u8; HEAD],
    /// Offset after it, where no frame begins.
    end: u64,
}

/// The commit log of one directory, for reading. Each call looks whether the directory has changed, because a broker adds and
/// deletes files.
#[derive(Debug)]
pub struct CommitLog {
    path: Location,
    pub(super) directories: Vec<Location>,
    pub(super) options: Options,
    pub(super) open: OpenFiles,
    listed: Arc<KeptListing>,
    /// Start of the last message that [`Self::max_offset`] found, and of its file.
    tail: Arc<ProcessMutex<Option<(u64, u64)>>>,
    /// The end that the last walk found.
    last_end: Arc<ProcessMutex<Option<LastEnd>>>,
    /// The search for the end of a remote log that goes on.
    end_search: Arc<ProcessMutex<Option<EndSearch>>>,
    /// Offset after the first byte of the last message that the index leads to.
    led_to: Arc<AtomicU64>,
    pub(super) ends: Arc<Ends>,
    known_end: Arc<ProcessMutex<Option<KnownEnd>>>,
    pub(super) pinned: Option<Pinned>,
}

/// Records when a thread has found the end of a log, and the process that it is in.
#[derive(Debug)]
struct EndSearch(Generation, Receiver<()>);

/// The files of a log as they were listed once.
#[derive(Clone, Debug)]
pub(super) struct Pinned {
    files: Listing,
    /// The start of the last written file of the whole log, of which these files are a part; `None` if they are all.
    pub(super) last_written: Option<u64>,
}

impl CommitLog {
    /// Opens the directory, in a store named `commitlog`. Several directories, separated by commas, make one log.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn open(directory: impl Into<Location>, options: Options) -> Result<Self> {
        let directory = &directory.into();
        let directories = offset_files::directories(directory)?;
        offset_files::list(&directories)?;
        Ok(Self {
            path: directory.to_owned(),
            directories,
            options,
            open: OpenFiles::default(),
            listed: Arc::default(),
            tail: Arc::default(),
            last_end: Arc::default(),
            end_search: Arc::default(),
            led_to: Arc::default(),
            ends: Arc::default(),
            known_end: Arc::default(),
            pinned: None,
        })
    }

    /// Returns this log with the files that it has now: none is added, and a missing one is an error.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn pinned(&self) -> Result<Self> {
        Ok(Self { pinned: Some(Pinned { files: self.listing()?, last_written: None }), ..self.shared() })
    }

    /// Returns a part of the log in a directory: the files of these paths. The directory is not listed, and a missing file is an
    /// error.
    ///
    /// `last_written` is the start of the last file of the whole log that holds messages. `last_message` is a message in it that
    /// is known to belong to the log.
    pub(super) fn of_files(
        directory: &Location,
        options: Options,
        paths: &[&Location],
        last_written: u64,
        last_message: Option<u64>,
    ) -> Result<Self> {
        let files: Result<Vec<OffsetFile>> = paths.iter().map(|path| OffsetFile::at(path)).collect();
        Ok(Self {
            path: directory.to_owned(),
            directories: offset_files::directories(directory)?,
            options,
            open: OpenFiles::default(),
            listed: Arc::default(),
            tail: Arc::new(ProcessMutex::of(last_message.map(|phy_offset| (last_written, phy_offset)))),
            last_end: Arc::default(),
            end_search: Arc::default(),
            led_to: Arc::default(),
            ends: Arc::default(),
            known_end: Arc::default(),
            pinned: Some(Pinned { files: files?.into(), last_written: Some(last_written) }),
        })
    }

    /// Returns the parts of a range that no file holds, ascending.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn missing(&self, begin: u64, end: u64) -> Result<Vec<(u64, u64)>> {
        let mut missing = Vec::new();
        let mut at = begin;
        for file in self.listing()?.iter().filter(|file| file.end() > begin) {
            if at < file.start.min(end) {
                missing.push((at, file.start.min(end)));
            }
            at = at.max(file.end());
        }
        if at < end {
            missing.push((at, end));
        }
        Ok(missing)
    }

    /// Returns the directory as given.
    pub fn path(&self) -> &Location {
        &self.path
    }

    /// Returns the options.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Returns the files in the order of their offsets. Files with other names are skipped.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn files(&self) -> Result<Vec<OffsetFile>> {
        Ok(self.listing()?.to_vec())
    }

    /// Returns the files as [`Self::files`] does, without a copy if they are pinned.
    pub(super) fn listing(&self) -> Result<Listing> {
        match &self.pinned {
            Some(pinned) => Ok(pinned.files.clone()),
            None => self.listed.list(&self.directories),
        }
    }

    /// Returns a report of unexpected files, gaps, and files of another length.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn check_files(&self) -> Result<Report> {
        offset_files::check(&self.directories)
    }

    /// Returns the length of the log's files (the broker's `mappedFileSizeCommitLog`): the most frequent one, 0 without
    /// files.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn file_size(&self) -> Result<u64> {
        Ok(offset_files::file_size(&self.files()?))
    }

    /// Returns the ranges of the log whose files are missing, in ascending order.
    ///
    /// Missing files before the first file are expired, and missing files after the last written one were never needed,
    /// unless [`Self::lead_to`] was called with an offset after the last file. A file that was set aside under another name is
    /// missing in any place.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn gaps(&self) -> Result<Vec<Gap>> {
        self.gaps_between(&self.listing()?)
    }

    /// Returns the gaps between these files.
    pub(super) fn gaps_between(&self, files: &Listing) -> Result<Vec<Gap>> {
        let mut gaps = offset_files::gaps(files);
        if !gaps.is_empty() {
            let last = self.last_start(files)?;
            // A broker deletes expired files while the directory is listed, the oldest first.
            for gap in std::mem::take(&mut gaps).into_iter().filter(|gap| gap.end <= last) {
                if !matches!(&gap.sign, Sign::Between(before, _) if !storage::exists(before)?) {
                    gaps.push(gap);
                }
            }
        }
        let end = self.led_to();
        if let Some(last) = files.last().filter(|last| end > last.end()) {
            gaps.push(Gap { begin: last.end(), end, sign: Sign::Index(last.path.clone()) });
        }
        offset_files::add_aside(&mut gaps, files, DEFAULT_SIZE);
        Ok(gaps)
    }

    /// Records that the index of a store that was closed cleanly leads to a message at this offset.
    pub fn lead_to(&self, phy_offset: u64) {
        self.led_to.fetch_max(phy_offset.saturating_add(1), Ordering::Relaxed);
    }

    /// Returns the offset after the first byte of the last message that the index leads to, 0 if that is unknown.
    pub(super) fn led_to(&self) -> u64 {
        self.led_to.load(Ordering::Relaxed)
    }

    /// Returns the missing and corrupt parts of the log that hold these offsets, which ascend. See `damage_at`.
    ///
    /// Messages that a broker truncated are not missing.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn damage(&self, phy_offsets: &[u64]) -> Result<Vec<(u64, u64, Finding)>> {
        let mut parts: Vec<(u64, u64, Finding)> = Vec::new();
        for offset in phy_offsets {
            let is_known = parts.last().is_some_and(|(begin, end, _)| (*begin..*end).contains(offset));
            if !is_known && !self.is_cut_off(*offset)? {
                parts.extend(self.damage_at(*offset)?);
            }
        }
        Ok(parts)
    }

    /// Returns the missing or corrupt part of the log that holds an offset, with its findings. `None` if a valid message or
    /// its rest is there, or if the offset is outside of the log.
    ///
    /// Linear in the file that holds the offset.
    ///
    /// # Errors
    /// An I/O error, with the path.
    fn damage_at(&self, phy_offset: u64) -> Result<Option<(u64, u64, Finding)>> {
        let files = self.listing()?;
        if let Some(gap) = self.gaps_between(&files)?.iter().find(|gap| (gap.begin..gap.end).contains(&phy_offset)) {
            return Ok(Some((gap.begin, gap.end, gap.finding())));
        }
        let Some(file) = files.iter().find(|file| (file.start..file.end()).contains(&phy_offset)) else {
            return Ok(None);
        };
        let mut walk = self.walk(vec![file.clone()], file.start, u64::MAX).salvaging(file.start);
        let (mut begin, mut end) = (file.start, file.end());
        while walk.advance()? {
            let Some((place, frame)) = walk.message() else { break };
            if place.phy_offset > phy_offset {
                end = place.phy_offset;
                break;
            }
            begin = place.phy_offset.saturating_add(frame.total());
        }
        let of_place = walk.checked().findings.iter().find(|finding| {
            let at = file.start.saturating_add(finding.offset);
            begin <= at && at <= phy_offset
        });
        Ok(of_place.map(|finding| (file.start.saturating_add(finding.offset), end, finding.clone())))
    }

    /// Returns the log offset of the first byte of the first file, 0 without files.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn min_offset(&self) -> Result<u64> {
        Ok(self.listing()?.first().map_or(0, |file| file.start))
    }

    /// Returns the offset after the last valid frame of the last written file, 0 without files.
    ///
    /// The first call reads this file, unless [`Self::expect_message`] was called. Later calls read only what was added
    /// since.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn max_offset(&self) -> Result<u64> {
        let files = self.listing()?;
        let (Some(first), Some(last)) = (files.first(), files.last()) else {
            return Ok(0);
        };
        if let Some(known) = self.known_end(&files) {
            return Ok(known.end);
        }
        // If it is in the last file, no other one need be looked at.
        if let Some(end) = self.unchanged_end(last)? {
            return Ok(end);
        }
        let Some(file) = self.last_written(&files)?.and_then(|number| files.get(number)) else {
            return Ok(first.start);
        };
        self.wait_for_end();
        if file.start < last.start
            && let Some(end) = self.unchanged_end(file)?
        {
            return Ok(end);
        }
        let end = self.tail.with(|tail| {
            if let Some((start, at)) = *tail
                && start == file.start
                && at < file.end()
            {
                let mut walk = self.walk(vec![file.clone()], at, u64::MAX).starting_at_begin()?;
                // If this message is gone, the log was truncated meanwhile.
                let is_it = |frame: &Frame<'_>| frame.stated_phy_offset() == at.cast_signed();
                if walk.advance()? && walk.message().is_some_and(|(_, frame)| is_it(&frame)) {
                    return Self::walk_to_end(walk, file, tail);
                }
            }
            Self::walk_to_end(self.walk(vec![file.clone()], file.start, u64::MAX), file, tail)
        })?;
        if let Some((_, message)) = self.tail().filter(|(start, message)| *start == file.start && *message < end) {
            let found = self.end_at(file, message, end)?;
            self.last_end.with(|last| *last = found);
        }
        Ok(end)
    }

    /// Returns the end that the last walk found in this file, if the file still ends there.
    fn unchanged_end(&self, file: &OffsetFile) -> Result<Option<u64>> {
        let Some(last) = self.last_end.with(|last| last.clone()).filter(|last| last.start == file.start) else {
            return Ok(None);
        };
        let now = self.end_at(file, last.message, last.end)?;
        Ok(now.filter(|now| *now == last).map(|now| now.end))
    }

    /// Reads what shows that a file ends as before: the head of its last message, and no frame after it. `None` if something is
    /// after the end, or the file is not on this machine.
    fn end_at(&self, file: &OffsetFile, message: u64, end: u64) -> Result<Option<LastEnd>> {
        let Some(source) = self.open_file(file)?.filter(|source| source.is_local()) else { return Ok(None) };
        let (mut head, mut next) = ([0; HEAD], [0; NEXT]);
        let read = |bytes: &mut [u8], at: u64| source.read_exact_at(bytes, at - file.start);
        match read(&mut head, message).and_then(|()| read(&mut next, end)) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(Error::io(&file.path, error)),
        }
        Ok((next == [0; NEXT]).then_some(LastEnd { start: file.start, message, end, head }))
    }

    /// Sets the end that [`Self::max_offset`] returns without a read as long as the log ends with the same files.
    pub fn know_end(&self, end: KnownEnd) {
        self.tail.with(|tail| *tail = Some((end.last_written(), end.last_message)));
        self.known_end.with(|known| *known = Some(end));
    }

    /// Returns whether [`Self::max_offset`] answers without a read.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn is_end_known(&self) -> Result<bool> {
        Ok(self.known_end(&self.listing()?).is_some())
    }

    /// Returns the known end if the log still ends with the same files.
    pub(super) fn known_end(&self, files: &[OffsetFile]) -> Option<KnownEnd> {
        self.known_end.with(|known| known.clone()).filter(|known| files.ends_with(&known.files))
    }

    /// Takes note that these ranges will be read. The first read of a remote log then requests the beginnings of all.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn expect_ranges(&self, ranges: &[(u64, u64)]) -> Result<()> {
        for file in self.listing()?.iter() {
            for (begin, end) in ranges.iter().filter(|(begin, _)| (file.start..file.end()).contains(begin)) {
                if let Some(source) = self.open_file(file)? {
                    source.will_need(begin - file.start, end.saturating_sub(*begin).min(EXPECTED));
                }
            }
        }
        Ok(())
    }

    /// Makes `find` call [`Self::expect_message`] in another thread, for a remote log. A caller that needs the end waits for it.
    pub fn find_end(&self, find: impl FnOnce(&Self) -> Result<()> + Send + 'static) {
        let end_search = Arc::default();
        // Without the thread itself, so that it does not wait for itself.
        let log = Self { end_search, pinned: None, ..self.shared() };
        let (done, ended) = mpsc::channel();
        let look = move || {
            // Without an answer the end is found from the beginning of the file, which raises the error again.
            if find(&log).is_ok() {
                _ = log.max_offset();
            }
            _ = done.send(());
        };
        self.end_search.with(|end_search| *end_search = Some(EndSearch(Generation::current(), ended)));
        // If no thread can be started, the end counts as not found.
        drop(thread::Builder::new().name("logdex-end".to_owned()).spawn(look));
    }

    fn wait_for_end(&self) {
        match self.end_search.with(Option::take) {
            Some(EndSearch(process, ended)) if process.is_current() => {
                while ended.recv_timeout(signals::LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
                    // The read of the end then fails as well.
                    if signals::look().is_err() {
                        break;
                    }
                }
            }
            // A forked child does not have the parent's thread.
            other => std::mem::forget(other),
        }
    }

    /// Returns this log, with what is known of it.
    fn shared(&self) -> Self {
        Self {
            path: self.path.clone(),
            directories: self.directories.clone(),
            options: self.options,
            open: self.open.clone(),
            listed: Arc::clone(&self.listed),
            tail: Arc::clone(&self.tail),
            last_end: Arc::clone(&self.last_end),
            end_search: Arc::clone(&self.end_search),
            led_to: Arc::clone(&self.led_to),
            ends: Arc::clone(&self.ends),
            known_end: Arc::clone(&self.known_end),
            pinned: self.pinned.clone(),
        }
    }

    /// Returns the start of the last file that holds messages, and of the last message found in it.
    pub(super) fn tail(&self) -> Option<(u64, u64)> {
        self.tail.with(|tail| *tail)
    }

    /// Makes the first [`Self::max_offset`] start at a message that is known to belong to the log.
    ///
    /// The call checks that a message begins there. If later files were written, the search starts in the last of them.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn expect_message(&self, phy_offset: u64) -> Result<()> {
        let files = self.files()?;
        if let Some(file) = files.iter().find(|file| (file.start..file.end()).contains(&phy_offset)) {
            self.tail.with(|tail| _ = tail.get_or_insert((file.start, phy_offset)));
        }
        Ok(())
    }

    /// Returns offset and store time of the last message of a file, walking from a message in it on, and the offset after it.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn last_of_file(&self, file: &OffsetFile, from: u64) -> Result<(Option<(u64, i64)>, u64)> {
        let mut walk = self.walk(vec![file.clone()], from, u64::MAX);
        if from > file.start {
            walk = walk.starting_at_begin()?;
        }
        let (mut last, mut end) = (None, file.start);
        while walk.advance()? {
            if let Some((place, frame)) = walk.message() {
                last = Some((place.phy_offset, frame.store_timestamp()));
                end = place.phy_offset.saturating_add(frame.total());
            }
        }
        Ok((last, end))
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

    /// Returns the start of the last file that holds messages; 0 without messages.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn last_file(&self) -> Result<u64> {
        self.last_start(&self.listing()?)
    }

    /// Returns [`Self::last_file`] of these files. It is known for a part of a log.
    pub(super) fn last_start(&self, files: &[OffsetFile]) -> Result<u64> {
        match self.pinned.as_ref().and_then(|pinned| pinned.last_written) {
            Some(start) => Ok(start),
            None => Ok(self.last_written(files)?.and_then(|number| files.get(number)).map_or(0, |file| file.start)),
        }
    }

    /// Returns the offset of the last message before the end of the log; `None` without messages.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn last_message(&self) -> Result<Option<u64>> {
        self.max_offset()?;
        Ok(self.tail().map(|(_, phy_offset)| phy_offset))
    }

    /// Opens a file of the log. `None` if the broker deleted it since the directory was listed, unless the files are pinned.
    pub(super) fn open_file(&self, file: &OffsetFile) -> Result<Option<Arc<FileSource>>> {
        match self.open.get(file, self.options.access) {
            Ok(source) => Ok(Some(source)),
            Err(error) if error.is_missing() && self.pinned.is_none() => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn walk(&self, files: Vec<OffsetFile>, begin: u64, end: u64) -> Scan<FileSource> {
        let access = self.options.access;
        Scan::new(files, move |file| offset_files::open(file, access), self.options.versions, begin, end)
    }
}
