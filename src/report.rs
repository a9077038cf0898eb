//! The result of a check: [`Finding`]s, and how much was checked. docs/findings.md describes each [`Kind`].

use std::fmt::Display;
use std::path::{Path, PathBuf};

use crate::error::Error;

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $word:literal,)*) => {
        /// The kind of a finding: the closed list of docs/findings.md, of both languages.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kind {
            $($(#[$doc])* $variant,)*
        }

        impl Kind {
            /// All kinds, in the order of their words.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The word in a report.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }
    };
}

kinds! {
    /// A checksum that is not that of the batch's bytes.
    BatchCrc = "batch-crc",
    /// A magic other than 0, 1 and 2.
    BatchMagic = "batch-magic",
    /// A batch that does not begin after the one before it, or is below the segment.
    BatchOffset = "batch-offset",
    /// A size that no batch has.
    BatchSize = "batch-size",
    /// An index header whose first offset is not that of entry 1.
    BeginPhyOffset = "begin-phy-offset",
    /// An unclean stop without a checkpoint.
    Checkpoint = "checkpoint",
    /// An index header whose last offset is not that of the last entry.
    EndPhyOffset = "end-phy-offset",
    /// An entry with a negative hash.
    EntryHash = "entry-hash",
    /// A producer snapshot or another small file with impossible content.
    FileContent = "file-content",
    /// An empty last file.
    FileEmpty = "file-empty",
    /// A missing file between two others.
    FileGap = "file-gap",
    /// A missing index of a segment.
    FileMissing = "file-missing",
    /// A name that no file of the directory has.
    FileName = "file-name",
    /// A file that begins before the one before it ends.
    FileOverlap = "file-overlap",
    /// A file of another length than expected.
    FileSize = "file-size",
    /// An index header whose end time contradicts the last entry.
    HeaderTime = "header-time",
    /// An impossible count in an index header.
    IndexCount = "index-count",
    /// An index entry that the log contradicts.
    IndexEntry = "index-entry",
    /// A part of the log with keys that no index file covers.
    IndexHole = "index-hole",
    /// A message key without an entry.
    IndexMissing = "index-missing",
    /// Entries that do not ascend.
    IndexOrder = "index-order",
    /// The length of an index is not a multiple of its entry.
    IndexSize = "index-size",
    /// Slots after the last entry that are not zeros.
    IndexTail = "index-tail",
    /// A batch whose leader epoch differs from the checkpoint.
    LeaderEpoch = "leader-epoch",
    /// Filling at the end of a file that does not reach the end.
    LogBlank = "log-blank",
    /// A body that cannot be decompressed, so that it was not searched.
    LogBody = "log-body",
    /// A log that ends before the place that its queues lead to.
    LogEnd = "log-end",
    /// A frame that is not a valid message.
    LogFrame = "log-frame",
    /// A message after the end of the log that was truncated before.
    LogGhost = "log-ghost",
    /// A message that no log takes.
    LogMessage = "log-message",
    /// A directory or a dangling link under a file's name.
    NotAFile = "not-a-file",
    /// An index without its segment.
    OrphanIndex = "orphan-index",
    /// An entry whose link does not lead to the entry before it in its slot.
    PrevIndex = "prev-index",
    /// A unit that leads to no message, or to another one.
    QueueMessage = "queue-message",
    /// Messages that no unit leads to.
    QueueMissing = "queue-missing",
    /// A topic whose name cannot be a directory.
    QueueName = "queue-name",
    /// Queue offsets of the log that jump or repeat.
    QueueOffset = "queue-offset",
    /// A unit that leads to a place before that of the unit before it.
    QueueOrder = "queue-order",
    /// A tags code that is not the hash of the message's tags.
    QueueTags = "queue-tags",
    /// A unit with an impossible offset or size.
    QueueUnit = "queue-unit",
    /// Records that cannot be decompressed or read.
    Records = "records",
    /// A part of a segment in remote storage that cannot be decoded.
    RemoteChunk = "remote-chunk",
    /// A file of a sealed index, or a file that cannot be sealed, that is not what it should be.
    SealedFile = "sealed-file",
    /// A row of a sealed index that the index files do not have, or the other way round.
    SealedRow = "sealed-row",
    /// A segment that begins below the end of the one before it.
    SegmentOverlap = "segment-overlap",
    /// A slot that does not hold its newest entry.
    SlotValue = "slot-value",
    /// A negative time difference.
    TimeDiff = "time-diff",
    /// A time index that does not end with the largest timestamp of its segment.
    TimeIndexEnd = "time-index-end",
    /// The last batch runs past the end of the file.
    TornBatch = "torn-batch",
    /// A file that cannot be read for an I/O error.
    Unreadable = "unreadable",
    /// Zeros to the end of the file, as a preallocated log has them.
    ZeroTail = "zero-tail",
}

/// One thing in a file that contradicts the format or its neighbours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Finding {
    /// The file or directory.
    pub path: PathBuf,
    /// Byte offset in the file.
    pub offset: u64,
    /// The kind.
    pub kind: Kind,
    /// The value that the format or its neighbours require.
    pub expected: String,
    /// The content of the file.
    pub found: String,
}

impl Finding {
    /// A flaw at its place.
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
    pub(crate) fn new(kind: Kind, expected: impl Display, found: impl Display) -> Self {
        Self { kind, expected: expected.to_string(), found: found.to_string() }
    }
}

/// The result of a check: findings, and how much was checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// In the order in which they were met.
    pub findings: Vec<Finding>,
    /// The number of things of each kind that were checked.
    pub checked: Vec<(&'static str, u64)>,
}

impl Report {
    /// Adds a finding.
    pub(crate) fn find(&mut self, path: &Path, offset: u64, kind: Kind, expected: impl Display, found: impl Display) {
        self.findings.push(Finding::new(path, offset, Flaw::new(kind, expected, found)));
    }

    /// Adds the findings and counts of another report.
    pub(crate) fn add(&mut self, other: Self) {
        self.findings.extend(other.findings);
        for (what, number) in other.checked {
            self.count(what, number);
        }
    }

    /// Adds to the number of checked things of a kind.
    pub(crate) fn count(&mut self, what: &'static str, number: u64) {
        match self.checked.iter_mut().find(|(name, _)| *name == what) {
            Some((_, count)) => *count += number,
            None => self.checked.push((what, number)),
        }
    }
}

/// A number with commas between thousands.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::Kind;

    #[test]
    fn the_words_of_the_kinds_are_in_order_and_differ() {
        assert!(Kind::ALL.is_sorted_by(|a, b| a.word() < b.word()));
    }
}
