//! The handle of a log that is being written.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::log::{AppendResult, LogOptions, PartitionLog, sync_directory};
use super::new_batch::Facts;
use super::new_records::NewRecords;
use super::segment::WritableSegment;
use super::validator::{AppendOptions, Origin};
use crate::error::{Error, Result};
use crate::io::flush_service::{FlushService, Flushed, Pace, Schedule};
use crate::io::fork::Generation;
use crate::io::store_lock::refuse_other_holder;
use crate::io::{FirstFailure, GroupCommit, InterruptibleGuard, InterruptibleMutex, PutCounter, disk, i64_of};

/// The lock of a log directory.
const LOCK: &str = ".lock";
/// Bytes of batches.
const MADE_WITHOUT_LOCK: usize = 1 << 20;

impl Flushed for LogWriter {
    fn unflushed(&self) -> u64 {
        // Everything is checked in each interval.
        u64::MAX
    }

    fn waits_for(&self, _: u64) -> bool {
        false
    }

    fn flush_in_thread(&self) {
        // A failure is kept for the next call; a closed log has no tasks.
        let now = now_ms();
        let _ = self.run_due_tasks(now).and_then(|()| self.flush_if_due(now));
    }
}

/// Milliseconds since the epoch.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64_of(since.as_millis())
}

/// The offsets of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    /// Offset of the first record.
    pub log_start: i64,
    /// Offset after the last record.
    pub end: i64,
    /// Everything before it is on the disk.
    pub recovery_point: i64,
    /// Readers see records before it.
    pub high_watermark: i64,
    /// All transactions before it are decided.
    pub last_stable: i64,
    /// Base offsets of the segments.
    pub segments: Vec<i64>,
    /// Bytes of all segments.
    pub bytes: u64,
}

/// Writes a log. Any thread may call; calls run one after the other, and wait for the disk together.
#[derive(Debug)]
pub struct LogWriter {
    directory: PathBuf,
    /// A flush or a recovery may hold it.
    state: InterruptibleMutex<State>,
    group_commit: GroupCommit,
    /// Appends wait for the disk.
    syncs: bool,
    /// The appends of this log, or of all logs of a directory.
    counter: Arc<PutCounter>,
    failure: FirstFailure,
    process: Generation,
}

/// The thread of a log.
#[derive(Debug)]
pub struct LogService(#[expect(dead_code, reason = "dropping it stops the thread")] FlushService);

#[derive(Debug)]
struct State {
    /// `None` once it is closed.
    log: Option<PartitionLog>,
    /// Those of a closed log.
    offsets: Offsets,
    leader_epoch: i32,
    lock: Option<File>,
}

impl LogWriter {
    /// Opens the log of a directory, or begins one. With `syncs`, appends wait for the disk. `counter` counts them.
    ///
    /// # Errors
    /// `Locked` if a broker or another writer holds it; `Corrupt`; `Refused` for another topic id; an I/O error.
    pub fn open(
        directory: &Path,
        options: LogOptions,
        syncs: bool,
        counter: Arc<PutCounter>,
        now: i64,
    ) -> Result<Self> {
        let directory = disk::absolute(directory)?;
        if let Some(log_dir) = directory.parent() {
            refuse_other_holder(&log_dir.join(LOCK))?;
        }
        disk::create_directory(&directory)?;
        let lock = disk::lock_directory(&directory)?;
        let log = PartitionLog::open(&directory, options, now)?;
        let leader_epoch = log.epochs.latest().map_or(0, |epoch| epoch);
        let state = State { log: Some(log), offsets: Offsets::default(), leader_epoch, lock };
        Ok(Self {
            directory,
            state: InterruptibleMutex::new(state),
            group_commit: GroupCommit::default(),
            syncs,
            counter,
            failure: FirstFailure::default(),
            process: Generation::current(),
        })
    }

    /// Starts a thread that twice a second runs the tasks that are due and flushes by time. Dropping it stops the thread.
    ///
    /// # Errors
    /// An I/O error if the thread cannot start.
    pub fn start_service(self: &Arc<Self>) -> Result<LogService> {
        FlushService::start(Arc::clone(self), Schedule::Interval(Pace::FLUSH)).map(LogService)
    }

    /// The directory of the log.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// The first write or fsync that failed.
    pub fn failure(&self) -> &FirstFailure {
        &self.failure
    }

    fn state(&self) -> Result<InterruptibleGuard<'_, State>> {
        // In a forked child the lock may be held for ever.
        self.process.check_writer(&self.directory)?;
        self.state.wait().map_err(|e| Error::io(&self.directory, e))
    }

    fn closed(&self) -> Error {
        Error::InvalidArgument(format!("{} is closed", self.directory.display()))
    }

    /// Changes the log. An I/O error is final, because files and state may differ after it.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut PartitionLog) -> Result<T>) -> Result<T> {
        let mut state = self.state()?;
        self.failure.check()?;
        let log = state.log.as_mut().ok_or_else(|| self.closed())?;
        let changed = change(log);
        // What was appended before a refusal stays.
        let written = log.active().and_then(WritableSegment::write);
        self.failure.keep(written.and(changed).map_err(|error| match error {
            Error::Io { path, source } => Error::write_failed(&path, source),
            other => other,
        }))
    }

    /// The offsets, of a closed log as well.
    ///
    /// # Errors
    /// `InvalidArgument` in a forked child.
    pub fn offsets(&self) -> Result<Offsets> {
        let state = self.state()?;
        Ok(state.log.as_ref().map_or_else(|| state.offsets.clone(), offsets))
    }

    /// Appends batches that a producer, a coordinator or a leader sent.
    ///
    /// # Errors
    /// `Refused` as by a broker; `WriteFailed`, also of an earlier write or fsync.
    pub fn append_batches(&self, batches: &[u8], options: AppendOptions, now: i64) -> Result<AppendResult> {
        self.put(|log| log.append(batches, options, now))
    }

    /// Appends records, as a producer without id would send them, in one or more batches. They are refused one batch at a time.
    ///
    /// # Errors
    /// As [`Self::append_batches`]; `InvalidArgument` for columns that are no records, then nothing was appended.
    pub fn append(&self, records: &NewRecords<'_>, now: i64) -> Result<AppendResult> {
        let leader_epoch = self.leader_epoch()?;
        let options = AppendOptions::of(Origin::Client, leader_epoch);
        let mut batches = records.batches(now)?;
        let codec = batches.codec();
        // The batches of a small append are made without the lock, so that several threads compress at the same time.
        let (mut ready, mut size, mut batch) = (Vec::new(), 0, Vec::new());
        while size < MADE_WITHOUT_LOCK
            && let Some(facts) = batches.next(&mut batch)?
        {
            size += batch.len();
            ready.push((std::mem::take(&mut batch), facts));
        }
        self.put(|log| {
            let mut whole: Option<AppendResult> = None;
            let mut add = |log: &mut PartitionLog, batch: &mut [u8], facts: &Facts| {
                let part = log.append_new(batch, facts, codec, options, now)?;
                let first = whole.get_or_insert(part);
                first.last_offset = part.last_offset;
                first.max_timestamp = first.max_timestamp.max(part.max_timestamp);
                Ok::<(), Error>(())
            };
            for (batch, facts) in &mut ready {
                add(log, batch, facts)?;
            }
            while let Some(facts) = batches.next(&mut batch)? {
                add(log, &mut batch, &facts)?;
            }
            let none = AppendResult { first_offset: -1, last_offset: -1, max_timestamp: -1, log_append_time: -1 };
            Ok(whole.unwrap_or(none))
        })
    }

    /// Appends, waits for the disk and counts.
    fn put(&self, append: impl FnOnce(&mut PartitionLog) -> Result<AppendResult>) -> Result<AppendResult> {
        let begin = Instant::now();
        let (result, end, before, after) = self.change(|log| {
            let before = log.appended;
            Ok((append(log)?, log.end, before, log.appended))
        })?;
        self.wait_for_disk(end)?;
        if after.bytes > before.bytes {
            self.counter.add(after.records - before.records, after.bytes - before.bytes, begin);
        }
        Ok(result)
    }

    pub(super) fn leader_epoch(&self) -> Result<i32> {
        Ok(self.state()?.leader_epoch)
    }

    pub(super) fn wait_for_disk(&self, end: i64) -> Result<()> {
        if !self.syncs {
            return Ok(());
        }
        // A closed log is on the disk.
        let is_flushed = || Ok(self.state()?.log.as_ref().is_none_or(|log| log.unsynced_from >= end.min(log.end)));
        self.group_commit.flush(&self.directory, &self.failure, is_flushed, || self.sync())
    }

    /// Brings everything that was appended to the disk.
    fn sync(&self) -> Result<()> {
        let (files, is_new, target, truncations) = {
            let mut state = self.state()?;
            let Some(log) = state.log.as_mut() else { return Ok(()) };
            let (files, is_new) = log.unsynced();
            (files, is_new, log.end, log.truncations)
        };
        files.iter().try_for_each(|(path, file)| sync(path, file))?;
        if is_new {
            sync_directory(&self.directory)?;
        }
        if let Some(log) = self.state()?.log.as_mut()
            // Else other bytes may have taken the place of those that were flushed.
            && log.truncations == truncations
        {
            log.unsynced_from = log.unsynced_from.max(target);
        }
        Ok(())
    }

    /// Sets the topic's id of a log without one. Source: `UnifiedLog#assignTopicId`.
    ///
    /// # Errors
    /// `Refused` if the log has another id; `InvalidArgument` for an invalid id; as [`Self::append_batches`].
    pub fn assign_topic_id(&self, topic_id: &str) -> Result<()> {
        self.change(|log| {
            log.metadata.assign(topic_id.to_owned())?;
            log.metadata.write()
        })
    }

    /// Begins a leader's epoch at the end of the log. Source: `Partition#makeLeader`.
    ///
    /// # Errors
    /// `Refused` for a negative epoch; as [`Self::append_batches`].
    pub fn become_leader(&self, epoch: i32) -> Result<()> {
        self.change(|log| log.epochs.assign(epoch, log.end))?;
        self.state()?.leader_epoch = epoch;
        Ok(())
    }

    /// Moves the high watermark, to the end of the log without an offset.
    ///
    /// # Errors
    /// As [`Self::append_batches`].
    pub fn advance_high_watermark(&self, to: Option<i64>) -> Result<()> {
        self.change(|log| log.set_high_watermark(to.unwrap_or(log.end)))
    }

    /// Deletes the records below an offset, which is at most the high watermark.
    ///
    /// # Errors
    /// `Refused` above the high watermark; as [`Self::append_batches`].
    pub fn delete_records(&self, to: i64, now: i64) -> Result<()> {
        self.change(|log| log.increment_log_start(to, now))
    }

    /// Deletes segments by retention, and returns their number.
    ///
    /// # Errors
    /// As [`Self::append_batches`].
    pub fn delete_expired(&self, now: i64) -> Result<usize> {
        self.change(|log| log.delete_expired(now))
    }

    /// Begins a segment.
    ///
    /// # Errors
    /// As [`Self::append_batches`].
    pub fn roll(&self, now: i64) -> Result<()> {
        self.change(|log| log.roll(0, now))
    }

    /// Brings log and indexes to the disk.
    ///
    /// # Errors
    /// As [`Self::append_batches`].
    pub fn flush(&self, now: i64) -> Result<()> {
        self.change(|log| log.flush(log.end, false, now))
    }

    /// Flushes if `flush.ms` have passed since the last flush. Source: `LogManager#flushDirtyLogs`.
    ///
    /// # Errors
    /// As [`Self::append_batches`].
    pub fn flush_if_due(&self, now: i64) -> Result<()> {
        self.change(|log| {
            if now.saturating_sub(log.last_flush) >= log.options.config.flush_ms {
                log.flush(log.end, false, now)?;
            }
            Ok(())
        })
    }

    /// Cuts the log: the next record gets this offset.
    ///
    /// # Errors
    /// As [`Self::append_batches`].
    pub fn truncate_to(&self, offset: i64, now: i64) -> Result<()> {
        self.change(|log| log.truncate_to(offset, now))
    }

    /// Removes all records; the next one gets this offset.
    ///
    /// # Errors
    /// As [`Self::append_batches`].
    pub fn truncate_fully(&self, offset: i64, now: i64) -> Result<()> {
        self.change(|log| log.start_at(offset, now))
    }

    /// Runs what the broker leaves to other threads, as far as it is due.
    ///
    /// # Errors
    /// As [`Self::append_batches`].
    pub fn run_due_tasks(&self, now: i64) -> Result<()> {
        self.change(|log| log.run_due(now))
    }

    /// Flushes, takes a snapshot, trims the files and closes them.
    ///
    /// # Errors
    /// `WriteFailed`; the log is closed all the same.
    pub fn close(&self, now: i64) -> Result<()> {
        if self.is_closed()? {
            return Ok(());
        }
        let closed = self.change(|log| {
            log.flush(log.end, true, now)?;
            log.close()
        });
        self.abandon()?;
        closed
    }

    /// Closes the files as a kill does: nothing is trimmed, and tasks are forgotten.
    ///
    /// # Errors
    /// `InvalidArgument` in a forked child.
    pub fn abandon(&self) -> Result<()> {
        self.process.check_writer(&self.directory)?;
        let mut state = self.state.lock();
        if let Some(log) = state.log.take() {
            state.offsets = offsets(&log);
            state.lock = None;
        }
        Ok(())
    }

    /// True if it is closed.
    ///
    /// # Errors
    /// `InvalidArgument` in a forked child.
    pub fn is_closed(&self) -> Result<bool> {
        Ok(self.state()?.log.is_none())
    }
}

fn offsets(log: &PartitionLog) -> Offsets {
    Offsets {
        log_start: log.log_start,
        end: log.end,
        recovery_point: log.recovery_point,
        high_watermark: log.high_watermark,
        last_stable: log.last_stable_offset(),
        segments: log.segments.keys().copied().collect(),
        bytes: log.segments.values().map(|segment| segment.size).sum(),
    }
}

fn sync(path: &Path, file: &Arc<File>) -> Result<()> {
    file.sync_data().map_err(|e| Error::write_failed(path, e))
}
