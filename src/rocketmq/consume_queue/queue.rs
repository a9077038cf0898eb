//! One queue, for reading.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bounds::{self, Bounds};
use super::unit::{BATCH_UNIT_LEN, BatchUnit, UNIT_LEN, Unit};
use crate::error::{Error, Result};
use crate::io::{Access, ReadAt};
use crate::report::{self, Report};
use crate::rocketmq::commit_log::CommitLog;
use crate::rocketmq::offset_files::{self, OffsetFile, OpenFiles};
use crate::rocketmq::release::Release;

/// Bytes that are read at once.
const CHUNK: usize = 256 * 1024;
/// The folder of the batch queues in a store.
pub(super) const BATCH_FOLDER: &str = "batchconsumequeue";

/// What the units of a queue are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One unit a message.
    Plain,
    /// One unit a frame of several messages (5.x).
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

    /// The kind of the queue in `.../batchconsumequeue/<topic>/<queue>`, or in any other directory.
    fn of(directory: &Path) -> Self {
        let folder = directory.ancestors().nth(2).and_then(Path::file_name);
        if folder.is_some_and(|name| name == BATCH_FOLDER) { Self::Batch } else { Self::Plain }
    }
}

/// How a queue is read.
#[derive(Clone, Debug)]
pub struct Options {
    /// How files are reached; `Auto` is `pread`.
    pub access: Access,
    /// A release whose answers are wanted, faults included.
    pub compat: Option<Release>,
    /// The log that the units lead into: tells what is deleted, and the times of messages.
    pub commit_log: Option<Arc<CommitLog>>,
    /// The directory of the queue's extension files.
    pub extension: Option<PathBuf>,
    /// In compat: where the log ends after the broker's start, where that is not [`CommitLog::max_offset`].
    pub log_end: Option<i64>,
    /// How far the broker's clock may have stepped back, in ms; matters to queues too long to be read whole.
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

/// A unit and its place: its number, which is the queue offset of a plain queue's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbered {
    pub(super) number: u64,
    pub(super) unit: BatchUnit,
}

/// The queue of one directory, `<topic>/<queue>`. Calls list it anew: a broker adds and deletes files.
#[derive(Debug)]
pub struct ConsumeQueue {
    directory: PathBuf,
    kind: Kind,
    pub(super) options: Options,
    open: OpenFiles,
}

impl ConsumeQueue {
    /// Opens a queue's directory.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn open(directory: &Path, options: Options) -> Result<Self> {
        offset_files::list(&[directory.to_owned()])?;
        let kind = Kind::of(directory);
        Ok(Self { directory: directory.to_owned(), kind, options, open: OpenFiles::default() })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// What the units are.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How it is read.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The files in the order of their offsets, without strays. The offsets are bytes.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn files(&self) -> Result<Vec<OffsetFile>> {
        offset_files::list(std::slice::from_ref(&self.directory))
    }

    /// Length of the queue's files: the commonest one, 0 without files.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn file_size(&self) -> Result<u64> {
        Ok(offset_files::file_size(&self.files()?))
    }

    /// Queue offset of the first message that is still there, and after the last one.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn bounds(&self) -> Result<(i64, i64)> {
        let Bounds { min, max, .. } = bounds::of(self, &self.files()?)?;
        Ok((min, max))
    }

    /// Offset in the log after the message of the last unit, -1 without a unit.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn log_end(&self) -> Result<i64> {
        let files = self.files()?;
        let last = bounds::of(self, &files)?.units.checked_sub(1);
        let last = last.map(|last| self.unit(&files, last)).transpose()?.flatten();
        Ok(last.filter(|last| last.unit.is_valid()).map_or(-1, |last| last.unit.unit.end()))
    }

    /// The last unit, if it leads to a message.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn last_unit(&self) -> Result<Option<BatchUnit>> {
        let files = self.files()?;
        let units = match self.options.compat {
            None => bounds::written_end(self, &files)?,
            Some(_) => bounds::of(self, &files)?.units,
        };
        let last = units.checked_sub(1).map(|last| self.unit(&files, last)).transpose()?.flatten();
        Ok(last.map(|last| last.unit).filter(|unit| unit.is_valid() && unit.unit.is_message()))
    }

    /// Offset in the log of the first message at or behind `phy_offset` to which a unit leads, if the units rise.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn message_from(&self, phy_offset: i64) -> Result<Option<i64>> {
        let files = self.files()?;
        let end = bounds::of(self, &files)?.units;
        let (mut low, mut high) = (files.first().map_or(0, |file| file.start / self.unit_bytes()), end);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.unit(&files, middle)? {
                Some(found) if found.unit.unit.phy_offset >= phy_offset => high = middle,
                _ => low = middle + 1,
            }
        }
        let found = if low < end { self.unit(&files, low)? } else { None };
        Ok(found.map(|found| found.unit.unit).filter(|unit| unit.is_message()).map(|unit| unit.phy_offset))
    }

    /// True when units of a file were never written, as far as the file system tells.
    pub(super) fn is_unwritten(&self, file: &OffsetFile, begin: u64, end: u64) -> Result<bool> {
        let source = self.open.get(file, self.options.access)?;
        let (begin, end) = (begin * self.unit_bytes() - file.start, end * self.unit_bytes() - file.start);
        let data = source.next_data(begin).map_err(|e| Error::io(&file.path, e))?;
        Ok(data.is_none_or(|data| data >= end))
    }

    /// Bytes of a unit, for arithmetic with offsets.
    pub(super) fn unit_bytes(&self) -> u64 {
        self.kind.unit_len() as u64
    }

    /// Gives `take` the units of one file whose numbers are in `begin..end`, as far as the file has them.
    /// `take` returns false to end it.
    pub(super) fn read_file(
        &self,
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
        let source = self.open.get(file, self.options.access)?;
        let mut buffer = vec![0u8; CHUNK / self.kind.unit_len() * self.kind.unit_len()];
        let mut at = begin;
        while at < end {
            let want = usize::try_from((end - at) * len).unwrap_or(usize::MAX).min(buffer.len());
            let bytes = buffer.get_mut(..want).unwrap_or_default();
            source.read_exact_at(bytes, at * len - file.start).map_err(|e| Error::io(&file.path, e))?;
            for unit in bytes.chunks_exact(self.kind.unit_len()) {
                if !take(Numbered { number: at, unit: self.parse(unit, at) }) {
                    return Ok(());
                }
                at += 1;
            }
        }
        Ok(())
    }

    /// One unit by its number.
    pub(super) fn unit(&self, files: &[OffsetFile], number: u64) -> Result<Option<Numbered>> {
        let at = number.saturating_mul(self.unit_bytes());
        let after = files.partition_point(|file| file.start <= at);
        let Some(file) = after.checked_sub(1).and_then(|i| files.get(i)) else {
            return Ok(None);
        };
        if at.saturating_add(self.unit_bytes()) > file.end() {
            return Ok(None);
        }
        let source = self.open.get(file, self.options.access)?;
        let mut bytes = [0u8; BATCH_UNIT_LEN];
        let bytes = bytes.get_mut(..self.kind.unit_len()).unwrap_or_default();
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

    /// Gives `take` the units that hold queue offsets in `begin..end`, in their order: those that lead to messages; in
    /// compat all that a broker would count.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn units(&self, begin: i64, end: i64, mut take: impl FnMut(BatchUnit)) -> Result<()> {
        let files = self.files()?;
        let (begin, end, units) = match (self.options.compat, self.kind) {
            // What lies outside of the bounds is no message.
            (None, Kind::Plain) => (begin.max(0), end, 0),
            (compat, _) => {
                let Bounds { min, max, units } = bounds::of(self, &files)?;
                (begin.max(if compat.is_some() { min } else { 0 }), end.min(max), units)
            }
        };
        let wanted = |unit: BatchUnit| self.options.compat.is_some() || (unit.is_valid() && unit.unit.is_message());
        let (first, last) = match self.kind {
            Kind::Plain => (u64::try_from(begin).unwrap_or(0), u64::try_from(end).unwrap_or(0)),
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

    /// Looks for strays, gaps, files of another length, and units that cannot be true. Kinds: docs/findings.md.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn check_files(&self) -> Result<Report> {
        let mut checked = offset_files::check(std::slice::from_ref(&self.directory))?;
        let files = self.files()?;
        let end = bounds::written_end(self, &files)?;
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
                        let expected = format!("a message at {before} or behind");
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

pub(super) fn describe(unit: Unit) -> String {
    format!("offset {}, size {}", unit.phy_offset, unit.size)
}
