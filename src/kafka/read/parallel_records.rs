//! The records of segments with several threads, in the order of a single walk.
//!
//! Segments are cut where a batch begins: by their offset indexes, or else by a walk over the headers. Each thread reads pieces. A
//! piece counts if it has no damage, ends where the next one begins, and its offsets follow those of the piece before it; then its
//! records are those of a single walk. From the segment of the first other piece on, a single walk reads: its rows that were
//! returned already are dropped, and what it finds is what it finds without threads.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::header_scan::CutPoints;
use super::record_filter::RecordFilter;
use super::record_reader::{Passed, RecordRows, RecordScan};
use super::segment_range::SegmentRange;
use super::segment_reader::{SegmentReader, SegmentRows, Step, UnreadOffsets};
use crate::error::{Error, Result};
use crate::io::fork::Generation;
use crate::io::pipe::{Pipe, PipeSender};
use crate::report::Finding;

/// Bytes of a segment per task. Tests cut the few bytes of their segments.
const PIECE: u64 = if cfg!(test) { 150 } else { 8 << 20 };
/// Offsets of ranges for which threads do not pay.
const FEW: i64 = if cfg!(test) { 2 } else { 1 << 14 };

/// Returns whether threads may help: they do not for few records, nor for offsets that were chosen one by one. A remote segment is read
/// ahead by its store.
fn pays(ranges: &[SegmentRange], scan: &RecordScan) -> bool {
    let offsets =
        |range: &SegmentRange| range.end_offset.saturating_sub(range.begin_offset.max(range.segment.base_offset()));
    if ranges.iter().map(offsets).fold(0, i64::saturating_add) <= FEW {
        return false;
    }
    let bytes =
        ranges.iter().map(|range| range.segment.len() - range.begin_position.unwrap_or(0).min(range.segment.len()));
    let is_local = ranges.iter().all(|range| !range.segment.path().is_remote());
    scan.threads > 1 && scan.offsets.is_none() && is_local && bytes.sum::<u64>() > 2 * PIECE
}

impl SegmentReader {
    /// Reads the records of these ranges, in their order.
    ///
    /// # Errors
    /// `InvalidArgument` if `batch_size` is 0.
    pub fn records(ranges: Vec<SegmentRange>, scan: RecordScan) -> Result<Self> {
        Self::records_of_log(ranges, Vec::new(), scan)
    }

    /// Reads the records of these ranges. What is missing from the log is damage, each before the range of its number.
    ///
    /// # Errors
    /// `InvalidArgument` if `batch_size` is 0.
    pub fn records_of_log(
        ranges: Vec<SegmentRange>,
        missing: Vec<(usize, Finding)>,
        mut scan: RecordScan,
    ) -> Result<Self> {
        let batch_size = scan.batch_size.rows;
        let filter = RecordFilter::new(scan.keys.take(), scan.offsets.take(), scan.times, scan.matcher.take());
        let ranges = filter.narrow(ranges);
        let total_bytes = ranges.iter().map(SegmentRange::bytes).sum();
        let rows: Box<dyn SegmentRows> = if pays(&ranges, &scan) {
            Box::new(ParallelRecords::new(ranges, missing, scan, filter))
        } else {
            Box::new(RecordRows::new(ranges, missing, scan, filter))
        };
        Self::new(rows, batch_size, total_bytes)
    }
}

/// A part of a range that one thread reads.
#[derive(Clone, Debug)]
struct Piece {
    /// Number of its range.
    number: usize,
    range: SegmentRange,
    /// Another piece of the range follows.
    is_cut: bool,
}

/// A range that is cut into pieces.
#[derive(Debug)]
struct Cutting {
    number: usize,
    range: SegmentRange,
    /// Where the next piece begins, so that it need not be looked up again.
    begin: u64,
    points: CutPoints,
}

impl Cutting {
    /// Returns the next piece, which goes to the end of the range if there is no place to cut it.
    fn next(&mut self) -> Result<Piece> {
        let (number, end) = (self.number, self.range.end_position.unwrap_or(u64::MAX));
        let next = |e| Error::io(self.range.segment.path(), e);
        while let Some((offset, position)) = self.points.next().map_err(next)? {
            if offset >= self.range.end_offset || position >= end {
                break;
            }
            if self.begin < position {
                let begin = std::mem::replace(&mut self.begin, position);
                let range =
                    SegmentRange { begin_position: Some(begin), end_position: Some(position), ..self.range.clone() };
                return Ok(Piece { number, range, is_cut: true });
            }
        }
        let range = SegmentRange { begin_position: Some(self.begin), ..self.range.clone() };
        Ok(Piece { number, range, is_cut: false })
    }
}

#[derive(Debug)]
enum PieceResult {
    /// The lowest offset of the first batch, before any record.
    First(i64),
    Batch(RecordBatch),
    /// The piece was read to its end, without damage.
    End {
        passed: Passed,
        findings: Vec<Finding>,
        bytes_read: u64,
    },
    /// A single walk has to read it.
    Refused,
}

#[derive(Debug)]
struct Task {
    piece: Piece,
    sender: PipeSender<PieceResult>,
}

/// The settings of all threads.
#[derive(Debug)]
struct Rules {
    ranges: Vec<SegmentRange>,
    scan: RecordScan,
    filter: RecordFilter,
}

impl Rules {
    /// Reads pieces until there are no more tasks. One reader has the memory of all pieces of the thread.
    fn run(&self, tasks: &Mutex<Receiver<Task>>) {
        let mut rows = RecordRows::new(Vec::new(), Vec::new(), self.scan.clone(), self.filter.clone());
        loop {
            let task = tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(Task { piece, sender }) = task else { break };
            let result = self.read(&mut rows, &piece, &sender).unwrap_or(PieceResult::Refused);
            sender.send(result, 0);
        }
    }

    fn read(&self, rows: &mut RecordRows, piece: &Piece, sender: &PipeSender<PieceResult>) -> Result<PieceResult> {
        let mut ranges = vec![piece.range.clone()];
        // The last piece of a segment is compared with the next segment.
        ranges.extend(self.ranges.get(piece.number + 1).filter(|_| !piece.is_cut).cloned());
        rows.restart_with_first(ranges);
        let mut is_first = true;
        loop {
            let step = rows.step()?;
            if let Some(first) = rows.passed().first.filter(|_| is_first) {
                is_first = false;
                if !sender.send(PieceResult::First(first), 0) {
                    return Ok(PieceResult::Refused);
                }
            }
            if rows.rows() > 0 && (step != Step::Continue || rows.rows() >= self.scan.batch_size.rows) {
                let batch = rows.take();
                let bytes = batch.get_array_memory_size();
                if !sender.send(PieceResult::Batch(batch), bytes) {
                    return Ok(PieceResult::Refused);
                }
            }
            if step == Step::End {
                break;
            }
        }
        let passed = rows.passed();
        let ends = !piece.is_cut || (piece.range.end_position == Some(rows.position()) && !passed.is_beyond);
        if !rows.damage().is_empty() || !rows.unread().is_empty() || !(ends || passed.is_complete) {
            return Ok(PieceResult::Refused);
        }
        Ok(PieceResult::End { passed, findings: rows.findings().to_vec(), bytes_read: rows.bytes_read() })
    }
}

/// The pieces of ranges of segments.
#[derive(Debug)]
struct ParallelRecords {
    rules: Arc<Rules>,
    missing: Vec<(usize, Finding)>,
    schema: SchemaRef,
    /// The range that is being cut, and the number of the next one.
    cutting: Option<Cutting>,
    planned: usize,
    tasks: Option<Sender<Task>>,
    ahead: VecDeque<(Piece, Pipe<PieceResult>)>,
    current: Option<(Piece, Pipe<PieceResult>)>,
    /// The range of the current piece, the rows of it that were returned, and the last offset before the piece.
    number: usize,
    returned: usize,
    last: Option<i64>,
    ready: Option<RecordBatch>,
    /// The single walk that goes on, and its rows that were returned before.
    rest: Option<Box<RecordRows>>,
    skip: usize,
    findings: Vec<Finding>,
    /// The findings before the single walk.
    before: usize,
    bytes_read: u64,
    /// The process that has the threads.
    process: Generation,
}

impl ParallelRecords {
    fn new(ranges: Vec<SegmentRange>, missing: Vec<(usize, Finding)>, scan: RecordScan, filter: RecordFilter) -> Self {
        let schema = RecordRows::new(Vec::new(), Vec::new(), scan.clone(), filter.clone()).schema();
        let rules = Arc::new(Rules { ranges, scan, filter });
        let (tasks, taken) = channel::<Task>();
        let taken = Arc::new(Mutex::new(taken));
        for number in 0..rules.scan.threads {
            let (rules, taken) = (Arc::clone(&rules), Arc::clone(&taken));
            let run = move || rules.run(&taken);
            // If a thread cannot be started, the others read its pieces; without any, a single walk does.
            drop(thread::Builder::new().name(format!("logdex-records-{number}")).spawn(run));
        }
        Self {
            rules,
            missing,
            schema,
            cutting: None,
            planned: 0,
            tasks: Some(tasks),
            ahead: VecDeque::new(),
            current: None,
            number: 0,
            returned: 0,
            last: None,
            ready: None,
            rest: None,
            skip: 0,
            findings: Vec::new(),
            before: 0,
            bytes_read: 0,
            process: Generation::current(),
        }
    }

    /// Returns the next piece of the ranges.
    fn next_piece(&mut self) -> Result<Option<Piece>> {
        let Some(cutting) = &mut self.cutting else {
            let Some(range) = self.rules.ranges.get(self.planned) else { return Ok(None) };
            let begin = range.begin(self.rules.scan.times)?;
            let points = range.segment.walked_cut_points(PIECE, begin)?;
            self.cutting = Some(Cutting { number: self.planned, range: range.clone(), begin, points });
            self.planned += 1;
            return self.next_piece();
        };
        let piece = cutting.next()?;
        if !piece.is_cut {
            self.cutting = None;
        }
        Ok(Some(piece))
    }

    /// Passes pieces to the threads, one more than there are threads.
    fn hand_out(&mut self) -> Result<()> {
        while self.ahead.len() <= self.rules.scan.threads {
            let Some(piece) = self.next_piece()? else { break };
            let (sender, results) = Pipe::new();
            if let Some(tasks) = &self.tasks {
                // The threads run as long as there are tasks.
                let _ = tasks.send(Task { piece: piece.clone(), sender });
            }
            self.ahead.push_back((piece, results));
        }
        Ok(())
    }

    /// Goes to the next piece.
    fn enter_next_piece(&mut self) -> Result<Step> {
        self.hand_out()?;
        let next = self.ahead.pop_front();
        let number = next.as_ref().map_or(self.rules.ranges.len(), |(piece, _)| piece.number);
        if self.missing.iter().any(|(before, _)| *before <= number) {
            (self.number, self.returned) = if number == self.number { (number, self.returned) } else { (number, 0) };
            self.go_on_alone();
            return Ok(Step::Continue);
        }
        let Some(next) = next else { return Ok(Step::End) };
        if number != self.number {
            (self.number, self.returned, self.last) = (number, 0, None);
        }
        self.current = Some(next);
        Ok(Step::Continue)
    }

    /// Reads from the start of the current range on with a single walk.
    fn go_on_alone(&mut self) {
        (self.tasks, self.current, self.cutting) = (None, None, None);
        self.ahead.clear();
        let rules = &self.rules;
        let ranges = rules.ranges.get(self.number..).unwrap_or_default().to_vec();
        let missing = self.missing.drain(..).map(|(before, what)| (before.saturating_sub(self.number), what)).collect();
        self.skip = self.returned;
        self.before = self.findings.len();
        self.rest = Some(Box::new(RecordRows::new(ranges, missing, rules.scan.clone(), rules.filter.clone())));
    }

    /// Ends the current piece. Its records count only if they follow those before them.
    fn end_piece(&mut self, passed: Passed, findings: Vec<Finding>, bytes_read: u64) {
        self.bytes_read += bytes_read;
        self.findings.extend(findings);
        self.last = passed.last.or(self.last);
        self.current = None;
        if passed.is_complete {
            // Nothing of the range comes after its end offset.
            let number = self.number;
            self.ahead.retain(|(piece, _)| piece.number != number);
            self.cutting.take_if(|cutting| cutting.number == number);
        }
    }
}

impl SegmentRows for ParallelRecords {
    fn step(&mut self) -> Result<Step> {
        if let Some(rest) = &mut self.rest {
            let step = rest.step();
            let found = rest.findings().get(self.findings.len() - self.before..).unwrap_or_default().to_vec();
            self.findings.extend(found);
            return step;
        }
        if !self.process.is_current() {
            let text = "a read with threads cannot go on in a process that was forked since: start the read there";
            return Err(Error::InvalidArgument(text.to_owned()));
        }
        let Some((piece, results)) = &self.current else { return self.enter_next_piece() };
        let result = results.recv().map_err(|e| Error::io(piece.range.segment.path(), e))?;
        match result {
            Some(PieceResult::First(first)) if self.last.is_some_and(|last| first <= last) => self.go_on_alone(),
            Some(PieceResult::First(_)) => {}
            Some(PieceResult::Batch(batch)) => {
                self.returned += batch.num_rows();
                self.ready = Some(batch);
                return Ok(Step::Full);
            }
            Some(PieceResult::End { passed, findings, bytes_read }) => {
                self.end_piece(passed, findings, bytes_read);
                if self.rules.filter.is_selective() {
                    // The caller may stop, or show how far the search is: with a batch that may be empty.
                    return Ok(Step::Full);
                }
            }
            Some(PieceResult::Refused) | None => self.go_on_alone(),
        }
        Ok(Step::Continue)
    }

    fn rows(&self) -> usize {
        let ready = self.ready.as_ref().map_or(0, RecordBatch::num_rows);
        ready + self.rest.as_ref().map_or(0, |rest| rest.rows())
    }

    fn take(&mut self) -> RecordBatch {
        if let Some(ready) = self.ready.take() {
            return ready;
        }
        let Some(rest) = &mut self.rest else { return RecordBatch::new_empty(self.schema()) };
        let batch = rest.take();
        let skip = self.skip.min(batch.num_rows());
        self.skip -= skip;
        batch.slice(skip, batch.num_rows() - skip)
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn findings(&self) -> &[Finding] {
        &self.findings
    }

    fn damage(&self) -> &[Finding] {
        self.rest.as_ref().map_or(&[], |rest| rest.damage())
    }

    fn unread(&self) -> &[UnreadOffsets] {
        self.rest.as_ref().map_or(&[], |rest| rest.unread())
    }

    fn position(&self) -> u64 {
        self.rest.as_ref().map_or(0, |rest| rest.position())
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read + self.rest.as_ref().map_or(0, |rest| rest.bytes_read())
    }
}
