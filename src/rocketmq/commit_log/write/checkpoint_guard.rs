//! Keeps the checkpoint of a store correct while its log is written.
//!
//! A start after a crash goes by times: it dispatches from the newest file whose first message is not younger than the queues
//! according to the checkpoint (see [`crate::rocketmq::commit_log::Recovery`]). So no message without its queue unit may be older
//! than that. A broker's store times only rise. The times of restored messages go back, and so does a clock that is set. In
//! these cases the checkpoint is lowered before the message is written.

use std::path::PathBuf;

use crate::error::Result;
use crate::rocketmq::checkpoint::StoreCheckpoint;
use crate::rocketmq::commit_log::recovery::CHECKPOINT_SLACK_MS;

/// The checkpoint is lowered by this much more, in ms: times that went back once often do it again.
const LOWERED_BY_MS: i64 = 3_600_000;

/// The checkpoint file of a store, or no file.
#[derive(Debug, Default)]
pub(super) struct CheckpointGuard {
    path: Option<PathBuf>,
    /// Store time up to which, according to the file, the queues were written.
    logics: i64,
    /// The earliest store time since [`Self::begin`].
    earliest: Option<i64>,
}

impl CheckpointGuard {
    /// Reads the checkpoint of a store; the file may be missing.
    pub(super) fn of(path: PathBuf) -> Result<Self> {
        let logics = match StoreCheckpoint::open(&path) {
            Ok(checkpoint) => checkpoint.timestamps.logics_msg_timestamp,
            Err(error) if error.is_missing() => 0,
            Err(error) => return Err(error),
        };
        Ok(Self { path: Some(path), logics, earliest: None })
    }

    /// Lowers the checkpoint if necessary. Call it before messages are written, with the earliest of their store times.
    ///
    /// # Errors
    /// An I/O error, with the path: then the messages must not be written.
    pub(super) fn before_write(&mut self, time: i64) -> Result<()> {
        if time.saturating_add(CHECKPOINT_SLACK_MS) <= self.logics {
            self.set(None, time.saturating_sub(LOWERED_BY_MS).max(0).min(self.logics))?;
        }
        self.earliest = Some(self.earliest.map_or(time, |earliest| earliest.min(time)));
        Ok(())
    }

    /// Begins a flush: what was written so far is dispatched before [`Self::write`].
    pub(super) fn begin(&mut self) {
        self.earliest = None;
    }

    /// Records that the log is on the disk up to one store time, and the queues up to another; 0 keeps a time as it is.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(super) fn write(&mut self, physic: i64, logics: i64) -> Result<()> {
        let logics = if logics == 0 { self.logics } else { logics };
        self.set(Some(physic).filter(|time| *time != 0), self.earliest.map_or(logics, |time| time.min(logics)))
    }

    fn set(&mut self, physic: Option<i64>, logics: i64) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        // Opened again each time: the index writes its own time into the file.
        let mut checkpoint = StoreCheckpoint::open_or_create(path)?;
        let times = &mut checkpoint.timestamps;
        times.physic_msg_timestamp = physic.unwrap_or(times.physic_msg_timestamp);
        times.logics_msg_timestamp = logics;
        checkpoint.flush()?;
        self.logics = logics;
        Ok(())
    }
}
