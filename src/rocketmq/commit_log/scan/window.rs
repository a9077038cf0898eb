//! Read frames of one file through a window: a copy of a part of the file in a reused buffer.
//!
//! A broker may be writing the file, so frames are checked and read in the copy, never in a map. For a frame larger
//! than the window, the length fields are read and checked before the buffer grows. So a corrupt size cannot make it
//! larger than valid frames need.

use crate::io::{self, Holes, ReadAt, u32_of};
use crate::rocketmq::commit_log::frame::{
    self, Found, Frame, FrameBytes, Layout, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Needs, Refusal, Versions,
};

/// Window of a sequential walk. It fits into the processor's second-level cache.
pub(crate) const SCAN_WINDOW: usize = 256 * 1024;
/// Window of a single look-up.
pub(crate) const LOOKUP_WINDOW: usize = 4096;
/// The first read of a walk in a remote file.
const FAR_WINDOW: u64 = 64 << 10;

/// A window whose bytes are read as frames.
#[derive(Debug)]
pub(crate) struct Window {
    bytes: io::Window,
    size: usize,
    /// Bytes of the last read of a remote file.
    far: u64,
    /// True if body checksums are checked.
    pub(crate) crc: bool,
}

impl Window {
    pub(crate) fn new(size: usize) -> Self {
        Self { bytes: io::Window::default(), size, far: 0, crc: true }
    }

    /// Returns whether it reads this many bytes at a time.
    pub(crate) fn has_size(&self, bytes: usize) -> bool {
        self.size == bytes
    }

    /// Clears the window. The caller does this before it reads another file.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes from `at` on that the window holds.
    fn held(&self, at: u64) -> &[u8] {
        self.bytes.held_from(at)
    }

    /// Returns the frame that [`Self::check`] found at `at`.
    pub(crate) fn frame(&self, at: u64, layout: Layout) -> Frame<'_> {
        Frame::new(self.held(at), layout)
    }

    /// Reads at least `len` bytes from `at`.
    ///
    /// A walk in a remote file often ends soon, so it begins with what one request of a look-up brings.
    fn fill<S: ReadAt + ?Sized>(&mut self, file: &S, at: u64, available: u64, len: usize) -> std::io::Result<()> {
        let mut size = self.size;
        if file.is_far() {
            let goes_on = self.far > 0 && at <= self.bytes.end() && at + self.far >= self.bytes.end();
            let most = FAR_WINDOW.max(self.size as u64);
            let whole = if goes_on { most.min(2 * self.far) } else { FAR_WINDOW };
            // It ends with a block of the cache.
            self.far = whole - if at % FAR_WINDOW < FAR_WINDOW / 2 { at % FAR_WINDOW } else { 0 };
            size = size.min(usize::try_from(self.far).unwrap_or(size));
        }
        self.bytes.fill(file, at, available, len, size)
    }

    /// Checks the frame at byte `at` of a file of `end` bytes.
    pub(crate) fn check<S: ReadAt + ?Sized>(
        &mut self,
        file: &S,
        at: u64,
        end: u64,
        versions: Versions,
    ) -> std::io::Result<Found> {
        let available = end.saturating_sub(at);
        loop {
            match frame::check_with(self.held(at), available, versions, self.crc) {
                Err(Needs(bytes)) => {
                    let total = u32_of(bytes);
                    if bytes > self.size && !lengths_add_up(file, at, total)? {
                        return Ok(Found::Refused(Refusal::Size { stated: total.cast_signed() }));
                    }
                    self.fill(file, at, available, bytes)?;
                }
                Ok(found) => return Ok(found),
            }
        }
    }

    /// Returns whether a message that states this offset begins at `at`, or padding that ends with the file.
    pub(crate) fn begins_frame<S: ReadAt + ?Sized>(
        &mut self,
        file: &S,
        at: u64,
        end: u64,
        phy_offset: u64,
    ) -> std::io::Result<bool> {
        let available = end.saturating_sub(at);
        if available < 8 {
            return Ok(false);
        }
        let wanted = available.min(frame::HEAD as u64);
        if (self.held(at).len() as u64) < wanted {
            self.fill(file, at, available, frame::HEAD)?;
        }
        let head = self.held(at);
        let is_blank = head.get(4..8).is_some_and(|magic| *magic == MAGIC_BLANK.to_be_bytes());
        if is_blank {
            return Ok(frame::stated_size(head).is_some_and(|size| at.saturating_add(size) == end));
        }
        Ok(frame::stated_phy_offset_of_head(head) == Some(phy_offset.cast_signed()))
    }

    /// Returns the first position from `from` on with the magic of any frame.
    pub(crate) fn find_magic<S: ReadAt + ?Sized>(
        &mut self,
        file: &S,
        from: u64,
        end: u64,
    ) -> std::io::Result<Option<u64>> {
        let mut at = from;
        let mut holes = Holes::default();
        while at.saturating_add(4) <= end {
            if self.held(at).len() < 4 {
                let data = holes.skip(file, at);
                if data > at {
                    at = data;
                    continue;
                }
                self.fill(file, at, end - at, 4)?;
                if is_zero(self.held(at)) {
                    holes.met_zeros(file, at)?;
                }
            }
            let held = self.held(at);
            let firsts = held.get(..held.len().saturating_sub(3)).unwrap_or_default();
            let magics = [MAGIC_V1, MAGIC_V2, MAGIC_BLANK].map(u32::to_be_bytes);
            let [[message, ..], _, [blank, ..]] = magics;
            let found = memchr::memchr2_iter(message, blank, firsts)
                .find(|place| held.get(*place..).and_then(|b| b.first_chunk()).is_some_and(|b| magics.contains(b)));
            if let Some(place) = found {
                return Ok(Some(at + place as u64));
            }
            // The last three bytes may begin a magic.
            at += firsts.len() as u64;
        }
        Ok(None)
    }

    /// Returns the first bytes that [`Self::check`] read.
    pub(crate) fn head(&self, at: u64) -> &[u8] {
        self.held(at)
    }
}

/// Returns whether all bytes are zero. Many are compared at once, because the unwritten end of a file may be hundreds
/// of MiB.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(4096).all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
}

/// A frame in a file that is not in memory yet.
struct InFile<'a, S: ?Sized> {
    file: &'a S,
    at: u64,
    total: u32,
}

impl<S: ReadAt + ?Sized> FrameBytes for InFile<'_, S> {
    fn bytes_at<const N: usize>(&self, at: usize) -> std::io::Result<Option<[u8; N]>> {
        if at.saturating_add(N) > self.total as usize {
            return Ok(None);
        }
        let mut bytes = [0; N];
        self.file.read_exact_at(&mut bytes, self.at.saturating_add(at as u64)).map(|()| Some(bytes))
    }
}

/// Returns whether the length fields of the message at `at` add up to `total` bytes, which the file has.
pub(crate) fn lengths_add_up<S: ReadAt + ?Sized>(file: &S, at: u64, total: u32) -> std::io::Result<bool> {
    let frame = InFile { file, at, total };
    let Some(magic) = frame.bytes_at(4)? else {
        return Ok(false);
    };
    Ok(Layout::of(&frame, total, u32::from_be_bytes(magic))?.is_some())
}
