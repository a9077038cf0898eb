//! Positioned reads and writes: the same calls on a mapped file, on a file by `pread`/`pwrite`, and on bytes in memory.
//!
//! Everything above this floor works on owned copies, so that another process may change the file at any time. All
//! integers in the files are big-endian; the word calls convert.
//!
//! Words are 4 bytes at an offset that is a multiple of 4. A map reads and writes each word in one piece; `pread` and
//! `pwrite` of one word do so as well on every system known to us (the kernel copies an aligned word in one go).

use std::fs::File;
use std::io;
use std::ops::Range;

use crate::disk::{self, write_all_at};

/// How the bytes of a file are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A map, and `pread`/`pwrite` where mapping fails.
    Auto,
    /// A map or an error.
    Mmap,
    /// `pread`/`pwrite`: slower, but a file that shrinks is an error, not a signal.
    Pread,
}

/// Reads at an offset that change nothing and need no shared position.
pub trait ReadAt: Send + Sync {
    /// Length in bytes. Fixed when a file is opened.
    fn len(&self) -> u64;

    /// True when there is no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` when the range is not all there, else the system's error.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Offset of the first byte from `offset` on that may have been written: what lies before it is zero. `None`: nothing is
    /// there any more.
    ///
    /// # Errors
    /// The system's error.
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        Ok(Some(offset))
    }

    /// Copies `N` words from `offset`, each read in one piece, in rising order.
    ///
    /// # Errors
    /// `UnexpectedEof` when the range is not all there, else the system's error.
    fn words<const N: usize>(&self, offset: u64) -> io::Result<[u32; N]>;

    /// Reads 8 bytes in one piece, from an offset that is a multiple of 8.
    ///
    /// # Errors
    /// `UnexpectedEof` when the range is not all there, else the system's error.
    fn long(&self, offset: u64) -> io::Result<u64> {
        self.words::<2>(offset).map(|[high, low]| u64::from(high) << 32 | u64::from(low))
    }

    /// Reads one word; what was stored before it with [`WriteAt::publish`] is then visible, too.
    ///
    /// # Errors
    /// `UnexpectedEof` when the range is not all there, else the system's error.
    fn acquire(&self, offset: u64) -> io::Result<u32> {
        self.words::<1>(offset).map(|[word]| word)
    }

    /// Reads words of the table that begins at `table`: word `numbers[i]` of it to `words[i]`, each in one piece.
    ///
    /// # Errors
    /// `UnexpectedEof` when one is not there, else the system's error.
    fn gather(&self, table: u64, numbers: &[u32], words: &mut [u32]) -> io::Result<()> {
        for (word, &number) in words.iter_mut().zip(numbers) {
            [*word] = self.words(table + 4 * u64::from(number))?;
        }
        Ok(())
    }

    /// Whether a byte can be read without waiting for the disk. True where the system does not tell.
    fn is_in_memory(&self, _offset: u64) -> bool {
        true
    }

    /// Has the system begin to read some bytes from the disk, and does not wait for them. A hint: errors are none.
    fn will_need(&self, _offset: u64, _len: u64) {}

    /// Has the system read the whole file into memory. A hint, as [`Self::will_need`].
    fn load(&self) {
        self.will_need(0, self.len());
    }
}

/// Writes at an offset, by one writer at a time.
pub trait WriteAt: ReadAt {
    /// Stores `N` words at `offset`, each in one piece, in rising order.
    ///
    /// # Errors
    /// `UnexpectedEof` when the range is not all there (nothing is stored then), else the system's error.
    fn put_words<const N: usize>(&self, offset: u64, words: [u32; N]) -> io::Result<()>;

    /// Stores 8 bytes in one piece, at an offset that is a multiple of 8, after every earlier store.
    ///
    /// # Errors
    /// As [`Self::put_words`].
    fn put_long(&self, offset: u64, value: u64) -> io::Result<()>;

    /// Stores one word so that whoever reads it with [`ReadAt::acquire`] sees every earlier store as well.
    ///
    /// # Errors
    /// As [`Self::put_words`].
    fn publish(&self, offset: u64, word: u32) -> io::Result<()>;

    /// Stores records one after the other, at most `count`, from `offset` on, given as the bytes of the file: whole words
    /// that nobody reads before something after them is published.
    ///
    /// # Errors
    /// As [`Self::put_words`], for `count` records; `InvalidInput` when a record is no whole words.
    fn put_records<const N: usize>(
        &self,
        offset: u64,
        count: usize,
        records: impl Iterator<Item = [u8; N]>,
    ) -> io::Result<()> {
        for (record, at) in records.take(count).zip((offset..).step_by(N)) {
            let (words, []) = record.as_chunks::<4>() else { return Err(io::ErrorKind::InvalidInput.into()) };
            for (word, at) in words.iter().zip((at..).step_by(4)) {
                self.put_words(at, [u32::from_be_bytes(*word)])?;
            }
        }
        Ok(())
    }

    /// Publishes words of the table that begins at `table`: each of `words` at the word of it that `numbers` says, in this
    /// order.
    ///
    /// # Errors
    /// As [`Self::put_words`]; the words before the one that failed are stored.
    fn scatter(&self, table: u64, numbers: &[u32], words: impl Iterator<Item = u32>) -> io::Result<()> {
        numbers.iter().zip(words).try_for_each(|(&number, word)| self.publish(table + 4 * u64::from(number), word))
    }

    /// Asks the processor to fetch the line of `offset` for a store; does nothing where that makes no sense.
    #[inline]
    fn prefetch_to_store(&self, _offset: u64) {}

    /// Brings the bytes of a new file into memory before they are stored. A hint: errors are none, and does nothing where
    /// that makes no sense.
    fn populate(&self, _offset: u64, _len: u64) {}

    /// Where the bytes end that need no [`Self::populate`].
    fn populated(&self) -> u64 {
        u64::MAX
    }

    /// Waits until the bytes from `offset` on are on the disk.
    ///
    /// # Errors
    /// The system's error.
    fn flush(&self, offset: u64, len: u64) -> io::Result<()>;
}

impl ReadAt for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = usize::try_from(offset).ok().and_then(|from| self.get(from..)).and_then(|b| b.get(..buf.len()));
        buf.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn words<const N: usize>(&self, offset: u64) -> io::Result<[u32; N]> {
        words_by_copy(self, offset)
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> u64 {
        ReadAt::len(self.as_slice())
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.as_slice().read_exact_at(buf, offset)
    }

    fn words<const N: usize>(&self, offset: u64) -> io::Result<[u32; N]> {
        self.as_slice().words(offset)
    }
}

/// Passes over the parts of a file that were never written, where they are long.
///
/// Reading such a part fills the system's memory with zeros, which then count as data, and the system reads ahead. So the
/// question where the data goes on is asked for a place that it has not come to.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    known: Option<Range<u64>>,
}

impl Holes {
    /// How far away it is asked: the system reads ahead up to some MiB, and did so for who came before.
    const AHEAD: [u64; 3] = [4 << 20, 16 << 20, 64 << 20];

    /// Where to go on instead of `at`; nothing but zeros lies between.
    pub(crate) fn skip(&mut self, at: u64) -> u64 {
        match self.known.take_if(|hole| hole.start <= at) {
            Some(hole) => hole.end.max(at),
            None => at,
        }
    }

    /// Tells that nothing but zeros was read from `at` on.
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

fn words_by_copy<const N: usize, S: ReadAt + ?Sized>(source: &S, offset: u64) -> io::Result<[u32; N]> {
    let mut words = [[0u8; 4]; N];
    source.read_exact_at(words.as_flattened_mut(), offset)?;
    Ok(words.map(u32::from_be_bytes))
}

/// A file read and written by position, without a map.
#[derive(Debug)]
pub struct PlainFile {
    file: File,
    len: u64,
}

impl PlainFile {
    /// Takes over an open file; its length is fixed now.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self { file, len })
    }

    fn check(&self, offset: u64, len: usize) -> io::Result<()> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The error for bytes that were there when the file was opened.
    #[cold]
    fn cut(&self, offset: u64, bytes: usize) -> io::Error {
        let now = self.file.metadata().map_or_else(|e| e.to_string(), |kind| format!("a file of {} bytes", kind.len()));
        let text = format!("expected {bytes} bytes at byte {offset}, found {now}: it was cut while it was read");
        io::Error::new(io::ErrorKind::UnexpectedEof, text)
    }
}

impl ReadAt for PlainFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        disk::next_data(&self.file, offset)
    }

    #[cfg(unix)]
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.check(offset, buf.len())?;
        std::os::unix::fs::FileExt::read_exact_at(&self.file, buf, offset)
            .map_err(|e| if e.kind() == io::ErrorKind::UnexpectedEof { self.cut(offset, buf.len()) } else { e })
    }

    #[cfg(windows)]
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        self.check(offset, buf.len())?;
        while !buf.is_empty() {
            match std::os::windows::fs::FileExt::seek_read(&self.file, buf, offset)? {
                0 => return Err(self.cut(offset, buf.len())),
                read => {
                    buf = buf.split_at_mut(read).1;
                    offset += read as u64;
                }
            }
        }
        Ok(())
    }

    fn words<const N: usize>(&self, offset: u64) -> io::Result<[u32; N]> {
        words_by_copy(self, offset)
    }

    #[cfg(target_os = "linux")]
    fn is_in_memory(&self, offset: u64) -> bool {
        use rustix::io::{Errno, ReadWriteFlags, preadv2};
        let mut byte = [0];
        let read = preadv2(&self.file, &mut [io::IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT);
        read != Err(Errno::AGAIN)
    }

    #[cfg(target_os = "linux")]
    fn will_need(&self, offset: u64, len: u64) {
        use rustix::fs::{Advice, fadvise};
        let _ = fadvise(&self.file, offset, std::num::NonZeroU64::new(len), Advice::WillNeed);
    }

    fn load(&self) {
        // The system reads ahead of whoever reads from end to end; it would cut a request for the whole file.
        let mut buf = vec![0; 1 << 20];
        for at in (0..self.len).step_by(buf.len()) {
            let len = usize::try_from(self.len - at).unwrap_or(usize::MAX).min(buf.len());
            let Some(part) = buf.get_mut(..len) else { return };
            if self.read_exact_at(part, at).is_err() {
                return;
            }
        }
    }
}

impl WriteAt for PlainFile {
    fn put_words<const N: usize>(&self, offset: u64, words: [u32; N]) -> io::Result<()> {
        self.check(offset, 4 * N)?;
        let bytes = words.map(u32::to_be_bytes);
        write_all_at(&self.file, bytes.as_flattened(), offset)
    }

    fn put_records<const N: usize>(
        &self,
        offset: u64,
        count: usize,
        records: impl Iterator<Item = [u8; N]>,
    ) -> io::Result<()> {
        let bytes: Vec<[u8; N]> = records.take(count).collect();
        self.check(offset, bytes.as_flattened().len())?;
        write_all_at(&self.file, bytes.as_flattened(), offset)
    }

    fn put_long(&self, offset: u64, value: u64) -> io::Result<()> {
        #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
        self.put_words(offset, [(value >> 32) as u32, value as u32])
    }

    fn publish(&self, offset: u64, word: u32) -> io::Result<()> {
        // System calls of one thread reach the page cache in order.
        self.put_words(offset, [word])
    }

    fn flush(&self, _offset: u64, _len: u64) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::{Holes, PlainFile, ReadAt};

    #[test]
    fn what_was_never_written_is_passed_over() {
        let file = tempfile::tempfile().unwrap();
        let (len, data) = (64 << 20, 40 << 20);
        file.set_len(len).unwrap();
        crate::disk::write_all_at(&file, b"data", data).unwrap();
        let source = PlainFile::new(file).unwrap();
        // A file system may not tell; then all is read.
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
