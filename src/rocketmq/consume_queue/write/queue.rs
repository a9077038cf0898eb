//! One queue that is being written.
//!
//! Source: upstream `ConsumeQueue#putMessagePositionInfo`, `#fillPreBlank`, `BatchConsumeQueue#putBatchMessagePositionInfo`.
//! Where queue offsets jump, which a sound log's never do, a broker would put the unit at a wrong place; here it stays at its own,
//! behind filling, and the jump is a finding.

use super::extension_writer::ExtensionWriter;
use super::queue::Kind;
use super::unit::{BatchUnit, PRE_BLANK, UNIT_LEN, Unit};
use super::written_files::{Written, WrittenFiles};
use crate::error::Result;
use crate::rocketmq::findings::Checked;

/// Where a queue is written on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueEnd {
    /// Bytes of the queue before the next unit.
    pub(super) position: u64,
    /// Queue offset of the unit that stands there; -1 where the next unit decides where the queue begins. Of plain queues.
    pub(super) next: i64,
    /// Queue offset of the next message; -1 where it is not known.
    pub(super) expected: i64,
    /// Offset in the log after the last message, -1 without any.
    pub(super) log_end: i64,
}

impl QueueEnd {
    /// Of a queue that holds nothing.
    pub(super) const NEW: Self = Self { position: 0, next: -1, expected: -1, log_end: -1 };
}

/// A queue, and its units that are in no file yet.
#[derive(Debug)]
pub(super) struct WrittenQueue {
    files: WrittenFiles,
    extension: Option<ExtensionWriter>,
    kind: Kind,
    /// Units from `end.position` on.
    kept: Vec<u8>,
    /// The same of files before a jump, by their positions.
    done: Vec<(u64, Vec<u8>)>,
    /// As if `kept` were not there, but for `next`, `expected` and `log_end`.
    end: QueueEnd,
}

impl WrittenQueue {
    pub(super) fn new(files: WrittenFiles, extension: Option<ExtensionWriter>, kind: Kind, end: QueueEnd) -> Self {
        Self { files, extension, kind, kept: Vec::new(), done: Vec::new(), end }
    }

    /// Queue offset of the next message; `None` where it is not known.
    pub(super) fn next_offset(&self) -> Option<i64> {
        Some(self.end.expected).filter(|offset| *offset >= 0)
    }

    /// True when the unit was put; false where the queue has it already.
    pub(super) fn put(&mut self, unit: BatchUnit, extended: bool, checked: &mut Checked) -> bool {
        if unit.unit.end() <= self.end.log_end {
            return false;
        }
        if self.kind == Kind::Batch {
            self.kept.extend_from_slice(&unit.encode());
        } else {
            if unit.base_offset != self.end.next && !self.move_to(unit.base_offset, checked) {
                return false;
            }
            let tags_code = match &mut self.extension {
                Some(extension) if extended => extension.put(unit.unit.tags_code, unit.store_timestamp),
                _ => unit.unit.tags_code,
            };
            self.kept.extend_from_slice(&Unit { tags_code, ..unit.unit }.encode());
        }
        self.end.next = unit.end_offset();
        self.end.expected = unit.end_offset();
        self.end.log_end = unit.unit.end();
        true
    }

    /// Fills up to a queue offset, from the beginning of its file where that is another one.
    fn move_to(&mut self, offset: i64, checked: &mut Checked) -> bool {
        let at = offset.cast_unsigned().saturating_mul(UNIT_LEN as u64);
        let file = at - at % self.files.file_size;
        let QueueEnd { next, expected, .. } = self.end;
        if expected >= 0 && offset != expected {
            checked.find(&self.files.directory, 0, "queue-offset", expected, offset);
        }
        if offset < next {
            return false;
        }
        let mut end = self.end.position + self.kept.len() as u64;
        if next < 0 {
            (self.end.position, end) = (file, file);
        } else if file > end {
            // The rest of the last file is filled; files in between are left out.
            self.fill(end.next_multiple_of(self.files.file_size) - end);
            self.done.push((self.end.position, std::mem::take(&mut self.kept)));
            (self.end.position, end) = (file, file);
        }
        self.fill(at - end);
        true
    }

    fn fill(&mut self, bytes: u64) {
        for _ in 0..bytes / UNIT_LEN as u64 {
            self.kept.extend_from_slice(&PRE_BLANK.encode());
        }
    }

    /// Writes the extension units that kept units lead to: before these, so that no address ever leads nowhere.
    pub(super) fn write_extension(&mut self, written: &mut Written) -> Result<()> {
        self.extension.as_mut().map_or(Ok(()), |extension| extension.write_kept(written))
    }

    /// Writes the units that are kept, after [`Self::write_extension`].
    pub(super) fn write_kept(&mut self, written: &mut Written) -> Result<()> {
        // What was written stays kept until all of it was: written again after an error, it is the same.
        for (begin, bytes) in &self.done {
            self.files.write(*begin, bytes, written)?;
        }
        self.done.clear();
        self.files.write(self.end.position, &self.kept, written)?;
        self.end.position += self.kept.len() as u64;
        self.kept = Vec::new();
        Ok(())
    }
}
