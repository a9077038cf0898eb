//! A file that is read and written by `pread` and `pwrite`.

use std::fs::File;
use std::io;

use super::disk::{self, write_all_at};
use super::source::usize_of;
use super::source::{ReadAt, WriteAt, words_by_copy};

/// A file read and written by position, without a map.
#[derive(Debug)]
pub struct PlainFile {
    file: File,
    len: u64,
}

impl PlainFile {
    /// Takes an open file. Its length is read now and does not change.
    ///
    /// # Errors
    /// An I/O error.
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

    /// The error for bytes that the file had when it was opened.
    #[cold]
    fn truncated(&self, offset: u64, bytes: usize) -> io::Error {
        let now = self.file.metadata().map_or_else(|e| e.to_string(), |kind| format!("a file of {} bytes", kind.len()));
        let text =
            format!("expected {bytes} bytes at byte {offset}, found {now}: the file was truncated while it was read");
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

    fn next_hole(&self, offset: u64) -> io::Result<u64> {
        disk::next_hole(&self.file, offset)
    }

    fn drop_cache(&self, part: std::ops::Range<u64>) {
        disk::drop_cache(&self.file, part);
    }

    #[cfg(unix)]
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.check(offset, buf.len())?;
        std::os::unix::fs::FileExt::read_exact_at(&self.file, buf, offset)
            .map_err(|e| if e.kind() == io::ErrorKind::UnexpectedEof { self.truncated(offset, buf.len()) } else { e })
    }

    #[cfg(windows)]
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        self.check(offset, buf.len())?;
        while !buf.is_empty() {
            match std::os::windows::fs::FileExt::seek_read(&self.file, buf, offset)? {
                0 => return Err(self.truncated(offset, buf.len())),
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
        // The system reads ahead of a sequential reader, but shortens a request for the whole file.
        let mut buf = vec![0; 1 << 20];
        for at in (0..self.len).step_by(buf.len()) {
            let len = usize_of(self.len - at).min(buf.len());
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
