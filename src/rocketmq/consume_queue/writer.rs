//! Queues made anew from the messages of a log, as a broker makes them where they are missing.
//!
//! Source: upstream `ConsumeQueue#putMessagePositionInfo`, `#fillPreBlank`, `#multiDispatchLmqQueue`,
//! `BatchConsumeQueue#putBatchMessagePositionInfo`. Every message without a transaction, or of a committed one, gets a
//! unit at its queue offset. Where queue offsets jump, which a sound log's never do, a broker would put the unit at a wrong
//! place; here it stays at its own, behind filling, and the jump is a finding.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;

use super::extension_writer::{ExtensionWriter, SHORTEST_FILE};
use super::queue::{BATCH_FOLDER, Kind};
use super::tags_code::{DelayLevels, tags_code};
use super::unit::{BatchUnit, PRE_BLANK, UNIT_LEN, Unit};
use super::written_files::WrittenFiles;
use crate::disk;
use crate::error::{Error, Result};
use crate::rocketmq::commit_log::frame::{INNER_BATCH, TRANSACTION_COMMIT, TRANSACTION_TYPE};
use crate::rocketmq::findings::Checked;
use crate::rocketmq::message_columns::MessageColumns;

/// Units are kept in memory up to so many bytes, over all queues.
const KEPT: usize = 32 * 1024 * 1024;
/// The folder of the extension files in a store.
const EXTENSION_FOLDER: &str = "consumequeue_ext";
/// Queues whose names begin so have one queue, number 0.
const LIGHT_QUEUE: &str = "%LMQ%";

/// How queues are written.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Bytes of a file of a plain queue; rounded up to whole units.
    pub file_size: u64,
    /// Bytes of a file of a batch queue.
    pub batch_file_size: u64,
    /// The broker's delays.
    pub delay_levels: DelayLevels,
    /// Messages go to the queues that `INNER_MULTI_DISPATCH` names as well (the broker's `enableMultiDispatch`).
    pub multi_dispatch: bool,
    /// Bytes of an extension file (`mappedFileSizeConsumeQueueExt`), where there are such files (`enableConsumeQueueExt`): each
    /// message's own unit then has its tags code there.
    pub extension_file_size: Option<u64>,
}

/// One queue that is being written.
#[derive(Debug)]
struct Queue {
    files: WrittenFiles,
    extension: Option<ExtensionWriter>,
    kind: Kind,
    /// Units from `begin` on, a byte position in the queue, that are not in a file yet.
    kept: Vec<u8>,
    begin: u64,
    /// The same of files before a jump.
    done: Vec<(u64, Vec<u8>)>,
    /// Queue offset that comes next; -1 before the first.
    next: i64,
    /// Offset in the log after the last message.
    log_end: i64,
}

/// Writes the queues of a store into directories that are not there yet.
#[derive(Debug)]
pub struct ConsumeQueueWriter {
    root: PathBuf,
    options: WriterOptions,
    queues: HashMap<String, HashMap<(i32, bool), Queue>>,
    kept: usize,
    written: BTreeSet<PathBuf>,
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
        let mut options = options;
        options.file_size = options.file_size.div_ceil(UNIT_LEN as u64).saturating_mul(UNIT_LEN as u64);
        for (size, kind) in [(options.file_size, Kind::Plain), (options.batch_file_size, Kind::Batch)] {
            if size < kind.unit_len() as u64 || i64::try_from(size).is_err() {
                return Err(Error::InvalidArgument(format!("a queue file cannot have {size} bytes")));
            }
        }
        if let Some(size) = options.extension_file_size
            && (size < SHORTEST_FILE || i64::try_from(size).is_err())
        {
            return Err(Error::InvalidArgument(format!("an extension file cannot have {size} bytes")));
        }
        fs::create_dir_all(root).map_err(|e| Error::io(root, e))?;
        let extension = options.extension_file_size.map(|_| EXTENSION_FOLDER);
        for folder in [folder(Kind::Plain), folder(Kind::Batch)].into_iter().chain(extension) {
            let folder = root.join(folder);
            if folder.symlink_metadata().is_ok() {
                return Err(Error::io(&folder, std::io::ErrorKind::AlreadyExists.into()));
            }
        }
        let queues = root.join(folder(Kind::Plain));
        fs::create_dir(&queues).map_err(|e| Error::io(&queues, e))?;
        Ok(Self {
            root: root.to_owned(),
            options,
            queues: HashMap::new(),
            kept: 0,
            written: BTreeSet::new(),
            checked: Checked::default(),
        })
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
            self.write_kept()?;
        }
        Ok(units)
    }

    fn append(&mut self, columns: &MessageColumns<'_>, row: usize) -> Result<usize> {
        let transaction = columns.sys_flag(row)? & TRANSACTION_TYPE;
        if transaction != 0 && transaction != TRANSACTION_COMMIT {
            return Ok(0);
        }
        let topic = columns.topic(row)?;
        let queue_id = columns.queue_id(row)?;
        let store_timestamp = columns.store_timestamp(row)?;
        let delay = columns.property(row, "DELAY");
        let unit = Unit {
            phy_offset: columns.phy_offset(row)?,
            size: columns.store_size(row)?,
            tags_code: tags_code(topic, columns.tags(row), delay, store_timestamp, &self.options.delay_levels),
        };
        let plain = BatchUnit { unit, store_timestamp, base_offset: columns.queue_offset(row)?, messages: 1 };
        let number = |name| columns.property(row, name).and_then(|text| text.parse::<i64>().ok());
        if columns.sys_flag(row)? & INNER_BATCH != 0 {
            let messages = number("INNER_NUM").and_then(|count| i16::try_from(count).ok());
            let (Some(base_offset), Some(messages)) = (number("INNER_BASE"), messages) else {
                return Ok(0);
            };
            let unit = BatchUnit { base_offset, messages, ..plain };
            return Ok(self.put(topic, queue_id, Kind::Batch, unit, false));
        }
        let mut units = self.put(topic, queue_id, Kind::Plain, plain, true);
        if let (true, Some(queues), Some(offsets)) = (
            self.options.multi_dispatch,
            columns.property(row, "INNER_MULTI_DISPATCH"),
            columns.property(row, "INNER_MULTI_QUEUE_OFFSET"),
        ) && queues.split(',').count() == offsets.split(',').count()
        {
            for (queue, offset) in queues.split(',').zip(offsets.split(',')) {
                let Ok(base_offset) = offset.parse() else {
                    continue;
                };
                let queue_id = if queue.starts_with(LIGHT_QUEUE) { 0 } else { queue_id };
                let unit = BatchUnit { base_offset, ..plain };
                // Their units hold the tags code itself.
                units += self.put(queue, queue_id, Kind::Plain, unit, false);
            }
        }
        Ok(units)
    }

    /// Puts one unit, with an extension where they are written; 1 where it was put.
    fn put(&mut self, topic: &str, queue_id: i32, kind: Kind, unit: BatchUnit, extended: bool) -> usize {
        let Self { root, options, queues, checked, .. } = self;
        let file_size = match kind {
            Kind::Plain => options.file_size,
            Kind::Batch => options.batch_file_size,
        };
        if !is_folder_name(topic) || queue_id < 0 || !unit.is_valid() {
            let found = format!("topic {topic:?}, queue {queue_id}, queue offset {}", unit.base_offset);
            let expected = "a topic that can name a folder, and numbers of 0 or more";
            checked.find(root, 0, "queue-name", expected, found);
            return 0;
        }
        if !queues.contains_key(topic) {
            queues.insert(topic.to_owned(), HashMap::new());
        }
        let Some(queues) = queues.get_mut(topic) else {
            return 0;
        };
        let queue = queues.entry((queue_id, kind == Kind::Batch)).or_insert_with(|| {
            let files = |folder, file_size| {
                let directory = root.join(folder).join(topic).join(queue_id.to_string());
                WrittenFiles { directory, file_size }
            };
            let extension = options.extension_file_size.filter(|_| kind == Kind::Plain);
            let extension = extension.map(|size| ExtensionWriter::new(files(EXTENSION_FOLDER, size)));
            let files = files(folder(kind), file_size);
            Queue { files, extension, kind, kept: Vec::new(), begin: 0, done: Vec::new(), next: -1, log_end: 0 }
        });
        let put = queue.put(unit, extended, checked);
        // As much again for the extension.
        self.kept += if put { kind.unit_len() << u8::from(extended) } else { 0 };
        usize::from(put)
    }

    fn write_kept(&mut self) -> Result<()> {
        for queue in self.queues.values_mut().flat_map(HashMap::values_mut) {
            queue.write_kept(&mut self.written)?;
        }
        self.kept = 0;
        Ok(())
    }

    /// Writes what is left and waits until all files are on the disk.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn finish(mut self) -> Result<Checked> {
        self.write_kept()?;
        for path in &self.written {
            File::open(path).and_then(|file| file.sync_all()).map_err(|e| Error::io(path, e))?;
            disk::sync_parent(path)?;
        }
        let queues = self.queues.values().map(HashMap::len).sum::<usize>();
        self.checked.count("queues", queues as u64);
        self.checked.count("files", self.written.len() as u64);
        Ok(self.checked)
    }
}

fn folder(kind: Kind) -> &'static str {
    match kind {
        Kind::Plain => "consumequeue",
        Kind::Batch => BATCH_FOLDER,
    }
}

/// A damaged log may hold anything for a topic.
fn is_folder_name(topic: &str) -> bool {
    !topic.is_empty() && topic != "." && topic != ".." && topic.len() <= 255 && !topic.contains(['/', '\\', '\0'])
}

impl Queue {
    /// True when the unit was put; false where the queue has it already.
    fn put(&mut self, unit: BatchUnit, extended: bool, checked: &mut Checked) -> bool {
        if unit.unit.end() <= self.log_end {
            return false;
        }
        if self.kind == Kind::Batch {
            self.kept.extend_from_slice(&unit.encode());
        } else {
            if unit.base_offset != self.next && !self.move_to(unit.base_offset, checked) {
                return false;
            }
            let tags_code = match &mut self.extension {
                Some(extension) if extended => extension.put(unit.unit.tags_code, unit.store_timestamp),
                _ => unit.unit.tags_code,
            };
            self.kept.extend_from_slice(&Unit { tags_code, ..unit.unit }.encode());
        }
        self.next = unit.end_offset();
        self.log_end = unit.unit.end();
        true
    }

    /// Fills up to a queue offset, from the beginning of its file where that is another one.
    fn move_to(&mut self, offset: i64, checked: &mut Checked) -> bool {
        let at = offset.cast_unsigned().saturating_mul(UNIT_LEN as u64);
        let file = at - at % self.files.file_size;
        if self.next >= 0 {
            checked.find(&self.files.directory, 0, "queue-offset", self.next, offset);
            if offset < self.next {
                return false;
            }
        }
        let mut end = self.begin + self.kept.len() as u64;
        if self.next < 0 {
            (self.begin, end) = (file, file);
        } else if file > end {
            // The rest of the last file is filled; files in between are left out.
            self.fill(end.next_multiple_of(self.files.file_size) - end);
            self.done.push((self.begin, std::mem::take(&mut self.kept)));
            (self.begin, end) = (file, file);
        }
        self.fill(at - end);
        true
    }

    fn fill(&mut self, bytes: u64) {
        for _ in 0..bytes / UNIT_LEN as u64 {
            self.kept.extend_from_slice(&PRE_BLANK.encode());
        }
    }

    fn write_kept(&mut self, written: &mut BTreeSet<PathBuf>) -> Result<()> {
        for (begin, bytes) in std::mem::take(&mut self.done) {
            self.files.write(begin, &bytes, written)?;
        }
        let kept = std::mem::take(&mut self.kept);
        self.files.write(self.begin, &kept, written)?;
        self.begin += kept.len() as u64;
        if let Some(extension) = &mut self.extension {
            extension.write_kept(written)?;
        }
        Ok(())
    }
}
