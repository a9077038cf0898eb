//! The walk from batch to batch, by their sizes. Source: `FileLogInputStream#nextBatch`.

use std::io;

use crate::error::Undecodable;
use crate::io::{Lent, ReadAt, Window, u32_of, usize_of};
use crate::kafka::compat::Compat;
use crate::kafka::format::header::{self, HEADER_SIZE, Header, LEAST_SIZE, LOG_OVERHEAD, UP_TO_MAGIC};
use crate::report::{Flaw, Kind};

/// Read-ahead for whole batches: stays in the processor's second-level cache.
const BATCH_READ_AHEAD: usize = 512 * 1024;
/// Read-ahead for headers of small batches.
const HEADER_READ_AHEAD: usize = 64 * 1024;
/// A batch of this size or more is skipped, not read, if only its header is needed.
const STEP_OVER: u32 = 4 * 1024;
/// Bytes that are searched for a batch at a time.
const SEARCH_BYTES: usize = 1 << 20;
/// Bytes of a large batch that are checked at a time.
const PIECE: usize = 256 * 1024;

/// The end of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// The end of the range or of the file.
    End,
    /// Bytes that are not a whole batch: too few, or a batch that runs past the end.
    Torn {
        /// Size of the batch by its size field; 0 without a size field.
        claimed: u64,
        /// Bytes to the end.
        left: u64,
    },
    /// Zeros only, as in a preallocated log after a crash.
    Zeros {
        /// Bytes to the end.
        left: u64,
    },
    /// A size that is not valid.
    Size {
        /// The size field.
        stated: i32,
        /// The magic of the header.
        magic: i8,
    },
    /// Bytes that their storage has and that cannot be decoded.
    Undecodable(Flaw),
}

/// Returns what is wrong with bytes that cannot be decoded; other errors remain.
pub(crate) fn undecodable(error: io::Error) -> io::Result<Flaw> {
    let Undecodable { path, offset, expected, found } = error.downcast()?;
    Ok(Flaw::new(Kind::RemoteChunk, format_args!("{expected} at byte {offset} of {}", path.display()), found))
}

impl Tail {
    /// The fault at the end; `None` for a clean end.
    pub(crate) fn flaw(&self) -> Option<Flaw> {
        match self {
            Self::End => None,
            Self::Torn { claimed: 0, left } => {
                Some(Flaw::new(Kind::TornBatch, "a batch", format_args!("{left} bytes")))
            }
            Self::Torn { claimed, left } => {
                let expected = format_args!("{claimed} bytes, the size of the batch").to_string();
                Some(Flaw::new(Kind::TornBatch, expected, format_args!("{left} bytes to the end of the file")))
            }
            Self::Zeros { left } => Some(Flaw::new(Kind::ZeroTail, "a batch", format_args!("{left} zero bytes"))),
            Self::Size { stated, magic } => {
                let least = if *magic < 2 { LEAST_SIZE.unsigned_abs() as usize } else { HEADER_SIZE - LOG_OVERHEAD };
                Some(Flaw::new(Kind::BatchSize, format_args!("a size of at least {least}"), format_args!("{stated}")))
            }
            Self::Undecodable(flaw) => Some(flaw.clone()),
        }
    }

    /// True for a tail that a running broker writes, or one that a crash leaves.
    pub(crate) fn is_expected(&self) -> bool {
        match self {
            Self::End | Self::Torn { .. } | Self::Zeros { .. } => true,
            Self::Size { .. } | Self::Undecodable(_) => false,
        }
    }

    /// [`Self::is_expected`] for a reader that answers as the release `compat` does.
    pub(crate) fn is_expected_by(&self, compat: Option<Compat>) -> bool {
        match self {
            // COMPAT(kafka FileLogInputStream#nextBatch): where the bytes are enough for a size, a size of 0 is an error.
            Self::Zeros { left } => compat.is_none() || *left <= UP_TO_MAGIC as u64,
            Self::End | Self::Torn { .. } | Self::Size { .. } | Self::Undecodable(_) => self.is_expected(),
        }
    }
}

/// True if a walk reads whole batches or only headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    Headers,
    Whole,
}

/// A walk over the batches of one file.
#[derive(Debug)]
pub(crate) struct Walk {
    pub(crate) window: Window,
    reads: Reads,
    /// Position of the next batch, and the end of the walk.
    pub(crate) at: u64,
    pub(crate) end: u64,
    last_size: u32,
}

impl Walk {
    pub(crate) fn new(reads: Reads, begin: u64, end: u64) -> Self {
        Self { window: Window::default(), reads, at: begin, end, last_size: 0 }
    }

    /// Begins another walk, in another file or in the same one.
    pub(crate) fn restart(&mut self, begin: u64, end: u64) {
        self.window.clear();
        (self.at, self.end) = (begin, end);
    }

    /// Returns the next batch, or the end of the walk.
    pub(crate) fn next<S: ReadAt + ?Sized>(&mut self, source: &S) -> io::Result<Result<Header, Tail>> {
        self.read_next(source).or_else(|error| undecodable(error).map(|flaw| Err(Tail::Undecodable(flaw))))
    }

    fn read_next<S: ReadAt + ?Sized>(&mut self, source: &S) -> io::Result<Result<Header, Tail>> {
        let left = self.end.saturating_sub(self.at);
        if left <= UP_TO_MAGIC as u64 {
            return Ok(Err(if left == 0 { Tail::End } else { self.short_tail(source, left)? }));
        }
        let ahead = match self.reads {
            Reads::Whole => BATCH_READ_AHEAD,
            Reads::Headers if self.last_size < STEP_OVER => HEADER_READ_AHEAD,
            Reads::Headers => HEADER_SIZE,
        };
        let wanted = usize_of(left).min(HEADER_SIZE);
        let head = self.window.get(source, self.at, wanted, self.end, ahead)?;
        let (stated, magic) = (header::size_field(head), header::magic(head));
        let Some(size) = header::batch_size(stated) else {
            let is_zeros = head.iter().all(|byte| *byte == 0) && self.zeros_to_the_end(source)?;
            return Ok(Err(if is_zeros { Tail::Zeros { left } } else { Tail::Size { stated, magic } }));
        };
        if u64::from(size) > left {
            return Ok(Err(Tail::Torn { claimed: u64::from(size), left }));
        }
        let Some(header) = Header::parse(head, self.at, size) else {
            return Ok(Err(Tail::Size { stated, magic }));
        };
        self.at += u64::from(size);
        self.last_size = size;
        Ok(Ok(header))
    }

    fn short_tail<S: ReadAt + ?Sized>(&mut self, source: &S, left: u64) -> io::Result<Tail> {
        Ok(if self.zeros_to_the_end(source)? { Tail::Zeros { left } } else { Tail::Torn { claimed: 0, left } })
    }

    /// Returns whether the rest of the file is zeros. Reads backwards, because other bytes are more likely at the end.
    fn zeros_to_the_end<S: ReadAt + ?Sized>(&self, source: &S) -> io::Result<bool> {
        let mut piece = vec![0; HEADER_READ_AHEAD];
        let mut end = self.end;
        while end > self.at {
            piece.truncate(usize_of(end - self.at));
            end -= piece.len() as u64;
            source.read_exact_at(&mut piece, end)?;
            if piece.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns all bytes of the batch that [`Self::next`] returned last. The caller must have checked its size.
    pub(crate) fn batch<S: ReadAt + ?Sized>(&mut self, source: &S, header: &Header) -> io::Result<&[u8]> {
        let ahead = if self.reads == Reads::Whole { BATCH_READ_AHEAD } else { 0 };
        self.window.get(source, header.position, header.size as usize, self.end, ahead)
    }

    /// Lends the bytes of the batch that [`Self::next`] returned last. The caller must have checked its size.
    pub(crate) fn lend<S: ReadAt + ?Sized>(&mut self, source: &S, header: &Header) -> io::Result<Lent> {
        self.batch(source, header)?;
        Ok(self.window.lend(header.position))
    }

    /// Checks the checksum of the batch that [`Self::next`] returned last, with at most a window of memory.
    pub(crate) fn check_crc<S: ReadAt + ?Sized>(
        &mut self,
        source: &S,
        header: &Header,
    ) -> io::Result<Result<(), Flaw>> {
        self.compare_crc(source, header).or_else(|error| undecodable(error).map(Err))
    }

    /// Returns the position of the first batch of magic 2 with a valid checksum that begins at a position or later, and ends at `end`
    /// or before. It begins at the offset `least` or later.
    pub(crate) fn find_valid<S: ReadAt + ?Sized>(
        &mut self,
        source: &S,
        mut at: u64,
        end: u64,
        least: i64,
    ) -> io::Result<Option<u64>> {
        let mut piece = vec![0; SEARCH_BYTES];
        while at + HEADER_SIZE as u64 <= end {
            piece.truncate(usize_of(end - at));
            source.read_exact_at(&mut piece, at)?;
            for (number, head) in piece.windows(HEADER_SIZE).enumerate() {
                let position = at + number as u64;
                let size = header::batch_size(header::size_field(head)).map(u64::from);
                let is_likely = header::magic(head) == 2
                    && size.is_some_and(|size| size >= HEADER_SIZE as u64 && position + size <= end)
                    && head.first_chunk().is_some_and(|base| i64::from_be_bytes(*base) >= least);
                if is_likely {
                    self.restart(position, end);
                    if let Ok(header) = self.next(source)?
                        && self.check_crc(source, &header)?.is_ok()
                    {
                        return Ok(Some(position));
                    }
                }
            }
            at += (piece.len() - HEADER_SIZE + 1) as u64;
        }
        Ok(None)
    }

    fn compare_crc<S: ReadAt + ?Sized>(&mut self, source: &S, header: &Header) -> io::Result<Result<(), Flaw>> {
        if header.size as usize <= PIECE {
            return self.batch(source, header).map(|batch| header.check_crc(batch));
        }
        let mut crc32 = crc32fast::Hasher::new();
        let mut crc32c = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        let mut at = header.position + header.crc_from() as u64;
        while at < header.end() {
            let len = usize_of(header.end() - at).min(PIECE);
            let piece = self.window.get(source, at, len, self.end, len)?;
            if header.is_legacy() {
                crc32.update(piece);
            } else {
                crc32c.update(piece);
            }
            at += len as u64;
        }
        let computed = if header.is_legacy() { crc32.finalize() } else { u32_of(crc32c.finalize()) };
        Ok(header.compare_crc(computed))
    }
}
