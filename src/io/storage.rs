//! Listing directories, describing files, and reading and writing small files whole, local and remote.

use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;

use super::mounts::{self, Place};
use super::regular_file::open_file;
use super::remote::{self, RemoteEntry, is_remote, upload};
use super::source::ReadAt as _;
use super::{Access, FileIdentity, FileSource, disk};
use crate::error::{Error, Result};

/// The length of the longest small file: a checkpoint, a table of the broker.
const MOST_BYTES: u64 = 64 << 20;

/// What is at a path, links followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A pipe, a socket or a device.
    Other,
}

/// What is known of a file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// What it is.
    pub kind: Kind,
    /// Length in bytes; 0 for a directory.
    pub len: u64,
    /// Time of the last change, where the storage says it.
    pub modified: Option<SystemTime>,
    /// Shows if another file took the name.
    pub identity: Identity,
}

/// Distinguishes a file from another one with the same path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Of a file of this machine.
    Local(FileIdentity),
    /// The `ETag`, or nothing.
    Remote(Option<String>),
}

impl From<fs::Metadata> for Status {
    fn from(found: fs::Metadata) -> Self {
        let kind = match found.file_type() {
            kind if kind.is_file() => Kind::File,
            kind if kind.is_dir() => Kind::Directory,
            _ => Kind::Other,
        };
        let identity = Identity::Local(FileIdentity::of(&found));
        Self { kind, len: found.len(), modified: found.modified().ok(), identity }
    }
}

impl From<RemoteEntry> for Status {
    fn from(found: RemoteEntry) -> Self {
        Self {
            kind: if found.len.is_some() { Kind::File } else { Kind::Directory },
            len: found.len.unwrap_or_default(),
            modified: found.modified,
            identity: Identity::Remote(found.etag),
        }
    }
}

impl Status {
    /// Time of the last change in ns since the epoch.
    pub fn modified_ns(&self) -> Option<i64> {
        let since = self.modified?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        i64::try_from(since.as_nanos()).ok()
    }

    /// The `ETag` of an object.
    pub fn etag(&self) -> Option<&str> {
        match &self.identity {
            Identity::Remote(etag) => etag.as_deref(),
            Identity::Local(_) => None,
        }
    }
}

/// Reads a small file whole, and describes it. Remote directories are listed at the same time.
///
/// # Errors
/// `NotFound`; `InvalidData` for more than `most` bytes; an I/O error, with the path.
pub fn read_whole(path: &Path, most: u64, directories: &[PathBuf]) -> Result<(Status, Bytes)> {
    if is_remote(path) {
        return remote::read_whole(path, most, directories).map(|(found, bytes)| (found.into(), bytes));
    }
    let found = status(path)?;
    let file = FileSource::open(path, Access::Pread)?;
    if file.len() > most {
        let text = format!("expected at most {most} bytes, found {}", file.len());
        return Err(Error::io(path, std::io::Error::new(ErrorKind::InvalidData, text)));
    }
    let mut bytes = vec![0; usize::try_from(file.len()).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, 0).map_err(|e| Error::io(path, e))?;
    Ok((found, bytes.into()))
}

/// Writes a file whole, instead of the one of this name, and describes it. After a crash there is the old file or the new one.
///
/// # Errors
/// An I/O error, with the path.
pub fn put_whole(path: &Path, bytes: Bytes) -> Result<Status> {
    if is_remote(path) {
        let len = bytes.len() as u64;
        let identity = Identity::Remote(upload::replace(path, bytes)?);
        return Ok(Status { kind: Kind::File, len, modified: None, identity });
    }
    disk::replace_file(path, &bytes)?;
    disk::sync_parent(path)?;
    status(path)
}

/// Creates a local directory with those above it. A remote store has none.
///
/// # Errors
/// An I/O error, with the path.
pub fn create_directories(directory: &Path) -> Result<()> {
    if is_remote(directory) {
        return Ok(());
    }
    fs::create_dir_all(directory).map_err(|e| Error::io(directory, e))
}

/// Deletes a file.
///
/// # Errors
/// An I/O error, with the path.
pub fn delete(path: &Path) -> Result<()> {
    if is_remote(path) { upload::delete(path) } else { fs::remove_file(path).map_err(|e| Error::io(path, e)) }
}

/// Describes what is at a path. Links are followed.
///
/// # Errors
/// `NotFound`; an I/O error, with the path.
pub fn status(path: &Path) -> Result<Status> {
    if let Some(found) = mounts::tree(path) {
        return found.and_then(|(tree, path)| match tree.find(path)? {
            Place::Elsewhere(path) => status(&path),
            Place::Here(entry) => Ok(entry.into()),
        });
    }
    if is_remote(path) {
        return remote::status(path).map(Status::from);
    }
    fs::metadata(path).map(Status::from).map_err(|e| Error::io(path, e))
}

/// Returns whether a path is a directory; false if that cannot be known.
pub fn is_directory(path: &Path) -> bool {
    status(path).is_ok_and(|found| found.kind == Kind::Directory)
}

/// Returns whether there is something at a path; false if that cannot be known.
pub fn exists(path: &Path) -> bool {
    status(path).is_ok()
}

/// Takes note that all directories below this one will be listed: a remote store lists them with one request.
pub fn expect_tree(directory: &Path) {
    if is_remote(directory) && !mounts::is_mounted(directory) {
        remote::expect_tree(directory);
    }
}

/// Takes note that this path is a directory and will be listed: a remote store lists it with one request.
pub fn expect_list(directory: &Path) {
    remote::expect_lists(&[directory.to_owned()]);
}

/// An entry of a directory.
#[derive(Debug)]
pub struct Entry {
    /// The directory's path and the name.
    pub path: PathBuf,
    /// The name.
    pub name: OsString,
    status: Option<Status>,
    /// As the directory says it, which asks for nothing more.
    listed: Option<fs::FileType>,
}

impl Entry {
    /// Describes the entry. `None`: it was deleted since it was listed. Links are followed; one that leads nowhere is of the
    /// kind [`Kind::Other`].
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn status(&self) -> Result<Option<Status>> {
        if let Some(known) = &self.status {
            return Ok(Some(known.clone()));
        }
        match status(&self.path) {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                let link = fs::symlink_metadata(&self.path).ok();
                Ok(link.map(|found| Status { kind: Kind::Other, ..Status::from(found) }))
            }
            found => found.map(Some),
        }
    }

    /// Returns whether it is a file; false if that cannot be known.
    pub fn is_file(&self) -> bool {
        if let Some(kind) = self.listed.filter(|kind| !kind.is_symlink()) {
            return kind.is_file();
        }
        matches!(self.status(), Ok(Some(found)) if found.kind == Kind::File)
    }

    /// Returns whether it is a directory; false if that cannot be known.
    pub fn is_directory(&self) -> bool {
        if let Some(kind) = self.listed.filter(|kind| !kind.is_symlink()) {
            return kind.is_dir();
        }
        matches!(self.status(), Ok(Some(found)) if found.kind == Kind::Directory)
    }
}

/// Returns the files that should be in a directory and are not, as far as that is known: their names, and what is found instead.
///
/// # Errors
/// An I/O error, with the path.
pub fn missing(directory: &Path) -> Result<Vec<(String, String)>> {
    mounts::tree(directory).map_or(Ok(Vec::new()), |found| {
        let (tree, directory) = found?;
        tree.missing(directory)
    })
}

/// Lists a directory, in no order.
///
/// # Errors
/// An I/O error, with the path.
pub fn list(directory: &Path) -> Result<Vec<Entry>> {
    if let Some(found) = mounts::tree(directory) {
        let entry = |(name, place): (String, Place)| match place {
            Place::Elsewhere(path) => Entry { path, name: name.into(), status: None, listed: None },
            Place::Here(entry) => {
                Entry { path: entry.path.clone(), name: name.into(), status: Some(entry.into()), listed: None }
            }
        };
        return found.and_then(|(tree, directory)| Ok(tree.list(directory)?.into_iter().map(entry).collect()));
    }
    if is_remote(directory) {
        let entry = |entry: RemoteEntry| Entry {
            name: entry.path.file_name().unwrap_or_default().to_owned(),
            path: entry.path.clone(),
            status: Some(entry.into()),
            listed: None,
        };
        return Ok(remote::list(directory)?.into_iter().map(entry).collect());
    }
    let fail = |e| Error::io(directory, e);
    let entry = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.map_err(fail)?;
        let (name, listed) = (entry.file_name(), entry.file_type().ok());
        // A directory that was opened as "." has paths without it.
        Ok(Entry { path: directory.join(&name), name, status: None, listed })
    };
    fs::read_dir(directory).map_err(fail)?.map(entry).collect()
}

/// Reads a small file, or its first bytes.
///
/// # Errors
/// As [`open_file`]; `Corrupt` for a file that is too long to be read whole.
pub fn read_file(path: &Path, first_bytes: Option<u64>) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    let most = first_bytes.unwrap_or(MOST_BYTES + 1);
    if is_remote(path) {
        let file = FileSource::open(path, Access::Pread)?;
        content.resize(usize::try_from(file.len().min(most)).unwrap_or(usize::MAX), 0);
        file.read_exact_at(&mut content, 0).map_err(|e| Error::io(path, e))?;
    } else {
        open_file(path, false)?.take(most).read_to_end(&mut content).map_err(|e| Error::io(path, e))?;
    }
    if first_bytes.is_none() && content.len() as u64 > MOST_BYTES {
        let expected = format!("a small file of at most {MOST_BYTES} bytes");
        return Err(Error::corrupt(path, MOST_BYTES, expected, "more"));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn no_file_is_read_whole_that_is_not_small() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checkpoint");
        File::create(&path).unwrap().set_len(MOST_BYTES + 1).unwrap();
        assert!(matches!(read_file(&path, None), Err(Error::Corrupt { offset: MOST_BYTES, .. })));
        assert_eq!(read_file(&path, Some(2)).unwrap(), [0, 0]);
    }
}
