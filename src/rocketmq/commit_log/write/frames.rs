//! The encoded frames of one put, in the order of the log.

use super::new_message::NewMessage;
use crate::error::{Error, Result};
use crate::io::u32_of;
use crate::rocketmq::commit_log::frame::{BLANK_LEN, MAGIC_BLANK};

/// A larger buffer is not reused.
const KEPT_BUFFER: usize = 8 << 20;

/// The frames of one put; reused by the next one.
#[derive(Debug)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    /// For each file, where its frames begin: in the log, and in `bytes`.
    pieces: Vec<(u64, usize)>,
    /// Offset in the log of the next frame.
    end: u64,
    messages: usize,
    file_size: u64,
}

/// An end of the frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct FramesMark {
    bytes: usize,
    pieces: usize,
    end: u64,
    messages: usize,
}

impl Frames {
    /// No frames, for a log in files of this size.
    pub(super) fn new(file_size: u64) -> Self {
        Self { bytes: Vec::new(), pieces: Vec::new(), end: 0, messages: 0, file_size }
    }

    /// Drops the frames and begins at the end of the log.
    pub(super) fn begin(&mut self, end: u64) {
        if self.bytes.capacity() > KEPT_BUFFER {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.pieces.clear();
        self.pieces.push((end, 0));
        self.end = end;
        self.messages = 0;
    }

    /// Adds a frame; in the next file if it and a BLANK frame do not fit into this one. Returns its offset and its size.
    ///
    /// # Errors
    /// `InvalidArgument` for a frame that fits no file.
    pub(super) fn add(&mut self, message: &NewMessage<'_>, queue_offset: i64) -> Result<(u64, i32)> {
        let size = message.size() as u64;
        if size + BLANK_LEN > self.file_size {
            let file_size = self.file_size;
            let text =
                format!("a frame of {size} bytes and {BLANK_LEN} behind it do not fit a file of {file_size} bytes");
            return Err(Error::InvalidArgument(text));
        }
        let left = self.file_size - self.end % self.file_size;
        if size + BLANK_LEN > left {
            self.fill(left);
        }
        let phy_offset = self.end;
        // A file is shorter than 2 GiB.
        let store_size = i32::try_from(size).unwrap_or(i32::MAX);
        message.encode(store_size.unsigned_abs(), queue_offset, phy_offset, &mut self.bytes);
        self.end += size;
        self.messages += 1;
        Ok((phy_offset, store_size))
    }

    /// The present end of the frames, for [`Self::back_to`].
    pub(super) fn mark(&self) -> FramesMark {
        FramesMark { bytes: self.bytes.len(), pieces: self.pieces.len(), end: self.end, messages: self.messages }
    }

    /// Drops the frames since a mark.
    pub(super) fn back_to(&mut self, mark: FramesMark) {
        self.bytes.truncate(mark.bytes);
        self.pieces.truncate(mark.pieces);
        self.end = mark.end;
        self.messages = mark.messages;
    }

    /// Returns whether the frame at `phy_offset` is in the file in which the last frame ends.
    pub(super) fn is_in_last_file(&self, phy_offset: u64) -> bool {
        phy_offset / self.file_size == self.end.saturating_sub(1) / self.file_size
    }

    /// Ends the file, unless nothing is in it.
    pub(super) fn next_file(&mut self) {
        let left = self.file_size - self.end % self.file_size;
        if left < self.file_size {
            self.fill(left);
        }
    }

    /// Ends the file with a BLANK frame over the rest of it, which is zero.
    fn fill(&mut self, left: u64) {
        self.bytes.extend_from_slice(&u32_of(left).to_be_bytes());
        self.bytes.extend_from_slice(&MAGIC_BLANK.to_be_bytes());
        self.end += left;
        self.pieces.push((self.end, self.bytes.len()));
    }

    /// Returns the bytes for each file with their offset in the log; none is empty.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> + Clone {
        let ends = self.pieces.iter().skip(1).map(|(_, at)| *at).chain([self.bytes.len()]);
        let pieces = self.pieces.iter().zip(ends);
        let pieces = pieces.map(|((offset, at), end)| (*offset, self.bytes.get(*at..end).unwrap_or_default()));
        pieces.filter(|(_, bytes)| !bytes.is_empty())
    }

    /// The number of messages.
    pub(super) fn messages(&self) -> usize {
        self.messages
    }

    /// The end of the log after these frames.
    pub(super) fn end(&self) -> u64 {
        self.end
    }
}
