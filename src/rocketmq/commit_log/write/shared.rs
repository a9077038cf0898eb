//! The state of a log that is being written: its end, its files, and what is on the disk. The writer and its flush thread share it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::checkpoint_guard::CheckpointGuard;
use super::frames::Frames;
use super::log_files::LogFiles;
use super::options::{PutOptions, WriterOptions};
use super::pending_batch::PendingBatch;
use super::queue_table::QueueTable;
use super::whole_frames::whole_frames;
use crate::error::{Error, Result};
use crate::io::FirstFailure;
use crate::io::flush_service::Flushed;
use crate::rocketmq::commit_log::frame::UNCOMMITTED_LEN;

/// A log that is being written.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) directory: PathBuf,
    pub(super) options: WriterOptions,
    state: Mutex<State>,
    /// Offset of the next frame. Changed only under the lock of `state`. Read without it: in a forked child the lock may be held
    /// for ever.
    wrote: AtomicU64,
    /// Puts are refused. Locked as `wrote`.
    closed: AtomicBool,
    /// Held during a flush. A caller that waits for it usually finds its bytes flushed.
    flushing: Mutex<()>,
    flushed: AtomicU64,
    flushed_store_timestamp: AtomicI64,
    /// The first write or fsync that failed, of a put, a flush, the flush thread or the checkpoint.
    failure: FirstFailure,
}

#[derive(Debug)]
struct State {
    files: LogFiles,
    table: QueueTable,
    store_timestamp: i64,
    checkpoint_guard: CheckpointGuard,
    /// Buffers for the frames of one put, reused by the next one.
    frames: Frames,
    text: String,
}

/// The result of a put.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) messages: usize,
    /// Offset in the log of the first byte.
    pub(super) begin: u64,
    /// Offset in the log after the last byte.
    pub(super) end: u64,
}

impl Shared {
    /// Opens a log at its end.
    pub(super) fn new(directory: &Path, end: u64, options: WriterOptions) -> Self {
        let state = State {
            files: LogFiles::new(directory, options.file_size),
            table: QueueTable::default(),
            store_timestamp: 0,
            checkpoint_guard: CheckpointGuard::default(),
            frames: Frames::new(options.file_size),
            text: String::new(),
        };
        Self {
            directory: directory.to_owned(),
            options,
            state: Mutex::new(state),
            wrote: AtomicU64::new(end),
            closed: AtomicBool::new(false),
            flushing: Mutex::new(()),
            flushed: AtomicU64::new(end),
            flushed_store_timestamp: AtomicI64::new(0),
            failure: FirstFailure::default(),
        }
    }

    /// Offset of the next frame.
    pub(super) fn wrote(&self) -> u64 {
        self.wrote.load(Ordering::Acquire)
    }

    /// Offset before which everything is on the disk.
    pub(super) fn flushed(&self) -> u64 {
        self.flushed.load(Ordering::Acquire)
    }

    /// Stores time of the last message that is on the disk.
    pub(super) fn flushed_store_timestamp(&self) -> i64 {
        self.flushed_store_timestamp.load(Ordering::Acquire)
    }

    pub(super) fn set_queue_offset(&self, topic: &str, queue_id: i32, queue_offset: i64) {
        self.state().table.set(topic, queue_id, queue_offset);
    }

    /// Sets the next offset of a queue, unless it has one.
    pub(super) fn begin_queue(&self, topic: &str, queue_id: i32, queue_offset: i64) {
        self.state().table.set_new(topic, queue_id, queue_offset);
    }

    pub(super) fn keep_checkpoint(&self, path: &Path) -> Result<()> {
        self.state().checkpoint_guard = CheckpointGuard::of(path.to_owned())?;
        Ok(())
    }

    pub(super) fn begin_checkpoint(&self) {
        self.state().checkpoint_guard.begin();
    }

    pub(super) fn write_checkpoint(&self, dispatched: i64) -> Result<()> {
        self.failure.check()?;
        let physic = self.flushed_store_timestamp();
        self.failure.keep(self.state().checkpoint_guard.write(physic, dispatched))
    }

    /// The first write or fsync that failed.
    pub(super) fn failure(&self) -> &FirstFailure {
        &self.failure
    }

    /// Refuses puts from now on.
    pub(super) fn refuse_puts(&self) {
        // Wait for a put that is running.
        let _state = self.state();
        self.closed.store(true, Ordering::Release);
    }

    /// Closes the files.
    pub(super) fn close_files(&self) {
        self.state().files.close();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the messages that `fill` adds. Returns the result of `fill` and what was written.
    pub(super) fn put<'a, T>(
        &self,
        options: PutOptions,
        fill: impl FnOnce(&mut PendingBatch<'_, 'a>) -> Result<T>,
    ) -> Result<(T, Written)> {
        let mut state = self.state();
        let State { files, table, store_timestamp, checkpoint_guard, frames, text } = &mut *state;
        self.failure.check()?;
        if self.is_closed() {
            return Err(Error::InvalidArgument(format!("{}: the log is closed for writing", self.directory.display())));
        }
        let begin = self.wrote();
        frames.begin(begin);
        let mut batch = PendingBatch::new(self.options, options, frames, table, text);
        let filled = fill(&mut batch);
        let times = batch.store_timestamps();
        let written = filled.and_then(|filled| {
            times.map_or(Ok(()), |(earliest, _)| checkpoint_guard.before_write(earliest))?;
            write(files, frames)?;
            Ok(filled)
        });
        match self.failure.keep(written) {
            Ok(filled) => {
                table.keep();
                *store_timestamp = times.map_or(*store_timestamp, |(_, last)| last);
                self.wrote.store(frames.end(), Ordering::Release);
                Ok((filled, Written { messages: frames.messages(), begin, end: frames.end() }))
            }
            Err(error) => {
                table.undo();
                Err(error)
            }
        }
    }

    /// Writes the whole frames at the beginning of `data`. Returns their length, and the bytes that the next frame needs.
    pub(super) fn append(&self, data: &[u8]) -> Result<(usize, usize)> {
        let mut state = self.state();
        let State { files, store_timestamp, checkpoint_guard, .. } = &mut *state;
        self.failure.check()?;
        if self.is_closed() {
            return Err(Error::InvalidArgument(format!("{}: the log is closed for writing", self.directory.display())));
        }
        let mut at = 0;
        loop {
            let (begin, rest) = (self.wrote(), data.get(at..).unwrap_or_default());
            let frames = match whole_frames(&self.directory, rest, begin, self.options.file_size) {
                // The caller learns of it with the next call, which begins with this frame.
                Err(_) if at > 0 => return Ok((at, 0)),
                found => found?,
            };
            let Some(whole) = rest.get(..frames.len).filter(|whole| !whole.is_empty()) else {
                return Ok((at, frames.needed));
            };
            let written =
                frames.store_timestamps.map_or(Ok(()), |(earliest, _)| checkpoint_guard.before_write(earliest));
            let written = written.and_then(|()| files.ready(begin)).and_then(|()| files.write(begin, whole));
            self.failure.keep(written)?;
            at += frames.len;
            *store_timestamp = frames.store_timestamps.map_or(*store_timestamp, |(_, last)| last);
            let end = begin + frames.len as u64;
            files.leave(end);
            self.wrote.store(end, Ordering::Release);
        }
    }

    /// Waits until everything before `end` is on the disk.
    pub(super) fn flush_to(&self, end: u64) -> Result<()> {
        let _one = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        self.failure.check()?;
        if self.flushed() >= end {
            return Ok(());
        }
        let (files, wrote, store_timestamp) = {
            let mut state = self.state();
            (state.files.take_dirty(), self.wrote(), state.store_timestamp)
        };
        for (path, file) in files {
            self.failure.keep(file.sync_data().map_err(|e| Error::write_failed(&path, e)))?;
        }
        self.flushed_store_timestamp.store(store_timestamp, Ordering::Release);
        self.flushed.store(wrote, Ordering::Release);
        Ok(())
    }
}

impl Flushed for Shared {
    fn unflushed(&self) -> u64 {
        // The order matters: another thread may put and flush between the two loads.
        let flushed = self.flushed();
        self.wrote() - flushed
    }

    fn waits_for(&self, end: u64) -> bool {
        self.flushed() < end && self.failure.get().is_none()
    }

    fn flush_in_thread(&self) {
        // An error is kept.
        let _ = self.flush_to(self.wrote());
    }
}

/// Writes frames. All files are prepared first, so that a full disk is found before the first byte is written.
///
/// The size and the magic of the first of several messages are written last. Without them no walk goes past the end of the log,
/// so no reader and no recovery meets a part of a batch that was refused ([`is_uncommitted`]).
///
/// [`is_uncommitted`]: crate::rocketmq::commit_log::frame::is_uncommitted
fn write(files: &mut LogFiles, frames: &Frames) -> Result<()> {
    for (phy_offset, _) in frames.pieces() {
        files.ready(phy_offset)?;
    }
    let mut held_back = None;
    for (phy_offset, bytes) in frames.pieces() {
        match bytes.split_at_checked(UNCOMMITTED_LEN) {
            // A BLANK frame by itself only ends a file.
            Some((head, rest)) if frames.messages() > 1 && held_back.is_none() && !rest.is_empty() => {
                held_back = Some((phy_offset, head));
                files.write(phy_offset + UNCOMMITTED_LEN as u64, rest)?;
            }
            _ => files.write(phy_offset, bytes)?,
        }
    }
    if let Some((phy_offset, head)) = held_back {
        files.write(phy_offset, head)?;
    }
    files.leave(frames.end());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::Ordering;

    use super::{Flushed as _, Shared};
    use crate::rocketmq::commit_log::write::{FlushMode, Host, Limits, WriterOptions};
    use crate::rocketmq::release::Release;

    #[test]
    fn no_more_bytes_are_unflushed_than_were_put_while_others_put_and_flush() {
        let store_host = Host::parse("127.0.0.1:10911").unwrap();
        let options = WriterOptions {
            file_size: 1 << 20,
            store_host,
            levels: 18,
            flush: FlushMode::Manual,
            limits: Limits { release: Release::V4_9_3, max_message_size: Limits::MAX_MESSAGE_SIZE },
            multi_dispatch: false,
        };
        let shared = Shared::new(Path::new("log"), 0, options);
        std::thread::scope(|scope| {
            let putting = scope.spawn(|| {
                for end in 1..300_000 {
                    shared.wrote.store(end, Ordering::Release);
                    shared.flushed.store(end, Ordering::Release);
                }
            });
            while !putting.is_finished() {
                // The end of the last put may be far after the last flushed end.
                assert!(shared.unflushed() < 300_000);
            }
        });
    }
}
