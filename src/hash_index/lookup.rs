//! Lookups in one open file and in many.

use std::io;

use super::bytes::on_bytes;
use super::file::IndexFile;
use super::select::{self, Damage, View};
use crate::error::{Error, Result};
use crate::source::ReadAt;
use crate::time_range::TimeRange;

/// Keys of a batch whose slots and newest entries are asked for together, before the first of them is walked.
const AHEAD: usize = 32;

impl IndexFile {
    /// Candidates of one key hash, newest first, at most `max_num`. Source: `IndexFile#selectPhyOffset`.
    ///
    /// # Errors
    /// Errors of the system. Damage is no error by default: the answer is complete all the same. In compat, `Corrupt`
    /// where the broker would not return.
    pub fn select(
        &self,
        key_hash: i32,
        max_num: Option<usize>,
        range: TimeRange,
    ) -> Result<(Vec<i64>, Option<Damage>)> {
        let mut out = Vec::new();
        let damage =
            self.select_batch(std::iter::once(key_hash), max_num, range, |hits| out.extend_from_slice(hits))?;
        Ok((out, damage))
    }

    /// Candidates of each key hash; `each` is called once a hash, in order. Returns the first damage met.
    ///
    /// # Errors
    /// As [`Self::select`].
    pub fn select_batch(
        &self,
        key_hashes: impl Iterator<Item = i32>,
        max_num: Option<usize>,
        range: TimeRange,
        mut each: impl FnMut(&[i64]),
    ) -> Result<Option<Damage>> {
        let mut hits = Vec::new();
        self.append_hits(key_hashes, max_num, range, &mut hits, |hits| {
            each(hits);
            hits.clear();
        })
    }

    /// Appends the candidates of each key hash until `out` holds `max_num` in all; `done` is called after each hash.
    fn append_hits(
        &self,
        key_hashes: impl Iterator<Item = i32>,
        max_num: Option<usize>,
        range: TimeRange,
        out: &mut Vec<i64>,
        done: impl FnMut(&mut Vec<i64>),
    ) -> Result<Option<Damage>> {
        let damage = on_bytes!(&self.bytes, source => {
            View::new(source, self.geometry, self.file_len)
                .and_then(|view| self.walk(&view, key_hashes, max_num, range, out, done))
        })
        .map_err(|e| Error::io(&self.path, e))?;
        match damage {
            Some(Damage { offset, expected, found }) if self.compat.is_some() => {
                Err(Error::corrupt(&self.path, offset, expected, found))
            }
            damage => Ok(damage),
        }
    }

    fn walk<S: ReadAt>(
        &self,
        view: &View<'_, S>,
        mut key_hashes: impl Iterator<Item = i32>,
        max_num: Option<usize>,
        range: TimeRange,
        out: &mut Vec<i64>,
        mut done: impl FnMut(&mut Vec<i64>),
    ) -> io::Result<Option<Damage>> {
        let times = if range.is_all() { select::Times::unknown() } else { view.times()? };
        let mut first = None;
        let mut room = [0; AHEAD];
        loop {
            let filled = room.iter_mut().zip(&mut key_hashes).map(|(place, hash)| *place = hash).count();
            let (block, _) = room.split_at(filled);
            if block.is_empty() {
                return Ok(first);
            }
            view.prefetch_heads(block)?;
            for &hash in block {
                let damage = if self.compat.is_some() {
                    select::select_as_broker(view, hash, max_num, range, out)?
                } else {
                    select::select(view, times, hash, max_num.unwrap_or(usize::MAX), range, out)?
                };
                first = first.or(damage);
                done(out);
            }
        }
    }

    /// Whether the file can hold messages of a time range.
    ///
    /// By default false only when the range misses the span of the header's times widened by `clock_slack_ms`; in compat
    /// the broker's own test, without slack. Source: `IndexFile#isTimeMatched`.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn is_time_matched(&self, range: TimeRange, clock_slack_ms: i64) -> Result<bool> {
        if self.compat.is_some() {
            return Ok(select::is_time_matched(&self.header()?, range));
        }
        on_bytes!(&self.bytes, source => {
            View::new(source, self.geometry, self.file_len).and_then(|view| select::may_hold(&view, range, clock_slack_ms))
        })
        .map_err(|e| Error::io(&self.path, e))
    }
}

/// Candidates of each key hash over many files, given newest first: a key is done when it has `max_num`.
///
/// `each` is called once a hash, in order. Returns the first damage met, with its file.
///
/// # Errors
/// As [`IndexFile::select`].
pub fn select_files<'a>(
    files: &[&'a IndexFile],
    key_hashes: impl Iterator<Item = i32>,
    max_num: Option<usize>,
    range: TimeRange,
    mut each: impl FnMut(&[i64]),
) -> Result<Option<(&'a IndexFile, Damage)>> {
    let mut hits = Vec::new();
    let mut first = None;
    for hash in key_hashes {
        hits.clear();
        for file in files {
            if max_num.is_some_and(|most| hits.len() >= most) {
                break;
            }
            let damage = file.append_hits(std::iter::once(hash), max_num, range, &mut hits, |_| ())?;
            first = first.or(damage.map(|damage| (*file, damage)));
        }
        each(&hits);
    }
    Ok(first)
}
