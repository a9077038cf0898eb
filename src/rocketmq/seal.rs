//! Sealing a store: its entries sorted by hash, with the exact times of the log, and a catalog of its files.
//!
//! An index file is sealed if it is whole and its check finds nothing: then a walk of its chains finds exactly the entries below
//! its count. All others are searched as before.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::commit_log::{CommitLog, HeadTimes, KnownEnd};
use super::index_recovery::{holds_tags, is_indexed};
use super::offset_files::OffsetFile;
use crate::error::{Error, Result};
use crate::hash_index::sealed::{
    self, Blocks, Catalog, Draft, Facts, Layout, NO_TIME, Row, Rows, Sample, SealedKeys, Sealing, Source, StoreFile,
    Take, place,
};
use crate::hash_index::{Entry, Hits, IndexFile};
use crate::io::storage::{self, Kind as FileKind};
use crate::io::{Location, i64_of, u32_of};
use crate::report::{Kind, Report};
use crate::time_range::TimeRange;

/// Entries that are read together.
const BLOCK: u32 = 65_536;
/// The kind of an index file in the catalog, and its directory.
const INDEX: (&str, &str) = ("index", "index");
/// The kind of a file of the log.
const LOG: &str = "commit-log";
const TAGS: &str = "logdex.tags";
/// Ranges of the log between sealed index files, in which nothing lacks an entry.
const JOINTS: &str = "logdex.joints";
/// A longer range between index files is not read: a file is missing there.
const LONGEST_JOINT: u64 = 64 << 20;
const GEOMETRY: [&str; 2] = ["logdex.hash_slots", "logdex.max_entries"];

/// Prepares to seal a store: lists its files. The sealed index will be in `directory`.
///
/// # Errors
/// An I/O error, with the path.
pub fn sealing(
    root: &Location,
    directory: &Location,
    log: Arc<CommitLog>,
    index: Vec<Arc<IndexFile>>,
) -> Result<Sealing> {
    let mut files = place::list_store(root, directory, kind_of)?;
    for file in log.files()? {
        if !files.iter().any(|(path, _)| *path == file.path) {
            let status = storage::status(&file.path)?;
            let path = file.path.display().to_string();
            files.push((file.path, StoreFile::new(&path, kind_of(&path), &status)));
        }
    }
    let complete = move |draft: &mut Draft| {
        describe_log(draft, &log)?;
        let tags = holds_tags(&log, &index)?;
        if let Some(tags) = tags {
            draft.notes.insert(TAGS.to_owned(), tags.to_string());
        }
        let joints = joints(&draft.files, &log, &index, tags.unwrap_or(false))?;
        draft.notes.insert(JOINTS.to_owned(), joints);
        Ok(())
    };
    let draft = Draft { files, ..Draft::default() };
    Sealing::new(directory, Layout::OneLog, "index_files", draft, Box::new(complete))
}

/// Finds the ranges between the sealed index files, before the first and after the last, in which no message lacks an entry.
///
/// A file cannot show this for the messages at its ends: they may have entries in the files next to it.
fn joints(files: &[place::Listed], log: &CommitLog, index: &[Arc<IndexFile>], tags: bool) -> Result<String> {
    let is_sealed = |file: &&Arc<IndexFile>| {
        let listed = files.iter().find(|(path, _)| path == file.path());
        listed.is_some_and(|(_, listed)| listed.entries.is_some_and(|entries| entries > 0))
    };
    let sealed: Vec<Arc<IndexFile>> = index.iter().filter(is_sealed).cloned().collect();
    let mut spans = Vec::new();
    for file in &sealed {
        let header = file.header()?;
        spans.push((header.begin_phy_offset.cast_unsigned(), header.end_phy_offset.cast_unsigned()));
    }
    spans.sort_unstable();
    let (begin, end) = (log.min_offset()?, log.max_offset()?);
    let mut ranges = Vec::new();
    if let (Some((first, _)), Some((_, last)), Some(last_message)) = (spans.first(), spans.last(), log.last_message()?)
    {
        ranges.push(('s', begin, *first, first + 1));
        ranges.extend(spans.windows(2).filter_map(|pair| match pair {
            [(_, last), (first, _)] => Some(('m', *last, *first, first + 1)),
            _ => None,
        }));
        ranges.push(('e', *last, last_message, end));
    }
    let mut joints = Vec::new();
    for (place, from, last, to) in ranges {
        let read = from.max(begin);
        if last < read || last >= end || last - read > LONGEST_JOINT {
            continue;
        }
        if is_indexed(log, &sealed, read, last, tags)? {
            joints.push(format!("{place}{from}-{to}"));
        }
    }
    Ok(joints.join(" "))
}

/// Fills in offsets and times of the files of the log.
fn describe_log(draft: &mut Draft, log: &Arc<CommitLog>) -> Result<()> {
    let end = log.max_offset()?;
    let mut times = HeadTimes::new(Arc::clone(log))?;
    let last_written = log.last_file()?;
    for file in log.files()? {
        let Some((_, listed)) = draft.files.iter_mut().find(|(path, _)| *path == file.path) else { continue };
        let start = file.start.cast_signed();
        let Some(first) = times.of(start)? else { continue };
        let known = draft.others.iter().filter(|other| other.first_offset == Some(start));
        let known = known.filter_map(|other| u64::try_from(other.last_offset?).ok()).max();
        // An entry may lead past the end of the log.
        let from = known.filter(|offset| *offset < end).unwrap_or(file.start);
        let (last, file_end) = log.last_of_file(&file, from)?;
        let Some((offset, time)) = last else { continue };
        listed.first_offset = Some(start);
        listed.first_timestamp = Some(first);
        listed.last_offset = Some(offset.cast_signed());
        listed.last_timestamp = Some(time);
        let end = if file.start == last_written { end } else { file_end };
        listed.end_offset = Some(end.cast_signed());
    }
    Ok(())
}

/// An index file, and the log that has the times of its messages.
#[derive(Debug)]
pub struct IndexSource {
    /// The log.
    pub log: Arc<CommitLog>,
    /// The index file.
    pub file: Arc<IndexFile>,
}

impl Source for IndexSource {
    fn read(&self, mut take: Option<Take<'_>>) -> Result<(Option<Facts>, Report)> {
        let Self { log, file } = self;
        let mut last_of_file: BTreeMap<u64, i64> = log.files()?.iter().map(|file| (file.start, -1)).collect();
        let mut sample = Sample::default();
        let header = file.header()?;
        let mut is_ordered = true;
        let (read, verified) = std::thread::scope(|scope| {
            let check = scope.spawn(|| file.verify());
            let times = if take.is_some() { Times::OfBoth } else { Times::None };
            let read = self.rows(times, 1..u32::MAX).and_then(|mut blocks| {
                blocks.try_for_each(|block| {
                    let block = block?;
                    for row in &block {
                        is_ordered &= (header.begin_phy_offset..=header.end_phy_offset).contains(&row.offset);
                        note_last(&mut last_of_file, row.offset);
                    }
                    sample.note(&block);
                    take.as_mut().map_or(Ok(()), |take| take(&block))
                })
            });
            (read, check.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        read?;
        let mut report = Report::default();
        if let Some(finding) = verified?.findings.first() {
            report.findings.push(finding.clone());
        } else if !is_ordered {
            let expected = format!("entries between offsets {} and {}", header.begin_phy_offset, header.end_phy_offset);
            report.find(file.path(), 0, Kind::SealedFile, expected, "an entry outside: not sealed");
        } else {
            let geometry = [file.geometry().hash_slots(), file.geometry().max_entries()];
            let log_file = |(start, last): (u64, i64)| StoreFile {
                kind: LOG.to_owned(),
                first_offset: Some(start.cast_signed()),
                last_offset: Some(last),
                ..StoreFile::default()
            };
            let name = file.path().file_name().unwrap_or_default().to_string_lossy();
            let listed = StoreFile {
                path: format!("{}/{name}", INDEX.1),
                kind: INDEX.0.to_owned(),
                size: Facts::AS_LISTED,
                first_offset: Some(header.begin_phy_offset),
                last_offset: Some(header.end_phy_offset),
                first_timestamp: Some(header.begin_timestamp),
                last_timestamp: Some(header.end_timestamp),
                entries: Some(i64_of(sample.rows)),
                ..StoreFile::default()
            };
            let facts = Facts {
                end: listed.entries.map_or(1, |entries| entries + 1),
                file: listed,
                others: last_of_file.into_iter().filter(|(_, last)| *last >= 0).map(log_file).collect(),
                notes: GEOMETRY
                    .iter()
                    .zip(geometry)
                    .map(|(name, number)| ((*name).to_owned(), number.to_string()))
                    .collect(),
                sample,
            };
            return Ok((Some(facts), report));
        }
        report.count("index_files_not_sealed", 1);
        Ok((None, report))
    }

    fn blocks(&self, part: Range<i64>) -> Result<Blocks> {
        let position = |number: i64| u32_of(number.max(1));
        Ok(Box::new(self.rows(Times::OfBoth, position(part.start)..position(part.end))?))
    }
}

impl IndexSource {
    /// Returns the rows of some entries, in blocks.
    fn rows(
        &self,
        source: Times,
        positions: Range<u32>,
    ) -> Result<impl Iterator<Item = Result<Vec<Row>>> + Send + use<>> {
        let (file, seconds) = (Arc::clone(&self.file), self.file.seconds()?);
        let mut times = HeadTimes::new(Arc::clone(&self.log))?;
        let mut time_of = move |entry: &Entry, position| -> Result<i64> {
            Ok(match source {
                Times::None => NO_TIME,
                Times::OfLog => times.of(entry.phy_offset)?.unwrap_or(NO_TIME),
                Times::OfBoth => {
                    let exact = times.of(entry.phy_offset)?;
                    exact.or_else(|| seconds(position, entry.time_diff)).unwrap_or(NO_TIME)
                }
            })
        };
        let Range { start: mut position, end } = positions;
        Ok(std::iter::from_fn(move || {
            let entries = match file.read_entries(position, BLOCK.min(end.saturating_sub(position))) {
                Ok(entries) if entries.is_empty() => return None,
                Ok(entries) => entries,
                Err(error) => return Some(Err(error)),
            };
            let row = |(entry, position): (&Entry, u32)| {
                let time = time_of(entry, position)?;
                Ok(Row { key_hash: entry.key_hash, part: 0, offset: entry.phy_offset, time })
            };
            let rows = entries.iter().zip(position..).map(row).collect();
            position = position.saturating_add(u32_of(entries.len()));
            Some(rows)
        }))
    }
}

fn note_last(last_of_file: &mut BTreeMap<u64, i64>, offset: i64) {
    let Ok(at) = u64::try_from(offset) else { return };
    if let Some((_, last)) = last_of_file.range_mut(..=at).next_back() {
        *last = offset.max(*last);
    }
}

/// The source of the times of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    /// The log; else the index file, in whole seconds.
    OfBoth,
    /// The log only.
    OfLog,
    /// None.
    None,
}

/// The kind of a file by its path below the root.
fn kind_of(path: &str) -> &'static str {
    match path.split('/').next().unwrap_or_default() {
        "commitlog" | "" => LOG,
        "index" => INDEX.0,
        "consumequeue" => "consume-queue",
        "batchconsumequeue" => "batch-consume-queue",
        "consumequeue_ext" => "consume-queue-extension",
        "config" => "config",
        "checkpoint" => "checkpoint",
        "abort" => "abort",
        "lock" => "lock",
        name if name.len() == 20 && name.bytes().all(|digit| digit.is_ascii_digit()) => LOG,
        _ => "other",
    }
}

/// The sealed index of a store, open for lookups.
#[derive(Debug)]
pub struct SealedStore {
    directory: Location,
    catalog: Catalog,
    keys: SealedKeys,
}

/// The index files of a store that a sealed index stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnchangedFiles {
    /// Names of the files whose entries it has.
    pub names: Vec<String>,
    /// The offsets of the first and the last message of each.
    pub spans: Vec<(i64, i64)>,
    /// Ranges between them in which no message lacks an entry, the ends excluded.
    pub complete_ranges: Vec<(i64, i64)>,
    /// True if all rows belong to these files.
    pub is_all: bool,
    /// Entries of these files.
    pub entries: u64,
}

impl SealedStore {
    /// Reads the catalog in a directory. Other directories are listed at the same time, if they are remote.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` if there is another file; an I/O error, with the path.
    pub fn open(directory: &Location, beside: &[Location]) -> Result<Self> {
        let catalog = place::read_catalog(directory, beside)?;
        if catalog.layout != Layout::OneLog {
            let path = directory.join(place::CATALOG);
            return Err(Error::corrupt(&path, 0, "the catalog of a RocketMQ store", "that of a Kafka log directory"));
        }
        let keys = SealedKeys::new(directory, &catalog)?;
        Ok(Self { directory: directory.to_owned(), catalog, keys })
    }

    /// The directory.
    pub fn directory(&self) -> &Location {
        &self.directory
    }

    /// Row groups that were read.
    pub fn reads(&self) -> u64 {
        self.keys.reads()
    }

    /// Row groups that the rows of some keys are in, at most.
    pub fn groups_of(&self, keys: usize) -> usize {
        self.keys.groups().min(keys)
    }

    /// Slots and entries of the index files.
    pub fn geometry(&self) -> Option<(u32, u32)> {
        let [slots, entries] = GEOMETRY.map(|name| self.catalog.notes.get(name)?.parse().ok());
        slots.zip(entries)
    }

    /// True if tags are indexed; `None`: no indexed message has any.
    pub fn tags(&self) -> Option<bool> {
        self.catalog.notes.get(TAGS)?.parse().ok()
    }

    /// True if the storage returned an `ETag`, which changes with the content, for the files of the log.
    pub fn has_etags(&self) -> bool {
        self.catalog.files.iter().any(|file| file.kind == LOG && file.etag.is_some())
    }

    /// Finds the index files that are as they were when the store was sealed.
    ///
    /// A broker adds entries through a map, which may leave the time of the file unchanged. Without an `ETag`, the header of a
    /// file that is not full is therefore compared.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn unchanged_files(&self, index: &Location) -> Result<UnchangedFiles> {
        self.unchanged_of(&entries_by_name(index)?)
    }

    /// As [`Self::unchanged_files`], in a directory that was listed.
    pub(crate) fn unchanged_of(&self, by_name: &BTreeMap<String, storage::Entry>) -> Result<UnchangedFiles> {
        let mut unchanged = UnchangedFiles { is_all: true, ..UnchangedFiles::default() };
        for (file, name, entries) in self.index_files() {
            let mut is_valid = self.is_unchanged(file, entries, by_name.get(name))?;
            let span = file.first_offset.zip(file.last_offset);
            let span = span.filter(|(first, last)| 0 <= *first && first <= last && *last < i64::MAX);
            is_valid &= entries == 0 || span.is_some();
            if !is_valid {
                unchanged.is_all &= entries == 0;
                continue;
            }
            unchanged.names.push(name.to_owned());
            unchanged.entries = unchanged.entries.saturating_add(entries.unsigned_abs());
            unchanged.spans.extend(span.filter(|_| entries > 0));
        }
        let joints = self.catalog.notes.get(JOINTS).map_or("", String::as_str).split(' ');
        for (place, begin, end) in joints.filter_map(joint) {
            let follows = place == "s" || unchanged.spans.iter().any(|(_, last)| *last == begin);
            let precedes = place == "e" || unchanged.spans.iter().any(|(first, _)| end.checked_sub(1) == Some(*first));
            if follows && precedes {
                unchanged.complete_ranges.push((begin, end));
            }
        }
        Ok(unchanged)
    }

    /// Returns whether the files that are not full, of those that were unchanged, still are. Nobody writes to full ones: a directory
    /// with the same names has them.
    pub(crate) fn are_still_unchanged(
        &self,
        by_name: &BTreeMap<String, storage::Entry>,
        unchanged: &UnchangedFiles,
    ) -> Result<bool> {
        for (file, name, entries) in self.index_files().filter(|(_, _, entries)| *entries < self.full()) {
            let was_unchanged = unchanged.names.iter().any(|other| other == name);
            if was_unchanged && !self.is_unchanged(file, entries, by_name.get(name))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The index files of the catalog, their names, and the number of their entries.
    fn index_files(&self) -> impl Iterator<Item = (&StoreFile, &str, i64)> {
        let of_index = self.catalog.files.iter().filter(|file| file.kind == INDEX.0);
        of_index.filter_map(|file| {
            let name = file.path.rsplit_once('/').map_or(&*file.path, |(_, name)| name);
            Some((file, name, file.entries?))
        })
    }

    /// The entries of a full index file.
    fn full(&self) -> i64 {
        self.geometry().map_or(0, |(_, entries)| i64::from(entries) - 1)
    }

    fn is_unchanged(&self, file: &StoreFile, entries: i64, now: Option<&storage::Entry>) -> Result<bool> {
        let Some(now) = now else { return Ok(false) };
        if !now.status()?.is_some_and(|found| found.kind == FileKind::File && file.is_same(&found)) {
            return Ok(false);
        }
        Ok(entries >= self.full() || file.etag.is_some() || has_header(&now.path, file, entries)?)
    }

    /// Sets the end of a log, as long as its last file has not changed since the store was sealed.
    ///
    /// With an `ETag` nothing is read. Without one the log is read from the last message on, because a broker writes through a
    /// map, which may leave the time of the file unchanged.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn tell_end(&self, log: &CommitLog) -> Result<()> {
        let files = log.files()?;
        let of_path = |path: &Location| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            self.catalog.files.iter().find(|file| file.kind == LOG && file.path.rsplit('/').next() == name.as_deref())
        };
        let of_log = self.catalog.files.iter().filter(|file| file.kind == LOG && file.end_offset.is_some());
        let last_sealed = of_log.filter_map(|file| file.first_offset).max();
        // Files after the last written one hold nothing; they are not in the catalog with an end.
        for (number, file) in files.iter().enumerate().rev() {
            let Some(listed) = of_path(&file.path) else { return Ok(()) };
            if !listed.is_still_at(&file.path)? {
                return Ok(());
            }
            let (Some(message), Some(end)) = (listed.last_offset, listed.end_offset) else { continue };
            let (last_message, end) = (message.cast_unsigned(), end.cast_unsigned());
            let is_inside = file.start <= last_message && last_message < end && end <= file.end();
            // Otherwise the log lost its end, or the catalog belongs to another log.
            if listed.first_offset == last_sealed && is_inside {
                let files: Vec<OffsetFile> = files.iter().skip(number).cloned().collect();
                if files.iter().all(|file| file.etag.is_some()) {
                    log.know_end(KnownEnd { last_message, end, files });
                } else {
                    log.expect_message(last_message)?;
                }
            }
            break;
        }
        Ok(())
    }

    /// Returns candidates of each hash among the rows of the index files that are as they were, newest first.
    ///
    /// # Errors
    /// `Corrupt` if a file of the sealed index is damaged; an I/O error, with the path.
    pub fn select(&self, unchanged: &UnchangedFiles, hashes: &[i32], times: TimeRange) -> Result<Hits> {
        self.keys.offsets(hashes, !times.is_all(), |row| {
            // Times of an index file are in whole seconds.
            let is_in_time =
                times.is_all() || row.time == NO_TIME || times.meets(row.time, row.time.saturating_add(999));
            is_in_time && unchanged.has(row.offset)
        })
    }

    /// Compares the rows with the entries of the index files that are as they were, and with the times of the log.
    ///
    /// # Errors
    /// The system's error, with the path. Damage is a finding.
    pub fn verify(&self, unchanged: &UnchangedFiles, log: &Arc<CommitLog>, index: &[Arc<IndexFile>]) -> Result<Report> {
        let catalog_path = self.directory.join(place::CATALOG);
        let mut expected = Rows::new(&std::env::temp_dir());
        // The rows of a message at the end of a file may be those of the file next to it.
        let inner = |offset: i64| unchanged.is_all || unchanged.spans.iter().any(|(a, b)| *a < offset && offset < *b);
        for file in index.iter().filter(|file| unchanged.is_of(file.path())) {
            let source = IndexSource { log: Arc::clone(log), file: Arc::clone(file) };
            for rows in source.rows(Times::OfLog, 1..u32::MAX)? {
                let rows: Vec<Row> = rows?.into_iter().filter(|row| inner(row.offset)).collect();
                expected.push(&rows)?;
            }
            expected.keep();
        }
        sealed::check::compare(&self.keys, &catalog_path, expected, |row| inner(row.offset))
    }
}

impl UnchangedFiles {
    fn has(&self, offset: i64) -> bool {
        self.is_all || self.spans.iter().any(|(first, last)| (*first..=*last).contains(&offset))
    }

    fn is_of(&self, path: &Location) -> bool {
        let name = path.file_name().map(|name| name.to_string_lossy());
        name.is_some_and(|name| self.names.iter().any(|each| *each == name))
    }
}

/// Place, begin and end of a joint.
fn joint(text: &str) -> Option<(&str, i64, i64)> {
    let (place, range) = text.split_at_checked(1)?;
    let (begin, end) = range.split_once('-')?;
    Some((place, begin.parse().ok()?, end.parse().ok()?))
}

/// Lists a directory of index files. One that does not exist holds nothing.
pub(crate) fn entries_by_name(index: &Location) -> Result<BTreeMap<String, storage::Entry>> {
    let listed = match storage::list(index) {
        Err(error) if error.is_missing() => Vec::new(),
        listed => listed?,
    };
    Ok(listed.into_iter().map(|entry| (entry.name.to_string_lossy().into_owned(), entry)).collect())
}

/// Returns whether the header of an index file agrees with the catalog.
fn has_header(path: &Location, file: &StoreFile, entries: i64) -> Result<bool> {
    let header = crate::hash_index::Header::of_file(path)?;
    let counted = i64::from(header.next_position()) - 1;
    let first_last = (Some(header.begin_phy_offset), Some(header.end_phy_offset));
    Ok(counted == entries && first_last == (file.first_offset, file.last_offset))
}
