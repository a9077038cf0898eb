//! An open index file: puts, entries, flushing. Opening is in `open`, lookups are in `lookup`.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use super::bytes::{Bytes, on_bytes, on_writable};
use super::last_warm::LastWarm;
use crate::error::{Error, Result};
use crate::hash_index::format::answers::Answers;
use crate::hash_index::format::entry::{Entries, Entry};
use crate::hash_index::format::geometry::{ENTRY_LEN, Geometry};
use crate::hash_index::format::header::Header;
use crate::hash_index::key_hash::java_hash::{KeySource, key_hash};
use crate::hash_index::read::select::{self, View};
use crate::hash_index::repair::verify;
use crate::hash_index::write::bulk::{CHUNK, put_bulk};
use crate::hash_index::write::put::{PutColumns, put_one, read_header};
use crate::io::Location;
use crate::io::disk::sync_parent;
use crate::io::fork::Generation;
use crate::io::{FirstFailure, ReadAt, WriteAt};
use crate::report::Report;

/// An open index file. Any number of threads may read it; puts run one after the other.
#[derive(Debug)]
pub struct IndexFile {
    pub(super) path: Location,
    pub(super) bytes: Bytes,
    /// Length on disk when it was opened.
    pub(super) file_len: u64,
    pub(super) geometry: Geometry,
    pub(super) answers: Answers,
    pub(super) last_exit_ok: bool,
    /// True if the repair at opening changed the file.
    pub(super) repaired: bool,
    /// Puts, one at a time; holds the lock of the file.
    pub(super) writer: Option<Mutex<File>>,
    /// The process that opened the file. A forked child shares the bytes and must not write them.
    pub(super) process: Generation,
    /// The directory entry of a new file is not synced yet.
    pub(super) is_new: AtomicBool,
    pub(super) last_warm: LastWarm,
    /// The first put or flush that failed.
    pub(super) failure: FirstFailure,
}

impl IndexFile {
    /// Puts one key. Returns false if the file is full; then nothing changes. Source: `IndexFile#putKey`.
    ///
    /// # Errors
    /// As [`Self::put_batch`].
    pub fn put_key(&self, key: &str, phy_offset: i64, store_timestamp: i64) -> Result<bool> {
        self.put_hash(key_hash(key), phy_offset, store_timestamp)
    }

    /// Puts one key by its hash, as [`Self::put_key`].
    ///
    /// # Errors
    /// As [`Self::put_batch`].
    pub fn put_hash(&self, key_hash: i32, phy_offset: i64, store_timestamp: i64) -> Result<bool> {
        let one_at_a_time = self.writer()?.lock().unwrap_or_else(PoisonError::into_inner);
        self.put_alone(&one_at_a_time, key_hash, phy_offset, store_timestamp)
    }

    /// Puts as [`Self::put_hash`] does if no other thread puts; `None`: another thread does.
    ///
    /// # Errors
    /// As [`Self::put_batch`].
    pub fn try_put_hash(&self, key_hash: i32, phy_offset: i64, store_timestamp: i64) -> Result<Option<bool>> {
        let one_at_a_time = match self.writer()?.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(guard)) => guard.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        self.put_alone(&one_at_a_time, key_hash, phy_offset, store_timestamp).map(Some)
    }

    #[inline]
    fn put_alone(
        &self,
        _one_at_a_time: &MutexGuard<'_, File>,
        key_hash: i32,
        phy_offset: i64,
        store_timestamp: i64,
    ) -> Result<bool> {
        self.failure.check()?;
        let put = on_writable!(&self.bytes, target => {
            read_header(target)
                .and_then(|mut h| put_one(target, self.geometry, &mut h, key_hash, phy_offset, store_timestamp))
        });
        self.failure.keep(put.map_err(|e| Error::write_failed(&self.path, e)))
    }

    /// Puts the rows from `start` on; returns how many were put: all, unless the file became full.
    ///
    /// # Errors
    /// `InvalidArgument` if the file is open for reading, if another process opened it, or if the columns differ in length;
    /// `WriteFailed`, also of an earlier put or flush.
    pub fn put_batch<K: KeySource + ?Sized>(&self, columns: &PutColumns<'_, K>, start: usize) -> Result<usize> {
        self.put_batch_threads(columns, start, 1)
    }

    /// [`Self::put_batch`] by several threads, with the same bytes. Worthwhile for tens of thousands of rows.
    ///
    /// # Errors
    /// As [`Self::put_batch`].
    pub fn put_batch_threads<K: KeySource + ?Sized>(
        &self,
        columns: &PutColumns<'_, K>,
        start: usize,
        threads: usize,
    ) -> Result<usize> {
        let rows = columns.keys.len();
        if columns.phy_offsets.len() != rows || columns.store_timestamps.len() != rows {
            return Err(Error::InvalidArgument(format!(
                "columns differ in length: {rows} keys, {} phy_offsets, {} store_timestamps",
                columns.phy_offsets.len(),
                columns.store_timestamps.len()
            )));
        }
        let _one_at_a_time = self.writer()?.lock().unwrap_or_else(PoisonError::into_inner);
        self.failure.check()?;
        let put = on_writable!(&self.bytes, target => {
            put_bulk(target, self.geometry, columns, start, threads, CHUNK)
        });
        self.failure.keep(put.map_err(|e| Error::write_failed(&self.path, e)))
    }

    #[inline]
    fn writer(&self) -> Result<&Mutex<File>> {
        match &self.writer {
            Some(writer) if self.process.is_current() => Ok(writer),
            _ => Err(self.not_writable()),
        }
    }

    #[cold]
    fn not_writable(&self) -> Error {
        let is_for_reading = || Error::InvalidArgument(format!("{} is open for reading", self.path.display()));
        self.process.check_writer(&self.path).err().filter(|_| self.is_writable()).unwrap_or_else(is_for_reading)
    }

    /// The current header. A file without a whole header reads as if it were extended with zeros.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn header(&self) -> Result<Header> {
        on_bytes!(&self.bytes, source => Header::read(source)).map_err(|e| Error::io(&self.path, e))
    }

    /// Number of entries, by the count of the header.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn len(&self) -> Result<u32> {
        Ok(self.header()?.next_position() - 1)
    }

    /// True if there is no entry.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn is_empty(&self) -> Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// True if no further entry can be put. Source: `IndexFile#isWriteFull`.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn is_full(&self) -> Result<bool> {
        Ok(self.header()?.next_position() >= self.geometry.max_entries())
    }

    /// The entries from `position` on, within the count and the file, at most `limit`.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn read_entries(&self, position: u32, limit: u32) -> Result<Vec<Entry>> {
        let end = self.header()?.next_position().min(self.geometry.entries_within(self.file_len));
        let end = end.min(position.saturating_add(limit));
        let len = ENTRY_LEN * u64::from(end.saturating_sub(position));
        on_bytes!(&self.bytes, source => {
            source.will_need(self.geometry.entry(position), len);
            let entries = Entries::new(source, self.geometry, position..end);
            entries.map(|read| read.map(|(_, entry)| entry)).collect::<io::Result<_>>()
        })
        .map_err(|e| Error::io(&self.path, e))
    }

    /// Returns a function from position and time difference of an entry to the first millisecond of the second in which its message
    /// was stored; `None` if the entry does not store it.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn seconds(&self) -> Result<impl Fn(u32, i32) -> Option<i64> + use<>> {
        let times = on_bytes!(&self.bytes, source => {
            View::new(source, self.geometry, self.file_len).and_then(|view| view.times())
        });
        let times = times.map_err(|e| Error::io(&self.path, e))?;
        Ok(move |position, time_diff| times.second(position, time_diff))
    }

    /// The store time to show for an entry, in milliseconds. With the broker's answers, entry 1 too has the time that the
    /// broker computes (B3).
    pub fn shown_time(&self, header: &Header, position: u32, entry: &Entry) -> i64 {
        if self.answers.are_the_brokers() {
            return crate::hash_index::format::entry::broker_time(header.begin_timestamp, entry.time_diff);
        }
        select::shown_time(header, position, entry.time_diff)
    }

    /// Checks the whole file. Linear.
    ///
    /// # Errors
    /// Errors of the system. Findings about the bytes are in the result.
    pub fn verify(&self) -> Result<Report> {
        on_bytes!(&self.bytes, source => {
            source.load();
            verify::verify(&self.path, source, self.geometry, self.file_len)
        })
        .map_err(|e| Error::io(&self.path, e))
    }

    /// Rewrites the header as the broker does (a count of 0 becomes 1) and flushes the whole file to disk.
    ///
    /// Source: `IndexFile#flush`. Does nothing for a file that is open for reading.
    ///
    /// # Errors
    /// `InvalidArgument` if another process opened it; `WriteFailed`, also of an earlier put or flush.
    pub fn flush(&self) -> Result<()> {
        if !self.is_writable() {
            return Ok(());
        }
        {
            let _one_at_a_time = self.writer()?.lock().unwrap_or_else(PoisonError::into_inner);
            self.failure.check()?;
            let flushed = on_writable!(&self.bytes, target => flush_file(target));
            self.failure.keep(flushed.map_err(|e| Error::write_failed(&self.path, e)))?;
        }
        if self.is_new.load(Ordering::Relaxed) {
            self.failure.keep(sync_parent(&self.path))?;
            self.is_new.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Slots and entries.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The path of the file.
    pub fn path(&self) -> &Location {
        &self.path
    }

    /// Whose answers.
    pub fn answers(&self) -> Answers {
        self.answers
    }

    /// False if the file was opened as left by a crash.
    pub fn last_exit_ok(&self) -> bool {
        self.last_exit_ok
    }

    /// Returns whether opening repaired the effects of a power loss: in the file, or in memory if it is open for reading.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn is_repaired(&self) -> Result<bool> {
        match &self.bytes {
            Bytes::Repaired(shown) => shown.differs().map_err(|e| Error::io(&self.path, e)),
            _ => Ok(self.repaired),
        }
    }

    /// True if puts are possible.
    pub fn is_writable(&self) -> bool {
        self.writer.is_some()
    }

    /// True if the file is mapped.
    pub fn is_mapped(&self) -> bool {
        match &self.bytes {
            Bytes::Mapped(_) => true,
            Bytes::Plain(_) | Bytes::Remote(_) => false,
            Bytes::Extended(f) => f.base.is_mapped(),
            Bytes::Repaired(f) => f.base.is_mapped(),
        }
    }

    /// Disk space reserved for puts, in bytes.
    pub fn reserved_bytes(&self) -> u64 {
        if self.is_writable() { self.file_len } else { 0 }
    }
}

fn flush_file(target: &impl WriteAt) -> io::Result<()> {
    let mut header = Header::read(target)?;
    if header.index_count <= 0 {
        header.index_count = 1;
        header.write_counts(target)?;
    }
    target.flush(0, target.len())
}
