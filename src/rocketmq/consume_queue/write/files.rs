//! The files of a queue that is open for writing. Each file has its whole length from the beginning.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::io::disk::{self, write_all_at};
use crate::io::regular_file::open_file;
use crate::io::usize_of;
use crate::rocketmq::file_name;
use crate::rocketmq::offset_files::{self, Space};

/// The files that were written, and those that are not yet synced.
#[derive(Debug, Default)]
pub(super) struct Written {
    files: BTreeSet<PathBuf>,
    /// The bytes that were written to each file since its last sync.
    changed: BTreeMap<PathBuf, u64>,
    /// New files and directories.
    created: BTreeSet<PathBuf>,
}

impl Written {
    /// The number of files.
    pub(super) fn files(&self) -> usize {
        self.files.len()
    }

    /// Waits until the files with at least this many new bytes are on the disk, and with 0 their names, too. If a file cannot be
    /// opened, the next call retries; `WriteFailed` is final.
    pub(super) fn sync(&mut self, least_bytes: u64) -> Result<()> {
        for (path, _) in self.changed.iter().filter(|(_, bytes)| **bytes >= least_bytes) {
            open_file(path, false)?.sync_all().map_err(|e| Error::write_failed(path, e))?;
        }
        self.changed.retain(|_, bytes| *bytes < least_bytes);
        if least_bytes > 0 {
            return Ok(());
        }
        // One sync of a directory is enough for all new names in it.
        let mut parent = None;
        for path in &self.created {
            if parent != path.parent() {
                disk::sync_parent(path)?;
                parent = path.parent();
            }
        }
        self.created.clear();
        Ok(())
    }

    /// Notes that bytes were written to a file.
    fn note(&mut self, path: PathBuf, bytes: u64) {
        if let Some(before) = self.changed.get_mut(&path) {
            *before += bytes;
        } else {
            self.files.insert(path.clone());
            self.changed.insert(path, bytes);
        }
    }

    /// Creates a directory and the missing ones above it.
    pub(super) fn create_directory(&mut self, directory: &Path) -> Result<()> {
        for folder in directory.ancestors().take_while(|folder| !folder.exists()) {
            self.created.insert(folder.to_owned());
        }
        fs::create_dir_all(directory).map_err(|e| Error::io(directory, e))
    }
}

/// A sequence of files that are named by the position of their first byte.
#[derive(Debug)]
pub(super) struct WrittenFiles {
    pub(super) directory: PathBuf,
    pub(super) file_size: u64,
}

impl WrittenFiles {
    /// Writes bytes from a position on, into one or more files. Missing files are created.
    pub(super) fn write(&self, position: u64, bytes: &[u8], written: &mut Written) -> Result<()> {
        let (mut at, mut rest) = (position, bytes);
        while !rest.is_empty() {
            let begin = at - at % self.file_size;
            let left = usize_of(begin + self.file_size - at);
            let (now, later) = rest.split_at(left.min(rest.len()));
            let path = self.directory.join(file_name::of_offset(begin));
            let file = self.file(&path, written)?;
            write_all_at(&file, now, at - begin).map_err(|e| Error::write_failed(&path, e))?;
            written.note(path, now.len() as u64);
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Opens a file, or creates it.
    fn file(&self, path: &Path, written: &mut Written) -> Result<File> {
        match open_file(path, true) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                written.create_directory(&self.directory)?;
                let file = offset_files::create(path, self.file_size, Space::Sparse)?;
                written.created.insert(path.to_owned());
                Ok(file)
            }
            opened => opened,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_with_enough_new_bytes_are_synced() {
        let folder = tempfile::tempdir().unwrap();
        let files = WrittenFiles { directory: folder.path().join("T/0"), file_size: 100 };
        let mut written = Written::default();
        files.write(0, &[1; 30], &mut written).unwrap();
        files.write(100, &[1; 60], &mut written).unwrap();
        written.sync(50).unwrap();
        assert_eq!(written.changed, BTreeMap::from([(files.directory.join("00000000000000000000"), 30)]));
        assert!(!written.created.is_empty());
        files.write(30, &[1; 20], &mut written).unwrap();
        written.sync(50).unwrap();
        assert_eq!(written.changed, BTreeMap::new());
        written.sync(0).unwrap();
        assert!(written.created.is_empty());
        assert_eq!(written.files(), 2);
    }
}
