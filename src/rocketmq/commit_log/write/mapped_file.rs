//! One file of a log that is being written, and where appended bytes go (upstream `MappedFile`).
//!
//! ```text
//! write:  append --pwrite--> file                                    --flush (fdatasync)--> disk
//! mapped: append --copy--> map of the file                           --flush (msync)-->     disk
//! pool:   append --copy--> buffer --commit (pwrite)--> file          --flush (fdatasync)--> disk
//!         wrote_position           committed_position                flushed_position
//! ```
//!
//! Without a buffer both of the first positions are equal. Readers see what is committed.

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::options::{Append, AppendMode, FlushMode, WriterOptions};
use super::transient_store_pool::{BorrowedBuffer, TransientStorePool, lock};
use crate::error::{Error, Result};
use crate::io::disk::{self, Parent};
use crate::io::regular_file::open_file;
use crate::io::{FileMap, ReadAt as _, WriteAt as _, usize_of};
use crate::rocketmq::file_name;
use crate::rocketmq::offset_files::{self, Space};

/// Upstream `MappedFile.OS_PAGE_SIZE`.
const OS_PAGE_SIZE: usize = 4096;
/// Upstream `flushLeastPagesWhenWarmMapedFile`.
const FLUSH_LEAST_PAGES_WHEN_WARM: usize = 4096;
/// Pages between two pauses while a file is warmed.
const YIELD_PAGES: usize = 1000;
/// Bytes that a commit copies at a time.
const COMMIT_BYTES: u64 = 1 << 20;

/// The options with which the files of a log are opened.
#[derive(Debug)]
pub(super) struct MappedFileOptions {
    pub(super) directory: PathBuf,
    pub(super) file_size: u64,
    pub(super) append: Append,
    /// While a file is warmed its pages are written to the disk.
    flush_when_warm: bool,
    pool: Arc<TransientStorePool>,
}

impl MappedFileOptions {
    pub(super) fn new(directory: &Path, options: WriterOptions) -> Self {
        let WriterOptions { file_size, append, flush, .. } = options;
        Self {
            directory: directory.to_owned(),
            file_size,
            append,
            flush_when_warm: flush == FlushMode::Sync,
            pool: TransientStorePool::new(file_size, append.lock_memory),
        }
    }

    pub(super) fn path(&self, start: u64) -> PathBuf {
        self.directory.join(file_name::of_offset(start))
    }
}

/// The target of appended bytes.
#[derive(Debug)]
enum Target {
    File,
    Map(FileMap),
    /// `None` after the buffer was returned: the file then takes the bytes.
    Buffer(Mutex<Option<Arc<BorrowedBuffer>>>),
}

/// A file. One thread appends; others commit and flush meanwhile.
#[derive(Debug)]
pub(super) struct MappedFile {
    path: PathBuf,
    /// Offset in the log of its first byte.
    pub(super) file_from_offset: u64,
    file: File,
    target: Target,
    /// Position after the last byte that was appended. The space after a BLANK frame is never appended.
    wrote_position: AtomicU64,
    committed_position: AtomicU64,
    flushed_position: AtomicU64,
    /// False for a file that a broker or another writer left.
    created: bool,
}

impl MappedFile {
    /// Opens the file that begins at an offset, or creates it, with its space reserved. A broker that was killed leaves the next
    /// file: it is used. `unwanted` ends the warming.
    ///
    /// # Errors
    /// An I/O error, for example `StorageFull`, with the path; `WriteFailed` if the name of a new file cannot be synced;
    /// `Corrupt` for a file of another length.
    pub(super) fn init(options: &MappedFileOptions, file_from_offset: u64, unwanted: &AtomicBool) -> Result<Self> {
        let path = options.path(file_from_offset);
        let fail = |e| Error::io(&path, e);
        // First, so that no file is created without it.
        let buffer = match options.append.mode {
            AppendMode::Pool => options.pool.borrow_buffer(&path)?,
            AppendMode::Write | AppendMode::Mapped => None,
        };
        let (file, created) = match open_file(&path, true) {
            Err(error) if error.is_missing() => {
                fs::create_dir_all(&options.directory).map_err(|e| Error::io(&options.directory, e))?;
                let parent = Parent::open(&path)?;
                let file = offset_files::create(&path, options.file_size, Space::Reserved)?;
                parent.sync()?;
                (file, true)
            }
            opened => {
                let file = opened?;
                let len = file.metadata().map_err(fail)?.len();
                if len != options.file_size {
                    let expected = format!("{} bytes", options.file_size);
                    return Err(Error::corrupt(&path, 0, expected, format!("{len} bytes")));
                }
                (file, false)
            }
        };
        // Also of a new file: where space cannot be reserved this does not fail, but returns it.
        let is_reserved = disk::reserve(&file, options.file_size).map_err(fail)?;
        let target = match (options.append.mode, buffer) {
            (AppendMode::Write, _) => Target::File,
            (_, Some(buffer)) => Target::Buffer(Mutex::new(Some(Arc::new(buffer)))),
            // COMPAT(rocketmq TransientStorePool#borrowBuffer): without a buffer the file is mapped.
            (_, None) if is_reserved => Target::Map(FileMap::new(&file, true).map_err(fail)?),
            (_, None) => {
                let text = "this file system cannot reserve space, so a store into a map could end the process: expected append \"write\"";
                return Err(fail(std::io::Error::new(std::io::ErrorKind::Unsupported, text)));
            }
        };
        let [wrote_position, committed_position, flushed_position] = [(); 3].map(|()| AtomicU64::new(0));
        let file = Self {
            path,
            file_from_offset,
            file,
            target,
            wrote_position,
            committed_position,
            flushed_position,
            created,
        };
        match file.warm_mapped_file(options, unwanted) {
            Ok(()) => Ok(file),
            Err(error) => {
                file.destroy();
                Err(error)
            }
        }
    }

    /// Brings the pages of a new file into memory, and locks them (upstream `MappedFile#warmMappedFile`, `#mlock`).
    fn warm_mapped_file(&self, options: &MappedFileOptions, unwanted: &AtomicBool) -> Result<()> {
        let Target::Map(map) = &self.target else { return Ok(()) };
        let fail = |e| Error::io(&self.path, e);
        let pages = if options.append.warm && self.created { 0..options.file_size } else { 0..0 };
        let (mut flushed, mut warmed) = (0, 0);
        for (page, position) in (1..).zip(pages.step_by(OS_PAGE_SIZE)) {
            map.put_bytes(&[0], position).map_err(fail)?;
            warmed = position + 1;
            if options.flush_when_warm && page % FLUSH_LEAST_PAGES_WHEN_WARM == 0 {
                map.flush(flushed, warmed - flushed).map_err(|e| Error::write_failed(&self.path, e))?;
                flushed = warmed;
            }
            if page % YIELD_PAGES == 0 {
                std::thread::yield_now();
                if unwanted.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
        }
        if options.flush_when_warm && warmed > flushed {
            map.flush(flushed, warmed - flushed).map_err(|e| Error::write_failed(&self.path, e))?;
        }
        if options.append.lock_memory { lock(map, &self.path, options.file_size) } else { Ok(()) }
    }

    /// Begins to append at a position, before which everything is on the disk.
    pub(super) fn begin_at(&self, position: u64) {
        for each in [&self.wrote_position, &self.committed_position, &self.flushed_position] {
            each.store(position, Ordering::Release);
        }
    }

    /// Appends bytes. The bytes of one put may come in any order.
    ///
    /// # Errors
    /// `WriteFailed`, with the path; some bytes may be written.
    pub(super) fn append_messages_inner(&self, bytes: &[u8], position: u64) -> Result<()> {
        let (appended, in_buffer) = match &self.target {
            Target::File => (disk::write_all_at(&self.file, bytes, position), false),
            Target::Map(map) => (map.put_bytes(bytes, position), false),
            Target::Buffer(buffer) => {
                let buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
                match buffer.as_ref().and_then(|buffer| buffer.memory()) {
                    Some(memory) => (memory.put_bytes(bytes, position), true),
                    None => (disk::write_all_at(&self.file, bytes, position), false),
                }
            }
        };
        appended.map_err(|e| Error::write_failed(&self.path, e))?;
        let end = self.wrote_position().max(position + bytes.len() as u64);
        self.wrote_position.store(end, Ordering::Release);
        if !in_buffer {
            self.committed_position.store(end, Ordering::Release);
        }
        Ok(())
    }

    /// Position after the last byte that was appended.
    pub(super) fn wrote_position(&self) -> u64 {
        self.wrote_position.load(Ordering::Acquire)
    }

    /// Position before which every appended byte is in the file, where readers see it.
    pub(super) fn committed_position(&self) -> u64 {
        self.committed_position.load(Ordering::Acquire)
    }

    /// Position before which every appended byte is on the disk.
    pub(super) fn flushed_position(&self) -> u64 {
        self.flushed_position.load(Ordering::Acquire)
    }

    fn buffer(&self) -> Option<Arc<BorrowedBuffer>> {
        match &self.target {
            Target::Buffer(buffer) => buffer.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            Target::File | Target::Map(_) => None,
        }
    }

    /// Returns whether bytes are appended to a buffer, from which they are committed later.
    pub(super) fn is_buffered(&self) -> bool {
        match &self.target {
            Target::Buffer(buffer) => buffer.lock().unwrap_or_else(PoisonError::into_inner).is_some(),
            Target::File | Target::Map(_) => false,
        }
    }

    /// Returns the buffer, from which everything is committed, to its pool.
    pub(super) fn return_buffer(&self) {
        if let Target::Buffer(buffer) = &self.target {
            drop(buffer.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }

    /// Copies bytes from the buffer to the file.
    ///
    /// # Errors
    /// `WriteFailed`, with the path; some bytes may be written.
    pub(super) fn commit(&self, positions: Range<u64>) -> Result<()> {
        let Some(buffer) = self.buffer() else { return Ok(()) };
        let Some(memory) = buffer.memory() else { return Ok(()) };
        let mut bytes = Vec::new();
        let mut at = positions.start;
        while at < positions.end {
            let len = (positions.end - at).min(COMMIT_BYTES);
            bytes.resize(usize_of(len), 0);
            let copied = memory.read_exact_at(&mut bytes, at);
            let committed = copied.and_then(|()| disk::write_all_at(&self.file, &bytes, at));
            committed.map_err(|e| Error::write_failed(&self.path, e))?;
            at += len;
        }
        self.committed_position.fetch_max(positions.end, Ordering::AcqRel);
        Ok(())
    }

    /// Brings everything before a position to the disk.
    ///
    /// # Errors
    /// `WriteFailed`, with the path.
    pub(super) fn flush(&self, position: u64) -> Result<()> {
        let flushed = self.flushed_position();
        let synced = match &self.target {
            // NOTE: Linux syncs the pages of a map and the file's metadata with it. Others need not.
            Target::Map(map) => map
                .flush(flushed, position.saturating_sub(flushed))
                .and_then(|()| if cfg!(target_os = "linux") { Ok(()) } else { self.file.sync_data() }),
            Target::File | Target::Buffer(_) => self.file.sync_data(),
        };
        synced.map_err(|e| Error::write_failed(&self.path, e))?;
        self.flushed_position.fetch_max(position, Ordering::AcqRel);
        Ok(())
    }

    /// Deletes a file that was created and never used.
    pub(super) fn destroy(self) {
        if self.created {
            // A file of zeros is normal after a kill, too.
            let _ = offset_files::delete_file(&self.path);
        }
    }
}
