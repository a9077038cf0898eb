//! Scan with several threads, in the order of the log.
//!
//! Frames are only found by walking. A thread that starts in the middle of a file guesses: it starts at the first
//! message that states its own offset. The caller's thread has the end of the previous piece. If the guess differs,
//! it reads the piece again from there. So the messages are those of a single walk, whatever the bytes are.
//!
//! A scan that continues after damage has threads up to the first damage. From there on it is a single walk.

use std::collections::VecDeque;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use arrow_array::RecordBatch;

use crate::error::{Error, Result};
use crate::io::FileSource;
use crate::io::fork::Generation;
use crate::io::pipe::{Pipe, PipeSender};
use crate::io::signals;
use crate::report::Report;
use crate::rocketmq::commit_log::decode::batch::BatchBuilder;
use crate::rocketmq::commit_log::decode::columns;
use crate::rocketmq::commit_log::frame::Stop;
use crate::rocketmq::commit_log::log::Options;
use crate::rocketmq::commit_log::scan::block_reader::BlockReader;
use crate::rocketmq::commit_log::scan::filter::{AtDamage, Filter, ScanOptions};
use crate::rocketmq::commit_log::scan::salvage::next_frame;
use crate::rocketmq::commit_log::scan::walk::Scan;
use crate::rocketmq::commit_log::scan::window::{LOOKUP_WINDOW, SCAN_WINDOW, Window};
use crate::rocketmq::offset_files::{self, Gap, GapsAhead, OffsetFile};

/// Bytes of a file per task.
const PIECE: u64 = 16 * 1024 * 1024;

/// A part of a file, with the messages that begin in it.
#[derive(Clone, Debug)]
struct Piece {
    file: OffsetFile,
    /// Log offsets.
    begin: u64,
    end: u64,
}

/// A thread's result for a piece: its start, its batches, and its end.
enum PieceResult {
    Begin(u64),
    Batch(RecordBatch),
    End(Stop, Report),
    Failed(Error),
}

struct Task {
    piece: Piece,
    sender: PipeSender<PieceResult>,
}

/// Offset of the next message.
#[derive(Clone, Copy, Debug)]
enum Next {
    At(u64),
    NextFile,
}

/// The settings of all threads.
struct Rules {
    options: Options,
    scan: ScanOptions,
}

impl Rules {
    fn builder(&self) -> BatchBuilder {
        let builder = BatchBuilder::new(&self.scan.columns, self.scan.bodies, self.options.max_body_bytes);
        builder.searching(self.scan.filter.search.as_ref())
    }

    /// Returns a walk of the messages of a piece from `begin` on, which must be the start of a frame.
    fn read(&self, piece: &Piece, begin: u64, builder: BatchBuilder) -> Result<BlockReader<FileSource>> {
        let access = self.options.access;
        let open = move |file: &OffsetFile| offset_files::open(file, access);
        let walk = Scan::new(vec![piece.file.clone()], open, self.options.versions, begin, piece.end);
        let mut walk = walk.checking(self.scan.check_crc).filtering(self.scan.filter.clone());
        if self.scan.at_damage != AtDamage::Stop {
            walk = walk.ending_at_odd_blank();
        }
        BlockReader::new(walk.starting_at_begin()?, builder, self.scan.batch_size)
    }

    /// Returns the probable start of the first frame in a piece.
    fn guess(&self, piece: &Piece) -> Result<u64> {
        let Some(before) = piece.begin.checked_sub(piece.file.start + 1) else {
            return Ok(piece.begin);
        };
        let source = offset_files::open(&piece.file, self.options.access)?;
        let (mut search, mut probe) = (Window::new(SCAN_WINDOW / 4), Window::new(LOOKUP_WINDOW));
        let end = piece.end.saturating_sub(piece.file.start);
        let found = next_frame(&source, &piece.file, before, end, self.options.versions, &mut search, &mut probe);
        let found = found.map_err(|e| Error::io(&piece.file.path, e))?;
        Ok(found.map_or(piece.end, |at| piece.file.start + at))
    }

    /// Reads a piece with the thread's builder. The builder's memory is kept from piece to piece.
    fn run(&self, piece: &Piece, sender: &PipeSender<PieceResult>, kept: &mut Option<BatchBuilder>) {
        let results = self.guess(piece).and_then(|begin| {
            if !sender.send(PieceResult::Begin(begin), 0) || begin >= piece.end {
                return Ok(PieceResult::End(Stop { phy_offset: begin, refusal: None }, Report::default()));
            }
            let builder = kept.take().unwrap_or_else(|| self.builder());
            let mut reader = self.read(piece, begin, builder)?;
            while let Some(batch) = reader.next_batch()? {
                let bytes = batch.get_array_memory_size();
                if !sender.send(PieceResult::Batch(batch), bytes) {
                    break;
                }
            }
            let stop = reader.scan.stop().cloned().unwrap_or(Stop { phy_offset: begin, refusal: None });
            let checked = reader.scan.checked().clone();
            *kept = Some(reader.builder);
            Ok(PieceResult::End(stop, checked))
        });
        sender.send(results.unwrap_or_else(PieceResult::Failed), 0);
    }
}

/// A piece that is being read.
enum Running {
    /// Read by a thread.
    PieceResult(Pipe<PieceResult>),
    /// Read in the caller's thread, because the guess was wrong.
    Here(Box<BlockReader<FileSource>>),
    /// All that follows damage.
    Rest(Box<BlockReader<FileSource>>),
}

/// The pieces of a scan.
pub(crate) struct Parallel {
    rules: Arc<Rules>,
    pieces: std::vec::IntoIter<Piece>,
    tasks: Option<Sender<Task>>,
    ahead: VecDeque<(Piece, Pipe<PieceResult>)>,
    current: Option<(Piece, Running)>,
    /// True if the current piece has returned a batch.
    has_returned: bool,
    /// The walk that continues after damage.
    rest: Option<Scan<FileSource>>,
    next: Next,
    /// End of the last file that the scan reached.
    last_end: u64,
    stop: Option<Stop>,
    checked: Report,
    /// The process that has the threads.
    process: Generation,
    /// Missing files inside the range, ascending.
    gaps: GapsAhead,
    /// The time of the last check for signals.
    looked: Instant,
}

impl Parallel {
    /// Creates a scan of `files` from `begin`, which is the start of a frame, or from the first file.
    ///
    /// `rest` is a walk over the same range that continues after damage.
    pub(crate) fn new(
        files: &[OffsetFile],
        gaps: Vec<Gap>,
        begin: u64,
        options: Options,
        scan: &ScanOptions,
        rest: Option<Scan<FileSource>>,
    ) -> Self {
        let mut pieces = Vec::new();
        for file in files.iter().filter(|file| file.end() > begin) {
            let mut at = file.start.max(begin);
            while at < file.end().min(scan.end_phy_offset) {
                let end = (file.start + ((at - file.start) / PIECE + 1) * PIECE).min(file.end());
                pieces.push(Piece { file: file.clone(), begin: at, end: end.min(scan.end_phy_offset) });
                at = end;
            }
        }
        let rules = Arc::new(Rules { options, scan: scan.clone() });
        let (tasks, taken) = channel::<Task>();
        let taken = Arc::new(Mutex::new(taken));
        for number in 0..scan.threads {
            let (rules, taken) = (Arc::clone(&rules), Arc::clone(&taken));
            let run = move || {
                let mut kept = None;
                loop {
                    let task = taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(Task { piece, sender }) = task else {
                        break;
                    };
                    rules.run(&piece, &sender, &mut kept);
                }
            };
            // If a thread cannot be started, the others read its pieces; without any, the caller does.
            drop(thread::Builder::new().name(format!("logdex-scan-{number}")).spawn(run));
        }
        drop(taken);
        let next = pieces.first().map_or(Next::NextFile, |piece| Next::At(piece.begin));
        let mut parallel = Self {
            rules,
            pieces: pieces.into_iter(),
            tasks: Some(tasks),
            ahead: VecDeque::new(),
            current: None,
            has_returned: false,
            rest,
            next,
            last_end: begin,
            stop: None,
            checked: Report::default(),
            process: Generation::current(),
            gaps: GapsAhead::within(gaps, begin, scan.end_phy_offset),
            looked: Instant::now(),
        };
        for _ in 0..=parallel.rules.scan.threads {
            parallel.hand_out();
        }
        parallel
    }

    pub(crate) fn stop(&self) -> Option<&Stop> {
        self.stop.as_ref()
    }

    /// Returns the offset of the log before which all was returned.
    pub(crate) fn position(&self) -> u64 {
        match (&self.current, self.next) {
            (Some((_, Running::Here(reader) | Running::Rest(reader))), _) => reader.scan.position(),
            // The message before the piece may reach into it.
            (Some((piece, Running::PieceResult(_))), Next::At(at)) => piece.begin.max(at),
            (Some((piece, Running::PieceResult(_))), Next::NextFile) => piece.begin,
            (None, Next::At(at)) => at,
            (None, Next::NextFile) => self.last_end,
        }
    }

    pub(crate) fn filter(&self) -> &Filter {
        &self.rules.scan.filter
    }

    pub(crate) fn checked(&self) -> &Report {
        match &self.current {
            Some((_, Running::Rest(reader))) => reader.scan.checked(),
            _ => &self.checked,
        }
    }

    /// Passes one more piece to the threads.
    fn hand_out(&mut self) {
        let Some(piece) = self.pieces.next() else {
            return;
        };
        let (sender, results) = Pipe::new();
        if let Some(tasks) = &self.tasks {
            // The threads run as long as there are tasks.
            let _ = tasks.send(Task { piece: piece.clone(), sender });
        }
        self.ahead.push_back((piece, results));
    }

    /// Returns the next batch; `None` at the end. After a piece without a match it is empty, so that the caller can stop, or show how
    /// far the scan is.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if !self.process.is_current() {
            let text = "a scan with threads cannot be read in a process that was forked since: start the scan there";
            return Err(Error::InvalidArgument(text.to_owned()));
        }
        while self.stop.is_none() {
            let Some((piece, running)) = &mut self.current else {
                self.enter_next_piece()?;
                continue;
            };
            let (stop, checked) = match running {
                Running::Here(reader) => match reader.next_batch()? {
                    Some(batch) => return Ok(Some(batch)),
                    None => (reader.scan.stop().cloned(), reader.scan.checked().clone()),
                },
                Running::Rest(reader) => {
                    if let Some(batch) = reader.next_batch()? {
                        return Ok(Some(batch));
                    }
                    self.checked = reader.scan.checked().clone();
                    self.stop = reader.scan.stop().cloned();
                    break;
                }
                Running::PieceResult(results) => match results.recv().map_err(|e| Error::io(&piece.file.path, e))? {
                    Some(PieceResult::Batch(batch)) => {
                        self.has_returned = true;
                        return Ok(Some(batch));
                    }
                    Some(PieceResult::End(stop, checked)) => (Some(stop), checked),
                    Some(PieceResult::Failed(error)) => return Err(error),
                    Some(PieceResult::Begin(_)) | None => return Err(lost(&piece.file)),
                },
            };
            let end = piece.file.end();
            // A piece ends early at damage only: a refused frame, or padding that does not end with its file.
            let damage = stop.as_ref().filter(|stop| stop.refusal.is_some() || stop.phy_offset < piece.end);
            if let Some(damage) = damage
                && let Some(rest) = self.rest.take()
            {
                self.salvage(damage.phy_offset, rest)?;
                continue;
            }
            self.checked.findings.extend(checked.findings);
            self.current = None;
            match stop {
                Some(stop) if stop.refusal.is_some() => self.finish(stop),
                Some(stop) if stop.phy_offset < end => self.next = Next::At(stop.phy_offset),
                _ => self.next = Next::NextFile,
            }
            if !std::mem::replace(&mut self.has_returned, false) {
                return Ok(Some(RecordBatch::new_empty(columns::schema(&self.rules.scan.columns))));
            }
        }
        Ok(None)
    }

    /// Reads all that follows damage in the caller's thread.
    fn salvage(&mut self, damage: u64, rest: Scan<FileSource>) -> Result<()> {
        self.tasks = None;
        self.ahead.clear();
        let reader = BlockReader::new(rest.starting_at(damage)?, self.rules.builder(), self.rules.scan.batch_size)?;
        let piece = self.current.take().map(|(piece, _)| piece);
        self.current = piece.map(|piece| (piece, Running::Rest(Box::new(reader))));
        Ok(())
    }

    fn finish(&mut self, stop: Stop) {
        self.stop = Some(stop);
        self.tasks = None;
        self.ahead.clear();
    }

    /// Runs the handlers of pending signals from time to time: a selective filter may pass no batch to the caller for long.
    fn look(&mut self) -> std::io::Result<()> {
        if self.looked.elapsed() >= signals::LOOK {
            signals::look()?;
            self.looked = Instant::now();
        }
        Ok(())
    }

    /// Goes to the next piece that has messages.
    fn enter_next_piece(&mut self) -> Result<()> {
        let Some((piece, results)) = self.ahead.pop_front() else {
            let phy_offset = match self.next {
                Next::At(at) => at,
                Next::NextFile => self.last_end,
            };
            self.gaps.report(u64::MAX, &mut self.checked);
            self.finish(Stop { phy_offset, refusal: None });
            return Ok(());
        };
        self.look().map_err(|e| Error::io(&piece.file.path, e))?;
        self.hand_out();
        self.gaps.report(piece.begin, &mut self.checked);
        self.last_end = piece.file.end();
        let begin = match self.next {
            Next::At(at) => at,
            Next::NextFile if piece.begin == piece.file.start => piece.begin,
            // Padding.
            Next::NextFile => return Ok(()),
        };
        // An earlier message covers the whole piece.
        if begin >= piece.end {
            return Ok(());
        }
        let running = match results.recv().map_err(|e| Error::io(&piece.file.path, e))? {
            Some(PieceResult::Begin(guess)) if guess == begin => Running::PieceResult(results),
            Some(PieceResult::Failed(error)) => return Err(error),
            // There is no thread, or it guessed wrong.
            _ => Running::Here(Box::new(self.rules.read(&piece, begin, self.rules.builder())?)),
        };
        self.current = Some((piece, running));
        Ok(())
    }
}

fn lost(file: &OffsetFile) -> Error {
    Error::io(&file.path, std::io::Error::other("the thread that read it ended early"))
}
