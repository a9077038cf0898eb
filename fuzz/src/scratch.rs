//! Files for functions that open paths, in memory if the system has such a file system.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A directory that is removed with this value.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// Creates a directory for one input.
    #[expect(clippy::new_without_default, reason = "it makes something")]
    pub fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Self(made.expect("space for a directory"))
    }

    /// Writes a file, over an existing one.
    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).expect("space for a file");
        path
    }
}
