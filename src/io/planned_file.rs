//! A file as a plan saw it, for a reader that comes later, and maybe has a copy of the file on another machine.
//!
//! Device, inode and times differ between copies. The length and the first bytes do not: brokers only append to these files, and
//! the first bytes of a log file hold offset, time and checksum of its first message or batch. An object of a store is the same
//! for all readers, so there length and `ETag` count, which the listing of the directory has: it must not change.

use super::location::Location;
use super::storage::{self, Identity};
use super::{Access, FileSource, ReadAt};
use crate::error::{Error, Result};

/// Bytes of the head: that of a message up to its store time, and the whole head of a Kafka batch.
const HEAD: usize = 64;

/// A file as a plan saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedFile {
    /// Its path.
    pub path: Location,
    /// Its length.
    pub len: u64,
    /// CRC-32 of its first 64 bytes; `None` if the file is shorter, these are not written, or there is an `ETag`.
    pub head: Option<u32>,
    /// The `ETag` of an object.
    pub etag: Option<String>,
}

impl PlannedFile {
    /// Describes a file as it is now.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn of(path: &Location) -> Result<Self> {
        let found = storage::status(path)?;
        if let Identity::Remote(Some(etag)) = found.identity {
            return Ok(Self { path: path.to_owned(), len: found.len, head: None, etag: Some(etag) });
        }
        let source = FileSource::open(path, Access::Pread)?;
        let mut bytes = [0u8; HEAD];
        let is_whole = source.len() >= bytes.len() as u64;
        if is_whole {
            source.read_exact_at(&mut bytes, 0).map_err(|e| Error::io(path, e))?;
        }
        let head = (is_whole && bytes != [0; HEAD]).then(|| crc32fast::hash(&bytes));
        Ok(Self { path: path.to_owned(), len: source.len(), head, etag: None })
    }

    /// Returns what a reader expects at the path, in words.
    pub fn expected(&self) -> String {
        format!("the file as it was planned, of {} bytes", self.len)
    }

    /// Returns what is found instead of the file; `None` if the file at its path is this one, or a copy that is as long.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn fault(&self) -> Result<Option<String>> {
        let now = match Self::of(&self.path) {
            Ok(now) => now,
            Err(error) if error.is_missing() => {
                return Ok(Some("no such file".to_owned()));
            }
            Err(error) => return Err(error),
        };
        if self.etag.is_some() && self.etag != now.etag {
            return Ok(Some(format!("another object, of {} bytes", now.len)));
        }
        if now.len < self.len {
            return Ok(Some(format!("{} bytes", now.len)));
        }
        let is_other = self.head.is_some() && self.head != now.head;
        Ok(is_other.then(|| if now.head.is_some() { "another first message" } else { "no first message" }.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_copy_that_grew_is_the_planned_file() {
        let directory = tempfile::tempdir().unwrap();
        let [path, copy] = ["a", "b"].map(|name| Location::from(directory.path().join(name)));
        fs::write(&path, [7; 100]).unwrap();
        let planned = PlannedFile { path: copy.clone(), ..PlannedFile::of(&path).unwrap() };
        let mut faults = vec![planned.fault().unwrap()];
        for content in [vec![7; 100], vec![7; 200], vec![7; 99], vec![8; 100], vec![0; 100]] {
            fs::write(&copy, content).unwrap();
            faults.push(planned.fault().unwrap());
        }
        let faults: Vec<Option<&str>> = faults.iter().map(Option::as_deref).collect();
        let (other, none) = ("another first message", "no first message");
        assert_eq!(faults, [Some("no such file"), None, None, Some("99 bytes"), Some(other), Some(none)]);
    }

    #[test]
    fn an_unwritten_head_may_be_written_later() {
        let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let path = Location::from(file.to_path_buf());
        for unwritten in [vec![0; 100], vec![1; 63]] {
            fs::write(&path, &unwritten).unwrap();
            let planned = PlannedFile::of(&path).unwrap();
            assert_eq!(planned.head, None);
            fs::write(&path, [1; 100]).unwrap();
            assert_eq!(planned.fault().unwrap(), None);
        }
    }
}
