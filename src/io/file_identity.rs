//! The identity of a file, which another file under its name does not have.

use std::fs::Metadata;

/// Distinguishes a file from another one of the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    #[cfg(unix)]
    inode: (u64, u64),
    #[cfg(not(unix))]
    created: Option<std::time::SystemTime>,
}

impl FileIdentity {
    /// Returns the identity of the file that is described.
    pub fn of(file: &Metadata) -> Self {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as _;
            Self { inode: (file.dev(), file.ino()) }
        }
        #[cfg(not(unix))]
        Self { created: file.created().ok() }
    }
}
