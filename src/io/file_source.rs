//! An open file: mapped, plain, remote, or stored in chunks.

use std::fs::File;
use std::io;
use std::path::Path;

use super::chunked_file::ChunkedFile;
use super::mmap::MappedFile;
use super::mounts::{self, Content};
use super::plain_file::PlainFile;
use super::regular_file::open_file;
use super::remote::{RemoteFile, is_remote};
use super::source::{ReadAt, WriteAt};
use crate::error::{Error, Result};

/// How the bytes of a file are read and written.
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
    Mapped(MappedFile),
    /// Read and written with `pread` and `pwrite`.
    Plain(PlainFile),
    /// Read by requests, never written.
    Remote(RemoteFile),
    /// Read by chunks that are decoded, never written.
    Chunked(Box<ChunkedFile<FileSource>>),
}

/// The error of a write to a file of another kind, which no caller opens for writing.
fn read_only() -> io::Error {
    io::ErrorKind::ReadOnlyFilesystem.into()
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
            match MappedFile::new(&file, writable) {
                Ok(map) => return Ok(Self::Mapped(map)),
                Err(e) if access == Access::Mmap => return Err(Error::io(path, e)),
                Err(_) => {}
            }
        }
        Ok(Self::Plain(PlainFile::new(file).map_err(|e| Error::io(path, e))?))
    }

    /// Opens a file for reading by `access`, which counts for local files.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn open(path: &Path, access: Access) -> Result<Self> {
        if let Some(found) = mounts::tree(path) {
            return Self::of(found.and_then(|(tree, path)| tree.content(path))?, access);
        }
        if is_remote(path) {
            return RemoteFile::open(path).map(Self::Remote);
        }
        Self::new(open_file(path, false)?, path, false, access)
    }

    /// Opens the file that has these bytes.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn of(content: Content, access: Access) -> Result<Self> {
        match content {
            Content::Whole(path) => Self::open(&path, access),
            Content::Chunks(stored) => {
                let source = Self::open(&stored.path, access)?;
                Ok(Self::Chunked(Box::new(ChunkedFile::new(source, stored))))
            }
        }
    }

    /// True if the file is mapped.
    pub fn is_mapped(&self) -> bool {
        matches!(self, Self::Mapped(_))
    }
}

impl ReadAt for FileSource {
    fn len(&self) -> u64 {
        match self {
            Self::Mapped(f) => f.len(),
            Self::Plain(f) => f.len(),
            Self::Remote(f) => f.len(),
            Self::Chunked(f) => f.len(),
        }
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        match self {
            Self::Mapped(f) => f.next_data(offset),
            Self::Plain(f) => f.next_data(offset),
            Self::Remote(f) => f.next_data(offset),
            Self::Chunked(f) => f.next_data(offset),
        }
    }

    fn next_hole(&self, offset: u64) -> io::Result<u64> {
        match self {
            Self::Mapped(f) => f.next_hole(offset),
            Self::Plain(f) => f.next_hole(offset),
            Self::Remote(f) => f.next_hole(offset),
            Self::Chunked(f) => f.next_hole(offset),
        }
    }

    fn drop_cache(&self, part: std::ops::Range<u64>) {
        match self {
            Self::Mapped(f) => f.drop_cache(part),
            Self::Plain(f) => f.drop_cache(part),
            Self::Remote(f) => f.drop_cache(part),
            Self::Chunked(f) => f.drop_cache(part),
        }
    }

    #[inline]
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::Mapped(f) => f.read_exact_at(buf, offset),
            Self::Plain(f) => f.read_exact_at(buf, offset),
            Self::Remote(f) => f.read_exact_at(buf, offset),
            Self::Chunked(f) => f.read_exact_at(buf, offset),
        }
    }

    #[inline]
    fn words<const N: usize>(&self, offset: u64) -> io::Result<[u32; N]> {
        match self {
            Self::Mapped(f) => f.words(offset),
            Self::Plain(f) => f.words(offset),
            Self::Remote(f) => f.words(offset),
            Self::Chunked(f) => f.words(offset),
        }
    }

    fn word_run(&self, offset: u64, words: &mut [u32]) -> io::Result<()> {
        match self {
            Self::Mapped(f) => f.word_run(offset, words),
            Self::Plain(f) => f.word_run(offset, words),
            Self::Remote(f) => f.word_run(offset, words),
            Self::Chunked(f) => f.word_run(offset, words),
        }
    }

    #[inline]
    fn long(&self, offset: u64) -> io::Result<u64> {
        match self {
            Self::Mapped(f) => f.long(offset),
            Self::Plain(f) => f.long(offset),
            Self::Remote(f) => f.long(offset),
            Self::Chunked(f) => f.long(offset),
        }
    }

    #[inline]
    fn acquire(&self, offset: u64) -> io::Result<u32> {
        match self {
            Self::Mapped(f) => f.acquire(offset),
            Self::Plain(f) => f.acquire(offset),
            Self::Remote(f) => f.acquire(offset),
            Self::Chunked(f) => f.acquire(offset),
        }
    }

    fn is_in_memory(&self, offset: u64) -> bool {
        match self {
            Self::Mapped(f) => f.is_in_memory(offset),
            Self::Plain(f) => f.is_in_memory(offset),
            Self::Remote(f) => f.is_in_memory(offset),
            Self::Chunked(f) => f.is_in_memory(offset),
        }
    }

    fn is_far(&self) -> bool {
        match self {
            Self::Mapped(_) | Self::Plain(_) => false,
            Self::Remote(f) => f.is_far(),
            Self::Chunked(f) => f.is_far(),
        }
    }

    fn will_need(&self, offset: u64, len: u64) {
        match self {
            Self::Mapped(f) => f.will_need(offset, len),
            Self::Plain(f) => f.will_need(offset, len),
            Self::Remote(f) => f.will_need(offset, len),
            Self::Chunked(f) => f.will_need(offset, len),
        }
    }

    fn load(&self) {
        match self {
            Self::Mapped(f) => f.load(),
            Self::Plain(f) => f.load(),
            Self::Remote(f) => f.load(),
            Self::Chunked(f) => f.load(),
        }
    }
}

impl WriteAt for FileSource {
    #[inline]
    fn put_words<const N: usize>(&self, offset: u64, words: [u32; N]) -> io::Result<()> {
        match self {
            Self::Mapped(f) => f.put_words(offset, words),
            Self::Plain(f) => f.put_words(offset, words),
            Self::Remote(_) | Self::Chunked(_) => Err(read_only()),
        }
    }

    #[inline]
    fn put_long(&self, offset: u64, value: u64) -> io::Result<()> {
        match self {
            Self::Mapped(f) => f.put_long(offset, value),
            Self::Plain(f) => f.put_long(offset, value),
            Self::Remote(_) | Self::Chunked(_) => Err(read_only()),
        }
    }

    #[inline]
    fn publish(&self, offset: u64, word: u32) -> io::Result<()> {
        match self {
            Self::Mapped(f) => f.publish(offset, word),
            Self::Plain(f) => f.publish(offset, word),
            Self::Remote(_) | Self::Chunked(_) => Err(read_only()),
        }
    }

    #[inline]
    fn put_records<const N: usize>(
        &self,
        offset: u64,
        count: usize,
        records: impl Iterator<Item = [u8; N]>,
    ) -> io::Result<()> {
        match self {
            Self::Mapped(f) => f.put_records(offset, count, records),
            Self::Plain(f) => f.put_records(offset, count, records),
            Self::Remote(_) | Self::Chunked(_) => Err(read_only()),
        }
    }

    fn flush(&self, offset: u64, len: u64) -> io::Result<()> {
        match self {
            Self::Mapped(f) => f.flush(offset, len),
            Self::Plain(f) => f.flush(offset, len),
            Self::Remote(_) | Self::Chunked(_) => Err(read_only()),
        }
    }
}
