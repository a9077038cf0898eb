//! What is wrong in a segment or an index, told without stopping.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The closed list of docs/findings.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The last batch runs past the end of the file.
    TornBatch,
    /// Zeros to the end of the file, as a preallocated log has them.
    ZeroTail,
    /// A size that no batch has.
    BatchSize,
    /// A magic that is none of 0, 1, 2.
    BatchMagic,
    /// The checksum is another one.
    BatchCrc,
    /// A batch does not begin after the one before it, or is below the segment.
    BatchOffset,
    /// Records that cannot be decompressed or read.
    Records,
    /// The length of an index is no multiple of its entry.
    IndexSize,
    /// Entries that do not ascend.
    IndexOrder,
    /// An entry that the log contradicts.
    IndexEntry,
    /// Slots behind the last entry that are not zeros.
    IndexTail,
    /// A producer snapshot or another small file that cannot be true.
    FileContent,
}

impl Kind {
    /// The word in a report.
    pub fn word(self) -> &'static str {
        match self {
            Self::TornBatch => "torn-batch",
            Self::ZeroTail => "zero-tail",
            Self::BatchSize => "batch-size",
            Self::BatchMagic => "batch-magic",
            Self::BatchCrc => "batch-crc",
            Self::BatchOffset => "batch-offset",
            Self::Records => "records",
            Self::IndexSize => "index-size",
            Self::IndexOrder => "index-order",
            Self::IndexEntry => "index-entry",
            Self::IndexTail => "index-tail",
            Self::FileContent => "file-content",
        }
    }
}

/// One thing that cannot be true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub path: PathBuf,
    /// Byte offset in it.
    pub offset: u64,
    /// What kind of thing.
    pub kind: Kind,
    /// What the format or its neighbours ask for.
    pub expected: String,
    /// What the file holds.
    pub found: String,
}

impl Finding {
    pub(crate) fn new(path: &Path, offset: u64, flaw: Flaw) -> Self {
        Self { path: path.to_owned(), offset, kind: flaw.kind, expected: flaw.expected, found: flaw.found }
    }
}

impl From<Finding> for Error {
    fn from(finding: Finding) -> Self {
        Self::Corrupt { path: finding.path, offset: finding.offset, expected: finding.expected, found: finding.found }
    }
}

/// A finding whose place is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) kind: Kind,
    pub(crate) expected: String,
    pub(crate) found: String,
}

impl Flaw {
    pub(crate) fn new(kind: Kind, expected: impl fmt::Display, found: impl fmt::Display) -> Self {
        Self { kind, expected: expected.to_string(), found: found.to_string() }
    }
}

/// What a reader does at something that cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// Ends with an error.
    Raise,
    /// Notes it and goes on behind the batch, where there is a way on.
    Skip,
    /// Notes it and ends the segment.
    Stop,
}
