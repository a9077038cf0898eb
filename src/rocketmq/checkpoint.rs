//! The checkpoint of a store: up to which store time the log, the queues and the index were flushed.
//!
//! ```text
//!  0 physic msg timestamp i64     24 master flushed offset i64 (5.x)
//!  8 logics msg timestamp i64     32 confirm phy offset i64 (5.x)
//! 16 index msg timestamp i64      40 zero up to 4096
//! ```
//!
//! Big-endian, no magic, no checksum. Source of the rules: upstream `StoreCheckpoint`. The fields of 5.x are left unchanged. If
//! the file is too short, missing bytes are zero, as in the broker, which always maps 4096 bytes. Zero is safe: it means that
//! nothing is known to be flushed. See [`StoreCheckpoint::file_len`].

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use crate::error::{Error, Result};
use crate::io::regular_file::open_file;
use crate::io::{Access, FileSource, Location, ReadAt, WriteAt, usize_of};

/// Bytes of the file.
pub const CHECKPOINT_LEN: u64 = 4096;

/// The three times of a checkpoint, in ms since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// Store time up to which the commit log was flushed.
    pub physic_msg_timestamp: i64,
    /// Store time up to which the consume queues were written.
    pub logics_msg_timestamp: i64,
    /// End time of the last index file that was full and flushed.
    pub index_msg_timestamp: i64,
}

impl Timestamps {
    /// In their order in the file.
    fn fields(self) -> [i64; 3] {
        [self.physic_msg_timestamp, self.logics_msg_timestamp, self.index_msg_timestamp]
    }
}

/// A checkpoint file. The times are read once, when it is opened.
#[derive(Debug)]
pub struct StoreCheckpoint {
    path: Location,
    file: FileSource,
    writable: bool,
    /// The times; changes reach the file with [`Self::flush`].
    pub timestamps: Timestamps,
    /// The times as this handle read or wrote them last.
    stored: Timestamps,
}

impl StoreCheckpoint {
    /// Opens for reading. Nothing is created or changed.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn open(path: impl Into<Location>) -> Result<Self> {
        let path = &path.into();
        Self::read(path, FileSource::open(path, Access::Pread)?, false)
    }

    /// Opens for writing; a missing file is created, with zeros.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn open_or_create(path: impl Into<Location>) -> Result<Self> {
        let path = &path.into();
        let file = match open_file(path.local()?, true) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => create(path)?,
            opened => opened?,
        };
        Self::read(path, FileSource::new(file, path, true, Access::Pread)?, true)
    }

    fn read(path: &Location, file: FileSource, writable: bool) -> Result<Self> {
        let fail = |e| Error::io(path, e);
        let mut bytes = [0u8; 24];
        let there = usize_of(file.len()).min(bytes.len());
        file.read_exact_at(bytes.split_at_mut(there).0, 0).map_err(fail)?;
        let mut fields = bytes.as_chunks::<8>().0.iter().map(|field| i64::from_be_bytes(*field));
        let mut next = || fields.next().unwrap_or_default();
        let timestamps =
            Timestamps { physic_msg_timestamp: next(), logics_msg_timestamp: next(), index_msg_timestamp: next() };
        Ok(Self { path: path.to_owned(), file, writable, timestamps, stored: timestamps })
    }

    /// The file.
    pub fn path(&self) -> &Location {
        &self.path
    }

    /// Returns whether it was opened for writing.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Bytes of the file when it was opened; 4096 in a valid store.
    pub fn file_len(&self) -> u64 {
        self.file.len()
    }

    /// Writes the times that changed and waits until they are on the disk. The other times are not written, because another
    /// process may update them. A short file is extended first.
    ///
    /// # Errors
    /// `InvalidArgument` when it was opened for reading; `WriteFailed`, or an I/O error, with the path.
    pub fn flush(&mut self) -> Result<()> {
        if !self.writable {
            return Err(Error::InvalidArgument(format!(
                "{}: the checkpoint is open for reading only",
                self.path.display()
            )));
        }
        let path = self.path.clone();
        let (fail, failed) = (|e| Error::io(&path, e), |e| Error::write_failed(&path, e));
        if self.file.len() < CHECKPOINT_LEN {
            let file = open_file(&self.path, true)?;
            file.set_len(CHECKPOINT_LEN).map_err(fail)?;
            self.file = FileSource::new(file, &self.path, true, Access::Pread)?;
        }
        for (at, (new, old)) in (0..).step_by(8).zip(self.timestamps.fields().into_iter().zip(self.stored.fields())) {
            if new != old {
                let bits = new.cast_unsigned();
                let words = [bits >> 32, bits & 0xffff_ffff].map(|word| u32::try_from(word).unwrap_or_default());
                self.file.put_words(at, words).map_err(failed)?;
            }
        }
        self.file.flush(0, CHECKPOINT_LEN).map_err(failed)?;
        self.stored = self.timestamps;
        Ok(())
    }
}

fn create(path: &Path) -> Result<File> {
    let fail = |e| Error::io(path, e);
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(fail)?;
    file.set_len(CHECKPOINT_LEN).map_err(fail)?;
    file.sync_all().map_err(|e| Error::write_failed(path, e))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{CHECKPOINT_LEN, StoreCheckpoint, Timestamps};

    const BYTES: &[u8; 24] =
        b"\x00\x00\x01\x8b\xcf\xe5\x68\x01\x00\x00\x01\x8b\xcf\xe5\x68\x02\x00\x00\x01\x8b\xcf\xe5\x68\x00";
    const TIMES: Timestamps = Timestamps {
        physic_msg_timestamp: 1_700_000_000_001,
        logics_msg_timestamp: 1_700_000_000_002,
        index_msg_timestamp: 1_700_000_000_000,
    };

    #[test]
    fn a_new_file_holds_the_broker_s_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        let mut checkpoint = StoreCheckpoint::open_or_create(&path).unwrap();
        assert_eq!(checkpoint.timestamps, Timestamps::default());
        assert_eq!(fs::read(&path).unwrap(), vec![0; 4096]);
        checkpoint.timestamps = TIMES;
        checkpoint.flush().unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, CHECKPOINT_LEN);
        assert_eq!(bytes.strip_prefix(BYTES), Some(&vec![0; 4072][..]));
    }

    #[test]
    fn fields_of_later_releases_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        let mut bytes: Vec<u8> = (0..4096u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
        fs::write(&path, &bytes).unwrap();
        let mut checkpoint = StoreCheckpoint::open_or_create(&path).unwrap();
        checkpoint.timestamps = TIMES;
        checkpoint.flush().unwrap();
        bytes.splice(..24, BYTES.iter().copied());
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }

    #[test]
    fn missing_bytes_read_as_zeros_and_reading_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        assert!(StoreCheckpoint::open(&path).is_err());
        assert!(!path.exists());
        fs::write(&path, &BYTES[..12]).unwrap();
        let mut checkpoint = StoreCheckpoint::open(&path).unwrap();
        assert_eq!(checkpoint.timestamps.physic_msg_timestamp, TIMES.physic_msg_timestamp);
        assert_eq!(checkpoint.timestamps.logics_msg_timestamp, 0x18b << 32);
        assert_eq!(checkpoint.timestamps.index_msg_timestamp, 0);
        assert_eq!(checkpoint.file_len(), 12);
        assert!(checkpoint.flush().is_err());
        assert_eq!(fs::read(&path).unwrap(), &BYTES[..12]);
        let mut checkpoint = StoreCheckpoint::open_or_create(&path).unwrap();
        checkpoint.timestamps = TIMES;
        checkpoint.flush().unwrap();
        assert_eq!(fs::read(&path).unwrap().len(), 4096);
    }
}
