//! What a check of a store's files found. Kinds: docs/findings.md.

use std::fmt::Display;
use std::path::{Path, PathBuf};

/// One thing that cannot be true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file or directory.
    pub path: PathBuf,
    /// Byte offset in the file.
    pub offset: u64,
    /// A word of the closed list in docs/findings.md.
    pub kind: &'static str,
    /// What the format or its neighbours ask for.
    pub expected: String,
    /// What is there.
    pub found: String,
}

/// What a check found and how much it looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// In the order in which they were met.
    pub findings: Vec<Finding>,
    /// How much was looked at, by kind of thing.
    pub counts: Vec<(&'static str, u64)>,
}

impl Checked {
    pub(super) fn find(
        &mut self,
        path: &Path,
        offset: u64,
        kind: &'static str,
        expected: impl Display,
        found: impl Display,
    ) {
        let (expected, found) = (expected.to_string(), found.to_string());
        self.findings.push(Finding { path: path.to_owned(), offset, kind, expected, found });
    }

    pub(super) fn count(&mut self, what: &'static str, number: u64) {
        match self.counts.iter_mut().find(|(name, _)| *name == what) {
            Some((_, count)) => *count += number,
            None => self.counts.push((what, number)),
        }
    }
}
