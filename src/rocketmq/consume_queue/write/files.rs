//! The files of a directory that are being written, each at its whole length from the beginning.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::io::disk::{self, NewFile, write_all_at};
use crate::rocketmq::file_name;

/// What was written, and what of it may not be on the disk yet.
#[derive(Debug, Default)]
pub(super) struct Written {
    files: BTreeSet<PathBuf>,
    changed: BTreeSet<PathBuf>,
    /// Files and directories that are new.
    made: BTreeSet<PathBuf>,
}

impl Written {
    /// How many files there were.
    pub(super) fn files(&self) -> usize {
        self.files.len()
    }

    /// Waits until all is on the disk. After an error the next call begins again.
    pub(super) fn sync(&mut self) -> Result<()> {
        for path in &self.changed {
            File::open(path).and_then(|file| file.sync_all()).map_err(|e| Error::io(path, e))?;
        }
        // One new name of each directory stands for all.
        let mut parent = None;
        for path in &self.made {
            if parent != path.parent() {
                disk::sync_parent(path)?;
                parent = path.parent();
            }
        }
        self.changed.clear();
        self.made.clear();
        Ok(())
    }

    /// Notes a directory, and those above it that are not there yet, and makes them.
    fn make(&mut self, directory: &Path) -> Result<()> {
        for folder in directory.ancestors().take_while(|folder| !folder.exists()) {
            self.made.insert(folder.to_owned());
        }
        fs::create_dir_all(directory).map_err(|e| Error::io(directory, e))
    }
}

/// A sequence of files, named by the position of their first byte.
#[derive(Debug)]
pub(super) struct WrittenFiles {
    pub(super) directory: PathBuf,
    pub(super) file_size: u64,
}

impl WrittenFiles {
    /// Writes bytes from a position on, into as many files as it takes; those that are not there are begun.
    pub(super) fn write(&self, position: u64, bytes: &[u8], written: &mut Written) -> Result<()> {
        let (mut at, mut rest) = (position, bytes);
        while !rest.is_empty() {
            let begin = at - at % self.file_size;
            let room = usize::try_from(begin + self.file_size - at).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(room.min(rest.len()));
            let path = self.directory.join(file_name::of_offset(begin));
            let file = self.file(&path, written)?;
            write_all_at(&file, now, at - begin).map_err(|e| Error::io(&path, e))?;
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Opens a file, or begins it: at its whole length, zero, or not at all.
    fn file(&self, path: &Path, written: &mut Written) -> Result<File> {
        let fail = |e| Error::io(path, e);
        let file = match OpenOptions::new().write(true).open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                written.make(&self.directory)?;
                let new = NewFile::create(path)?;
                new.file().set_len(self.file_size).map_err(fail)?;
                let file = new.file().try_clone().map_err(fail)?;
                new.publish()?;
                written.made.insert(path.to_owned());
                file
            }
            opened => opened.map_err(fail)?,
        };
        if !written.changed.contains(path) {
            written.changed.insert(path.to_owned());
            written.files.insert(path.to_owned());
        }
        Ok(file)
    }
}
