//! The consume queues of a store, by topic and queue.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::io::store_lock::fcntl_lock_holder;
use crate::io::{Location, ProcessMutex, storage};
use crate::rocketmq::checkpoint::{StoreCheckpoint, Timestamps};
use crate::rocketmq::commit_log::{CommitLog, Start};
use crate::rocketmq::consume_queue::{self, ConsumeQueue, Kind, Options, Totals};
use crate::rocketmq::names::is_folder_name;
use crate::rocketmq::offset_files;
use crate::rocketmq::queue_stream;
use crate::rocketmq::release::Release;

/// The folder of the extension files.
const EXTENSIONS: &str = "consumequeue_ext";
/// Queues that are kept open: a broker may have many thousands, and each holds files open.
const KEPT_OPEN: usize = 128;
/// Reading this many bytes of a log takes less time than reading the ends of some hundred queues.
pub(super) const SHORT_BYTES: u64 = 4 << 20;
/// First word of `abort` while logdex writes. A broker checks only the file's name.
const WRITTEN_BY_LOGDEX: &[u8] = b"logdex";

/// The directories of queues, by topic and queue id.
pub type Directories = BTreeMap<(String, i32), Vec<Location>>;

/// The queues of a store; recently used queues stay open.
#[derive(Debug)]
pub struct Queues {
    root: Location,
    log: Arc<CommitLog>,
    options: Options,
    /// The least recently used one first.
    open: ProcessMutex<Vec<Arc<ConsumeQueue>>>,
    dispatched_end: ProcessMutex<Option<u64>>,
}

impl Queues {
    /// Uses the queues of the store at `root`, with these options for each of them. Nothing is read.
    pub fn new(root: &Location, log: Arc<CommitLog>, options: Options) -> Self {
        let options = Options { commit_log: Some(Arc::clone(&log)), ..options };
        Self {
            root: root.to_owned(),
            log,
            options,
            open: ProcessMutex::default(),
            dispatched_end: ProcessMutex::default(),
        }
    }

    /// The root of the store.
    pub fn root(&self) -> &Location {
        &self.root
    }

    /// The log.
    pub fn log(&self) -> &Arc<CommitLog> {
        &self.log
    }

    /// The options of each queue.
    pub fn options(&self) -> &Options {
        &self.options
    }

    fn folder(&self, kind: Kind) -> Location {
        self.root.join(consume_queue::folder(kind))
    }

    /// Returns whether the queues are files: a 5.x broker may keep them in a `RocksDB` in the same directory.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn is_readable(&self) -> Result<bool> {
        let folder = self.folder(Kind::Plain);
        if !storage::is_directory(&folder)? {
            return Ok(false);
        }
        Ok(storage::list(&folder)?.iter().all(|entry| entry.name != "CURRENT"))
    }

    /// The folders that hold the queues.
    fn folders(&self) -> Result<Vec<Location>> {
        let plain = self.is_readable()?.then(|| self.folder(Kind::Plain));
        Ok(plain.into_iter().chain([self.folder(Kind::Batch)]).collect())
    }

    /// Returns the directories of the queues of these topics, or of all; batch queues have a folder of their own.
    ///
    /// A directory without files is left out: a deleted topic leaves one.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn directories(&self, topics: Option<&[String]>) -> Result<Directories> {
        let mut found = Directories::new();
        for folder in self.folders()? {
            for (topic, queue_id, directory) in consume_queue::list_queues(&folder, topics)? {
                found.entry((topic, queue_id)).or_default().push(directory);
            }
        }
        Ok(found)
    }

    /// Returns the topics that have a queue, sorted.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn topics(&self) -> Result<Vec<String>> {
        consume_queue::list_topics(&self.folders()?)
    }

    /// Returns the totals of the queues of these topics or of all, read in one pass; `measure` reads all units.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn totals(&self, topics: Option<&[String]>, measure: bool, threads: usize) -> Result<Totals> {
        Totals::read(&self.folders()?, topics, &self.options, measure, threads)
    }

    /// Opens the queue of a directory.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn open(&self, directory: &Location) -> Result<Arc<ConsumeQueue>> {
        self.open.wait_with(|open| {
            if let Some(place) = open.iter().position(|queue| queue.path() == directory) {
                let queue = open.remove(place);
                open.push(Arc::clone(&queue));
                return Ok(queue);
            }
            let queue = Arc::new(ConsumeQueue::open(directory, self.options_of(directory)?)?);
            if open.len() >= KEPT_OPEN {
                open.remove(0);
            }
            open.push(Arc::clone(&queue));
            Ok(queue)
        })?
    }

    /// The options of the queue of a directory, with its extension files.
    fn options_of(&self, directory: &Location) -> Result<Options> {
        let mut options = self.options.clone();
        let topic = directory.parent().and_then(|topic| topic.file_name().map(ToOwned::to_owned));
        if let Some((topic, queue_id)) = topic.zip(directory.file_name()) {
            options.extension = storage::if_directory(self.root.join(EXTENSIONS).join(topic).join(queue_id))?;
        }
        Ok(options)
    }

    /// Opens the queue of a topic.
    ///
    /// # Errors
    /// `NotFound` if it has no files; an I/O error, with the path.
    pub fn queue(&self, topic: &str, queue_id: &dyn fmt::Display) -> Result<Arc<ConsumeQueue>> {
        let mut missing = self.folder(Kind::Plain);
        // A topic from a caller must not name another directory.
        if is_folder_name(topic) {
            for kind in [Kind::Batch, Kind::Plain] {
                let directory = self.folder(kind).join(topic).join(queue_id.to_string());
                match storage::list(&directory) {
                    Ok(entries) if !entries.is_empty() => return self.open(&directory),
                    Err(Error::Io { source, .. }) if !storage::is_absent(&source) => {
                        return Err(Error::io(&directory, source));
                    }
                    _ => missing = directory,
                }
            }
        }
        let text = format!("no files of queue {queue_id} of topic {topic:?}");
        Err(Error::io(&missing, std::io::Error::new(ErrorKind::NotFound, text)))
    }

    /// Returns the log offset of the first of the last `num` units of some queues together; `None` without units.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn start_of_last(&self, num: i64, topics: Option<&[String]>, queue_id: Option<i64>) -> Result<Option<u64>> {
        let found = self.directories(topics)?;
        let chosen = found.iter().filter(|((_, number), _)| queue_id.is_none_or(|id| id == i64::from(*number)));
        let queues = chosen.flat_map(|(_, paths)| paths).map(|path| self.open(path)).collect::<Result<Vec<_>>>()?;
        consume_queue::start_of_last(&queues, num)
    }

    /// Returns the sizes of the files of plain queues, of batch queues and of extension files; `None` if none is known.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn file_sizes(&self) -> Result<[Option<u64>; 3]> {
        let size_of = |kind: Kind| -> Result<Option<u64>> {
            for (.., directory) in consume_queue::list_queues(&self.folder(kind), None)? {
                let size = self.open(&directory)?.file_size()?;
                if size > 0 {
                    return Ok(Some(size));
                }
            }
            Ok(None)
        };
        let plain = if self.is_readable()? { size_of(Kind::Plain)? } else { None };
        let mut extension = None;
        for (.., directory) in consume_queue::list_queues(&self.root.join(EXTENSIONS), None)? {
            let files = offset_files::list(std::slice::from_ref(&directory))?;
            extension = files.iter().map(|file| file.len).filter(|len| *len > 0).chain(extension).max();
        }
        Ok([plain, size_of(Kind::Batch)?, extension])
    }

    /// Returns the offset up to which the queues are reliable: a broker's start would dispatch messages only from there.
    ///
    /// If the queues of these topics lead near the end of the log, no others are read, and the offset may be a little lower; `None`:
    /// all queues are read. With `lately` an earlier result is used if it is near the end of the log.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn reliable_end(&self, topics: Option<&[String]>, threads: usize, lately: bool) -> Result<u64> {
        let log_end = self.log.max_offset()?;
        let near = |end: &u64| log_end.saturating_sub(*end) <= SHORT_BYTES;
        let of_topics = topics.map_or(Ok(None), |topics| self.end_of(Some(topics), threads))?;
        let end = match of_topics.filter(near) {
            Some(end) => Some(end),
            None => self.end_of_all(if lately { SHORT_BYTES } else { 0 }, threads)?,
        };
        let abort = self.root.join("abort");
        let Some(end) = end.filter(|end| *end > 0) else { return Ok(0) };
        if !storage::exists(&abort)? || self.has_running_broker(&abort) {
            return Ok(end);
        }
        let checkpoint = self.root.join("checkpoint");
        let timestamps = if storage::exists(&checkpoint)? {
            StoreCheckpoint::open(&checkpoint)?.timestamps
        } else {
            Timestamps::default()
        };
        let recovery = self.log.recovery(Start {
            last_exit_ok: false,
            timestamps,
            queue_end: end.cast_signed(),
            message_index_safe: false,
            compat: self.options.compat.unwrap_or(Release::V4_9_3),
            settle: false,
        })?;
        Ok(end.min(recovery.dispatch))
    }

    /// Returns whether a broker has the store open. Its queues are complete then, although not all is on the disk. A writer of logdex
    /// writes them one by one.
    fn has_running_broker(&self, abort: &Location) -> bool {
        let lock = self.root.join("lock");
        let holder = lock.local().ok().and_then(|lock| fcntl_lock_holder(lock).ok().flatten());
        let words = || storage::read_file(abort, Some(WRITTEN_BY_LOGDEX.len() as u64)).unwrap_or_default();
        holder.is_some() && words() != WRITTEN_BY_LOGDEX
    }

    fn end_of(&self, topics: Option<&[String]>, threads: usize) -> Result<Option<u64>> {
        queue_stream::dispatched_end(&self.log, &self.folders()?, topics, &self.options, threads)
    }

    /// Returns the farthest end offset of a message that a unit of any queue refers to.
    ///
    /// With many queues this takes seconds. An earlier result is used if it is less than `lag` bytes before the end of the log. Of
    /// several threads that need it at the same time one computes it, and the others wait.
    fn end_of_all(&self, lag: u64, threads: usize) -> Result<Option<u64>> {
        if lag == 0 {
            return self.end_of(None, threads);
        }
        self.dispatched_end.wait_with(|known| {
            let log_end = self.log.max_offset()?;
            if known.is_none_or(|known| log_end.checked_sub(known).is_none_or(|left| left >= lag)) {
                *known = self.end_of(None, threads)?;
            }
            Ok(*known)
        })?
    }
}
