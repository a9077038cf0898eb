//! Parts of a file that were never written.

use std::io;
use std::ops::Range;

use super::source::ReadAt;

/// Skips long parts of a file that were never written.
///
/// Reading such a part of a preallocated file fills the page cache with zeros, which then count as data, and the system reads
/// ahead. So the next hole is looked up once, before the bytes up to it are read, and the cache keeps only a few of those.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    /// The next hole; empty and at the end of the file if there is none.
    next: Option<Range<u64>>,
    /// The start of the zeros before it.
    zeros: u64,
    /// The page cache may keep zeros up to here.
    kept: Option<u64>,
}

impl Holes {
    /// Zeros that stay in the page cache, and are read again by the next scan.
    const KEPT: u64 = 1 << 20;

    /// Returns the offset to continue at instead of `at`. All bytes between are zero.
    pub(crate) fn skip<S: ReadAt + ?Sized>(&mut self, source: &S, at: u64) -> u64 {
        let Some(hole) = self.next.take_if(|hole| hole.start <= at) else {
            return at;
        };
        // Also after the start of the hole: the system reads ahead.
        source.drop_cache(self.kept.unwrap_or(0).max(self.zeros)..hole.end);
        hole.end.max(at)
    }

    /// Records that only zeros were read from `at` on.
    ///
    /// # Errors
    /// An I/O error.
    pub(crate) fn met_zeros<S: ReadAt + ?Sized>(&mut self, source: &S, at: u64) -> io::Result<()> {
        if self.next.is_none() {
            let begin = source.next_hole(at)?;
            let end = if begin < source.len() { source.next_data(begin)?.unwrap_or(source.len()) } else { begin };
            (self.next, self.zeros) = (Some(begin..end), at);
            self.kept.get_or_insert(at.saturating_add(Self::KEPT));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Holes;
    use crate::io::disk::write_all_at;
    use crate::io::plain_file::PlainFile;
    use crate::io::source::ReadAt;

    #[test]
    fn what_was_never_written_is_passed_over() {
        let file = tempfile::tempfile().unwrap();
        let (len, data) = (64 << 20, 40 << 20);
        file.set_len(len).unwrap();
        write_all_at(&file, b"data", data).unwrap();
        let source = PlainFile::new(file).unwrap();
        // If the file system does not report holes, all bytes are read.
        if source.next_data(0).unwrap() == Some(0) {
            return;
        }
        let mut holes = Holes::default();
        let (mut at, mut read, mut found) = (0, 0, None);
        let mut bytes = vec![0; 1 << 18];
        while at < len {
            source.read_exact_at(&mut bytes, at).unwrap();
            read += bytes.len() as u64;
            match bytes.iter().position(|byte| *byte != 0) {
                Some(place) => found = Some(at + place as u64),
                None => holes.met_zeros(&source, at).unwrap(),
            }
            at = holes.skip(&source, at + bytes.len() as u64);
        }
        assert_eq!(found, Some(data));
        assert!(read < len / 2, "{read}");
    }
}
