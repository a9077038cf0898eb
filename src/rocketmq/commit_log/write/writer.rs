//! The handle of a log that is being written.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;

use super::new_message::GivenMessage;
use super::options::{AppendMode, FlushMode, PutOptions, WriterOptions};
use super::pending_batch::PendingBatch;
use super::put_columns::PutColumns;
use super::put_result::{PutResult, PutResultColumns};
use super::sent_message::SentMessage;
use super::shared::{CommitRealTimeService, Shared, Written};
use crate::arrow::input_columns::{Int32s, Texts, integers, null};
use crate::error::{Error, Result};
use crate::io::flush_service::{FlushService, Pace, Schedule};
use crate::io::fork::Generation;
use crate::io::{FirstFailure, PutCounter, disk};
use crate::rocketmq::commit_log::Bodies;
use crate::rocketmq::commit_log::frame::{BLANK_LEN, is_in_queue};

/// Appends messages to a log. Any thread may call; puts run one after the other.
#[derive(Debug)]
pub struct CommitLogWriter {
    shared: Arc<Shared>,
    service: Mutex<Option<Arc<FlushService>>>,
    /// Commits the buffers of a pool.
    commit_service: Mutex<Option<FlushService>>,
    counter: Arc<PutCounter>,
    /// A fork shares the files with its parent, and must not write to them.
    process: Generation,
}

/// The result of [`CommitLogWriter::put_stored`].
#[derive(Debug, Default)]
pub struct StoredPut {
    /// Messages that the log took, and their places.
    pub taken: Vec<(RecordBatch, RecordBatch)>,
    /// Single messages that no log takes, and why.
    pub refused: Vec<(RecordBatch, String)>,
}

impl Drop for CommitLogWriter {
    fn drop(&mut self) {
        self.stop();
    }
}

impl CommitLogWriter {
    /// Opens a log at its end, which the caller has found. After it there are only zeros. The directory and its files are
    /// created when the first message is put.
    ///
    /// # Errors
    /// `InvalidArgument` for a file size that fits no message, an end that leaves no space for a BLANK frame, or no delay level;
    /// an I/O error if the flush thread cannot start, or there is no current directory.
    pub fn open(directory: &Path, end_phy_offset: u64, options: WriterOptions) -> Result<Self> {
        let WriterOptions { file_size, levels, flush, append, .. } = options;
        if append.mode == AppendMode::Write && (append.warm || append.lock_memory) {
            return Err(Error::InvalidArgument(
                "warm, lock_memory: expected with append \"mapped\" or \"pool\"".into(),
            ));
        }
        if levels < 1 {
            return Err(Error::InvalidArgument(format!("levels={levels}: expected 1 or more")));
        }
        if file_size <= BLANK_LEN || file_size > i32::MAX.unsigned_abs().into() {
            return Err(Error::InvalidArgument(format!(
                "file_size={file_size}: expected {} to {} bytes",
                BLANK_LEN + 1,
                i32::MAX
            )));
        }
        let left = file_size - end_phy_offset % file_size;
        if left < BLANK_LEN || i64::try_from(end_phy_offset).is_err() {
            let text = format!(
                "end_phy_offset={end_phy_offset}: expected {BLANK_LEN} bytes or more before the end of a file of {file_size} bytes"
            );
            return Err(Error::InvalidArgument(text));
        }
        let directory = disk::absolute(directory)?;
        let shared = Arc::new(Shared::new(&directory, end_phy_offset, options));
        let start = |schedule| FlushService::start(Arc::clone(&shared), schedule).map(Arc::new).map(Some);
        let service = match flush {
            FlushMode::Async => start(Schedule::Interval(Pace::FLUSH))?,
            FlushMode::Sync => start(Schedule::Demand)?,
            FlushMode::Manual => None,
        };
        let commits = || {
            FlushService::start(Arc::new(CommitRealTimeService(Arc::clone(&shared))), Schedule::Interval(Pace::COMMIT))
        };
        let commit_service = Mutex::new((append.mode == AppendMode::Pool).then(commits).transpose()?);
        let service = Mutex::new(service);
        Ok(Self { shared, service, commit_service, counter: Arc::default(), process: Generation::current() })
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
        self.shared.wrote()
    }

    /// Offset in the log before which readers see everything: after the last message, except while buffers are not committed.
    pub fn committed_offset(&self) -> u64 {
        self.shared.committed()
    }

    /// Offset in the log before which everything is on the disk.
    pub fn flushed_offset(&self) -> u64 {
        self.shared.flushed()
    }

    /// True if puts wait for the disk.
    pub fn flushes_puts(&self) -> bool {
        self.shared.options.flush == FlushMode::Sync
    }

    /// Stores time of the last message that is on the disk; 0 before the first put.
    pub fn flushed_store_timestamp(&self) -> i64 {
        self.shared.flushed_store_timestamp()
    }

    /// The counter of the puts since the log was opened.
    ///
    /// # Errors
    /// `InvalidArgument` in a forked process, where its lock may be held for ever.
    pub fn counter(&self) -> Result<Arc<PutCounter>> {
        self.check_process()?;
        Ok(Arc::clone(&self.counter))
    }

    /// Sets the queue offset of the next message of a queue. A queue that was never set begins with 0.
    ///
    /// # Errors
    /// `InvalidArgument` for a negative number, and in a fork.
    pub fn set_queue_offset(&self, topic: &str, queue_id: i32, queue_offset: i64) -> Result<()> {
        self.check_process()?;
        if queue_id < 0 || queue_offset < 0 {
            return Err(Error::InvalidArgument(format!(
                "topic {topic:?}: expected a queue and an offset of 0 or more, found queue {queue_id}, offset {queue_offset}"
            )));
        }
        self.shared.set_queue_offset(topic, queue_id, queue_offset)
    }

    /// Sets the queue offsets of the next messages from a batch of `topic`, `queue_id` and `queue_offset`. With `sys_flag` the
    /// rows are messages: only queues without an offset are set, and messages without a place in a queue are skipped.
    ///
    /// # Errors
    /// `InvalidArgument` for a column that is missing, of another type, or null, for a negative number, and in a fork.
    pub fn set_queue_offsets(&self, queues: &RecordBatch) -> Result<()> {
        self.check_process()?;
        let (topics, queue_ids) = (Texts::of(queues, "topic")?, Int32s::of(queues, "queue_id")?);
        let queue_offsets = integers(queues, "queue_offset")?;
        let sys_flags = queues.column_by_name("sys_flag").map(|_| Int32s::of(queues, "sys_flag")).transpose()?;
        for row in 0..queues.num_rows() {
            let topic = topics.get(row).ok_or_else(|| null("topic", row))?;
            let (queue_id, offset) =
                (queue_ids.get(row)?, queue_offsets(row).ok_or_else(|| null("queue_offset", row))?);
            match &sys_flags {
                None => self.set_queue_offset(topic, queue_id, offset)?,
                Some(sys_flags) if is_in_queue(sys_flags.get(row)?) => {
                    self.shared.begin_queue(topic, queue_id, offset)?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Keeps the checkpoint of a store correct: it is lowered before a message with an earlier store time is put. The file may be
    /// missing.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn keep_checkpoint(&self, path: &Path) -> Result<()> {
        self.check_process()?;
        self.shared.keep_checkpoint(path)
    }

    /// Begins a checkpoint: the caller dispatches what was put so far, flushes log and queues, and then calls
    /// [`Self::write_checkpoint`].
    ///
    /// # Errors
    /// `InvalidArgument` in a forked child.
    pub fn begin_checkpoint(&self) -> Result<()> {
        self.check_process()?;
        self.shared.begin_checkpoint()
    }

    /// Writes into the checkpoint the store times up to which the log and the queues are flushed. `dispatched` is the store time
    /// of the last message in the queues, 0 for none. What was put since [`Self::begin_checkpoint`] is left out.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn write_checkpoint(&self, dispatched: i64) -> Result<()> {
        self.check_process()?;
        self.shared.write_checkpoint(dispatched)
    }

    /// Appends a batch of messages and returns their places, one row for each. With synchronous flush it waits for the disk.
    ///
    /// # Errors
    /// `InvalidArgument` for a row that is no message, and an I/O error if a file cannot be created: then nothing was
    /// written. `WriteFailed` from a write or a flush, or of an earlier one: nothing more is written.
    pub fn put_messages(&self, messages: &RecordBatch, options: PutOptions) -> Result<RecordBatch> {
        let mut columns = PutColumns::of(messages)?;
        let mut results = PutResultColumns::with_capacity(messages.num_rows());
        self.put(options, |batch| {
            for row in 0..messages.num_rows() {
                let given = columns.message(row, batch.properties());
                results.push(given.and_then(|given| batch.append(given)).map_err(|error| match error {
                    Error::InvalidArgument(text) => Error::InvalidArgument(format!("messages: row {row}: {text}")),
                    other => other,
                })?);
            }
            Ok(())
        })?;
        Ok(results.into_batch())
    }

    /// Appends one message with these properties and returns its place.
    ///
    /// # Errors
    /// As [`Self::put_messages`].
    pub fn put_message<'a>(
        &self,
        given: GivenMessage<'a>,
        properties: impl IntoIterator<Item = (&'a str, &'a str)>,
        options: PutOptions,
    ) -> Result<PutResult<'a>> {
        self.put(options, |batch| {
            batch.properties().extend(properties);
            batch.append(given)
        })
    }

    /// Appends what several producers sent, and returns the places of the messages of each. The messages of a batch are stored in
    /// one file, all or none; a message that no log takes does not hold up the others. With synchronous flush one flush serves
    /// all of them, and `timeout` is the longest time to wait for it; `None`: no limit. [`Self::flushed_offset`] shows whether it
    /// ended in time.
    ///
    /// # Errors
    /// As [`Self::put_messages`], but not `InvalidArgument`, which is the result of one of them.
    pub fn put_each<'a>(
        &self,
        sent: &[SentMessage<'a>],
        timeout: Option<Duration>,
    ) -> Result<Vec<Result<Vec<PutResult<'a>>>>> {
        let options = PutOptions { bodies: Bodies::Stored, park: true };
        self.put_within(timeout, options, |batch| {
            let mut results = Vec::with_capacity(sent.len());
            for each in sent {
                match batch.append_together(|batch| each.append_to(batch)) {
                    Err(error) if !matches!(error, Error::InvalidArgument(_)) => return Err(error),
                    placed => results.push(placed),
                }
            }
            Ok(results)
        })
    }

    fn put<'a, T>(&self, options: PutOptions, fill: impl FnOnce(&mut PendingBatch<'_, 'a>) -> Result<T>) -> Result<T> {
        self.put_within(None, options, fill)
    }

    fn put_within<'a, T>(
        &self,
        timeout: Option<Duration>,
        options: PutOptions,
        fill: impl FnOnce(&mut PendingBatch<'_, 'a>) -> Result<T>,
    ) -> Result<T> {
        self.check_process()?;
        let start = Instant::now();
        let (filled, Written { messages, begin, end }) = self.shared.put(options, fill)?;
        if self.flushes_puts() {
            self.flush_within(timeout, end)?;
        }
        self.counter.add(messages as u64, end - begin, start);
        Ok(filled)
    }

    fn flush_within(&self, timeout: Option<Duration>, end: u64) -> Result<()> {
        let service = self.service.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match (timeout, service) {
            (Some(timeout), Some(service)) => {
                service.wait(&*self.shared, end, timeout);
                self.failure().check()
            }
            // Without a limit, or while the log is closed.
            (_, _) => self.shared.flush_to(end),
        }
    }

    /// Appends the whole frames at the beginning of bytes that another broker wrote at this offset of its log (upstream
    /// `CommitLog#appendData`). Queue offsets are not numbered. With synchronous flush it waits for the disk.
    ///
    /// Returns the length of the frames that were appended, and the number of bytes with which the next frame is whole, as far as
    /// it is known.
    ///
    /// # Errors
    /// `Corrupt` if the first bytes are not a frame of this offset; else as [`Self::put_messages`].
    pub fn append_frames(&self, data: &[u8]) -> Result<(usize, usize)> {
        self.check_process()?;
        let appended = self.shared.append(data)?;
        if self.flushes_puts() {
            self.flush()?;
        }
        Ok(appended)
    }

    /// The first write or fsync that failed, of a put, a flush, the flush thread or the checkpoint.
    pub fn failure(&self) -> &FirstFailure {
        self.shared.failure()
    }

    /// Appends messages with bodies as they are stored. If a row is no message, the others are put all the same.
    ///
    /// # Errors
    /// As [`Self::put_messages`], but not `InvalidArgument`.
    pub fn put_stored(&self, messages: &RecordBatch) -> Result<StoredPut> {
        self.check_process()?;
        let mut put = StoredPut::default();
        let mut rest = vec![messages.clone()];
        while let Some(part) = rest.pop() {
            match self.put_messages(&part, PutOptions { bodies: Bodies::Stored, park: false }) {
                Ok(_) if part.num_rows() == 0 => {}
                Ok(places) => put.taken.push((part, places)),
                Err(Error::InvalidArgument(text)) if part.num_rows() <= 1 => put.refused.push((part, text)),
                // Nothing was written. One message must not hold up the others: halve the batch until it is alone.
                Err(Error::InvalidArgument(_)) => {
                    let half = part.num_rows() / 2;
                    rest.push(part.slice(half, part.num_rows() - half));
                    rest.push(part.slice(0, half));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(put)
    }

    /// Copies everything that was put from buffers to the files, so that readers see it.
    ///
    /// # Errors
    /// `WriteFailed`, also of an earlier write or flush, with the path.
    pub fn commit(&self) -> Result<()> {
        self.check_process()?;
        self.shared.commit()
    }

    /// Waits until all that was put is on the disk.
    ///
    /// # Errors
    /// `WriteFailed`, also of an earlier write or flush, with the path.
    pub fn flush(&self) -> Result<()> {
        self.check_process()?;
        self.shared.flush_to(self.wrote_offset())
    }

    /// Flushes and closes; later puts are refused.
    ///
    /// # Errors
    /// As [`Self::flush`]; the writer is closed all the same.
    pub fn close(&self) -> Result<()> {
        self.check_process()?;
        self.shared.refuse_puts();
        self.stop();
        let flushed = self.flush();
        self.shared.close_files();
        flushed
    }

    /// Ends the threads after their current work and waits for them, as dropping the writer does, and commits what is in buffers.
    /// A forked child has none.
    pub fn stop(&self) {
        if self.process.is_current() {
            drop(self.service.lock().unwrap_or_else(PoisonError::into_inner).take());
            drop(self.commit_service.lock().unwrap_or_else(PoisonError::into_inner).take());
            // An error is kept.
            let _ = self.shared.commit();
            self.shared.stop_allocating();
        }
    }

    /// True after [`Self::close`].
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    fn check_process(&self) -> Result<()> {
        if self.process.is_current() {
            return Ok(());
        }
        Err(Error::InvalidArgument("a log opened for writing belongs to the process that opened it".into()))
    }
}
