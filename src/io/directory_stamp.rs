//! A text that changes when a directory, or the files in it, change.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;

use super::FileIdentity;
use super::location::Location;
use super::storage;
use crate::error::{Error, Result};

/// Returns a stamp of the names in a directory, wherever links lead, and with `files` of the regular files in it: the identity and
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
    match storage::list(directory) {
        Ok(listed) => {
            let statuses: Vec<_> = listed.iter().map(|entry| (&entry.name, entry.status().ok().flatten())).collect();
            Ok(format!("{statuses:?}"))
        }
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok("missing".to_owned()),
        Err(error) => Err(error),
    }
}
