//! The file of an index: entries of one size, without header, count or checksum.
//!
//! The number of valid entries is not stored. The broker uses all entries of an existing file ([`Check::Trust`]). That is
//! right for a trimmed file. It is wrong for a file that a crash left at its full size, with zeros or old entries after the
//! valid ones. [`Check::Verify`] uses the longest prefix that can be valid; the valid entries are always a prefix.
//!
//! The entries are copied to memory when the file is opened, because the broker may truncate the file at any time. They are read
//! with `pread` and written with `pwrite`, so that a file that shrinks or a full disk is an error and not a signal.

use std::fs::File;
use std::path::Path;

use crate::error::{Error, Result};
use crate::io::Location;
use crate::io::disk::{NewFile, lock_writer, write_all_at};
use crate::io::fork::Generation;
use crate::io::regular_file::open_file;
use crate::io::{Access, FileSource, ReadAt};
use crate::kafka::format::names::base_offset;

/// The longest file that the broker can map.
const MOST_BYTES: u64 = 2_147_483_647;
/// Bytes of one read: a multiple of both entry sizes.
const CHUNK: usize = 8 * 12 * 1024;

/// Which entries of an existing file are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The longest prefix that can be valid.
    Verify,
    /// All entries, as the broker does.
    Trust,
}

/// Options to open an index.
#[derive(Clone, Copy, Debug)]
pub struct IndexOptions {
    /// Open for appends as well.
    pub write: bool,
    /// Which entries are used.
    pub check: Check,
    /// Offset that entries are relative to; `None`: taken from the file's name.
    pub base_offset: Option<i64>,
    /// Length of the log that the entries point into, if it is known.
    pub log_len: Option<u64>,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self { write: false, check: Check::Verify, base_offset: None, log_len: None }
    }
}

/// The file of an index.
#[derive(Debug)]
pub struct IndexFile {
    pub(crate) path: Location,
    pub(crate) base_offset: i64,
    pub(crate) len: u64,
    entry_size: u64,
    /// Entries that are not in the file yet, and the place of the first of them.
    pending: Vec<u8>,
    pending_at: u64,
    /// Entries wait for [`Self::write`].
    defers: bool,
    writer: Option<File>,
    /// The process that opened the file. A forked child has the same file, but not the entries that the parent adds.
    process: Generation,
}

impl IndexFile {
    /// Opens a file, and calls `take` with each whole entry until it returns false.
    pub(crate) fn open<const N: usize>(
        path: &Location,
        options: &IndexOptions,
        mut take: impl FnMut(&[u8; N]) -> bool,
    ) -> Result<Self> {
        let base_offset = options.base_offset.or_else(|| base_offset(path)).ok_or_else(|| {
            Error::InvalidArgument(format!("{}: the name does not begin with a base offset", path.display()))
        })?;
        let (writer, source) = if options.write {
            let file = open_file(path.local()?, true)?;
            (Some(lock_writer(path, &file)?), FileSource::new(file, path, false, Access::Pread)?)
        } else {
            (None, FileSource::open(path, Access::Pread)?)
        };
        let len = source.len();
        if len > MOST_BYTES {
            return Err(Error::corrupt(
                path,
                MOST_BYTES,
                format!("at most {MOST_BYTES} bytes"),
                format!("{len} bytes"),
            ));
        }
        let mut chunk = vec![0; CHUNK];
        let mut at = 0;
        'file: while at < len {
            let bytes = chunk.get_mut(..usize::try_from(len - at).unwrap_or(CHUNK).min(CHUNK)).unwrap_or_default();
            source.read_exact_at(bytes, at).map_err(|e| Error::io(path, e))?;
            for entry in bytes.as_chunks::<N>().0 {
                if !take(entry) {
                    break 'file;
                }
            }
            at += bytes.len() as u64;
        }
        Ok(Self {
            path: path.to_owned(),
            base_offset,
            len,
            entry_size: N as u64,
            pending: Vec::new(),
            pending_at: 0,
            defers: false,
            writer,
            process: Generation::current(),
        })
    }

    /// Creates a file of zeros, for as many whole entries as fit in `max_bytes`.
    ///
    /// Source: `AbstractIndex#createAndAssignMmap`.
    pub(crate) fn create(path: &Path, base_offset: i64, max_bytes: u64, entry_size: u64) -> Result<Self> {
        if max_bytes < entry_size || max_bytes > MOST_BYTES {
            let text = format!("max_bytes={max_bytes}: expected {entry_size} to {MOST_BYTES}");
            return Err(Error::InvalidArgument(text));
        }
        let new = NewFile::create(path)?;
        let writer = lock_writer(path, new.file())?;
        let len = max_bytes - max_bytes % entry_size;
        writer.set_len(len).map_err(|e| Error::io(path, e))?;
        new.publish()?;
        let process = Generation::current();
        let (path, writer) = (path.into(), Some(writer));
        Ok(Self {
            path,
            base_offset,
            len,
            entry_size,
            pending: Vec::new(),
            pending_at: 0,
            defers: false,
            writer,
            process,
        })
    }

    /// Number of entries that fit in the file.
    pub(crate) fn max_entries(&self) -> u64 {
        self.len / self.entry_size
    }

    fn writer(&self) -> Result<&File> {
        let writer = self
            .writer
            .as_ref()
            .ok_or_else(|| Error::InvalidArgument(format!("{}: opened for reading only", self.path.display())))?;
        self.process.check_writer(&self.path)?;
        Ok(writer)
    }

    /// Returns an offset relative to the base offset, if it fits in an entry. Source: `AbstractIndex#relativeOffset`.
    pub(crate) fn relative(&self, offset: i64) -> Result<i32> {
        offset.checked_sub(self.base_offset).and_then(|r| i32::try_from(r).ok()).filter(|r| *r >= 0).ok_or_else(|| {
            let (path, base) = (self.path.display(), self.base_offset);
            Error::InvalidArgument(format!("{path}: offset {offset}: expected {base} to {base} + {}", i32::MAX))
        })
    }

    /// Adds an entry after `entries` other ones.
    pub(crate) fn put(&mut self, entries: usize, bytes: &[u8]) -> Result<()> {
        let at = entries as u64 * self.entry_size;
        if !self.defers {
            return write_all_at(self.writer()?, bytes, at).map_err(|e| Error::io(&self.path, e));
        }
        if self.pending.is_empty() {
            self.pending_at = at;
        }
        self.pending.extend(bytes);
        Ok(())
    }

    /// From now on entries wait for [`Self::write`].
    pub(crate) fn defer(&mut self) {
        self.defers = true;
    }

    /// Writes the entries that wait. After an error they still wait.
    pub(crate) fn write(&mut self) -> Result<()> {
        if !self.pending.is_empty() {
            write_all_at(self.writer()?, &self.pending, self.pending_at).map_err(|e| Error::io(&self.path, e))?;
            self.pending.clear();
        }
        Ok(())
    }

    /// Checks that the file is open for appends.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.writer().map(|_| ())
    }

    /// Resize the file to whole entries; false if it has that length already. Source: `AbstractIndex#resize`.
    ///
    /// Unlike the broker, it returns an error before it would truncate valid entries, not after.
    pub(crate) fn resize(&mut self, max_bytes: u64, entries: usize) -> Result<bool> {
        let len = max_bytes - max_bytes % self.entry_size;
        let file = self.writer()?;
        if len == self.len {
            return Ok(false);
        }
        let used = entries as u64 * self.entry_size;
        if used > len || len > MOST_BYTES {
            let text = format!("{}: new length {len}: expected {used} to {MOST_BYTES}", self.path.display());
            return Err(Error::InvalidArgument(text));
        }
        file.set_len(len).map_err(|e| Error::io(&self.path, e))?;
        self.len = len;
        Ok(true)
    }

    pub(crate) fn flush(&self) -> Result<()> {
        if self.writer.is_none() {
            return Ok(());
        }
        self.writer()?.sync_data().map_err(|e| Error::io(&self.path, e))
    }

    /// Checks that the file ends with a whole entry. Source: `OffsetIndex#sanityCheck`, `TimeIndex#sanityCheck`.
    pub(crate) fn check_len(&self) -> Result<()> {
        if self.len.is_multiple_of(self.entry_size) {
            return Ok(());
        }
        let expected = format!("a length that is a multiple of {}", self.entry_size);
        Err(Error::corrupt(&self.path, self.len, expected, format!("{} bytes", self.len)))
    }
}
