//! The state of a log that is being written: its end, its files, and what is on the disk. The writer and its flush thread share it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::checkpoint_guard::CheckpointGuard;
use super::frames::Frames;
use super::mapped_file::MappedFile;
use super::mapped_file_queue::MappedFileQueue;
use super::options::{AppendMode, PutOptions, WriterOptions};
use super::pending_batch::PendingBatch;
use super::queue_table::QueueTable;
use super::whole_frames::whole_frames;
use crate::error::{Error, Result};
use crate::io::flush_service::Flushed;
use crate::io::{FirstFailure, GroupCommit, InterruptibleGuard, InterruptibleMutex};
use crate::rocketmq::commit_log::frame::UNCOMMITTED_LEN;

/// A log that is being written.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) directory: PathBuf,
    pub(super) options: WriterOptions,
    /// A put that holds it may wait for a file.
    state: InterruptibleMutex<State>,
    /// Offset of the next frame. Changed only under the lock of `state`. Read without it: in a forked child the lock may be held
    /// for ever.
    wrote: AtomicU64,
    /// Puts are refused. Locked as `wrote`.
    closed: AtomicBool,
    /// Locked alone, or under one of the other locks; nothing is locked under it.
    pending: Mutex<Pending>,
    /// Held while buffers are committed. Under it only `pending` is locked.
    committing: Mutex<()>,
    /// Offset before which every byte is in the files, and the store time of the last message before it.
    committed: AtomicU64,
    committed_store_timestamp: AtomicI64,
    group_commit: GroupCommit,
    flushed: AtomicU64,
    flushed_store_timestamp: AtomicI64,
    /// The first write or fsync that failed, of a put, a flush, the flush thread or the checkpoint.
    failure: FirstFailure,
}

#[derive(Debug)]
struct State {
    files: MappedFileQueue,
    table: QueueTable,
    checkpoint_guard: CheckpointGuard,
    /// Buffers for the frames of one put, reused by the next one.
    frames: Frames,
    text: String,
}

/// Bytes in buffers that are not committed, put by put.
#[derive(Debug, Default)]
struct Pending {
    puts: Vec<PendingPut>,
    /// Offset in the log after the last put, and the store time of its last message.
    end: u64,
    store_timestamp: Option<i64>,
}

/// Bytes of one put, or of several single messages.
#[derive(Debug)]
struct PendingPut {
    /// Files, positions and lengths.
    pieces: Vec<(Arc<MappedFile>, u64, usize)>,
    /// A batch, which readers see as a whole or not at all.
    is_batch: bool,
}

impl PendingPut {
    /// Adds bytes of a file, often those after the last ones.
    fn add(&mut self, files: &MappedFileQueue, phy_offset: u64, len: usize) -> Result<()> {
        let file = files.file(phy_offset)?;
        let position = phy_offset - file.file_from_offset;
        match self.pieces.last_mut() {
            Some((last, begin, held)) if Arc::ptr_eq(last, file) && *begin + *held as u64 == position => *held += len,
            _ => self.pieces.push((Arc::clone(file), position, len)),
        }
        Ok(())
    }
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
            files: MappedFileQueue::new(directory, options),
            table: QueueTable::default(),
            checkpoint_guard: CheckpointGuard::default(),
            frames: Frames::new(options.file_size),
            text: String::new(),
        };
        Self {
            directory: directory.to_owned(),
            options,
            state: InterruptibleMutex::new(state),
            wrote: AtomicU64::new(end),
            closed: AtomicBool::new(false),
            pending: Mutex::default(),
            committing: Mutex::new(()),
            committed: AtomicU64::new(end),
            committed_store_timestamp: AtomicI64::new(0),
            group_commit: GroupCommit::default(),
            flushed: AtomicU64::new(end),
            flushed_store_timestamp: AtomicI64::new(0),
            failure: FirstFailure::default(),
        }
    }

    /// Offset of the next frame.
    pub(super) fn wrote(&self) -> u64 {
        self.wrote.load(Ordering::Acquire)
    }

    /// Offset before which everything is in the files, where readers see it.
    pub(super) fn committed(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }

    /// Offset before which everything is on the disk.
    pub(super) fn flushed(&self) -> u64 {
        self.flushed.load(Ordering::Acquire)
    }

    /// Stores time of the last message that is on the disk.
    pub(super) fn flushed_store_timestamp(&self) -> i64 {
        self.flushed_store_timestamp.load(Ordering::Acquire)
    }

    pub(super) fn set_queue_offset(&self, topic: &str, queue_id: i32, queue_offset: i64) -> Result<()> {
        self.state()?.table.set(topic, queue_id, queue_offset);
        Ok(())
    }

    /// Sets the next offset of a queue, unless it has one.
    pub(super) fn begin_queue(&self, topic: &str, queue_id: i32, queue_offset: i64) -> Result<()> {
        self.state()?.table.set_new(topic, queue_id, queue_offset);
        Ok(())
    }

    pub(super) fn keep_checkpoint(&self, path: &Path) -> Result<()> {
        self.state()?.checkpoint_guard = CheckpointGuard::of(path.to_owned())?;
        Ok(())
    }

    pub(super) fn begin_checkpoint(&self) -> Result<()> {
        self.state()?.checkpoint_guard.begin();
        Ok(())
    }

    pub(super) fn write_checkpoint(&self, dispatched: i64) -> Result<()> {
        self.failure.check()?;
        let physic = self.flushed_store_timestamp();
        let mut state = self.state()?;
        self.failure.keep(state.checkpoint_guard.write(physic, dispatched))
    }

    /// The first write or fsync that failed.
    pub(super) fn failure(&self) -> &FirstFailure {
        &self.failure
    }

    /// Refuses puts from now on.
    pub(super) fn refuse_puts(&self) {
        // Wait for a put that is running.
        let _state = self.state.lock();
        self.closed.store(true, Ordering::Release);
    }

    /// Closes the files, and ends the thread that prepares them.
    pub(super) fn close_files(&self) {
        // Unmapping and waiting need no lock.
        let files = self.state.lock().files.take();
        drop(files);
    }

    /// Ends the thread that prepares files.
    pub(super) fn stop_allocating(&self) {
        let service = self.state.lock().files.take_service();
        drop(service);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn state(&self) -> Result<InterruptibleGuard<'_, State>> {
        self.state.wait().map_err(|e| Error::io(&self.directory, e))
    }

    /// Writes the messages that `fill` adds. Returns the result of `fill` and what was written.
    pub(super) fn put<'a, T>(
        &self,
        options: PutOptions,
        fill: impl FnOnce(&mut PendingBatch<'_, 'a>) -> Result<T>,
    ) -> Result<(T, Written)> {
        let mut state = self.state()?;
        let State { files, table, checkpoint_guard, frames, text } = &mut *state;
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
            self.write(files, frames.pieces(), frames.messages() > 1)?;
            Ok(filled)
        });
        match self.failure.keep(written) {
            Ok(filled) => {
                table.keep();
                let published = self.publish(files, frames.pieces(), frames.messages() > 1, frames.end(), times);
                self.failure.keep(published)?;
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
        let mut state = self.state()?;
        let State { files, checkpoint_guard, .. } = &mut *state;
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
            // Frames of several puts: a walk may end after any of them.
            let written = written.and_then(|()| self.write(files, [(begin, whole)].into_iter(), false));
            self.failure.keep(written)?;
            at += frames.len;
            let end = begin + frames.len as u64;
            let published = self.publish(files, [(begin, whole)].into_iter(), false, end, frames.store_timestamps);
            self.failure.keep(published)?;
        }
    }

    /// Appends pieces of the log. All files are prepared first, so that a full disk is found before the first byte is written.
    fn write<'a>(
        &self,
        files: &mut MappedFileQueue,
        pieces: impl Iterator<Item = (u64, &'a [u8])> + Clone,
        is_batch: bool,
    ) -> Result<()> {
        let mut in_buffers = true;
        for (phy_offset, _) in pieces.clone() {
            files.ready(phy_offset)?;
            in_buffers &= self.options.append.mode != AppendMode::Pool || files.file(phy_offset)?.is_buffered();
        }
        if !in_buffers && files.buffered().next().is_some() {
            // A file without a buffer takes its bytes at once. Those before them must not come later.
            let _one = self.committing.lock().unwrap_or_else(PoisonError::into_inner);
            self.commit_pending()?;
            files.buffered().for_each(|file| file.return_buffer());
        }
        // A copy into a map may be cut off at any byte.
        let holds_back = is_batch || self.options.append.mode == AppendMode::Mapped;
        let pieces = pieces.map(|(phy_offset, bytes)| ((phy_offset, bytes), bytes.len()));
        write_in_order(pieces, holds_back, |(phy_offset, bytes), part| {
            files.append(phy_offset + part.start as u64, bytes.get(part).unwrap_or_default())
        })
    }

    /// Publishes what was appended to the flush, the commit and readers.
    fn publish<'a>(
        &self,
        files: &mut MappedFileQueue,
        pieces: impl Iterator<Item = (u64, &'a [u8])> + Clone,
        is_batch: bool,
        end: u64,
        store_timestamps: Option<(i64, i64)>,
    ) -> Result<()> {
        let Some((first, _)) = pieces.clone().next() else { return Ok(()) };
        self.wrote.store(end, Ordering::Release);
        let last = store_timestamps.map(|(_, last)| last);
        if self.options.append.mode == AppendMode::Pool && files.file(first)?.is_buffered() {
            let mut pending = self.pending();
            pending.end = end;
            pending.store_timestamp = last.or(pending.store_timestamp);
            if is_batch || pending.puts.last().is_none_or(|last| last.is_batch) {
                pending.puts.push(PendingPut { pieces: Vec::new(), is_batch });
            }
            for (phy_offset, bytes) in pieces {
                if let Some(put) = pending.puts.last_mut() {
                    put.add(files, phy_offset, bytes.len())?;
                }
            }
        } else {
            if let Some(last) = last {
                self.committed_store_timestamp.store(last, Ordering::Release);
            }
            self.committed.store(end, Ordering::Release);
        }
        files.leave(end);
        Ok(())
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies what was put from buffers to the files.
    ///
    /// # Errors
    /// `WriteFailed`, also of an earlier write or flush, with the path.
    pub(super) fn commit(&self) -> Result<()> {
        if self.options.append.mode != AppendMode::Pool {
            return Ok(());
        }
        let _one = self.committing.lock().unwrap_or_else(PoisonError::into_inner);
        self.failure.check()?;
        self.failure.keep(self.commit_pending())
    }

    /// As [`Self::commit`]; the caller holds the lock.
    fn commit_pending(&self) -> Result<()> {
        let Pending { puts, end, store_timestamp } = std::mem::take(&mut *self.pending());
        for PendingPut { pieces, is_batch } in &puts {
            let pieces = pieces.iter().map(|(file, position, len)| ((file, *position), *len));
            write_in_order(pieces, *is_batch, |(file, position), part| {
                file.commit(position + part.start as u64..position + part.end as u64)
            })?;
        }
        if puts.is_empty() {
            return Ok(());
        }
        if let Some(store_timestamp) = store_timestamp {
            self.committed_store_timestamp.store(store_timestamp, Ordering::Release);
        }
        self.committed.store(end, Ordering::Release);
        let files = puts.iter().flat_map(|put| &put.pieces).map(|(file, ..)| file);
        files
            .filter(|file| file.file_from_offset + self.options.file_size <= end)
            .for_each(|file| file.return_buffer());
        Ok(())
    }

    /// Waits until everything before `end` is on the disk.
    pub(super) fn flush_to(&self, end: u64) -> Result<()> {
        self.group_commit.flush(&self.directory, &self.failure, || Ok(self.flushed() >= end), || self.flush_committed())
    }

    /// Commits everything, and brings it to the disk.
    fn flush_committed(&self) -> Result<()> {
        self.commit()?;
        let (files, committed, store_timestamp) = {
            let state = self.state()?;
            // In this order: another thread may commit more meanwhile.
            let committed = (self.committed(), self.committed_store_timestamp.load(Ordering::Acquire));
            (state.files.unflushed(), committed.0, committed.1)
        };
        for (file, committed) in &files {
            file.flush(*committed)?;
        }
        self.flushed_store_timestamp.store(store_timestamp, Ordering::Release);
        self.flushed.store(committed, Ordering::Release);
        if files.len() > 1 {
            // The thread that prepares files closes them, not this one.
            drop(files);
            self.state()?.files.leave(committed);
        }
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

/// The log as the thread sees it that commits its buffers (upstream `CommitRealTimeService`).
#[derive(Debug)]
pub(super) struct CommitRealTimeService(pub(super) Arc<Shared>);

impl Flushed for CommitRealTimeService {
    fn unflushed(&self) -> u64 {
        let committed = self.0.committed();
        self.0.wrote() - committed
    }

    fn waits_for(&self, _end: u64) -> bool {
        false
    }

    fn flush_in_thread(&self) {
        // An error is kept.
        let _ = self.0.commit();
    }
}

/// Writes pieces, each with its length.
///
/// With `holds_back` the size and the magic of the first message are written last. Without them no walk goes past the end of the
/// log, so no reader and no recovery meets a part of a batch that was refused ([`is_uncommitted`]).
///
/// [`is_uncommitted`]: crate::rocketmq::commit_log::frame::is_uncommitted
fn write_in_order<T: Copy>(
    pieces: impl Iterator<Item = (T, usize)>,
    holds_back: bool,
    mut write: impl FnMut(T, Range<usize>) -> Result<()>,
) -> Result<()> {
    let mut held_back = None;
    for (piece, len) in pieces {
        // A BLANK frame by itself only ends a file.
        if holds_back && held_back.is_none() && len > UNCOMMITTED_LEN {
            held_back = Some(piece);
            write(piece, UNCOMMITTED_LEN..len)?;
        } else {
            write(piece, 0..len)?;
        }
    }
    held_back.map_or(Ok(()), |piece| write(piece, 0..UNCOMMITTED_LEN))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::Ordering;

    use super::{Flushed as _, Shared};
    use crate::rocketmq::commit_log::write::{Append, FlushMode, Host, Limits, WriterOptions};
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
            append: Append::default(),
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
