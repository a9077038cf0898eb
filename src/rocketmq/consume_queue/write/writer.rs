//! Queues made from the messages of a log, as a broker makes them: anew where they are missing, or behind what is there.
//!
//! Source: upstream `CommitLogDispatcherBuildConsumeQueue`, `ConsumeQueue#multiDispatchLmqQueue`. Every message without a
//! transaction, or of a committed one, gets a unit at its queue offset; what a queue has already is passed over.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;

use super::batch::offset_batch;
use super::extension_writer::ExtensionWriter;
use super::opened_queue::{OpenedQueue, check_files};
use super::queue::Kind;
use super::store_queues::{EXTENSION_FOLDER, FileSizes, QueueDirectory, check_sizes, folder, queues};
use super::tags_code::{DelayLevels, tags_code};
use super::unit::{BatchUnit, Unit};
use super::written_files::{Written, WrittenFiles};
use super::written_queue::{QueueEnd, WrittenQueue};
use crate::error::{Error, Result};
use crate::io::disk;
use crate::io::store_lock::refuse_other_holder;
use crate::rocketmq::commit_log::frame::{INNER_BATCH, is_in_queue};
use crate::rocketmq::cut::cut_files;
use crate::rocketmq::findings::Checked;
use crate::rocketmq::message_columns::MessageColumns;
use crate::rocketmq::names::{
    DELAY, INNER_BASE, INNER_NUM, MULTI_DISPATCH, MULTI_QUEUE_OFFSET, dispatched_queue_id, is_folder_name,
};
use crate::rocketmq::offset_files;

/// Units are kept in memory up to so many bytes, over all queues.
const KEPT: usize = 32 * 1024 * 1024;

/// How queues are written.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Bytes of a file of a plain queue, rounded up to whole units. `None`: of the files there, else [`Self::FILE_SIZE`].
    pub file_size: Option<u64>,
    /// The same of a batch queue, else [`Self::BATCH_FILE_SIZE`].
    pub batch_file_size: Option<u64>,
    /// The broker's delays.
    pub delay_levels: DelayLevels,
    /// Messages go to the queues that `INNER_MULTI_DISPATCH` names as well (the broker's `enableMultiDispatch`).
    pub multi_dispatch: bool,
    /// Bytes of an extension file (`mappedFileSizeConsumeQueueExt`), where there are such files (`enableConsumeQueueExt`): each
    /// message's own unit then has its tags code there. `None`: of the files there, else there are none.
    pub extension_file_size: Option<u64>,
}

impl WriterOptions {
    /// Bytes of a plain queue's file by default (`mappedFileSizeConsumeQueue`).
    pub const FILE_SIZE: u64 = 6_000_000;
    /// Bytes of a batch queue's file by default (`mapperFileSizeBatchConsumeQueue`).
    pub const BATCH_FILE_SIZE: u64 = 13_800_000;
}

/// Writes the queues of a store.
#[derive(Debug)]
pub struct ConsumeQueueWriter {
    root: PathBuf,
    options: WriterOptions,
    sizes: FileSizes,
    queues: HashMap<String, HashMap<(i32, bool), WrittenQueue>>,
    /// Offset in the log behind the last unit of any queue; -1 without any.
    log_end: i64,
    /// The same of the queue that ends first of those that lost units.
    damaged_end: Option<i64>,
    kept: usize,
    written: Written,
    /// The same of extension files.
    extensions: Written,
    checked: Checked,
}

impl ConsumeQueueWriter {
    /// The message columns that [`Self::append_batch`] reads.
    pub const COLUMNS: [&str; 9] = [
        "topic",
        "queue_id",
        "queue_offset",
        "phy_offset",
        "store_timestamp",
        "tags",
        "properties",
        "sys_flag",
        "store_size",
    ];

    /// Begins the directories `consumequeue` and `batchconsumequeue` in `root`, which is made where it is missing.
    ///
    /// # Errors
    /// `AlreadyExists` when one of the two is there, or `consumequeue_ext` where extension files are asked for;
    /// `InvalidArgument` for file sizes without room for a unit; the system's error, with the path.
    pub fn create(root: &Path, options: WriterOptions) -> Result<Self> {
        check_sizes(&options)?;
        let root = &disk::absolute(root)?;
        let extension = options.extension_file_size.map(|_| EXTENSION_FOLDER);
        for folder in [folder(Kind::Plain), folder(Kind::Batch)].into_iter().chain(extension) {
            let folder = root.join(folder);
            if folder.symlink_metadata().is_ok() {
                return Err(Error::io(&folder, std::io::ErrorKind::AlreadyExists.into()));
            }
        }
        // Extension files of other queues stay as they are.
        let sizes = FileSizes { extension: options.extension_file_size, ..FileSizes::of(root, &options)? };
        let queues = root.join(folder(Kind::Plain));
        fs::create_dir_all(&queues).map_err(|e| Error::io(&queues, e))?;
        Ok(Self::new(root, options, sizes))
    }

    /// Refuses what [`Self::open`] would refuse because of names and sizes; nothing is changed.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn check_files(root: &Path, options: &WriterOptions) -> Result<()> {
        check_sizes(options)?;
        let sizes = FileSizes::of(root, options)?;
        for (kind, size) in [(Kind::Plain, sizes.plain), (Kind::Batch, sizes.batch)] {
            for queue in queues(root, folder(kind))? {
                check_files(&offset_files::list(&[queue.directory])?, size)?;
            }
        }
        Ok(())
    }

    /// Opens the queues of the store in `root`, which may lack any of the directories, to go on behind their ends.
    ///
    /// What leads to `end_phy_offset` in the log or behind it is cut off, for good. Counted are `units_cut` and
    /// `queue_files_deleted`; findings are units that were lost to damage ([`Self::dispatch_offset`]).
    ///
    /// # Errors
    /// `Locked` while a broker holds the store; `InvalidArgument` for sizes other than those of the files there, or queues that
    /// are a database; `Corrupt` for files whose sizes or names do not go together; the system's error, with the path.
    pub fn open(root: &Path, end_phy_offset: i64, options: WriterOptions) -> Result<Self> {
        check_sizes(&options)?;
        let root = &disk::absolute(root)?;
        refuse_other_holder(&root.join("lock"))?;
        let sizes = FileSizes::of(root, &options)?;
        let plain = root.join(folder(Kind::Plain));
        fs::create_dir_all(&plain).map_err(|e| Error::io(&plain, e))?;
        let mut writer = Self::new(root, options, sizes);
        writer.checked.count("units_cut", 0);
        writer.checked.count("queue_files_deleted", 0);
        for kind in [Kind::Plain, Kind::Batch] {
            for queue in queues(root, folder(kind))? {
                writer.open_queue(kind, queue, end_phy_offset)?;
            }
        }
        // No unit leads to the extensions of a queue that is gone, and one that is made anew begins at their beginning.
        for QueueDirectory { topic, queue_id, directory } in queues(root, EXTENSION_FOLDER)? {
            if writer.queues.get(&topic).is_none_or(|queues| !queues.contains_key(&(queue_id, false))) {
                cut_files(&offset_files::list(&[directory])?, 0)?;
            }
        }
        Ok(writer)
    }

    fn new(root: &Path, options: WriterOptions, sizes: FileSizes) -> Self {
        Self {
            root: root.to_owned(),
            options,
            sizes,
            queues: HashMap::new(),
            log_end: -1,
            damaged_end: None,
            kept: 0,
            written: Written::default(),
            extensions: Written::default(),
            checked: Checked::default(),
        }
    }

    fn open_queue(&mut self, kind: Kind, queue: QueueDirectory, end_phy_offset: i64) -> Result<()> {
        let QueueDirectory { topic, queue_id, directory } = queue;
        let (files, extension) = self.files(kind, &topic, queue_id);
        let addresses = self.directory(EXTENSION_FOLDER, &topic, queue_id);
        let opened = OpenedQueue::open(&directory, &addresses, files.file_size, end_phy_offset, &mut self.checked)?;
        let OpenedQueue { end, address, units_cut, cut, is_damaged } = opened;
        self.checked.count("units_cut", units_cut);
        self.checked.count("queue_files_deleted", cut.files);
        self.log_end = self.log_end.max(end.log_end);
        if is_damaged {
            self.damaged_end = Some(self.damaged_end.map_or(end.log_end, |damaged| damaged.min(end.log_end)));
        }
        let extension = match extension {
            Some(files) => Some(ExtensionWriter::open(files, &end, address)?),
            None => None,
        };
        let queue = WrittenQueue::new(files, extension, kind, end);
        self.queues.entry(topic).or_default().insert((queue_id, kind == Kind::Batch), queue);
        Ok(())
    }

    /// The files of a queue, and those of its extension where it has one.
    fn files(&self, kind: Kind, topic: &str, queue_id: i32) -> (WrittenFiles, Option<WrittenFiles>) {
        let files = |folder, file_size| WrittenFiles { directory: self.directory(folder, topic, queue_id), file_size };
        match kind {
            Kind::Plain => {
                let extension = self.sizes.extension.map(|size| files(EXTENSION_FOLDER, size));
                (files(folder(kind), self.sizes.plain), extension)
            }
            Kind::Batch => (files(folder(kind), self.sizes.batch), None),
        }
    }

    fn directory(&self, folder: &str, topic: &str, queue_id: i32) -> PathBuf {
        self.root.join(folder).join(topic).join(queue_id.to_string())
    }

    /// What opening found and did, and what was found since.
    pub fn checked(&self) -> &Checked {
        &self.checked
    }

    /// Offset in the log behind the last unit of any queue, -1 without units.
    pub fn log_end(&self) -> i64 {
        self.log_end
    }

    /// From here in the log messages are dispatched so that no queue lacks one: [`Self::log_end`], or where the first of
    /// the queues ends that opening found damaged. -1 where that is the beginning.
    pub fn dispatch_offset(&self) -> i64 {
        self.damaged_end.unwrap_or(self.log_end)
    }

    /// The queue offset of the next message of each queue, as a record batch of `topic`, `queue_id` and `queue_offset`, sorted.
    pub fn queue_offsets(&self) -> RecordBatch {
        let queues = self.queues.iter().flat_map(|(topic, queues)| {
            queues.iter().filter_map(|((id, _), queue)| Some((topic.as_str(), *id, queue.next_offset()?)))
        });
        let mut rows: Vec<_> = queues.collect();
        rows.sort_unstable();
        offset_batch(&rows)
    }

    /// Adds the units of a batch of messages, in the order of the log. Gives how many there were.
    ///
    /// # Errors
    /// `InvalidArgument` for a column that is missing, of another type, or null; the system's error, with the path.
    pub fn append_batch(&mut self, messages: &RecordBatch) -> Result<usize> {
        let columns = MessageColumns::of(messages)?;
        let mut units = 0;
        for row in 0..messages.num_rows() {
            units += self.append(&columns, row)?;
        }
        self.checked.count("messages", messages.num_rows() as u64);
        self.checked.count("units", units as u64);
        if self.kept > KEPT {
            self.flush(false)?;
        }
        Ok(units)
    }

    fn append(&mut self, columns: &MessageColumns<'_>, row: usize) -> Result<usize> {
        let sys_flag = columns.sys_flag(row)?;
        if !is_in_queue(sys_flag) {
            return Ok(0);
        }
        let topic = columns.topic(row)?;
        let queue_id = columns.queue_id(row)?;
        let store_timestamp = columns.store_timestamp(row)?;
        let delay = columns.property(row, DELAY);
        let unit = Unit {
            phy_offset: columns.phy_offset(row)?,
            size: columns.store_size(row)?,
            tags_code: tags_code(topic, columns.tags(row), delay, store_timestamp, &self.options.delay_levels),
        };
        let plain = BatchUnit { unit, store_timestamp, base_offset: columns.queue_offset(row)?, messages: 1 };
        let number = |name| columns.property(row, name).and_then(|text| text.parse::<i64>().ok());
        if sys_flag & INNER_BATCH != 0 {
            let messages = number(INNER_NUM).and_then(|count| i16::try_from(count).ok());
            let (Some(base_offset), Some(messages)) = (number(INNER_BASE), messages) else {
                return Ok(0);
            };
            let unit = BatchUnit { base_offset, messages, ..plain };
            return Ok(self.put(topic, queue_id, Kind::Batch, unit, false));
        }
        let mut units = self.put(topic, queue_id, Kind::Plain, plain, true);
        if let (true, Some(queues), Some(offsets)) = (
            self.options.multi_dispatch,
            columns.property(row, MULTI_DISPATCH),
            columns.property(row, MULTI_QUEUE_OFFSET),
        ) && queues.split(',').count() == offsets.split(',').count()
        {
            for (queue, offset) in queues.split(',').zip(offsets.split(',')) {
                let Ok(base_offset) = offset.parse() else {
                    continue;
                };
                let queue_id = dispatched_queue_id(queue, queue_id);
                let unit = BatchUnit { base_offset, ..plain };
                // Their units hold the tags code itself.
                units += self.put(queue, queue_id, Kind::Plain, unit, false);
            }
        }
        Ok(units)
    }

    /// Puts one unit, with an extension where they are written; 1 where it was put.
    fn put(&mut self, topic: &str, queue_id: i32, kind: Kind, unit: BatchUnit, extended: bool) -> usize {
        if !is_folder_name(topic) || queue_id < 0 || !unit.is_valid() {
            let found = format!("topic {topic:?}, queue {queue_id}, queue offset {}", unit.base_offset);
            let expected = "a topic that can name a folder, and numbers of 0 or more";
            self.checked.find(&self.root, 0, "queue-name", expected, found);
            return 0;
        }
        let key = (queue_id, kind == Kind::Batch);
        let put = if let Some(queue) = self.queues.get_mut(topic).and_then(|queues| queues.get_mut(&key)) {
            queue.put(unit, extended, &mut self.checked)
        } else {
            let (files, extension) = self.files(kind, topic, queue_id);
            let extension = extension.map(ExtensionWriter::new);
            let mut queue = WrittenQueue::new(files, extension, kind, QueueEnd::NEW);
            let put = queue.put(unit, extended, &mut self.checked);
            self.queues.entry(topic.to_owned()).or_default().insert(key, queue);
            put
        };
        if put {
            self.log_end = self.log_end.max(unit.unit.end());
        }
        // As much again for the extension.
        self.kept += if put { kind.unit_len() << u8::from(extended) } else { 0 };
        usize::from(put)
    }

    /// Writes what is kept, so that readers see it; with `sync` it is on the disk when this returns. Extension units go before the
    /// units that lead to them.
    ///
    /// # Errors
    /// The system's error, with the path. What was not written stays kept.
    pub fn flush(&mut self, sync: bool) -> Result<()> {
        for queue in self.queues.values_mut().flat_map(HashMap::values_mut) {
            queue.write_extension(&mut self.extensions)?;
        }
        if sync {
            self.extensions.sync()?;
        }
        for queue in self.queues.values_mut().flat_map(HashMap::values_mut) {
            queue.write_kept(&mut self.written)?;
        }
        self.kept = 0;
        if sync { self.written.sync() } else { Ok(()) }
    }

    /// Writes what is left and waits until all files are on the disk.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn finish(mut self) -> Result<Checked> {
        self.flush(true)?;
        let queues = self.queues.values().map(HashMap::len).sum::<usize>();
        self.checked.count("queues", queues as u64);
        self.checked.count("files", (self.written.files() + self.extensions.files()) as u64);
        Ok(self.checked)
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
