//! The queues that lie in a store: their directories, and the sizes of their files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::extension_writer::SHORTEST_FILE;
use super::queue::{BATCH_FOLDER, Kind};
use super::unit::{BATCH_UNIT_LEN, UNIT_LEN};
use super::writer::WriterOptions;
use crate::error::{Error, Result};
use crate::rocketmq::offset_files;

/// The folder of the extension files in a store.
pub(super) const EXTENSION_FOLDER: &str = "consumequeue_ext";

/// The folder of the queues of a kind in a store.
pub(super) fn folder(kind: Kind) -> &'static str {
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
    /// Those that are wanted, else those of the files that are there, else the broker's own.
    ///
    /// # Errors
    /// `InvalidArgument` for a size without room for a unit, or other than that of the files there; `Corrupt` where those have
    /// none that they can have; the system's error, with the path.
    pub(super) fn of(root: &Path, options: &WriterOptions) -> Result<Self> {
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

/// Whether files of the wanted sizes have room for a unit.
///
/// # Errors
/// `InvalidArgument` where they have not.
pub(super) fn check_sizes(options: &WriterOptions) -> Result<()> {
    for (size, shortest, what) in [
        (options.file_size, UNIT_LEN as u64, "a queue file"),
        (options.batch_file_size, BATCH_UNIT_LEN as u64, "a queue file"),
        (options.extension_file_size, SHORTEST_FILE, "an extension file"),
    ] {
        if let Some(size) = size.filter(|size| *size < shortest || i64::try_from(*size).is_err()) {
            return Err(Error::InvalidArgument(format!("{what} cannot have {size} bytes")));
        }
    }
    Ok(())
}

/// A wanted size is rounded up to whole units.
fn size_of(root: &Path, folder: &str, wanted: Option<u64>, unit: usize) -> Result<Option<u64>> {
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
            "the files in {} have {found} bytes, not {wanted}",
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

/// A queue that has a directory.
#[derive(Debug)]
pub(super) struct QueueDirectory {
    pub(super) topic: String,
    pub(super) queue_id: i32,
    pub(super) directory: PathBuf,
}

/// The queues in a folder of a store, sorted; none where it is not there. What no broker names so is left out.
///
/// # Errors
/// `InvalidArgument` where the folder is a database of a 5.x broker; the system's error, with the path.
pub(super) fn queues(root: &Path, folder: &str) -> Result<Vec<QueueDirectory>> {
    let folder = root.join(folder);
    if folder.join("CURRENT").is_file() {
        let text = format!("{}: a database of a 5.x broker (RocksDB), which logdex does not write", folder.display());
        return Err(Error::InvalidArgument(text));
    }
    let mut queues = Vec::new();
    for (topic, directory) in directories(&folder)? {
        for (name, directory) in directories(&directory)? {
            if let Some(queue_id) = name.parse::<i32>().ok().filter(|id| *id >= 0 && id.to_string() == name) {
                queues.push(QueueDirectory { topic: topic.clone(), queue_id, directory });
            }
        }
    }
    queues.sort_by(|a, b| (&a.topic, a.queue_id).cmp(&(&b.topic, b.queue_id)));
    Ok(queues)
}

fn directories(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let fail = |e| Error::io(folder, e);
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(fail)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(fail)?;
        if let (Ok(name), true) = (entry.file_name().into_string(), entry.path().is_dir()) {
            found.push((name, entry.path()));
        }
    }
    Ok(found)
}
