//! Sealing a log directory: the keys of its records, and the values of one header, sorted by their hashes.
//!
//! A segment is sealed if reading it passes over nothing. All others are read by each search, as before. So a search that asks the
//! sealed rows finds what a scan finds.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use bytes::Bytes;

use super::format::names::{base_offset, topic_partition};
use super::read::key_entries::key_entries;
use super::read::record_columns::Column;
use super::read::record_reader::RecordScan;
use super::read::segment::Segment;
use super::read::segment_range::SegmentRange;
use super::read::segment_reader::{OnError, SegmentReader};
use crate::error::{Error, Result};
use crate::hash_index::sealed::{
    self, Catalog, KeysFile, Layout, Packed, Packer, Row, Rows, Sample, SealedKeys, StoreFile, place,
};
use crate::hash_index::{KeyColumn, Keys, Topics};
use crate::report::{Finding, Kind, Report};
use crate::time_range::TimeRange;

/// Records that are read together.
const BATCH_ROWS: usize = 65_536;
/// Rows that are packed together.
const ROWS_A_BATCH: usize = 1 << 20;
/// Threads that sort and encode.
const THREADS: usize = 2;
/// The kind of a `.log` file in the catalog.
const SEGMENT: &str = "segment";
/// That of the last segment of a partition, if it ends with something that a broker was writing. Before another segment that is
/// damage.
const UNFINISHED: &str = "unfinished-segment";
/// Name of the header whose values are sealed beside the keys.
const HEADER: &str = "logdex.header";

/// A partition: topic and number.
pub type Partition = (String, i32);

/// Offsets, the end excluded.
pub type Offsets = (i64, i64);

/// Seals one log directory.
#[derive(Debug)]
pub struct LogSealing {
    directory: PathBuf,
    files: Vec<place::Listed>,
    partitions: Vec<Partition>,
    header: Option<String>,
    rows: Rows,
    presence: place::Presence,
    sample: Sample,
    report: Report,
}

impl LogSealing {
    /// Lists the files of a log directory, whose index will be in `directory`. Values of the header are sealed beside the keys.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn new(
        log_dir: &Path,
        directory: &Path,
        mut partitions: Vec<Partition>,
        header: Option<String>,
    ) -> Result<Self> {
        partitions.sort();
        let files = place::list_store(log_dir, directory, kind_of)?;
        let (rows, presence) = (place::no_rows(directory)?, place::Presence::begin(directory)?);
        let (sample, report) = (Sample::default(), Report::default());
        Ok(Self { directory: directory.to_owned(), files, partitions, header, rows, presence, sample, report })
    }

    /// Adds the keys of a segment, whose records end where the next segment begins. If reading it passes over anything, the
    /// findings are reported, and it is not sealed.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn add_segment(
        &mut self,
        partition: &Partition,
        segment: &Arc<Segment>,
        next: Option<&Arc<Segment>>,
    ) -> Result<()> {
        let part = self.part(partition)?;
        let rows = &mut self.rows;
        let (facts, report) =
            facts_of(partition, part, segment, next, self.header.as_deref(), |block| rows.push(block))?;
        self.report.add(report);
        match facts {
            Some(facts) => {
                self.rows.keep();
                self.add_facts(facts);
            }
            None => self.rows.drop_new(),
        }
        Ok(())
    }

    /// The number of a partition in packed rows.
    ///
    /// # Errors
    /// `InvalidArgument` if it is not to be sealed.
    pub fn part(&self, partition: &Partition) -> Result<u32> {
        let part = self.partitions.iter().position(|each| each == partition).and_then(|part| u32::try_from(part).ok());
        part.ok_or_else(|| Error::InvalidArgument(format!("no partition {}-{} to seal", partition.0, partition.1)))
    }

    /// Adds what is known of a segment that is whole, and whose rows another process sorts.
    pub fn add_facts(&mut self, facts: SegmentFacts) {
        self.report.count("segments", 1);
        self.report.count("entries", facts.sample.rows);
        self.sample.add(facts.sample);
        if let Some((_, file)) = self.files.iter_mut().find(|(_, file)| file.path == facts.file.path) {
            *file = facts.file;
        }
    }

    /// The partitions, by their numbers.
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// The first hashes of the ranges into which other processes sort the rows, but for the first range.
    pub fn bounds(&self) -> Vec<i32> {
        self.sample.bounds()
    }

    /// Writes the sealed index. Segments that changed while they were read are not sealed.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn finish(mut self) -> Result<Report> {
        let rows = std::mem::replace(&mut self.rows, Rows::new(&self.directory));
        let layout = Layout::Partitions(self.partitions.clone());
        let keys = place::write_keys(&self.directory, &place::name_of_now(), &layout, rows, THREADS)?;
        self.publish(keys)
    }

    /// Writes the catalog of files of keys that other processes wrote, as [`place::write_packed`] described them.
    ///
    /// # Errors
    /// As [`Self::finish`]; `Corrupt` if rows are missing.
    pub fn finish_with(self, written: Vec<Bytes>) -> Result<Report> {
        let keys = place::described(&self.directory, written, self.sample.rows)?;
        self.publish(keys)
    }

    fn publish(self, keys: Vec<KeysFile>) -> Result<Report> {
        let Self { directory, files: listed, partitions, header, presence, mut report, .. } = self;
        let mut files = Vec::new();
        for (path, mut file) in listed {
            if file.entries.is_some() && !file.is_still_at(&path)? {
                file.entries = None;
                report.find(&path, 0, Kind::SealedFile, "the segment as it was read", "it changed: not sealed");
            }
            files.push(file);
        }
        report.count("files", files.len() as u64);
        report.count("key_files", keys.len() as u64);
        let bytes: i64 = keys.iter().map(|file| file.size).sum();
        report.count("key_bytes", u64::try_from(bytes).unwrap_or(0));
        let notes = header.map(|header| (HEADER.to_owned(), header)).into_iter().collect();
        let catalog = Catalog { layout: Layout::Partitions(partitions), files, keys, notes };
        place::publish(&directory, &catalog, &presence)?;
        Ok(report)
    }
}

/// What a catalog and a plan need of a segment that is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// The segment in the catalog, as it was read: a broker may have appended to what was listed.
    pub file: StoreFile,
    /// Its rows, and hashes of some.
    pub sample: Sample,
}

impl SegmentFacts {
    /// For another process: the line of the catalog, hashes, and the end of the offsets that have rows.
    ///
    /// # Errors
    /// `InvalidArgument` if it cannot be encoded.
    pub fn encode(self) -> Result<(Vec<u8>, Vec<i32>, i64)> {
        let end_offset = self.file.last_offset.map_or(0, |last| last.saturating_add(1));
        let (layout, files) = (Layout::OneLog, vec![self.file]);
        let catalog = Catalog { layout, files, keys: Vec::new(), notes: BTreeMap::new() };
        Ok((catalog.encode()?, self.sample.hashes, end_offset))
    }

    /// Of another process.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn decode(directory: &Path, (file, hashes, _): (Vec<u8>, Vec<i32>, i64)) -> Result<Self> {
        let file = Catalog::decode(directory, file.into())?.files.pop();
        let file = file.ok_or_else(|| Error::corrupt(directory, 0, "a segment", "none"))?;
        let rows = file.entries.and_then(|entries| u64::try_from(entries).ok()).unwrap_or(0);
        Ok(Self { file, sample: Sample { rows, hashes } })
    }
}

/// Reads a segment whose records end where the next segment begins. Without facts it cannot be sealed, and the report says why.
///
/// # Errors
/// The system's error, with the path.
pub fn describe_segment(
    partition: &Partition,
    segment: &Arc<Segment>,
    next: Option<&Arc<Segment>>,
    header: Option<&str>,
) -> Result<(Option<SegmentFacts>, Report)> {
    facts_of(partition, 0, segment, next, header, |_| Ok(()))
}

fn facts_of(
    partition: &Partition,
    part: u32,
    segment: &Arc<Segment>,
    next: Option<&Arc<Segment>>,
    header: Option<&str>,
    mut take: impl FnMut(&[Row]) -> Result<()>,
) -> Result<(Option<SegmentFacts>, Report)> {
    let (mut known, mut sample, mut report) = (RowFacts::default(), Sample::default(), Report::default());
    let read = for_each_row(partition, part, segment, next, header, |block| {
        known.note(block);
        sample.note(block);
        take(block)
    })?;
    if !read.damage.is_empty() {
        report.findings.extend(read.damage);
        report.count("segments_not_sealed", 1);
        return Ok((None, report));
    }
    let end = next.map_or_else(|| segment.next_offset(), |next| Ok(next.base_offset()))?;
    let kind = if read.is_unfinished { UNFINISHED } else { SEGMENT };
    let file = StoreFile {
        first_offset: Some(segment.base_offset()),
        last_offset: known.last_offset,
        end_offset: Some(end),
        first_timestamp: known.first_timestamp,
        last_timestamp: known.last_timestamp,
        entries: Some(i64::try_from(sample.rows).unwrap_or(i64::MAX)),
        ..StoreFile::new(&name_of(partition, segment), kind, segment.status())
    };
    Ok((Some(SegmentFacts { file, sample }), report))
}

/// The rows of a segment that is whole, packed by ranges of their hashes: see [`Packer`].
#[derive(Debug)]
pub struct PackedSegment {
    reader: SegmentReader,
    partition: Partition,
    part: u32,
    header: Option<String>,
    bounds: Vec<i32>,
}

impl PackedSegment {
    /// Prepares to read a segment up to an offset, where its rows ended when it was described: a broker may append. `part` is the
    /// number of its partition.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn open(
        partition: Partition,
        part: u32,
        segment: &Arc<Segment>,
        end_offset: i64,
        header: Option<String>,
        bounds: Vec<i32>,
    ) -> Result<Self> {
        let reader = reader_of(&partition, segment, None, end_offset, header.as_deref())?;
        Ok(Self { reader, partition, part, header, bounds })
    }

    /// Returns the next rows; `None` at the end.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn next_rows(&mut self) -> Result<Option<Vec<Packed>>> {
        let mut packer = Packer::new(&self.bounds);
        let mut count = 0;
        while count < ROWS_A_BATCH
            && let Some(records) = self.reader.next_batch()?
        {
            let rows = rows_of(&self.partition, self.part, &records, self.header.as_deref())?;
            packer.push(&rows);
            count += rows.len().max(1);
        }
        Ok((count > 0).then(|| packer.finish()))
    }
}

/// What is known of the rows of a segment.
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

/// What a read of a segment passed over.
#[derive(Debug)]
struct PassedOver {
    damage: Vec<Finding>,
    /// The end of the log, which a broker was writing.
    is_unfinished: bool,
}

/// Calls `take` with the rows of a segment, in blocks. Returns what reading it passed over.
///
/// # Errors
/// The system's error, with the path; those of `take`.
fn for_each_row(
    partition: &Partition,
    part: u32,
    segment: &Arc<Segment>,
    next: Option<&Arc<Segment>>,
    header: Option<&str>,
    mut take: impl FnMut(&[Row]) -> Result<()>,
) -> Result<PassedOver> {
    let end_offset = next.map_or(i64::MAX, |next| next.base_offset());
    let mut reader = reader_of(partition, segment, next, end_offset, header)?;
    while let Some(records) = reader.next_batch()? {
        take(&rows_of(partition, part, &records, header)?)?;
    }
    let damage = reader.damage().to_vec();
    let is_unfinished = reader.findings().len() > damage.len();
    Ok(PassedOver { damage, is_unfinished })
}

fn reader_of(
    partition: &Partition,
    segment: &Arc<Segment>,
    next: Option<&Arc<Segment>>,
    end_offset: i64,
    header: Option<&str>,
) -> Result<SegmentReader> {
    let mut columns = vec![Column::Topic, Column::Key, Column::Offset, Column::Timestamp];
    columns.extend(header.map(|_| Column::Headers));
    let scan = RecordScan {
        times: TimeRange::ALL,
        keys: None,
        offsets: None,
        columns,
        batch_size: BATCH_ROWS,
        control: false,
        check_crc: true,
        on_error: OnError::Stop,
    };
    let owner = |segment: &Arc<Segment>| SegmentRange {
        topic: Some(partition.0.clone()),
        partition: Some(partition.1),
        ..SegmentRange::whole(Arc::clone(segment))
    };
    let mut ranges = vec![SegmentRange { begin_offset: segment.base_offset(), end_offset, ..owner(segment) }];
    // Nothing of the next segment is read. A reader that knows of it takes an unfinished end before it for damage.
    let nothing = |next| SegmentRange { begin_position: Some(0), end_position: Some(0), ..owner(next) };
    ranges.extend(next.map(nothing));
    SegmentReader::records(ranges, scan)
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
    directory: PathBuf,
    catalog: Catalog,
    /// Sealed segments by their names.
    segments: HashMap<String, usize>,
    /// Numbers of the partitions.
    parts: HashMap<Partition, u32>,
    keys: SealedKeys,
}

impl SealedLogs {
    /// Reads the catalog in a directory.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` if there is another file; the system's error, with the path.
    pub fn open(directory: &Path) -> Result<Self> {
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
        Ok(Self { directory: directory.to_owned(), segments, parts, keys, catalog })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Row groups that were read.
    pub fn reads(&self) -> u64 {
        self.keys.reads()
    }

    /// The header whose values are sealed beside the keys.
    pub fn header(&self) -> Option<&str> {
        self.catalog.notes.get(HEADER).map(String::as_str)
    }

    /// What the catalog says of the segments that are as they were when they were sealed, each with its number. `segments` are
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

    /// The entries of the segments of a partition that are as they were, and how many these are.
    pub fn entries(&self, partition: &Partition, segments: &[Arc<Segment>]) -> (u64, u64) {
        let standing = self.standing(partition, segments).filter_map(|(_, file)| file.entries);
        standing.fold((0, 0), |(count, sum), entries| (count + 1, sum.saturating_add(entries.unsigned_abs())))
    }

    /// The offsets whose records are sealed, ascending: of the segments that are as they were. `segments` are those of the
    /// partition, ascending.
    pub fn covered(&self, partition: &Partition, segments: &[Arc<Segment>]) -> Vec<Offsets> {
        let mut covered: Vec<Offsets> = Vec::new();
        for (number, file) in self.standing(partition, segments) {
            let next_base = segments.get(number + 1).map_or(i64::MAX, |next| next.base_offset());
            let begin = file.first_offset.unwrap_or(i64::MAX);
            let end = file.end_offset.unwrap_or(i64::MIN).min(next_base);
            match covered.last_mut() {
                _ if end <= begin => {}
                Some((_, last)) if *last == begin => *last = end,
                _ => covered.push((begin, end)),
            }
        }
        covered
    }

    /// Returns the candidates of a hash in some partitions, each with the offsets that are covered: newest first, for each partition.
    ///
    /// # Errors
    /// `Corrupt` if a file of the sealed index is damaged; the system's error, with the path.
    pub fn select(&self, hash: i32, times: TimeRange, covered: &[(Partition, Vec<Offsets>)]) -> Result<Vec<Vec<i64>>> {
        let of_part: HashMap<u32, usize> = covered
            .iter()
            .enumerate()
            .filter_map(|(number, (partition, _))| Some((*self.parts.get(partition)?, number)))
            .collect();
        let place = |row: &Row| {
            let number = *of_part.get(&row.part)?;
            let (_, offsets) = covered.get(number)?;
            holds(offsets, row.offset).then_some(number)
        };
        let wanted = |_, row: &Row| {
            let number = place(row).filter(|_| times.meets(row.time, row.time))?;
            Some((number, row.offset))
        };
        let mut found = vec![Vec::new(); covered.len()];
        for (number, offset) in self.keys.select(&[hash], !times.is_all(), wanted)? {
            if let Some(list) = found.get_mut(number) {
                list.push(offset);
            }
        }
        Ok(found)
    }

    /// Compares the rows with the records of the segments that are as they were. Each partition comes with its segments.
    ///
    /// # Errors
    /// The system's error, with the path. Damage is a finding.
    pub fn verify(&self, logs: &[(Partition, Vec<Arc<Segment>>)]) -> Result<Report> {
        let mut expected = Rows::new(&std::env::temp_dir());
        let mut wanted: BTreeMap<u32, Vec<Offsets>> = BTreeMap::new();
        for (partition, segments) in logs {
            let Some(part) = self.parts.get(partition).copied() else { continue };
            for (number, file) in self.standing(partition, segments) {
                let (Some(segment), next) = (segments.get(number), segments.get(number + 1)) else { continue };
                let read = for_each_row(partition, part, segment, next, self.header(), |rows| expected.push(rows))?;
                // The check of the log reports it.
                if !read.damage.is_empty() {
                    expected.drop_new();
                    continue;
                }
                expected.keep();
                let end = file.end_offset.unwrap_or(i64::MAX);
                wanted.entry(part).or_default().push((segment.base_offset(), end));
            }
        }
        let catalog = self.directory.join(place::CATALOG);
        let is_wanted = |row: &Row| wanted.get(&row.part).is_some_and(|offsets| holds(offsets, row.offset));
        sealed::check::compare(&self.keys, &catalog, expected, is_wanted)
    }
}

/// Whether one of some ascending ranges holds an offset.
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
