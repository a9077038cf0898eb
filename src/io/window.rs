//! A copy of a part of a file in a buffer that is used again.
//!
//! A broker may be writing the file, so the bytes are checked and parsed in the copy, never in a map. The buffer grows only
//! for bytes that the file has.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::source::ReadAt;
use super::source::usize_of;

/// A buffer that grew beyond this for one call is given back.
const KEEP: usize = 16 * 1024 * 1024;
/// The most bytes of buffers that were lent and may be used again.
const LENT_BYTES: usize = 32 * 1024 * 1024;

/// A buffer whose bytes somebody reads, and the place of some of them in it. The window fills another one meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct Lent {
    pub(crate) buffer: Arc<Vec<u8>>,
    pub(crate) at: usize,
}

/// A buffer and what part of a file it holds.
#[derive(Debug, Default)]
pub(crate) struct Window {
    buffer: Arc<Vec<u8>>,
    begin: u64,
    filled: usize,
    /// Buffers that were lent, in the order in which they are returned.
    lent: VecDeque<Arc<Vec<u8>>>,
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
        let wanted = usize_of(available).min(len.max(size));
        let buffer = self.unused();
        if buffer.len() > KEEP && len <= size {
            *buffer = Vec::new();
        }
        if buffer.len() < wanted {
            *buffer = Vec::new();
            buffer.try_reserve_exact(wanted)?;
            buffer.resize(wanted, 0);
        }
        let mut read = |len: usize| source.read_exact_at(buffer.split_at_mut(len).0, at);
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

    /// Lends the buffer to somebody who reads the bytes from `at` on, which the window holds.
    pub(crate) fn lend(&self, at: u64) -> Lent {
        Lent { buffer: Arc::clone(&self.buffer), at: usize_of(at.saturating_sub(self.begin)) }
    }

    /// Returns a buffer that nobody else reads: this one, the oldest that was lent, or an empty one.
    fn unused(&mut self) -> &mut Vec<u8> {
        if Arc::get_mut(&mut self.buffer).is_none() {
            let is_free = self.lent.front_mut().is_some_and(|oldest| Arc::get_mut(oldest).is_some());
            let next = if is_free { self.lent.pop_front() } else { None };
            self.lent.push_back(std::mem::replace(&mut self.buffer, next.unwrap_or_default()));
            while self.lent.iter().map(|buffer| buffer.len()).sum::<usize>() > LENT_BYTES {
                self.lent.pop_front();
            }
        }
        Arc::make_mut(&mut self.buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 1000;

    #[test]
    fn lent_bytes_stay_and_their_buffer_is_used_again() {
        let file: Vec<u8> = (0..40).flat_map(|number| [number; SIZE]).collect();
        let mut window = Window::default();
        let mut get = |number: usize| {
            let at = (number * SIZE) as u64;
            window.get(&file[..], at, SIZE, file.len() as u64, SIZE).unwrap();
            window.lend(at)
        };
        let first = get(0);
        let second = get(1);
        assert_eq!((first.buffer[first.at], second.buffer[second.at]), (0, 1));
        let place = Arc::as_ptr(&first.buffer);
        drop(first);
        assert_eq!(Arc::as_ptr(&get(2).buffer), place);
        let held: Vec<Lent> = (3..40).map(&mut get).collect();
        assert!((3..40).zip(&held).all(|(number, lent)| lent.buffer[lent.at..] == [number; SIZE]));
        assert!(second.buffer.iter().all(|byte| *byte == 1));
    }
}
