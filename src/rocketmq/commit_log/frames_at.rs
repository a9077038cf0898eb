//! Messages at known offsets of the log, of which neighbours are read together; also as record batches.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;

use crate::error::{Error, Result};
use crate::io::{FileSource, ReadAt, usize_of};
use crate::rocketmq::commit_log::cut_off::LONGEST_FILLING;
use crate::rocketmq::commit_log::decode::batch::BatchBuilder;
use crate::rocketmq::commit_log::decode::block::{Place, Row};
use crate::rocketmq::commit_log::decode::suspect::Suspect;
use crate::rocketmq::commit_log::frame::{self, Found, Frame, Layout};
use crate::rocketmq::commit_log::log::CommitLog;
use crate::rocketmq::commit_log::lookup::LookUp;
use crate::rocketmq::commit_log::scan::filter::Filter;
use crate::rocketmq::commit_log::scan::window::lengths_add_up;
use crate::rocketmq::offset_files::{Listing, OffsetFile};

/// Maximum distance of two messages that are read together: reading the gap costs less than another system call.
const GAP: u64 = 4096;
/// Maximum bytes per read.
const TOGETHER: u64 = 1 << 20;
/// If a message states a larger size than this, its length fields are checked before it is read.
const BELIEVED: u64 = 64 * 1024;

/// The expected start and size of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) phy_offset: u64,
    pub(crate) size: u32,
}

/// A message in the buffer.
#[derive(Clone, Copy, Debug)]
struct Held {
    phy_offset: u64,
    /// Number of its file.
    file: usize,
    /// Its start in the buffer.
    at: usize,
    layout: Layout,
}

/// Reads messages at known offsets, in the files as listed when it was created.
#[derive(Clone, Debug)]
pub(crate) struct FramesAt {
    log: Arc<CommitLog>,
    files: Listing,
    /// The file of the last read.
    current: Option<(usize, Arc<FileSource>)>,
    /// Number of the last file that was written to.
    last_written: Option<usize>,
    /// A file, and the offset before which none of its messages was truncated.
    certain: Option<(usize, u64)>,
    /// The buffer, and how much of it the last read filled. It never shrinks: clearing it would cost as much as a copy.
    bytes: Vec<u8>,
    filled: usize,
    held: Vec<Option<Held>>,
}

impl FramesAt {
    pub(crate) fn new(log: Arc<CommitLog>) -> Result<Self> {
        let files = log.listing()?;
        let last_written = log.last_written(&files)?;
        let (current, certain) = (None, None);
        Ok(Self { log, files, current, last_written, certain, bytes: Vec::new(), filled: 0, held: Vec::new() })
    }

    /// Returns the log offset of the first byte of the log.
    pub(crate) fn begin(&self) -> u64 {
        self.files.first().map_or(0, |file| file.start)
    }

    /// Reads the messages at these ascending offsets. They replace the messages of the previous read.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(crate) fn read(&mut self, wanted: &[Wanted]) -> Result<()> {
        self.filled = 0;
        self.held.clear();
        let mut rest = wanted;
        while let Some((first, others)) = rest.split_first() {
            let Some((number, source)) = self.source(first.phy_offset)? else {
                self.held.push(None);
                rest = others;
                continue;
            };
            let Some(file) = self.files.get(number).cloned() else { break };
            let (run, count) = together(&file, &source, rest)?;
            if count == 0 {
                self.held.push(None);
                rest = others;
                continue;
            }
            let (before, len) = (self.filled, usize_of(run.end - run.start));
            self.filled += len;
            if self.bytes.len() < self.filled {
                self.bytes.resize(self.filled, 0);
            }
            let to = self.bytes.split_at_mut(before).1.split_at_mut(len).0;
            source.read_exact_at(to, run.start).map_err(|e| Error::io(&file.path, e))?;
            let (read, after) = rest.split_at(count);
            for wanted in read {
                let skip = usize_of(wanted.phy_offset - file.start - run.start);
                let held = self.check(number, before + skip, *wanted)?;
                self.held.push(held);
            }
            rest = after;
        }
        Ok(())
    }

    /// Returns the message at the offset of this number.
    ///
    /// `None` if no complete message of that size begins there, or a broker truncated it.
    pub(crate) fn row(&self, number: usize) -> Option<Row<'_>> {
        let held = self.held.get(number).copied().flatten()?;
        let file = self.files.get(held.file)?;
        let frame = Frame::new(self.bytes.get(held.at..)?, held.layout);
        let file_offset = held.phy_offset.saturating_sub(file.start);
        let place = Place { phy_offset: held.phy_offset, path: &file.path, file_offset };
        Some(Row { frame, place, suspect: Suspect::default() })
    }
    fn check(&mut self, number: usize, at: usize, wanted: Wanted) -> Result<Option<Held>> {
        let (Some(file), Wanted { phy_offset, size }) = (self.files.get(number), wanted) else {
            return Ok(None);
        };
        let Some(bytes) = self.bytes.get(at..).and_then(|bytes| bytes.get(..size as usize)) else {
            return Ok(None);
        };
        let available = file.end().saturating_sub(phy_offset);
        let Ok(Found::Message(layout)) = frame::check(bytes, available, self.log.options().versions) else {
            return Ok(None);
        };
        if layout.total() != size {
            return Ok(None);
        }
        let states_offset = Frame::new(bytes, layout).stated_phy_offset() == phy_offset.cast_signed();
        let is_message = if !states_offset {
            // It may be part of a body. Only a walk of the file shows it.
            LookUp::new(&self.log)?.find(Some(phy_offset), |found| found.is_some())?
        } else if phy_offset < self.certain_end(number)? {
            true
        } else {
            !self.log.is_truncated_message(&self.files, number, phy_offset)?
        };
        Ok(is_message.then_some(Held { phy_offset, file: number, at, layout }))
    }

    /// Returns the offset before which no complete message of this file was truncated.
    fn certain_end(&mut self, number: usize) -> Result<u64> {
        if let Some((of, end)) = self.certain
            && of == number
        {
            return Ok(end);
        }
        let Some(file) = self.files.get(number) else {
            return Ok(0);
        };
        let end = match self.last_written {
            Some(last) if last > number => file.end().saturating_sub(LONGEST_FILLING),
            _ => self.log.max_offset()?,
        };
        self.certain = Some((number, end));
        Ok(end)
    }

    /// Opens the file that holds this offset and returns it with its number. `None` if there is none, or it was
    /// deleted.
    fn source(&mut self, phy_offset: u64) -> Result<Option<(usize, Arc<FileSource>)>> {
        let after = self.files.partition_point(|file| file.start <= phy_offset);
        let number = after.checked_sub(1);
        let Some((number, file)) = number.and_then(|number| Some((number, self.files.get(number)?))) else {
            return Ok(None);
        };
        if phy_offset >= file.end() {
            return Ok(None);
        }
        if let Some((of, source)) = &self.current
            && *of == number
        {
            return Ok(Some((number, Arc::clone(source))));
        }
        let source = self.log.open_file(file)?;
        self.current = source.clone().map(|source| (number, source));
        Ok(source.map(|source| (number, source)))
    }
}

/// Returns the bytes of the first messages that are read together, and the number of these messages.
///
/// Empty if no such message can begin there.
fn together(file: &OffsetFile, source: &FileSource, wanted: &[Wanted]) -> Result<(Range<u64>, usize)> {
    let mut run: Option<Range<u64>> = None;
    let mut count = 0;
    for Wanted { phy_offset, size } in wanted {
        let Some(at) = phy_offset.checked_sub(file.start).filter(|at| at.saturating_add(u64::from(*size)) <= file.len)
        else {
            break;
        };
        let end = at + u64::from(*size);
        let is_near = run.as_ref().is_none_or(|run| at <= run.end.saturating_add(GAP) && end - run.start <= TOGETHER);
        if !is_near {
            break;
        }
        if u64::from(*size) > BELIEVED {
            let adds_up = lengths_add_up(source, at, *size).map_err(|e| Error::io(&file.path, e))?;
            if !adds_up {
                break;
            }
        }
        run = Some(run.map_or(at..end, |run| run.start..run.end.max(end)));
        count += 1;
    }
    Ok((run.unwrap_or_default(), count))
}

/// Rows of a batch. A batch ends earlier if it reaches 64 MiB.
const BATCH: usize = 8192;

/// The offsets, and how many of them were read.
pub(crate) struct OffsetReader {
    log: Arc<CommitLog>,
    phy_offsets: Vec<Option<i64>>,
    read: usize,
    builder: BatchBuilder,
    filter: Option<Filter>,
    /// Offsets without a valid message, in the order in which they were read. Without a filter they have rows of their own.
    missing: Vec<i64>,
}

impl OffsetReader {
    pub(crate) fn new(
        log: Arc<CommitLog>,
        phy_offsets: Vec<Option<i64>>,
        builder: BatchBuilder,
        filter: Option<Filter>,
    ) -> Self {
        Self { log, phy_offsets, read: 0, builder, filter, missing: Vec::new() }
    }

    /// Returns the next batch; `None` at the end. With a filter a batch may be empty.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.read >= self.phy_offsets.len() {
            return Ok(None);
        }
        let left = self.phy_offsets.iter().skip(self.read).take(BATCH).copied();
        let filter = self.filter.as_ref().map(|filter| (filter, &mut self.missing));
        let (read, _) = add_messages(&self.log, left, &mut self.builder, filter)?;
        self.read += read;
        Ok(Some(self.builder.take()))
    }

    /// Returns the offset that is read next; of the last one if all were read.
    pub(crate) fn position(&self) -> u64 {
        let next = self.phy_offsets.get(self.read).or(self.phy_offsets.last()).copied().flatten();
        next.and_then(|offset| u64::try_from(offset).ok()).unwrap_or(0)
    }

    pub(crate) fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref()
    }

    /// The offsets read so far without a valid message, if there is a filter.
    pub(crate) fn missing(&self) -> &[i64] {
        &self.missing
    }
}

/// Adds the messages at these offsets that pass the filter.
///
/// `filter` has a list to which offsets without a valid message are added. Without a filter each of them has a row of nulls.
///
/// Returns how many offsets were read, and whether these are all. If the builder is full, the rest is read later.
///
/// # Errors
/// An I/O error, with the path.
pub(crate) fn add_messages(
    log: &CommitLog,
    phy_offsets: impl IntoIterator<Item = Option<i64>>,
    builder: &mut BatchBuilder,
    mut filter: Option<(&Filter, &mut Vec<i64>)>,
) -> Result<(usize, bool)> {
    let mut look_up = LookUp::new(log)?;
    let mut read = 0;
    for phy_offset in phy_offsets {
        let offset = phy_offset.and_then(|offset| u64::try_from(offset).ok());
        let fits = look_up.find(offset, |found| match found {
            Some((frame, place))
                if filter.as_ref().is_none_or(|(filter, _)| filter.passes(&frame, place.phy_offset)) =>
            {
                builder.append(&[Row { frame, place, suspect: Suspect::default() }]) == 1
            }
            found => {
                match &mut filter {
                    None => builder.append_missing(phy_offset),
                    Some((_, missing)) if found.is_none() => missing.extend(phy_offset),
                    Some(_) => {}
                }
                true
            }
        })?;
        if !fits {
            return Ok((read, false));
        }
        read += 1;
    }
    Ok((read, true))
}
