//! A partition's log that is written. Source: `UnifiedLog`, `LocalLog`.
//!
//! ```text
//! append: scan -> offsets (validator) -> epochs -> size -> roll -> producers -> bytes and index entries -> transactions
//! ```
//!
//! If a step refuses, the effects of earlier steps stay, as in the broker.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::given_batches::GivenBatches;
use super::leader_epochs::LeaderEpochs;
use super::new_batch::{Facts, headers};
use super::partition_metadata::PartitionMetadata;
use super::producers::{Changes, KnownBatch, Producers, Rules, remove};
use super::refusal::Refusal;
use super::segment::{RollParameters, SUFFIXES, WritableSegment, file_path};
use super::topic_config::TopicConfig;
use super::validator::{AppendOptions, Origin, Validated, Validator};
use crate::error::{Error, Result};
use crate::io::disk;
use crate::kafka::compat::Compat;
use crate::kafka::format::batch_cursor::BatchCursor;
use crate::kafka::format::codec::Codec;
use crate::kafka::format::control_record::ControlRecord;
use crate::kafka::format::header::{Header, NO_TIMESTAMP};
use crate::kafka::format::record::{Wants, field};
use crate::kafka::read::walk::Reads;

/// `producer.id.expiration.check.interval.ms`.
pub(super) const EXPIRY_INTERVAL_MS: i64 = 600_000;
/// `RecordBatch.NO_PARTITION_LEADER_EPOCH`.
const NO_EPOCH: i32 = -1;
/// The longest batch, when its records are read.
pub(super) const MOST_BATCH_BYTES: usize = i32::MAX as usize;

/// Options for opening a log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The settings of the topic.
    pub config: TopicConfig,
    /// The release whose rules count.
    pub compat: Compat,
    /// The last writer closed the log.
    pub is_clean: bool,
    /// A recovery may cut valid batches after damage, as a broker's does.
    pub truncates: bool,
    /// Everything before it is on the disk.
    pub recovery_point: i64,
    /// Offset of the first record.
    pub log_start_offset: i64,
    /// A producer that has not written for this time is forgotten.
    pub producer_id_expiration_ms: i64,
    /// The topic's id; `None`: that of its file, if there is one.
    pub topic_id: Option<String>,
}

/// The result of an append: -1 where nothing was appended, or the time is the producer's. Source: `LogAppendInfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendResult {
    /// Offset of the first record.
    pub first_offset: i64,
    /// Offset of the last record.
    pub last_offset: i64,
    /// The largest timestamp of the records.
    pub max_timestamp: i64,
    /// The time of the append, where records get it.
    pub log_append_time: i64,
}

/// Work that the broker leaves to other threads.
#[derive(Debug)]
pub(super) enum Task {
    /// After a roll: sync the snapshot, flush the segments before this offset.
    FlushRolled {
        snapshot: Option<PathBuf>,
        offset: i64,
    },
    Delete(Vec<PathBuf>),
    WriteEpochs,
    WriteMetadata,
}

/// A log.
#[derive(Debug)]
pub(super) struct PartitionLog {
    pub(super) directory: PathBuf,
    pub(super) options: LogOptions,
    pub(super) segments: BTreeMap<i64, WritableSegment>,
    pub(super) epochs: LeaderEpochs,
    pub(super) producers: Producers,
    pub(super) metadata: PartitionMetadata,
    pub(super) log_start: i64,
    pub(super) end: i64,
    pub(super) recovery_point: i64,
    pub(super) high_watermark: i64,
    pub(super) first_unstable: Option<i64>,
    /// When each task is due, in ms; in their order.
    pub(super) tasks: Vec<(i64, Task)>,
    pub(super) next_expiry: i64,
    pub(super) last_flush: i64,
    /// Segments that a sync flush still has to bring to the disk begin here.
    pub(super) unsynced_from: i64,
    /// The number of times that the end moved back.
    pub(super) truncations: u64,
    /// Files were created, renamed or replaced since the directory was last brought to the disk.
    pub(super) has_new_names: bool,
    /// Records and bytes that were appended.
    pub(super) appended: Appended,
    pub(super) cursor: BatchCursor,
}

/// Numbers of records and bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Appended {
    pub(super) records: u64,
    pub(super) bytes: u64,
}

/// The result of scanning the batches of an append.
struct Scan {
    first_offset: Option<i64>,
    last_offset: i64,
    last_offset_of_first: i64,
    max_timestamp: i64,
    valid_bytes: usize,
    codec: Codec,
}

pub(super) fn new_cursor() -> BatchCursor {
    BatchCursor::new(MOST_BATCH_BYTES)
}

/// Returns the first record of a control batch with its timestamp; `None` for other batches and for an empty one.
pub(super) fn first_control(
    cursor: &mut BatchCursor,
    header: &Header,
    batch: &[u8],
) -> Result<Option<(ControlRecord, i64)>> {
    let mut first = None;
    if header.is_control() {
        let read = cursor.each(header, batch, Wants::All, |span, bytes| {
            let part = |place| field(place, bytes).unwrap_or_default();
            first = Some((ControlRecord::decode(part(span.key), part(span.value)), span.timestamp));
            false
        });
        read.map_err(|flaw| Refusal::CORRUPT_RECORD.because(format_args!("a control batch: {}", flaw.found)))?;
    }
    Ok(first)
}

impl PartitionLog {
    /// The last segment.
    ///
    /// # Errors
    /// None: a log always has a segment.
    pub(super) fn active(&mut self) -> Result<&mut WritableSegment> {
        let none = || Error::InvalidArgument(format!("{}: no segment", self.directory.display()));
        let (_, active) = self.segments.iter_mut().next_back().ok_or_else(none)?;
        Ok(active)
    }

    pub(super) fn schedule(&mut self, due: i64, task: Task) {
        self.tasks.push((due, task));
    }

    /// Source: `UnifiedLog#lastStableOffset`.
    pub(super) fn last_stable_offset(&self) -> i64 {
        self.first_unstable.filter(|offset| *offset < self.high_watermark).unwrap_or(self.high_watermark)
    }

    /// Appends batches. Source: `UnifiedLog#append`.
    pub(super) fn append(&mut self, given: &[u8], options: AppendOptions, now: i64) -> Result<AppendResult> {
        self.metadata.write()?;
        let scan = self.scan(given, options)?;
        let mut result = AppendResult {
            first_offset: scan.first_offset.unwrap_or(-1),
            last_offset: scan.last_offset,
            max_timestamp: scan.max_timestamp,
            log_append_time: -1,
        };
        if scan.valid_bytes == 0 {
            return Ok(result);
        }
        let given = given.get(..scan.valid_bytes).unwrap_or(given);
        let validated;
        let bytes = if options.origin == Origin::Replication {
            if scan.first_offset.unwrap_or(scan.last_offset_of_first) < self.end {
                let (found, end) = (scan.first_offset.unwrap_or(scan.last_offset_of_first), self.end);
                let text =
                    format_args!("{}: offset {found}, expected {end} or more", self.directory.display()).to_string();
                return Err(Refusal::UNEXPECTED_APPEND_OFFSET.because(text));
            }
            given
        } else {
            validated = self.validate(given, scan.codec, options, now)?;
            result.first_offset = self.end;
            result.last_offset = validated.next_offset - 1;
            result.max_timestamp = validated.max_timestamp;
            if self.options.config.log_append_time {
                result.log_append_time = now;
            }
            &validated.bytes
        };
        self.store(bytes, &scan, result, options, now)
    }

    /// Appends a batch that [`NewBatch`] finished, as a producer would send it: without reading it again if the leader changes only its
    /// offset and epoch.
    pub(super) fn append_new(
        &mut self,
        batch: &mut [u8],
        facts: &Facts,
        codec: Codec,
        options: AppendOptions,
        now: i64,
    ) -> Result<AppendResult> {
        let validator = Validator::new(&self.options.config, &self.directory, options, self.end, codec, now);
        if !validator.takes_as_is(facts) || batch.len() as u64 > self.options.config.max_message_bytes {
            return self.append(batch, options, now);
        }
        self.metadata.write()?;
        Header::write_place(batch, self.end, options.leader_epoch);
        let last_offset = i64::from(facts.count) - 1;
        let scan = Scan {
            first_offset: Some(0),
            last_offset,
            last_offset_of_first: last_offset,
            max_timestamp: facts.max_timestamp(),
            valid_bytes: batch.len(),
            codec,
        };
        let result = AppendResult {
            first_offset: self.end,
            last_offset: self.end + last_offset,
            max_timestamp: facts.max_timestamp(),
            log_append_time: -1,
        };
        self.store(batch, &scan, result, options, now)
    }

    /// Appends batches that have their offsets.
    fn store(
        &mut self,
        bytes: &[u8],
        scan: &Scan,
        mut result: AppendResult,
        options: AppendOptions,
        now: i64,
    ) -> Result<AppendResult> {
        for (header, _) in headers(bytes) {
            if !header.is_legacy() {
                self.epochs.assign(header.leader_epoch, header.base_offset)?;
            } else if !self.epochs.is_empty() {
                self.epochs.clear()?;
            }
        }
        let size = bytes.len() as u64;
        let most = self.options.config.segment_bytes;
        if size > most {
            return Err(Refusal::RECORD_BATCH_TOO_LARGE.because(format_args!("{size} bytes, segments hold {most}")));
        }
        self.maybe_roll(size, scan, &result, now)?;
        let mut changes = Changes::default();
        if let Some(known) = self.check_producers(bytes, options, &mut changes)? {
            result.first_offset = known.first_offset();
            result.last_offset = known.last_offset;
            result.log_append_time = known.timestamp;
            return Ok(result);
        }
        let last_offset = result.last_offset;
        self.active()?.append(last_offset, bytes)?;
        let counts =
            headers(bytes).map(|(header, _)| header.count.and_then(|count| u64::try_from(count).ok()).unwrap_or(1));
        self.appended.records += counts.sum::<u64>();
        self.appended.bytes += size;
        self.end = last_offset + 1;
        self.follow_end()?;
        let mut aborted = Vec::new();
        self.producers.apply(changes, &mut aborted);
        self.active()?.append_aborted(&aborted)?;
        self.producers.set_end_offset(last_offset + 1);
        self.note_unstable()?;
        if self.end - self.recovery_point >= self.options.config.flush_messages {
            self.flush(self.end, false, now)?;
        }
        Ok(result)
    }

    /// Source: `#analyzeAndValidateRecords`.
    fn scan(&self, given: &[u8], options: AppendOptions) -> Result<Scan> {
        let mut scan = Scan {
            first_offset: None,
            last_offset: -1,
            last_offset_of_first: -1,
            max_timestamp: NO_TIMESTAMP,
            valid_bytes: 0,
            codec: Codec::None,
        };
        let is_follower = options.origin == Origin::Replication;
        let (mut skips, mut in_order, mut is_first) = (false, true, true);
        let log = self.directory.as_path();
        let out_of_order = || {
            Err(Refusal::OFFSETS_OUT_OF_ORDER.because(format_args!("{}: offsets that do not ascend", log.display())))
        };
        for batch in GivenBatches::new(given, log) {
            let (header, bytes) = batch?;
            if !header.is_legacy() && options.origin == Origin::Client && header.base_offset != 0 {
                let text =
                    format_args!("{}: base offset {}, expected 0", log.display(), header.base_offset).to_string();
                return Err(Refusal::INVALID_RECORD.because(text));
            }
            skips |= is_follower && header.leader_epoch != NO_EPOCH && header.leader_epoch > options.leader_epoch;
            if skips {
                continue;
            }
            if is_first {
                is_first = false;
                scan.first_offset = (!header.is_legacy()).then_some(header.base_offset);
                scan.last_offset_of_first = header.last_offset;
            }
            in_order &= scan.last_offset < header.last_offset;
            scan.last_offset = header.last_offset;
            let most = self.options.config.max_message_bytes;
            if !is_follower && u64::from(header.size) > most {
                let text =
                    format_args!("{}: a batch of {} bytes, at most {most}", log.display(), header.size).to_string();
                return Err(Refusal::RECORD_TOO_LARGE.because(text));
            }
            if !options.has_checksums_compared
                && let Err(flaw) = header.check_crc(bytes)
            {
                let text =
                    format_args!("{}: expected {}, found {}", log.display(), flaw.expected, flaw.found).to_string();
                return Err(Refusal::CORRUPT_RECORD.because(text));
            }
            scan.max_timestamp = scan.max_timestamp.max(header.max_timestamp);
            scan.valid_bytes += bytes.len();
            let codec = header.codec().map_err(|flaw| Refusal::ILLEGAL_ARGUMENT.because(flaw.found))?;
            if codec != Codec::None {
                scan.codec = codec;
            }
            if self.options.compat.is_4() && is_follower && !in_order {
                return out_of_order();
            }
        }
        if is_follower && !in_order {
            return out_of_order();
        }
        Ok(scan)
    }

    fn validate(&mut self, given: &[u8], source: Codec, options: AppendOptions, now: i64) -> Result<Validated> {
        let config = &self.options.config;
        let validator = Validator::new(config, &self.directory, options, self.end, source, now);
        let validated = validator.validate(given, &mut self.cursor)?;
        let most = config.max_message_bytes;
        let longest = headers(&validated.bytes).map(|(header, _)| u64::from(header.size)).max();
        if validated.was_encoded && longest > Some(most) {
            let text = format!("a re-encoded batch of {longest:?} bytes, at most {most}");
            return Err(Refusal::RECORD_TOO_LARGE.because(text));
        }
        Ok(validated)
    }

    /// Source: `#maybeRoll`.
    fn maybe_roll(&mut self, bytes: u64, scan: &Scan, result: &AppendResult, now: i64) -> Result<()> {
        let config = self.options.config.clone();
        let AppendResult { max_timestamp, last_offset, .. } = *result;
        let append = RollParameters { bytes, max_timestamp, last_offset, now };
        if self.active()?.should_roll(&config, append)? {
            // The first offset of old messages is not known.
            let is_known = scan.first_offset.is_some() || result.first_offset >= 0;
            let first = if is_known { result.first_offset } else { last_offset - i64::from(i32::MAX) };
            self.roll(first, now)?;
        }
        Ok(())
    }

    /// Begins a segment. Source: `UnifiedLog#roll`, `LocalLog#roll`.
    pub(super) fn roll(&mut self, first_offset: i64, now: i64) -> Result<()> {
        let base = first_offset.max(self.end);
        let active = self.active()?;
        let (active_base, is_empty) = (active.base_offset, active.size == 0);
        if self.segments.contains_key(&base) {
            if active_base != base || !is_empty {
                let text = format_args!("{}: a segment of offset {base} exists", self.directory.display());
                return Err(Refusal::KAFKA.because(text));
            }
            // COMPAT(kafka LocalLog#roll): the index of an empty segment can be full if it holds one entry or none.
            self.replace_active(base, now)?;
        } else {
            if base < active_base {
                let text = format!("offset {base}, which is before the last segment, {active_base}");
                return Err(Refusal::KAFKA.because(text));
            }
            for suffix in SUFFIXES {
                remove(&file_path(&self.directory, base, suffix))?;
            }
            self.active()?.become_inactive()?;
            let segment = WritableSegment::open(&self.directory, base, &self.options.config, now)?;
            self.segments.insert(base, segment);
        }
        self.has_new_names = true;
        self.producers.set_end_offset(base);
        let snapshot = self.producers.take_snapshot(false)?;
        self.follow_end()?;
        self.schedule(now, Task::FlushRolled { snapshot, offset: base });
        Ok(())
    }

    /// Replaces the last segment by an empty one. Source: `LocalLog#createAndDeleteSegment`.
    fn replace_active(&mut self, base: i64, now: i64) -> Result<()> {
        let old = self.active()?.base_offset;
        let marked = self.active()?.mark_deleted()?;
        self.segments.remove(&old);
        let segment = WritableSegment::open(&self.directory, base, &self.options.config, now)?;
        self.segments.insert(base, segment);
        self.has_new_names = true;
        self.delete_later(marked, now);
        Ok(())
    }

    fn delete_later(&mut self, marked: Vec<PathBuf>, now: i64) {
        if !marked.is_empty() {
            self.schedule(now.saturating_add(self.options.config.file_delete_delay_ms), Task::Delete(marked));
        }
    }

    /// Source: `LocalLog#removeAndDeleteSegments`, `UnifiedLog#deleteProducerSnapshots`.
    pub(super) fn remove_segments(&mut self, bases: &[i64], now: i64) -> Result<()> {
        let mut marked = Vec::new();
        self.has_new_names |= !bases.is_empty();
        for base in bases {
            if let Some(segment) = self.segments.remove(base) {
                marked.extend(segment.mark_deleted()?);
            }
            marked.extend(self.producers.mark_deleted(*base)?);
        }
        self.delete_later(marked, now);
        Ok(())
    }

    /// Source: `#analyzeAndValidateProducerState`.
    fn check_producers(
        &mut self,
        bytes: &[u8],
        options: AppendOptions,
        changes: &mut Changes,
    ) -> Result<Option<KnownBatch>> {
        let markers_bump_epochs = self.options.compat.is_4() && options.markers_bump_epochs;
        let rules = Rules { origin: options.origin, markers_bump_epochs };
        for (header, batch) in headers(bytes).filter(|(header, _)| header.producer_id >= 0) {
            if options.origin == Origin::Client
                && let Some(known) = self.producers.duplicate(&header)
            {
                return Ok(Some(known));
            }
            let control = first_control(&mut self.cursor, &header, batch)?;
            self.producers.check(&header, control, rules, changes)?;
        }
        Ok(None)
    }

    /// The high watermark follows an end that it had reached. Source: `#updateHighWatermarkWithLogEndOffset`.
    fn follow_end(&mut self) -> Result<()> {
        if self.high_watermark >= self.end { self.set_high_watermark(self.end) } else { Ok(()) }
    }

    /// Source: `#updateHighWatermark`.
    pub(super) fn set_high_watermark(&mut self, offset: i64) -> Result<()> {
        self.high_watermark = offset.max(self.log_start).min(self.end);
        self.producers.set_high_watermark(self.high_watermark);
        self.note_unstable()
    }

    /// Source: `UnifiedLog#maybeIncrementFirstUnstableOffset`.
    pub(super) fn note_unstable(&mut self) -> Result<()> {
        self.first_unstable = match self.producers.first_unstable_offset() {
            Some(offset) if offset < self.log_start => Some(self.start_of_batch(self.log_start)?),
            first => first,
        };
        Ok(())
    }

    /// COMPAT(kafka `LogSegment#read`): in later releases, a read begins at the first offset of the batch.
    fn start_of_batch(&mut self, offset: i64) -> Result<i64> {
        let from = first_base(&self.segments, offset);
        let found = match self.segments.get_mut(&from) {
            Some(segment) if self.options.compat.is_4() => segment.translate(offset)?,
            _ => None,
        };
        Ok(found.map_or(offset, |header| header.base_offset))
    }

    /// Flushes the segments up to an offset. Source: `#flush`, `LocalLog#flush`.
    pub(super) fn flush(&mut self, offset: i64, including_active: bool, now: i64) -> Result<()> {
        let end = if including_active { offset + 1 } else { offset };
        if end <= self.recovery_point {
            return Ok(());
        }
        let from =
            self.segments.range(..=self.recovery_point).next_back().map_or(self.recovery_point, |(base, _)| *base);
        let mut is_new = false;
        if from < end {
            for (base, segment) in self.segments.range_mut(from..end) {
                segment.flush()?;
                is_new |= *base >= self.recovery_point;
            }
        }
        if is_new {
            sync_directory(&self.directory)?;
        }
        if offset > self.recovery_point {
            (self.recovery_point, self.last_flush) = (offset, now);
        }
        Ok(())
    }

    /// The logs with bytes that no fsync brought to the disk, and whether the directory needs one: the caller flushes both.
    pub(super) fn unsynced(&mut self) -> (Vec<(PathBuf, Arc<File>)>, bool) {
        let from = self.segments.range(..=self.unsynced_from).next_back().map_or(i64::MIN, |(base, _)| *base);
        let files = self.segments.range(from..).map(|(_, segment)| segment.file()).collect();
        (files, std::mem::take(&mut self.has_new_names))
    }

    /// Runs the tasks that are due, in their order.
    pub(super) fn run_due(&mut self, now: i64) -> Result<()> {
        loop {
            let due = self.tasks.iter().enumerate().filter(|(_, (due, _))| *due <= now);
            let Some((number, _)) = due.min_by_key(|(_, (due, _))| *due) else { break };
            match self.tasks.remove(number).1 {
                Task::FlushRolled { snapshot, offset } => {
                    if let Some(path) = snapshot {
                        match File::open(&path) {
                            Ok(file) => file.sync_all().map_err(|e| Error::write_failed(&path, e))?,
                            // A truncation may have removed it.
                            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                            Err(error) => return Err(Error::io(&path, error)),
                        }
                    }
                    self.flush(offset, false, now)?;
                }
                Task::Delete(paths) => paths.iter().try_for_each(|path| remove(path))?,
                Task::WriteEpochs => self.epochs.write()?,
                Task::WriteMetadata => self.metadata.write()?,
            }
        }
        while self.next_expiry <= now {
            self.producers.expire(now);
            self.next_expiry = self.next_expiry.saturating_add(EXPIRY_INTERVAL_MS);
        }
        Ok(())
    }

    /// Moves the start of the log. Source: `#maybeIncrementLogStartOffset`.
    pub(super) fn increment_log_start(&mut self, offset: i64, now: i64) -> Result<()> {
        if offset > self.high_watermark {
            let text = format!("offset {offset}, which is above the high watermark, {}", self.high_watermark);
            return Err(Refusal::OFFSET_OUT_OF_RANGE.because(text));
        }
        if offset > self.log_start {
            self.set_log_start(offset)?;
            if self.epochs.truncate_start(offset) {
                self.schedule(now, Task::WriteEpochs);
            }
            self.producers.set_log_start(offset);
            self.note_unstable()?;
        }
        Ok(())
    }

    pub(super) fn set_log_start(&mut self, offset: i64) -> Result<()> {
        self.log_start = offset;
        self.recovery_point = self.recovery_point.max(offset);
        if self.high_watermark < offset { self.set_high_watermark(offset) } else { Ok(()) }
    }

    /// Deletes old segments, and returns their number. Source: `#deleteOldSegments`.
    pub(super) fn delete_expired(&mut self, now: i64) -> Result<usize> {
        let log_start = self.log_start;
        let mut count = self.delete_while(now, |_, next| Ok(next.is_some_and(|next| next <= log_start)))?;
        let (deletes, bytes, ms) =
            (self.options.config.deletes, self.options.config.retention_bytes, self.options.config.retention_ms);
        if !deletes {
            return Ok(count);
        }
        let size: u64 = self.segments.values().map(|segment| segment.size).sum();
        if let Some(mut surplus) = u64::try_from(bytes).ok().and_then(|most| size.checked_sub(most)) {
            count += self.delete_while(now, |segment, _| {
                let left = surplus.checked_sub(segment.size);
                surplus = left.unwrap_or(surplus);
                Ok(left.is_some())
            })?;
        }
        if ms >= 0 {
            count += self.delete_while(now, |segment, _| Ok(now.saturating_sub(segment.largest_timestamp()?) > ms))?;
        }
        Ok(count)
    }

    fn delete_while(
        &mut self,
        now: i64,
        mut is_old: impl FnMut(&mut WritableSegment, Option<i64>) -> Result<bool>,
    ) -> Result<usize> {
        let nexts: Vec<Option<i64>> = self.segments.keys().skip(1).copied().map(Some).chain([None]).collect();
        let mut old = Vec::new();
        for ((base, segment), next) in self.segments.iter_mut().zip(nexts) {
            let is_replicated = self.high_watermark >= next.unwrap_or(self.end);
            let is_empty_end = next.is_none() && segment.size == 0;
            if !is_replicated || !is_old(segment, next)? || is_empty_end {
                break;
            }
            old.push(*base);
        }
        let count = old.len();
        if count == self.segments.len() {
            self.roll(0, now)?;
            let active = self.active()?.base_offset;
            // The last segment was empty and was replaced.
            old.retain(|base| *base != active);
        }
        if let Some(last) = old.last() {
            let next = self.segments.range(*last + 1..).next().map(|(base, _)| *base);
            self.increment_log_start(next.unwrap_or(self.end), now)?;
            self.remove_segments(&old, now)?;
        }
        Ok(count)
    }

    /// Cuts the log at an offset. Source: `UnifiedLog#truncateTo`, `LocalLog#truncateTo`.
    pub(super) fn truncate_to(&mut self, offset: i64, now: i64) -> Result<()> {
        if offset >= self.end {
            if self.epochs.truncate_end(self.end) {
                self.schedule(now, Task::WriteEpochs);
            }
            return Ok(());
        }
        if self.segments.first_key_value().is_some_and(|(base, _)| *base > offset) {
            return self.start_at(offset, now);
        }
        let later: Vec<i64> = self.segments.range(offset + 1..).map(|(base, _)| *base).collect();
        self.remove_segments(&later, now)?;
        self.active()?.truncate_to(offset, now)?;
        self.set_end(offset);
        if self.epochs.truncate_end(offset) {
            self.schedule(now, Task::WriteEpochs);
        }
        self.log_start = self.log_start.min(offset);
        self.rebuild_producers(offset, false, now)?;
        if self.high_watermark >= self.end {
            self.set_high_watermark(self.end)?;
        }
        Ok(())
    }

    fn set_end(&mut self, offset: i64) {
        self.end = offset;
        self.recovery_point = self.recovery_point.min(offset);
        self.unsynced_from = self.unsynced_from.min(offset);
        self.truncations += 1;
    }

    /// Removes everything, and begins at an offset. Source: `#truncateFullyAndStartAt`.
    pub(super) fn start_at(&mut self, offset: i64, now: i64) -> Result<()> {
        let mut bases: Vec<i64> = self.segments.keys().copied().collect();
        bases.pop();
        let mut marked = Vec::new();
        for base in bases {
            if let Some(segment) = self.segments.remove(&base) {
                marked.extend(segment.mark_deleted()?);
            }
        }
        self.delete_later(marked, now);
        self.replace_active(offset, now)?;
        self.set_end(offset);
        self.epochs.clear()?;
        self.producers.start_at(offset)?;
        self.log_start = offset;
        self.rebuild_producers(offset, false, now)?;
        self.set_high_watermark(offset)
    }

    /// Brings the producers' state to an offset. Source: `#rebuildProducerState`.
    pub(super) fn rebuild_producers(&mut self, end: i64, is_clean: bool, now: i64) -> Result<()> {
        let Self { segments, producers, log_start, cursor, .. } = self;
        rebuild_producers(producers, segments, *log_start, end, is_clean, now, cursor)
    }

    /// Closes the log. Source: `#close`.
    pub(super) fn close(&mut self) -> Result<()> {
        self.metadata.write()?;
        self.producers.take_snapshot(true)?;
        self.segments.values_mut().try_for_each(WritableSegment::close)
    }
}

/// Source: `LogSegments#values`, which begins with the segment that holds the first offset.
pub(super) fn first_base(segments: &BTreeMap<i64, WritableSegment>, offset: i64) -> i64 {
    segments.range(..=offset).next_back().map_or(offset, |(base, _)| *base)
}

/// Source: `UnifiedLog#rebuildProducerState`.
pub(super) fn rebuild_producers(
    producers: &mut Producers,
    segments: &mut BTreeMap<i64, WritableSegment>,
    log_start: i64,
    end: i64,
    is_clean: bool,
    now: i64,
    cursor: &mut BatchCursor,
) -> Result<()> {
    let mut offsets: Vec<i64> = segments.keys().rev().take(2).rev().copied().collect();
    if !producers.has_snapshots() && is_clean {
        for offset in offsets.into_iter().chain([end]) {
            producers.set_end_offset(offset);
            producers.take_snapshot(true)?;
        }
        return Ok(());
    }
    let was_empty = producers.is_empty() && producers.end_offset() >= end;
    producers.reload(log_start, end, now)?;
    if end > producers.end_offset() && !was_empty {
        offsets.push(end);
        let last = first_base(segments, end);
        let from = first_base(segments, producers.end_offset());
        for (base, segment) in segments.range_mut(from..end) {
            let start = producers.end_offset().max(*base).max(log_start);
            producers.set_end_offset(start);
            if offsets.contains(base) {
                producers.take_snapshot(true)?;
            }
            let stop = if *base == last { segment.translate(end)?.map(|header| header.position) } else { None };
            let Some(first) = segment.translate(start)? else { continue };
            let mut changes = Changes::default();
            let rules = Rules { origin: Origin::Replication, markers_bump_epochs: false };
            let path = segment.path(".log");
            let tail = segment.walk(first.position, Reads::Headers, |walk, source, header| {
                if stop.is_some_and(|stop| header.position >= stop) {
                    return Ok(false);
                }
                if !header.is_legacy() && header.producer_id >= 0 {
                    let control = if header.is_control() {
                        let batch = walk.batch(source, header).map_err(|e| Error::io(&path, e))?;
                        first_control(cursor, header, batch)?
                    } else {
                        None
                    };
                    producers.check(header, control, rules, &mut changes)?;
                }
                Ok(true)
            })?;
            segment.check_tail(tail.as_ref())?;
            producers.apply(changes, &mut Vec::new());
        }
    }
    producers.set_end_offset(end);
    producers.take_snapshot(true)?;
    Ok(())
}

/// Writes the names of new files to the disk. A failure is final, as that of a file.
pub(super) fn sync_directory(directory: &Path) -> Result<()> {
    disk::sync_directory(directory).map_err(|error| match error {
        Error::Io { path, source } => Error::write_failed(&path, source),
        other => other,
    })
}
