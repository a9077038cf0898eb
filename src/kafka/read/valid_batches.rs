//! The valid batches of a log, whatever is between them.
//!
//! ```text
//! bytes --sizes, checksums--> batches --offsets of the neighbours--> valid batches
//!           else: search for the next header whose size, magic and checksum fit
//! ```
//!
//! No checksum covers a magic, which is 2 if the checksum of that format fits, nor a base offset. A batch that does not begin where the one before it ends waits for the next one, which shows
//! whether offsets are missing, as compaction leaves them, or its base offset is damaged.

use super::segment_range::SegmentRange;
use super::walk::{Reads, Tail, Walk, undecodable};
use crate::error::{Error, Result};
use crate::io::FileSource;
use crate::kafka::format::header::Header;
use crate::report::{Finding, Flaw, Kind};
use crate::time_range::TimeRange;

/// The batches of ranges, which are in ascending order and of one log.
#[derive(Debug)]
pub(crate) struct ValidBatches<'a> {
    ranges: &'a [SegmentRange],
    /// Damage that was skipped.
    pub(crate) findings: Vec<Finding>,
    /// The offset after the last valid batch; before the first one, that at which the ranges begin.
    next: i64,
    /// The first batch may begin before the offsets of the ranges.
    may_straddle: bool,
    suspect: Option<Suspect>,
}

/// A batch whose base offset only the next batch confirms.
#[derive(Debug)]
struct Suspect {
    number: usize,
    header: Header,
    bytes: Vec<u8>,
}

impl<'a> ValidBatches<'a> {
    pub(crate) fn new(ranges: &'a [SegmentRange]) -> Self {
        let (begin, base) = ranges.first().map_or((0, 0), |range| (range.begin_offset, range.segment.base_offset()));
        Self { ranges, findings: Vec::new(), next: begin.max(base), may_straddle: begin > base, suspect: None }
    }

    /// Calls `take` with the number of the range, the header and the bytes of each batch until it returns false. If the header has
    /// another base offset or magic than the bytes, that of the header is right.
    ///
    /// # Errors
    /// Those of `take`; an I/O error.
    pub(crate) fn each(&mut self, mut take: impl FnMut(usize, &Header, &[u8]) -> Result<bool>) -> Result<()> {
        let ranges = self.ranges;
        let mut walk = Walk::new(Reads::Whole, 0, 0);
        for (number, range) in ranges.iter().enumerate() {
            let path = range.segment.path();
            let source = range.segment.open_source()?;
            walk.restart(range.begin(TimeRange::ALL)?, range.segment.len());
            loop {
                let at = walk.at;
                match next_valid(&mut walk, &source, range)? {
                    Ok(header) if header.last_offset < range.begin_offset => {}
                    Ok(header) if header.last_offset >= range.end_offset => {
                        let expected = format_args!("offsets below {}", range.end_offset).to_string();
                        let flaw = Flaw::new(Kind::BatchOffset, expected, header.last_offset);
                        self.findings.push(Finding::new(path, at, flaw));
                    }
                    Ok(mut header) => {
                        if header.magic > 2 {
                            let flaw = Flaw::new(Kind::BatchMagic, "a magic of 0, 1 or 2", header.magic);
                            self.findings.push(Finding::new(path, at, flaw));
                            header.magic = 2;
                        }
                        let batch = walk.batch(&source, &header).map_err(|e| Error::io(path, e))?;
                        if !self.place(number, &header, batch, &mut take)? {
                            return Ok(());
                        }
                    }
                    Err(Invalid { tail: Some(Tail::End), .. }) => break,
                    Err(invalid) => {
                        let found = invalid.find_next(&mut walk, &source, range, at)?;
                        let is_unfinished = number + 1 == ranges.len()
                            && found.is_none()
                            && invalid.tail.as_ref().is_some_and(Tail::is_expected);
                        if !is_unfinished {
                            self.findings.push(Finding::new(path, at, invalid.flaw));
                        }
                        let Some(found) = found else { break };
                        walk.restart(found, range.segment.len());
                    }
                }
            }
        }
        match self.suspect.take() {
            Some(suspect) if suspect.header.base_offset > self.next => {
                take(suspect.number, &suspect.header, &suspect.bytes)?;
            }
            Some(suspect) => self.refuse(&suspect),
            None => {}
        }
        Ok(())
    }

    fn refuse(&mut self, suspect: &Suspect) {
        let expected = format_args!("a base offset of {} or more", self.next).to_string();
        let flaw = Flaw::new(Kind::BatchOffset, expected, suspect.header.base_offset);
        if let Some(range) = self.ranges.get(suspect.number) {
            self.findings.push(Finding::new(range.segment.path(), suspect.header.position, flaw));
        }
    }

    fn pass(&mut self, header: &Header) {
        (self.next, self.may_straddle) = (header.last_offset.saturating_add(1), false);
    }

    /// Takes a batch, or lets it wait for the next one; decides about the batch that waits.
    fn place(
        &mut self,
        number: usize,
        header: &Header,
        batch: &[u8],
        take: &mut impl FnMut(usize, &Header, &[u8]) -> Result<bool>,
    ) -> Result<bool> {
        let first = header.base_offset;
        if let Some(mut suspect) = self.suspect.take() {
            let next = self.next;
            let Header { base_offset, last_offset, .. } = suspect.header;
            let fits = !header.is_legacy() && first.checked_sub(next) == last_offset.checked_sub(base_offset - 1);
            let is_gap = base_offset > next && first > last_offset;
            if fits || !is_gap {
                self.refuse(&suspect);
            }
            if fits {
                (suspect.header.base_offset, suspect.header.last_offset) = (next, first - 1);
            }
            if fits || is_gap {
                self.pass(&suspect.header);
                if !take(suspect.number, &suspect.header, &suspect.bytes)? {
                    return Ok(false);
                }
            }
        }
        // The header of a set of magic 0 or 1 has its last offset only.
        let may_be_before = header.is_legacy() || (self.may_straddle && first < self.next);
        if first == self.next || (may_be_before && header.last_offset >= self.next) {
            self.pass(header);
            return take(number, header, batch);
        }
        self.suspect = Some(Suspect { number, header: *header, bytes: batch.to_vec() });
        Ok(true)
    }
}

/// Bytes that are no valid batch.
struct Invalid {
    flaw: Flaw,
    /// The end of the walk; `None` for a batch that is whole by its size.
    tail: Option<Tail>,
    /// The end of that batch.
    end: Option<u64>,
}

/// Returns the next batch if its size, magic, offsets and checksum fit.
fn next_valid(
    walk: &mut Walk,
    source: &FileSource,
    range: &SegmentRange,
) -> Result<std::result::Result<Header, Invalid>> {
    let fail = |e| Error::io(range.segment.path(), e);
    let header = match walk.next(source).map_err(fail)? {
        Ok(header) => header,
        Err(tail) => {
            let flaw = tail.flaw().unwrap_or_else(|| Flaw::new(Kind::TornBatch, "a batch", "the end"));
            return Ok(Err(Invalid { flaw, tail: Some(tail), end: None }));
        }
    };
    let checked = header.check_size(range.segment.options().max_batch_bytes).and_then(|()| {
        header.codec()?;
        let found = || format!("{} to {}", header.base_offset, header.last_offset);
        let is_range = header.last_offset >= header.base_offset && header.base_offset >= 0;
        is_range.then_some(()).ok_or_else(|| Flaw::new(Kind::BatchOffset, "a range of offsets", found()))
    });
    let checked = match checked {
        Ok(()) => walk.check_crc(source, &header).map_err(fail)?,
        flawed => flawed,
    };
    Ok(checked.map(|()| header).map_err(|flaw| Invalid { flaw, tail: None, end: Some(header.end()) }))
}

impl Invalid {
    /// Returns where the next valid batch of a segment begins: after this one if its size is right, else where a search finds one.
    fn find_next(&self, walk: &mut Walk, source: &FileSource, range: &SegmentRange, at: u64) -> Result<Option<u64>> {
        let len = range.segment.len();
        let by_index = || range.segment.indexed_position_after(at).filter(|found| *found < len);
        match self.tail {
            Some(Tail::Zeros { .. } | Tail::End) => return Ok(None),
            Some(Tail::Undecodable(_)) => return Ok(by_index()),
            Some(Tail::Torn { .. } | Tail::Size { .. }) | None => {}
        }
        if let Some(end) = self.end {
            walk.restart(end, len);
            if end == len || next_valid(walk, source, range)?.is_ok() {
                return Ok(Some(end));
            }
        }
        match walk.find_valid(source, at + 1, len, range.segment.base_offset()) {
            Ok(found) => Ok(found),
            Err(error) => undecodable(error).map(|_| by_index()).map_err(|e| Error::io(range.segment.path(), e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kafka::read::segment::{Segment, SegmentOptions};
    use crate::kafka::test_data::{SEVEN, hex, segment};

    /// Positions and base offsets.
    type Places = Vec<(u64, i64)>;

    /// The batches of a damaged log, and the positions and kinds of the findings.
    fn valid(bytes: &[u8]) -> (Places, Vec<(u64, Kind)>) {
        let dir = tempfile::tempdir().unwrap();
        let path = segment(dir.path(), 100, bytes, None, None);
        let ranges = [SegmentRange::whole(Arc::new(Segment::open(&path, SegmentOptions::default()).unwrap()))];
        let (mut batches, mut found) = (ValidBatches::new(&ranges), Vec::new());
        let each = batches.each(|_, header, batch| {
            assert_eq!(batch.len(), header.size as usize);
            found.push((header.position, header.base_offset));
            Ok(true)
        });
        each.unwrap();
        (found, batches.findings.iter().map(|finding| (finding.offset, finding.kind)).collect())
    }

    fn changed(position: u64, at: usize, byte: u8) -> Vec<u8> {
        let mut bytes = hex(SEVEN);
        bytes[usize::try_from(position).unwrap() + at] = byte;
        bytes
    }

    #[test]
    fn one_damaged_field_hides_at_most_one_batch() {
        let (all, findings) = valid(&hex(SEVEN));
        assert!(all.len() == 7 && findings.is_empty(), "{all:?} {findings:?}");
        for (number, (position, _)) in all.iter().enumerate() {
            // Size, magic, checksum, records.
            for (at, byte) in [(10, 0x7f), (11, 0xff), (11, 0), (16, 9), (17, 0xaa), (62, 0xee)] {
                let mut others = all.clone();
                if at != 16 {
                    others.remove(number);
                }
                let (found, findings) = valid(&changed(*position, at, byte));
                assert_eq!(found, others, "byte {at} of batch {number}");
                // A size that runs past the end of the last batch is that of a batch that was being written.
                assert!(findings.len() == 1 || (number == 6 && at < 12), "{findings:?}");
            }
        }
    }

    #[test]
    fn a_damaged_base_offset_is_corrected_by_the_neighbours() {
        let (all, _) = valid(&hex(SEVEN));
        for (number, (position, _)) in all.iter().enumerate().take(6) {
            for byte in [0, 0x69, 0x6f, 0xff] {
                let bytes = changed(*position, 7, byte);
                if bytes == hex(SEVEN) {
                    continue;
                }
                assert_eq!(valid(&bytes), (all.clone(), vec![(*position, Kind::BatchOffset)]), "batch {number}");
            }
        }
    }

    #[test]
    fn a_gap_is_no_damage_and_an_unfinished_end_is_none() {
        let (all, _) = valid(&hex(SEVEN));
        let (second, third) = (usize::try_from(all[1].0).unwrap(), usize::try_from(all[2].0).unwrap());
        let mut bytes = hex(SEVEN);
        bytes.drain(second..third);
        bytes.extend([0, 0, 0, 7]);
        let (found, findings) = valid(&bytes);
        assert_eq!(found.iter().map(|(_, base)| *base).collect::<Vec<_>>(), {
            let mut bases: Vec<_> = all.iter().map(|(_, base)| *base).collect();
            bases.remove(1);
            bases
        });
        assert_eq!(findings, []);
    }
}
