//! The plan of a read cut into pieces for tasks, which read in parallel, maybe on other machines.
//!
//! A queue only proposes where to cut the log, at the messages that its units lead to: every cut is correct. Without a queue
//! files stay whole, because only a walk of a file tells where a message begins.

use std::sync::Arc;

use super::plan::{Plan, Way};
use super::queues::Queues;
use crate::error::Result;
use crate::io::{Location, storage, usize_of};
use crate::rocketmq::commit_log::{CommitLog, PlannedLog};
use crate::rocketmq::consume_queue::ConsumeQueue;
use crate::rocketmq::offset_files::OffsetFile;
use crate::rocketmq::queue_stream::{self, QueuePart};

/// Queues that propose where to cut.
const QUEUES_ASKED: usize = 4;
/// Each cut of a remote log is a few requests, and a log of this many files has as many tasks without them.
const MOST_REMOTE_CUTS: u64 = 1_000;
/// Messages at known offsets that one task reads.
const OFFSETS_A_PIECE: usize = 4_096;
/// Bytes that a message at a known offset counts for.
const SOME_MESSAGE_BYTES: u64 = 4_096;
/// Threads that search a remote queue, since each search waits for requests that depend on each other.
const REMOTE_THREADS: usize = 16;

/// A range of log offsets.
type Range = (u64, u64);

/// The part of a range that one file holds, and into how many pieces it is cut.
struct FilePart {
    begin: u64,
    end: u64,
    pieces: u64,
}

/// Cuts ranges of a log at its files, and parts of files of more than `piece_bytes` where messages of these queues begin.
/// Returns each piece with what its reader needs.
fn cut_log(
    log: &CommitLog,
    ranges: &[Range],
    piece_bytes: u64,
    queues: &[Arc<ConsumeQueue>],
) -> Result<Vec<(Range, Arc<PlannedLog>)>> {
    let log = log.pinned()?;
    let files = log.files()?;
    let piece_bytes = if queues.is_empty() { u64::MAX } else { piece_bytes.max(1) };
    let parts: Vec<FilePart> = ranges.iter().flat_map(|range| parts_of(&files, *range, piece_bytes)).collect();
    let wanted: Vec<i64> = parts.iter().flat_map(FilePart::inner_offsets).map(u64::cast_signed).collect();
    let threads = if log.path().is_remote() { REMOTE_THREADS } else { 1 };
    let proposed = queues.iter().map(|queue| marks_of(queue, &wanted, threads)).collect::<Result<Vec<_>>>()?;
    let mut cuts = (0..wanted.len()).map(|number| {
        let marks = proposed.iter().filter_map(|marks| marks.get(number).copied().flatten());
        marks.filter_map(|mark| u64::try_from(mark).ok()).min()
    });
    let mut found = Vec::new();
    for part in &parts {
        let planned = Arc::new(log.plan(Some(&[part.begin]))?);
        let mut at = part.begin;
        for mark in cuts.by_ref().take(usize_of(part.pieces - 1)).flatten() {
            if at < mark && mark < part.end {
                found.push(((at, mark), Arc::clone(&planned)));
                at = mark;
            }
        }
        found.push(((at, part.end), planned));
    }
    Ok(found)
}

/// Returns the first message of a queue at or after each of these offsets, which ascend.
fn marks_of(queue: &ConsumeQueue, wanted: &[i64], threads: usize) -> Result<Vec<Option<i64>>> {
    let share = wanted.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let mut shares = wanted.chunks(share);
        let first = shares.next().unwrap_or_default();
        let others: Vec<_> = shares.map(|share| scope.spawn(|| queue.messages_from(share))).collect();
        let mut marks = queue.messages_from(first)?;
        for other in others {
            marks.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(marks)
    })
}

fn parts_of(files: &[OffsetFile], (begin, end): Range, piece_bytes: u64) -> impl Iterator<Item = FilePart> {
    let first = files.partition_point(|file| file.end() <= begin);
    let files = files.iter().skip(first).take_while(move |file| file.start < end);
    files.filter_map(move |file| {
        let (begin, end) = (begin.max(file.start), end.min(file.end()));
        (begin < end).then(|| FilePart { begin, end, pieces: (end - begin).div_ceil(piece_bytes) })
    })
}

impl FilePart {
    /// The offsets at which pieces of the same size would begin, without the first.
    fn inner_offsets(&self) -> impl Iterator<Item = u64> {
        let Self { begin, end, pieces } = *self;
        (1..pieces).map(move |number| begin + share(end - begin, number, pieces))
    }
}

/// Returns the part of a whole that `number` of `pieces` have, rounded down. `number` is not above `pieces`.
fn share(whole: u64, number: u64, pieces: u64) -> u64 {
    u64::try_from(u128::from(whole) * u128::from(number) / u128::from(pieces.max(1))).unwrap_or(whole)
}

/// The part of a plan that one task reads.
#[derive(Debug)]
pub enum TaskPiece {
    /// Messages that begin in a range of one file of the log.
    Log(Range, Arc<PlannedLog>),
    /// Messages at these offsets, which ascend.
    Offsets(Vec<i64>, Arc<PlannedLog>),
    /// Messages of a part of a queue.
    Queue(QueuePiece),
}

/// The messages of a part of a queue.
#[derive(Clone, Debug)]
pub struct QueuePiece {
    /// The topic in its messages.
    pub topic: String,
    /// The queue id in its messages.
    pub queue_id: i64,
    /// The directory of the queue.
    pub directory: Location,
    /// The units, and the range of the log to which they lead.
    pub units: Units,
    /// About how many bytes the messages have.
    pub bytes: u64,
    /// The parts of the range that no file of the log holds.
    pub missing: Vec<Range>,
}

impl TaskPiece {
    /// About how many bytes of the log the task reads.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Log((begin, end), _) => end - begin,
            Self::Offsets(offsets, _) => offsets.len() as u64 * SOME_MESSAGE_BYTES,
            Self::Queue(piece) => piece.bytes,
        }
    }
}

impl Plan {
    /// Returns about how many bytes of the log are read.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn bytes(&self) -> Result<u64> {
        let mut bytes = 0_u64;
        for piece in &self.pieces {
            bytes = bytes.saturating_add(match &piece.way {
                Way::Log => piece.range.1.abs_diff(piece.range.0),
                Way::Offsets(offsets) => offsets.len() as u64 * SOME_MESSAGE_BYTES,
                Way::Queues(parts) => parts.iter().map(QueuePart::bytes).sum::<Result<u64>>()?,
            });
        }
        Ok(bytes)
    }

    /// Cuts the plan into pieces of about this many bytes.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn cut(&self, queues: &Queues, piece_bytes: u64) -> Result<Vec<TaskPiece>> {
        let piece_bytes = piece_bytes.max(1);
        let (mut found, mut ranges) = (Vec::new(), Vec::new());
        for piece in &self.pieces {
            let range = (piece.range.0.cast_unsigned(), piece.range.1.cast_unsigned());
            match &piece.way {
                Way::Log => ranges.push(range),
                Way::Offsets(offsets) => {
                    for part in offsets.chunks(OFFSETS_A_PIECE) {
                        let begins: Vec<u64> = part.iter().map(|offset| offset.cast_unsigned()).collect();
                        found.push(TaskPiece::Offsets(part.to_vec(), Arc::new(self.log.plan(Some(&begins))?)));
                    }
                }
                Way::Queues(parts) => {
                    let missing = self.log.missing(range.0, range.1)?;
                    for part in parts.iter().filter(|part| part.begin < part.end) {
                        found.extend(cut_part(&self.log, part, range, piece_bytes, &missing)?);
                    }
                }
            }
        }
        let scanned: u64 = ranges.iter().map(|(begin, end)| end - begin).sum();
        let proposing = if self.log.file_size()? > piece_bytes {
            longest_queues(&self.log, queues, scanned, piece_bytes)?
        } else {
            Vec::new()
        };
        let cut = cut_log(&self.log, &ranges, piece_bytes, &proposing)?;
        found.extend(cut.into_iter().map(|(range, planned)| TaskPiece::Log(range, planned)));
        Ok(found)
    }
}

/// Returns a few queues with the most files; none where asking them takes longer than it helps.
fn longest_queues(log: &CommitLog, queues: &Queues, scanned: u64, piece_bytes: u64) -> Result<Vec<Arc<ConsumeQueue>>> {
    let most = match (log.path().is_remote(), scanned <= MOST_REMOTE_CUTS.saturating_mul(piece_bytes)) {
        (false, _) => QUEUES_ASKED,
        (true, true) => 1,
        (true, false) => return Ok(Vec::new()),
    };
    let mut directories = Vec::new();
    for directory in queues.directories(None)?.into_values().flatten() {
        directories.push((storage::list(&directory)?.len(), directory));
    }
    directories.sort_by(|(files, path), (others, other)| others.cmp(files).then_with(|| path.cmp(other)));
    directories.iter().take(most).map(|(_, directory)| queues.open(directory)).collect()
}

/// Cuts a part of a queue into pieces that follow each other in the log.
fn cut_part(
    log: &CommitLog,
    part: &QueuePart,
    range: Range,
    piece_bytes: u64,
    missing: &[Range],
) -> Result<Vec<TaskPiece>> {
    let (bytes, count) = (part.bytes()?, part.end.abs_diff(part.begin));
    let whole = Units { units: (part.begin, part.end), range };
    let cut = cut_queue(log, &part.queue, (&part.topic, part.queue_id), whole, bytes.div_ceil(piece_bytes))?;
    let piece = |units: Units| {
        TaskPiece::Queue(QueuePiece {
            topic: part.topic.clone(),
            queue_id: part.queue_id,
            directory: part.queue.path().clone(),
            bytes: share(bytes, units.units.1.abs_diff(units.units.0), count),
            missing: missing.to_vec(),
            units,
        })
    };
    Ok(cut.into_iter().map(piece).collect())
}

/// A part of a queue: units of these numbers lead to the queue's messages in this range of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    /// The first unit, and the one after the last.
    pub units: (i64, i64),
    /// The first offset in the log, and the one after the last.
    pub range: Range,
}

/// Cuts a part of a queue into about as many pieces, which follow each other in the log. A damaged part is cut less.
fn cut_queue(
    log: &CommitLog,
    queue: &ConsumeQueue,
    (topic, queue_id): (&str, i64),
    whole: Units,
    pieces: u64,
) -> Result<Vec<Units>> {
    let (mut left, mut found) = (whole, Vec::new());
    for number in 1..pieces {
        let unit = whole.units.0 + share(whole.units.1.abs_diff(whole.units.0), number, pieces).cast_signed();
        let mut found_there = None;
        queue.units(unit, unit + 1, |unit| found_there = Some(unit.unit.phy_offset))?;
        let Some(phy_offset) = found_there else { continue };
        let Ok(offset) = u64::try_from(phy_offset) else { continue };
        let rises = unit > left.units.0 && left.range.0 < offset && offset < whole.range.1;
        // The unit must lead to its message, or no piece would read the messages around the cut.
        if rises && queue_stream::is_message_of(log, phy_offset, topic, queue_id, unit)? {
            found.push(Units { units: (left.units.0, unit), range: (left.range.0, offset) });
            left = Units { units: (unit, left.units.1), range: (offset, left.range.1) };
        }
    }
    found.push(left);
    Ok(found)
}
