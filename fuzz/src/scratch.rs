//! Files for what opens paths only, in memory where the system has a place for that.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A directory that goes with this value.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// A directory of its own for one input.
    #[expect(clippy::new_without_default, reason = "it makes something")]
    pub fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Self(made.expect("space for a directory"))
    }

    /// Writes a file, anew where it is there.
    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).expect("space for a file");
        path
    }
}
