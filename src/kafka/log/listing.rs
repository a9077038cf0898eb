//! The files of a partition's directory, and which of them form its log.
//!
//! A broker tidies the directory when it starts. The listing decides the same and changes nothing. Source: `LogLoader#load`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::missing::Unread;
use crate::error::Result;
use crate::io::Location;
use crate::io::storage;
use crate::kafka::format::names::{base_offset, topic_partition};
use crate::kafka::read::segment::{Segment, SegmentOptions};

const LOG: &str = ".log";
const SNAPSHOT: &str = ".snapshot";
/// The files of a segment.
const SUFFIXES: [&str; 5] = [LOG, ".index", ".timeindex", ".txnindex", SNAPSHOT];
const CLEANED: &str = ".cleaned";
const SWAP: &str = ".swap";
/// Follows the name of a segment that a recovery replaced.
const DAMAGED: &str = ".damaged";
/// Endings that a broker adds while it deletes a file, writes it, or swaps it in, and that of a recovery.
const LEFTOVERS: [&str; 4] = [".deleted", CLEANED, SWAP, DAMAGED];
/// Text files next to the segments, also with the ending `.tmp`.
const TEXT_FILES: [&str; 3] = ["leader-epoch-checkpoint", "partition.metadata", "quorum-state"];

/// The files of a segment by their suffix.
pub type SegmentFiles = BTreeMap<&'static str, Location>;

/// The files of a partition.
#[derive(Debug, Default)]
pub struct Listing {
    /// The files of each segment by base offset. Each has a `.log`.
    pub segments: BTreeMap<i64, SegmentFiles>,
    /// Producer snapshots by offset.
    pub snapshots: BTreeMap<i64, Location>,
    /// Index files without a `.log`, which a broker deletes.
    pub orphans: Vec<Location>,
    /// Files that wait for deletion or belong to an unfinished compaction, and segments that a recovery replaced.
    pub leftovers: Vec<Location>,
    /// Other files, except the text files next to the segments.
    pub strays: Vec<Location>,
    /// Lost segments: a log that was compressed, an index before the first segment, an object that is missing.
    pub unread: Vec<Unread>,
}

impl Listing {
    /// Lists the files of a partition.
    ///
    /// # Errors
    /// An I/O error; after an interrupted swap `Corrupt`, if the new segments cannot be read to their ends.
    pub fn of(directory: &Location) -> Result<Self> {
        let mut entries = storage::list(directory)?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let mut found = Self::default();
        let mut files = BTreeMap::<i64, SegmentFiles>::new();
        let mut swaps = BTreeMap::<i64, SegmentFiles>::new();
        let mut cleaned = None::<i64>;
        for entry in entries {
            let name = entry.name.to_string_lossy().into_owned();
            let (stem, leftover) = split_leftover(&name);
            let named = segment_file(stem);
            let is_segment_file = named.is_some() && entry.is_file()?;
            let path = entry.path;
            let Some((offset, suffix)) = named.filter(|_| is_segment_file) else {
                if !is_text_file(&name) && !is_metadata_snapshot(&name) {
                    found.strays.push(path);
                }
                continue;
            };
            match leftover {
                None if suffix == SNAPSHOT => drop(found.snapshots.insert(offset, path)),
                None => drop(files.entry(offset).or_default().insert(suffix, path)),
                Some(SWAP) => drop(swaps.entry(offset).or_default().insert(suffix, path)),
                Some(ending) => {
                    found.leftovers.push(path);
                    if ending == CLEANED {
                        cleaned = Some(cleaned.map_or(offset, |first| first.min(offset)));
                    }
                }
            }
        }
        found.swap_in(&mut files, swaps, cleaned)?;
        for (offset, parts) in files {
            if parts.contains_key(LOG) {
                found.segments.insert(offset, parts);
            } else {
                found.orphans.extend(parts.into_values());
            }
        }
        found.name_unread();
        for (name, found_instead) in storage::missing(directory)? {
            if let Some(base_offset) = base_offset(Path::new(&name)) {
                found.unread.push(Unread { base_offset, found: found_instead });
            }
        }
        Ok(found)
    }

    /// Replaces segments by the finished ones that were made from them.
    fn swap_in(
        &mut self,
        files: &mut BTreeMap<i64, SegmentFiles>,
        mut swaps: BTreeMap<i64, SegmentFiles>,
        first_cleaned: Option<i64>,
    ) -> Result<()> {
        // If cleaned files remain, the split was not finished, and its swap files are void.
        if let Some(first) = first_cleaned {
            self.leftovers.extend(swaps.split_off(&first).into_values().flat_map(BTreeMap::into_values));
        }
        let logs: Vec<_> = swaps.iter().filter_map(|(offset, parts)| Some((*offset, parts.get(LOG)?))).collect();
        if let Some((first, _)) = logs.first() {
            let mut end = i64::MIN;
            for (_, path) in &logs {
                end = end.max(Segment::open(*path, SegmentOptions::default())?.next_offset()?);
            }
            let is_replaced =
                |(offset, parts): (&i64, &SegmentFiles)| (*first..end).contains(offset) && parts.contains_key(LOG);
            let replaced: Vec<i64> =
                files.iter().filter(|each| is_replaced(*each)).map(|(offset, _)| *offset).collect();
            for offset in replaced {
                self.leftovers.extend(files.remove(&offset).into_iter().flat_map(BTreeMap::into_values));
            }
        }
        for (offset, parts) in swaps {
            // A file without the ending was renamed already, so only its indexes remain here.
            files.entry(offset).or_default().extend(parts);
        }
        Ok(())
    }

    /// Names the files of lost segments.
    fn name_unread(&mut self) {
        let first = self.segments.keys().next().copied().unwrap_or(i64::MAX);
        // A broker that deletes a segment renames its log first.
        let deleted = |offset: i64| self.leftovers.iter().any(|path| base_offset(path) == Some(offset));
        let lost = self.orphans.iter().filter(|path| base_offset(path).is_some_and(|at| at < first && !deleted(at)));
        let renamed = self.strays.iter().filter(|path| is_renamed_log(&name_of(path)));
        for path in lost.chain(renamed) {
            if let Some(base_offset) = base_offset(path).filter(|offset| !self.segments.contains_key(offset)) {
                self.unread.push(Unread { base_offset, found: format!("{}, which is not read", name_of(path)) });
            }
        }
    }
}

/// Returns the partitions of some topics in a log directory, sorted; `None`: of all.
///
/// A directory with a broker's suffix, such as `-delete`, or with only the name of one, is no partition.
///
/// # Errors
/// An I/O error.
pub fn partitions(log_dir: &Location, topics: Option<&BTreeSet<String>>) -> Result<Vec<(String, i32)>> {
    let mut found = Vec::new();
    for entry in storage::list(log_dir)? {
        let named = topic_partition(&entry.path).filter(|(topic, partition)| {
            // Leading zeros and a sign are no number of a partition.
            topics.is_none_or(|topics| topics.contains(*topic))
                && entry.path.file_name().is_some_and(|name| *name == *format!("{topic}-{partition}"))
        });
        if let Some((topic, partition)) = named
            && is_partition(&entry.path)?
        {
            found.push((topic.to_owned(), partition));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns whether a path is a directory with a `.log` file.
///
/// # Errors
/// An I/O error.
pub fn has_segments(directory: &Location) -> Result<bool> {
    any_name(directory, |name| segment_file(name).is_some_and(|(_, suffix)| suffix == LOG))
}

/// Returns whether a directory is a partition's, which may have lost its segments, and not only named like one.
///
/// # Errors
/// An I/O error.
pub fn is_partition(directory: &Location) -> Result<bool> {
    // A tree has directories of partitions only. To list one may take a request for each segment.
    if directory.is_joined() {
        return Ok(topic_partition(directory).is_some());
    }
    any_name(directory, |name| name == "partition.metadata" || name.ends_with(LOG) || is_renamed_log(name))
}

/// Returns whether a path is a log directory: it holds a partition, or a checkpoint that only a log directory has.
///
/// # Errors
/// The system's error.
pub fn is_log_dir(directory: &Location) -> Result<bool> {
    if any_name(directory, |name| matches!(name, "recovery-point-offset-checkpoint" | "log-start-offset-checkpoint"))? {
        return Ok(true);
    }
    if storage::is_directory(directory)? {
        for entry in storage::list(directory)? {
            if topic_partition(&entry.path).is_some() && is_partition(&entry.path)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn any_name(directory: &Location, is_wanted: impl Fn(&str) -> bool) -> Result<bool> {
    if !storage::is_directory(directory)? {
        return Ok(false);
    }
    Ok(storage::list(directory)?.iter().any(|entry| is_wanted(&entry.name.to_string_lossy())))
}

/// Returns whether a name is that of a log that is not read, such as a compressed one: `00000000000000000042.log.gz`.
fn is_renamed_log(name: &str) -> bool {
    let rest = name.split_once(LOG).filter(|(digits, _)| is_number(digits)).map_or("", |(_, rest)| rest);
    rest.starts_with(['.', '~', '_', '-']) && !LEFTOVERS.iter().any(|ending| name.ends_with(ending))
}

/// Returns the base offset and the suffix of a segment's file. Leading zeros are not required, as for a broker.
fn segment_file(name: &str) -> Option<(i64, &'static str)> {
    let suffix = SUFFIXES.into_iter().find(|suffix| name.strip_suffix(suffix).is_some_and(is_number))?;
    base_offset(Path::new(name)).map(|offset| (offset, suffix))
}

/// Returns whether a text is 1 to 20 digits, of any script: the locale of the broker's JVM chooses it.
fn is_number(text: &str) -> bool {
    (1..=20).contains(&text.chars().count()) && text.chars().all(char::is_numeric)
}

fn split_leftover(name: &str) -> (&str, Option<&'static str>) {
    let split = |ending| name.strip_suffix(ending).map(|stem| (stem, Some(ending)));
    let replaced = || name.split_once(DAMAGED).map(|(stem, _)| (stem, Some(DAMAGED)));
    LEFTOVERS.into_iter().find_map(split).or_else(replaced).unwrap_or((name, None))
}

fn is_text_file(name: &str) -> bool {
    TEXT_FILES.contains(&name.strip_suffix(".tmp").unwrap_or(name))
}

/// Returns whether a name is that of a snapshot of `KRaft`'s metadata, also of one that is written or deleted.
fn is_metadata_snapshot(name: &str) -> bool {
    let digits = |text: &str, len: usize| text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
    let Some((stem, ending)) = name.split_once(".checkpoint") else { return false };
    let fields: Vec<&str> = stem.split('-').collect();
    match (fields.as_slice(), ending) {
        ([offset, epoch], "" | ".deleted") => digits(offset, 20) && digits(epoch, 10),
        ([offset, epoch, part], ".part") => {
            digits(offset, 20) && digits(epoch, 10) && !part.is_empty() && digits(part, part.len())
        }
        _ => false,
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        assert_eq!(segment_file("00000000000000000042.timeindex"), Some((42, ".timeindex")));
        assert_eq!(segment_file("\u{660}\u{661}.log"), Some((1, ".log")));
        for none in ["00000000000000000042", ".log", "-1.log", "99999999999999999999.log", "1.txt", "1.log.gz"] {
            assert_eq!(segment_file(none), None, "{none}");
        }
        assert!(is_renamed_log("00000000000000000042.log.gz") && is_renamed_log("42.log~"));
        assert!(!is_renamed_log("42.log") && !is_renamed_log("42.log.deleted") && !is_renamed_log("a.log.gz"));
        for name in ["00000000000000000003-0000000001.checkpoint", "00000000000000000003-0000000001-77.checkpoint.part"]
        {
            assert!(is_metadata_snapshot(name), "{name}");
        }
        assert!(!is_metadata_snapshot("bootstrap.checkpoint") && !is_metadata_snapshot("3-1.checkpoint"));
    }
}
