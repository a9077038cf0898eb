//! Scan with several threads, in the order of the log.
//!
//! Frames are only found by walking. A thread that starts in the middle of a file guesses: it starts at the first
//! message that states its own offset. The caller's thread knows where the previous piece ended. If the guess differs,
//! it reads the piece again from there. So the messages are those of a single walk, whatever the bytes are.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use arrow_array::RecordBatch;

use crate::error::{Error, Result};
use crate::io::FileSource;
use crate::report::Report;
use crate::rocketmq::commit_log::decode::batch::BatchBuilder;
use crate::rocketmq::commit_log::frame::Stop;
use crate::rocketmq::commit_log::log::Options;
use crate::rocketmq::commit_log::scan::block_reader::BlockReader;
use crate::rocketmq::commit_log::scan::options::ScanOptions;
use crate::rocketmq::commit_log::scan::salvage::next_frame;
use crate::rocketmq::commit_log::scan::walk::Scan;
use crate::rocketmq::commit_log::scan::window::{LOOKUP_WINDOW, SCAN_WINDOW, Window};
use crate::rocketmq::offset_files::{self, Gap, OffsetFile};

/// Bytes of a file per task.
const PIECE: u64 = 16 * 1024 * 1024;
/// Rows that a piece may be ahead of the caller.
const ROWS_AHEAD: usize = 32_768;

/// A part of a file, with the messages that begin in it.
#[derive(Clone, Debug)]
struct Piece {
    file: OffsetFile,
    /// Log offsets.
    begin: u64,
    end: u64,
}

/// A thread's result for a piece: its start, its batches, and its end.
enum Told {
    Begin(u64),
    Batch(RecordBatch),
    End(Stop, Report),
    Failed(Error),
}

struct Task {
    piece: Piece,
    tell: SyncSender<Told>,
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
        BatchBuilder::new(&self.scan.columns, self.scan.bodies, self.options.max_body_bytes)
    }

    /// Returns a walk of the messages of a piece from `begin` on, which must be the start of a frame.
    fn read(&self, piece: &Piece, begin: u64, builder: BatchBuilder) -> Result<BlockReader<FileSource>> {
        let access = self.options.access;
        let open = move |file: &OffsetFile| offset_files::open(file, access);
        let walk = Scan::new(vec![piece.file.clone()], open, self.options.versions, begin, piece.end);
        let walk = walk.checking(self.scan.check_crc).filtering(self.scan.filter.clone()).starting_at_begin()?;
        BlockReader::new(walk, builder, self.scan.batch_size)
    }

    /// Returns the probable start of the first frame in a piece.
    fn guess(&self, piece: &Piece) -> Result<u64> {
        let Some(before) = piece.begin.checked_sub(piece.file.start + 1) else {
            return Ok(piece.begin);
        };
        let source = offset_files::open(&piece.file, self.options.access)?;
        let (mut search, mut probe) = (Window::new(SCAN_WINDOW / 4), Window::new(LOOKUP_WINDOW));
        let found = next_frame(&source, &piece.file, before, self.options.versions, &mut search, &mut probe);
        let found = found.map_err(|e| Error::io(&piece.file.path, e))?;
        Ok(found.map_or(piece.end, |at| piece.file.start + at))
    }

    /// Reads a piece with the thread's builder. The builder's memory is kept from piece to piece.
    fn run(&self, piece: &Piece, tell: &SyncSender<Told>, kept: &mut Option<BatchBuilder>) {
        let told = self.guess(piece).and_then(|begin| {
            if tell.send(Told::Begin(begin)).is_err() || begin >= piece.end {
                return Ok(Told::End(Stop { phy_offset: begin, refusal: None }, Report::default()));
            }
            let builder = kept.take().unwrap_or_else(|| self.builder());
            let mut reader = self.read(piece, begin, builder)?;
            while let Some(batch) = reader.next_batch()? {
                // The receiver is gone.
                if tell.send(Told::Batch(batch)).is_err() {
                    break;
                }
            }
            let stop = reader.scan.stop().cloned().unwrap_or(Stop { phy_offset: begin, refusal: None });
            let checked = reader.scan.checked().clone();
            *kept = Some(reader.builder);
            Ok(Told::End(stop, checked))
        });
        // The receiver is gone.
        let _ = tell.send(told.unwrap_or_else(Told::Failed));
    }
}

/// A piece that is being read.
enum Running {
    /// Read by a thread.
    Told(Receiver<Told>),
    /// Read again in the caller's thread, because the guess was wrong.
    Here(Box<BlockReader<FileSource>>),
}

/// The pieces of a scan.
pub(crate) struct Parallel {
    rules: Arc<Rules>,
    pieces: std::vec::IntoIter<Piece>,
    tasks: Option<Sender<Task>>,
    ahead: VecDeque<(Piece, Receiver<Told>)>,
    current: Option<(Piece, Running)>,
    next: Next,
    /// End of the last file that the scan reached.
    last_end: u64,
    stop: Option<Stop>,
    checked: Report,
    /// Missing files inside the range, ascending.
    gaps: VecDeque<Gap>,
}

impl Parallel {
    /// Creates a scan of `files` from `begin`, which is the start of a frame, or from the first file.
    pub(crate) fn new(
        files: &[OffsetFile],
        gaps: Vec<Gap>,
        begin: u64,
        options: Options,
        scan: &ScanOptions,
    ) -> Result<Self> {
        let gaps = gaps.into_iter().filter(|gap| gap.begin < scan.end_phy_offset && begin < gap.end).collect();
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
                    let Ok(Task { piece, tell }) = task else {
                        break;
                    };
                    rules.run(&piece, &tell, &mut kept);
                }
            };
            let thread = thread::Builder::new().name(format!("logdex-scan-{number}"));
            thread
                .spawn(run)
                .map_err(|e| Error::io(&files.first().map_or_else(Default::default, |f| f.path.clone()), e))?;
        }
        let next = pieces.first().map_or(Next::NextFile, |piece| Next::At(piece.begin));
        let mut parallel = Self {
            rules,
            pieces: pieces.into_iter(),
            tasks: Some(tasks),
            ahead: VecDeque::new(),
            current: None,
            next,
            last_end: begin,
            stop: None,
            checked: Report::default(),
            gaps,
        };
        for _ in 0..=parallel.rules.scan.threads {
            parallel.hand_out();
        }
        Ok(parallel)
    }

    pub(crate) fn stop(&self) -> Option<&Stop> {
        self.stop.as_ref()
    }

    pub(crate) fn checked(&self) -> &Report {
        &self.checked
    }

    /// Passes one more piece to the threads.
    fn hand_out(&mut self) {
        let Some(piece) = self.pieces.next() else {
            return;
        };
        let bound = 2 + ROWS_AHEAD / self.rules.scan.batch_size.max(1);
        let (tell, told) = sync_channel(bound);
        if let Some(tasks) = &self.tasks {
            // The threads run as long as there are tasks.
            let _ = tasks.send(Task { piece: piece.clone(), tell });
        }
        self.ahead.push_back((piece, told));
    }

    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
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
                Running::Told(told) => match told.recv() {
                    Ok(Told::Batch(batch)) => return Ok(Some(batch)),
                    Ok(Told::End(stop, checked)) => (Some(stop), checked),
                    Ok(Told::Failed(error)) => return Err(error),
                    Ok(Told::Begin(_)) | Err(_) => return Err(lost(&piece.file)),
                },
            };
            self.checked.findings.extend(checked.findings);
            let end = piece.file.end();
            self.current = None;
            match stop {
                Some(stop) if stop.refusal.is_some() => self.finish(stop),
                Some(stop) if stop.phy_offset < end => self.next = Next::At(stop.phy_offset),
                _ => self.next = Next::NextFile,
            }
        }
        Ok(None)
    }

    /// Reports the missing files before this offset.
    fn tell_gaps(&mut self, before: u64) {
        while self.gaps.front().is_some_and(|gap| gap.end <= before)
            && let Some(gap) = self.gaps.pop_front()
        {
            gap.tell(&mut self.checked);
        }
    }

    fn finish(&mut self, stop: Stop) {
        self.stop = Some(stop);
        self.tasks = None;
        self.ahead.clear();
    }

    /// Goes to the next piece that has messages.
    fn enter_next_piece(&mut self) -> Result<()> {
        let Some((piece, told)) = self.ahead.pop_front() else {
            let phy_offset = match self.next {
                Next::At(at) => at,
                Next::NextFile => self.last_end,
            };
            self.tell_gaps(u64::MAX);
            self.finish(Stop { phy_offset, refusal: None });
            return Ok(());
        };
        self.hand_out();
        self.tell_gaps(piece.begin);
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
        let running = match told.recv() {
            Ok(Told::Begin(guess)) if guess == begin => Running::Told(told),
            Ok(Told::Failed(error)) => return Err(error),
            Ok(_) => Running::Here(Box::new(self.rules.read(&piece, begin, self.rules.builder())?)),
            Err(_) => return Err(lost(&piece.file)),
        };
        self.current = Some((piece, running));
        Ok(())
    }
}

fn lost(file: &OffsetFile) -> Error {
    Error::io(&file.path, std::io::Error::other("the thread that read it ended early"))
}
