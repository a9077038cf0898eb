//! One queue that is open for writing.
//!
//! Source: upstream `ConsumeQueue#putMessagePositionInfo`, `#fillPreBlank`, `BatchConsumeQueue#putBatchMessagePositionInfo`.
//! In a valid log queue offsets never jump. After a jump a broker writes the unit at a wrong position. Here it is written at its
//! own position, after filling, and the jump is a finding.

use super::extension::ExtensionWriter;
use super::files::{Written, WrittenFiles};
use crate::error::Result;
use crate::report::{self, Report};
use crate::rocketmq::consume_queue::read::Kind;
use crate::rocketmq::consume_queue::unit::{BatchUnit, PRE_BLANK, UNIT_LEN, Unit};

/// The end of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueEnd {
    /// Bytes of the queue before the next unit.
    pub(super) position: u64,
    /// Queue offset of the unit at this position, for plain queues; -1 if the first unit decides it.
    pub(super) next: i64,
    /// Queue offset of the next message; -1 if it is unknown.
    pub(super) expected: i64,
    /// Offset in the log after the last message; -1 without messages.
    pub(super) log_end: i64,
}

impl QueueEnd {
    /// The end of an empty queue.
    pub(super) const NEW: Self = Self { position: 0, next: -1, expected: -1, log_end: -1 };
}

/// A queue, and its buffered units.
#[derive(Debug)]
pub(super) struct WrittenQueue {
    files: WrittenFiles,
    extension: Option<ExtensionWriter>,
    kind: Kind,
    /// Units from `end.position` on.
    units: Vec<u8>,
    /// The same for files before a jump, by their positions.
    earlier: Vec<(u64, Vec<u8>)>,
    /// `position` leaves out `units`, the other fields include them.
    end: QueueEnd,
    /// The unit at the end, which is written again and may be what was there.
    doubtful: Option<BatchUnit>,
    /// True if units were written since [`Self::take_grown`].
    has_grown: bool,
}

impl WrittenQueue {
    pub(super) fn new(files: WrittenFiles, extension: Option<ExtensionWriter>, kind: Kind, end: QueueEnd) -> Self {
        let (units, earlier) = (Vec::new(), Vec::new());
        Self { files, extension, kind, units, earlier, end, doubtful: None, has_grown: false }
    }

    /// With a unit at the end that may be torn.
    pub(super) fn doubting(self, doubtful: Option<BatchUnit>) -> Self {
        Self { doubtful, ..self }
    }

    /// Queue offset of the next message; `None` if it is unknown.
    pub(super) fn next_offset(&self) -> Option<i64> {
        Some(self.end.expected).filter(|offset| *offset >= 0)
    }

    /// Puts a unit. Returns false if the queue already had it.
    pub(super) fn put(&mut self, unit: BatchUnit, extended: bool, checked: &mut Report) -> bool {
        if unit.unit.end() <= self.end.log_end {
            return false;
        }
        if self.kind == Kind::Batch {
            self.units.extend_from_slice(&unit.encode());
        } else {
            if unit.base_offset != self.end.next && !self.move_to(unit.base_offset, checked) {
                return false;
            }
            let tags_code = match &mut self.extension {
                Some(extension) if extended => extension.put(unit.unit.tags_code, unit.store_timestamp),
                _ => unit.unit.tags_code,
            };
            self.units.extend_from_slice(&Unit { tags_code, ..unit.unit }.encode());
        }
        self.end.next = unit.end_offset();
        self.end.expected = unit.end_offset();
        self.end.log_end = unit.unit.end();
        let was_whole = |old: BatchUnit| (old.base_offset, old.unit) == (unit.base_offset, unit.unit);
        !self.doubtful.take().is_some_and(was_whole)
    }

    /// Fills the queue up to a queue offset. If the offset is in another file, only that file is filled, from its beginning.
    fn move_to(&mut self, offset: i64, checked: &mut Report) -> bool {
        let at = offset.cast_unsigned().saturating_mul(UNIT_LEN as u64);
        let file = at - at % self.files.file_size;
        let QueueEnd { next, expected, .. } = self.end;
        if expected >= 0 && offset != expected {
            checked.find(&self.files.directory, 0, report::Kind::QueueOffset, expected, offset);
        }
        if offset < next {
            return false;
        }
        let mut end = self.end.position + self.units.len() as u64;
        if next < 0 {
            (self.end.position, end) = (file, file);
        } else if file > end {
            // Fill the rest of the last file. Files in between are left out.
            self.fill(end.next_multiple_of(self.files.file_size) - end);
            self.earlier.push((self.end.position, std::mem::take(&mut self.units)));
            (self.end.position, end) = (file, file);
        }
        self.fill(at - end);
        true
    }

    fn fill(&mut self, bytes: u64) {
        for _ in 0..bytes / UNIT_LEN as u64 {
            self.units.extend_from_slice(&PRE_BLANK.encode());
        }
    }

    /// Writes the extension units, before the units that refer to them, so that no address ever refers to a missing unit.
    pub(super) fn write_extension(&mut self, written: &mut Written) -> Result<()> {
        self.extension.as_mut().map_or(Ok(()), |extension| extension.write_units(written))
    }

    /// Writes the units, after [`Self::write_extension`].
    pub(super) fn write_units(&mut self, written: &mut Written) -> Result<()> {
        // The units stay buffered until all are written, so that a retry after an error writes the same bytes.
        for (begin, bytes) in &self.earlier {
            self.files.write(*begin, bytes, written)?;
        }
        self.earlier.clear();
        self.files.write(self.end.position, &self.units, written)?;
        self.has_grown |= !self.units.is_empty();
        self.end.position += self.units.len() as u64;
        self.units = Vec::new();
        Ok(())
    }

    /// Marks the units and those of the extension as written without writing them.
    pub(super) fn drop_units(&mut self) {
        self.earlier.clear();
        self.end.position += self.units.len() as u64;
        self.units = Vec::new();
        if let Some(extension) = &mut self.extension {
            extension.drop_units();
        }
    }

    /// Returns the queue offset of the next message if units were written since the last call.
    pub(super) fn take_grown(&mut self) -> Option<i64> {
        if std::mem::take(&mut self.has_grown) { self.next_offset() } else { None }
    }
}
