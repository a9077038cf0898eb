//! Index entries of a range of the log, as a broker would have written them, read into a table.
//!
//! If a range begins at a message and is in one file, it is first read as a broker walks it. If that walk finds damage, the file
//! is walked from its beginning. That walk continues after each corrupt region.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::commit_log::{CommitLog, Scan, Suspect};
use super::entry_table::EntryTable;
use super::file_name;
use super::index_entries::{KeyTexts, for_each_key_of_frame};
use super::index_recovery::holds_tags;
use crate::error::Result;
use crate::hash_index::IndexFile;
use crate::io::FileSource;
use crate::report::Kind;

/// Messages that are read in one step.
const STEP: usize = 65_536;

/// The range to read.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// No message begins before it.
    pub begin: u64,
    /// End of the range that no index file covers.
    pub end: u64,
    /// No message that begins here or later is read; at most `end`.
    pub stop: u64,
    /// True if to continue after a corrupt region. Otherwise the range ends where a broker's walk would.
    pub salvage: bool,
}

/// The result of reading a range.
#[derive(Debug, Default)]
pub struct LogEntries {
    /// The entries.
    pub table: EntryTable,
    /// The topics of the messages.
    pub topics: BTreeSet<String>,
    /// The offset at which reading ended.
    pub done: u64,
    /// Parts of the range without a valid message.
    pub refused: Vec<(u64, u64)>,
    /// True if tags are indexed, too; `None`: not known, because no message has tags.
    pub tags: Option<bool>,
}

/// Reads a range step by step.
pub struct LogEntryReader {
    log: Arc<CommitLog>,
    index: Vec<Arc<IndexFile>>,
    range: Range,
    walk: Option<Scan<FileSource>>,
    /// True if this is a broker's walk. Its result counts only if it reaches the end.
    is_trial: bool,
    starts: Vec<u64>,
    reached: u64,
    read: LogEntries,
}

impl std::fmt::Debug for LogEntryReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogEntryReader").field("range", &self.range).finish_non_exhaustive()
    }
}

impl LogEntryReader {
    /// Prepare to read a range. `tags` is whether tags are indexed, too. If it is `None`, the files of `index` decide when the
    /// first message with tags is read.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn new(log: Arc<CommitLog>, index: Vec<Arc<IndexFile>>, range: Range, tags: Option<bool>) -> Result<Self> {
        let one_file = !log.files()?.iter().any(|file| range.begin < file.start && file.start < range.stop);
        let is_trial = range.salvage && one_file && log.message(range.begin)?.is_some();
        let read = LogEntries { tags, done: range.begin, ..LogEntries::default() };
        let mut reader =
            Self { log, index, range, walk: None, is_trial, starts: Vec::new(), reached: range.begin, read };
        if range.begin < range.stop {
            reader.begin_walk(range.salvage && !is_trial)?;
        }
        Ok(reader)
    }

    fn begin_walk(&mut self, salvage: bool) -> Result<()> {
        self.walk = Some(self.log.frames(self.range.begin, self.range.stop, salvage)?);
        self.starts.clear();
        self.reached = self.range.begin;
        Ok(())
    }

    /// Reads some messages and return the offset reached; `None` at the end.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn step(&mut self) -> Result<Option<u64>> {
        let Some(walk) = &mut self.walk else {
            return Ok(None);
        };
        for _ in 0..STEP {
            if !walk.advance()? {
                return self.end_walk();
            }
            let suspect = walk.suspect();
            let Some((place, frame)) = walk.message().filter(|_| !suspect.has(Suspect::CUT_OFF)) else {
                continue;
            };
            self.starts.push(place.phy_offset);
            self.reached = place.phy_offset.saturating_add(frame.total());
            let texts = KeyTexts::of_properties(frame.properties());
            if texts.has_tags() && self.read.tags.is_none() {
                self.read.tags =
                    Some(!has_entries(&self.index)? || holds_tags(&self.log, &self.index)?.unwrap_or(false));
            }
            let topic = crate::java_text::decode_utf8(frame.topic());
            if !self.read.topics.contains(topic.as_ref()) {
                self.read.topics.insert(topic.into_owned());
            }
            let (tags, table) = (self.read.tags.unwrap_or(false), &mut self.read.table);
            for_each_key_of_frame(&frame, &texts, place.phy_offset.cast_signed(), tags, |key| {
                table.push(key.hash(), key.phy_offset);
            });
        }
        Ok(Some(self.reached))
    }

    fn end_walk(&mut self) -> Result<Option<u64>> {
        let Some(walk) = self.walk.take() else {
            return Ok(None);
        };
        if std::mem::take(&mut self.is_trial) && self.reached < self.range.stop {
            self.read.table = EntryTable::default();
            self.begin_walk(true)?;
            return Ok(Some(self.reached));
        }
        let Range { end, stop, salvage, .. } = self.range;
        if salvage {
            let done = end.min(self.reached.max(stop));
            let findings = walk.checked().findings.iter().filter(|finding| finding.kind != Kind::FileGap);
            self.read.refused = findings.map(|finding| self.around(&finding.path, finding.offset, done)).collect();
            self.read.done = done;
        } else {
            // A walk may end at a BLANK frame: a message follows.
            let ends_well = self.reached >= stop || !self.is_followed()?;
            self.read.done = end.min(if ends_well { self.reached } else { stop });
            self.read.refused = if self.read.done < stop { vec![(self.read.done, end)] } else { Vec::new() };
        }
        let gaps = self.log.gaps()?.into_iter().map(|gap| (gap.begin, gap.end));
        self.read.refused.extend(gaps.filter(|(begin, _)| *begin < self.read.done));
        Ok(None)
    }

    /// Returns whether a broker's walk finds a message at the current offset or after it.
    fn is_followed(&self) -> Result<bool> {
        self.log.frames(self.reached, u64::MAX, false)?.advance()
    }

    /// Returns the unreadable part of the log: from a finding to the next message.
    fn around(&self, path: &Path, offset: u64, end: u64) -> (u64, u64) {
        let start = path.file_name().and_then(|name| name.to_str()).and_then(file_name::parse).unwrap_or(0);
        let begin = start.saturating_add(offset);
        let next = self.starts.get(self.starts.partition_point(|at| *at <= begin));
        (begin, next.copied().unwrap_or(end))
    }

    /// The read rows.
    pub fn finish(self) -> LogEntries {
        self.read
    }
}

/// Returns whether any file holds an entry.
fn has_entries(index: &[Arc<IndexFile>]) -> Result<bool> {
    for file in index {
        if !file.is_empty()? {
            return Ok(true);
        }
    }
    Ok(false)
}
