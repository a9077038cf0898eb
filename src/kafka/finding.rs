//! Findings: what is wrong in a segment or an index.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The kinds of findings, as docs/findings.md lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The last batch runs past the end of the file.
    TornBatch,
    /// Zeros to the end of the file, as a preallocated log has them.
    ZeroTail,
    /// The size of a batch is not valid.
    BatchSize,
    /// The magic is not 0, 1 or 2.
    BatchMagic,
    /// The checksum is not that of the bytes.
    BatchCrc,
    /// A batch does not begin after the one before it, or is outside the segment's offsets.
    BatchOffset,
    /// Records cannot be decompressed or parsed.
    Records,
    /// The length of an index is not a multiple of its entry size.
    IndexSize,
    /// Entries do not ascend.
    IndexOrder,
    /// The log contradicts an entry.
    IndexEntry,
    /// An index that is not trimmed to its entries.
    IndexTail,
    /// A producer snapshot or another small file is not valid.
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

/// A finding: what is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub path: PathBuf,
    /// Byte offset in it.
    pub offset: u64,
    /// The kind.
    pub kind: Kind,
    /// What was expected.
    pub expected: String,
    /// What was found.
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

/// What a check found and how much it looked at.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// What is wrong, in the order of the files and their offsets.
    pub findings: Vec<Finding>,
    /// How many things were checked, by what they are.
    pub checked: Vec<(&'static str, u64)>,
}

/// What is wrong, before the place is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    pub(crate) kind: Kind,
    pub(crate) expected: String,
    pub(crate) found: String,
}

impl Flaw {
    /// The headers of a record cannot be read.
    pub(crate) fn unreadable_headers() -> Self {
        Self::new(Kind::Records, "headers of a record", "bytes that are no headers")
    }

    pub(crate) fn new(kind: Kind, expected: impl fmt::Display, found: impl fmt::Display) -> Self {
        Self { kind, expected: expected.to_string(), found: found.to_string() }
    }
}

/// What a reader does at damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// End with an error.
    Raise,
    /// Note it, and go on after the batch if its size is known.
    Skip,
    /// Note it, and leave the segment.
    Stop,
}
