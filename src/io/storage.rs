//! Listing directories, describing files, and reading and writing small files whole, local and remote.

use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::location::Location;
use super::regular_file::open_file;
use super::remote::{self, upload};
use super::source::ReadAt as _;
use super::source::usize_of;
use super::{Access, FileIdentity, FileSource, disk};
use crate::error::{Error, Result};

pub use super::location::Entry;
pub use super::status::{Identity, Kind, Status};

/// The length of the longest small file: a checkpoint, a table of the broker.
const MOST_BYTES: u64 = 64 << 20;
/// After this time, a change of a directory gives it another time stamp on every file system that keeps seconds or better.
const SETTLED: Duration = Duration::from_secs(2);

/// Reads a small file whole, and describes it. Remote directories are listed at the same time.
///
/// # Errors
/// `NotFound`; `InvalidData` for more than `most` bytes; an I/O error, with the path.
pub fn read_whole(path: &Location, most: u64, directories: &[Location]) -> Result<(Status, Bytes)> {
    let objects = path.objects();
    let is_here = |directory: &&Location| directory.objects().zip(objects).is_some_and(|(of, other)| of.is_same(other));
    let (here, elsewhere): (Vec<&Location>, Vec<_>) = directories.iter().partition(is_here);
    remote::expect_lists(elsewhere);
    if let Some(objects) = objects {
        let here: Vec<PathBuf> = here.into_iter().map(|directory| directory.to_path_buf()).collect();
        return objects.read_whole(path, most, &here).map(|(found, bytes)| (found.into(), bytes));
    }
    let found = status(path)?;
    let file = FileSource::open(path, Access::Pread)?;
    if file.len() > most {
        let text = format!("expected at most {most} bytes, found {}", file.len());
        return Err(Error::io(path, std::io::Error::new(ErrorKind::InvalidData, text)));
    }
    let mut bytes = vec![0; usize_of(file.len())];
    file.read_exact_at(&mut bytes, 0).map_err(|e| Error::io(path, e))?;
    Ok((found, bytes.into()))
}

/// Writes a file whole, instead of the one of this name, and describes it. After a crash there is the old file or the new one.
///
/// # Errors
/// An I/O error, with the path.
pub fn put_whole(path: &Location, bytes: Bytes) -> Result<Status> {
    if path.is_remote() {
        let len = bytes.len() as u64;
        let identity = Identity::Remote(upload::replace(path.writable()?, path, bytes)?);
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
pub fn create_directories(directory: &Location) -> Result<()> {
    if directory.is_remote() {
        return Ok(());
    }
    fs::create_dir_all(directory).map_err(|e| Error::io(directory, e))
}

/// Deletes a file.
///
/// # Errors
/// An I/O error, with the path.
pub fn delete(path: &Location) -> Result<()> {
    if path.is_remote() {
        upload::delete(path.writable()?, path)
    } else {
        fs::remove_file(path).map_err(|e| Error::io(path, e))
    }
}

/// Describes what is at a path. Links are followed.
///
/// # Errors
/// `NotFound`; an I/O error, with the path.
pub fn status(path: &Location) -> Result<Status> {
    path.status()
}

/// Describes what is at a path; `None` if there is nothing, or the file system can have nothing of this name.
///
/// # Errors
/// An I/O error, with the path.
pub fn existing(path: &Location) -> Result<Option<Status>> {
    match status(path) {
        Err(Error::Io { source, .. }) if is_absent(&source) => Ok(None),
        found => found.map(Some),
    }
}

/// Returns whether there is no file or directory of this name, or none can exist: the name is too long for the file system.
pub fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::InvalidFilename)
}

/// Returns whether a path is a directory.
///
/// # Errors
/// As [`existing`].
pub fn is_directory(path: &Location) -> Result<bool> {
    Ok(existing(path)?.is_some_and(|found| found.kind == Kind::Directory))
}

/// Returns the path if it is a directory.
///
/// # Errors
/// As [`existing`].
pub fn if_directory(path: Location) -> Result<Option<Location>> {
    Ok(is_directory(&path)?.then_some(path))
}

/// Returns whether there is something at a path.
///
/// # Errors
/// As [`existing`].
pub fn exists(path: &Location) -> Result<bool> {
    Ok(existing(path)?.is_some())
}

/// Takes note that all directories below this one will be listed: a remote store lists them with one request.
pub fn expect_tree(directory: &Location) {
    if let Some(objects) = directory.objects() {
        objects.expect_tree(directory);
    }
}

/// Takes note that this path is a directory and will be listed: a remote store lists it with one request.
pub fn expect_list(directory: &Location) {
    remote::expect_lists([directory]);
}

/// Returns the files that should be in a directory and are not, as far as that is known: their names, and what is found instead.
///
/// # Errors
/// An I/O error, with the path.
pub fn missing(directory: &Location) -> Result<Vec<(String, String)>> {
    directory.store().map_or(Ok(Vec::new()), |store| store.missing(directory))
}

/// Lists a directory, in no order.
///
/// # Errors
/// An I/O error, with the path.
pub fn list(directory: &Location) -> Result<Vec<Entry>> {
    directory.list()
}

/// Reads a small file, or its first bytes.
///
/// # Errors
/// As [`open_file`]; `Corrupt` for a file that is too long to be read whole.
pub fn read_file(path: &Location, first_bytes: Option<u64>) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    let most = first_bytes.unwrap_or(MOST_BYTES + 1);
    if path.is_remote() {
        let file = FileSource::open(path, Access::Pread)?;
        content.resize(usize_of(file.len().min(most)), 0);
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

/// Identity of a directory, and the time of its last change; see [`names_stamp`].
pub type NamesStamp = (Identity, SystemTime);

/// Returns a stamp of a local directory: as long as it is equal, the directory has the same names. `None` if there is no directory,
/// if it is remote, or if it changed so recently that a further change may leave the same time.
pub fn names_stamp(directory: &Location) -> Option<NamesStamp> {
    let found = status(directory).ok()?;
    let changed = found.modified?;
    let is_settled = SystemTime::now().duration_since(changed).is_ok_and(|since| since > SETTLED);
    is_settled.then_some((found.identity, changed))
}

/// Returns a text that stamps the names in a directory, wherever links lead, and with `files` of the regular files in it: the identity and
/// the length of each.
///
/// # Errors
/// An I/O error, with the path. A missing directory has a stamp, too.
pub fn directory_stamp(directory: &Location, files: bool) -> Result<String> {
    if directory.is_remote() {
        return remote_stamp(directory);
    }
    let fail = |e| Error::io(directory, e);
    let found = fs::canonicalize(directory).and_then(|real| Ok((fs::metadata(&real)?, real)));
    let (own, real) = match found {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok("missing".to_owned()),
        Err(error) => return Err(fail(error)),
    };
    let mut stamp = format!("{} {:?} {:?}", real.display(), FileIdentity::of(&own), own.modified().map_err(fail)?);
    if files {
        let mut listed = Vec::new();
        for entry in fs::read_dir(&real).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            // A file that is deleted meanwhile changes the directory.
            if let Some(file) = fs::metadata(entry.path()).ok().filter(fs::Metadata::is_file) {
                listed.push((entry.file_name(), FileIdentity::of(&file), file.len()));
            }
        }
        listed.sort_by(|a, b| a.0.cmp(&b.0));
        let _ = write!(stamp, " {listed:?}");
    }
    Ok(stamp)
}

/// The stamp of a remote directory: names, lengths and identities, which one request returns.
fn remote_stamp(directory: &Location) -> Result<String> {
    match list(directory) {
        Ok(listed) => {
            let statuses: Vec<_> = listed.iter().map(|entry| (&entry.name, entry.status().ok().flatten())).collect();
            Ok(format!("{statuses:?}"))
        }
        Err(error) if error.is_missing() => Ok("missing".to_owned()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn no_file_is_read_whole_that_is_not_small() {
        let folder = tempfile::tempdir().unwrap();
        let path = Location::from(folder.path().join("checkpoint"));
        File::create(&path).unwrap().set_len(MOST_BYTES + 1).unwrap();
        assert!(matches!(read_file(&path, None), Err(Error::Corrupt { offset: MOST_BYTES, .. })));
        assert_eq!(read_file(&path, Some(2)).unwrap(), [0, 0]);
    }
}
