//! What the handle of a log and its flush service share: where the log ends, its files, what is on the disk.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::draft::{Draft, Put};
use super::flush_service::Flushed;
use super::log_files::LogFiles;
use super::queue_table::QueueTable;
use super::writer::{PutOptions, WriterOptions};
use crate::error::{Error, Result};

/// A log that is being written.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) directory: PathBuf,
    pub(super) options: WriterOptions,
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

impl Shared {
    /// Begins at the end of a log.
    pub(super) fn new(directory: &Path, end: u64, options: WriterOptions) -> Self {
        let state = State {
            files: LogFiles::new(directory, options.file_size),
            table: QueueTable::default(),
            wrote: end,
            store_timestamp: 0,
            buffer: Vec::new(),
            closed: false,
        };
        Self {
            directory: directory.to_owned(),
            options,
            state: Mutex::new(state),
            flushing: Mutex::new(()),
            flushed: AtomicU64::new(end),
            flushed_store_timestamp: AtomicI64::new(0),
            failure: Mutex::new(None),
        }
    }

    /// Where the next frame goes.
    pub(super) fn wrote(&self) -> u64 {
        self.state().wrote
    }

    /// Before it everything is on the disk.
    pub(super) fn flushed(&self) -> u64 {
        self.flushed.load(Ordering::Acquire)
    }

    /// Store time of the last message that is on the disk.
    pub(super) fn flushed_store_timestamp(&self) -> i64 {
        self.flushed_store_timestamp.load(Ordering::Acquire)
    }

    pub(super) fn set_queue_offset(&self, topic: &str, queue_id: i32, queue_offset: i64) {
        self.state().table.set(topic, queue_id, queue_offset);
    }

    /// Refuses puts from now on.
    pub(super) fn close(&self) {
        self.state().closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells what went wrong beside the puts.
    pub(super) fn told(&self) -> Result<()> {
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Gives where the rows went, and where the log ends now.
    pub(super) fn put<'a>(
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

    /// Waits until what ends here is on the disk.
    pub(super) fn flush_to(&self, end: u64) -> Result<()> {
        let _one = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.flushed() >= end {
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
        self.wrote() - self.flushed()
    }

    fn flush_beside(&self) {
        if let Err(error) = self.flush_to(self.wrote()) {
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
