//! Parts of a file that were never written.

use std::io;
use std::ops::Range;

use super::source::ReadAt;

/// Skips long parts of a file that were never written.
///
/// Reading such a part fills the page cache with zeros, which then count as data, and the system reads ahead. So the next data
/// is looked up from an offset beyond the read-ahead.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    known: Option<Range<u64>>,
}

impl Holes {
    /// Distances of the look-up: the system reads ahead up to some MiB, also for earlier readers.
    const AHEAD: [u64; 3] = [4 << 20, 16 << 20, 64 << 20];

    /// Returns the offset to continue at instead of `at`. All bytes between are zero.
    pub(crate) fn skip(&mut self, at: u64) -> u64 {
        match self.known.take_if(|hole| hole.start <= at) {
            Some(hole) => hole.end.max(at),
            None => at,
        }
    }

    /// Records that only zeros were read from `at` on.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn met_zeros<S: ReadAt + ?Sized>(&mut self, source: &S, at: u64) -> io::Result<()> {
        if self.known.is_some() {
            return Ok(());
        }
        for begin in Self::AHEAD.map(|ahead| at.saturating_add(ahead)) {
            if begin >= source.len() {
                break;
            }
            let end = source.next_data(begin)?.unwrap_or(source.len());
            if end > begin {
                self.known = Some(begin..end);
                break;
            }
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
            at = holes.skip(at + bytes.len() as u64);
        }
        assert_eq!(found, Some(data));
        assert!(read < len / 2, "{read}");
    }
}
