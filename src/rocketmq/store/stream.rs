//! The messages of a plan, in the order of the log.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};

use super::plan::{Piece, Plan, Way};
use super::queues::SHORT_BYTES;
use super::ranges::{signed, unsigned};
use crate::batch_size::BatchSize;
use crate::error::Result;
use crate::io::FileSource;
use crate::report::{Finding, Kind};
use crate::rocketmq::commit_log::columns::{self, Column};
use crate::rocketmq::commit_log::{AtDamage, Bodies, CommitLog, Filter, MessageReader, ScanOptions};
use crate::rocketmq::queue_stream::{QueueStream, StreamOptions};

/// The columns and options of a read.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The conditions that the plan was made for.
    pub filter: Filter,
    /// The columns, in their order.
    pub columns: Vec<Column>,
    /// The content of the body column.
    pub bodies: Bodies,
    /// The size of a batch.
    pub batch_size: BatchSize,
    /// True: also messages after damage, without those that a broker truncated. False: up to the frame that a broker would refuse.
    pub salvage: bool,
    /// Threads that read and decode, for long parts.
    pub threads: usize,
}

/// The reader of the current piece.
enum Reader {
    Log(Box<MessageReader<FileSource>>),
    Offsets(Box<MessageReader<FileSource>>),
    Queues(Box<QueueStream>),
}

/// Reads the pieces of a plan one after the other.
pub struct MessageStream {
    plan: Plan,
    pieces: VecDeque<Piece>,
    /// The offset of the log to which pieces were read.
    reached: u64,
    /// The range of the log from the first piece to the end of the last one.
    range: (u64, u64),
    /// The part of the range that the log has, once it is known.
    in_log: Option<(u64, u64)>,
    options: ReadOptions,
    schema: SchemaRef,
    reader: Option<Reader>,
    /// True if messages are read at known offsets. Those at which none begins are `missing`.
    has_offsets: bool,
    missing: Vec<i64>,
    findings: Vec<Finding>,
    has_ended: bool,
}

impl fmt::Debug for MessageStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageStream").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl MessageStream {
    /// Prepares to read the pieces of a plan.
    pub fn new(mut plan: Plan, options: ReadOptions) -> Self {
        let schema = columns::schema(&options.columns);
        let pieces: VecDeque<Piece> = std::mem::take(&mut plan.pieces).into();
        let has_offsets = pieces.iter().any(|piece| matches!(piece.way, Way::Offsets(_)));
        let range = pieces.front().zip(pieces.back());
        let range = range.map_or((0, 0), |(first, last)| (unsigned(first.range.0), unsigned(last.range.1)));
        Self {
            plan,
            pieces,
            reached: range.0,
            range,
            in_log: None,
            options,
            schema,
            reader: None,
            has_offsets,
            missing: Vec::new(),
            findings: Vec::new(),
            has_ended: false,
        }
    }

    /// Returns how many bytes of the log the read has passed, and how many it passes.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn progress(&mut self) -> Result<(u64, u64)> {
        let (begin, end) = if let Some(known) = self.in_log {
            known
        } else {
            let log = &self.plan.log;
            *self.in_log.insert((self.range.0.max(log.min_offset()?), self.range.1.min(log.max_offset()?)))
        };
        let at = match &self.reader {
            Some(Reader::Log(reader) | Reader::Offsets(reader)) => MessageReader::position(reader),
            Some(Reader::Queues(reader)) => QueueStream::position(reader),
            None if self.has_ended => end,
            None => self.reached,
        };
        Ok((at.min(end).saturating_sub(begin), end.saturating_sub(begin)))
    }

    /// The plan, without the pieces.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The missing files and the places without a valid message that were passed over so far.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns the next batch; `None` at the end, and after an error. A batch may be empty.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let batch = self.read_next();
        if !matches!(batch, Ok(Some(_))) {
            (self.reader, self.has_ended) = (None, true);
            self.pieces.clear();
        }
        batch
    }

    fn read_next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let batch = match &mut self.reader {
                Some(Reader::Log(reader) | Reader::Offsets(reader)) => reader.next_batch()?,
                Some(Reader::Queues(reader)) => reader.next_batch()?,
                None => None,
            };
            if batch.is_some() {
                return Ok(batch);
            }
            if let Some(reader) = self.reader.take() {
                self.end(&reader);
            }
            match self.pieces.pop_front() {
                Some(piece) => self.reader = Some(self.open(piece)?),
                None if self.has_ended => return Ok(None),
                None => {
                    self.has_ended = true;
                    self.report_lost()?;
                }
            }
        }
    }

    fn open(&mut self, piece: Piece) -> Result<Reader> {
        let (begin, end) = (unsigned(piece.range.0), unsigned(piece.range.1));
        self.reached = begin;
        let Self { plan, options, .. } = self;
        let filter = options.filter.clone();
        Ok(match piece.way {
            Way::Log => {
                // Starting threads costs more than they save if the part is short.
                let is_short = end.min(plan.log.max_offset()?).saturating_sub(begin) < SHORT_BYTES;
                Reader::Log(Box::new(plan.log.scan(&ScanOptions {
                    begin_phy_offset: begin,
                    end_phy_offset: end,
                    columns: options.columns.clone(),
                    batch_size: options.batch_size,
                    bodies: options.bodies,
                    at_damage: if options.salvage { AtDamage::Skip { queue_end: 0 } } else { AtDamage::Stop },
                    check_crc: true,
                    threads: if is_short { 1 } else { options.threads },
                    filter,
                })?))
            }
            Way::Offsets(offsets) => {
                let offsets = offsets.into_iter().map(Some).collect();
                let log = &plan.log;
                let reader = CommitLog::message_batches(log, offsets, &options.columns, options.bodies, Some(filter));
                Reader::Offsets(Box::new(reader))
            }
            Way::Queues(parts) => {
                let stream = StreamOptions {
                    begin_phy_offset: begin,
                    end_phy_offset: end,
                    columns: options.columns.clone(),
                    bodies: options.bodies,
                    batch_size: options.batch_size,
                    filter,
                    threads: options.threads,
                };
                Reader::Queues(Box::new(QueueStream::new(&plan.log, parts, stream)?))
            }
        })
    }

    /// Takes note of what a reader that ended passed over.
    fn end(&mut self, reader: &Reader) {
        self.report(self.options.filter.take_unsearched().into_iter());
        match reader {
            Reader::Log(reader) => {
                let salvage = self.options.salvage;
                let found = reader.checked().findings.clone();
                self.report(found.into_iter().filter(|found| salvage || found.kind == Kind::FileGap));
            }
            Reader::Offsets(reader) => self.missing.extend(reader.missing()),
            Reader::Queues(reader) => {
                if let Some(fault) = reader.fault() {
                    let at = QueueStream::position(reader);
                    self.plan.notes.push(format!("{fault}; the log is read instead, from offset {at}"));
                    self.pieces = self.plan.of_log((signed(at), i64::MAX)).into();
                }
            }
        }
    }

    /// Reports the missing files, and the damage at offsets of the index.
    fn report_lost(&mut self) -> Result<()> {
        if !self.has_offsets {
            return Ok(());
        }
        let mut lost = self.plan.gaps()?;
        let missing: Vec<u64> = self.missing.iter().filter_map(|offset| u64::try_from(*offset).ok()).collect();
        lost.extend(self.plan.log.damage(&missing)?.into_iter().map(|(_, _, finding)| finding));
        self.report(lost.into_iter());
        Ok(())
    }

    /// Adds findings, each once: one part of the log may end in a missing file, and the next one begin in it.
    fn report(&mut self, found: impl Iterator<Item = Finding>) {
        for finding in found {
            if !self.findings.contains(&finding) {
                self.findings.push(finding);
            }
        }
    }
}

impl Iterator for MessageStream {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().map_err(|e| ArrowError::ExternalError(Box::new(e))).transpose()
    }
}

impl RecordBatchReader for MessageStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
