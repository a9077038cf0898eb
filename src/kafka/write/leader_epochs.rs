//! The first offset of each leader's epoch, and its file. Source: `LeaderEpochFileCache`.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::refusal::Refusal;
use crate::error::{Error, Result};
use crate::io::disk;
use crate::kafka::format::checkpoint;

/// The name of the file.
pub(super) const FILE: &str = "leader-epoch-checkpoint";

/// Epochs with their first offsets; both ascend.
#[derive(Debug)]
pub(super) struct LeaderEpochs {
    path: PathBuf,
    entries: Vec<(i32, i64)>,
}

impl LeaderEpochs {
    /// Reads the file of a partition, and creates an empty one if there is none.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        match File::create_new(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(Error::io(&path, error)),
            _ => {}
        }
        let lines = checkpoint::read(&path.clone().into(), false)?;
        let mut epochs = Self { path, entries: Vec::new() };
        for (_, epoch, offset) in lines {
            let wrong = |_| Error::corrupt(&epochs.path, 0, "leader epochs of 32 bits", epoch.to_string());
            let epoch = i32::try_from(epoch).map_err(wrong)?;
            epochs.add(epoch, offset);
        }
        Ok(epochs)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn latest(&self) -> Option<i32> {
        self.entries.last().map(|(epoch, _)| *epoch)
    }

    /// Source: `#assign`.
    ///
    /// # Errors
    /// `Refused` for a negative number; an I/O error.
    pub(super) fn assign(&mut self, epoch: i32, offset: i64) -> Result<()> {
        if epoch < 0 || offset < 0 {
            let text = format_args!("leader epoch {epoch} from offset {offset} on: expected numbers of 0 or more");
            return Err(Refusal::ILLEGAL_ARGUMENT.because(text));
        }
        if self.add(epoch, offset) { self.write() } else { Ok(()) }
    }

    fn add(&mut self, epoch: i32, offset: i64) -> bool {
        if self.entries.last().is_some_and(|(last, from)| *last == epoch && *from <= offset) {
            return false;
        }
        while self.entries.pop_if(|(last, from)| *last >= epoch || *from >= offset).is_some() {}
        self.entries.push((epoch, offset));
        true
    }

    /// Removes the epochs that begin at an offset or later; true if there were some. The caller writes the file.
    pub(super) fn truncate_end(&mut self, offset: i64) -> bool {
        let before = self.entries.len();
        self.entries.retain(|(_, from)| *from < offset);
        self.entries.len() < before
    }

    /// Starts the epoch of an offset there, and removes earlier ones; true if that changes something. The caller writes the
    /// file.
    pub(super) fn truncate_start(&mut self, offset: i64) -> bool {
        let older = self.entries.partition_point(|(_, from)| *from <= offset);
        let Some((epoch, _)) = older.checked_sub(1).and_then(|last| self.entries.get(last).copied()) else {
            return false;
        };
        self.entries.splice(..older, [(epoch, offset)]);
        true
    }

    pub(super) fn clear(&mut self) -> Result<()> {
        self.entries.clear();
        self.write()
    }

    pub(super) fn write(&self) -> Result<()> {
        let lines = self.entries.iter().map(|(epoch, offset)| (None, i64::from(*epoch), *offset));
        disk::replace_file(&self.path, checkpoint::text(lines).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_of_more_than_32_bits_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "0\n1\n4294967296 7\n").unwrap();
        assert!(matches!(LeaderEpochs::open(dir.path()), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn an_epoch_that_goes_down_removes_larger_ones() {
        let dir = tempfile::tempdir().unwrap();
        let mut epochs = LeaderEpochs::open(dir.path()).unwrap();
        assert_eq!(std::fs::read(dir.path().join(FILE)).unwrap(), b"", "empty until the first epoch");
        for (epoch, offset) in [(1, 0), (3, 10), (3, 12), (5, 20), (4, 30)] {
            epochs.assign(epoch, offset).unwrap();
        }
        assert_eq!(epochs.entries, [(1, 0), (3, 10), (4, 30)]);
        assert!(epochs.assign(-1, 40).is_err());
        assert!(!epochs.truncate_end(31) && epochs.truncate_end(30) && epochs.latest() == Some(3));
        assert!(epochs.truncate_start(15) && !epochs.truncate_start(14));
        epochs.write().unwrap();
        assert_eq!(std::fs::read(dir.path().join(FILE)).unwrap(), b"0\n1\n3 15\n");
        assert_eq!(LeaderEpochs::open(dir.path()).unwrap().entries, [(3, 15)]);
    }
}
