//! The error type of the crate. Variants carry data; the text is formatted when it is shown.

use std::io;
use std::path::{Path, PathBuf};

/// Result of all fallible functions of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error. `Corrupt` and `Geometry` are about a file, `InvalidArgument` about the caller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// A write or an fsync failed. What the disk holds is unknown: Linux drops the pages of a failed fsync, and a later fsync
    /// succeeds without them.
    #[error("{}: {source}", path.display())]
    WriteFailed {
        /// The file or directory.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// A file holds impossible bytes.
    #[error("{} at byte {offset}: expected {expected}, found {found}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Byte offset in the file.
        offset: u64,
        /// What the format or its neighbours ask for.
        expected: String,
        /// What the file holds.
        found: String,
    },
    /// The geometry of an index file cannot be inferred from its content.
    #[error("{} ({size} bytes): {count} geometries fit its content", path.display())]
    Geometry {
        /// The file.
        path: PathBuf,
        /// The first of the fits, as (`hash_slots`, `max_entries`).
        fits: Vec<(u32, u32)>,
        /// How many geometries fit.
        count: usize,
        /// Length of the file in bytes.
        size: u64,
    },
    /// A running broker, or another writer, holds the lock of the store.
    #[error("{} is held by {}", path.display(), if *pid == 0 { "another process".to_owned() } else { format!("process {pid}") })]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The process that holds it; 0 if the system does not report it.
        pid: u32,
    },
    /// An index cannot hold another entry.
    #[error("{} is full: it holds {entries} entries", path.display())]
    IndexFull {
        /// The file.
        path: PathBuf,
        /// Entries that it holds.
        entries: u64,
    },
    /// An argument of the caller is invalid.
    #[error("{0}")]
    InvalidArgument(String),
}

impl Error {
    /// An I/O error with its path.
    pub fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    /// A write or an fsync that failed, with its path.
    pub fn write_failed(path: &Path, source: io::Error) -> Self {
        Self::WriteFailed { path: path.to_owned(), source }
    }

    /// An error about the bytes of a file.
    pub fn corrupt(path: &Path, offset: u64, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::Corrupt { path: path.to_owned(), offset, expected: expected.into(), found: found.into() }
    }
}
