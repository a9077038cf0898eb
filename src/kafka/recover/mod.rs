//! Recovery of a segment after a crash: its valid bytes, and its rebuilt indexes; and the ids of topics, by the cluster's metadata.
//!
//! Nothing is written. Source: `LogSegment#recover`.

mod index_files;
mod topic_ids;

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::io::{FileSource, storage, usize_of};
use crate::kafka::format::batch_cursor::BatchCursor;
use crate::kafka::format::control_record::ControlType;
use crate::kafka::format::header::{Header, NO_TIMESTAMP};
use crate::kafka::format::record::{Wants, field};
use crate::kafka::index::offset_index;
use crate::kafka::index::time_index::{self, TimeEntry};
use crate::kafka::read::producer_state::ProducerState;
use crate::kafka::read::segment::Segment;
use crate::kafka::read::walk::{Reads, Walk};
use crate::report::{Finding, Flaw, Kind};

pub use topic_ids::topic_ids;

/// The result of a recovery: what the broker would keep.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Length of the valid part of the log.
    pub valid_bytes: u64,
    /// Bytes after it, which the broker truncates.
    pub truncated_bytes: u64,
    /// Number of batches in the valid part.
    pub batches: u64,
    /// The rebuilt `.index`, trimmed.
    pub offset_index: Vec<u8>,
    /// The rebuilt `.timeindex`, trimmed.
    pub time_index: Vec<u8>,
    /// The rebuilt `.txnindex`; `None` if there was none and no transaction was aborted.
    pub transaction_index: Option<Vec<u8>>,
    /// The largest timestamp and the last offset of the first batch that has it.
    pub max_timestamp: TimeEntry,
    /// Offset after the last batch.
    pub next_offset: i64,
    /// The reason for an end of the valid part before the end of the log.
    pub findings: Vec<Finding>,
}

/// The two indexes while they are rebuilt.
struct Rebuild<'a> {
    segment: &'a Segment,
    interval: u64,
    max_bytes: u64,
    offset_index: Vec<u8>,
    time_index: Vec<u8>,
    last_offset: Option<i64>,
    last_time: TimeEntry,
    max_timestamp: TimeEntry,
    /// Position of the last indexed batch.
    last_indexed: u64,
}

impl Rebuild<'_> {
    fn relative(&self, header: &Header, offset: i64) -> Result<i32> {
        offset
            .checked_sub(self.segment.base_offset())
            .and_then(|r| i32::try_from(r).ok())
            .filter(|r| *r >= 0)
            .ok_or_else(|| {
                let base = self.segment.base_offset();
                let flaw =
                    Flaw::new(Kind::BatchOffset, format_args!("an offset of {base} to {base} + 2147483647"), offset);
                self.segment.corrupt(header.position, flaw)
            })
    }

    fn full(&self, suffix: &str, entries: usize) -> Error {
        Error::IndexFull { path: self.segment.beside(suffix).to_path_buf(), entries: entries as u64 }
    }

    fn batch(&mut self, header: &Header) -> Result<()> {
        self.relative(header, header.last_offset)?;
        if header.max_timestamp > self.max_timestamp.timestamp {
            self.max_timestamp = TimeEntry { timestamp: header.max_timestamp, offset: header.last_offset };
        }
        if header.position - self.last_indexed > self.interval {
            self.append_offset(header)?;
            self.append_time(header, false)?;
            self.last_indexed = header.position;
        }
        Ok(())
    }

    fn append_offset(&mut self, header: &Header) -> Result<()> {
        let entries = self.offset_index.len() / offset_index::ENTRY_SIZE;
        if (entries + 1) * offset_index::ENTRY_SIZE > usize_of(self.max_bytes) {
            return Err(self.full(".index", entries));
        }
        if let Some(last) = self.last_offset.filter(|last| header.last_offset <= *last) {
            let flaw = Flaw::new(Kind::BatchOffset, format_args!("a last offset above {last}"), header.last_offset);
            return Err(self.segment.corrupt(header.position, flaw));
        }
        let position = i32::try_from(header.position).map_err(|_| {
            let flaw = Flaw::new(Kind::BatchOffset, "a position below 2147483648", header.position);
            self.segment.corrupt(header.position, flaw)
        })?;
        let key = self.relative(header, header.last_offset)?;
        self.offset_index.extend_from_slice(offset_index::encode(key, position).as_flattened());
        self.last_offset = Some(header.last_offset);
        Ok(())
    }

    fn append_time(&mut self, header: &Header, skip_full_check: bool) -> Result<()> {
        let entries = self.time_index.len() / time_index::ENTRY_SIZE;
        let space_left = usize_of(self.max_bytes) / time_index::ENTRY_SIZE;
        if entries + usize::from(!skip_full_check) >= space_left {
            return Err(self.full(".timeindex", entries));
        }
        let next = self.max_timestamp;
        if entries > 0 && next.offset < self.last_time.offset {
            let flaw = Flaw::new(
                Kind::BatchOffset,
                format_args!("an offset of at least {}", self.last_time.offset),
                next.offset,
            );
            return Err(self.segment.corrupt(header.position, flaw));
        }
        if next.timestamp > self.last_time.timestamp {
            let relative = self.relative(header, next.offset)?;
            self.time_index.extend_from_slice(&time_index::encode(next.timestamp, relative));
            self.last_time = next;
        }
        Ok(())
    }
}

/// The transactions of the log, and their index while it is rebuilt.
struct Markers<'a> {
    source: &'a FileSource,
    cursor: BatchCursor,
    producers: &'a mut ProducerState,
    index: Vec<u8>,
}

impl Markers<'_> {
    /// Adds a batch to the transactions. Source: `LogSegment#updateProducerState`.
    fn batch(&mut self, segment: &Segment, walk: &mut Walk, header: &Header) -> Result<()> {
        if header.is_legacy() || header.producer_id < 0 {
            return Ok(());
        }
        if !header.is_control() {
            self.producers.data(header, header.base_offset);
            return Ok(());
        }
        let checked = header.check_size(segment.options().max_batch_bytes);
        checked.map_err(|flaw| segment.corrupt(header.position, flaw))?;
        let batch = walk.batch(self.source, header).map_err(|e| Error::io(segment.path(), e))?;
        let mut kind = None;
        let read = self.cursor.each(header, batch, Wants::All, |span, bytes| {
            kind.get_or_insert(ControlType::of_key(field(span.key, bytes).unwrap_or_default()));
            false
        });
        read.map_err(|flaw| segment.corrupt(header.position, flaw))?;
        let is_abort = match kind {
            Some(ControlType::Abort) => true,
            Some(ControlType::Commit) => false,
            Some(
                ControlType::LeaderChange
                | ControlType::SnapshotHeader
                | ControlType::SnapshotFooter
                | ControlType::KRaftVersion
                | ControlType::KRaftVoters
                | ControlType::Unknown(_),
            )
            | None => return Ok(()),
        };
        if let Some(aborted) = self.producers.marker(header.producer_id, header.base_offset, is_abort) {
            aborted.encode(&mut self.index);
        }
        Ok(())
    }
}

impl Segment {
    /// Finds the first batch that is not valid, and rebuilds the indexes of the batches before it.
    ///
    /// # Errors
    /// `Corrupt` where the broker's own recovery fails: offsets that decrease or do not fit in an index; `IndexFull`; an
    /// I/O error.
    pub fn recover(
        self: &Arc<Self>,
        index_interval_bytes: u64,
        max_index_bytes: u64,
        producers: &mut ProducerState,
    ) -> Result<Recovered> {
        let source = self.open_source()?;
        let mut walk = Walk::new(Reads::Whole, 0, self.len());
        let front = TimeEntry { timestamp: NO_TIMESTAMP, offset: self.base_offset() };
        let mut rebuild = Rebuild {
            segment: self,
            interval: index_interval_bytes,
            max_bytes: max_index_bytes,
            offset_index: Vec::new(),
            time_index: Vec::new(),
            last_offset: None,
            last_time: front,
            max_timestamp: front,
            last_indexed: 0,
        };
        let cursor = BatchCursor::new(self.options().max_batch_bytes);
        let mut markers = Markers { source: &source, cursor, producers, index: Vec::new() };
        let (mut valid_bytes, mut batches, mut findings) = (0, 0, Vec::new());
        let mut end = self.base_offset();
        let mut last = None;
        let stop = loop {
            let header = match walk.next(&source).map_err(|e| Error::io(self.path(), e))? {
                Ok(header) => header,
                Err(tail) => break tail.flaw(),
            };
            if let Err(flaw) = walk.check_crc(&source, &header).map_err(|e| Error::io(self.path(), e))? {
                break Some(flaw);
            }
            rebuild.batch(&header)?;
            markers.batch(self, &mut walk, &header)?;
            valid_bytes = header.end();
            batches += 1;
            end = header.last_offset.wrapping_add(1);
            last = Some(header);
        };
        if let Some(flaw) = stop {
            findings.push(Finding::new(self.path(), valid_bytes, flaw));
        }
        if let Some(header) = last {
            rebuild.append_time(&header, true)?;
        }
        Ok(Recovered {
            valid_bytes,
            truncated_bytes: self.len() - valid_bytes,
            batches,
            offset_index: rebuild.offset_index,
            time_index: rebuild.time_index,
            // The broker empties an existing file, and creates one only for an entry.
            transaction_index: (!markers.index.is_empty() || storage::exists(&self.beside(".txnindex"))?)
                .then_some(markers.index),
            max_timestamp: rebuild.max_timestamp,
            next_offset: end,
            findings,
        })
    }
}

#[cfg(test)]
mod tests;
