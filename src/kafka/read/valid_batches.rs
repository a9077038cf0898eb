//! The valid batches of a log, whatever is between them.
//!
//! ```text
//! bytes --sizes, checksums--> batches --offsets of the neighbours--> valid batches
//!           else: search for the next header whose size, magic and checksum fit
//! ```
//!
//! No checksum covers size, magic and base offset. Bytes up to the next valid batch are a batch of magic 2 if the checksum of that format
//! fits. A batch that does not begin where the one before it ends waits for the next batch or segment, which shows whether offsets are
//! missing, as compaction leaves them, or its base offset is damaged.

use std::ops::Range;

use super::segment_range::SegmentRange;
use super::walk::{Reads, Tail, Walk, undecodable};
use crate::error::{Error, Result};
use crate::io::FileSource;
use crate::kafka::format::header::{HEADER_SIZE, Header};
use crate::report::{Finding, Flaw, Kind};
use crate::time_range::TimeRange;

/// The batches of ranges, which are in ascending order and of one log.
#[derive(Debug)]
pub(crate) struct ValidBatches<'a> {
    ranges: &'a [SegmentRange],
    /// Damage that was skipped.
    pub(crate) findings: Vec<Finding>,
    /// The end of the last segment if a batch was being written there, which is no damage.
    pub(crate) unfinished: Option<Finding>,
    /// The offset after the last valid batch; before the first one, that at which the ranges begin.
    next: i64,
    /// The first batch may begin before the offsets of the ranges.
    may_straddle: bool,
    suspect: Option<Suspect>,
    /// The range of the last valid batch, and the position after it.
    taken_to: (usize, u64),
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
        Self {
            ranges,
            findings: Vec::new(),
            unfinished: None,
            next: begin.max(base),
            may_straddle: begin > base,
            suspect: None,
            taken_to: (0, 0),
        }
    }

    /// Calls `take` with the number of the range, the header and the bytes of each batch until it returns false. If the header has
    /// another base offset, size or magic than the bytes, that of the header is right; see [`Header::write_uncovered`].
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
            let base = range.segment.base_offset();
            if number > 0 && base >= self.next {
                if !self.decide(base, &mut take)? {
                    return Ok(());
                }
                self.next = self.next.max(base);
            }
            loop {
                let at = walk.at;
                match next_valid(&mut walk, &source, range)? {
                    Ok(header) if header.base_offset >= 0 && header.last_offset < range.begin_offset => {}
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
                        let end = found.unwrap_or(range.segment.len());
                        let finding = Finding::new(path, at, invalid.flaw.clone());
                        if let Some(header) = invalid.restore(&mut walk, &source, range, at..end)? {
                            self.findings.push(finding);
                            let batch = walk.batch(&source, &header).map_err(|e| Error::io(path, e))?;
                            if !self.place(number, &header, batch, &mut take)? {
                                return Ok(());
                            }
                        } else if number + 1 == ranges.len()
                            && found.is_none()
                            && invalid.tail.as_ref().is_some_and(Tail::is_expected)
                        {
                            self.unfinished = Some(finding);
                        } else {
                            self.findings.push(finding);
                        }
                        let Some(found) = found else { break };
                        walk.restart(found, range.segment.len());
                    }
                }
            }
        }
        self.decide_last(&mut take)
    }

    fn refuse(&mut self, suspect: &Suspect) {
        let expected = format_args!("a base offset of {} or more", self.next).to_string();
        let flaw = Flaw::new(Kind::BatchOffset, expected, suspect.header.base_offset);
        if let Some(range) = self.ranges.get(suspect.number) {
            self.findings.push(Finding::new(range.segment.path(), suspect.header.position, flaw));
        }
    }

    fn take(
        &mut self,
        number: usize,
        header: &Header,
        batch: &[u8],
        take: &mut impl FnMut(usize, &Header, &[u8]) -> Result<bool>,
    ) -> Result<bool> {
        (self.next, self.may_straddle) = (header.last_offset.saturating_add(1), false);
        self.taken_to = (number, header.end());
        take(number, header, batch)
    }

    /// Returns whether the offsets of a batch that waits may be those of its bytes, with a gap before them.
    fn may_follow_gap(&self, suspect: &Suspect) -> bool {
        let Header { base_offset, last_offset, .. } = suspect.header;
        let base = self.ranges.get(suspect.number).map_or(0, |range| range.segment.base_offset());
        // Indexes have 31 bits for an offset.
        let is_in_segment = last_offset.checked_sub(base).is_some_and(|relative| relative <= i64::from(i32::MAX));
        base_offset > self.next && last_offset >= base_offset && is_in_segment
    }

    /// Decides about the batch that waits, with the offset at which the next batch or segment begins.
    fn decide(&mut self, first: i64, take: &mut impl FnMut(usize, &Header, &[u8]) -> Result<bool>) -> Result<bool> {
        let Some(mut suspect) = self.suspect.take() else { return Ok(true) };
        let Header { base_offset, last_offset, .. } = suspect.header;
        let fits = !suspect.header.is_legacy()
            && first.checked_sub(self.next) == last_offset.wrapping_sub(base_offset).checked_add(1);
        let is_gap = self.may_follow_gap(&suspect) && first > last_offset;
        if fits || !is_gap {
            self.refuse(&suspect);
        }
        if fits {
            (suspect.header.base_offset, suspect.header.last_offset) = (self.next, first - 1);
        }
        if fits || is_gap {
            return self.take(suspect.number, &suspect.header, &suspect.bytes, take);
        }
        Ok(true)
    }

    /// Decides about a batch that waits at the end of the log. If its offsets are not possible, it gets those after the batch that it
    /// follows without other bytes between.
    fn decide_last(&mut self, take: &mut impl FnMut(usize, &Header, &[u8]) -> Result<bool>) -> Result<()> {
        let Some(mut suspect) = self.suspect.take() else { return Ok(()) };
        if !self.may_follow_gap(&suspect) {
            self.refuse(&suspect);
            let last = self.next.checked_add(suspect.header.last_offset.wrapping_sub(suspect.header.base_offset));
            let is_next = self.taken_to == (suspect.number, suspect.header.position);
            let Some(last) = last.filter(|_| is_next && !suspect.header.is_legacy()) else { return Ok(()) };
            (suspect.header.base_offset, suspect.header.last_offset) = (self.next, last);
        }
        self.take(suspect.number, &suspect.header, &suspect.bytes, take).map(drop)
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
        if !self.decide(first, take)? {
            return Ok(false);
        }
        // The header of a set of magic 0 or 1 has its last offset only.
        let may_be_before = header.is_legacy() || (self.may_straddle && first < self.next);
        if first == self.next || (may_be_before && header.last_offset >= self.next) {
            return self.take(number, header, batch, take);
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
        // No checksum covers a base offset: one that is not possible is that of a batch that waits for the next one.
        let is_range = header.last_offset.wrapping_sub(header.base_offset) >= 0
            && (header.base_offset >= 0 || !header.is_legacy());
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

impl Invalid {
    /// Returns the batch of a range of bytes if the checksum of magic 2 fits: its size or its magic is damaged.
    fn restore(
        &self,
        walk: &mut Walk,
        source: &FileSource,
        range: &SegmentRange,
        bytes: Range<u64>,
    ) -> Result<Option<Header>> {
        let fail = |e| Error::io(range.segment.path(), e);
        let size = bytes.end.checked_sub(bytes.start).and_then(|size| u32::try_from(size).ok());
        let Some(size) = size.filter(|size| *size as usize >= HEADER_SIZE) else { return Ok(None) };
        match self.tail {
            Some(Tail::End | Tail::Zeros { .. } | Tail::Undecodable(_)) => return Ok(None),
            Some(Tail::Torn { .. } | Tail::Size { .. }) | None => {}
        }
        walk.restart(bytes.start, bytes.end);
        let head = walk.window.get(source, bytes.start, HEADER_SIZE, bytes.end, HEADER_SIZE).map_err(fail)?;
        let mut head = head.to_vec();
        Header::write_magic(&mut head, 2);
        let Some(header) = Header::parse(&head, bytes.start, size) else { return Ok(None) };
        let is_valid = header.check_size(range.segment.options().max_batch_bytes).is_ok()
            && header.codec().is_ok()
            && header.last_offset.wrapping_sub(header.base_offset) >= 0
            && walk.check_crc(source, &header).map_err(fail)?.is_ok();
        Ok(is_valid.then_some(header))
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
            // Size and magic, which the checksum does not cover; checksum, records.
            for (at, byte) in
                [(8, 0xff), (10, 0x7f), (11, 0xff), (11, 0), (16, 9), (16, 0), (16, 0xff), (17, 0xaa), (62, 0xee)]
            {
                let mut others = all.clone();
                if at > 16 {
                    others.remove(number);
                }
                let (found, findings) = valid(&changed(*position, at, byte));
                assert_eq!(found, others, "byte {at} of batch {number}");
                assert_eq!(findings.len(), 1, "{findings:?}");
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
        // No batch follows the last one: an offset after a gap is possible there.
        for (at, byte) in [(0, 0x80), (0, 0x7f), (3, 1), (7, 0), (7, 0x69)] {
            let bytes = changed(all[6].0, at, byte);
            assert_eq!(valid(&bytes), (all.clone(), vec![(all[6].0, Kind::BatchOffset)]), "byte {at}");
        }
        assert_eq!(valid(&changed(all[6].0, 7, 0xff)).0[6], (all[6].0, 255));
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
