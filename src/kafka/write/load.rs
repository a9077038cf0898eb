//! Opening a log: what a crash or an interrupted compaction left is removed, and damaged segments are recovered.
//!
//! Source: `LogLoader#load`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::leader_epochs::{self, LeaderEpochs};
use super::log::{
    Appended, EXPIRY_INTERVAL_MS, LogOptions, PartitionLog, Task, first_base, first_control, new_cursor,
    rebuild_producers,
};
use super::partition_metadata::{self, PartitionMetadata};
use super::producers::{Changes, Producers, Rules, remove};
use super::refusal::Refusal;
use super::segment::WritableSegment;
use super::topic_config::TopicConfig;
use super::validator::Origin;
use crate::error::{Error, Result};
use crate::io::disk;
use crate::kafka::format::names::base_offset;
use crate::kafka::index::transaction_index;

const DELETED: &str = ".deleted";
const SNAPSHOT: &str = ".snapshot";
const CLEANED: &str = ".cleaned";
const SWAP: &str = ".swap";
/// Files that are next to a log.
const INDEXES: [&str; 3] = [".index", ".timeindex", ".txnindex"];

/// The regular files of a directory, by name.
fn files(directory: &Path) -> Result<Vec<(String, PathBuf)>> {
    let fail = |e| Error::io(directory, e);
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if entry.file_type().map_err(fail)?.is_file()
            && let Ok(name) = entry.file_name().into_string()
        {
            files.push((name, entry.path()));
        }
    }
    files.sort();
    Ok(files)
}

fn with_suffix<'a>(files: &'a [(String, PathBuf)], suffix: &'a str) -> impl Iterator<Item = &'a PathBuf> {
    files.iter().filter(move |(name, _)| name.ends_with(suffix)).map(|(_, path)| path)
}

/// Deletes what was to be deleted, and applies finished compactions. Source: `#removeTempFilesAndCollectSwapFiles`.
pub(super) fn remove_temporary_files(directory: &Path, config: &TopicConfig, now: i64) -> Result<()> {
    let found = files(directory)?;
    with_suffix(&found, DELETED).try_for_each(|path| remove(path))?;
    let is_ours =
        |name: &str| name.ends_with(SNAPSHOT) || [leader_epochs::FILE, partition_metadata::FILE].contains(&name);
    let replacing = found.iter().filter(|(name, _)| disk::replaced_name(name).is_some_and(is_ours));
    replacing.map(|(_, path)| path).try_for_each(|path| remove(path))?;
    let first_cleaned = with_suffix(&found, CLEANED).filter_map(|path| base_offset(path)).min();
    let is_unfinished = |path: &Path| first_cleaned.is_some_and(|first| base_offset(path) >= Some(first));
    let (unfinished, swaps): (Vec<&PathBuf>, Vec<&PathBuf>) =
        with_suffix(&found, SWAP).partition(|path| is_unfinished(path));
    unfinished.into_iter().chain(with_suffix(&found, CLEANED)).try_for_each(|path| remove(path))?;
    // Segments that the swapped ones replace.
    let (mut first, mut end) = (i64::MAX, i64::MIN);
    for path in swaps.iter().filter(|path| path.to_string_lossy().ends_with(".log.swap")) {
        let Some(base) = base_offset(path) else { continue };
        // COMPAT(kafka `LogLoader#load`): finding the end of a segment without `.index.swap` creates one of zeros, which is used.
        let end_of_swap = WritableSegment::open_with(directory, base, SWAP, config, now)?.next_offset()?;
        (first, end) = (first.min(base), end.max(end_of_swap));
    }
    for (_, path) in files(directory)?.iter().filter(|(name, _)| !name.ends_with(SWAP)) {
        if base_offset(path).is_some_and(|base| first <= base && base < end) {
            remove(path)?;
        }
    }
    for path in with_suffix(&files(directory)?, SWAP) {
        fs::rename(path, path.with_extension("")).map_err(|e| Error::io(path, e))?;
    }
    Ok(())
}

impl PartitionLog {
    /// Opens the log of a directory, which exists, or begins one.
    pub(super) fn open(directory: &Path, options: LogOptions, now: i64) -> Result<Self> {
        let metadata = PartitionMetadata::open(directory, options.topic_id.clone())?;
        let epochs = LeaderEpochs::open(directory)?;
        let producers = Producers::new(directory, options.producer_id_expiration_ms, options.compat)?;
        let log_start = options.log_start_offset;
        let mut log = Self {
            directory: directory.to_owned(),
            segments: BTreeMap::new(),
            epochs,
            producers,
            metadata,
            log_start,
            end: log_start,
            recovery_point: options.recovery_point,
            high_watermark: log_start,
            first_unstable: None,
            tasks: Vec::new(),
            next_expiry: now.saturating_add(EXPIRY_INTERVAL_MS),
            last_flush: now,
            unsynced_from: 0,
            truncations: 0,
            has_new_names: true,
            appended: Appended::default(),
            cursor: new_cursor(),
            options,
        };
        if !log.options.is_clean && !log.options.truncates {
            log.check_losses(now)?;
        }
        remove_temporary_files(directory, &log.options.config, now)?;
        log.load_segments(now)?;
        log.recover(now)?;
        log.schedule(now, Task::WriteMetadata);
        Ok(log)
    }

    /// Checks, before anything is changed, that the recovery cuts no valid batch: the broker cuts the log at the first damage, and
    /// deletes all later segments.
    fn check_losses(&self, now: i64) -> Result<()> {
        let found = files(&self.directory)?;
        let mut bases: Vec<i64> = with_suffix(&found, ".log").filter_map(|path| base_offset(path)).collect();
        bases.sort_unstable();
        let from = bases.iter().rfind(|base| **base <= self.recovery_point).copied().unwrap_or(i64::MIN);
        let mut damage = None;
        for base in bases.into_iter().filter(|base| *base >= from) {
            let segment = WritableSegment::open(&self.directory, base, &self.options.config, now)?;
            let later = match (&damage, segment.find_damage()?) {
                (Some(_), _) if segment.size > 0 => Some((segment.path(".log"), 0)),
                (_, Some((at, later))) => {
                    let path = segment.path(".log");
                    damage = damage.or_else(|| Some((path.clone(), at)));
                    later.map(|later| (path, later))
                }
                (_, None) => None,
            };
            if let (Some((path, at)), Some((valid, later))) = (&damage, later) {
                let found = format!("other bytes, and valid batches at byte {later} of {}", valid.display());
                return Err(Error::corrupt(path, *at, "a batch, as truncate is false", found));
            }
        }
        Ok(())
    }

    /// Source: `#loadSegmentFiles`.
    fn load_segments(&mut self, now: i64) -> Result<()> {
        for (name, path) in files(&self.directory)? {
            if let Some(suffix) = INDEXES.iter().find(|suffix| name.ends_with(*suffix)) {
                let log = name.strip_suffix(suffix).map(|stem| self.directory.join(format!("{stem}.log")));
                if log.is_some_and(|log| !log.exists()) {
                    remove(&path)?;
                }
            }
            let is_log = path.extension().is_some_and(|suffix| suffix == "log");
            let Some(base) = base_offset(&path).filter(|_| is_log) else { continue };
            let mut segment = WritableSegment::open(&self.directory, base, &self.options.config, now)?;
            let [has_index, has_times, has_transactions] = INDEXES.map(|suffix| segment.path(suffix).exists());
            let is_damaged = has_transactions
                && transaction_index::read(&segment.path(".txnindex").into())?
                    .0
                    .iter()
                    .any(|entry| entry.last_offset < base);
            if has_index && !has_times {
                segment.empty_time_index()?;
            }
            if !has_index || is_damaged {
                let producers = self.producers_before(base, now)?;
                self.recover_segment(&mut segment, producers)?;
            }
            self.segments.insert(base, segment);
        }
        Ok(())
    }

    /// The producers' state before a segment, with which it is recovered.
    fn producers_before(&mut self, base: i64, now: i64) -> Result<Producers> {
        let Self { segments, cursor, options, directory, .. } = self;
        let mut producers = Producers::new(directory, options.producer_id_expiration_ms, options.compat)?;
        rebuild_producers(&mut producers, segments, options.log_start_offset, base, false, now, cursor)?;
        Ok(producers)
    }

    /// Rebuilds what belongs to a segment; true if bytes were cut. Source: `#recoverSegment`.
    fn recover_segment(&mut self, segment: &mut WritableSegment, mut producers: Producers) -> Result<bool> {
        let Self { cursor, epochs, .. } = self;
        let rules = Rules { origin: Origin::Replication, markers_bump_epochs: false };
        let was_cut = segment.recover(|segment, header, batch| {
            if header.is_legacy() {
                return Ok(());
            }
            let epoch = header.leader_epoch;
            if epoch >= 0 && epochs.latest().is_none_or(|latest| epoch > latest) {
                epochs.assign(epoch, header.base_offset)?;
            }
            if header.producer_id >= 0 {
                let (mut changes, mut aborted) = (Changes::default(), Vec::new());
                let control = first_control(cursor, header, batch)?;
                producers.check(header, control, rules, &mut changes)?;
                producers.apply(changes, &mut aborted);
                segment.append_aborted(&aborted)?;
            }
            producers.set_end_offset(header.last_offset + 1);
            Ok(())
        })?;
        producers.take_snapshot(true)?;
        Ok(was_cut)
    }

    /// Source: `#recoverLog`.
    fn recover(&mut self, now: i64) -> Result<()> {
        let (is_clean, log_start) = (self.options.is_clean, self.log_start);
        if !is_clean {
            let from = first_base(&self.segments, self.recovery_point);
            let unflushed: Vec<i64> = self.segments.range(from..).map(|(base, _)| *base).collect();
            for (number, base) in unflushed.iter().enumerate() {
                let producers = self.producers_before(*base, now)?;
                let Some(mut segment) = self.segments.remove(base) else { continue };
                segment.settle()?;
                let was_cut = match self.recover_segment(&mut segment, producers) {
                    Err(error) if Refusal::INVALID_OFFSET.is(&error) => segment.truncate_to(*base, now)?,
                    recovered => recovered?,
                };
                self.segments.insert(*base, segment);
                if was_cut {
                    self.remove_segments(unflushed.get(number + 1..).unwrap_or_default(), now)?;
                    break;
                }
            }
        }
        let mut end = match self.segments.values_mut().next_back() {
            Some(last) => Some(last.next_offset()?),
            None => None,
        };
        if end.is_some_and(|end| end < log_start) {
            let mut marked = Vec::new();
            for segment in std::mem::take(&mut self.segments).into_values() {
                marked.extend(segment.mark_deleted()?);
            }
            let due = now.saturating_add(self.options.config.file_delete_delay_ms);
            self.schedule(due, Task::Delete(marked));
            self.epochs.clear()?;
            self.producers.start_at(log_start)?;
            end = None;
        }
        if self.segments.is_empty() {
            let segment = WritableSegment::open(&self.directory, log_start, &self.options.config, now)?;
            self.segments.insert(log_start, segment);
        }
        let last = self.active()?;
        self.end = match end {
            Some(end) => end,
            None => last.next_offset()?,
        };
        self.recovery_point = if is_clean && end.is_some() { self.end } else { self.recovery_point.min(self.end) };
        self.active()?.grow_indexes()?;
        let was_cut = self.epochs.truncate_end(self.end);
        if self.epochs.truncate_start(log_start) || was_cut {
            self.schedule(now, Task::WriteEpochs);
        }
        let bases: Vec<i64> = self.segments.keys().copied().collect();
        let log_start = log_start.max(bases.first().copied().unwrap_or(log_start));
        self.log_start = log_start;
        self.producers.remove_stray(&bases)?;
        self.rebuild_producers(self.end, is_clean, now)?;
        self.high_watermark = log_start;
        self.set_log_start(log_start)?;
        self.unsynced_from = self.end;
        self.note_unstable()
    }
}
