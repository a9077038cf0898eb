//! Frames that wait to be written, in the order of the log.

use super::new_message::NewMessage;
use crate::error::{Error, Result};
use crate::rocketmq::commit_log::frame::{BLANK_LEN, MAGIC_BLANK};

/// A buffer of more is not kept for the next put.
const KEPT_BUFFER: usize = 8 << 20;

/// The frames of one put; taken again for the next one.
#[derive(Debug)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    /// Where in the log a run of frames begins that goes into one file, and where in `bytes`.
    pieces: Vec<(u64, usize)>,
    /// Where in the log the next frame goes.
    end: u64,
    file_size: u64,
}

impl Frames {
    /// None yet, of a log in files of this size.
    pub(super) fn new(file_size: u64) -> Self {
        Self { bytes: Vec::new(), pieces: Vec::new(), end: 0, file_size }
    }

    /// Begins anew where the log ends.
    pub(super) fn begin(&mut self, end: u64) {
        if self.bytes.capacity() > KEPT_BUFFER {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.pieces.clear();
        self.pieces.push((end, 0));
        self.end = end;
    }

    /// Adds a frame, in the next file where this one has no room for it and a BLANK frame. Gives its place and its size.
    ///
    /// # Errors
    /// `InvalidArgument` for a frame that no file has room for.
    pub(super) fn add(&mut self, message: &NewMessage<'_>, queue_offset: i64) -> Result<(u64, i32)> {
        let size = message.size() as u64;
        if size + BLANK_LEN > self.file_size {
            let file_size = self.file_size;
            let text = format!("a frame of {size} bytes and {BLANK_LEN} behind it do not fit a file of {file_size}");
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
        Ok((phy_offset, store_size))
    }

    /// Ends the file with a BLANK frame over all that is left of it, which is zero.
    fn fill(&mut self, left: u64) {
        self.bytes.extend_from_slice(&u32::try_from(left).unwrap_or(u32::MAX).to_be_bytes());
        self.bytes.extend_from_slice(&MAGIC_BLANK.to_be_bytes());
        self.end += left;
        self.pieces.push((self.end, self.bytes.len()));
    }

    /// Runs of bytes that go into one file each, and their offsets in the log; none is empty.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let ends = self.pieces.iter().skip(1).map(|(_, at)| *at).chain([self.bytes.len()]);
        let pieces = self.pieces.iter().zip(ends);
        let pieces = pieces.map(|((offset, at), end)| (*offset, self.bytes.get(*at..end).unwrap_or_default()));
        pieces.filter(|(_, bytes)| !bytes.is_empty())
    }

    /// Where the log ends after them.
    pub(super) fn end(&self) -> u64 {
        self.end
    }
}
