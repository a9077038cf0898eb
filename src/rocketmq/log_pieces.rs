//! A log and its queues cut into pieces, for readers that work in parallel.
//!
//! A queue only proposes where to cut the log, at the messages that its units lead to: every cut is correct. Without a queue
//! files stay whole, because only a walk of a file tells where a message begins.

use std::sync::Arc;

use crate::error::Result;
use crate::rocketmq::commit_log::{CommitLog, PlannedLog};
use crate::rocketmq::consume_queue::ConsumeQueue;
use crate::rocketmq::offset_files::OffsetFile;
use crate::rocketmq::queue_stream;

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
///
/// Returns each piece with what its reader needs.
///
/// # Errors
/// An I/O error, with the path.
pub fn cut_log(
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
        for mark in cuts.by_ref().take(usize::try_from(part.pieces - 1).unwrap_or(0)).flatten() {
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
        let (begin, size, pieces) = (self.begin, u128::from(self.end - self.begin), u128::from(self.pieces));
        (1..pieces).map(move |number| begin + u64::try_from(size * number / pieces).unwrap_or(u64::MAX))
    }
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
///
/// # Errors
/// An I/O error, with the path.
pub fn cut_queue(
    log: &CommitLog,
    queue: &ConsumeQueue,
    (topic, queue_id): (&str, i64),
    whole: Units,
    pieces: i64,
) -> Result<Vec<Units>> {
    let (mut left, mut found) = (whole, Vec::new());
    for number in 1..pieces {
        let of_units = i128::from(whole.units.1 - whole.units.0) * i128::from(number) / i128::from(pieces);
        let unit = whole.units.0 + i64::try_from(of_units).unwrap_or(i64::MAX);
        let mut found_there = None;
        queue.units(unit, unit + 1, |unit| found_there = Some(unit.unit.phy_offset))?;
        let Some(phy_offset) = found_there else { continue };
        let offset = u64::try_from(phy_offset).unwrap_or(0);
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
