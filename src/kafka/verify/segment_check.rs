//! The check of a segment: its batches, its records and the indexes next to it.

use super::batch_table::BatchTable;
use super::index_check::{VerifiableIndex, check_entries};
use crate::error::{Error, Result};
use crate::io::Location;
use crate::kafka::format::batch_cursor::BatchCursor;
use crate::kafka::format::header::Header;
use crate::kafka::format::record::{self, Wants};
use crate::kafka::index::index_file::{Check, IndexOptions};
use crate::kafka::index::offset_index::OffsetIndex;
use crate::kafka::index::time_index::TimeIndex;
use crate::kafka::index::transaction_index::{self, AbortedTransaction};
use crate::kafka::read::batch_order::BatchOrder;
use crate::kafka::read::segment::{Segment, if_exists};
use crate::kafka::read::walk::{Reads, Tail, Walk};
use crate::report::{Finding, Flaw, Kind, Report};

impl Segment {
    /// Checks every batch, with `deep` every record, and the indexes next to the log.
    ///
    /// # Errors
    /// An I/O error.
    pub fn verify(&self, deep: bool) -> Result<Report> {
        let mut verified = Report::default();
        let batches = self.verify_log(deep, &mut verified)?;
        self.verify_index_beside::<OffsetIndex>(&batches, &mut verified)?;
        self.verify_index_beside::<TimeIndex>(&batches, &mut verified)?;
        let path = self.beside(".txnindex");
        if let Some((entries, rest)) = read_index(transaction_index::read(&path), &mut verified)? {
            self.verify_transactions(&path, &entries, rest, &mut verified);
        }
        Ok(verified)
    }

    fn verify_index_beside<I: VerifiableIndex>(&self, batches: &BatchTable, verified: &mut Report) -> Result<()> {
        let options =
            IndexOptions { check: Check::Trust, base_offset: Some(self.base_offset()), ..IndexOptions::default() };
        if let Some(index) = read_index(I::open(self.beside(I::SUFFIX), &options), verified)? {
            check_entries(&index, Some(batches), verified);
        }
        Ok(())
    }

    fn verify_log(&self, deep: bool, verified: &mut Report) -> Result<BatchTable> {
        let source = self.open_source()?;
        let limit = self.options().max_batch_bytes;
        let mut walk = Walk::new(Reads::Whole, 0, self.len());
        let mut cursor = BatchCursor::new(limit);
        let mut batches = BatchTable::default();
        let (mut order, mut records) = (BatchOrder::new(self.base_offset()), 0u64);
        let mut undecodable = None;
        let tail = loop {
            let header = match walk.next(&source).map_err(|e| Error::io(self.path(), e))? {
                Ok(header) => header,
                Err(Tail::Undecodable(flaw)) => {
                    if undecodable.as_ref() != Some(&flaw) {
                        verified.findings.push(Finding::new(self.path(), walk.at, flaw.clone()));
                        undecodable = Some(flaw);
                    }
                    let Some(position) = self.indexed_position_after(walk.at) else { break Tail::End };
                    walk.restart(position, walk.end);
                    continue;
                }
                Err(tail) => break tail,
            };
            let mut report = |flaw| verified.findings.push(Finding::new(self.path(), header.position, flaw));
            if header.magic > 2 || header.magic < 0 {
                report(Flaw::new(Kind::BatchMagic, "a magic of 0, 1 or 2", header.magic));
            }
            if let Some(flaw) = order.check(&header) {
                report(flaw);
            }
            batches.push(&header);
            if let Err(flaw) = walk.check_crc(&source, &header).map_err(|e| Error::io(self.path(), e))? {
                report(flaw);
            } else if let Err(flaw) = header.check_size(limit) {
                report(flaw);
            } else if deep {
                let batch = walk.batch(&source, &header).map_err(|e| Error::io(self.path(), e))?;
                match check_records(&mut cursor, &header, batch) {
                    Ok(read) => records += read,
                    Err(flaw) => report(flaw),
                }
            }
        };
        if let Some(flaw) = tail.flaw() {
            verified.findings.push(Finding::new(self.path(), walk.at, flaw));
        }
        verified.checked.push(("batches", batches.len() as u64));
        if deep {
            verified.checked.push(("records", records));
        }
        Ok(batches)
    }

    fn verify_transactions(&self, path: &Location, entries: &[AbortedTransaction], rest: u64, verified: &mut Report) {
        let size = transaction_index::ENTRY_SIZE as u64;
        for (entry, at) in entries.iter().zip(0u64..) {
            if entry.last_offset < self.base_offset() || entry.first_offset > entry.last_offset {
                let expected = format!("a last offset of at least {}", self.base_offset().max(entry.first_offset));
                let flaw = Flaw::new(Kind::IndexEntry, expected, entry.last_offset);
                verified.findings.push(Finding::new(path, at * size, flaw));
            }
        }
        if rest > 0 {
            let expected = format!("a multiple of {size} bytes");
            let flaw = Flaw::new(Kind::IndexSize, expected, format_args!("{rest} more"));
            verified.findings.push(Finding::new(path, entries.len() as u64 * size, flaw));
        }
        verified.checked.push(("aborted transactions", entries.len() as u64));
    }
}

/// Returns an index that was read; `None` if it is missing, or if its bytes cannot be decoded, which is a finding.
fn read_index<T>(read: Result<T>, verified: &mut Report) -> Result<Option<T>> {
    match if_exists(read) {
        Err(Error::Corrupt { path, offset, expected, found }) => {
            verified.findings.push(Finding { path, offset, kind: Kind::RemoteChunk, expected, found });
            Ok(None)
        }
        read => read,
    }
}

/// Reads every record of a batch, and returns how many there are.
pub(crate) fn check_records(cursor: &mut BatchCursor, header: &Header, batch: &[u8]) -> std::result::Result<u64, Flaw> {
    let (mut records, mut flaw) = (0, None);
    cursor.each(header, batch, Wants::All, |span, bytes| {
        records += 1;
        let outside = !(header.is_legacy() || (header.base_offset..=header.last_offset).contains(&span.offset));
        if span.each_header(bytes, |_, _| ()).is_none() {
            flaw = Some(record::unreadable_headers());
        } else if header.is_legacy() && !span.is_valid {
            flaw = Some(Flaw::new(Kind::BatchCrc, "the checksum of the message's bytes", "another checksum"));
        } else if outside {
            let expected = format!("offsets {} to {}", header.base_offset, header.last_offset);
            flaw = Some(Flaw::new(Kind::Records, expected, span.offset));
        }
        flaw.is_none()
    })?;
    flaw.map_or(Ok(records), Err)
}
