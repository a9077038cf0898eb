//! The index entries that a broker would have made of log ranges that no index file covers, 12 bytes each.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ranges::{Range, subtract, union};
use crate::error::Result;
use crate::hash_index::IndexFile;
use crate::io::{ProcessMutex, signals};
use crate::rocketmq::commit_log::CommitLog;
use crate::rocketmq::entry_table::EntryTable;
use crate::rocketmq::log_entries::{self, LogEntryReader};

/// Called with the finished bytes and the total; an error ends the read.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) -> Result<()> + Sync);

/// Entries of the ranges that were read so far.
#[derive(Debug, Default)]
pub(super) struct Unindexed {
    /// The thread that reads has it.
    turn: ProcessMutex<()>,
    state: ProcessMutex<State>,
}

#[derive(Debug, Default)]
struct State {
    seen: Vec<Range>,
    /// Ranges without a valid message. They are not read at every call.
    refused: Vec<Range>,
    topics: BTreeSet<String>,
    /// True if tags are indexed, too; `None` while it is not known.
    tags: Option<bool>,
    table: EntryTable,
}

impl Unindexed {
    /// Returns the parts of a range that are neither covered otherwise nor read yet, ascending.
    pub(super) fn missing(&self, whole: Range, covered: &[Range]) -> Vec<Range> {
        self.state.with(|state| subtract(whole, covered.iter().chain(&state.seen).copied()))
    }

    /// Returns the ranges that were read and hold no valid message.
    pub(super) fn refused(&self) -> Vec<Range> {
        self.state.with(|state| state.refused.clone())
    }

    /// Returns the topics of the messages that were read.
    pub(super) fn topics(&self) -> BTreeSet<String> {
        self.state.with(|state| state.topics.clone())
    }

    /// Returns whether tags are indexed, if it is known.
    pub(super) fn tags(&self) -> Option<bool> {
        self.state.with(|state| state.tags)
    }

    /// Sets whether tags are indexed.
    pub(super) fn set_tags(&self, tags: bool) {
        self.state.with(|state| state.tags = Some(tags));
    }

    /// Adds the offsets of entries that have these hashes.
    pub(super) fn add_candidates(&self, hashes: &[i32], offsets: &mut [Vec<i64>]) {
        self.state.with(|state| {
            if !state.table.is_empty() {
                for (hash, offsets) in hashes.iter().zip(offsets).filter(|(hash, _)| **hash >= 0) {
                    offsets.extend(state.table.offsets(*hash));
                }
            }
        });
    }

    /// Reads ascending ranges of the log, the newest first, and keeps their entries. Returns the bytes that were read.
    ///
    /// A message that begins within the budget is read whole. The files of the index show whether tags are indexed.
    ///
    /// # Errors
    /// An I/O error; an error of `progress`.
    pub(super) fn read(
        &self,
        log: &Arc<CommitLog>,
        index: &[Arc<IndexFile>],
        ranges: &[Range],
        budget: Option<u64>,
        salvage: bool,
        progress: Progress<'_>,
    ) -> Result<u64> {
        let read = || {
            // Another thread may have read meanwhile.
            let done = self.state.with(|state| [state.seen.clone(), state.refused.clone()].concat());
            let parts: Vec<(u64, u64)> = ranges
                .iter()
                .flat_map(|range| subtract(*range, done.iter().copied()))
                .filter_map(|(begin, end)| Some((u64::try_from(begin).ok()?, u64::try_from(end).ok()?)))
                .collect();
            if log.path().is_remote() {
                log.expect_ranges(&parts)?;
            }
            let asked: u64 = parts.iter().map(|(begin, end)| end - begin).sum();
            let asked = budget.map_or(asked, |budget| asked.min(budget));
            let mut total = 0;
            for (begin, end) in parts.into_iter().rev() {
                let left = budget.map_or(end - begin, |budget| budget.saturating_sub(total));
                if left == 0 {
                    break;
                }
                let range = log_entries::Range { begin, end, stop: end.min(begin.saturating_add(left)), salvage };
                let mut reader = LogEntryReader::new(Arc::clone(log), index.to_vec(), range, self.tags())?;
                while let Some(reached) = reader.step()? {
                    progress(total + (reached - begin), asked)?;
                }
                let read = reader.finish();
                total += read.done - begin;
                progress(total, asked)?;
                self.add(begin, read);
            }
            Ok(total)
        };
        self.turn.wait_with(|()| read())?
    }

    fn add(&self, begin: u64, read: log_entries::LogEntries) {
        let signed = |(begin, end): (u64, u64)| (begin.cast_signed(), end.cast_signed());
        let refused: Vec<Range> = read.refused.into_iter().map(signed).collect();
        self.state.with(|state| {
            state.seen.extend(subtract(signed((begin, read.done)), refused.iter().copied()));
            state.seen = union(std::mem::take(&mut state.seen));
            state.refused.extend(refused);
            state.refused = union(std::mem::take(&mut state.refused));
            state.topics.extend(read.topics);
            state.tags = read.tags;
            state.table.append(read.table);
        });
    }
}

/// A progress that shows nothing, and checks for signals.
///
/// # Errors
/// A handler ends the read.
pub fn no_progress(_: u64, _: u64) -> Result<()> {
    signals::look().map_err(|e| crate::error::Error::InvalidArgument(e.to_string()))
}
