//! The directories of the queues of a store, and the sizes of their files.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::read::{BATCH_FOLDER, Kind, SHORTEST_EXTENSION_FILE};
use super::tags_code::DelayLevels;
use super::unit::{self, BATCH_UNIT_LEN, UNIT_LEN};
use crate::error::{Error, Result};
use crate::io::Location;
use crate::io::storage;
use crate::rocketmq::offset_files;

/// Options of queues that are written.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Bytes of a file of a plain queue, rounded up to whole units. `None`: the size of the existing files, else
    /// [`Self::FILE_SIZE`].
    pub file_size: Option<u64>,
    /// The same for a batch queue; the default is [`Self::BATCH_FILE_SIZE`].
    pub batch_file_size: Option<u64>,
    /// The broker's delays.
    pub delay_levels: DelayLevels,
    /// A message also goes to the queues that its property `INNER_MULTI_DISPATCH` names (the broker's `enableMultiDispatch`).
    pub multi_dispatch: bool,
    /// Bytes of an extension file (`mappedFileSizeConsumeQueueExt`), for queues with such files (`enableConsumeQueueExt`). The
    /// tags code of a message in its own queue is then in the extension file. `None`: the size of the existing files; without
    /// such files no extension is written.
    pub extension_file_size: Option<u64>,
}

impl WriterOptions {
    /// Bytes of a plain queue's file by default (`mappedFileSizeConsumeQueue`).
    pub const FILE_SIZE: u64 = unit::FILE_SIZE;
    /// Bytes of a batch queue's file by default (`mapperFileSizeBatchConsumeQueue`).
    pub const BATCH_FILE_SIZE: u64 = unit::BATCH_FILE_SIZE;
}

/// The folder of the extension files in a store.
pub(super) const EXTENSION_FOLDER: &str = "consumequeue_ext";

/// The folder of the queues of a kind in a store.
pub(crate) fn folder(kind: Kind) -> &'static str {
    match kind {
        Kind::Plain => "consumequeue",
        Kind::Batch => BATCH_FOLDER,
    }
}

/// Bytes of a store's files.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileSizes {
    pub(super) plain: u64,
    pub(super) batch: u64,
    /// `None`: extensions are not written.
    pub(super) extension: Option<u64>,
}

impl FileSizes {
    /// Returns the requested sizes. A size that was not requested is that of the existing files, else the broker's default.
    ///
    /// # Errors
    /// `InvalidArgument` for a size that fits no unit or differs from that of the existing files; `Corrupt` if the existing files
    /// do not hold whole units; an I/O error, with the path.
    pub(super) fn of(root: &Location, options: &WriterOptions) -> Result<Self> {
        let plain = size_of(root, folder(Kind::Plain), options.file_size, UNIT_LEN)?;
        let batch = size_of(root, folder(Kind::Batch), options.batch_file_size, BATCH_UNIT_LEN)?;
        let extension = size_of(root, EXTENSION_FOLDER, options.extension_file_size, 1)?;
        check_sizes(&WriterOptions { extension_file_size: extension, ..options.clone() })?;
        Ok(Self {
            plain: plain.unwrap_or(WriterOptions::FILE_SIZE),
            batch: batch.unwrap_or(WriterOptions::BATCH_FILE_SIZE),
            extension,
        })
    }
}

/// Checks that a unit fits a file of each requested size.
///
/// # Errors
/// `InvalidArgument` if it does not.
pub(super) fn check_sizes(options: &WriterOptions) -> Result<()> {
    for (size, shortest, what) in [
        (options.file_size, 1, "queue files"),
        (options.batch_file_size, BATCH_UNIT_LEN as u64, "batch queue files"),
        (options.extension_file_size, SHORTEST_EXTENSION_FILE, "extension files"),
    ] {
        if let Some(size) = size.filter(|size| *size < shortest || i64::try_from(*size).is_err()) {
            return Err(Error::InvalidArgument(format!("{what} of {size} bytes: expected {shortest} or more")));
        }
    }
    Ok(())
}

/// The size of the files in a folder: the requested one, rounded up to whole units, or that of the existing files.
fn size_of(root: &Location, folder: &str, wanted: Option<u64>, unit: usize) -> Result<Option<u64>> {
    let unit = unit as u64;
    let wanted = wanted.map(|size| size.next_multiple_of(unit));
    let mut files = Vec::new();
    for queue in queues(root, folder)? {
        files.extend(offset_files::list(&[queue.directory])?);
    }
    let found = offset_files::file_size(&files);
    if found == 0 {
        return Ok(wanted);
    }
    if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
        let folder = root.join(folder);
        return Err(Error::InvalidArgument(format!(
            "{}: the existing files have {found} bytes, the requested size is {wanted}",
            folder.display()
        )));
    }
    match files.iter().find(|file| file.len == found) {
        Some(file) if !found.is_multiple_of(unit) => {
            let expected = format!("whole units of {unit} bytes");
            Err(Error::corrupt(&file.path, found - found % unit, expected, format!("{found} bytes")))
        }
        _ => Ok(Some(found)),
    }
}

/// The directory of a queue.
#[derive(Debug)]
pub(crate) struct QueueDirectory {
    pub(crate) topic: String,
    pub(crate) queue_id: i32,
    pub(crate) directory: Location,
}

/// Returns whether a folder of a store is a database of a 5.x broker (`RocksDB`).
///
/// # Errors
/// An I/O error, with the path.
pub(super) fn holds_database(root: &Location, folder: &str) -> Result<bool> {
    storage::exists(&root.join(folder).join("CURRENT"))
}

/// Returns whether a directory has an entry.
///
/// # Errors
/// An I/O error, with the path.
pub(super) fn holds_entries(directory: &Location) -> Result<bool> {
    Ok(!storage::list(directory)?.is_empty())
}

/// Lists the queues in a folder of a store, sorted; none if the folder is missing. Names that no broker uses are ignored.
///
/// # Errors
/// `InvalidArgument` if the folder is a database of a 5.x broker; an I/O error, with the path.
pub(super) fn queues(root: &Location, name: &str) -> Result<Vec<QueueDirectory>> {
    let folder = root.join(name);
    if holds_database(root, name)? {
        let text = format!(
            "{}: expected queue files, found a RocksDB of a 5.x broker, which logdex does not write",
            folder.display()
        );
        return Err(Error::InvalidArgument(text));
    }
    queues_in(&folder, None)
}

/// Lists the queues of these topics, or of all, in a folder, sorted; none if the folder is missing. Names that no broker uses are
/// ignored.
///
/// # Errors
/// An I/O error, with the path.
fn queues_in(folder: &Location, topics: Option<&[String]>) -> Result<Vec<QueueDirectory>> {
    if topics.is_none() {
        storage::expect_tree(folder);
    }
    let mut queues = Vec::new();
    for (topic, directory) in directories(folder)? {
        if topics.is_none_or(|topics| topics.contains(&topic)) {
            queues.extend(queues_of(&topic, &directory)?);
        }
    }
    queues.sort_by(|a, b| (&a.topic, a.queue_id).cmp(&(&b.topic, b.queue_id)));
    Ok(queues)
}

/// Lists the queues in the directory of a topic, unordered.
///
/// # Errors
/// An I/O error, with the path.
pub(crate) fn queues_of(topic: &str, directory: &Location) -> Result<Vec<QueueDirectory>> {
    let named = |(name, directory): (String, Location)| {
        let queue_id = name.parse::<i32>().ok().filter(|id| *id >= 0 && id.to_string() == name)?;
        Some(QueueDirectory { topic: topic.to_owned(), queue_id, directory })
    };
    Ok(directories(directory)?.into_iter().filter_map(named).collect())
}

/// Lists the topics in some folders with a queue that is not empty, sorted.
///
/// # Errors
/// An I/O error, with the path.
pub fn list_topics(folders: &[Location]) -> Result<Vec<String>> {
    let mut topics = Vec::new();
    for folder in folders {
        storage::expect_tree(folder);
        for (topic, directory) in directories(folder)? {
            for queue in queues_of(&topic, &directory)? {
                if holds_entries(&queue.directory)? {
                    topics.push(topic);
                    break;
                }
            }
        }
    }
    topics.sort();
    topics.dedup();
    Ok(topics)
}

/// Lists topic, queue id and directory of the queues of these topics, or of all, in a folder that hold something. A deleted topic
/// leaves an empty directory.
///
/// # Errors
/// An I/O error, with the path.
pub fn list_queues(folder: &Location, topics: Option<&[String]>) -> Result<Vec<(String, i32, Location)>> {
    let mut found = Vec::new();
    for QueueDirectory { topic, queue_id, directory } in queues_in(folder, topics)? {
        if holds_entries(&directory)? {
            found.push((topic, queue_id, directory));
        }
    }
    Ok(found)
}

/// Calls `work` with the name and the directories of each of these topics, or of all, in some folders of a store. Several threads
/// share the topics. Returns the results in the order of the names.
///
/// # Errors
/// An I/O error, with the path; the error of `work`.
pub(crate) fn each_topic<T: Send>(
    folders: &[Location],
    topics: Option<&[String]>,
    threads: usize,
    work: impl Fn(&str, &[Location]) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let mut places: BTreeMap<String, Vec<Location>> = BTreeMap::new();
    for folder in folders {
        if topics.is_none() {
            storage::expect_tree(folder);
        }
        for (topic, directory) in directories(folder)? {
            if topics.is_none_or(|topics| topics.contains(&topic)) {
                places.entry(topic).or_default().push(directory);
            }
        }
    }
    let (next, places) = (AtomicUsize::new(0), places.into_iter().collect::<Vec<_>>());
    let share = || -> Result<Vec<(usize, T)>> {
        let mut found = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((topic, directories)) = places.get(number) else { return Ok(found) };
            found.push((number, work(topic, directories)?));
        }
    };
    let mut parts = thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(places.len()))
            .filter_map(|_| thread::Builder::new().spawn_scoped(scope, share).ok())
            .collect();
        let mut parts = share()?;
        for other in others {
            parts.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok::<_, Error>(parts)
    })?;
    parts.sort_by_key(|(number, _)| *number);
    Ok(parts.into_iter().map(|(_, part)| part).collect())
}

/// Lists the names and paths of the directories in a folder; empty if the folder is missing.
pub(super) fn directories(folder: &Location) -> Result<Vec<(String, Location)>> {
    let entries = match storage::list(folder) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        if let Some(name) = entry.name.to_str()
            && entry.is_directory()?
        {
            found.push((name.to_owned(), entry.path));
        }
    }
    Ok(found)
}
