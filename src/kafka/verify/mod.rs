//! A check of a segment and of the indexes beside it. Never ends at what it finds.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::kafka::format::batch_cursor::BatchCursor;
use crate::kafka::format::header::Header;
use crate::kafka::format::record::Wants;
use crate::kafka::index::index_file::{Check, IndexOptions};
use crate::kafka::index::offset_index::{self, OffsetEntry, OffsetIndex};
use crate::kafka::index::sparse_index::SparseIndex;
use crate::kafka::index::time_index::{self, TimeEntry, TimeIndex};
use crate::kafka::index::transaction_index;
use crate::kafka::read::batch_order::BatchOrder;
use crate::kafka::read::lookup::too_large;
use crate::kafka::read::segment::{Segment, if_there};
use crate::kafka::read::walk::{Reads, Walk};
use crate::report::{Finding, Flaw, Kind, Report};

/// The heads of a log's whole batches, in order; what an index is checked against.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    /// Where each begins, its last offset and largest timestamp.
    batches: Vec<(u64, i64, i64)>,
    /// The largest timestamp of all batches up to each.
    running: Vec<i64>,
    /// Base offsets, for entries that point into a batch.
    bases: Vec<i64>,
}

impl Heads {
    fn push(&mut self, header: &Header) {
        let running = self.running.last().copied().unwrap_or(i64::MIN).max(header.max_timestamp);
        self.batches.push((header.position, header.last_offset, header.max_timestamp));
        self.running.push(running);
        self.bases.push(if header.is_legacy() { i64::MIN } else { header.base_offset });
    }

    /// The broker's contract of an offset entry. Source: `OffsetIndex#append`.
    fn contradicts_offset(&self, entry: OffsetEntry) -> Option<(String, String)> {
        let position = u64::try_from(entry.position).unwrap_or(u64::MAX);
        let Ok(at) = self.batches.binary_search_by_key(&position, |(position, _, _)| *position) else {
            return Some(("the position of a batch".to_owned(), format!("position {position}")));
        };
        let (_, last, _) = self.batches.get(at)?;
        // Of this batch, or of a later one that was appended with it.
        let behind = self.batches.get(at..).unwrap_or_default();
        let found = behind.get(behind.partition_point(|(_, last, _)| *last < entry.offset));
        let holds = found.is_some_and(|(_, last, _)| *last == entry.offset);
        (!holds).then(|| (format!("the last offset of a batch from {last} on"), format!("offset {}", entry.offset)))
    }

    /// Every batch up to the entry's offset is at or before its timestamp, and one of them has it.
    fn contradicts_time(&self, entry: TimeEntry) -> Option<(String, String)> {
        let at = self.batches.partition_point(|(_, last, _)| *last < entry.offset);
        let inside = self.bases.get(at).is_some_and(|base| *base <= entry.offset);
        let Some((_, last, _)) = self.batches.get(at).filter(|_| inside) else {
            return Some(("the offset of a batch".to_owned(), format!("offset {}", entry.offset)));
        };
        let largest = self.running.get(at).copied().unwrap_or(i64::MIN);
        (largest != entry.timestamp).then(|| {
            (format!("timestamp {largest}, the largest up to offset {last}"), format!("timestamp {}", entry.timestamp))
        })
    }
}

impl Segment {
    /// Looks at every batch, with `deep` at every record, and at the indexes beside the log.
    ///
    /// # Errors
    /// The system's error.
    pub fn verify(self: &Arc<Self>, deep: bool) -> Result<Report> {
        let mut verified = Report::default();
        let heads = self.verify_log(deep, &mut verified)?;
        let options =
            IndexOptions { check: Check::Trust, base_offset: Some(self.base_offset()), ..IndexOptions::default() };
        if let Some(index) = if_there(OffsetIndex::open(&self.beside(OffsetIndex::SUFFIX), &options))? {
            offset_entries(&index, Some(&heads), &mut verified);
        }
        if let Some(index) = if_there(TimeIndex::open(&self.beside(TimeIndex::SUFFIX), &options))? {
            time_entries(&index, Some(&heads), &mut verified);
        }
        let path = self.beside(".txnindex");
        if let Some((entries, left)) = if_there(transaction_index::read(&path))? {
            self.verify_transactions(&path, &entries, left, &mut verified);
        }
        Ok(verified)
    }

    fn verify_log(&self, deep: bool, verified: &mut Report) -> Result<Heads> {
        let source = self.open_source()?;
        let most = self.options().max_batch_bytes;
        let mut walk = Walk::new(Reads::Whole, 0, self.len());
        let mut cursor = BatchCursor::new(most);
        let mut heads = Heads::default();
        let (mut order, mut records) = (BatchOrder::new(self.base_offset()), 0u64);
        let tail = loop {
            let header = match walk.next(&source).map_err(|e| Error::io(self.path(), e))? {
                Ok(header) => header,
                Err(tail) => break tail,
            };
            let mut say = |flaw| verified.findings.push(Finding::new(self.path(), header.position, flaw));
            if header.magic > 2 || header.magic < 0 {
                say(Flaw::new(Kind::BatchMagic, "a magic of 0, 1 or 2", header.magic));
            }
            if let Some(flaw) = order.check(&header) {
                say(flaw);
            }
            heads.push(&header);
            if let Err(flaw) = walk.check_crc(&source, &header).map_err(|e| Error::io(self.path(), e))? {
                say(flaw);
            } else if header.size as usize > most {
                say(too_large(&header, most));
            } else if deep {
                let batch = walk.batch(&source, &header).map_err(|e| Error::io(self.path(), e))?;
                match read_all(&mut cursor, &header, batch) {
                    Ok(read) => records += read,
                    Err(flaw) => say(flaw),
                }
            }
        };
        if let Some(flaw) = tail.flaw() {
            verified.findings.push(Finding::new(self.path(), walk.at, flaw));
        }
        verified.checked.push(("batches", heads.batches.len() as u64));
        if deep {
            verified.checked.push(("records", records));
        }
        Ok(heads)
    }

    fn verify_transactions(
        &self,
        path: &Path,
        entries: &[transaction_index::AbortedTransaction],
        left: u64,
        verified: &mut Report,
    ) {
        let size = transaction_index::ENTRY_SIZE as u64;
        for (entry, at) in entries.iter().zip(0u64..) {
            if entry.last_offset < self.base_offset() || entry.first_offset > entry.last_offset {
                let expected = format!("a last offset of at least {}", self.base_offset().max(entry.first_offset));
                let flaw = Flaw::new(Kind::IndexEntry, expected, entry.last_offset);
                verified.findings.push(Finding::new(path, at * size, flaw));
            }
        }
        if left > 0 {
            let flaw =
                Flaw::new(Kind::IndexSize, format_args!("a multiple of {size} bytes"), format_args!("{left} more"));
            verified.findings.push(Finding::new(path, entries.len() as u64 * size, flaw));
        }
        verified.checked.push(("aborted transactions", entries.len() as u64));
    }
}

/// Reads every record of a batch; how many there are.
fn read_all(cursor: &mut BatchCursor, header: &Header, batch: &[u8]) -> std::result::Result<u64, Flaw> {
    let (mut records, mut flaw) = (0, None);
    cursor.each(header, batch, Wants::All, |record, bytes| {
        records += 1;
        let outside = !(header.is_legacy() || (header.base_offset..=header.last_offset).contains(&record.offset));
        if record.each_header(bytes, |_, _| ()).is_none() {
            flaw = Some(Flaw::new(Kind::Records, "headers as they are written", "something else"));
        } else if header.is_legacy() && !record.is_valid {
            flaw = Some(Flaw::new(Kind::BatchCrc, "the checksum of a message's bytes", "another one"));
        } else if outside {
            let expected = format!("offsets {} to {}", header.base_offset, header.last_offset);
            flaw = Some(Flaw::new(Kind::Records, expected, record.offset));
        }
        flaw.is_none()
    })?;
    flaw.map_or(Ok(records), Err)
}

/// What a check of one index asks of its file, beside its entries.
fn verify_file(path: &Path, len: u64, entry_size: usize, verified: &mut Report) {
    let left = len % entry_size as u64;
    if left > 0 {
        let expected = format_args!("a multiple of {entry_size} bytes").to_string();
        let flaw = Flaw::new(Kind::IndexSize, expected, format_args!("{len} bytes"));
        verified.findings.push(Finding::new(path, len - left, flaw));
    }
}

pub(crate) fn offset_entries(index: &OffsetIndex, heads: Option<&Heads>, verified: &mut Report) {
    let mut before: Option<OffsetEntry> = None;
    let mut valid = 0;
    let used = used_slots(index.len(), |slot| {
        index.entry(slot).is_none_or(|entry| entry.offset == index.base_offset() && entry.position == 0)
    });
    for slot in 0..used {
        let Some(entry) = index.entry(slot) else { break };
        let mut say = |kind, expected: &str, found: &str| {
            let at = (slot * offset_index::ENTRY_SIZE) as u64;
            verified.findings.push(Finding::new(index.path(), at, Flaw::new(kind, expected, found)));
        };
        let ascends = before.is_none_or(|last| entry.offset > last.offset && entry.position > last.position);
        if !ascends || entry.offset < index.base_offset() || entry.position < 0 {
            let last = before.unwrap_or_else(|| index.front());
            let expected = format!("more than offset {} at {}", last.offset, last.position);
            say(Kind::IndexOrder, &expected, &format!("offset {} at {}", entry.offset, entry.position));
        } else if let Some((expected, found)) = heads.and_then(|heads| heads.contradicts_offset(entry)) {
            say(Kind::IndexEntry, &expected, &found);
        } else {
            valid += 1;
        }
        before = Some(entry);
    }
    verify_file(index.path(), index.file_len(), offset_index::ENTRY_SIZE, verified);
    verified.checked.push(("index entries", valid));
}

pub(crate) fn time_entries(index: &TimeIndex, heads: Option<&Heads>, verified: &mut Report) {
    let mut before: Option<TimeEntry> = None;
    let mut valid = 0;
    let used = used_slots(index.len(), |slot| {
        index.entry(slot).is_none_or(|entry| entry.offset == index.base_offset() && entry.timestamp == 0)
    });
    for slot in 0..used {
        let Some(entry) = index.entry(slot) else { break };
        let mut say = |kind, expected: &str, found: &str| {
            let at = (slot * time_index::ENTRY_SIZE) as u64;
            verified.findings.push(Finding::new(index.path(), at, Flaw::new(kind, expected, found)));
        };
        let ascends = before.is_none_or(|last| entry.timestamp > last.timestamp && entry.offset >= last.offset);
        if !ascends || entry.offset < index.base_offset() || entry.timestamp < 0 {
            let last = before.unwrap_or_else(|| index.front());
            let expected = format!("a timestamp above {} and an offset from {} on", last.timestamp, last.offset);
            say(Kind::IndexOrder, &expected, &format!("timestamp {}, offset {}", entry.timestamp, entry.offset));
        } else if let Some((expected, found)) = heads.and_then(|heads| heads.contradicts_time(entry)) {
            say(Kind::IndexEntry, &expected, &found);
        } else {
            valid += 1;
        }
        before = Some(entry);
    }
    verify_file(index.path(), index.file_len(), time_index::ENTRY_SIZE, verified);
    verified.checked.push(("time index entries", valid));
}

/// Slots up to the last that is not zeros: what follows is room that a broker had not used yet.
fn used_slots(slots: usize, is_zero: impl Fn(usize) -> bool) -> usize {
    (0..slots).rev().find(|slot| !is_zero(*slot)).map_or(0, |slot| slot + 1)
}

/// Looks at an index by itself, and at the log where it is given.
pub(crate) fn index(log: Option<&Segment>, look: impl FnOnce(Option<&Heads>, &mut Report)) -> Result<Report> {
    let mut verified = Report::default();
    let heads = log.map(Segment::heads).transpose()?;
    look(heads.as_ref(), &mut verified);
    Ok(verified)
}

impl Segment {
    /// Heads of all batches up to the first place where the log cannot be walked.
    fn heads(&self) -> Result<Heads> {
        let source = self.open_source()?;
        let mut walk = Walk::new(Reads::Heads, 0, self.len());
        let mut heads = Heads::default();
        while let Ok(header) = walk.next(&source).map_err(|e| Error::io(self.path(), e))? {
            heads.push(&header);
        }
        Ok(heads)
    }
}
