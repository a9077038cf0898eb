//! Records by key: candidates of the indexes, and a scan of what no index covers, each compared by its own key.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashSet};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};

use super::key_index::KeyIndex;
use super::log::LogView;
use super::read::key_entries::key_text;
use super::read::record_columns::Column;
use super::read::record_filter::KeyFilter;
use super::read::record_reader::RecordScan;
use super::read::segment_range::SegmentRange;
use super::read::segment_reader::{OnError, SegmentReader};
use super::seal::{Candidates, Offsets, SealedLogs};
use crate::error::{Error, Result};
use crate::io::signals;
use crate::report::Finding;
use crate::time_range::TimeRange;

/// Records that are read together, at first and at most: few may be enough.
const FIRST_READ: usize = 16;
const MOST_READ: usize = 16_384;

/// A search for one key, or for one value of a header.
#[derive(Clone, Debug)]
pub struct KeyQuery {
    /// The key, or the value.
    pub value: Vec<u8>,
    /// The name of the header.
    pub header: Option<String>,
    /// The times of the records.
    pub times: TimeRange,
    /// The columns of the answer: offset and timestamp, and others.
    pub columns: Vec<Column>,
    /// The most records that are returned; `None`: all.
    pub max_num: Option<usize>,
    /// Threads that read what no index covers.
    pub threads: usize,
}

impl KeyQuery {
    /// The text of the key in an index.
    fn text(&self) -> String {
        let value = key_text(&self.value);
        self.header.as_ref().map_or_else(|| value.to_string(), |header| format!("{header}={value}"))
    }
}

/// The indexes that a search uses.
#[derive(Clone, Copy, Debug, Default)]
pub struct Indexes<'a> {
    /// The sealed index of the log directory.
    pub sealed: Option<&'a SealedLogs>,
    /// A key index.
    pub keys: Option<&'a KeyIndex>,
}

impl Indexes<'_> {
    /// Returns the texts for the log since the last call.
    pub fn take_notes(&self) -> Vec<String> {
        let notes = [self.sealed.map(SealedLogs::take_notes), self.keys.map(KeyIndex::take_notes)];
        notes.into_iter().flatten().flatten().collect()
    }
}

/// The plan of a search in one partition.
#[derive(Clone, Debug, Default)]
struct Plan {
    /// Candidates of the sealed index.
    sealed: Vec<i64>,
    /// Candidates of the key index.
    indexed: Vec<i64>,
    /// Ranges of offsets that neither covers. They are scanned.
    holes: Vec<Offsets>,
}

/// The work of a search in one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionFound {
    /// The partition's number.
    pub partition: i32,
    /// Candidates of the sealed index.
    pub sealed: usize,
    /// Candidates of the key index.
    pub indexed: usize,
    /// First offset of the log.
    pub begin_offset: i64,
    /// The offset after its last one; damage at the end may hide more.
    pub end_offset: i64,
    /// Offsets that were scanned because no index covers them.
    pub scanned: i64,
    /// Candidates that have another key, or are no longer in the log.
    pub rejected: usize,
    /// The offsets of the returned records, newest first.
    pub offsets: Vec<i64>,
    /// Segments that are missing.
    pub missing: usize,
    /// Ranges of offsets that were not searched: their segment is missing, or their batches are damaged.
    pub unread: BTreeSet<(i64, i64)>,
}

/// The records that carry a key.
#[derive(Debug, Default)]
pub struct Found {
    /// The rows that were read.
    pub batches: Vec<RecordBatch>,
    /// Number of a batch and of a row in it, for each record, newest first: within a partition by offset, between partitions by
    /// timestamp.
    pub rows: Vec<(usize, usize)>,
    /// More of them exist than were requested.
    pub is_truncated: bool,
    /// The work in each partition, in their order.
    pub partitions: Vec<PartitionFound>,
    /// Missing segments and damaged batches, each once.
    pub findings: Vec<Finding>,
}

/// A record of the answer.
#[derive(Clone, Copy, Debug)]
struct Row {
    timestamp: i64,
    offset: i64,
    /// The numbers of its batch and of its row there.
    place: (usize, usize),
}

/// Finds the records that carry a key in some partitions of one topic.
///
/// # Errors
/// An I/O error; `Corrupt` for a log that cannot be listed, or a key index that is damaged; a signal ended the search.
pub fn find(logs: &[Arc<LogView>], indexes: Indexes<'_>, query: &KeyQuery) -> Result<Found> {
    search(logs, plan(logs, indexes, query)?, query)
}

/// Looks the key up in the indexes.
fn plan(logs: &[Arc<LogView>], indexes: Indexes<'_>, query: &KeyQuery) -> Result<Vec<Plan>> {
    let (text, header) = (query.text(), query.header.as_deref());
    let sealed = match indexes.sealed {
        Some(sealed) => sealed.candidates(logs, &text, header, query.times)?,
        None => vec![Candidates::default(); logs.len()],
    };
    let plan = |(log, sealed): (&Arc<LogView>, Candidates)| -> Result<Plan> {
        let by_key = match indexes.keys {
            Some(keys) => keys.candidates(&(log.topic().to_owned(), log.partition()), &text, header)?,
            None => Candidates::default(),
        };
        // A hole goes on to the first record of the sealed segment after it: a read of a segment without the next one takes an
        // unfinished end for the end of the log, where a broker was writing.
        let unsealed = holes(&sealed.covered).into_iter().map(|(begin, end)| (begin, end.saturating_add(1)));
        let holes = common(&unsealed.collect::<Vec<_>>(), &holes(&by_key.covered));
        Ok(Plan { sealed: sealed.offsets, indexed: by_key.offsets, holes })
    };
    logs.iter().zip(sealed).map(plan).collect()
}

/// The ranges of offsets around and between some ranges, which ascend by their beginnings.
fn holes(covered: &[Offsets]) -> Vec<Offsets> {
    let (mut holes, mut covered_to) = (Vec::new(), 0);
    for (begin, end) in covered.iter().chain([&(i64::MAX, i64::MAX)]) {
        if covered_to < *begin {
            holes.push((covered_to, *begin));
        }
        covered_to = covered_to.max(*end);
    }
    holes
}

/// The offsets that are in both of two lists of ranges.
fn common(first: &[Offsets], second: &[Offsets]) -> Vec<Offsets> {
    let pairs = first.iter().flat_map(|(a, b)| second.iter().map(|(c, d)| (*a.max(c), *b.min(d))));
    pairs.filter(|(begin, end)| begin < end).collect()
}

fn search(logs: &[Arc<LogView>], plans: Vec<Plan>, query: &KeyQuery) -> Result<Found> {
    let mut found = Found::default();
    let most = query.max_num.map_or(usize::MAX, |max| max.saturating_add(1));
    let (mut lists, mut noted) = (Vec::new(), HashSet::new());
    for (log, plan) in logs.iter().zip(plans) {
        let (sealed, indexed) = (plan.sealed.len(), plan.indexed.len());
        let partition = PartitionFound { partition: log.partition(), sealed, indexed, ..PartitionFound::default() };
        let mut part = Search { query, log, found: &mut found, noted: &mut noted, partition };
        lists.push(part.run(plan, most)?);
        let partition = part.partition;
        found.partitions.push(partition);
    }
    let mut rows = merged(&lists, most);
    found.is_truncated = query.max_num.is_some_and(|max| rows.len() > max);
    rows.truncate(query.max_num.unwrap_or(usize::MAX));
    for (list, row) in rows {
        found.rows.push(row.place);
        if let Some(partition) = found.partitions.get_mut(list) {
            partition.offsets.push(row.offset);
        }
    }
    Ok(found)
}

/// Merges lists, each newest first, to records with the numbers of their lists. Of equal timestamps that of the first list comes
/// first.
fn merged(lists: &[Vec<Row>], most: usize) -> Vec<(usize, Row)> {
    let at = |list: usize, at: usize| lists.get(list).and_then(|rows| rows.get(at)).copied();
    let head = |list: usize, place: usize| at(list, place).map(|row| (row.timestamp, Reverse(list), place));
    let mut heads: BinaryHeap<_> = (0..lists.len()).filter_map(|list| head(list, 0)).collect();
    let mut rows = Vec::new();
    while let Some((_, Reverse(list), place)) = heads.pop().filter(|_| rows.len() < most) {
        rows.extend(at(list, place).map(|row| (list, row)));
        heads.extend(head(list, place + 1));
    }
    rows
}

/// The search in one partition.
struct Search<'a> {
    query: &'a KeyQuery,
    log: &'a LogView,
    found: &'a mut Found,
    /// The findings so far, also of other partitions.
    noted: &'a mut HashSet<Finding>,
    partition: PartitionFound,
}

impl Search<'_> {
    fn run(&mut self, plan: Plan, most: usize) -> Result<Vec<Row>> {
        let begin = self.log.start()?;
        // The search reads up to damage at the end, so that it reports it.
        let (end, last) = match self.log.end() {
            Ok(end) => (end, end),
            Err(Error::Corrupt { .. }) => (self.log.readable_end()?, i64::MAX),
            Err(error) => return Err(error),
        };
        (self.partition.begin_offset, self.partition.end_offset) = (begin, end);
        for each in self.log.missing(begin, i64::MAX)?.segments {
            self.partition.missing += 1;
            self.partition.unread.insert((each.begin_offset, each.end_offset));
            self.note(&each.finding);
        }
        let mut offsets = self.scan(&plan.holes, last)?;
        offsets.extend(plan.sealed);
        offsets.extend(plan.indexed);
        offsets.sort_unstable();
        offsets.dedup();
        self.newest_first(&offsets, most)
    }

    fn note(&mut self, finding: &Finding) {
        if self.noted.insert(finding.clone()) {
            self.found.findings.push(finding.clone());
        }
    }

    /// Returns the offsets in some ranges, up to `last`, whose records carry the key.
    fn scan(&mut self, holes: &[Offsets], last: i64) -> Result<Vec<i64>> {
        let (first, end) = (self.partition.begin_offset, self.partition.end_offset);
        let mut ranges = Vec::new();
        for (low, high) in holes {
            let (low, high) = (first.max(*low), last.min(*high));
            if low >= high {
                continue;
            }
            ranges.extend(self.log.ranges(low, high)?);
            // Before the first entry of an index, compaction may have left nothing: that is read, and does not count.
            if low < end && (low > first || high >= end) {
                self.partition.scanned += high.min(end) - low;
            }
        }
        let batches = self.read(ranges, vec![Column::Offset], None)?;
        self.note_damage(&batches);
        Ok(batches.rows.iter().flat_map(|rows| offsets_of(rows).to_vec()).collect())
    }

    /// Reads the records at ascending offsets from the last one on, and returns at most `most` of the wanted times.
    fn newest_first(&mut self, offsets: &[i64], most: usize) -> Result<Vec<Row>> {
        let mut newest = Vec::new();
        let (mut rest, mut size) = (offsets, FIRST_READ);
        while !rest.is_empty() && newest.len() < most {
            let (before, asked) = rest.split_at(rest.len().saturating_sub(size));
            let carrying = self.records_at(asked)?;
            self.partition.rejected += asked.len() - carrying.iter().map(RecordBatch::num_rows).sum::<usize>();
            for batch in carrying.into_iter().rev() {
                let (number, before) = (self.found.batches.len(), newest.len());
                let rows = times_of(&batch).iter().zip(offsets_of(&batch)).enumerate().rev();
                let rows = rows.map(|(at, (timestamp, offset))| Row {
                    timestamp: *timestamp,
                    offset: *offset,
                    place: (number, at),
                });
                newest.extend(rows.filter(|row| self.query.times.meets(row.timestamp, row.timestamp)));
                if newest.len() > before {
                    self.found.batches.push(batch);
                }
            }
            (rest, size) = (before, MOST_READ.min(2 * size));
        }
        newest.truncate(most);
        Ok(newest)
    }

    /// Reads the records at some ascending offsets that carry the key.
    fn records_at(&mut self, offsets: &[i64]) -> Result<Vec<RecordBatch>> {
        let Some((least, most)) = offsets.first().zip(offsets.last()) else { return Ok(Vec::new()) };
        let ranges = self.log.ranges(*least, most.saturating_add(1))?;
        let batches = self.read(ranges, self.query.columns.clone(), Some(offsets.to_vec()))?;
        if batches.damage.is_empty() || offsets.len() == 1 {
            self.note_damage(&batches);
            return Ok(batches.rows);
        }
        // The damage may be between the records that are wanted.
        let mut records = Vec::new();
        for offset in offsets {
            records.extend(self.records_at(std::slice::from_ref(offset))?);
        }
        Ok(records)
    }

    fn read(&self, ranges: Vec<SegmentRange>, columns: Vec<Column>, offsets: Option<Vec<i64>>) -> Result<Batches> {
        let scan = RecordScan {
            keys: Some(KeyFilter::new(self.query.header.clone(), [self.query.value.clone()])),
            offsets,
            columns,
            on_error: OnError::Skip,
            threads: self.query.threads,
            ..RecordScan::default()
        };
        let mut reader = SegmentReader::records(ranges, scan)?;
        let mut rows = Vec::new();
        while let Some(batch) = reader.next_batch()? {
            signals::look().map_err(|e| Error::io(&self.log.directory, e))?;
            rows.push(batch);
        }
        let unread = reader.unread().iter().map(|each| (each.begin_offset, each.end_offset)).collect();
        Ok(Batches { rows, damage: reader.damage().to_vec(), unread })
    }

    fn note_damage(&mut self, batches: &Batches) {
        batches.damage.iter().for_each(|finding| self.note(finding));
        self.partition.unread.extend(&batches.unread);
    }
}

/// The records of a read, and the damage that it skipped.
struct Batches {
    rows: Vec<RecordBatch>,
    damage: Vec<Finding>,
    unread: Vec<(i64, i64)>,
}

fn offsets_of(batch: &RecordBatch) -> &[i64] {
    let column = batch.column_by_name(Column::Offset.name()).and_then(|column| column.as_primitive_opt::<Int64Type>());
    column.map_or(&[], |column| column.values())
}

fn times_of(batch: &RecordBatch) -> &[i64] {
    let column = batch.column_by_name(Column::Timestamp.name());
    let column = column.and_then(|column| column.as_primitive_opt::<TimestampMillisecondType>());
    column.map_or(&[], |column| column.values())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::index::index_file::Check;
    use crate::kafka::log::{Log, PartitionOptions};
    use crate::kafka::test_data::{T, batch, record, segment};

    fn query(max_num: Option<usize>, times: TimeRange) -> KeyQuery {
        let columns = vec![Column::Offset, Column::Timestamp];
        KeyQuery { value: b"k".to_vec(), header: None, times, columns, max_num, threads: 1 }
    }

    /// A partition of one segment, with 2,000 batches of one record; every second one has the key.
    fn partition(folder: &std::path::Path, partition: i32, later_ms: i64) -> Arc<LogView> {
        let folder = folder.join(partition.to_string());
        let batches: Vec<_> = (0..2_000)
            .map(|offset| {
                let mut body = Vec::new();
                record(0, 0, Some(if offset % 2 == 0 { b"k" } else { b"l" }), None, &mut body);
                batch(offset, 0, 1, 0, (T + offset + later_ms, T + offset + later_ms), &body)
            })
            .collect();
        let path = segment(&folder, 0, &batches.concat(), None, None);
        let options = PartitionOptions {
            topic: "orders".to_owned(),
            partition,
            check: Some(Check::Verify),
            access: crate::io::Access::Auto,
            compat: None,
            max_batch_bytes: 1 << 20,
        };
        Log::open(&path.parent().unwrap().into(), options).unwrap().view().unwrap()
    }

    fn offsets(found: &Found) -> Vec<i64> {
        found.rows.iter().map(|(batch, row)| offsets_of(&found.batches[*batch])[*row]).collect()
    }

    #[test]
    fn few_of_many_candidates_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let log = partition(dir.path(), 0, 0);
        let plan = Plan { indexed: (0..2_000).rev().collect(), ..Plan::default() };
        let few = search(&[Arc::clone(&log)], vec![plan.clone()], &query(Some(3), TimeRange::ALL)).unwrap();
        assert_eq!(offsets(&few), [1_998, 1_996, 1_994]);
        assert_eq!(few.partitions[0].offsets, [1_998, 1_996, 1_994]);
        assert!(few.is_truncated);
        assert_eq!(few.batches.iter().map(RecordBatch::num_rows).sum::<usize>(), FIRST_READ / 2);
        let all = search(&[log], vec![plan], &query(None, TimeRange::ALL)).unwrap();
        assert_eq!((all.rows.len(), all.partitions[0].rejected, all.partitions[0].scanned), (1_000, 1_000, 0));
        assert!(all.batches.len() <= 8, "{}", all.batches.len());
    }

    #[test]
    fn partitions_are_merged_by_their_timestamps() {
        let dir = tempfile::tempdir().unwrap();
        let logs = [0, 1].map(|number| partition(dir.path(), number, i64::from(number)));
        let found = find(&logs, Indexes::default(), &query(Some(3), TimeRange::ALL)).unwrap();
        assert_eq!(offsets(&found), [1_998, 1_998, 1_996]);
        assert_eq!(found.partitions[1].scanned, 2_000);
        assert_eq!((&*found.partitions[0].offsets, &*found.partitions[1].offsets), (&[1_998][..], &[1_998, 1_996][..]));
        let times = TimeRange::new(Some(T + 10), Some(T + 13));
        let found = find(&logs, Indexes::default(), &query(None, times)).unwrap();
        assert_eq!(offsets(&found), [12, 12, 10, 10]);
    }

    #[test]
    fn holes_are_around_and_between_ranges() {
        assert_eq!(holes(&[]), [(0, i64::MAX)]);
        assert_eq!(holes(&[(0, 5), (5, 6), (9, i64::MAX)]), [(6, 9)]);
        assert_eq!(holes(&[(2, 9), (3, 4), (12, 13)]), [(0, 2), (9, 12), (13, i64::MAX)]);
        assert_eq!(common(&holes(&[(2, 9)]), &holes(&[(5, 12)])), [(0, 2), (12, i64::MAX)]);
        assert_eq!(common(&[(0, 4), (6, 8)], &[(3, 7)]), [(3, 4), (6, 7)]);
    }

    #[test]
    fn damage_between_candidates_is_no_damage_of_the_search() {
        let dir = tempfile::tempdir().unwrap();
        let log = partition(dir.path(), 0, 0);
        let path = log.segments()[0].path().to_path_buf();
        let mut bytes = std::fs::read(&path).unwrap();
        // The last byte of the record at offset 1,000, of 2,000 batches of one size.
        let end = bytes.len() / 2_000 * 1_001;
        bytes[end - 1] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let found_at = |indexed: Vec<i64>| {
            let plan = Plan { indexed, ..Plan::default() };
            search(&[Arc::clone(&log)], vec![plan], &query(None, TimeRange::ALL)).unwrap()
        };
        let found = found_at(vec![0, 1_998]);
        assert_eq!((offsets(&found), found.findings.len()), (vec![1_998, 0], 0));
        let found = found_at(vec![1_000]);
        assert_eq!((found.findings.len(), found.partitions[0].unread.iter().next()), (1, Some(&(1_000, 1_001))));
    }
}
