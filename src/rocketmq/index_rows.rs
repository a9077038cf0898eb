//! Files of index entries on their way from the log into index files: the two passes of a parallel build.
//!
//! A row is an entry of 20 bytes, with the hash instead of topic and key:
//!
//! ```text
//! key_hash i32 | phy_offset i64 | store_timestamp i64, ms      (little-endian)
//! ```

use std::fs::File;
use std::io::{BufWriter, Write};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};

use super::commit_log::columns::Column;
use super::commit_log::{CommitLog, ScanOptions};
use super::index_entries::{INDEXED_COLUMNS, index_entries};
use crate::batch_size::BatchSize;
use crate::error::{Error, Result};
use crate::hash_index::{KeyColumn, Keys, Topics, entry_rows};
use crate::io::{Access, FileSource, ReadAt as _};
use crate::io::{Location, usize_of};
use crate::report::Finding;

/// Bytes of a row.
const ROW: usize = 20;
/// Messages that are read at once, and rows of a batch.
const BATCH_ROWS: usize = 65_536;

/// The result of the first pass for one file of the log.
#[derive(Debug, Default)]
pub struct Counts {
    /// Messages of the file.
    pub messages: u64,
    /// Their entries.
    pub entries: u64,
    /// True if the last message has no entry.
    pub message_after: bool,
    /// True if a sequential reader continues into the next file.
    pub continues: bool,
    /// Damage of the log.
    pub findings: Vec<Finding>,
}

/// Writes the index entries of the messages that begin at `begin` or later and before `end` into a file.
///
/// The scan continues to the first message at or after `end`: only then is it known that a sequential reader gets there.
///
/// # Errors
/// An I/O error, with the path.
pub fn write_rows(log: &CommitLog, begin: u64, end: u64, tags: bool, path: &Location) -> Result<Counts> {
    let fail = |e| Error::io(path, e);
    let columns = Column::choose(Some(&INDEXED_COLUMNS.map(str::to_owned)))?;
    let options = ScanOptions {
        begin_phy_offset: begin,
        columns,
        batch_size: BatchSize::of_rows(BATCH_ROWS),
        ..ScanOptions::default()
    };
    let mut scan = log.scan(&options)?;
    let mut file = BufWriter::new(File::create_new(path).map_err(fail)?);
    let mut counts = Counts::default();
    while let Some(batch) = scan.next_batch()? {
        let offsets = batch.column_by_name("phy_offset").map(AsArray::as_primitive::<Int64Type>);
        let own = offsets.map_or(0, |offsets| offsets.values().partition_point(|at| at.cast_unsigned() < end));
        if own > 0 {
            let entries = index_entries(&batch.slice(0, own), 0, tags)?;
            write_batch(&entries, &mut file).map_err(fail)?;
            counts.messages += own as u64;
            counts.entries += entries.num_rows() as u64;
            let rows = entries.column_by_name("row").map(AsArray::as_primitive::<Int32Type>);
            let last = rows.and_then(|rows| rows.values().last()).and_then(|row| usize::try_from(*row).ok());
            counts.message_after = last != Some(own - 1);
        }
        counts.continues = own < batch.num_rows();
        if counts.continues {
            break;
        }
    }
    file.flush().map_err(fail)?;
    counts.findings.clone_from(&scan.checked().findings);
    Ok(counts)
}

fn write_batch(entries: &RecordBatch, file: &mut impl Write) -> std::io::Result<()> {
    let [Some(topics), Some(keys), Some(offsets), Some(times)] =
        ["topic", "key", "phy_offset", "store_timestamp"].map(|name| entries.column_by_name(name))
    else {
        return Ok(());
    };
    let keys = KeyColumn::Text(keys.as_string().clone());
    let hashes = Keys::new(keys, Topics::Column(KeyColumn::Text(topics.as_string().clone()))).hashes();
    let offsets = offsets.as_primitive::<Int64Type>().values();
    let times = times.as_primitive::<TimestampMillisecondType>().values();
    for ((hash, offset), time) in hashes.values().iter().zip(offsets).zip(times) {
        file.write_all(&hash.to_le_bytes())?;
        file.write_all(&offset.to_le_bytes())?;
        file.write_all(&time.to_le_bytes())?;
    }
    Ok(())
}

/// Reads a range of the rows of several files, as if these were one.
#[derive(Debug)]
pub struct RowReader {
    files: std::vec::IntoIter<(Location, u64)>,
    /// A file, its next row, and the row after its last one.
    current: Option<(Location, FileSource, u64, u64)>,
    skip: u64,
    left: u64,
}

impl RowReader {
    /// Takes the files in their order, each with its number of rows, and the rows `first..last` of all.
    pub fn new(files: Vec<(Location, u64)>, first: u64, last: u64) -> Self {
        Self { files: files.into_iter(), current: None, skip: first, left: last.saturating_sub(first) }
    }

    /// Returns at most `most` of the next rows; `None` at the end.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn next_rows(&mut self, most: usize) -> Result<Option<RecordBatch>> {
        while self.left > 0 {
            let Some((path, file, next, end)) = &mut self.current else {
                if !self.open_next()? {
                    break;
                }
                continue;
            };
            let count = (*end - *next).min(self.left).min(most as u64);
            if count == 0 {
                self.current = None;
                continue;
            }
            let mut bytes = vec![0; usize_of(count) * ROW];
            file.read_exact_at(&mut bytes, *next * ROW as u64).map_err(|e| Error::io(path.as_path(), e))?;
            *next += count;
            self.left -= count;
            return Ok(Some(batch_of(&bytes)));
        }
        Ok(None)
    }

    /// Returns the next rows; `None` at the end.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        self.next_rows(BATCH_ROWS)
    }

    /// Opens the next file that holds wanted rows; false without any.
    fn open_next(&mut self) -> Result<bool> {
        for (path, count) in self.files.by_ref() {
            if self.skip >= count {
                self.skip -= count;
                continue;
            }
            let file = FileSource::open(&path, Access::Pread)?;
            self.current = Some((path, file, std::mem::take(&mut self.skip), count));
            return Ok(true);
        }
        Ok(false)
    }
}

fn batch_of(bytes: &[u8]) -> RecordBatch {
    let (rows, _) = bytes.as_chunks::<ROW>();
    let hashes = rows.iter().filter_map(|row| row.first_chunk()).map(|hash| i32::from_le_bytes(*hash));
    let long =
        |at: usize| rows.iter().filter_map(move |row| row.get(at..)?.first_chunk()).map(|n| i64::from_le_bytes(*n));
    entry_rows(
        hashes.collect::<Vec<_>>().into(),
        long(4).collect::<Vec<_>>().into(),
        long(12).collect::<Vec<_>>().into(),
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_range_of_several_files_is_read_as_of_one() {
        let directory = tempfile::tempdir().unwrap();
        let files: Vec<(Location, u64)> = [0u64, 3, 0, 5, 1]
            .iter()
            .enumerate()
            .scan(0i32, |number, (place, count)| {
                let path = Location::from(directory.path().join(place.to_string()));
                let mut bytes = Vec::new();
                for _ in 0..*count {
                    bytes.extend(number.to_le_bytes());
                    bytes.extend(i64::from(*number + 100).to_le_bytes());
                    bytes.extend(i64::from(*number + 200).to_le_bytes());
                    *number += 1;
                }
                fs::write(&path, bytes).unwrap();
                Some((path, *count))
            })
            .collect();
        for first in 0..=9u64 {
            for last in first..=9 {
                for most in [1, 2, 100] {
                    let mut reader = RowReader::new(files.clone(), first, last);
                    let mut found = Vec::new();
                    while let Some(batch) = reader.next_rows(most).unwrap() {
                        assert!((1..=most).contains(&batch.num_rows()));
                        let offsets = batch.column(1).as_primitive::<Int64Type>().values().to_vec();
                        assert_eq!(batch.column(0).as_primitive::<Int32Type>().values().len(), offsets.len());
                        let times = batch.column(2).as_primitive::<Int64Type>();
                        assert!(times.values().iter().zip(&offsets).all(|(time, offset)| time - offset == 100));
                        found.extend(offsets.into_iter().map(|offset| offset.cast_unsigned() - 100));
                    }
                    assert_eq!(found, (first..last).collect::<Vec<_>>());
                }
            }
        }
    }
}
