//! Positioned reads and writes: the same calls on a mapped file, on a file by `pread`/`pwrite`, and on bytes in memory.
//!
//! All callers work on owned copies, because another process may change the file at any time. All integers in the files are
//! big-endian; the word calls convert.
//!
//! Words are 4 bytes at an offset that is a multiple of 4. A map reads and writes each word in one piece; `pread` and
//! `pwrite` of one word do so as well on all known systems (the kernel copies an aligned word at once).

use std::io;

/// Returns a length or an offset as `usize`. Where that has 32 bits, a greater number becomes `usize::MAX`: no buffer is that long, so
/// reserving or slicing it fails.
#[inline]
pub(crate) fn usize_of(number: impl Into<u64>) -> usize {
    usize::try_from(number.into()).unwrap_or(usize::MAX)
}

/// Returns the number of things in memory, or of bytes of a file, as a signed number. None of them has 2^63.
#[inline]
pub(crate) fn i64_of(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// Returns a number as one of 32 bits. A greater one becomes `u32::MAX`: a caller keeps fewer things than that, or takes the smaller of
/// it and its own limit.
#[inline]
pub(crate) fn u32_of(number: impl TryInto<u32>) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
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
    /// `UnexpectedEof` if the file ends before the range does, else an I/O error.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Returns the offset of the first byte from `offset` on that may have been written; the bytes before it are zero. `None`: no
    /// later byte was written.
    ///
    /// # Errors
    /// An I/O error.
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        Ok(Some(offset))
    }

    /// Returns the offset of the first byte from `offset` on that was never written, as far as is known; the length of the file if
    /// there is none.
    ///
    /// # Errors
    /// An I/O error.
    fn next_hole(&self, _offset: u64) -> io::Result<u64> {
        Ok(self.len())
    }

    /// Removes a part that was never written from the page cache, if that is possible.
    fn drop_cache(&self, _part: std::ops::Range<u64>) {}

    /// Copies `N` words from `offset`, each read in one piece, in rising order.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before the range does, else an I/O error.
    fn words<const N: usize>(&self, offset: u64) -> io::Result<[u32; N]>;

    /// Reads consecutive words from `offset`, each atomically. Stores that preceded the publication of a word are visible
    /// afterwards. Without a map, all words are one read.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before the range does; else an I/O error.
    fn word_run(&self, offset: u64, words: &mut [u32]) -> io::Result<()> {
        let mut bytes = vec![[0u8; 4]; words.len()];
        self.read_exact_at(bytes.as_flattened_mut(), offset)?;
        words.iter_mut().zip(bytes).for_each(|(word, bytes)| *word = u32::from_be_bytes(bytes));
        Ok(())
    }

    /// Reads 8 bytes in one piece, from an offset that is a multiple of 8.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before the range does, else an I/O error.
    fn long(&self, offset: u64) -> io::Result<u64> {
        self.words::<2>(offset).map(|[high, low]| u64::from(high) << 32 | u64::from(low))
    }

    /// Reads one word. Stores that preceded its [`WriteAt::publish`] are visible afterwards.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before the range does, else an I/O error.
    fn acquire(&self, offset: u64) -> io::Result<u32> {
        self.words::<1>(offset).map(|[word]| word)
    }

    /// Reads words of the table that begins at `table`: word `numbers[i]` into `words[i]`, each in one piece.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before a word, else an I/O error.
    fn gather(&self, table: u64, numbers: &[u32], words: &mut [u32]) -> io::Result<()> {
        for (word, &number) in words.iter_mut().zip(numbers) {
            [*word] = self.words(table + 4 * u64::from(number))?;
        }
        Ok(())
    }

    /// Returns whether a byte can be read without waiting for the disk; true if the system does not report it.
    fn is_in_memory(&self, _offset: u64) -> bool {
        true
    }

    /// Returns whether a read costs as much as a request to another machine.
    fn is_far(&self) -> bool {
        false
    }

    /// Makes the operating system start reading bytes from the disk, without waiting. A hint: errors are ignored.
    fn will_need(&self, _offset: u64, _len: u64) {}

    /// Makes the operating system read the whole file into memory. A hint, like [`Self::will_need`].
    fn load(&self) {
        self.will_need(0, self.len());
    }
}

/// Writes at an offset, by one writer at a time.
pub trait WriteAt: ReadAt {
    /// Stores `N` words at `offset`, each in one piece, in rising order.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before the range does (then nothing is stored), else an I/O error.
    fn put_words<const N: usize>(&self, offset: u64, words: [u32; N]) -> io::Result<()>;

    /// Stores 8 bytes in one piece, at an offset that is a multiple of 8, after every earlier store.
    ///
    /// # Errors
    /// As [`Self::put_words`].
    fn put_long(&self, offset: u64, value: u64) -> io::Result<()>;

    /// Stores one word. A reader that gets it from [`ReadAt::acquire`] sees every earlier store as well.
    ///
    /// # Errors
    /// As [`Self::put_words`].
    fn publish(&self, offset: u64, word: u32) -> io::Result<()>;

    /// Stores at most `count` records one after the other from `offset` on, as bytes of the file. A record is whole words, and
    /// no reader reads it before a later store is published.
    ///
    /// # Errors
    /// As [`Self::put_words`], for `count` records; `InvalidInput` if a record is not a whole number of words.
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

    /// Publishes words of the table that begins at `table`: `words[i]` at word `numbers[i]`, in this order.
    ///
    /// # Errors
    /// As [`Self::put_words`]; the words before the one that failed are stored.
    fn scatter(&self, table: u64, numbers: &[u32], words: impl Iterator<Item = u32>) -> io::Result<()> {
        numbers.iter().zip(words).try_for_each(|(&number, word)| self.publish(table + 4 * u64::from(number), word))
    }

    /// Makes the processor fetch the cache line of `offset` for a store. Does nothing without a map.
    #[inline]
    fn prefetch_to_store(&self, _offset: u64) {}

    /// Brings the pages of a new file into memory before the first store. A hint: errors are ignored, and without a map it does
    /// nothing.
    fn populate(&self, _offset: u64, _len: u64) {}

    /// Returns the end of the bytes that need no [`Self::populate`].
    fn populated(&self) -> u64 {
        u64::MAX
    }

    /// Waits until the bytes from `offset` on are on the disk.
    ///
    /// # Errors
    /// An I/O error.
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

/// Reads words for a source that copies bytes.
pub(super) fn words_by_copy<const N: usize, S: ReadAt + ?Sized>(source: &S, offset: u64) -> io::Result<[u32; N]> {
    let mut words = [[0u8; 4]; N];
    source.read_exact_at(words.as_flattened_mut(), offset)?;
    Ok(words.map(u32::from_be_bytes))
}
