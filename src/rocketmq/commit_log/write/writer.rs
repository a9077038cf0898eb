//! The handle of a log that is being written.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;

use super::draft::Draft;
use super::flush_service::FlushService;
use super::host::Host;
use super::new_message::GivenMessage;
use super::placed::{Placed, PlacedColumns};
use super::put_columns::PutColumns;
use super::shared::Shared;
use crate::error::{Error, Result};
use crate::io::disk;
use crate::rocketmq::commit_log::Bodies;
use crate::rocketmq::commit_log::frame::BLANK_LEN;

/// How a log is written.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// Bytes of a file (upstream `mappedFileSizeCommitLog`).
    pub file_size: u64,
    /// The host of messages that name none.
    pub store_host: Host,
    /// How many delay levels there are, 1 or more; a higher one counts as the last.
    pub levels: i32,
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
    /// Decoded bodies are plain, whatever the flag says.
    pub bodies: Bodies,
    /// Messages with a delay level are parked until their time. Not for those that are delivered, or come from a log.
    pub park: bool,
}

/// Appends messages to a log. For many threads; puts are one after the other.
#[derive(Debug)]
pub struct CommitLogWriter {
    shared: Arc<Shared>,
    service: Mutex<Option<FlushService>>,
    /// A fork shares the files with its parent, and must not write to them.
    process: u32,
}

impl CommitLogWriter {
    /// Goes on with a log at its end, which the caller has found, and behind which nothing but zeros is left. The directory
    /// and its files are made when the first message is put.
    ///
    /// # Errors
    /// `InvalidArgument` for a file size without room for a message, an end without room for a BLANK frame, or no delay
    /// level; the system's error when it gives no thread, or no current directory.
    pub fn open(directory: &Path, end_phy_offset: u64, options: WriterOptions) -> Result<Self> {
        let WriterOptions { file_size, levels, flush, .. } = options;
        if levels < 1 {
            return Err(Error::InvalidArgument(format!("levels is {levels}; expected 1 or more")));
        }
        if file_size <= BLANK_LEN || file_size > i32::MAX.unsigned_abs().into() {
            return Err(Error::InvalidArgument(format!("a file of the log cannot have {file_size} bytes")));
        }
        let left = file_size - end_phy_offset % file_size;
        if left < BLANK_LEN || i64::try_from(end_phy_offset).is_err() {
            let text = format!("a log in files of {file_size} bytes cannot end at {end_phy_offset}");
            return Err(Error::InvalidArgument(text));
        }
        let directory = disk::absolute(directory)?;
        let shared = Arc::new(Shared::new(&directory, end_phy_offset, options));
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
        self.shared.wrote()
    }

    /// Offset in the log before which everything is on the disk.
    pub fn flushed_offset(&self) -> u64 {
        self.shared.flushed()
    }

    /// Store time of the last message that is on the disk, 0 while none was put.
    pub fn flushed_store_timestamp(&self) -> i64 {
        self.shared.flushed_store_timestamp()
    }

    /// Says which offset the next message of a queue gets; that of a queue which was never named is 0.
    ///
    /// # Errors
    /// `InvalidArgument` for a negative number, and in a fork.
    pub fn set_queue_offset(&self, topic: &str, queue_id: i32, queue_offset: i64) -> Result<()> {
        self.check_process()?;
        if queue_id < 0 || queue_offset < 0 {
            return Err(Error::InvalidArgument(format!("queue {queue_id} of {topic} at {queue_offset}: below 0")));
        }
        self.shared.set_queue_offset(topic, queue_id, queue_offset);
        Ok(())
    }

    /// Keeps the checkpoint of a store true: it is lowered before a message is put whose store time is earlier than what it
    /// says. The file may be missing.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn keep_checkpoint(&self, path: &Path) -> Result<()> {
        self.check_process()?;
        self.shared.keep_checkpoint(path)
    }

    /// Begins to bring everything to the disk: the caller dispatches what was put so far, flushes log and queues, and then
    /// calls [`Self::write_checkpoint`].
    ///
    /// # Errors
    /// `InvalidArgument` in a forked child.
    pub fn begin_checkpoint(&self) -> Result<()> {
        self.check_process()?;
        self.shared.begin_checkpoint();
        Ok(())
    }

    /// Writes into the checkpoint up to which store time the log was flushed, and the queues, whose last message was stored at
    /// `dispatched` (0 for none), with what was put since [`Self::begin_checkpoint`] taken out.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn write_checkpoint(&self, dispatched: i64) -> Result<()> {
        self.check_process()?;
        self.shared.write_checkpoint(dispatched)
    }

    /// Appends a batch of messages and says where they are: a row each. With synchronous flush it waits for the disk.
    ///
    /// # Errors
    /// `InvalidArgument` for a row that is no message, and the system's error where a file cannot be made: then nothing
    /// was written. The system's error from a write or a flush; what a failed flush leaves is in the log, and is flushed
    /// again by the next one. What went wrong beside the puts since the last call.
    pub fn put_messages(&self, messages: &RecordBatch, options: PutOptions) -> Result<RecordBatch> {
        let mut columns = PutColumns::of(messages)?;
        let mut placed = PlacedColumns::with_capacity(messages.num_rows());
        self.put(options, |draft| {
            for row in 0..messages.num_rows() {
                let given = columns.message(row, draft.properties());
                placed.push(given.and_then(|given| draft.append(given)).map_err(|error| match error {
                    Error::InvalidArgument(text) => Error::InvalidArgument(format!("messages: row {row}: {text}")),
                    other => other,
                })?);
            }
            Ok(())
        })?;
        Ok(placed.into_batch())
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
    ) -> Result<Placed<'a>> {
        self.put(options, |draft| {
            draft.properties().extend(properties);
            draft.append(given)
        })
    }

    fn put<'a, T>(&self, options: PutOptions, fill: impl FnOnce(&mut Draft<'_, 'a>) -> Result<T>) -> Result<T> {
        self.check_process()?;
        self.shared.told()?;
        let (filled, end) = self.shared.put(options, fill)?;
        if self.shared.options.flush == FlushMode::Sync {
            self.shared.flush_to(end)?;
        }
        Ok(filled)
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
        self.shared.close();
        drop(self.service.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.flush()
    }

    /// True after [`Self::close`].
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    fn check_process(&self) -> Result<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(Error::InvalidArgument("a log that is open for writing belongs to the process that opened it".into()))
    }
}
