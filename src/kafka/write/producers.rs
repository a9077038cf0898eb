//! The state of a partition's producers: what they sent last, their transactions, and its snapshots.
//!
//! Source: `ProducerStateManager`, `ProducerStateEntry`, `ProducerAppendInfo`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use super::refusal::Refusal;
use super::validator::Origin;
use crate::error::{Error, Result};
use crate::io::disk;
use crate::kafka::compat::Compat;
use crate::kafka::format::control_record::{Content, ControlRecord, ControlType};
use crate::kafka::format::header::Header;
use crate::kafka::format::names::base_offset;
use crate::kafka::format::producer_snapshot::{self, ProducerEntry};
use crate::kafka::index::transaction_index::AbortedTransaction;

/// Batches of a producer that are remembered, to find those that it sends again.
const BATCHES: usize = 5;
/// The epoch of a producer that is not known, and no epoch of a coordinator.
const NO_EPOCH: i16 = -1;

/// A batch of a producer.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownBatch {
    last_sequence: i32,
    pub(super) last_offset: i64,
    offset_delta: i32,
    pub(super) timestamp: i64,
}

impl KnownBatch {
    fn first_sequence(&self) -> i32 {
        let first = self.last_sequence.wrapping_sub(self.offset_delta);
        // Sequence numbers go on with 0 after the largest.
        if first < 0 { first.wrapping_sub(i32::MIN) } else { first }
    }

    pub(super) fn first_offset(&self) -> i64 {
        self.last_offset - i64::from(self.offset_delta)
    }
}

/// A producer.
#[derive(Clone, Debug)]
struct Producer {
    epoch: i16,
    coordinator_epoch: i32,
    last_timestamp: i64,
    /// First offset of the open transaction.
    open: Option<i64>,
    batches: VecDeque<KnownBatch>,
    /// Counts the producers in the order in which they became known.
    number: u64,
}

impl Producer {
    fn set_epoch(&mut self, epoch: i16) {
        if self.epoch != epoch {
            self.batches.clear();
            self.epoch = epoch;
        }
    }
}

/// A transaction that ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completed {
    producer_id: i64,
    first_offset: i64,
    marker: i64,
    is_abort: bool,
}

/// The checks of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) origin: Origin,
    /// Markers have the epoch after that of their transaction (transactions, version 2).
    pub(super) markers_bump_epochs: bool,
}

/// The changes of an append, before they are applied.
#[derive(Debug, Default)]
pub(super) struct Changes {
    producers: HashMap<i64, Producer>,
    /// Transactions that began: first offset and producer.
    begun: Vec<(i64, i64)>,
    completed: Vec<Completed>,
}

/// Producers and their snapshots.
#[derive(Debug)]
pub(super) struct Producers {
    directory: PathBuf,
    expiration_ms: i64,
    compat: Compat,
    known: HashMap<i64, Producer>,
    /// Bins of the broker's `java.util.HashMap`, in whose order snapshots are written.
    bins: u32,
    next_number: u64,
    /// Open transactions: first offset, producer.
    open: BTreeMap<i64, i64>,
    /// Ended ones at or above the high watermark: first offset, marker.
    unreplicated: BTreeMap<i64, i64>,
    snapshots: BTreeMap<i64, PathBuf>,
    end_offset: i64,
    last_snapshot: i64,
}

/// The hash of a `Long`, as maps use it.
#[expect(clippy::cast_possible_truncation, reason = "the hash of a Long")]
fn hash(producer_id: i64) -> u32 {
    let id = producer_id.cast_unsigned();
    let hash = (id ^ id >> 32) as u32;
    hash ^ hash >> 16
}

fn snapshot_path(directory: &Path, offset: i64) -> PathBuf {
    directory.join(format!("{offset:020}.snapshot"))
}

/// Removes a file, which may be missing.
pub(super) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(path, error)),
        _ => Ok(()),
    }
}

impl Producers {
    /// No producer, with the snapshots of the directory.
    pub(super) fn new(directory: &Path, expiration_ms: i64, compat: Compat) -> Result<Self> {
        let mut producers = Self {
            directory: directory.to_owned(),
            expiration_ms,
            compat,
            known: HashMap::new(),
            bins: 16,
            next_number: 0,
            open: BTreeMap::new(),
            unreplicated: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            end_offset: 0,
            last_snapshot: 0,
        };
        producers.list_snapshots()?;
        Ok(producers)
    }

    fn list_snapshots(&mut self) -> Result<()> {
        self.snapshots.clear();
        for entry in fs::read_dir(&self.directory).map_err(|e| Error::io(&self.directory, e))? {
            let path = entry.map_err(|e| Error::io(&self.directory, e))?.path();
            if path.extension().is_some_and(|suffix| suffix == "snapshot")
                && let Some(offset) = base_offset(&path)
            {
                self.snapshots.insert(offset, path);
            }
        }
        Ok(())
    }

    pub(super) fn end_offset(&self) -> i64 {
        self.end_offset
    }

    pub(super) fn set_end_offset(&mut self, offset: i64) {
        self.end_offset = offset;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(super) fn has_snapshots(&self) -> bool {
        !self.snapshots.is_empty()
    }

    /// First offset of the transactions whose end readers may not see yet. Source: `#firstUnstableOffset`.
    pub(super) fn first_unstable_offset(&self) -> Option<i64> {
        self.open.keys().chain(self.unreplicated.keys()).min().copied()
    }

    /// The producers with an open transaction, in the order in which these began: id, epoch, and epoch of the coordinator.
    pub(super) fn open_transactions(&self) -> Vec<(i64, i16, i32)> {
        let of = |id: &i64| self.known.get(id).map(|producer| (*id, producer.epoch, producer.coordinator_epoch));
        self.open.values().filter_map(of).collect()
    }

    fn insert(&mut self, producer_id: i64, producer: Producer) {
        if let Some(known) = self.known.get_mut(&producer_id) {
            *known = Producer { number: known.number, ..producer };
            return;
        }
        let of_bin = hash(producer_id) & (self.bins - 1);
        let is_full = || self.known.keys().filter(|id| (hash(**id) & (self.bins - 1)) == of_bin).count() >= 8;
        // Source: `HashMap#treeifyBin`, `#putVal`.
        if self.bins < 64 && is_full() {
            self.bins *= 2;
        }
        self.known.insert(producer_id, Producer { number: self.next_number, ..producer });
        self.next_number += 1;
        if self.known.len() > self.bins as usize / 4 * 3 {
            self.bins *= 2;
        }
    }

    /// The remembered batch of a producer with the same sequence numbers. Source: `ProducerStateEntry#findDuplicateBatch`.
    pub(super) fn duplicate(&self, header: &Header) -> Option<KnownBatch> {
        let known = self.known.get(&header.producer_id).filter(|known| known.epoch == header.producer_epoch)?;
        let sequences = (header.base_sequence, header.last_sequence());
        known.batches.iter().find(|batch| (batch.first_sequence(), batch.last_sequence) == sequences).copied()
    }

    /// Checks a batch of a producer, and adds what it changes. `control`: the first control record and its timestamp, of a control
    /// batch that has one. Source: `ProducerAppendInfo#append`.
    ///
    /// # Errors
    /// `Refused`; then a part may be added.
    pub(super) fn check(
        &self,
        header: &Header,
        control: Option<(ControlRecord, i64)>,
        rules: Rules,
        changes: &mut Changes,
    ) -> Result<()> {
        let known = self.known.get(&header.producer_id);
        let was_unknown = known.is_none_or(|known| known.epoch == NO_EPOCH);
        let number = changes.producers.len() as u64;
        let producer = changes.producers.entry(header.producer_id).or_insert_with(|| match known {
            Some(known) => Producer { number, ..known.clone() },
            None => Producer {
                epoch: NO_EPOCH,
                coordinator_epoch: -1,
                last_timestamp: -1,
                open: None,
                batches: VecDeque::new(),
                number,
            },
        });
        let (id, is_checked) = (header.producer_id, rules.origin != Origin::Replication);
        let (epoch, known_epoch) = (header.producer_epoch, producer.epoch);
        if !header.is_control() {
            if is_checked && epoch < known_epoch {
                let text = format_args!("producer {id}: epoch {epoch}, the last one is {known_epoch}").to_string();
                return Err(Refusal::INVALID_PRODUCER_EPOCH.because(text));
            }
            if rules.origin == Origin::Client {
                check_sequence(header, producer, was_unknown)?;
            }
            producer.set_epoch(epoch);
            if producer.batches.len() == BATCHES {
                producer.batches.pop_front();
            }
            producer.batches.push_back(KnownBatch {
                last_sequence: header.last_sequence(),
                last_offset: header.last_offset,
                offset_delta: header.last_offset_delta(),
                timestamp: header.max_timestamp,
            });
            producer.last_timestamp = header.max_timestamp;
            match (producer.open, header.is_transactional()) {
                (Some(first), false) => {
                    let text =
                        format_args!("producer {id}: its transaction from offset {first} on is open").to_string();
                    return Err(Refusal::INVALID_TXN_STATE.because(text));
                }
                (None, true) => {
                    producer.open = Some(header.base_offset);
                    changes.begun.push((header.base_offset, id));
                }
                (Some(_), true) | (None, false) => {}
            }
            return Ok(());
        }
        let Some((record, timestamp)) = control else { return Ok(()) };
        let (is_abort, coordinator_epoch) = match (record.kind, record.content) {
            (ControlType::Abort, Some(Content::Marker { coordinator_epoch })) => (true, coordinator_epoch),
            (ControlType::Commit, Some(Content::Marker { coordinator_epoch })) => (false, coordinator_epoch),
            (kind, _) => {
                return Err(Refusal::ILLEGAL_ARGUMENT.because(format_args!("a marker of type {}", kind.name())));
            }
        };
        let may_repeat = producer.open.is_none() || known_epoch == i16::MAX;
        let is_old = epoch < known_epoch || (rules.markers_bump_epochs && epoch == known_epoch && !may_repeat);
        if is_checked && is_old {
            let text =
                format_args!("producer {id}: a marker of epoch {epoch}, the last one is {known_epoch}").to_string();
            return Err(Refusal::INVALID_PRODUCER_EPOCH.because(text));
        }
        if is_checked && coordinator_epoch < producer.coordinator_epoch {
            let text = format!("epoch {coordinator_epoch}, the last one is {}", producer.coordinator_epoch);
            return Err(Refusal::TRANSACTION_COORDINATOR_FENCED.because(format_args!("producer {id}: {text}")));
        }
        producer.set_epoch(epoch);
        producer.coordinator_epoch = coordinator_epoch;
        producer.last_timestamp = timestamp;
        if let Some(first_offset) = producer.open.take() {
            let marker = header.base_offset;
            changes.completed.push(Completed { producer_id: id, first_offset, marker, is_abort });
        }
        Ok(())
    }

    /// Applies what [`Self::check`] collected; the index entries of aborted transactions go to `aborted`.
    pub(super) fn apply(&mut self, changes: Changes, aborted: &mut Vec<AbortedTransaction>) {
        let mut producers: Vec<(i64, Producer)> = changes.producers.into_iter().collect();
        // COMPAT(kafka UnifiedLog#append): the order of the map in which the broker collects them, of Java or of Scala.
        let is_4 = self.compat.is_4();
        let count = producers.len() + usize::from(!is_4);
        let bins = u32::try_from(count.max(12) * 4 / 3).unwrap_or(1 << 30).next_power_of_two();
        producers.sort_unstable_by_key(|(id, producer)| {
            let order = if is_4 { (0, Reverse(producer.number)) } else { (hash(*id).cast_signed(), Reverse(0)) };
            (hash(*id) & (bins - 1), order)
        });
        for (id, producer) in producers {
            self.insert(id, producer);
        }
        self.open.extend(changes.begun);
        for completed in changes.completed {
            if completed.is_abort {
                aborted.push(self.aborted(&completed));
            }
            self.open.remove(&completed.first_offset);
            self.unreplicated.insert(completed.first_offset, completed.marker);
        }
    }

    /// Source: `#lastStableOffset`.
    fn aborted(&self, completed: &Completed) -> AbortedTransaction {
        let others = self.open.iter().find(|(_, id)| **id != completed.producer_id);
        AbortedTransaction {
            version: 0,
            producer_id: completed.producer_id,
            first_offset: completed.first_offset,
            last_offset: completed.marker,
            last_stable_offset: others.map_or(completed.marker + 1, |(first, _)| *first),
        }
    }

    /// Forgets ended transactions below the high watermark.
    pub(super) fn set_high_watermark(&mut self, offset: i64) {
        self.unreplicated.retain(|_, marker| *marker >= offset);
    }

    /// Forgets producers that have not written for some time. Source: `#removeExpiredProducers`.
    pub(super) fn expire(&mut self, now: i64) {
        let expiration = self.expiration_ms;
        self.known
            .retain(|_, producer| producer.open.is_some() || now.saturating_sub(producer.last_timestamp) < expiration);
    }

    /// Source: `#onLogStartOffsetIncremented`.
    pub(super) fn set_log_start(&mut self, offset: i64) {
        self.set_high_watermark(offset);
        self.end_offset = self.end_offset.max(offset);
        self.last_snapshot = self.snapshots.keys().next_back().copied().unwrap_or(offset);
    }

    /// Forgets all producers and deletes all snapshots. Source: `#truncateFullyAndStartAt`.
    pub(super) fn start_at(&mut self, offset: i64) -> Result<()> {
        self.clear();
        for path in std::mem::take(&mut self.snapshots).into_values() {
            remove(&path)?;
        }
        (self.last_snapshot, self.end_offset) = (0, offset);
        Ok(())
    }

    fn clear(&mut self) {
        self.known.clear();
        self.open.clear();
        self.unreplicated.clear();
    }

    /// Brings the state to an end offset as far as a snapshot can; the caller replays the batches after it. Source:
    /// `#truncateAndReload`.
    pub(super) fn reload(&mut self, log_start: i64, end: i64, now: i64) -> Result<()> {
        for offset in self.snapshots.keys().copied().filter(|at| *at > end || *at <= log_start).collect::<Vec<_>>() {
            self.delete_snapshot(offset)?;
        }
        if end == self.end_offset {
            self.set_log_start(log_start);
            return Ok(());
        }
        self.clear();
        while let Some((offset, path)) = self.snapshots.last_key_value() {
            let offset = *offset;
            match producer_snapshot::read(&path.clone().into()) {
                Ok(entries) => {
                    for entry in entries {
                        let is_old = now.saturating_sub(entry.timestamp) >= self.expiration_ms;
                        if entry.current_txn_first_offset.is_some() || !is_old {
                            self.load(&entry);
                        }
                    }
                    (self.last_snapshot, self.end_offset) = (offset, offset);
                    return Ok(());
                }
                Err(Error::Corrupt { .. }) => self.delete_snapshot(offset)?,
                Err(error) => return Err(error),
            }
        }
        (self.last_snapshot, self.end_offset) = (log_start, log_start);
        Ok(())
    }

    fn load(&mut self, entry: &ProducerEntry) {
        let mut batches = VecDeque::new();
        if entry.last_offset >= 0 {
            batches.push_back(KnownBatch {
                last_sequence: entry.last_sequence,
                last_offset: entry.last_offset,
                offset_delta: entry.offset_delta,
                timestamp: entry.timestamp,
            });
        }
        if let Some(first) = entry.current_txn_first_offset {
            self.open.insert(first, entry.producer_id);
        }
        let producer = Producer {
            epoch: entry.producer_epoch,
            coordinator_epoch: entry.coordinator_epoch,
            last_timestamp: entry.timestamp,
            open: entry.current_txn_first_offset,
            batches,
            number: 0,
        };
        self.insert(entry.producer_id, producer);
    }

    fn delete_snapshot(&mut self, offset: i64) -> Result<()> {
        self.snapshots.remove(&offset).map_or(Ok(()), |path| remove(&path))
    }

    /// Renames the snapshot at an offset for deletion, and returns its new path.
    pub(super) fn mark_deleted(&mut self, offset: i64) -> Result<Option<PathBuf>> {
        let Some(path) = self.snapshots.remove(&offset) else { return Ok(None) };
        let marked = path.with_extension("snapshot.deleted");
        match fs::rename(&path, &marked) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            renamed => renamed.map(|()| Some(marked)).map_err(|e| Error::io(&path, e)),
        }
    }

    /// Deletes snapshots that are at no segment's base offset, except the last one if it is after all segments. Source:
    /// `#removeStraySnapshots`.
    pub(super) fn remove_stray(&mut self, bases: &[i64]) -> Result<()> {
        self.list_snapshots()?;
        let stray: Vec<i64> = self.snapshots.keys().copied().filter(|offset| !bases.contains(offset)).collect();
        let kept = stray.last().copied().filter(|last| bases.iter().max().is_none_or(|base| last >= base));
        for offset in stray.into_iter().filter(|offset| Some(*offset) != kept) {
            self.delete_snapshot(offset)?;
        }
        Ok(())
    }

    /// Writes a snapshot if there is none of this end offset, and returns its path. Source: `#takeSnapshot`.
    pub(super) fn take_snapshot(&mut self, sync: bool) -> Result<Option<PathBuf>> {
        if self.end_offset <= self.last_snapshot {
            return Ok(None);
        }
        let mut entries: Vec<(&i64, &Producer)> = self.known.iter().collect();
        entries.sort_unstable_by_key(|(id, producer)| ((hash(**id) & (self.bins - 1)), producer.number));
        let entries: Vec<ProducerEntry> = entries
            .into_iter()
            .map(|(id, producer)| {
                let last = producer.batches.back();
                ProducerEntry {
                    producer_id: *id,
                    producer_epoch: producer.epoch,
                    last_sequence: last.map_or(-1, |batch| batch.last_sequence),
                    last_offset: last.map_or(-1, |batch| batch.last_offset),
                    offset_delta: last.map_or(0, |batch| batch.offset_delta),
                    timestamp: producer.last_timestamp,
                    coordinator_epoch: producer.coordinator_epoch,
                    current_txn_first_offset: producer.open,
                }
            })
            .collect();
        let path = snapshot_path(&self.directory, self.end_offset);
        let content = producer_snapshot::encode(&entries);
        if sync {
            disk::replace_file(&path, &content)?;
        } else {
            fs::write(&path, content).map_err(|e| Error::io(&path, e))?;
        }
        self.snapshots.insert(self.end_offset, path.clone());
        self.last_snapshot = self.end_offset;
        Ok(Some(path))
    }
}

/// Source: `ProducerAppendInfo#checkSequence`.
fn check_sequence(header: &Header, producer: &Producer, was_unknown: bool) -> Result<()> {
    let first = header.base_sequence;
    let fits = if header.producer_epoch == producer.epoch {
        let last = producer.batches.back().map_or(-1, |batch| batch.last_sequence);
        was_unknown || i64::from(first) == i64::from(last) + 1 || (first == 0 && last == i32::MAX)
    } else {
        first == 0 || producer.epoch == NO_EPOCH
    };
    if fits {
        return Ok(());
    }
    let last = producer.batches.back().map(|batch| batch.last_sequence);
    Err(Refusal::OUT_OF_ORDER_SEQUENCE
        .because(format_args!("producer {}: sequence number {first}, the last one is {last:?}", header.producer_id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_those_of_javas_map() {
        assert_eq!([0, 17, 1 << 32, 7 << 16, -1].map(|id| hash(id) & 15), [0, 1, 1, 7, 0]);
        let dir = tempfile::tempdir().unwrap();
        let mut producers = Producers::new(dir.path(), 1, Compat::parse("3.9.2").unwrap()).unwrap();
        let entry = |producer_id| ProducerEntry {
            producer_id,
            producer_epoch: 0,
            last_sequence: 0,
            last_offset: producer_id,
            offset_delta: 0,
            timestamp: 0,
            coordinator_epoch: -1,
            current_txn_first_offset: None,
        };
        // The ninth in one bin doubles the map, twice; the order inside bins stays.
        for id in (0..9).rev() {
            producers.load(&entry(id * 64));
        }
        assert_eq!(producers.bins, 32);
        producers.set_end_offset(5);
        let path = producers.take_snapshot(true).unwrap().unwrap();
        let ids: Vec<i64> =
            producer_snapshot::read(&path.into()).unwrap().iter().map(|entry| entry.producer_id).collect();
        assert_eq!(ids, [512, 448, 384, 320, 256, 192, 128, 64, 0]);
        assert!(producers.take_snapshot(true).unwrap().is_none(), "not twice at one offset");
        for id in 0..16 {
            producers.load(&entry(id * 64 + 1));
        }
        assert_eq!(producers.bins, 64);
        producers.expire(1);
        assert!(producers.is_empty() && producers.bins == 64);
    }
}
