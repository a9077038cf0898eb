//! The files of a log: what the directory lists, and how they are opened.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::scan::LogFile;
use crate::error::{Error, Result};
use crate::mmap::FileSource;
use crate::rocketmq::file_name;
use crate::source::Access;

/// How many open files are kept for look-ups.
const KEPT: usize = 8;

/// The log's files in the order of their offsets. Whatever has no name of 20 digits, or is no file, is left out.
///
/// # Errors
/// The system's error, with the path.
pub(super) fn list(directory: &Path) -> Result<Vec<LogFile>> {
    let fail = |e| Error::io(directory, e);
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let Some(start) = entry.file_name().to_str().and_then(file_name::parse) else {
            continue;
        };
        let path = entry.path();
        match fs::metadata(&path) {
            Ok(kind) if kind.is_file() => files.push(LogFile { start, len: kind.len(), path }),
            Ok(_) => {}
            // The broker deletes old files at any time.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io(&path, e)),
        }
    }
    files.sort_by_key(|file| file.start);
    let starts: Vec<u64> = files.iter().skip(1).map(|file| file.start).collect();
    for (file, next) in files.iter_mut().zip(starts) {
        file.len = file.len.min(next - file.start);
    }
    Ok(files)
}

/// The length that the files of a log have: the commonest one, the larger where two are equally common; 0 without files.
pub(super) fn file_size(files: &[LogFile]) -> u64 {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for file in files {
        *counts.entry(file.len).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(len, count)| (*count, *len)).map_or(0, |(len, _)| len)
}

/// Opens a file of the log for reading.
///
/// `Access::Auto` is `pread` here: everything is copied out in windows anyway, a file that the broker deletes or cuts
/// short is then no signal, and a log of many gigabytes takes no address space.
pub(super) fn open(file: &LogFile, access: Access) -> Result<FileSource> {
    FileSource::open(&file.path, if access == Access::Auto { Access::Pread } else { access })
}

/// What tells a file from another one that took its name.
#[cfg(unix)]
fn identity(file: &fs::Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    (file.dev(), file.ino())
}

#[cfg(not(unix))]
fn identity(file: &fs::Metadata) -> Option<std::time::SystemTime> {
    file.created().ok()
}

/// Length and identity of a file when it was opened.
#[cfg(unix)]
type Known = (u64, (u64, u64));
#[cfg(not(unix))]
type Known = (u64, Option<std::time::SystemTime>);

/// The files that were opened last, for look-ups.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    files: Mutex<Vec<(u64, Known, Arc<FileSource>)>>,
}

impl OpenFiles {
    /// The open file; one that grew since, or was replaced, is opened again.
    pub(super) fn get(&self, file: &LogFile, access: Access) -> Result<Arc<FileSource>> {
        let now = fs::metadata(&file.path).map_err(|e| Error::io(&file.path, e))?;
        let now = (now.len(), identity(&now));
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = files.iter().position(|(start, known, _)| *start == file.start && *known == now) {
            let known = files.remove(at);
            let source = Arc::clone(&known.2);
            files.push(known);
            return Ok(source);
        }
        let source = Arc::new(open(file, access)?);
        files.retain(|(start, _, _)| *start != file.start);
        if files.len() >= KEPT {
            files.remove(0);
        }
        files.push((file.start, now, Arc::clone(&source)));
        Ok(source)
    }
}
