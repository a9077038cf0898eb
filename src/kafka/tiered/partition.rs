//! The files of a partition, of both sides: the broker's disk and remote storage.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::key_ring::KeyRing;
use super::lineage::Lineage;
use super::manifest::Range;
use super::manifests::Manifests;
use super::names::{Layout, Object, ObjectName, object_name};
use super::remote_segment::{Files, Packed, Part, RemoteSegment, read};
use crate::error::{Error, Result};
use crate::io::Location;
use crate::io::storage::{self, Entry, read_file};
use crate::kafka::format::checkpoint;
use crate::kafka::format::names::base_offset;
use crate::kafka::read::segment::{Segment, SegmentOptions};

const LOG: &str = ".log";
const LEADER_EPOCHS: &str = "leader-epoch-checkpoint";
const LOG_START: &str = "log-start-offset-checkpoint";
const MANIFEST: &str = "rsm-manifest";
const INDEXES: &str = "indexes";

/// A segment that should be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    pub base_offset: i64,
    /// The file found instead, in words.
    pub found: String,
}

/// The place of a partition.
#[derive(Debug)]
pub(super) struct Sides<'a> {
    pub topic: &'a str,
    pub number: u32,
    /// Its directory on the broker's disk, if there is one.
    pub local: Option<Location>,
    /// Its directories in remote storage: several only if the topic was created again.
    pub remote: Vec<Location>,
    pub layout: Layout,
}

/// The files of a partition.
#[derive(Debug, Default)]
pub(super) struct Partition {
    /// Files on the broker's disk.
    pub local: Vec<Entry>,
    /// Files in remote storage, by the names that a broker gave them.
    pub remote: BTreeMap<String, (Arc<RemoteSegment>, Part)>,
    pub lost: Vec<Lost>,
}

/// The objects of a segment by the ends of their names.
type Objects = BTreeMap<String, Object>;

/// The part on the broker's disk.
#[derive(Default)]
struct LocalLog {
    entries: Vec<Entry>,
    /// Each segment's log.
    logs: BTreeMap<i64, usize>,
    lineage: Lineage,
    /// The start of the log, if the broker recorded it.
    begin: Option<i64>,
}

impl Partition {
    /// Joins the files of both sides.
    ///
    /// # Errors
    /// `InvalidArgument` if a key is missing; an I/O error.
    pub(super) fn join(sides: &Sides, keys: &KeyRing, manifests: &Manifests) -> Result<Self> {
        let mut local =
            sides.local.as_ref().map_or_else(|| Ok(LocalLog::default()), |path| LocalLog::read(path, sides))?;
        let (segments, mut lost) = remote_segments(sides, manifests)?;
        let lineage = local.lineage_with(&segments, keys)?;
        let (of_log, others): (Vec<_>, Vec<_>) = segments
            .into_iter()
            .map(|segment| (lineage.extent(&segment.range), segment))
            .partition(|(end, segment)| end.is_some_and(|end| end > segment.base_offset));
        let of_log = of_log.into_iter().filter_map(|(end, segment)| Some((end?, segment))).collect();
        let (chosen, local_end) = choose(of_log, &mut local, keys)?;
        let end = match local_end {
            _ if others.is_empty() => None,
            Some(end) if end > i64::MIN => Some(end),
            Some(_) => chosen.iter().map(|(end, _)| *end).max(),
            None => local.end()?,
        };
        for (_, segment) in others {
            let base_offset = segment.base_offset;
            let is_in = chosen.iter().any(|(end, segment)| (segment.base_offset..*end).contains(&base_offset));
            // Records after the end of the log come from a leader that lost an election.
            if !is_in && end.is_none_or(|end| base_offset < end) && !local.holds(base_offset)? {
                lost.push(Lost { base_offset, found: segment.of_other_epochs() });
            }
        }
        let chosen: Vec<Arc<RemoteSegment>> = chosen.into_iter().map(|(_, segment)| segment).collect();
        let mut remote = BTreeMap::new();
        let bases: Vec<i64> =
            chosen.iter().map(|segment| segment.base_offset).chain(local.logs.keys().copied()).collect();
        for segment in &chosen {
            // A broker names the snapshot of producers at the end of a segment by the base offset of the next one.
            let next = bases.iter().filter(|base| **base > segment.base_offset).min().copied();
            let next = next.or_else(|| segment.range.end_offset.map(|end| end.saturating_add(1)));
            for (part, suffix) in Part::ALL {
                let offset = match part {
                    Part::LeaderEpochs => continue,
                    Part::Snapshot => next,
                    Part::Log | Part::OffsetIndex | Part::TimeIndex | Part::TransactionIndex => {
                        Some(segment.base_offset)
                    }
                };
                if let (Some(offset), Some(_)) = (offset, segment.len(part)) {
                    remote.insert(format!("{offset:020}.{suffix}"), (Arc::clone(segment), part));
                }
            }
        }
        // The broker's own file is the same one, or newer.
        for entry in &local.entries {
            remote.remove(entry.name.to_string_lossy().as_ref());
        }
        let first = bases.iter().min().copied();
        if let (Some(begin), Some(first)) = (local.begin, first)
            && begin < first
            && !lost.iter().any(|each| each.base_offset <= begin)
        {
            lost.push(Lost { base_offset: begin, found: "none on the broker's disk and in remote storage".to_owned() });
        }
        lost.retain(|each| !bases.contains(&each.base_offset));
        Ok(Self { local: local.entries, remote, lost })
    }
}

impl LocalLog {
    fn read(directory: &Location, sides: &Sides) -> Result<Self> {
        let entries = storage::list(directory)?;
        let mut logs = BTreeMap::new();
        for (number, entry) in entries.iter().enumerate() {
            let name = entry.name.to_string_lossy();
            if let (true, Some(base_offset)) = (name.ends_with(LOG), base_offset(Path::new(name.as_ref()))) {
                logs.insert(base_offset, number);
            }
        }
        let epochs = Error::unless_lost(checkpoint::read(&directory.join(LEADER_EPOCHS), false))?.unwrap_or_default();
        let lineage = Lineage::new(epochs.into_iter().map(|(_, epoch, begin)| (epoch, begin)).collect());
        let recorded = match directory.parent() {
            Some(log_dir) => {
                checkpoint::recorded_offset(&log_dir.join(LOG_START), sides.topic, i64::from(sides.number))?
            }
            None => None,
        };
        // The checkpoint is written from time to time. The epochs are cut when the log's start moves.
        let begin = recorded.map(|recorded| recorded.max(lineage.begin().unwrap_or(0)));
        Ok(Self { entries, logs, lineage, begin })
    }

    /// Returns the leader epochs of the log: the broker's, unless remote storage has newer ones, as next to an older copy of the disk.
    fn lineage_with(&self, segments: &[RemoteSegment], keys: &KeyRing) -> Result<Lineage> {
        let last = |segment: &RemoteSegment| segment.range.epochs.last().map(|(epoch, _)| *epoch);
        let newest = segments.iter().max_by_key(|segment| (last(segment), segment.base_offset));
        let newer = newest.filter(|segment| last(segment) > self.lineage.last_epoch());
        let newer = newer.map_or(Ok(None), |segment| history(segment, keys))?;
        Ok(newer.unwrap_or_else(|| self.lineage.clone()))
    }

    fn log_len(&self, base_offset: i64) -> Result<Option<u64>> {
        let Some(entry) = self.logs.get(&base_offset).and_then(|number| self.entries.get(*number)) else {
            return Ok(None);
        };
        Ok(entry.status()?.map(|status| status.len))
    }

    /// Forgets the files of a segment.
    fn remove(&mut self, base: i64) {
        self.entries.retain(|entry| {
            let name = entry.name.to_string_lossy();
            let is_of_segment = Part::ALL.iter().any(|(part, suffix)| {
                *part != Part::Snapshot && name.rsplit_once('.').is_some_and(|(_, ending)| ending == *suffix)
            });
            !(is_of_segment && base_offset(Path::new(name.as_ref())) == Some(base))
        });
        self.logs.clear();
        for (number, entry) in self.entries.iter().enumerate() {
            let name = entry.name.to_string_lossy();
            if let (true, Some(offset)) = (name.ends_with(LOG), base_offset(Path::new(name.as_ref()))) {
                self.logs.insert(offset, number);
            }
        }
    }

    /// Returns the offset after the last batch, or after the last one before damage, which its reader reports.
    fn end(&self) -> Result<Option<i64>> {
        let last = self.logs.values().next_back().and_then(|number| self.entries.get(*number));
        last.map(|log| Segment::open(&log.path, SegmentOptions::default())?.readable_end()).transpose()
    }

    /// Finds the gap between the segment that starts before an offset and the next one: the end of the first and the start of the
    /// second. `None`: one of them is missing, or the end of the first one is damaged, which its reader reports.
    fn gap(&self, offset: i64) -> Result<Option<(i64, i64)>> {
        let before = self.logs.range(..offset).next_back().and_then(|(_, number)| self.entries.get(*number));
        let (Some(before), Some((next, _))) = (before, self.logs.range(offset..).next()) else { return Ok(None) };
        match next_offset(before) {
            Ok(end) => Ok(Some((end, *next)).filter(|(end, next)| end < next)),
            Err(Error::Corrupt { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether a segment holds an offset or starts there. The last segment holds all offsets after its start.
    fn holds(&self, offset: i64) -> Result<bool> {
        let Some(first) = self.logs.keys().next() else { return Ok(false) };
        Ok(*first <= offset
            && (self.logs.contains_key(&offset) || self.gap(offset)?.is_none_or(|(end, _)| offset < end)))
    }
}

fn next_offset(log: &Entry) -> Result<i64> {
    Segment::open(&log.path, SegmentOptions::default())?.next_offset()
}

/// Returns all leader epochs of the log up to the end of a segment; `None` if they are missing or damaged, or their key is missing.
fn history(segment: &RemoteSegment, keys: &KeyRing) -> Result<Option<Lineage>> {
    let Some(log) = segment.log() else { return Ok(None) };
    let content = match segment.content(Part::LeaderEpochs, keys) {
        Err(Error::InvalidArgument(_)) => return Ok(None),
        content => content?,
    };
    let Some(content) = content else { return Ok(None) };
    let lines = read(content).and_then(|bytes| checkpoint::read_bytes(&log.path, &bytes, false));
    let lineage = |lines: Vec<checkpoint::Line>| {
        Lineage::new(lines.into_iter().map(|(_, epoch, begin)| (epoch, begin)).collect())
    };
    Ok(Error::unless_lost(lines)?.map(lineage))
}

/// Reads what is in remote storage: the segments, and those of which a part is missing or damaged.
fn remote_segments(sides: &Sides, manifests: &Manifests) -> Result<(Vec<RemoteSegment>, Vec<Lost>)> {
    let (mut segments, mut lost) = (Vec::new(), Vec::new());
    for directory in &sides.remote {
        let mut stems = BTreeMap::<(i64, String), Objects>::new();
        for entry in storage::list(directory)? {
            let name = entry.name.to_string_lossy();
            let Some(ObjectName { stem, base_offset, suffix }) = object_name(&name) else { continue };
            let Some(status) = entry.status()? else { continue };
            let objects = stems.entry((base_offset, stem.to_owned())).or_default();
            objects.insert(suffix.to_owned(), Object { path: entry.path.clone(), status });
        }
        if sides.layout == Layout::Aiven {
            manifests.expect(stems.values().filter_map(|objects| objects.get(MANIFEST)));
        }
        for ((base_offset, stem), objects) in stems {
            let segment = match sides.layout {
                Layout::Local => separate(base_offset, objects)?,
                Layout::Aiven => packed(base_offset, &directory.join(stem), objects, manifests)?,
            };
            match segment {
                Ok(segment) => segments.push(segment),
                Err(found) => lost.push(Lost { base_offset, found }),
            }
        }
    }
    Ok((segments, lost))
}

fn separate(base_offset: i64, mut objects: Objects) -> Result<std::result::Result<RemoteSegment, String>> {
    let any = objects.values().next().map(|object| object.path.clone()).unwrap_or_default();
    let files: BTreeMap<Part, Object> =
        Part::ALL.into_iter().filter_map(|(part, suffix)| Some((part, objects.remove(suffix)?))).collect();
    if !files.contains_key(&Part::Log) {
        return Ok(Err(format!("no {}, and another file of the segment", any.with_extension("log").display())));
    }
    let mut segment = RemoteSegment { base_offset, range: Range::default(), files: Files::Separate(files) };
    // The list has the epochs of the whole log up to the end of the segment.
    let lineage = history(&segment, &KeyRing::default())?.unwrap_or_default();
    segment.range.epochs = lineage.epochs_from(base_offset);
    Ok(Ok(segment))
}

fn packed(
    base_offset: i64,
    stem: &Location,
    mut objects: Objects,
    manifests: &Manifests,
) -> Result<std::result::Result<RemoteSegment, String>> {
    let name = |suffix: &str| format!("{}.{suffix}", stem.display());
    let Some(object) = objects.remove(MANIFEST) else {
        return Ok(Err(format!("no {}, which the plugin writes last", name(MANIFEST))));
    };
    let known = match manifests.read(&object)?.as_ref() {
        Ok(known) => Arc::clone(known),
        Err((expected, found)) => return Ok(Err(format!("{}: expected {expected}, found {found}", name(MANIFEST)))),
    };
    let Some(log) = objects.remove("log") else {
        return Ok(Err(format!("no {}, and its manifest", name("log"))));
    };
    let range = known.manifest.range.clone();
    if let Some(end) = range.end_offset.filter(|end| *end < base_offset) {
        return Ok(Err(format!("{}: expected endOffset: {base_offset} or more, found {end}", name(MANIFEST))));
    }
    let packed = Packed { known, manifest_path: object.path, log, indexes: objects.remove(INDEXES) };
    Ok(Ok(RemoteSegment { base_offset, range, files: Files::Packed(Box::new(packed)) }))
}

/// A segment, with the offset after the last one that it holds of the log.
type Chosen = (i64, Arc<RemoteSegment>);

/// Chooses the segments in remote storage that are not on the broker's disk, from segments with their end offsets. Returns them,
/// and the end of the log on the broker's disk if it was needed: `i64::MIN` if the last segment is in remote storage.
fn choose(
    mut of_log: Vec<(i64, RemoteSegment)>,
    local: &mut LocalLog,
    keys: &KeyRing,
) -> Result<(Vec<Chosen>, Option<i64>)> {
    // A segment may be there twice, if the copy failed at first, or if two leaders rolled at different offsets.
    of_log.sort_by_key(|(end, segment)| (segment.base_offset, std::cmp::Reverse((*end, segment.log_len()))));
    of_log.dedup_by_key(|(_, segment)| segment.base_offset);
    let mut covered = i64::MIN;
    of_log.retain(|(end, segment)| {
        // Without a manifest the end is not known, and no segment is taken to hold another one.
        let is_new = segment.range.end_offset.is_none() || *end > covered;
        if segment.range.end_offset.is_some() {
            covered = covered.max(*end);
        }
        is_new
    });
    let (first, last) = (local.logs.keys().next().copied(), local.logs.keys().next_back().copied());
    let (Some(first), Some(mut last)) = (first, last) else {
        return Ok((of_log.into_iter().map(|(end, segment)| (end, Arc::new(segment))).collect(), None));
    };
    let mut chosen = Vec::new();
    let mut local_end = None;
    for (end, segment) in of_log {
        let base = segment.base_offset;
        let is_wanted = if base < first {
            true
        } else if let Some(len) = local.log_len(base)? {
            // An older copy of a broker's disk has the start of it.
            let is_longer = segment.log_len() > len;
            if is_longer {
                local.remove(base);
            }
            is_longer
        } else if base < last {
            // The disk may have lost a segment.
            match local.gap(base)? {
                Some((gap, _)) if base < gap => segment.end_offset(keys)?.is_some_and(|last| last >= gap),
                gap => gap.is_some(),
            }
        } else {
            if local_end.is_none() {
                local_end = Some(local.end()?.unwrap_or(i64::MIN));
            }
            segment.end_offset(keys)?.is_some_and(|end| Some(end) >= local_end)
        };
        if is_wanted {
            if base >= last {
                (last, local_end) = (base, Some(i64::MIN));
            }
            chosen.push((end, Arc::new(segment)));
        }
    }
    Ok((chosen, local_end))
}

/// Returns the topic's id that a partition's directory has.
///
/// # Errors
/// An I/O error, with the path.
pub(super) fn topic_id(directory: &Location) -> Result<Option<String>> {
    let text = match read_file(&directory.join("partition.metadata"), None) {
        Err(error) if error.is_missing() => return Ok(None),
        text => text?,
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(text.lines().find_map(|line| line.strip_prefix("topic_id:")).map(|id| id.trim().to_owned()))
}

/// Returns when the newest object of a directory was written.
///
/// # Errors
/// An I/O error, with the path.
pub(super) fn newest(directory: &Location) -> Result<Option<std::time::SystemTime>> {
    let mut newest = None;
    for entry in storage::list(directory)? {
        newest = newest.max(entry.status()?.and_then(|found| found.modified));
    }
    Ok(newest)
}

/// Returns the error of a path with nothing there.
pub(super) fn nothing_at(path: &Path) -> Error {
    Error::io(path, std::io::ErrorKind::NotFound.into())
}
