//! Options of a log that is written, and of puts.

use super::host::Host;
use super::limits::Limits;
use crate::rocketmq::commit_log::Bodies;

/// Options of a log that is written.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// Bytes of a file (upstream `mappedFileSizeCommitLog`).
    pub file_size: u64,
    /// The store host of messages that name none.
    pub store_host: Host,
    /// Number of delay levels, 1 or more; a higher level counts as the last one.
    pub levels: i32,
    /// When bytes are flushed to the disk.
    pub flush: FlushMode,
    /// Which messages are taken.
    pub limits: Limits,
    /// True if a message also gets offsets in the queues that `INNER_MULTI_DISPATCH` names (upstream `enableMultiDispatch`).
    pub multi_dispatch: bool,
    /// The target of puts, and its preparation.
    pub append: Append,
}

/// The target of puts, and its preparation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Append {
    /// The target.
    pub mode: AppendMode,
    /// True if the pages of the maps of new files are brought into memory before they are needed (upstream
    /// `warmMapedFileEnable`).
    pub warm: bool,
    /// True if maps and buffers are locked in memory.
    pub lock_memory: bool,
}

/// The target of puts. The bytes of the files are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AppendMode {
    /// To the file, by a system call.
    #[default]
    Write,
    /// To a map of the file, which a thread has prepared.
    Mapped,
    /// To a buffer, which a thread commits to the file (upstream `transientStorePoolEnable`). What is not committed is lost if
    /// the process is killed.
    Pool,
}

/// When bytes are flushed to the disk (upstream `flushDiskType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushMode {
    /// A thread flushes twice a second.
    Async,
    /// Every put waits for the disk.
    Sync,
    /// Only on request.
    Manual,
}

/// Options of puts.
#[derive(Clone, Copy, Debug)]
pub struct PutOptions {
    /// Decoded bodies are plain, for any `sys_flag`.
    pub bodies: Bodies,
    /// Messages with a delay level are parked until their time. Not for messages that are delivered or come from a log.
    pub park: bool,
}
