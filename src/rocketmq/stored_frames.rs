//! Frames as the log holds them, one after another: what a broker sends for a pull, a query, or the view of one message.
//!
//! Source: upstream `DefaultMessageStore#getMessage`. Frames are checked, and never decoded.

use std::sync::{Arc, Mutex, PoisonError};

use super::commit_log::{CommitLog, FramesAt, Wanted};
use super::consume_queue::unit::{BatchUnit, UNIT_LEN};
use super::consume_queue::{ConsumeQueue, ExtensionReader, Kind, is_extension_address};
use super::offset_files::OffsetFile;
use crate::error::{Error, Result};
use crate::io::FileSource;

/// Bytes of units that a broker reads for one pull, unless more messages are wanted.
const WINDOW_BYTES: usize = 16_000;

/// The most that one pull returns. The first message is always returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of messages.
    pub messages: usize,
    /// Bytes of frames.
    pub bytes: u64,
}

/// The result of a pull (upstream `GetMessageStatus`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// There are messages.
    Found,
    /// No unit passes the filter.
    NoMatchedMessage,
    /// Units pass, but their messages are gone or damaged.
    MessageWasRemoving,
    /// No file of the queue holds the offset.
    OffsetFoundNull,
}

/// Messages of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// The frames, one after another.
    pub frames: Vec<u8>,
    /// Their number.
    pub messages: usize,
    /// The queue offset to continue from.
    pub next_offset: i64,
    /// The result.
    pub status: Status,
}

/// A queue and its log as they are now. Nothing is listed again, so that many pulls of one moment cost little.
#[derive(Debug)]
pub struct QueueView {
    queue: Arc<ConsumeQueue>,
    files: Vec<OffsetFile>,
    bounds: (i64, i64),
    readers: Mutex<Readers>,
}

/// Open files of a queue and of its log.
#[derive(Debug)]
struct Readers {
    /// The file of the queue that was read last, and the offset of its first byte.
    units: Option<(u64, Arc<FileSource>)>,
    frames: FramesAt,
}

impl QueueView {
    /// Lists the files of the queue and of its log.
    ///
    /// # Errors
    /// `InvalidArgument` for a queue without its log; an I/O error, with the path.
    pub fn open(queue: Arc<ConsumeQueue>) -> Result<Self> {
        let log = log_of(&queue)?;
        let readers = Mutex::new(Readers { units: None, frames: FramesAt::new(Arc::clone(log))? });
        let (files, bounds) = (queue.files()?, queue.bounds()?);
        Ok(Self { queue, files, bounds, readers })
    }

    /// Queue offset of the first message that the log still has, and after the last one.
    pub fn bounds(&self) -> (i64, i64) {
        self.bounds
    }

    /// Returns the next messages, from an offset within the bounds.
    ///
    /// As a broker does, a call reads one file of the queue, and there a limited number of units. `codes` are the hashes of
    /// the tags that are wanted; `None`: all.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn pull(&self, begin: i64, limits: Limits, codes: Option<&[i32]>) -> Result<Pulled> {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let units = self.units(&mut readers.units, begin, limits, codes.is_some())?;
        if units.is_empty() {
            let next_offset = self.queue.written_from(&self.files, begin);
            return Ok(Pulled { frames: Vec::new(), messages: 0, next_offset, status: Status::OffsetFoundNull });
        }
        let (wanted, next_offset) = choose(&self.queue, &units, limits, codes)?;
        let (frames, messages) = read(&mut readers.frames, &wanted)?;
        let status = match (messages, wanted.len()) {
            (0, 0) => Status::NoMatchedMessage,
            (0, _) => Status::MessageWasRemoving,
            _ => Status::Found,
        };
        Ok(Pulled { frames, messages, next_offset, status })
    }

    /// Returns the units that one pull reads. Without a filter no more are needed than messages are wanted.
    fn units(
        &self,
        open: &mut Option<(u64, Arc<FileSource>)>,
        begin: i64,
        limits: Limits,
        filters: bool,
    ) -> Result<Vec<BatchUnit>> {
        let (begin, end) = (begin.max(0), self.bounds.1);
        let at_most = if filters { WINDOW_BYTES / UNIT_LEN } else { 1 };
        let window = limits.messages.max(at_most);
        let first = begin.cast_unsigned();
        let (files, last) = match self.queue.kind() {
            Kind::Plain => {
                let at = first.saturating_mul(UNIT_LEN as u64);
                let file = self.files.iter().position(|file| file.start <= at && at < file.end());
                let file = file.and_then(|file| self.files.get(file..=file)).unwrap_or_default();
                (file, first.saturating_add(window as u64).min(end.max(0).cast_unsigned()))
            }
            // The number of a unit is not the offset of its messages.
            Kind::Batch => (self.files.as_slice(), u64::MAX),
        };
        let first = if self.queue.kind() == Kind::Plain { first } else { 0 };
        let mut units = Vec::new();
        for file in files {
            let source = match open {
                Some((start, source)) if *start == file.start => Arc::clone(source),
                _ => self.queue.open_file(file)?,
            };
            *open = Some((file.start, Arc::clone(&source)));
            self.queue.read_units(&source, file, first, last, |numbered| {
                let unit = numbered.unit;
                if unit.end_offset() > begin && unit.base_offset < end {
                    units.push(unit);
                }
                units.len() < window
            })?;
        }
        units.truncate(window);
        Ok(units)
    }
}

/// Returns the frames at these places, in this order, without those that are gone or damaged, and their number.
fn read(reader: &mut FramesAt, wanted: &[Wanted]) -> Result<(Vec<u8>, usize)> {
    let (mut frames, mut messages) = (Vec::new(), 0);
    let rises = |a: &Wanted, b: &Wanted| a.phy_offset.saturating_add(u64::from(a.size)) <= b.phy_offset;
    for run in wanted.chunk_by(rises) {
        reader.read(run)?;
        let found = || (0..run.len()).filter_map(|number| reader.row(number)).map(|row| row.frame.into_parts().0);
        frames.reserve(found().map(<[u8]>::len).sum());
        for frame in found() {
            frames.extend_from_slice(frame);
            messages += 1;
        }
    }
    Ok((frames, messages))
}

fn log_of(queue: &ConsumeQueue) -> Result<&Arc<CommitLog>> {
    queue.options().commit_log.as_ref().ok_or_else(|| {
        let text = format!("{}: expected a queue that was opened with its log", queue.path().display());
        Error::InvalidArgument(text)
    })
}

/// Returns the units whose messages are sent, and the queue offset after the last unit that was read.
fn choose(
    queue: &ConsumeQueue,
    units: &[BatchUnit],
    limits: Limits,
    codes: Option<&[i32]>,
) -> Result<(Vec<Wanted>, i64)> {
    let mut filter = TagFilter { queue, codes, extension: None };
    let (mut wanted, mut bytes) = (Vec::new(), 0u64);
    for at @ BatchUnit { unit, .. } in units {
        let size = unit.size.max(0).cast_unsigned();
        let is_full = wanted.len() >= limits.messages || bytes + u64::from(size) > limits.bytes;
        if !wanted.is_empty() && is_full {
            return Ok((wanted, at.base_offset));
        }
        if unit.is_message() && filter.passes(unit.tags_code)? {
            wanted.push(Wanted { phy_offset: unit.phy_offset.cast_unsigned(), size });
            bytes += u64::from(size);
        }
    }
    Ok((wanted, units.last().map_or(0, |last| last.end_offset())))
}

/// Passes units whose tags code is wanted (upstream `ExpressionMessageFilter#isMatchedByConsumeQueue`).
struct TagFilter<'a> {
    queue: &'a ConsumeQueue,
    codes: Option<&'a [i32]>,
    extension: Option<ExtensionReader>,
}

impl TagFilter<'_> {
    fn passes(&mut self, tags_code: i64) -> Result<bool> {
        let Some(codes) = self.codes else {
            return Ok(true);
        };
        let mut code = tags_code;
        if let Some(directory) = self.queue.options().extension.as_ref().filter(|_| is_extension_address(tags_code)) {
            let reader = match &mut self.extension {
                Some(reader) => reader,
                none => none.insert(ExtensionReader::open(directory, self.queue.options().access)?),
            };
            // A lost extension unit may match.
            let Some(unit) = reader.unit(tags_code)? else {
                return Ok(true);
            };
            code = unit.tags_code;
        }
        #[expect(clippy::cast_possible_truncation, reason = "a broker compares the low 32 bits")]
        let code = code as i32;
        Ok(codes.contains(&code))
    }
}

/// Returns the store time in ms of the message at a queue offset; `None` if there is none.
///
/// # Errors
/// `InvalidArgument` for a queue without its log; an I/O error, with the path.
pub fn store_timestamp(queue: &ConsumeQueue, queue_offset: i64) -> Result<Option<i64>> {
    let log = log_of(queue)?;
    let mut found = None;
    queue.units(queue_offset, queue_offset.saturating_add(1), |unit| found = Some(unit.unit))?;
    found.map_or(Ok(None), |unit| log.store_times()?.of(unit.phy_offset, unit.size))
}
