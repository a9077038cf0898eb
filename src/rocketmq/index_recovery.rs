//! Finds the entries that an index lacks although its log has their messages.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;

use super::commit_log::CommitLog;
use super::index_entries::{Entries, IndexKey, KeyTexts, for_each_key_of_frame};
use crate::arrow::input_columns::{Texts, integers, null};
use crate::error::{Error, Result};
use crate::hash_index::{Hits, IndexFile, KeySource, carry_utf8, finish, select_files};
use crate::time_range::TimeRange;

/// Entries that are looked up together.
const BLOCK: usize = 8_192;
/// Limits of the search for tags: bytes of the log, and messages with tags.
const BYTES_FOR_TAGS: u64 = 64 << 20;
const MESSAGES_WITH_TAGS: usize = 64;
/// After a crash the last entries of a file may be incomplete.
const DOUBTFUL_ENTRIES: u32 = 16;

/// Key hashes that are looked up.
struct Hashes(Vec<i32>);

impl KeySource for Hashes {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn hash_block(&self, start: usize, hashes: &mut [i32]) {
        for (to, hash) in hashes.iter_mut().zip(self.0.iter().skip(start)) {
            *to = *hash;
        }
    }
}

/// Returns the rows of index entries (`topic`, `key`, `phy_offset`) that are in none of the files. A duplicate entry must be in
/// the files twice. Entries are compared by hash and offset.
///
/// # Errors
/// `InvalidArgument` for a column that is missing, of another type, or null; an I/O error, with the path.
pub fn missing_rows(files: &[Arc<IndexFile>], entries: &RecordBatch) -> Result<Vec<usize>> {
    let (topics, keys) = (Texts::of(entries, "topic")?, Texts::of(entries, "key")?);
    let offsets = integers(entries, "phy_offset")?;
    let mut wanted = Vec::with_capacity(entries.num_rows());
    for row in 0..entries.num_rows() {
        let topic = topics.get(row).ok_or_else(|| null("topic", row))?;
        let key = keys.get(row).ok_or_else(|| null("key", row))?;
        let offset = offsets(row).ok_or_else(|| null("phy_offset", row))?;
        let hash = [topic, "#", key].into_iter().fold(0, |hash, part| carry_utf8(hash, part.as_bytes()));
        wanted.push((finish(hash), offset));
    }
    let mut present = count_present(files, &wanted)?;
    let mut is_missing = |link: &(i32, i64)| match present.get_mut(link) {
        Some(left) if *left > 0 => {
            *left -= 1;
            false
        }
        _ => true,
    };
    Ok(wanted.iter().enumerate().filter(|(_, link)| is_missing(link)).map(|(row, _)| row).collect())
}

/// Counts how often each link, a hash and an offset, is in the files.
fn count_present(files: &[Arc<IndexFile>], links: &[(i32, i64)]) -> Result<HashMap<(i32, i64), usize>> {
    let mut present: HashMap<(i32, i64), usize> = links.iter().map(|link| (*link, 0)).collect();
    let mut hashes: Vec<i32> = links.iter().map(|(hash, _)| *hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    let files: Vec<&IndexFile> = files.iter().map(AsRef::as_ref).collect();
    let mut hits = Hits::new();
    let hashes = Hashes(hashes);
    select_files(&files, &hashes, 0..hashes.len(), None, TimeRange::ALL, &mut hits)?;
    for (hash, found) in hashes.0.iter().zip(hits.rows()) {
        for offset in found {
            if let Some(count) = present.get_mut(&(*hash, *offset)) {
                *count += 1;
            }
        }
    }
    Ok(present)
}

/// Calls `take` with the entries of the messages that begin in `begin..end`, in blocks, until it returns false.
fn for_each_block(
    log: &CommitLog,
    begin: u64,
    end: u64,
    tags: bool,
    mut take: impl FnMut(RecordBatch) -> Result<bool>,
) -> Result<()> {
    let begin = begin.max(log.min_offset()?);
    if begin >= end.min(log.max_offset()?) {
        return Ok(());
    }
    let mut walk = log.frames(begin, end, false)?;
    loop {
        let (mut entries, mut count) = (Entries::default(), 0);
        while count < BLOCK && walk.advance()? {
            if let Some((place, frame)) = walk.message() {
                let texts = KeyTexts::of_properties(frame.properties());
                for_each_key_of_frame(&frame, &texts, place.phy_offset.cast_signed(), tags, |key: IndexKey<'_>| {
                    entries.add(&key);
                    count += 1;
                });
            }
        }
        if count == 0 || !take(entries.finish())? {
            return Ok(());
        }
    }
}

/// Returns the entries of the messages of a range of the log, in blocks, and the rows of each that are in none of the files.
///
/// # Errors
/// An I/O error, with the path.
pub fn missing_entries(
    log: &CommitLog,
    files: &[Arc<IndexFile>],
    begin: u64,
    end: u64,
    tags: bool,
) -> Result<Vec<(RecordBatch, Vec<usize>)>> {
    let mut missing = Vec::new();
    for_each_block(log, begin, end, tags, |entries| {
        let rows = missing_rows(files, &entries)?;
        if !rows.is_empty() {
            missing.push((entries, rows));
        }
        Ok(true)
    })?;
    Ok(missing)
}

/// Returns whether an entry of the messages of a range of the log, tags aside, is in none of the files.
///
/// # Errors
/// An I/O error, with the path.
pub fn lacks_entries(log: &CommitLog, files: &[Arc<IndexFile>], begin: u64, end: u64) -> Result<bool> {
    let mut lacks = false;
    for_each_block(log, begin, end, false, |entries| {
        lacks = !missing_rows(files, &entries)?.is_empty();
        Ok(!lacks)
    })?;
    Ok(lacks)
}

/// Returns whether the messages of a range of the log, the last of which is at `last`, follow each other without damage, and all
/// their entries are in the files.
///
/// # Errors
/// An I/O error, with the path.
pub fn is_indexed(log: &CommitLog, files: &[Arc<IndexFile>], begin: u64, last: u64, tags: bool) -> Result<bool> {
    let mut walk = log.frames(begin, last.saturating_add(1), false)?;
    let mut reached = None;
    while walk.advance()? {
        reached = walk.message().map(|(place, _)| place.phy_offset).or(reached);
    }
    Ok(reached == Some(last) && missing_entries(log, files, begin, last.saturating_add(1), tags)?.is_empty())
}

/// Returns whether the index files hold the tags of a log's messages, as 5.5.0 writes them. The newest file whose messages have
/// tags must hold an entry for one of the first such messages.
///
/// `None`: no message in the part of the log that was read has tags.
///
/// # Errors
/// An I/O error, with the path.
pub fn holds_tags(log: &CommitLog, files: &[Arc<IndexFile>]) -> Result<Option<bool>> {
    let mut held = Vec::new();
    for file in files {
        let header = file.header()?;
        if !file.is_empty()? {
            let [begin, end] =
                [header.begin_phy_offset, header.end_phy_offset].map(|at| u64::try_from(at).unwrap_or(0));
            held.push((begin, end, Arc::clone(file)));
        }
    }
    held.sort_by_key(|(begin, _, _)| *begin);
    let all: Vec<Arc<IndexFile>> = held.iter().map(|(_, _, file)| Arc::clone(file)).collect();
    let mut left = BYTES_FOR_TAGS;
    for (begin, last, _) in held.iter().rev() {
        let tagged = tag_links(log, *begin, (*last).min(begin.saturating_add(left)).saturating_add(1))?;
        if !tagged.is_empty() {
            return Ok(Some(count_present(&all, &tagged)?.values().any(|count| *count > 0)));
        }
        left = left.saturating_sub(last.saturating_sub(*begin));
        if left == 0 {
            break;
        }
    }
    Ok(None)
}

/// Returns hash and offset of the tags entries of the first messages with tags in a range of the log.
fn tag_links(log: &CommitLog, begin: u64, end: u64) -> Result<Vec<(i32, i64)>> {
    let mut links = Vec::new();
    let begin = begin.max(log.min_offset()?);
    if begin >= end.min(log.max_offset()?) {
        return Ok(links);
    }
    let mut walk = log.frames(begin, end, false)?;
    while links.len() < MESSAGES_WITH_TAGS && walk.advance()? {
        if let Some((place, frame)) = walk.message() {
            let texts = KeyTexts { tags: KeyTexts::of_properties(frame.properties()).tags, ..KeyTexts::default() };
            for_each_key_of_frame(&frame, &texts, place.phy_offset.cast_signed(), true, |key| {
                links.push((key.hash(), key.phy_offset));
            });
        }
    }
    Ok(links)
}

/// Returns the smallest offset among the last entries of a file; 0 without entries.
///
/// # Errors
/// An I/O error, with the path.
pub fn doubtful_offset(file: &IndexFile) -> Result<u64> {
    let first = (file.len()? + 1).saturating_sub(DOUBTFUL_ENTRIES).max(1);
    let entries = file.read_entries(first, DOUBTFUL_ENTRIES)?;
    let smallest = entries.iter().map(|entry| entry.phy_offset).min().unwrap_or(0);
    Ok(u64::try_from(smallest).unwrap_or(0))
}

/// Returns the rows of index entries that an interrupted put left out. When it stopped, the newest entry of the files referred to
/// the message at `end`. The result has the rows after that message, and its missing rows.
///
/// # Errors
/// As for [`missing_rows`].
pub fn unput_rows(files: &[Arc<IndexFile>], entries: &RecordBatch, end: i64) -> Result<Vec<usize>> {
    let column = entries.column_by_name("phy_offset").and_then(|column| column.as_primitive_opt::<Int64Type>());
    let column =
        column.ok_or_else(|| Error::InvalidArgument("index entries: expected an int64 column phy_offset".into()))?;
    let after = column.values().iter().position(|offset| *offset > end).unwrap_or(column.len());
    let mut rows = missing_rows(files, &entries.slice(0, after))?;
    rows.extend(after..entries.num_rows());
    Ok(rows)
}
