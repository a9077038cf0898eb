//! Writes the queues of a store from the messages of its log: new queues, or existing ones from their ends.
//!
//! Source: upstream `CommitLogDispatcherBuildConsumeQueue`, `ConsumeQueue#multiDispatchLmqQueue`. A message gets a unit at its
//! queue offset, unless its transaction is not committed. A message that its queue already has is skipped.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use std::sync::Arc;

use arrow_array::{Int32Array, Int64Array, RecordBatch, StringArray};

use super::expiry::delete_expired;
use super::extension::ExtensionWriter;
use super::files::{Written, WrittenFiles};
use super::queue::{QueueEnd, WrittenQueue};
use super::recovery::{RecoveredQueue, check_files};
use crate::error::{Error, Result};
use crate::io::Location;
use crate::io::store_lock::refuse_other_holder;
use crate::io::{FirstFailure, disk};
use crate::report::{self, Report};
use crate::rocketmq::commit_log::frame::{INNER_BATCH, is_in_queue};
use crate::rocketmq::consume_queue::directories::{
    EXTENSION_FOLDER, FileSizes, QueueDirectory, WriterOptions, check_sizes, folder, queues,
};
use crate::rocketmq::consume_queue::read::{ConsumeQueue, Kind, Options, batch};
use crate::rocketmq::consume_queue::tags_code::tags_code;
use crate::rocketmq::consume_queue::unit::{BatchUnit, Unit};
use crate::rocketmq::message_columns::MessageColumns;
use crate::rocketmq::names::{
    DELAY, INNER_BASE, INNER_NUM, MULTI_DISPATCH, MULTI_QUEUE_OFFSET, dispatched_queue_id, is_folder_name,
};
use crate::rocketmq::offset_files;
use crate::rocketmq::truncate::truncate_files;

/// The most bytes of units that are buffered, over all queues.
const BUFFERED: usize = 32 * 1024 * 1024;

/// The pages that a broker counts (`OS_PAGE_SIZE`).
const PAGE_BYTES: u64 = 4096;

/// Writes the queues of a store.
#[derive(Debug)]
pub struct ConsumeQueueWriter {
    root: PathBuf,
    options: WriterOptions,
    sizes: FileSizes,
    queues: HashMap<String, HashMap<(i32, bool), WrittenQueue>>,
    /// Offset in the log after the last unit of any queue; -1 without units.
    log_end: i64,
    /// The same for the damaged queue that ends first.
    damaged_end: Option<i64>,
    buffered: usize,
    written: Written,
    /// The same for extension files.
    extensions: Written,
    checked: Report,
    failure: FirstFailure,
    dry_run: bool,
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

    /// Creates new queues in the folders `consumequeue` and `batchconsumequeue` of `root`. A missing `root` is created.
    ///
    /// # Errors
    /// `AlreadyExists` if one of the two exists, or `consumequeue_ext` if extension files are requested; `InvalidArgument` for
    /// file sizes that fit no unit; an I/O error, with the path.
    pub fn create(root: &Path, options: WriterOptions) -> Result<Self> {
        check_sizes(&options)?;
        let root = &Location::from(disk::absolute(root)?);
        let extension = options.extension_file_size.map(|_| EXTENSION_FOLDER);
        for folder in [folder(Kind::Plain), folder(Kind::Batch)].into_iter().chain(extension) {
            let folder = root.join(folder);
            if folder.symlink_metadata().is_ok() {
                return Err(Error::io(&folder, std::io::ErrorKind::AlreadyExists.into()));
            }
        }
        // Extension files of other queues are left alone.
        let sizes = FileSizes { extension: options.extension_file_size, ..FileSizes::of(root, &options)? };
        let queues = root.join(folder(Kind::Plain));
        fs::create_dir_all(&queues).map_err(|e| Error::io(&queues, e))?;
        Ok(Self::new(root, options, sizes))
    }

    /// Checks names and sizes as [`Self::open`] does, without changing anything. Returns the offset in the log after the last
    /// unit of any queue; -1 without units.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn check_files(root: &Location, options: &WriterOptions) -> Result<i64> {
        check_sizes(options)?;
        let sizes = FileSizes::of(root, options)?;
        Self::check_directories(root, &sizes)?;
        let mut log_end = -1;
        for kind in [Kind::Plain, Kind::Batch] {
            for QueueDirectory { directory, .. } in queues(root, folder(kind))? {
                log_end = log_end.max(ConsumeQueue::open(&directory, Options::default())?.log_end()?);
            }
        }
        Ok(log_end)
    }

    /// Checks names and sizes of all files of the queues.
    fn check_directories(root: &Location, sizes: &FileSizes) -> Result<()> {
        for (kind, size) in [(Kind::Plain, sizes.plain), (Kind::Batch, sizes.batch)] {
            for QueueDirectory { directory, .. } in queues(root, folder(kind))? {
                check_files(&offset_files::list_all(&[directory])?, size)?;
            }
        }
        Ok(())
    }

    /// Opens the queues of the store in `root` to append to them. Any of the folders may be missing.
    ///
    /// Removes units of messages at or after `end_phy_offset` in the log. Counts `units_cut` and `queue_files_deleted`. Units
    /// that were lost to damage are findings ([`Self::dispatch_offset`]). After an unclean exit `dispatched` is the offset in the
    /// log from which all messages are dispatched again: what is before it is on the disk. A dry run counts the same and changes
    /// nothing.
    ///
    /// # Errors
    /// `Locked` while a broker holds the store; `InvalidArgument` for sizes that differ from those of the existing files, or for
    /// queues in a database; `Corrupt` for files whose sizes or names do not fit together; an I/O error, with the path.
    pub fn open(
        root: &Path,
        end_phy_offset: i64,
        dispatched: Option<i64>,
        options: WriterOptions,
        dry_run: bool,
    ) -> Result<Self> {
        check_sizes(&options)?;
        let root = &Location::from(disk::absolute(root)?);
        refuse_other_holder(&root.join("lock"))?;
        let sizes = FileSizes::of(root, &options)?;
        Self::check_directories(root, &sizes)?;
        let plain = root.join(folder(Kind::Plain));
        let mut writer = Self { dry_run, ..Self::new(root, options, sizes) };
        if !dry_run {
            writer.written.create_directory(&plain)?;
        }
        writer.checked.count("units_cut", 0);
        writer.checked.count("queue_files_deleted", 0);
        for kind in [Kind::Plain, Kind::Batch] {
            for queue in queues(root, folder(kind))? {
                writer.open_queue(kind, queue, end_phy_offset, dispatched)?;
            }
        }
        // If a queue has no files, no unit refers to its extension files. They are written from their beginning.
        for QueueDirectory { topic, queue_id, directory } in queues(root, EXTENSION_FOLDER)? {
            if !dry_run && writer.queues.get(&topic).is_none_or(|queues| !queues.contains_key(&(queue_id, false))) {
                truncate_files(&offset_files::list(&[directory])?, 0)?;
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
            buffered: 0,
            written: Written::default(),
            extensions: Written::default(),
            checked: Report::default(),
            failure: FirstFailure::default(),
            dry_run: false,
        }
    }

    fn open_queue(
        &mut self,
        kind: Kind,
        queue: QueueDirectory,
        end_phy_offset: i64,
        dispatched: Option<i64>,
    ) -> Result<()> {
        let QueueDirectory { topic, queue_id, directory } = queue;
        let (files, extension) = self.files(kind, &topic, queue_id);
        let addresses = self.directory(EXTENSION_FOLDER, &topic, queue_id);
        let (dry_run, checked) = (self.dry_run, &mut self.checked);
        let opened = RecoveredQueue::open(
            &directory,
            &addresses,
            files.file_size,
            end_phy_offset,
            dispatched,
            dry_run,
            checked,
        )?;
        let RecoveredQueue { end, address, units_cut, truncated, is_damaged, doubtful } = opened;
        self.checked.count("units_cut", units_cut);
        self.checked.count("queue_files_deleted", truncated.files);
        self.log_end = self.log_end.max(end.log_end);
        if is_damaged {
            self.damaged_end = Some(self.damaged_end.map_or(end.log_end, |damaged| damaged.min(end.log_end)));
        }
        let extension = match extension {
            Some(files) => Some(ExtensionWriter::open(files, end.log_end >= 0, address, dry_run)?),
            None => None,
        };
        let queue = WrittenQueue::new(files, extension, kind, end).doubting(doubtful);
        self.queues.entry(topic).or_default().insert((queue_id, kind == Kind::Batch), queue);
        Ok(())
    }

    /// Returns the files of a queue, and those of its extension if it has one.
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

    /// The report of opening, and all later findings.
    pub fn checked(&self) -> &Report {
        &self.checked
    }

    /// Offset in the log after the last unit of any queue; -1 without units.
    pub fn log_end(&self) -> i64 {
        self.log_end
    }

    /// Returns the offset in the log from which messages must be dispatched so that no queue lacks one. It is [`Self::log_end`],
    /// or the end of the damaged queue that ends first. -1 is the beginning.
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

    /// Adds the units of a batch of messages, in the order of the log. Returns the number of units.
    ///
    /// # Errors
    /// `InvalidArgument` for a column that is missing, of another type, or null; an I/O error, with the path.
    pub fn append_batch(&mut self, messages: &RecordBatch) -> Result<usize> {
        let columns = MessageColumns::of(messages)?;
        let mut units = 0;
        for row in 0..messages.num_rows() {
            units += self.append(&columns, row)?;
        }
        self.checked.count("messages", messages.num_rows() as u64);
        self.checked.count("units", units as u64);
        if self.buffered > BUFFERED {
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
                // These units hold the tags code itself.
                units += self.put(queue, queue_id, Kind::Plain, unit, false);
            }
        }
        Ok(units)
    }

    /// Puts one unit, with an extension unit if the queue has an extension. Returns 1 if it was put, else 0.
    fn put(&mut self, topic: &str, queue_id: i32, kind: Kind, unit: BatchUnit, extended: bool) -> usize {
        if !is_folder_name(topic) || queue_id < 0 || !unit.is_valid() {
            let found = format!("topic {topic:?}, queue {queue_id}, queue offset {}", unit.base_offset);
            let expected = "a topic that can name a folder, and numbers of 0 or more";
            self.checked.find(&self.root, 0, report::Kind::QueueName, expected, found);
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
        // An extension unit takes the same number of bytes again.
        self.buffered += if put { kind.unit_len() << u8::from(extended) } else { 0 };
        usize::from(put)
    }

    /// Writes the buffered units, so that readers see them. With `sync` they are on the disk when this returns. Extension units
    /// are written before the units that refer to them.
    ///
    /// # Errors
    /// An I/O error, with the path: units that were not written stay in the buffer. `WriteFailed`, also of an earlier flush:
    /// nothing more is written.
    pub fn flush(&mut self, sync: bool) -> Result<()> {
        self.flush_pages(sync.then_some(0))
    }

    /// Flushes as [`Self::flush`]; only files with at least this many pages of 4,096 new bytes are on the disk then. `None`: no file.
    ///
    /// # Errors
    /// As [`Self::flush`].
    ///
    /// Source: `ConsumeQueue#flush`.
    pub fn flush_pages(&mut self, least_pages: Option<u32>) -> Result<()> {
        self.failure.check()?;
        let flushed = self.write(least_pages.map(|pages| u64::from(pages) * PAGE_BYTES));
        self.failure.keep(flushed)
    }

    fn write(&mut self, least_bytes: Option<u64>) -> Result<()> {
        if self.dry_run {
            self.queues.values_mut().flat_map(HashMap::values_mut).for_each(WrittenQueue::drop_units);
            self.buffered = 0;
            return Ok(());
        }
        for queue in self.queues.values_mut().flat_map(HashMap::values_mut) {
            queue.write_extension(&mut self.extensions)?;
        }
        if let Some(least_bytes) = least_bytes {
            self.extensions.sync(least_bytes)?;
        }
        for queue in self.queues.values_mut().flat_map(HashMap::values_mut) {
            queue.write_units(&mut self.written)?;
        }
        self.buffered = 0;
        least_bytes.map_or(Ok(()), |least_bytes| self.written.sync(least_bytes))
    }

    /// Returns the queues that were written since the last call, each with the queue offset of its next message. Readers see them.
    pub fn take_grown(&mut self) -> Vec<(String, i32, i64)> {
        let mut grown = Vec::new();
        for (topic, queues) in &mut self.queues {
            for ((queue_id, _), queue) in queues {
                if let Some(end) = queue.take_grown() {
                    grown.push((topic.clone(), *queue_id, end));
                }
            }
        }
        grown
    }

    /// Writes the buffered units to the disk, and deletes the oldest files of each queue whose messages are all before an offset of
    /// the log, with the extension files that are needed no more. The newest file stays. Returns the deleted files.
    ///
    /// # Errors
    /// As [`Self::flush`]; an I/O error if a file cannot be deleted: those before it are gone.
    pub fn delete_expired(&mut self, min_phy_offset: i64) -> Result<Vec<PathBuf>> {
        self.flush(true)?;
        let mut deleted = Vec::new();
        for (topic, queues) in &self.queues {
            for (queue_id, is_batch) in queues.keys() {
                let kind = if *is_batch { Kind::Batch } else { Kind::Plain };
                let directory = self.directory(folder(kind), topic, *queue_id);
                let extension = self.directory(EXTENSION_FOLDER, topic, *queue_id);
                delete_expired(&directory, &extension, min_phy_offset, &mut deleted)?;
            }
        }
        deleted.sort();
        Ok(deleted)
    }

    /// Writes the buffered units and waits until all files are on the disk.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn finish(mut self) -> Result<Report> {
        self.flush(true)?;
        let queues = self.queues.values().map(HashMap::len).sum::<usize>();
        self.checked.count("queues", queues as u64);
        self.checked.count("files", (self.written.files() + self.extensions.files()) as u64);
        Ok(self.checked)
    }
}

/// Returns topics, queues and queue offsets as a record batch.
fn offset_batch(rows: &[(&str, i32, i64)]) -> RecordBatch {
    batch(vec![
        ("topic", Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.0)))),
        ("queue_id", Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.1)))),
        ("queue_offset", Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.2)))),
    ])
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
