//! A segment that is written: the log, and indexes that are opened when they are first needed. Source: `LogSegment`.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use super::new_batch::headers;
use super::refusal::Refusal;
use super::topic_config::TopicConfig;
use crate::error::{Error, Result};
use crate::io::disk::{self, write_all_at};
use crate::io::regular_file::open_file;
use crate::io::{Access, FileSource, i64_of};
use crate::kafka::format::header::{Header, UP_TO_MAGIC};
use crate::kafka::index::index_file::{Check, IndexOptions};
use crate::kafka::index::offset_index::OffsetIndex;
use crate::kafka::index::sparse_index::SparseIndex;
use crate::kafka::index::time_index::{TimeEntry, TimeIndex};
use crate::kafka::index::transaction_index::{self, AbortedTransaction};
use crate::kafka::read::segment::if_exists;
use crate::kafka::read::walk::{Reads, Tail, Walk};

/// The suffixes of a segment's files.
pub(super) const SUFFIXES: [&str; 4] = [".log", ".index", ".timeindex", ".txnindex"];

/// A segment.
#[derive(Debug)]
pub(super) struct WritableSegment {
    pub(super) base_offset: i64,
    directory: PathBuf,
    /// The suffix after the names of its files.
    mark: &'static str,
    file: Arc<File>,
    pub(super) size: u64,
    /// The end of the log that is not in the file yet: a large append has few large writes.
    unwritten: Vec<u8>,
    offset_index: Option<OffsetIndex>,
    time_index: Option<TimeIndex>,
    /// The largest timestamp, once this process has read it.
    largest: Option<TimeEntry>,
    bytes_since_entry: u64,
    created_ms: i64,
    /// The largest timestamp of the first batch.
    first_timestamp: Option<i64>,
    index_bytes: u64,
    interval_bytes: u64,
    jitter_ms: i64,
}

/// Bytes that are written together.
const WRITE_BYTES: usize = 256 << 10;

/// The limits of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct RollParameters {
    pub(super) bytes: u64,
    pub(super) max_timestamp: i64,
    pub(super) last_offset: i64,
    pub(super) now: i64,
}

/// The path of a segment's file.
pub(super) fn file_path(directory: &Path, base_offset: i64, suffix: &str) -> PathBuf {
    directory.join(format!("{base_offset:020}{suffix}"))
}

impl WritableSegment {
    /// Opens a segment, and creates its log if there is none.
    pub(super) fn open(directory: &Path, base_offset: i64, config: &TopicConfig, now: i64) -> Result<Self> {
        Self::open_with(directory, base_offset, "", config, now)
    }

    /// Opens a segment whose files have names that end with `mark`.
    pub(super) fn open_with(
        directory: &Path,
        base_offset: i64,
        mark: &'static str,
        config: &TopicConfig,
        now: i64,
    ) -> Result<Self> {
        let path = file_path(directory, base_offset, &format!(".log{mark}"));
        let (file, size) = if path.exists() {
            let file = open_file(&path, true)?;
            let size = file.metadata().map_err(|e| Error::io(&path, e))?.len();
            (file, size)
        } else {
            let new = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
            let file = new.map_err(|e| Error::io(&path, e))?;
            if config.preallocate {
                file.set_len(config.segment_bytes).map_err(|e| Error::io(&path, e))?;
            }
            (file, 0)
        };
        let jitter = config.segment_jitter_ms.min(config.max_segment_ms());
        Ok(Self {
            base_offset,
            directory: directory.to_owned(),
            mark,
            file: Arc::new(file),
            size,
            offset_index: None,
            time_index: None,
            largest: None,
            bytes_since_entry: 0,
            created_ms: now,
            first_timestamp: None,
            unwritten: Vec::new(),
            index_bytes: config.segment_index_bytes,
            interval_bytes: config.index_interval_bytes,
            jitter_ms: if jitter == 0 { 0 } else { random_below(jitter) },
        })
    }

    pub(super) fn path(&self, suffix: &str) -> PathBuf {
        file_path(&self.directory, self.base_offset, &format!("{suffix}{}", self.mark))
    }

    fn fail(&self, error: std::io::Error) -> Error {
        Error::io(&self.path(".log"), error)
    }

    /// The log's file, to flush it without the writer's lock.
    pub(super) fn file(&self) -> (PathBuf, Arc<File>) {
        (self.path(".log"), Arc::clone(&self.file))
    }

    fn offset_index(&mut self) -> Result<&mut OffsetIndex> {
        if self.offset_index.is_none() {
            self.offset_index = Some(self.open_index()?);
        }
        self.offset_index.as_mut().ok_or_else(|| unreachable_index(&self.directory))
    }

    fn time_index(&mut self) -> Result<&mut TimeIndex> {
        if self.time_index.is_none() {
            self.time_index = Some(self.open_index()?);
        }
        self.time_index.as_mut().ok_or_else(|| unreachable_index(&self.directory))
    }

    /// Opens an index, all entries of which count, or creates it. Source: `AbstractIndex#createAndAssignMmap`.
    fn open_index<I: SparseIndex>(&self) -> Result<I> {
        let path = self.path(I::SUFFIX);
        let options =
            IndexOptions { write: true, check: Check::Trust, base_offset: Some(self.base_offset), log_len: None };
        let mut index = match if_exists(I::open(&path, &options))? {
            Some(index) => index,
            None => I::create(&path, self.base_offset, self.index_bytes)?,
        };
        index.file_mut().defer();
        Ok(index)
    }

    /// The largest timestamp: of the appends of this process, else the last entry of the time index.
    fn largest(&mut self) -> Result<TimeEntry> {
        if let Some(largest) = self.largest {
            return Ok(largest);
        }
        let last = self.time_index()?.last_entry();
        Ok(*self.largest.insert(last))
    }

    /// Source: `#largestTimestamp`.
    pub(super) fn largest_timestamp(&mut self) -> Result<i64> {
        let largest = self.largest()?.timestamp;
        if largest >= 0 {
            return Ok(largest);
        }
        let modified = self.file.metadata().and_then(|file| file.modified()).map_err(|e| self.fail(e))?;
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(i64_of(since.as_millis()))
    }

    /// True if offsets fit in the indexes. Source: `#canConvertToRelativeOffset`.
    fn holds(&self, offset: i64) -> bool {
        offset.checked_sub(self.base_offset).is_some_and(|relative| (0..=i64::from(i32::MAX)).contains(&relative))
    }

    /// Source: `#shouldRoll`.
    pub(super) fn should_roll(&mut self, config: &TopicConfig, append: RollParameters) -> Result<bool> {
        if self.size.saturating_add(append.bytes) > config.segment_bytes {
            return Ok(true);
        }
        if self.size > 0 {
            let first = self.first_timestamp()?;
            let waited =
                if first >= 0 { append.max_timestamp.wrapping_sub(first) } else { append.now - self.created_ms };
            if waited > config.max_segment_ms() - self.jitter_ms {
                return Ok(true);
            }
        }
        Ok(self.offset_index()?.is_full() || self.time_index()?.is_full() || !self.holds(append.last_offset))
    }

    /// The largest timestamp of the first batch; -1: none.
    fn first_timestamp(&mut self) -> Result<i64> {
        if self.first_timestamp.is_none() {
            self.write()?;
            let mut first = None;
            self.walk(0, Reads::Headers, |_, _, header| {
                first = Some(header.max_timestamp);
                Ok(false)
            })?;
            self.first_timestamp = first;
        }
        Ok(self.first_timestamp.unwrap_or(-1))
    }

    /// Calls `take` with each batch from a position on until it returns false. Returns why the walk ended before that.
    pub(super) fn walk(
        &self,
        from: u64,
        reads: Reads,
        mut take: impl FnMut(&mut Walk, &FileSource, &Header) -> Result<bool>,
    ) -> Result<Option<Tail>> {
        let path = self.path(".log");
        let file = self.file.try_clone().map_err(|e| self.fail(e))?;
        let source = FileSource::new(file, &path, false, Access::Pread)?;
        let mut walk = Walk::new(reads, from, self.size);
        loop {
            match walk.next(&source).map_err(|e| Error::io(&path, e))? {
                Ok(header) => {
                    if !take(&mut walk, &source, &header)? {
                        return Ok(None);
                    }
                }
                Err(tail) => return Ok(Some(tail)),
            }
        }
    }

    /// Returns the first batch that ends at an offset or later; `None` if all end before it. Source: `#translateOffset`.
    pub(super) fn translate(&mut self, offset: i64) -> Result<Option<Header>> {
        self.write()?;
        let from = self.offset_index()?.lookup(offset).walk_from();
        let mut found = None;
        let tail = self.walk(from, Reads::Headers, |_, _, header| {
            found = (header.last_offset >= offset).then_some(*header);
            Ok(found.is_none())
        })?;
        self.check_tail(tail.as_ref())?;
        Ok(found)
    }

    /// A log that ends with part of a batch is read up to it, other damage is an error.
    pub(super) fn check_tail(&self, tail: Option<&Tail>) -> Result<()> {
        let flaw = match tail {
            None | Some(Tail::End | Tail::Torn { .. }) => return Ok(()),
            Some(Tail::Zeros { left }) if *left <= UP_TO_MAGIC as u64 => return Ok(()),
            Some(damage @ (Tail::Zeros { .. } | Tail::Size { .. } | Tail::Undecodable(_))) => damage.flaw(),
        };
        let found = flaw.map_or_else(|| "damage".to_owned(), |flaw| flaw.found);
        let text = format!("{found}: open the log without the marker of a clean shutdown, to recover it");
        Err(Error::corrupt(&self.path(".log"), 0, "a batch", text))
    }

    /// Offset after the last batch, as the indexes lead to it. Source: `#readNextOffset`.
    pub(super) fn next_offset(&mut self) -> Result<i64> {
        let last = self.offset_index()?.last_offset();
        let Some(from) = self.translate(last)? else { return Ok(self.base_offset) };
        let mut next = self.base_offset;
        let tail = self.walk(from.position, Reads::Headers, |_, _, header| {
            next = header.last_offset.wrapping_add(1);
            Ok(true)
        })?;
        self.check_tail(tail.as_ref())?;
        Ok(next)
    }

    /// Appends whole batches. They and their index entries are in the files after [`Self::write`]. Source: `#append`.
    ///
    /// # Errors
    /// `Refused` for offsets that do not fit in the indexes; nothing is appended then.
    pub(super) fn append(&mut self, last_offset: i64, bytes: &[u8]) -> Result<()> {
        // The first append creates both indexes, also if it is refused.
        self.offset_index()?;
        if !self.holds(last_offset) {
            let text = format_args!("{}: offset {last_offset}", self.path(".log").display()).to_string();
            return Err(Refusal::SEGMENT_OFFSET_OVERFLOW.because(text));
        }
        let mut position = self.size;
        self.unwritten.extend(bytes);
        self.size += bytes.len() as u64;
        if self.unwritten.len() >= WRITE_BYTES {
            self.write_log()?;
        }
        for (header, batch) in headers(bytes) {
            self.note_largest(&header)?;
            if self.bytes_since_entry > self.interval_bytes {
                self.append_entries(&header, position)?;
                self.bytes_since_entry = 0;
            }
            self.bytes_since_entry += batch.len() as u64;
            position += batch.len() as u64;
        }
        Ok(())
    }

    fn write_log(&mut self) -> Result<()> {
        let at = self.size - self.unwritten.len() as u64;
        write_all_at(&self.file, &self.unwritten, at).map_err(|e| Error::write_failed(&self.path(".log"), e))?;
        self.unwritten.clear();
        Ok(())
    }

    /// Writes the batches and index entries that were appended.
    pub(super) fn write(&mut self) -> Result<()> {
        if !self.unwritten.is_empty() {
            self.write_log()?;
        }
        self.offset_index.as_mut().map_or(Ok(()), |index| index.file_mut().write())?;
        self.time_index.as_mut().map_or(Ok(()), |index| index.file_mut().write())
    }

    fn note_largest(&mut self, header: &Header) -> Result<()> {
        if header.max_timestamp > self.largest()?.timestamp {
            self.largest = Some(TimeEntry { timestamp: header.max_timestamp, offset: header.last_offset });
        }
        Ok(())
    }

    fn append_entries(&mut self, header: &Header, position: u64) -> Result<()> {
        let position = i32::try_from(position).map_err(|_| Refusal::INVALID_OFFSET.because("a position above 2^31"))?;
        self.offset_index()?.append(header.last_offset, position).map_err(invalid_offset)?;
        let largest = self.largest()?;
        self.time_index()?.maybe_append(largest.timestamp, largest.offset, false).map_err(invalid_offset)?;
        Ok(())
    }

    fn append_last_time(&mut self) -> Result<()> {
        let largest = self.largest()?;
        self.time_index()?.maybe_append(largest.timestamp, largest.offset, true).map_err(invalid_offset)?;
        Ok(())
    }

    /// Adds an aborted transaction. Source: `#updateTxnIndex`.
    pub(super) fn append_aborted(&self, aborted: &[AbortedTransaction]) -> Result<()> {
        if aborted.is_empty() {
            return Ok(());
        }
        let path = self.path(".txnindex");
        let mut bytes = Vec::new();
        for entry in aborted {
            entry.encode(&mut bytes);
        }
        let file = OpenOptions::new().append(true).create(true).open(&path).map_err(|e| Error::io(&path, e))?;
        std::io::Write::write_all(&mut &file, &bytes).map_err(|e| Error::write_failed(&path, e))
    }

    /// Adds the last entry of the time index, and cuts log and indexes. Source: `#onBecomeInactiveSegment`.
    pub(super) fn become_inactive(&mut self) -> Result<()> {
        self.append_last_time()?;
        self.write()?;
        self.offset_index()?.trim()?;
        self.time_index()?.trim()?;
        self.trim_log()
    }

    fn trim_log(&self) -> Result<()> {
        let len = self.file.metadata().map_err(|e| self.fail(e))?.len();
        if len > self.size { self.file.set_len(self.size).map_err(|e| self.fail(e)) } else { Ok(()) }
    }

    /// Source: `#close`.
    pub(super) fn close(&mut self) -> Result<()> {
        if self.largest.is_some() {
            // COMPAT(kafka LogSegment#close): a failure is only logged.
            match self.append_last_time() {
                Err(Error::Refused { .. } | Error::IndexFull { .. }) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        self.write()?;
        self.offset_index.as_mut().map_or(Ok(()), SparseIndex::trim)?;
        self.time_index.as_mut().map_or(Ok(()), SparseIndex::trim)?;
        self.trim_log()
    }

    /// Brings the log to the disk and drops it from the page cache, which may hold bytes that a failed fsync lost.
    pub(super) fn settle(&self) -> Result<()> {
        disk::settle(&self.path(".log"), &self.file)
    }

    /// Brings the log and its indexes to the disk. Source: `#flush`.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.write()?;
        self.file.sync_all().map_err(|e| Error::write_failed(&self.path(".log"), e))?;
        self.offset_index()?.flush()?;
        self.time_index()?.flush()?;
        let path = self.path(".txnindex");
        match File::open(&path) {
            Ok(file) => file.sync_all().map_err(|e| Error::write_failed(&path, e)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::io(&path, error)),
        }
    }

    /// Grows the indexes to their full size. Source: `#resizeIndexes`.
    pub(super) fn grow_indexes(&mut self) -> Result<()> {
        let bytes = self.index_bytes;
        self.offset_index()?.resize(bytes)?;
        self.time_index()?.resize(bytes)?;
        Ok(())
    }

    /// Empties a time index that was missing.
    pub(super) fn empty_time_index(&mut self) -> Result<()> {
        self.time_index()?.resize(0).map(|_| ())
    }

    /// Cuts the log at the batch that holds an offset. Source: `#truncateTo`.
    pub(super) fn truncate_to(&mut self, offset: i64, now: i64) -> Result<bool> {
        let found = self.translate(offset)?;
        self.offset_index()?.truncate_to(offset)?;
        self.time_index()?.truncate_to(offset)?;
        self.truncate_transactions(offset)?;
        self.grow_indexes()?;
        let cut = found.map(|header| header.position).filter(|position| *position < self.size);
        if let Some(position) = cut {
            self.cut_log(position)?;
        }
        if self.size == 0 {
            (self.created_ms, self.first_timestamp) = (now, None);
        }
        self.bytes_since_entry = 0;
        if self.largest()?.timestamp >= 0 {
            let last = self.time_index()?.last_entry();
            let from = self.offset_index()?.lookup(last.offset).walk_from();
            let mut largest = last;
            self.walk(from, Reads::Headers, |_, _, header| {
                if header.max_timestamp > largest.timestamp {
                    largest = TimeEntry { timestamp: header.max_timestamp, offset: header.last_offset };
                }
                Ok(true)
            })?;
            self.largest = Some(largest);
        }
        Ok(cut.is_some())
    }

    fn cut_log(&mut self, size: u64) -> Result<()> {
        self.file.set_len(size).map_err(|e| self.fail(e))?;
        self.size = size;
        Ok(())
    }

    /// Source: `TransactionIndex#truncateTo`.
    fn truncate_transactions(&self, offset: i64) -> Result<()> {
        let path = self.path(".txnindex");
        let Some((entries, _)) = if_exists(transaction_index::read(&path.clone().into()))? else { return Ok(()) };
        let kept = entries.iter().position(|entry| entry.last_offset >= offset);
        let Some(kept) = kept else { return Ok(()) };
        let file = open_file(&path, true)?;
        file.set_len((kept * transaction_index::ENTRY_SIZE) as u64).map_err(|e| Error::io(&path, e))
    }

    /// Rebuilds the indexes from the valid batches, and cuts the log after them; true if bytes were cut. `take` gets each batch and
    /// its bytes. Source: `#recover`.
    pub(super) fn recover(&mut self, mut take: impl FnMut(&Self, &Header, &[u8]) -> Result<()>) -> Result<bool> {
        self.offset_index()?.truncate_to(i64::MIN)?;
        self.time_index()?.truncate_to(i64::MIN)?;
        self.grow_indexes()?;
        let transactions = self.path(".txnindex");
        if transactions.exists() {
            open_file(&transactions, true)?.set_len(0).map_err(|e| Error::io(&transactions, e))?;
        }
        self.largest = None;
        self.largest()?;
        let path = self.path(".log");
        let source = FileSource::new(self.file.try_clone().map_err(|e| self.fail(e))?, &path, false, Access::Pread)?;
        let mut walk = Walk::new(Reads::Whole, 0, self.size);
        let (mut valid, mut last_entry) = (0, 0);
        while let Ok(header) = walk.next(&source).map_err(|e| Error::io(&path, e))? {
            if walk.check_crc(&source, &header).map_err(|e| Error::io(&path, e))?.is_err() {
                break;
            }
            if !self.holds(header.last_offset) {
                let (base, found) = (self.base_offset, header.last_offset.to_string());
                return Err(Error::corrupt(
                    &path,
                    header.position,
                    format!("an offset of {base} to {base} + 2^31 - 1"),
                    found,
                ));
            }
            self.note_largest(&header)?;
            if valid - last_entry > self.interval_bytes {
                self.append_entries(&header, valid)?;
                last_entry = valid;
            }
            valid = header.end();
            let batch = walk.batch(&source, &header).map_err(|e| Error::io(&path, e))?;
            match take(self, &header, batch) {
                // Records that cannot be read end the log, as a wrong checksum does.
                Err(error) if Refusal::CORRUPT_RECORD.is(&error) => break,
                taken => taken?,
            }
        }
        let was_cut = self.size > valid;
        self.cut_log(valid)?;
        self.append_last_time()?;
        self.write()?;
        self.offset_index()?.trim()?;
        self.time_index()?.trim()?;
        Ok(was_cut)
    }

    /// Finds damage with a valid batch after it, which a recovery would cut: the positions of both; for damage to the end, the second
    /// is `None`.
    pub(super) fn find_damage(&self) -> Result<Option<(u64, Option<u64>)>> {
        let path = self.path(".log");
        let fail = |e| Error::io(&path, e);
        let source = FileSource::new(self.file.try_clone().map_err(fail)?, &path, false, Access::Pread)?;
        let mut walk = Walk::new(Reads::Whole, 0, self.size);
        let mut damage = 0;
        while let Ok(header) = walk.next(&source).map_err(fail)? {
            if walk.check_crc(&source, &header).map_err(fail)?.is_err() {
                break;
            }
            damage = header.end();
        }
        if damage == self.size {
            return Ok(None);
        }
        let later = walk.find_valid(&source, damage + 1, self.size, self.base_offset).map_err(fail)?;
        Ok(Some((damage, later)))
    }

    /// Renames all files for their deletion, and returns the new paths.
    pub(super) fn mark_deleted(&self) -> Result<Vec<PathBuf>> {
        let mut marked = Vec::new();
        for suffix in SUFFIXES {
            let (from, to) = (self.path(suffix), self.path(&format!("{suffix}.deleted")));
            match fs::rename(&from, &to) {
                Ok(()) => marked.push(to),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io(&from, error)),
            }
        }
        Ok(marked)
    }
}

/// An entry that an index does not take, after the bytes of its batch were written.
fn invalid_offset(error: Error) -> Error {
    match error {
        Error::InvalidArgument(text) => Refusal::INVALID_OFFSET.because(text),
        full @ Error::IndexFull { .. } => Refusal::ILLEGAL_ARGUMENT.because(full),
        other => other,
    }
}

fn unreachable_index(directory: &Path) -> Error {
    Error::InvalidArgument(format!("{}: no index", directory.display()))
}

/// A number below `most`, another one for each segment.
fn random_below(most: i64) -> i64 {
    use std::hash::{BuildHasher, Hasher};
    let drawn = std::hash::RandomState::new().build_hasher().finish() >> 1;
    i64::try_from(drawn).unwrap_or(0) % most
}
