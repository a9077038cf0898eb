//! Lookups in one open file and in many.
//!
//! Mapped files are walked by many lanes at a time (`lanes`), all others one key after the other (`select`).

use std::io;
use std::ops::Range;

use super::bytes::{Bytes, on_bytes};
use super::cold;
use super::index_file::IndexFile;
use crate::error::{Error, Result};
use crate::hash_index::key_hash::java_hash::KeySource;
use crate::hash_index::read::hits::{Chunk, Hits};
use crate::hash_index::read::lanes::{self, Chains};
use crate::hash_index::read::select::{self, Damage, TimeWindow, Times, View, Walk};
use crate::io::{ReadAt, u32_of};
use crate::time_range::TimeRange;

impl IndexFile {
    /// Candidates of one key hash, newest first, at most `max_num`. Source: `IndexFile#selectPhyOffset`.
    ///
    /// # Errors
    /// I/O errors. By default damage is not an error: the answer is complete. With the broker's answers, `Corrupt`
    /// if the broker would not return.
    pub fn select(
        &self,
        key_hash: i32,
        max_num: Option<usize>,
        range: TimeRange,
    ) -> Result<(Vec<i64>, Option<Damage>)> {
        let mut out = Vec::new();
        let damage = on_bytes!(&self.bytes, source => {
            self.view(source, range).and_then(|(view, times)| self.walk(&view, times, key_hash, max_num, range, &mut out))
        })
        .map_err(|e| Error::io(&self.path, e))?;
        Ok((out, self.or_error(damage)?))
    }

    /// Returns the candidates of [`Self::select`] if they take little time: the file is local, and the chain is valid and short.
    /// `None`: call that function.
    ///
    /// # Errors
    /// An I/O error.
    pub fn select_short(&self, key_hash: i32, max_num: Option<usize>, range: TimeRange) -> Result<Option<Vec<i64>>> {
        /// Takes some 10 us if the pages were read lately.
        const FEW_LINKS: u32 = 1024;
        if self.answers.are_the_brokers() {
            return Ok(None);
        }
        let mut out = Vec::new();
        let most = max_num.unwrap_or(usize::MAX);
        let walked = on_bytes!(&self.bytes, source => {
            if source.is_far() {
                return Ok(None);
            }
            self.view(source, range)
                .and_then(|(view, times)| select::walk(&view, times, key_hash, most, range, FEW_LINKS, &mut out))
        })
        .map_err(|e| Error::io(&self.path, e))?;
        Ok(matches!(walked, Walk::Done).then_some(out))
    }

    /// Candidates of each key of `rows`, appended to `out`: one list per row, newest first, at most `max_num`. A key
    /// with a negative hash gets an empty list.
    ///
    /// Returns the first damage; the answer is complete nevertheless.
    ///
    /// # Errors
    /// As [`Self::select`]; `InvalidArgument` if `out` would hold 2^31 offsets or more.
    pub fn select_batch<K: KeySource + ?Sized>(
        &self,
        keys: &K,
        rows: Range<usize>,
        max_num: Option<usize>,
        range: TimeRange,
        out: &mut Hits,
    ) -> Result<Option<Damage>> {
        Ok(select_files(&[self], keys, rows, max_num, range, out)?.map(|(_, damage)| damage))
    }

    /// The plain walk for rows of a chunk, each of which may already have candidates of newer files.
    fn walk_rows(
        &self,
        rows: impl Iterator<Item = u32>,
        place: u32,
        max_num: Option<usize>,
        range: TimeRange,
        chunk: &mut Chunk,
    ) -> Result<Option<Damage>> {
        let mut first = None;
        let mut hits = Vec::new();
        on_bytes!(&self.bytes, source => self.view(source, range).and_then(|(view, times)| {
            for row in rows {
                let Some((key_hash, left_to_find)) = chunk.wanted(row, max_num) else { continue };
                let damage = self.walk(&view, times, key_hash, left_to_find, range, &mut hits)?;
                first = first.take().or(damage);
                hits.drain(..).for_each(|phy_offset| chunk.push(row, place, phy_offset));
            }
            Ok(())
        }))
        .map_err(|e| Error::io(&self.path, e))?;
        self.or_error(first)
    }

    fn view<'s, S: ReadAt>(&self, source: &'s S, range: TimeRange) -> io::Result<(View<'s, S>, Times)> {
        let view = View::new(source, self.geometry, self.file_len)?;
        let times = if range.is_all() || self.answers.are_the_brokers() { Times::unknown() } else { view.times()? };
        Ok((view, times))
    }

    fn walk<S: ReadAt>(
        &self,
        view: &View<'_, S>,
        times: Times,
        key_hash: i32,
        max_num: Option<usize>,
        range: TimeRange,
        hits: &mut Vec<i64>,
    ) -> io::Result<Option<Damage>> {
        if self.answers.are_the_brokers() {
            return select::select_as_broker(view, key_hash, max_num, range, hits);
        }
        select::select(view, times, key_hash, max_num.unwrap_or(usize::MAX), range, hits)
    }

    /// With the broker's answers, a walk that would not return is an error.
    fn or_error(&self, damage: Option<Damage>) -> Result<Option<Damage>> {
        match damage {
            Some(Damage { offset, expected, found }) if self.answers.are_the_brokers() => {
                Err(Error::corrupt(&self.path, offset, expected, found))
            }
            damage => Ok(damage),
        }
    }

    /// The file for interleaved walks; `None` if it must be walked plainly.
    fn chains(&self, range: TimeRange) -> Result<Option<Chains<'_>>> {
        let Bytes::Mapped(map) = &self.bytes else { return Ok(None) };
        let io = |e| Error::io(&self.path, e);
        let mut present = self.geometry.entries_within(self.file_len);
        let window = if self.answers.are_the_brokers() {
            let header = self.header()?;
            // With a count of 1 the broker follows no slot; else also one that equals the count.
            let counted = header.next_position();
            present = present.min(if counted <= 1 { 1 } else { counted.saturating_add(1) });
            TimeWindow::of_broker(&header, range)
        } else if range.is_all() {
            Some(TimeWindow::ALL)
        } else {
            let view = View::new(map, self.geometry, self.file_len).map_err(io)?;
            TimeWindow::new(view.times().map_err(io)?, range)
        };
        let any_hash = self.answers.are_the_brokers();
        Ok(window.map(|window| Chains::new(map.words_of_map(), self.geometry, present, any_hash, window)))
    }

    /// Returns whether the file can hold messages of a time range.
    ///
    /// For complete answers false only if the range misses the span of the header's times widened by `clock_slack_ms`. Else the
    /// broker's own test, without slack. Source: `IndexFile#isTimeMatched`.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn is_time_matched(&self, range: TimeRange, clock_slack_ms: i64) -> Result<bool> {
        if self.answers.are_the_brokers() {
            return Ok(select::is_time_matched(&self.header()?, range));
        }
        on_bytes!(&self.bytes, source => {
            View::new(source, self.geometry, self.file_len).and_then(|view| select::may_hold(&view, range, clock_slack_ms))
        })
        .map_err(|e| Error::io(&self.path, e))
    }
}

/// Candidates of each key of `rows` over many files, given newest first, appended to `out`: one list per row, at most
/// `max_num`. A key with a negative hash gets an empty list.
///
/// Returns the first damage, with its file; the answer is complete nevertheless.
///
/// # Errors
/// As [`IndexFile::select_batch`].
pub fn select_files<'a, K: KeySource + ?Sized>(
    files: &[&'a IndexFile],
    keys: &K,
    rows: Range<usize>,
    max_num: Option<usize>,
    range: TimeRange,
    out: &mut Hits,
) -> Result<Option<(&'a IndexFile, Damage)>> {
    let mut search = Search { files, ways: Vec::with_capacity(files.len()), max_num, range, first: None };
    for file in files {
        search.ways.push(file.chains(range)?);
    }
    let mut chunk = Chunk::default();
    let mut start = rows.start;
    while start < rows.end {
        let end = rows.end.min(start + Chunk::ROWS);
        chunk.load(keys, &(start..end));
        search.answer(&mut chunk, rows.end - start)?;
        chunk.lay_out(files.len(), search.most(), out)?;
        start = end;
    }
    Ok(search.first)
}

/// Returns which of the files, given in load order, may hold messages of a time range: their numbers, newest file first.
///
/// They are ordered by commit-log offset, because names follow local time, which can step back. Files that begin at the same
/// offset keep the load order: the keys of a message may be in two files. The range is tested as in [`IndexFile::is_time_matched`].
///
/// # Errors
/// Errors of the system.
pub fn newest_first(files: &[&IndexFile], range: TimeRange, clock_slack_ms: i64) -> Result<Vec<usize>> {
    let mut ranked = Vec::with_capacity(files.len());
    for (place, file) in files.iter().enumerate() {
        if range.is_all() || file.is_time_matched(range, clock_slack_ms)? {
            ranked.push((file.header()?.begin_phy_offset, place));
        }
    }
    ranked.sort_unstable_by(|a, b| b.cmp(a));
    Ok(ranked.into_iter().map(|(_, place)| place).collect())
}

/// A batch call over files, newest first.
struct Search<'f, 'a> {
    files: &'f [&'a IndexFile],
    /// The walk of each file: by lanes, or plainly.
    ways: Vec<Option<Chains<'a>>>,
    max_num: Option<usize>,
    range: TimeRange,
    first: Option<(&'a IndexFile, Damage)>,
}

impl Search<'_, '_> {
    /// `max_num` in 32 bits: the answer cannot hold more candidates.
    fn most(&self) -> u32 {
        const MOST: u32 = i32::MAX.unsigned_abs();
        self.max_num.map_or(MOST, |most| u32::try_from(most).unwrap_or(MOST).min(MOST))
    }

    /// `keys_ahead`: keys of the call that are not answered yet, including those of the chunk.
    fn answer(&mut self, chunk: &mut Chunk, keys_ahead: usize) -> Result<()> {
        let mut files = self.files;
        let mut place = 0;
        for ways in self.ways.chunk_by(|a, b| a.is_some() == b.is_some()) {
            let (run, others) = files.split_at(ways.len());
            files = others;
            // If pages must be read from the disk, few files at a time: a key may be done before the next file.
            let is_cold = cold::are_cold(run, &chunk.key_hashes);
            let together = if is_cold { cold::WALKS.div_ceil(chunk.key_hashes.len()) } else { run.len() };
            for (run, ways) in run.chunks(together).zip(ways.chunks(together)) {
                if is_cold {
                    cold::fetch(run, chunk, self.max_num, keys_ahead);
                }
                let chains: Vec<Chains<'_>> = ways.iter().flatten().copied().collect();
                if chains.is_empty() {
                    for (file, place) in run.iter().zip(place..) {
                        let rows = 0..u32_of(chunk.key_hashes.len());
                        let damage = file.walk_rows(rows, place, self.max_num, self.range, chunk)?;
                        self.first = self.first.take().or(damage.map(|damage| (*file, damage)));
                    }
                } else {
                    lanes::walk(&chains, place, self.files.len() > 1, self.most(), chunk);
                }
                place += u32_of(run.len());
            }
        }
        self.answer_doubtful(chunk)
    }

    /// Answers the rows again, by the plain walk through all files, for which a lane met damage.
    fn answer_doubtful(&mut self, chunk: &mut Chunk) -> Result<()> {
        for row in chunk.withdraw_doubtful() {
            for (place, file) in (0u32..).zip(self.files) {
                let damage = file.walk_rows(std::iter::once(row), place, self.max_num, self.range, chunk)?;
                self.first = self.first.take().or(damage.map(|damage| (*file, damage)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash_index::{Answers, CreateOptions, Geometry, OpenOptions};

    /// A broker that was killed in its first put of a file: the slot is stored, the count is not.
    #[test]
    fn a_slot_before_the_first_count_leads_nowhere_in_compat() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("20260101000000000");
        let geometry = Geometry::new(3, 4).unwrap();
        let create = CreateOptions::new(geometry);
        assert!(IndexFile::create(&path, create).unwrap().put_key("t#k", 7, 1000).unwrap());
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[36..40].copy_from_slice(&1u32.to_be_bytes());
        std::fs::write(&path, bytes).unwrap();
        for (answers, expected) in [(Answers::Complete, vec![7]), (Answers::Broker, vec![])] {
            let options = OpenOptions { geometry: Some(geometry), answers, ..OpenOptions::default() };
            let file = IndexFile::open(&path, options).unwrap();
            let (alone, _) = file.select(crate::hash_index::key_hash("t#k"), None, TimeRange::ALL).unwrap();
            let mut hits = Hits::new();
            file.select_batch(["t#k"].as_slice(), 0..1, None, TimeRange::ALL, &mut hits).unwrap();
            assert_eq!((&alone, hits.phy_offsets()), (&expected, expected.as_slice()), "{answers:?}");
        }
    }

    /// A cycle of two entries, under a count of millions.
    #[test]
    fn a_cycle_in_compat_is_left_after_one_round_of_the_entries_there_can_be() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("20260101000000000");
        let geometry = Geometry::new(1, 4).unwrap();
        let create = CreateOptions::new(geometry);
        let file = IndexFile::create(&path, create).unwrap();
        assert!(file.put_key("t#k", 7, 1000).unwrap() && file.put_key("t#k", 8, 1000).unwrap());
        drop(file);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[36..40].copy_from_slice(&(1i32 << 30).to_be_bytes());
        let first = usize::try_from(geometry.entry(1)).unwrap();
        bytes[first + 16..first + 20].copy_from_slice(&2i32.to_be_bytes());
        std::fs::write(&path, bytes).unwrap();
        let options = OpenOptions { geometry: Some(geometry), answers: Answers::Broker, ..OpenOptions::default() };
        let file = IndexFile::open(&path, options).unwrap();
        let hash = crate::hash_index::key_hash("t#k");
        assert_eq!(file.select(hash, Some(3), TimeRange::ALL).unwrap().0, [8, 7, 8]);
        assert!(matches!(file.select(hash, None, TimeRange::ALL), Err(Error::Corrupt { .. })));
        assert!(matches!(
            file.select_batch(["t#k"].as_slice(), 0..1, None, TimeRange::ALL, &mut Hits::new()),
            Err(Error::Corrupt { .. })
        ));
    }

    /// The count is garbage, and there is no entry.
    #[test]
    fn a_file_mended_for_reading_has_no_count_below_0() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("20260101000000000");
        let geometry = Geometry::new(3, 4).unwrap();
        let mut bytes = vec![0; usize::try_from(geometry.file_len()).unwrap()];
        bytes[36..40].copy_from_slice(&(-5i32).to_be_bytes());
        std::fs::write(&path, bytes).unwrap();
        let options = OpenOptions { geometry: Some(geometry), last_exit_ok: false, ..OpenOptions::default() };
        let file = IndexFile::open(&path, options).unwrap();
        assert_eq!(file.header().unwrap().index_count, 0);
        assert_eq!(file.verify().unwrap().findings, []);
    }
}
