//! A log that is being written: places for messages, files, flushing.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;

use super::draft::{Draft, Placed, Put};
use super::flush_service::{FlushService, Flushed};
use super::host::Host;
use super::log_files::LogFiles;
use super::new_message::GivenMessage;
use super::put_columns::PutColumns;
use super::queue_table::QueueTable;
use crate::error::{Error, Result};
use crate::rocketmq::commit_log::frame::BLANK_LEN;

/// How a log is written.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// Bytes of a file (upstream `mappedFileSizeCommitLog`).
    pub file_size: u64,
    /// The host of messages that name none.
    pub store_host: Host,
    /// When bytes go to the disk.
    pub flush: FlushMode,
}

/// When bytes go to the disk (upstream `flushDiskType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushMode {
    /// A thread flushes twice a second.
    Async,
    /// Every put waits for the disk.
    Sync,
    /// Only when it is asked for.
    Manual,
}

/// How messages are put.
#[derive(Clone, Copy, Debug)]
pub struct PutOptions {
    /// Bodies are plain, whatever the flag says; else they are as a log stores them.
    pub decoded: bool,
    /// Messages with a delay level are parked until their time. Not for those that are delivered, or come from a log.
    pub park: bool,
    /// How many delay levels there are; a higher one counts as the last.
    pub levels: i32,
}

/// Appends messages to a log. For many threads; puts are one after the other.
#[derive(Debug)]
pub struct CommitLogWriter {
    shared: Arc<Shared>,
    service: Mutex<Option<FlushService>>,
    /// A fork shares the files with its parent, and must not write to them.
    process: u32,
}

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    options: WriterOptions,
    state: Mutex<State>,
    /// Held while a flush is under way: who waits for it finds its own bytes flushed by the one before.
    flushing: Mutex<()>,
    flushed: AtomicU64,
    flushed_store_timestamp: AtomicI64,
    /// What went wrong beside the puts; told once.
    failure: Mutex<Option<Error>>,
}

#[derive(Debug)]
struct State {
    files: LogFiles,
    table: QueueTable,
    /// Where the next frame goes.
    wrote: u64,
    store_timestamp: i64,
    /// Frames of one put; kept for the next one.
    buffer: Vec<u8>,
    closed: bool,
}

/// A buffer of more is not kept.
const KEPT_BUFFER: usize = 8 << 20;

impl CommitLogWriter {
    /// Goes on with a log at its end, which the caller has found, and behind which nothing but zeros is left. The directory
    /// and its files are made when the first message is put.
    ///
    /// # Errors
    /// `InvalidArgument` for a file size without room for a message, or an end without room for a BLANK frame; the system's
    /// error when it gives no thread.
    pub fn open(directory: &Path, end_phy_offset: u64, options: WriterOptions) -> Result<Self> {
        let WriterOptions { file_size, flush, .. } = options;
        if file_size <= BLANK_LEN || file_size > i32::MAX.unsigned_abs().into() {
            return Err(Error::InvalidArgument(format!("a file of the log cannot have {file_size} bytes")));
        }
        let left = file_size - end_phy_offset % file_size;
        if left < BLANK_LEN || i64::try_from(end_phy_offset).is_err() {
            let text = format!("a log in files of {file_size} bytes cannot end at {end_phy_offset}");
            return Err(Error::InvalidArgument(text));
        }
        let state = State {
            files: LogFiles::new(directory, file_size),
            table: QueueTable::default(),
            wrote: end_phy_offset,
            store_timestamp: 0,
            buffer: Vec::new(),
            closed: false,
        };
        let shared = Arc::new(Shared {
            directory: directory.to_owned(),
            options,
            state: Mutex::new(state),
            flushing: Mutex::new(()),
            flushed: AtomicU64::new(end_phy_offset),
            flushed_store_timestamp: AtomicI64::new(0),
            failure: Mutex::new(None),
        });
        let service = (flush == FlushMode::Async).then(|| FlushService::start(Arc::clone(&shared))).transpose()?;
        Ok(Self { shared, service: Mutex::new(service), process: std::process::id() })
    }

    /// The directory of the log.
    pub fn path(&self) -> &Path {
        &self.shared.directory
    }

    /// Bytes of a file.
    pub fn file_size(&self) -> u64 {
        self.shared.options.file_size
    }

    /// Offset in the log after the last message.
    pub fn wrote_offset(&self) -> u64 {
        self.shared.state().wrote
    }

    /// Offset in the log before which everything is on the disk.
    pub fn flushed_offset(&self) -> u64 {
        self.shared.flushed.load(Ordering::Acquire)
    }

    /// Store time of the last message that is on the disk, 0 while none was put.
    pub fn flushed_store_timestamp(&self) -> i64 {
        self.shared.flushed_store_timestamp.load(Ordering::Acquire)
    }

    /// Says which offset the next message of a queue gets; that of a queue which was never named is 0.
    ///
    /// # Errors
    /// `InvalidArgument` for a negative number.
    pub fn set_queue_offset(&self, topic: &str, queue_id: i32, queue_offset: i64) -> Result<()> {
        if queue_id < 0 || queue_offset < 0 {
            return Err(Error::InvalidArgument(format!("queue {queue_id} of {topic} at {queue_offset}: below 0")));
        }
        self.shared.state().table.set(topic, queue_id, queue_offset);
        Ok(())
    }

    /// Appends a batch of messages and says where they are: a row each. With synchronous flush it waits for the disk.
    ///
    /// # Errors
    /// `InvalidArgument` for a row that is no message, and the system's error where a file cannot be made: then nothing
    /// was written. The system's error from a write or a flush; what a failed flush leaves is in the log, and is flushed
    /// again by the next one. What went wrong beside the puts since the last call.
    pub fn put_messages(&self, messages: &RecordBatch, options: PutOptions) -> Result<RecordBatch> {
        let mut columns = PutColumns::of(messages)?;
        let rows = messages.num_rows();
        let put = self.put(rows, options, |draft, table| {
            for row in 0..rows {
                let given = columns.message(row, draft.properties());
                given.and_then(|given| draft.append(given, table)).map_err(|error| match error {
                    Error::InvalidArgument(text) => Error::InvalidArgument(format!("messages: row {row}: {text}")),
                    other => other,
                })?;
            }
            Ok(())
        })?;
        Ok(put.into_batch())
    }

    /// Appends one message with these properties and says where it is.
    ///
    /// # Errors
    /// As [`Self::put_messages`].
    pub fn put_message<'a>(
        &self,
        given: GivenMessage<'a>,
        properties: impl IntoIterator<Item = (&'a str, &'a str)>,
        options: PutOptions,
    ) -> Result<Placed> {
        let put = self.put(1, options, |draft, table| {
            properties.into_iter().try_for_each(|(name, value)| draft.properties().push(name, value))?;
            draft.append(given, table)
        })?;
        Ok(put.into_placed())
    }

    fn put<'a>(
        &self,
        rows: usize,
        options: PutOptions,
        fill: impl FnOnce(&mut Draft<'a>, &mut QueueTable) -> Result<()>,
    ) -> Result<Put> {
        self.check_process()?;
        self.shared.told()?;
        let (put, end) = self.shared.put(rows, options, fill)?;
        if self.shared.options.flush == FlushMode::Sync {
            self.shared.flush_to(end)?;
        }
        Ok(put)
    }

    /// Waits until all that was put is on the disk.
    ///
    /// # Errors
    /// The system's error, with the path; what went wrong beside the puts since the last call.
    pub fn flush(&self) -> Result<()> {
        self.check_process()?;
        self.shared.flush_to(self.wrote_offset())?;
        self.shared.told()
    }

    /// Flushes and ends; puts are refused from now on.
    ///
    /// # Errors
    /// As [`Self::flush`]; it is closed then as well.
    pub fn close(&self) -> Result<()> {
        self.check_process()?;
        self.shared.state().closed = true;
        drop(self.service.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.flush()
    }

    /// True after [`Self::close`].
    pub fn is_closed(&self) -> bool {
        self.shared.state().closed
    }

    fn check_process(&self) -> Result<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(Error::InvalidArgument("a log that is open for writing belongs to the process that opened it".into()))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self) -> Result<()> {
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Gives where the rows went, and where the log ends now.
    fn put<'a>(
        &self,
        rows: usize,
        options: PutOptions,
        fill: impl FnOnce(&mut Draft<'a>, &mut QueueTable) -> Result<()>,
    ) -> Result<(Put, u64)> {
        let mut state = self.state();
        let state = &mut *state;
        if state.closed {
            return Err(Error::InvalidArgument(format!("{} is closed for writing", self.directory.display())));
        }
        let buffer = std::mem::take(&mut state.buffer);
        let mut draft = Draft::new(state.wrote, self.options, options, buffer, rows);
        let done = fill(&mut draft, &mut state.table).and_then(|()| write(&mut state.files, &draft));
        match done {
            Ok(()) => state.table.keep(),
            Err(error) => {
                state.table.undo();
                return Err(error);
            }
        }
        state.wrote = draft.end();
        let (put, mut buffer) = draft.finish();
        state.store_timestamp = put.last_store_timestamp().unwrap_or(state.store_timestamp);
        if buffer.capacity() <= KEPT_BUFFER {
            buffer.clear();
            state.buffer = buffer;
        }
        Ok((put, state.wrote))
    }

    fn flush_to(&self, end: u64) -> Result<()> {
        let _one = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.flushed.load(Ordering::Acquire) >= end {
            return Ok(());
        }
        let (files, wrote, store_timestamp) = {
            let mut state = self.state();
            (state.files.take_dirty(), state.wrote, state.store_timestamp)
        };
        let mut files = files.into_iter();
        while let Some((path, start, file)) = files.next() {
            if let Err(error) = file.sync_data() {
                let mut state = self.state();
                state.files.still_dirty(start, file);
                files.for_each(|(_, start, file)| state.files.still_dirty(start, file));
                return Err(Error::io(&path, error));
            }
        }
        self.flushed_store_timestamp.store(store_timestamp, Ordering::Release);
        self.flushed.store(wrote, Ordering::Release);
        Ok(())
    }
}

impl Flushed for Shared {
    fn unflushed(&self) -> u64 {
        self.state().wrote - self.flushed.load(Ordering::Acquire)
    }

    fn flush_beside(&self) {
        let end = self.state().wrote;
        if let Err(error) = self.flush_to(end) {
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }
}

/// Writes what was drafted: all files are made ready first, so that a full disk is met before the first byte.
fn write(files: &mut LogFiles, draft: &Draft<'_>) -> Result<()> {
    for (phy_offset, _) in draft.pieces() {
        files.ready(phy_offset)?;
    }
    for (number, (phy_offset, bytes)) in draft.pieces().enumerate() {
        if let Err(error) = files.write(phy_offset, bytes) {
            // Nothing may be left behind the end of the log that looks like a message.
            for (phy_offset, bytes) in draft.pieces().take(number + 1) {
                let _ = files.write(phy_offset, &vec![0; bytes.len()]);
            }
            return Err(error);
        }
    }
    Ok(())
}
