//! The files of a directory that are being written, each at its whole length from the beginning.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::rocketmq::file_name;

/// A sequence of files, named by the position of their first byte.
#[derive(Debug)]
pub(super) struct WrittenFiles {
    pub(super) directory: PathBuf,
    pub(super) file_size: u64,
}

impl WrittenFiles {
    /// Writes bytes from a position on, into as many files as it takes; files that are begun go to `written`.
    pub(super) fn write(&self, position: u64, bytes: &[u8], written: &mut BTreeSet<PathBuf>) -> Result<()> {
        let (mut at, mut rest) = (position, bytes);
        while !rest.is_empty() {
            let begin = at - at % self.file_size;
            let room = usize::try_from(begin + self.file_size - at).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(room.min(rest.len()));
            let path = self.directory.join(file_name::of_offset(begin));
            let file = self.file(&path, written)?;
            put_at(&file, now, at - begin).map_err(|e| Error::io(&path, e))?;
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Opens a file that was begun here, or begins it: at its whole length, zero.
    fn file(&self, path: &Path, written: &mut BTreeSet<PathBuf>) -> Result<File> {
        let fail = |e| Error::io(path, e);
        if written.contains(path) {
            return OpenOptions::new().write(true).open(path).map_err(fail);
        }
        fs::create_dir_all(&self.directory).map_err(|e| Error::io(&self.directory, e))?;
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(fail)?;
        file.set_len(self.file_size).map_err(fail)?;
        written.insert(path.to_owned());
        Ok(file)
    }
}

fn put_at(file: &File, bytes: &[u8], offset: u64) -> std::io::Result<()> {
    use std::io::{Seek as _, SeekFrom, Write as _};
    let mut file = file;
    file.seek(SeekFrom::Start(offset))?;
    file.write_all(bytes)
}
