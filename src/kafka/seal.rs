//! Sealing a log directory: the keys of its records, and the values of one header, sorted by their hashes.
//!
//! A segment is sealed if reading it passes over nothing. All others are read by each search, as before. So a search that uses the
//! sealed rows finds what a scan finds.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;

use super::format::names::{base_offset, topic_partition};
use super::log::LogView;
use super::read::key_entries::key_entries;
use super::read::record_columns::Column;
use super::read::record_reader::RecordScan;
use super::read::segment::Segment;
use super::read::segment_range::SegmentRange;
use super::read::segment_reader::{OnError, SegmentReader};
use crate::batch_size::BatchSize;
use crate::error::{Error, Result};
use crate::hash_index::sealed::{
    self, Blocks, Catalog, Draft, Facts, Layout, Row, Rows, Sample, SealedKeys, Sealing, Source, StoreFile, Take, place,
};
use crate::hash_index::{KeyColumn, Keys, Topics, key_hash};
use crate::io::{Location, ProcessMutex, i64_of};
use crate::report::{Finding, Report, thousands};
use crate::time_range::TimeRange;

/// Records that are read together.
const BATCH_ROWS: usize = 65_536;
/// The kind of a `.log` file in the catalog.
const SEGMENT: &str = "segment";
/// That of the last segment of a partition, if it ends with something that a broker was writing. Before another segment that is
/// damage.
const UNFINISHED: &str = "unfinished-segment";
/// Name of the header whose values are sealed next to the keys.
const HEADER: &str = "logdex.header";

/// A partition: topic and number.
pub type Partition = (String, i32);

/// Offsets, the end excluded.
pub type Offsets = (i64, i64);

/// The candidates of a key in a partition, by one index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// Ranges of offsets, ascending, in which each record with the key is a candidate.
    pub covered: Vec<Offsets>,
    /// Offsets of records that may carry the key, newest first.
    pub offsets: Vec<i64>,
}

/// Prepares to seal a log directory: lists its files. The sealed index will be in `directory`, and it will have the values of
/// the header next to the keys.
///
/// # Errors
/// An I/O error, with the path.
pub fn sealing(
    log_dir: &Location,
    directory: &Location,
    mut partitions: Vec<Partition>,
    header: Option<String>,
) -> Result<Sealing> {
    partitions.sort();
    let files = place::list_store(log_dir, directory, kind_of)?;
    let notes = header.map(|header| (HEADER.to_owned(), header)).into_iter().collect();
    let draft = Draft { files, notes, ..Draft::default() };
    Sealing::new(directory, Layout::Partitions(partitions), "segments", draft, Box::new(|_| Ok(())))
}

/// A segment, whose records end where the next one begins.
#[derive(Debug)]
pub struct SegmentSource {
    /// The partition.
    pub partition: Partition,
    /// Its number in the sealed index.
    pub part: u32,
    /// The segment.
    pub segment: Arc<Segment>,
    /// The next segment of the partition.
    pub next: Option<Arc<Segment>>,
    /// The header whose values are sealed next to the keys.
    pub header: Option<String>,
}

impl Source for SegmentSource {
    fn read(&self, mut take: Option<Take<'_>>) -> Result<(Option<Facts>, Report)> {
        let (mut known, mut sample, mut report) = (RowFacts::default(), Sample::default(), Report::default());
        let read = self.for_each_row(|block| {
            known.note(block);
            sample.note(block);
            take.as_mut().map_or(Ok(()), |take| take(block))
        })?;
        if !read.damage.is_empty() {
            report.findings.extend(read.damage);
            report.count("segments_not_sealed", 1);
            return Ok((None, report));
        }
        let segment = &self.segment;
        let end = self.next.as_ref().map_or_else(|| segment.next_offset(), |next| Ok(next.base_offset()))?;
        let kind = if read.is_unfinished { UNFINISHED } else { SEGMENT };
        let file = StoreFile {
            first_offset: Some(segment.base_offset()),
            last_offset: known.last_offset,
            end_offset: Some(end),
            first_timestamp: known.first_timestamp,
            last_timestamp: known.last_timestamp,
            entries: Some(i64_of(sample.rows)),
            // As it was read: a broker may have appended to what was listed.
            ..StoreFile::new(&name_of(&self.partition, segment), kind, segment.status())
        };
        // A broker may append before the rows are read again.
        let end = known.last_offset.map_or(0, |last| last.saturating_add(1));
        Ok((Some(Facts { file, sample, end, ..Facts::default() }), report))
    }

    fn blocks(&self, part: Range<i64>) -> Result<Blocks> {
        let Self { partition, part: number, header, .. } = self;
        let (partition, number, header) = (partition.clone(), *number, header.clone());
        let mut reader = self.reader(None, part.end)?;
        Ok(Box::new(std::iter::from_fn(move || {
            let records = reader.next_batch().transpose()?;
            Some(records.and_then(|records| rows_of(&partition, number, &records, header.as_deref())))
        })))
    }
}

impl SegmentSource {
    /// Calls `take` with the rows, in blocks. Returns what reading the segment passed over.
    fn for_each_row(&self, mut take: impl FnMut(&[Row]) -> Result<()>) -> Result<PassedOver> {
        let end_offset = self.next.as_ref().map_or(i64::MAX, |next| next.base_offset());
        let mut reader = self.reader(self.next.as_ref(), end_offset)?;
        while let Some(records) = reader.next_batch()? {
            take(&rows_of(&self.partition, self.part, &records, self.header.as_deref())?)?;
        }
        let damage = reader.damage().to_vec();
        let is_unfinished = reader.findings().len() > damage.len();
        Ok(PassedOver { damage, is_unfinished })
    }

    fn reader(&self, next: Option<&Arc<Segment>>, end_offset: i64) -> Result<SegmentReader> {
        let mut columns = vec![Column::Topic, Column::Key, Column::Offset, Column::Timestamp];
        columns.extend(self.header.as_ref().map(|_| Column::Headers));
        let scan = RecordScan {
            columns,
            batch_size: BatchSize::of_rows(BATCH_ROWS),
            on_error: OnError::Stop,
            ..RecordScan::default()
        };
        let owner = |segment: &Arc<Segment>| SegmentRange {
            topic: Some(self.partition.0.clone()),
            partition: Some(self.partition.1),
            ..SegmentRange::whole(Arc::clone(segment))
        };
        let begin_offset = self.segment.base_offset();
        let mut ranges = vec![SegmentRange { begin_offset, end_offset, ..owner(&self.segment) }];
        // Nothing of the next segment is read. A reader of the next segment takes an unfinished end before it for damage.
        let nothing = |next| SegmentRange { begin_position: Some(0), end_position: Some(0), ..owner(next) };
        ranges.extend(next.map(nothing));
        SegmentReader::records(ranges, scan)
    }
}

/// The facts known of the rows of a segment.
#[derive(Debug, Default)]
struct RowFacts {
    last_offset: Option<i64>,
    first_timestamp: Option<i64>,
    last_timestamp: Option<i64>,
}

impl RowFacts {
    fn note(&mut self, rows: &[Row]) {
        self.first_timestamp = self.first_timestamp.or(rows.first().map(|row| row.time));
        if let Some(last) = rows.last() {
            (self.last_offset, self.last_timestamp) = (Some(last.offset), Some(last.time));
        }
    }
}

fn partition_of(log: &LogView) -> Partition {
    (log.topic().to_owned(), log.partition())
}

/// The name of a segment's log below the log directory.
fn name_of((topic, partition): &Partition, segment: &Segment) -> String {
    let name = segment.path().file_name().unwrap_or_default().to_string_lossy();
    format!("{topic}-{partition}/{name}")
}

/// The kind of a file by its path below the log directory.
fn kind_of(path: &str) -> &'static str {
    let Some((directory, name)) = path.rsplit_once('/') else {
        return match path {
            "meta.properties" | ".kafka_cleanshutdown" | ".lock" | "bootstrap.checkpoint" => "broker",
            _ if path.ends_with("-checkpoint") => "checkpoint",
            _ => "other",
        };
    };
    if topic_partition(Path::new(directory)).is_none() {
        return "other";
    }
    let suffix = Path::new(name).extension().unwrap_or_default().to_string_lossy();
    match (base_offset(Path::new(name)), suffix.as_ref()) {
        (Some(_), "log") => SEGMENT,
        (Some(_), "index") => "offset-index",
        (Some(_), "timeindex") => "time-index",
        (Some(_), "txnindex") => "transaction-index",
        (Some(_), "snapshot") => "producer-snapshot",
        _ if name == "leader-epoch-checkpoint" => "checkpoint",
        _ if name == "partition.metadata" => "broker",
        _ => "other",
    }
}

/// The parts of a segment that a read skipped.
#[derive(Debug)]
struct PassedOver {
    damage: Vec<Finding>,
    /// The end of the log, which a broker was writing.
    is_unfinished: bool,
}

/// The rows of a batch of records: one for each key, and one for each value of the header.
fn rows_of((topic, _): &Partition, part: u32, records: &RecordBatch, header: Option<&str>) -> Result<Vec<Row>> {
    let entries = key_entries(records, header)?;
    let wrong = || Error::InvalidArgument("entries of records: expected the columns of a key index".to_owned());
    let column = |name| entries.column_by_name(name).ok_or_else(wrong);
    let texts = column("key")?.as_string_opt::<i32>().ok_or_else(wrong)?;
    let offsets = column("phy_offset")?.as_primitive_opt::<Int64Type>().ok_or_else(wrong)?;
    let times = column("store_timestamp")?.as_primitive_opt::<Int64Type>().ok_or_else(wrong)?;
    let hashes = Keys::new(KeyColumn::Text(texts.clone()), Topics::one(topic.as_bytes())).hashes();
    let numbers = offsets.values().iter().zip(times.values());
    let row = |(key_hash, (offset, time)): (&i32, (&i64, &i64))| Row {
        key_hash: *key_hash,
        part,
        offset: *offset,
        time: *time,
    };
    Ok(hashes.values().iter().zip(numbers).map(row).collect())
}

/// The sealed index of a log directory, open for lookups.
#[derive(Debug)]
pub struct SealedLogs {
    directory: Location,
    catalog: Catalog,
    /// Sealed segments by their names.
    segments: HashMap<String, usize>,
    /// Numbers of the partitions.
    parts: HashMap<Partition, u32>,
    keys: SealedKeys,
    /// A file of it turned out to be damaged.
    is_given_up: AtomicBool,
    notes: ProcessMutex<Vec<String>>,
}

impl SealedLogs {
    /// Reads the catalog in a directory.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` if there is another file; an I/O error, with the path.
    pub fn open(directory: &Location) -> Result<Self> {
        let catalog = place::read_catalog(directory, &[])?;
        let Layout::Partitions(partitions) = &catalog.layout else {
            let path = directory.join(place::CATALOG);
            return Err(Error::corrupt(&path, 0, "the catalog of a Kafka log directory", "that of a RocketMQ store"));
        };
        let parts = partitions.iter().cloned().zip(0..).collect();
        let is_sealed =
            |file: &StoreFile| [SEGMENT, UNFINISHED].contains(&file.kind.as_str()) && file.entries.is_some();
        let sealed = catalog.files.iter().enumerate().filter(|(_, file)| is_sealed(file));
        let segments = sealed.map(|(number, file)| (file.path.clone(), number)).collect();
        let keys = SealedKeys::new(directory, &catalog)?;
        let (is_given_up, notes) = (AtomicBool::new(false), ProcessMutex::new());
        Ok(Self { directory: directory.to_owned(), segments, parts, keys, catalog, is_given_up, notes })
    }

    /// The directory.
    pub fn directory(&self) -> &Location {
        &self.directory
    }

    /// Row groups that were read.
    pub fn reads(&self) -> u64 {
        self.keys.reads()
    }

    /// The header whose values are sealed next to the keys.
    pub fn header(&self) -> Option<&str> {
        self.catalog.notes.get(HEADER).map(String::as_str)
    }

    /// The rows of the catalog for the segments that are as they were when they were sealed, each with its number. `segments` are
    /// those of the partition, ascending.
    fn standing<'a>(
        &'a self,
        partition: &'a Partition,
        segments: &'a [Arc<Segment>],
    ) -> impl Iterator<Item = (usize, &'a StoreFile)> {
        segments.iter().enumerate().filter_map(move |(number, segment)| {
            let at = self.segments.get(&name_of(partition, segment))?;
            let file = self.catalog.files.get(*at).filter(|file| file.is_same(segment.status()))?;
            (file.kind == SEGMENT || number + 1 == segments.len()).then_some((number, file))
        })
    }

    /// Returns what is sealed, for people; `None` if it is not used any more.
    pub fn words(&self, logs: &[Arc<LogView>]) -> Option<String> {
        if self.is_given_up() {
            return None;
        }
        let (mut sealed, mut others, mut entries) = (0, 0, 0_u64);
        for log in logs {
            let partition = partition_of(log);
            let standing: Vec<_> = self.standing(&partition, log.segments()).collect();
            sealed += standing.len();
            others += log.segments().len() - standing.len();
            let counts = standing.iter().filter_map(|(_, file)| file.entries);
            entries = counts.fold(entries, |sum, count| sum.saturating_add(count.unsigned_abs()));
        }
        let others = if others == 0 { String::new() } else { format!(", {others} other segments") };
        let place = self.directory.display();
        Some(format!("{sealed} segments with {} entries in {place}{others}", thousands(entries)))
    }

    /// The offsets whose records are sealed, ascending: of the segments that are as they were. `segments` are those of the
    /// partition, ascending.
    fn covered(&self, partition: &Partition, segments: &[Arc<Segment>]) -> Vec<Offsets> {
        let mut covered: Vec<Offsets> = Vec::new();
        for (number, file) in self.standing(partition, segments) {
            let (Some(begin), Some(end)) = (file.first_offset, file.end_offset) else { continue };
            let end = segments.get(number + 1).map_or(end, |next| end.min(next.base_offset()));
            match covered.last_mut() {
                _ if end <= begin => {}
                Some((_, last)) if *last == begin => *last = end,
                _ => covered.push((begin, end)),
            }
        }
        covered
    }

    /// Returns the candidates of a text in each of some partitions of a topic. The text is that of a key, or with a header that of its
    /// value. If a file of the sealed index is damaged, nothing is covered from then on.
    ///
    /// # Errors
    /// `InvalidArgument`, which no file causes.
    pub fn candidates(
        &self,
        logs: &[Arc<LogView>],
        text: &str,
        header: Option<&str>,
        times: TimeRange,
    ) -> Result<Vec<Candidates>> {
        let mut found = vec![Candidates::default(); logs.len()];
        let Some(first) = logs.first().filter(|_| !self.is_given_up()) else { return Ok(found) };
        if header.is_some() && header != self.header() {
            return Ok(found);
        }
        let mut of_part = HashMap::new();
        for (number, (log, found)) in logs.iter().zip(&mut found).enumerate() {
            let partition = partition_of(log);
            found.covered = self.covered(&partition, log.segments());
            of_part.extend(self.parts.get(&partition).map(|part| (*part, number)));
        }
        let wanted = |_, row: &Row| {
            let number = *of_part.get(&row.part)?;
            let is_wanted = holds(&found.get(number)?.covered, row.offset) && times.meets(row.time, row.time);
            is_wanted.then_some((number, row.offset))
        };
        let hash = key_hash(&[first.topic(), "#", text].concat());
        match self.keys.select(&[hash], !times.is_all(), wanted) {
            Ok(rows) => {
                for (number, offset) in rows.into_iter().flatten() {
                    if let Some(found) = found.get_mut(number) {
                        found.offsets.push(offset);
                    }
                }
                Ok(found)
            }
            Err(error @ (Error::Corrupt { .. } | Error::Io { .. })) => {
                self.is_given_up.store(true, Ordering::Relaxed);
                self.notes.with(|notes| notes.push(format!("the sealed index is not used any more: {error}")));
                Ok(vec![Candidates::default(); logs.len()])
            }
            Err(error) => Err(error),
        }
    }

    fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    /// Returns the texts for the log since the last call.
    pub fn take_notes(&self) -> Vec<String> {
        self.notes.with(std::mem::take)
    }

    /// Compares the rows with the records of the segments that are as they were. Checks nothing if it is not used any more.
    ///
    /// # Errors
    /// An I/O error, with the path. Damage is a finding.
    pub fn verify(&self, logs: &[Arc<LogView>]) -> Result<Report> {
        if self.is_given_up() {
            return Ok(Report::default());
        }
        let mut expected = Rows::new(&std::env::temp_dir());
        let mut wanted: BTreeMap<u32, Vec<Offsets>> = BTreeMap::new();
        for log in logs {
            let (partition, segments) = (partition_of(log), log.segments());
            let Some(part) = self.parts.get(&partition).copied() else { continue };
            for (number, file) in self.standing(&partition, segments) {
                let (Some(segment), Some(end)) = (segments.get(number), file.end_offset) else { continue };
                let source = SegmentSource {
                    partition: partition.clone(),
                    part,
                    segment: Arc::clone(segment),
                    next: segments.get(number + 1).cloned(),
                    header: self.header().map(str::to_owned),
                };
                let read = source.for_each_row(|rows| expected.push(rows))?;
                // The check of the log reports it.
                if !read.damage.is_empty() {
                    expected.drop_new();
                    continue;
                }
                expected.keep();
                wanted.entry(part).or_default().push((segment.base_offset(), end));
            }
        }
        let catalog = self.directory.join(place::CATALOG);
        let is_wanted = |row: &Row| wanted.get(&row.part).is_some_and(|offsets| holds(offsets, row.offset));
        sealed::check::compare(&self.keys, &catalog, expected, is_wanted)
    }
}

/// True if one of some ascending ranges holds an offset.
fn holds(ranges: &[Offsets], offset: i64) -> bool {
    let after = ranges.partition_point(|(begin, _)| *begin <= offset);
    after.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|(_, end)| offset < *end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_their_kinds() {
        let kinds = [
            ("a-b-0/00000000000000000042.log", SEGMENT),
            ("a-0/00000000000000000042.timeindex", "time-index"),
            ("a-0/00000000000000000042.log.deleted", "other"),
            ("a-0/leader-epoch-checkpoint", "checkpoint"),
            ("recovery-point-offset-checkpoint", "checkpoint"),
            ("meta.properties", "broker"),
            ("lost+found/00000000000000000042.log", "other"),
        ];
        for (path, kind) in kinds {
            assert_eq!(kind_of(path), kind, "{path}");
        }
    }

    #[test]
    fn an_offset_is_in_one_of_the_ranges() {
        let ranges = [(3, 5), (5, 6), (9, 12)];
        let held: Vec<i64> = (0..14).filter(|offset| holds(&ranges, *offset)).collect();
        assert_eq!(held, [3, 4, 5, 9, 10, 11]);
        assert!(!holds(&[], 0));
    }
}
