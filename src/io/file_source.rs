//! An open file: mapped, plain, remote, or stored in chunks.

use std::fs::File;
use std::io;
use std::path::Path;

use super::chunked_file::ChunkedFile;
use super::mmap::FileMap;
use super::plain_file::PlainFile;
use super::remote::RemoteFile;
use super::source::{ReadAt, WriteAt};
use crate::error::{Error, Result};

/// The way to read and write the bytes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// A map, or `pread`/`pwrite` if mapping fails.
    #[default]
    Auto,
    /// A map or an error.
    Mmap,
    /// `pread`/`pwrite`: slower, but a file that shrinks is an error, not a signal.
    Pread,
}

/// An open file: mapped, plain, remote, or stored in chunks.
#[derive(Debug)]
pub enum FileSource {
    /// Read and written through a map.
    Mapped(FileMap),
    /// Read and written with `pread` and `pwrite`.
    Plain(PlainFile),
    /// Read by requests, never written.
    Remote(RemoteFile),
    /// Read by chunks that are decoded, never written.
    Chunked(Box<ChunkedFile<FileSource>>),
}

impl FileSource {
    /// Returns whether a read needs no request to another machine.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Self::Mapped(_) | Self::Plain(_))
    }

    /// Maps an open file, or takes it as a plain one. An empty file cannot be mapped, so it is plain for every `access`.
    ///
    /// # Errors
    /// An I/O error, with the path; with `Access::Auto` a failed map is not an error.
    pub fn new(file: File, path: &Path, writable: bool, access: Access) -> Result<Self> {
        let len = file.metadata().map_err(|e| Error::io(path, e))?.len();
        if access != Access::Pread && len > 0 {
            match FileMap::new(&file, writable) {
                Ok(map) => return Ok(Self::Mapped(map)),
                Err(e) if access == Access::Mmap => return Err(Error::io(path, e)),
                Err(_) => {}
            }
        }
        Ok(Self::Plain(PlainFile::new(file).map_err(|e| Error::io(path, e))?))
    }

    /// True if the file is mapped.
    pub fn is_mapped(&self) -> bool {
        matches!(self, Self::Mapped(_))
    }
}

/// Calls the same method of each kind.
macro_rules! each {
    ($self:ident, $file:ident => $call:expr) => {
        match $self {
            Self::Mapped($file) => $call,
            Self::Plain($file) => $call,
            Self::Remote($file) => $call,
            Self::Chunked($file) => $call,
        }
    };
}

/// Calls the same method of each kind that is written.
macro_rules! written {
    ($self:ident, $file:ident => $call:expr) => {
        match $self {
            Self::Mapped($file) => $call,
            Self::Plain($file) => $call,
            // No caller opens it for writing.
            Self::Remote(_) | Self::Chunked(_) => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
        }
    };
}

impl ReadAt for FileSource {
    fn len(&self) -> u64 {
        each!(self, f => f.len())
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        each!(self, f => f.next_data(offset))
    }

    fn next_hole(&self, offset: u64) -> io::Result<u64> {
        each!(self, f => f.next_hole(offset))
    }

    fn drop_cache(&self, part: std::ops::Range<u64>) {
        each!(self, f => f.drop_cache(part));
    }

    #[inline]
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        each!(self, f => f.read_exact_at(buf, offset))
    }

    #[inline]
    fn words<const N: usize>(&self, offset: u64) -> io::Result<[u32; N]> {
        each!(self, f => f.words(offset))
    }

    fn word_run(&self, offset: u64, words: &mut [u32]) -> io::Result<()> {
        each!(self, f => f.word_run(offset, words))
    }

    #[inline]
    fn long(&self, offset: u64) -> io::Result<u64> {
        each!(self, f => f.long(offset))
    }

    #[inline]
    fn acquire(&self, offset: u64) -> io::Result<u32> {
        each!(self, f => f.acquire(offset))
    }

    fn is_in_memory(&self, offset: u64) -> bool {
        each!(self, f => f.is_in_memory(offset))
    }

    fn is_far(&self) -> bool {
        match self {
            Self::Mapped(_) | Self::Plain(_) => false,
            Self::Remote(f) => f.is_far(),
            Self::Chunked(f) => f.is_far(),
        }
    }

    fn will_need(&self, offset: u64, len: u64) {
        each!(self, f => f.will_need(offset, len));
    }

    fn load(&self) {
        each!(self, f => f.load());
    }
}

impl WriteAt for FileSource {
    #[inline]
    fn put_words<const N: usize>(&self, offset: u64, words: [u32; N]) -> io::Result<()> {
        written!(self, f => f.put_words(offset, words))
    }

    #[inline]
    fn put_long(&self, offset: u64, value: u64) -> io::Result<()> {
        written!(self, f => f.put_long(offset, value))
    }

    #[inline]
    fn publish(&self, offset: u64, word: u32) -> io::Result<()> {
        written!(self, f => f.publish(offset, word))
    }

    #[inline]
    fn put_records<const N: usize>(
        &self,
        offset: u64,
        count: usize,
        records: impl Iterator<Item = [u8; N]>,
    ) -> io::Result<()> {
        written!(self, f => f.put_records(offset, count, records))
    }

    fn flush(&self, offset: u64, len: u64) -> io::Result<()> {
        written!(self, f => f.flush(offset, len))
    }
}
