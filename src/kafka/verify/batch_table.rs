//! The whole batches of a log, by their headers: what the entries of an index are checked against.

use crate::error::{Error, Result};
use crate::kafka::format::header::Header;
use crate::kafka::index::offset_index::OffsetEntry;
use crate::kafka::index::time_index::TimeEntry;
use crate::kafka::read::segment::Segment;
use crate::kafka::read::walk::{Reads, Walk};

/// The expected and the found value of an entry.
pub(super) type Contradiction = (String, String);

#[derive(Clone, Copy, Debug)]
struct Batch {
    position: u64,
    /// The smallest number for messages of magic 0 and 1, whose headers do not have it.
    base_offset: i64,
    last_offset: i64,
    /// The largest timestamp of all batches up to this one.
    largest_timestamp: i64,
}

/// The batches of a log, in order.
#[derive(Debug, Default)]
pub struct BatchTable(Vec<Batch>);

impl BatchTable {
    /// Reads the headers up to the first place where the log cannot be walked.
    pub(crate) fn read(log: &Segment) -> Result<Self> {
        let source = log.open_source()?;
        let mut walk = Walk::new(Reads::Headers, 0, log.len());
        let mut table = Self::default();
        while let Ok(header) = walk.next(&source).map_err(|e| Error::io(log.path(), e))? {
            table.push(&header);
        }
        Ok(table)
    }

    pub(crate) fn push(&mut self, header: &Header) {
        let before = self.0.last().map_or(i64::MIN, |batch| batch.largest_timestamp);
        self.0.push(Batch {
            position: header.position,
            base_offset: if header.is_legacy() { i64::MIN } else { header.base_offset },
            last_offset: header.last_offset,
            largest_timestamp: before.max(header.max_timestamp),
        });
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Checks the broker's contract of an offset entry. Source: `OffsetIndex#append`.
    pub(crate) fn contradicts_offset(&self, entry: OffsetEntry) -> Option<Contradiction> {
        let position = u64::try_from(entry.position).unwrap_or(u64::MAX);
        let Ok(at) = self.0.binary_search_by_key(&position, |batch| batch.position) else {
            return Some(("the position of a batch".to_owned(), format!("position {position}")));
        };
        let last = self.0.get(at)?.last_offset;
        // The offset is that of this batch, or of a later one of the same append.
        let rest = self.0.get(at..).unwrap_or_default();
        let found = rest.get(rest.partition_point(|batch| batch.last_offset < entry.offset));
        let agrees = found.is_some_and(|batch| batch.last_offset == entry.offset);
        (!agrees).then(|| (format!("the last offset of a batch, at least {last}"), format!("offset {}", entry.offset)))
    }

    /// Checks that the entry's timestamp is the largest of all batches up to its offset.
    pub(crate) fn contradicts_time(&self, entry: TimeEntry) -> Option<Contradiction> {
        let at = self.0.partition_point(|batch| batch.last_offset < entry.offset);
        let Some(batch) = self.0.get(at).filter(|batch| batch.base_offset <= entry.offset) else {
            return Some(("the offset of a batch".to_owned(), format!("offset {}", entry.offset)));
        };
        let (largest, last) = (batch.largest_timestamp, batch.last_offset);
        (largest != entry.timestamp).then(|| {
            (format!("timestamp {largest}, the largest up to offset {last}"), format!("timestamp {}", entry.timestamp))
        })
    }
}
