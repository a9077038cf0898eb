//! A copy of a part of a file in a buffer that is used again.
//!
//! A broker may be writing the file, so the bytes are checked and parsed in the copy, never in a map. The buffer grows only
//! for bytes that the file has.

use std::io;

use super::source::ReadAt;
use super::source::usize_of;

/// A buffer that grew beyond this for one call is given back.
const KEEP: usize = 16 * 1024 * 1024;

/// A buffer and what part of a file it holds.
#[derive(Debug, Default)]
pub(crate) struct Window {
    buffer: Vec<u8>,
    begin: u64,
    filled: usize,
    /// Bytes read from files in all.
    pub(crate) bytes_read: u64,
}

impl Window {
    /// Length of the buffer.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Forgets the bytes. Call it before another file is read.
    pub(crate) fn clear(&mut self) {
        self.filled = 0;
    }

    /// The end of the bytes that it holds.
    pub(crate) fn end(&self) -> u64 {
        self.begin + self.filled as u64
    }

    /// Returns the bytes from `at` on that the window holds.
    #[inline]
    pub(crate) fn held_from(&self, at: u64) -> &[u8] {
        let filled = self.buffer.get(..self.filled).unwrap_or_default();
        at.checked_sub(self.begin)
            .and_then(|skip| usize::try_from(skip).ok())
            .and_then(|skip| filled.get(skip..))
            .unwrap_or_default()
    }

    /// Returns the `len` bytes at `at` if the window holds them all.
    #[inline]
    pub(crate) fn held(&self, at: u64, len: usize) -> Option<&[u8]> {
        self.held_from(at).get(..len)
    }

    /// The `len` bytes at `at` of a file, all of which must be there before `end`. Where they are not held yet, as many
    /// as `size` are read from there on.
    pub(crate) fn get<S: ReadAt + ?Sized>(
        &mut self,
        source: &S,
        at: u64,
        len: usize,
        end: u64,
        size: usize,
    ) -> io::Result<&[u8]> {
        if self.held(at, len).is_none() {
            self.fill(source, at, end.saturating_sub(at), len, size)?;
        }
        self.held(at, len).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Reads at least `len` bytes from `at`, or `size` if that is more, of which `available` are there.
    pub(crate) fn fill<S: ReadAt + ?Sized>(
        &mut self,
        source: &S,
        at: u64,
        available: u64,
        len: usize,
        size: usize,
    ) -> io::Result<()> {
        self.filled = 0;
        if self.buffer.len() > KEEP && len <= size {
            self.buffer = Vec::new();
        }
        let wanted = usize_of(available).min(len.max(size));
        if self.buffer.len() < wanted {
            let mut buffer = Vec::new();
            buffer.try_reserve_exact(wanted)?;
            buffer.resize(wanted, 0);
            self.buffer = buffer;
        }
        let mut read = |len: usize| source.read_exact_at(self.buffer.split_at_mut(len).0, at);
        let filled = match read(wanted) {
            Ok(()) => wanted,
            // What is read ahead may be damaged; the bytes that are needed now may not.
            Err(error) if error.kind() == io::ErrorKind::InvalidData && len < wanted => {
                read(len)?;
                len
            }
            Err(error) => return Err(error),
        };
        self.bytes_read += filled as u64;
        (self.begin, self.filled) = (at, filled);
        Ok(())
    }
}
