//! One queue, for reading: its files, its units, its beginning and end.
//!
//! The beginning and end are not recorded. At a start a broker walks the last three files up to the first invalid unit, and
//! removes the units after the end of the log (upstream `ConsumeQueue#recover`, `#truncateDirtyLogicFiles`). The queue begins at
//! the first unit of the first file whose message the log still has (`#correctMinOffset`). In compat these rules are followed,
//! faults included. Without compat the queue ends after its last valid unit, even if invalid units are before it, and filling is
//! no message.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::io::{Access, FileSource, Location, ReadAt, usize_of};
use crate::report::{self, Report};
use crate::rocketmq::commit_log::CommitLog;
use crate::rocketmq::consume_queue::unit::{BATCH_FILE_SIZE, BATCH_UNIT_LEN, BatchUnit, FILE_SIZE, UNIT_LEN, Unit};
use crate::rocketmq::offset_files::{self, Gap, Listing, OffsetFile, OpenFiles};
use crate::rocketmq::release::Release;

/// Bytes that are read at once.
const CHUNK: usize = 256 * 1024;
/// Units that are checked at once to find the end of a queue, and the number to check first.
const UNITS_AT_ONCE: u64 = 4096;
const FIRST_UNITS: u64 = 256;
/// The folder of the batch queues in a store.
pub(crate) const BATCH_FOLDER: &str = "batchconsumequeue";

/// The kind of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One unit for each message.
    Plain,
    /// One unit for each frame of several messages (5.x).
    Batch,
}

impl Kind {
    /// Bytes of a unit.
    pub fn unit_len(self) -> usize {
        match self {
            Self::Plain => UNIT_LEN,
            Self::Batch => BATCH_UNIT_LEN,
        }
    }

    /// Returns the kind of the queue in `.../batchconsumequeue/<topic>/<queue>`, or in any other directory.
    fn of(directory: &Location) -> Self {
        let folder = directory.ancestors().nth(2).and_then(Path::file_name);
        if folder.is_some_and(|name| name == BATCH_FOLDER) { Self::Batch } else { Self::Plain }
    }
}

/// Options of a queue that is read.
#[derive(Clone, Debug)]
pub struct Options {
    /// The way to read files; `Auto` is `pread`.
    pub access: Access,
    /// The release whose answers are returned, faults included.
    pub compat: Option<Release>,
    /// The log of the units. It shows which messages are deleted, and the times of messages.
    pub commit_log: Option<Arc<CommitLog>>,
    /// The directory of the queue's extension files.
    pub extension: Option<Location>,
    /// In compat: the end of the log after the broker's start, if it is not [`CommitLog::max_offset`].
    pub log_end: Option<i64>,
    /// The largest step back of the broker's clock, in ms. Used for queues that are too long to read whole.
    pub clock_slack_ms: i64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            access: Access::Auto,
            compat: None,
            commit_log: None,
            extension: None,
            log_end: None,
            clock_slack_ms: 3_600_000,
        }
    }
}

/// The message to return if no message has exactly this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// The first one of that time or later; the end of the queue if there is none.
    Lower,
    /// The last one of that time or earlier; the first message if there is none.
    Upper,
}

/// A unit and its number, which in a plain queue is the queue offset of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) number: u64,
    pub(crate) unit: BatchUnit,
}

/// The queue of one directory, `<topic>/<queue>`. Each call lists the directory: a broker adds and deletes files.
#[derive(Debug)]
pub struct ConsumeQueue {
    directory: Location,
    kind: Kind,
    pub(crate) options: Options,
    open: OpenFiles,
}

impl ConsumeQueue {
    /// Opens a queue's directory.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn open(directory: impl Into<Location>, options: Options) -> Result<Self> {
        let directory = &directory.into();
        offset_files::list(&[directory.to_owned()])?;
        Ok(Self::listed(directory, options))
    }

    /// Opens a directory that was just listed.
    pub(crate) fn listed(directory: &Location, options: Options) -> Self {
        let kind = Kind::of(directory);
        Self { directory: directory.to_owned(), kind, options, open: OpenFiles::default() }
    }

    /// The directory.
    pub fn path(&self) -> &Location {
        &self.directory
    }

    /// The kind of the units.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The way to read it.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The files in the order of their offsets, without strays. The offsets are bytes.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn files(&self) -> Result<Vec<OffsetFile>> {
        offset_files::list(std::slice::from_ref(&self.directory))
    }

    /// Returns the missing ranges of bytes between the files and of files that were set aside, in ascending order.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn gaps(&self) -> Result<Vec<Gap>> {
        Ok(self.gaps_of(&offset_files::list_with_aside(std::slice::from_ref(&self.directory))?))
    }

    /// Returns the gaps of these files.
    pub(super) fn gaps_of(&self, files: &Listing) -> Vec<Gap> {
        let default_size = match self.kind {
            Kind::Plain => FILE_SIZE,
            Kind::Batch => BATCH_FILE_SIZE,
        };
        let mut gaps = offset_files::gaps(files);
        offset_files::add_aside(&mut gaps, files, default_size);
        gaps
    }

    /// Length of the queue's files: the most frequent one; 0 without files.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn file_size(&self) -> Result<u64> {
        Ok(offset_files::file_size(&self.files()?))
    }

    /// Queue offset of the first message that the log still has, and after the last one.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn bounds(&self) -> Result<(i64, i64)> {
        let Bounds { min, max, .. } = bounds_of(self, &self.files()?)?;
        Ok((min, max))
    }

    /// Returns the number of messages with queue offsets in `begin..end`, and the bytes of their frames in the log.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn measure(&self, begin: i64, end: i64) -> Result<(u64, u64)> {
        let (mut messages, mut bytes) = (0, 0);
        self.units(begin, end, |unit| {
            messages += u64::from(unit.messages.unsigned_abs());
            bytes += u64::from(unit.unit.size.unsigned_abs());
        })?;
        Ok((messages, bytes))
    }

    /// Adds the log offsets of the last units to a list, for at most this many messages.
    fn last_phy_offsets(&self, num: i64, found: &mut Vec<u64>) -> Result<()> {
        let (min, max) = self.bounds()?;
        self.units(min.max(max.saturating_sub(num)), max, |unit| found.extend(u64::try_from(unit.unit.phy_offset)))
    }

    /// Offset in the log after the message of the last unit, -1 without a unit.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn log_end(&self) -> Result<i64> {
        let files = self.files()?;
        let last = bounds_of(self, &files)?.units.checked_sub(1);
        let last = last.map(|last| self.unit(&files, last)).transpose()?.flatten();
        Ok(last.filter(|last| last.unit.is_valid()).map_or(-1, |last| last.unit.unit.end()))
    }

    /// Returns the last unit, if it refers to a message.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn last_unit(&self) -> Result<Option<BatchUnit>> {
        let files = self.files()?;
        let units = match self.options.compat {
            None => written_end(self, &files, &mut None)?,
            Some(_) => bounds_of(self, &files)?.units,
        };
        let last = units.checked_sub(1).map(|last| self.unit(&files, last)).transpose()?.flatten();
        Ok(last.map(|last| last.unit).filter(|unit| unit.is_valid() && unit.unit.is_message()))
    }

    /// Returns the first unit, if files before it may be missing, and the last one, if its file is full, so that a next file
    /// may be missing.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(crate) fn outermost_units(&self) -> Result<(Option<Unit>, Option<Unit>)> {
        let files = self.files()?;
        let unit = |number: Option<u64>| -> Result<Option<Unit>> {
            let found = number.map(|number| self.unit(&files, number)).transpose()?.flatten();
            Ok(found.filter(|found| found.unit.is_valid() && found.unit.unit.is_message()).map(|found| found.unit.unit))
        };
        let first = files.first().filter(|file| file.start > 0).map(|file| file.start.div_ceil(self.unit_bytes()));
        let last = files.last().and_then(|file| (file.end() / self.unit_bytes()).checked_sub(1));
        Ok((unit(first)?, unit(last)?))
    }

    /// Returns for each of these ascending offsets the offset in the log of the first message at or after it that has a unit, if
    /// the units rise.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn messages_from(&self, phy_offsets: &[i64]) -> Result<Vec<Option<i64>>> {
        let files = self.files()?;
        let end = bounds_of(self, &files)?.units;
        let mut first = files.first().map_or(0, |file| file.start / self.unit_bytes());
        let mut step = end.saturating_sub(first);
        let mut open = None;
        let mut at = |number| self.unit_in(&files, number, &mut open);
        let mut found = Vec::with_capacity(phy_offsets.len());
        for phy_offset in phy_offsets {
            let is_behind = |unit: Option<Numbered>| unit.is_some_and(|unit| unit.unit.unit.phy_offset >= *phy_offset);
            // Offsets at equal distances are about as many units apart, so few units are read for each.
            let (mut low, mut high) = (first, first.saturating_add(step.saturating_mul(2)).min(end));
            while high < end && !is_behind(at(high)?) {
                (low, high) = (high + 1, high.saturating_add(step.max(1)).min(end));
                step = step.saturating_mul(2);
            }
            while low < high {
                let middle = low + (high - low) / 2;
                if is_behind(at(middle)?) { high = middle } else { low = middle + 1 }
            }
            (first, step) = (low, low - first);
            let unit = if low < end { at(low)? } else { None };
            found.push(unit.map(|unit| unit.unit.unit).filter(|unit| unit.is_message()).map(|unit| unit.phy_offset));
        }
        Ok(found)
    }

    /// Returns the number of the first unit whose message begins at or after an offset of the log, if the units rise. Without such
    /// a unit it is the number after the last one.
    pub(crate) fn unit_from(&self, files: &[OffsetFile], phy_offset: i64) -> Result<u64> {
        let (mut low, mut high) =
            (files.first().map_or(0, |file| file.start / self.unit_bytes()), bounds_of(self, files)?.units);
        let mut open = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let unit = self.unit_in(files, middle, &mut open)?;
            if unit.is_some_and(|unit| unit.unit.unit.phy_offset >= phy_offset) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }

    /// Calls `take` for the units next to a position in the log: with `backwards` the last `most` whose messages begin before it,
    /// else the first `most` whose messages begin there or later. Units of queue offsets outside of `within` do not count.
    ///
    /// Returns how many units there are on that side of the position. The units of a batch queue are not limited to `most`.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn units_near(
        &self,
        position: i64,
        most: u64,
        backwards: bool,
        within: &Range<i64>,
        mut take: impl FnMut(Unit),
    ) -> Result<u64> {
        if self.kind == Kind::Batch {
            let mut found = 0;
            self.units(within.start, within.end, |unit| {
                if (unit.unit.phy_offset < position) == backwards {
                    found += 1;
                    take(unit.unit);
                }
            })?;
            return Ok(found);
        }
        let files = self.files()?;
        let Bounds { min, max, .. } = bounds_of(self, &files)?;
        let (first, last) = (within.start.max(min), within.end.min(max));
        let at = self.unit_from(&files, position)?.cast_signed();
        let (begin, end) = if backwards { (first, at.min(last)) } else { (at.max(first), last) };
        let length = end.saturating_sub(begin).max(0).cast_unsigned();
        let part = length.min(most).cast_signed();
        let (begin, end) = if backwards { (end - part, end) } else { (begin, begin + part) };
        if part > 0 {
            self.units(begin, end, |unit| take(unit.unit))?;
        }
        Ok(length)
    }

    /// Returns the number of the unit after the last written one of a file, as far as the file system shows it.
    fn data_end(&self, source: &FileSource, file: &OffsetFile) -> Result<u64> {
        let end = file.end() / self.unit_bytes();
        if file.len <= FIRST_UNITS * self.unit_bytes() {
            // One call reads it.
            return Ok(end);
        }
        let (mut low, mut high) = (file.start.div_ceil(self.unit_bytes()), end);
        while low < high {
            let middle = low + (high - low) / 2;
            let data = source.next_data(middle * self.unit_bytes() - file.start);
            match data.map_err(|e| Error::io(&file.path, e))? {
                Some(data) => low = file.start.saturating_add(data) / self.unit_bytes() + 1,
                None => high = middle,
            }
        }
        Ok(low.min(end))
    }

    /// Returns the number of the first unit of a plain queue at or after this number that a file holds.
    pub(crate) fn written_from(&self, files: &[OffsetFile], number: i64) -> i64 {
        let at = number.max(0).cast_unsigned().saturating_mul(self.unit_bytes());
        let file = files.iter().find(|file| file.end() > at);
        file.map_or(number, |file| number.max(file.start.div_ceil(self.unit_bytes()).cast_signed()))
    }

    /// Bytes of a unit, for arithmetic with offsets.
    pub(crate) fn unit_bytes(&self) -> u64 {
        self.kind.unit_len() as u64
    }

    /// Calls `take` for the units of one file whose numbers are in `begin..end`, until it returns false.
    pub(crate) fn read_file(
        &self,
        file: &OffsetFile,
        begin: u64,
        end: u64,
        take: impl FnMut(Numbered) -> bool,
    ) -> Result<()> {
        self.read_units(&*self.open_file(file)?, file, begin, end, take)
    }

    /// Opens a file unless the last call opened it. Checking whether a file is the same costs a system call.
    fn opened(&self, file: &OffsetFile, open: &mut LastOpen) -> Result<Arc<FileSource>> {
        match open {
            Some((start, source)) if *start == file.start => Ok(Arc::clone(source)),
            _ => {
                let source = self.open_file(file)?;
                *open = Some((file.start, Arc::clone(&source)));
                Ok(source)
            }
        }
    }

    /// Opens one of the files.
    pub(crate) fn open_file(&self, file: &OffsetFile) -> Result<Arc<FileSource>> {
        self.open.get(file, self.options.access)
    }

    /// Calls `take` for the units of an open file whose numbers are in `begin..end`, until it returns false.
    pub(crate) fn read_units(
        &self,
        source: &FileSource,
        file: &OffsetFile,
        begin: u64,
        end: u64,
        mut take: impl FnMut(Numbered) -> bool,
    ) -> Result<()> {
        let len = self.unit_bytes();
        let first = file.start.div_ceil(len);
        let (begin, end) = (begin.max(first), end.min(file.end() / len));
        if begin >= end {
            return Ok(());
        }
        let units = (CHUNK / self.kind.unit_len()).min(usize_of(end - begin));
        let mut buffer = vec![0u8; units * self.kind.unit_len()];
        let mut at = begin;
        while at < end {
            buffer.truncate(usize_of((end - at) * len));
            source.read_exact_at(&mut buffer, at * len - file.start).map_err(|e| Error::io(&file.path, e))?;
            for unit in buffer.chunks_exact(self.kind.unit_len()) {
                if !take(Numbered { number: at, unit: self.parse(unit, at) }) {
                    return Ok(());
                }
                at += 1;
            }
        }
        Ok(())
    }

    /// Returns the unit of the message at a queue offset.
    pub(crate) fn unit_at(
        &self,
        files: &[OffsetFile],
        bounds: Bounds,
        offset: i64,
        open: &mut LastOpen,
    ) -> Result<Option<BatchUnit>> {
        let is_wanted = |unit: BatchUnit| self.options.compat.is_some() || (unit.is_valid() && unit.unit.is_message());
        if self.kind == Kind::Plain {
            let Ok(number) = u64::try_from(offset) else { return Ok(None) };
            let found = self.unit_in(files, number, open)?;
            return Ok(found.map(|found| found.unit).filter(|unit| is_wanted(*unit)));
        }
        let mut found = None;
        for file in files {
            self.read_file(file, 0, bounds.units, |Numbered { unit, .. }| {
                if is_wanted(unit) && unit.base_offset <= offset && offset < unit.end_offset() {
                    found = Some(unit);
                }
                found.is_none()
            })?;
            if found.is_some() {
                break;
            }
        }
        Ok(found)
    }

    /// Returns one unit by its number.
    pub(crate) fn unit(&self, files: &[OffsetFile], number: u64) -> Result<Option<Numbered>> {
        self.unit_in(files, number, &mut None)
    }

    /// Returns one unit by its number. `open` is the file of the last call.
    fn unit_in(&self, files: &[OffsetFile], number: u64, open: &mut LastOpen) -> Result<Option<Numbered>> {
        let at = number.saturating_mul(self.unit_bytes());
        let after = files.partition_point(|file| file.start <= at);
        let Some(file) = after.checked_sub(1).and_then(|i| files.get(i)) else {
            return Ok(None);
        };
        if at.saturating_add(self.unit_bytes()) > file.end() {
            return Ok(None);
        }
        let source = self.opened(file, open)?;
        let mut bytes = [0u8; BATCH_UNIT_LEN];
        let (bytes, _) = bytes.split_at_mut(self.kind.unit_len());
        source.read_exact_at(bytes, at - file.start).map_err(|e| Error::io(&file.path, e))?;
        Ok(Some(Numbered { number, unit: self.parse(bytes, number) }))
    }

    /// A plain unit is one message at its own number.
    fn parse(&self, bytes: &[u8], number: u64) -> BatchUnit {
        match self.kind {
            Kind::Batch => BatchUnit::parse(bytes),
            Kind::Plain => BatchUnit {
                unit: Unit::parse(bytes),
                store_timestamp: 0,
                base_offset: number.cast_signed(),
                messages: 1,
            },
        }
    }

    /// Calls `take` for the units of messages with queue offsets in `begin..end`, in their order. In compat `take` gets all units
    /// that a broker counts.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn units(&self, begin: i64, end: i64, mut take: impl FnMut(BatchUnit)) -> Result<()> {
        let files = self.files()?;
        let (begin, end, units) = match (self.options.compat, self.kind) {
            // Units outside of the bounds have no messages.
            (None, Kind::Plain) => (begin.max(0), end, 0),
            (compat, _) => {
                let Bounds { min, max, units } = bounds_of(self, &files)?;
                (begin.max(if compat.is_some() { min } else { 0 }), end.min(max), units)
            }
        };
        let wanted = |unit: BatchUnit| self.options.compat.is_some() || (unit.is_valid() && unit.unit.is_message());
        let (first, last) = match self.kind {
            Kind::Plain => (begin.max(0).cast_unsigned(), end.max(0).cast_unsigned()),
            Kind::Batch => (0, units),
        };
        for file in &files {
            self.read_file(file, first, last, |Numbered { unit, .. }| {
                if wanted(unit) && unit.end_offset() > begin && unit.base_offset < end {
                    take(unit);
                }
                true
            })?;
        }
        Ok(())
    }

    /// Checks for stray files, gaps, files of another length, and invalid units. The kinds of findings are in docs/findings.md.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn check_files(&self) -> Result<Report> {
        let mut checked = offset_files::check(std::slice::from_ref(&self.directory))?;
        let files = self.files()?;
        let end = written_end(self, &files, &mut None)?;
        let mut before = 0;
        for file in &files {
            let mut units = 0;
            self.read_file(file, 0, end, |Numbered { number, unit }| {
                units += 1;
                let at = number * self.unit_bytes() - file.start;
                if !unit.is_valid() {
                    checked.find(
                        &file.path,
                        at,
                        report::Kind::QueueUnit,
                        "an offset of 0 or more and a size above 0",
                        describe(unit.unit),
                    );
                } else if unit.unit.is_message() {
                    if unit.unit.phy_offset < before {
                        let expected = format!("a message at offset {before} or behind");
                        checked.find(&file.path, at, report::Kind::QueueOrder, expected, describe(unit.unit));
                    }
                    before = before.max(unit.unit.end());
                }
                true
            })?;
            checked.count("units", units);
        }
        Ok(checked)
    }
}

/// Returns the offsets in the log of the messages next to a position, to which units of parts of queues lead. See
/// [`ConsumeQueue::units_near`].
///
/// Returns at most `most` offsets, and how many units there are on that side of the position.
///
/// # Errors
/// An I/O error, with the path.
pub fn messages_near(
    parts: &[(Arc<ConsumeQueue>, Range<i64>)],
    position: i64,
    most: usize,
    backwards: bool,
) -> Result<(Vec<i64>, u64)> {
    let (mut offsets, mut units) = (Vec::new(), 0);
    for (queue, within) in parts {
        units += queue.units_near(position, most as u64, backwards, within, |unit| offsets.push(unit.phy_offset))?;
    }
    offsets.sort_unstable();
    // The files of a deleted topic may lead to the messages of a new one.
    offsets.dedup();
    if backwards {
        offsets.reverse();
    }
    offsets.truncate(most);
    Ok((offsets, units))
}

pub(crate) fn describe(unit: Unit) -> String {
    format!("offset {}, size {}", unit.phy_offset, unit.size)
}

/// The file of the last call, with its start.
pub(crate) type LastOpen = Option<(u64, Arc<FileSource>)>;

/// The range of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Queue offset of the first message.
    pub(crate) min: i64,
    /// Queue offset after the last message.
    pub(crate) max: i64,
    /// Number of the unit after the last.
    pub(crate) units: u64,
}

/// Returns the range by the rule of the release that the queue was opened for.
pub(crate) fn bounds_of(queue: &ConsumeQueue, files: &[OffsetFile]) -> Result<Bounds> {
    bounds_in(queue, files, &mut None)
}

/// Returns the range as [`bounds_of`]. `open` is the file of the last call.
pub(crate) fn bounds_in(queue: &ConsumeQueue, files: &[OffsetFile], open: &mut LastOpen) -> Result<Bounds> {
    match queue.options.compat {
        Some(compat) => of_broker(queue, files, compat, open),
        None => of_messages(queue, files, open),
    }
}

/// Returns the number of the unit after the last valid one.
fn written_end(queue: &ConsumeQueue, files: &[OffsetFile], open: &mut LastOpen) -> Result<u64> {
    for file in files.iter().rev() {
        let source = queue.opened(file, open)?;
        let first = file.start.div_ceil(queue.unit_bytes());
        // From the end: most of a file may never have been written.
        let (mut before, mut step) = (queue.data_end(&source, file)?, FIRST_UNITS);
        while before > first {
            let begin = before.saturating_sub(step).max(first);
            let mut end = 0;
            queue.read_units(&source, file, begin, before, |Numbered { number, unit }| {
                if unit.is_valid() {
                    end = number + 1;
                }
                true
            })?;
            if end > 0 {
                return Ok(end);
            }
            (before, step) = (begin, (2 * step).min(UNITS_AT_ONCE));
            if source.is_far() {
                // A remote file shows no holes, so the rest is read with few requests.
                source.will_need(0, file.len);
            }
        }
    }
    Ok(files.first().map_or(0, |file| file.start / queue.unit_bytes()))
}

/// Returns the first unit before `end` for which `wanted` is true.
fn first_unit(
    queue: &ConsumeQueue,
    files: &[OffsetFile],
    end: u64,
    open: &mut LastOpen,
    wanted: impl Fn(BatchUnit) -> bool,
) -> Result<Option<Numbered>> {
    let mut found = None;
    for file in files {
        queue.read_units(&*queue.opened(file, open)?, file, 0, end, |unit| {
            if wanted(unit.unit) {
                found = Some(unit);
            }
            found.is_none()
        })?;
        if found.is_some() {
            break;
        }
    }
    Ok(found)
}

fn of_messages(queue: &ConsumeQueue, files: &[OffsetFile], open: &mut LastOpen) -> Result<Bounds> {
    let units = written_end(queue, files, open)?;
    let log_begin = log_begin(queue)?;
    let max = max_offset(queue, files, units)?;
    let begin = first_unit(queue, files, units, open, |unit| {
        unit.is_valid() && unit.unit.is_message() && unit.unit.phy_offset >= log_begin
    })?;
    Ok(Bounds { min: begin.map_or(max, |begin| begin.unit.base_offset), max, units })
}

/// Offset in the log of the first of the last `num` units of several queues together; `None` without a unit.
///
/// # Errors
/// An I/O error, with the path.
pub fn start_of_last(queues: &[Arc<ConsumeQueue>], num: i64) -> Result<Option<u64>> {
    let mut found = Vec::new();
    for queue in queues {
        queue.last_phy_offsets(num, &mut found)?;
    }
    found.sort_unstable_by(|one, other| other.cmp(one));
    let first = usize_of(num.max(0).cast_unsigned()).min(found.len()).checked_sub(1);
    Ok(first.and_then(|first| found.get(first).copied()))
}

/// Returns the queue offset after the unit before `end`.
fn max_offset(queue: &ConsumeQueue, files: &[OffsetFile], end: u64) -> Result<i64> {
    if queue.kind() == Kind::Plain {
        return Ok(end.cast_signed());
    }
    let last = end.checked_sub(1).map(|last| queue.unit(files, last)).transpose()?.flatten();
    Ok(last.map_or(0, |last| last.unit.end_offset()))
}

/// Returns the first offset of the log; 0 without a log.
fn log_begin(queue: &ConsumeQueue) -> Result<i64> {
    queue.options.commit_log.as_ref().map_or(Ok(0), |log| Ok(log.min_offset()?.cast_signed()))
}

/// COMPAT(rocketmq `ConsumeQueue#recover`, `#truncateDirtyLogicFiles`, `#correctMinOffset`).
fn of_broker(queue: &ConsumeQueue, files: &[OffsetFile], compat: Release, open: &mut LastOpen) -> Result<Bounds> {
    let mut units = recovered_end(queue, files)?;
    let mut left: Vec<OffsetFile> =
        files.iter().filter(|file| file.start / queue.unit_bytes() <= units).cloned().collect();
    let log_end = match (queue.options.log_end, &queue.options.commit_log) {
        (None, Some(log)) => Some(log.max_offset()?.cast_signed()),
        (log_end, _) => log_end,
    };
    if let Some(log_end) = log_end {
        units = truncated_end(queue, &mut left, log_end)?;
    }
    let max = max_offset(queue, &left, units)?;
    let log_begin = log_begin(queue)?;
    if compat != Release::V4_9_3 {
        let last = units.checked_sub(1).map(|last| queue.unit(&left, last)).transpose()?.flatten();
        if last.is_none_or(|last| last.unit.unit.phy_offset < log_begin) {
            return Ok(Bounds { min: max, max, units });
        }
    }
    // The broker checks only the first file.
    left.truncate(1);
    let first = first_unit(queue, &left, units, open, |unit| unit.unit.phy_offset >= log_begin)?;
    Ok(Bounds { min: first.map_or(0, |first| first.unit.base_offset), max, units })
}

/// Returns the unit at which the walk over the last three files ends.
fn recovered_end(queue: &ConsumeQueue, files: &[OffsetFile]) -> Result<u64> {
    let mut end = files.first().map_or(0, |file| file.start / queue.unit_bytes());
    for file in files.iter().skip(files.len().saturating_sub(3)) {
        end = file.start / queue.unit_bytes();
        let mut stopped = false;
        queue.read_file(file, 0, u64::MAX, |Numbered { number, unit }| {
            stopped = !unit.is_valid();
            if !stopped {
                end = number + 1;
            }
            !stopped
        })?;
        if stopped {
            break;
        }
    }
    Ok(end)
}

/// Removes the units after the end of the log. The first unit of the last file is not checked.
fn truncated_end(queue: &ConsumeQueue, files: &mut Vec<OffsetFile>, log_end: i64) -> Result<u64> {
    while let Some(file) = files.last() {
        let begin = file.start.div_ceil(queue.unit_bytes());
        let mut end = None;
        queue.read_file(file, 0, u64::MAX, |Numbered { number, unit }| {
            let behind = unit.unit.phy_offset >= log_end;
            let keeps = if number == begin { !behind } else { unit.is_valid() && !behind };
            if keeps {
                end = Some(number + 1);
            }
            keeps
        })?;
        match end {
            Some(end) => return Ok(end),
            None => files.pop(),
        };
    }
    Ok(0)
}
