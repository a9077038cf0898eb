//! Messages by key: candidates of the index, and of log ranges that no index file covers, checked against the messages.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::{Array as _, Int32Array, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};

use super::index::{Candidates, IndexView};
use super::open::Store;
use super::ranges::{Range, union, within};
use super::unindexed::{Progress, no_progress};
use crate::error::Result;
use crate::hash_index::{self, Hits, IndexFile, KeyColumn, Keys, Topics, key_hash};
use crate::report::Finding;
use crate::rocketmq::candidates::{self, Checks, Counts, KeyQuery, VerifiedMessages};
use crate::rocketmq::commit_log::columns::Column;
use crate::rocketmq::commit_log::{Bodies, CommitLog};
use crate::rocketmq::index_entries::TAGS_PREFIX;
use crate::rocketmq::offset_files::Gap;
use crate::time_range::TimeRange;

/// Keys of a batch whose candidates are read together.
const KEYS_A_STEP: usize = 1_024;
/// Candidates that are looked up before they are read, about. A sealed index decodes a row group for many keys at once.
const CANDIDATES_AHEAD: usize = 4 << 20;
/// Pairs of a topic and a key for which the index is read.
const MOST_QUESTIONS: usize = 1_000_000;
/// The memory of an answer of at most so many rows, and bytes of bodies, is kept for the next one.
const KEPT_ROWS: usize = 16;
const KEPT_BODIES: usize = 4096;
/// The largest step of a broker's clock within a file of the log, in ms.
const CLOCK_SLACK_MS: i64 = 3_600_000;

/// A search for the messages of one key.
#[derive(Clone, Debug)]
pub struct Query {
    /// The topics that may have it; with `is_any_topic` also those of messages that no index file covers.
    pub topics: Vec<String>,
    /// True if the topic does not matter.
    pub is_any_topic: bool,
    /// The key.
    pub key: String,
    /// Range of store times.
    pub times: TimeRange,
    /// The most messages; `None`: all.
    pub max_num: Option<usize>,
    /// The most bytes of the log that are read because no index file covers them; `None`: all.
    pub scan_bytes: Option<u64>,
    /// Bytes of bodies after which the answer has no more.
    pub body_budget: usize,
    /// The most messages that are checked together.
    pub batch_size: usize,
}

/// The messages of a key.
#[derive(Debug)]
pub struct Found {
    /// The log as it was.
    pub log: Arc<CommitLog>,
    /// Schema of the message columns.
    pub schema: SchemaRef,
    /// The messages, the newest first.
    pub batches: Vec<RecordBatch>,
    /// Counters of the search.
    pub counts: Counts,
    /// Bytes of the log that were read because no index file covers them.
    pub scanned: u64,
    /// Ranges of the log that neither the index covers nor any call has read, that no file holds, or that are damaged.
    pub unscanned: Vec<Range>,
    /// Those parts of them that cannot be read.
    pub unreadable: Vec<Range>,
}

impl Store {
    /// Returns whether messages are found by their tags: the index holds them (5.5.0), or it holds no entry at all.
    ///
    /// # Errors
    /// As [`super::index::StoreIndex::holds_tags`].
    pub fn has_tags(&self) -> Result<bool> {
        if let Some(known) = self.unindexed.tags() {
            return Ok(known);
        }
        let view = self.index.view()?;
        let tags = view.map_or(Ok(true), |view| self.index.holds_tags(&view, &self.log))?;
        self.unindexed.set_tags(tags);
        Ok(tags)
    }

    /// Finds the messages of one key, the newest first, each once.
    ///
    /// # Errors
    /// `Corrupt` for damage that hides an answer; an I/O error; an error of `progress`.
    pub fn find(&self, query: Query, progress: Progress<'_>) -> Result<Found> {
        let view = self.index.view()?;
        let (far, topics) = (self.is_far(view.as_ref()), &query.topics);
        if let Some(view) = view.as_ref().filter(|_| far) {
            // Its requests are made while the end of the log is searched.
            self.index.candidates(view, &hashes(topics, &query.key), query.times)?;
        }
        let (scanned, unread, log) = self.read_unindexed(view.as_ref(), query.scan_bytes, progress)?;
        let mut topics: BTreeSet<String> = query.topics.into_iter().collect();
        if query.is_any_topic {
            topics.extend(self.unindexed.topics());
        }
        // A key's hash includes its topic.
        let hashes = hashes(&topics, &query.key);
        let found = self.candidates(view.as_ref(), &hashes, query.times)?;
        let checks = Checks {
            times: query.times,
            max_num: query.max_num,
            tags: query.key.starts_with(TAGS_PREFIX) && self.has_tags()?,
            columns: Column::ALL.to_vec(),
            batch_size: query.batch_size,
            body_budget: Some(query.body_budget),
            first_row: None,
        };
        let topics = if query.is_any_topic { None } else { Some(topics.into_iter().collect()) };
        let key_query = KeyQuery { topics, key: Some(query.key), candidates: found.offsets.concat() };
        let builder = self.builder.with(Option::take).unwrap_or_else(|| log.builder(&Column::ALL, Bodies::Decoded));
        let mut messages = VerifiedMessages::with_builder(builder, Arc::clone(&log), vec![key_query], checks)?;
        let mut batches = Vec::new();
        while let Some(batch) = messages.next_batch()? {
            batches.push(batch);
        }
        let mut counts = messages.counts();
        counts.truncated |= found.is_capped && !query.is_any_topic;
        let lost: Vec<Range> = lost(&log, query.times, &messages.missing())?;
        let schema = RecordBatchReader::schema(&messages);
        if messages.body_bytes() <= KEPT_BODIES && batches.iter().map(RecordBatch::num_rows).sum::<usize>() <= KEPT_ROWS
        {
            let builder = messages.into_builder();
            self.builder.with(|kept| *kept = builder);
        }
        Ok(Found {
            schema,
            batches,
            counts,
            scanned,
            unscanned: union(unread.into_iter().chain(lost.iter().copied())),
            unreadable: union(lost.into_iter().chain(self.unindexed.refused())),
            log,
        })
    }

    /// Returns the candidates of keys, by their hashes: of the index, and of the log ranges that no index file covers.
    fn candidates(&self, view: Option<&IndexView>, hashes: &[i32], times: TimeRange) -> Result<Candidates> {
        let mut found = match view {
            Some(view) => self.index.candidates(view, hashes, times)?,
            None => Candidates { offsets: vec![Vec::new(); hashes.len()], ..Candidates::default() },
        };
        self.unindexed.add_candidates(hashes, &mut found.offsets);
        Ok(found)
    }

    fn is_far(&self, view: Option<&IndexView>) -> bool {
        view.is_some_and(IndexView::is_unsealed) && self.index.directory().is_remote()
    }

    /// Reads log ranges that no index file covers. Returns the bytes read, the ranges of files that remain unread, and the log as it is
    /// then.
    fn read_unindexed(
        &self,
        view: Option<&IndexView>,
        scan_bytes: Option<u64>,
        progress: Progress<'_>,
    ) -> Result<(u64, Vec<Range>, Arc<CommitLog>)> {
        // The index first: if the broker indexes more meanwhile, it is at worst read once more.
        let mut covered = view.map_or(Ok(Vec::new()), IndexView::covered)?;
        let log = Arc::new(self.log.pinned()?);
        covered.extend(log.gaps()?.iter().map(|gap| (gap.begin.cast_signed(), gap.end.cast_signed())));
        let whole = (log.min_offset()?.cast_signed(), log.max_offset()?.cast_signed());
        let missing = self.unindexed.missing(whole, &covered);
        if missing.is_empty() || scan_bytes == Some(0) {
            return Ok((0, missing, log));
        }
        if view.is_some_and(IndexView::knows_tags) {
            self.has_tags()?;
        }
        let files = view.map_or(Ok(Vec::new()), IndexView::files)?;
        let salvage = !self.index.is_brokers();
        let scanned = self.unindexed.read(&self.log, &files, &missing, scan_bytes, salvage, progress)?;
        // A file that the broker deletes from here on is an error, and not a message that is missing.
        Ok((scanned, self.unindexed.missing(whole, &covered), Arc::new(self.log.pinned()?)))
    }

    /// Returns where the index leads in a part of the log: the ranges that it covers, ascending, each with the offsets, ascending, at which
    /// messages with one of the keys may begin. `None`: there is no index, or there are too many pairs of a topic and a key.
    ///
    /// # Errors
    /// As [`super::index::StoreIndex::candidates`].
    pub fn indexed_offsets(
        &self,
        topics: &[String],
        keys: &[String],
        span: Range,
        times: TimeRange,
    ) -> Result<Option<IndexedRanges>> {
        let Some(view) = self.index.view()?.filter(|_| topics.len().saturating_mul(keys.len()) <= MOST_QUESTIONS)
        else {
            return Ok(None);
        };
        let whole =
            (self.log.min_offset()?.cast_signed().max(span.0), self.log.max_offset()?.cast_signed().min(span.1));
        // The ranges first: a message that is indexed from here on is read from the log.
        let covered = within(whole, &union(view.covered()?));
        let hashes: Vec<i32> = keys.iter().flat_map(|key| hashes(topics, key)).collect();
        let found =
            if hashes.is_empty() { Vec::new() } else { self.index.candidates(&view, &hashes, times)?.offsets.concat() };
        let offsets = candidates::offsets_within(found, &covered);
        Ok(Some(covered.into_iter().zip(offsets).collect()))
    }

    /// Returns log and index as they are now, after reading the parts of the log that no index file covers.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn view(self: &Arc<Self>, scan_bytes: Option<u64>) -> Result<KeyView> {
        let view = self.index.view()?;
        self.read_unindexed(view.as_ref(), scan_bytes, &no_progress)?;
        // Those that are sealed, too: this search lists nothing, so it could not see that a file changed.
        let files = self
            .index
            .all_files()?
            .map_or(Ok(Vec::new()), |files| files.newest_first(TimeRange::ALL, CLOCK_SLACK_MS))?;
        Ok(KeyView { log: self.log.pinned()?, files, store: Arc::clone(self) })
    }

    /// Prepares to find the messages of many keys.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn find_batch(self: &Arc<Self>, query: BatchQuery) -> Result<(FoundBatches, Vec<Range>)> {
        let view = self.index.view()?;
        let (_, unread, log) = self.read_unindexed(view.as_ref(), query.scan_bytes, &no_progress)?;
        let checks = Checks {
            times: query.times,
            max_num: query.max_num,
            tags: self.has_tags()?,
            columns: query.columns.clone(),
            batch_size: query.batch_size,
            body_budget: None,
            first_row: Some(0),
        };
        let step = VerifiedMessages::new(Arc::clone(&log), Vec::new(), checks)?;
        let schema = RecordBatchReader::schema(&step);
        let lost = log.gaps_in_time(query.times, CLOCK_SLACK_MS)?.iter().map(Gap::finding).collect();
        let store = Arc::clone(self);
        let mut found = FoundBatches {
            store,
            view,
            log,
            query,
            schema,
            step,
            next: 0,
            candidates: Vec::new().into_iter(),
            ahead: KEYS_A_STEP,
            findings: lost,
        };
        found.begin_step()?;
        Ok((found, unread))
    }
}

/// Ranges of the log that the index covers, and the offsets in each at which messages with some keys may begin.
pub type IndexedRanges = Vec<(Range, Vec<i64>)>;

/// The hashes of a key in topics.
fn hashes<'a>(topics: impl IntoIterator<Item = &'a String>, key: &str) -> Vec<i32> {
    topics.into_iter().map(|topic| key_hash(&[topic, "#", key].concat())).collect()
}

/// The parts of the log that are missing or damaged and may hold a match.
fn lost(log: &CommitLog, times: TimeRange, missing: &[i64]) -> Result<Vec<Range>> {
    let signed = |(begin, end): (u64, u64)| (begin.cast_signed(), end.cast_signed());
    let mut lost: Vec<Range> =
        log.gaps_in_time(times, CLOCK_SLACK_MS)?.iter().map(|gap| signed((gap.begin, gap.end))).collect();
    let missing: Vec<u64> = missing.iter().filter_map(|offset| u64::try_from(*offset).ok()).collect();
    lost.extend(log.damage(&missing)?.into_iter().map(|(begin, end, _)| signed((begin, end))));
    Ok(lost)
}

/// Many keys to search for.
#[derive(Clone, Debug)]
pub struct BatchQuery {
    /// The hash of each key with its topic; null where one of them is.
    pub hashes: Int32Array,
    /// The keys.
    pub keys: Vec<Option<String>>,
    /// One topic for all keys, or one for each.
    pub topics: Vec<Option<String>>,
    /// Range of store times.
    pub times: TimeRange,
    /// The most messages of a key; `None`: all.
    pub max_num: Option<usize>,
    /// The most bytes of the log that are read because no index file covers them; `None`: all.
    pub scan_bytes: Option<u64>,
    /// The message columns.
    pub columns: Vec<Column>,
    /// The most rows of a batch.
    pub batch_size: usize,
}

/// The messages of many keys, in the order of the keys, the newest message of each first.
#[derive(Debug)]
pub struct FoundBatches {
    store: Arc<Store>,
    view: Option<IndexView>,
    log: Arc<CommitLog>,
    query: BatchQuery,
    schema: SchemaRef,
    step: VerifiedMessages,
    /// The first key of the next step.
    next: usize,
    /// The candidates of the keys from there on, as far as they were looked up.
    candidates: std::vec::IntoIter<Vec<i64>>,
    /// Number of keys to look up next: few at first, so that messages come soon.
    ahead: usize,
    findings: Vec<Finding>,
}

impl FoundBatches {
    fn look_up(&mut self) -> Result<()> {
        let rows = self.next..self.query.keys.len().min(self.next + self.ahead);
        let hash = |row| if self.query.hashes.is_valid(row) { self.query.hashes.value(row) } else { -1 };
        let hashes: Vec<i32> = rows.map(hash).collect();
        let found = self.store.candidates(self.view.as_ref(), &hashes, self.query.times)?;
        let count: usize = found.offsets.iter().map(Vec::len).sum();
        let of_a_key = count / hashes.len().max(1) + 1;
        self.ahead = (CANDIDATES_AHEAD / of_a_key).clamp(KEYS_A_STEP, self.ahead * 32);
        self.candidates = found.offsets.into_iter();
        Ok(())
    }

    fn begin_step(&mut self) -> Result<()> {
        if self.candidates.len() == 0 {
            self.look_up()?;
        }
        let rows = self.next..self.next + self.candidates.len().min(KEYS_A_STEP);
        let query = &self.query;
        let key_query = |(row, candidates): (usize, Vec<i64>)| {
            let topics = &query.topics;
            let topic = topics.get(if topics.len() == 1 { 0 } else { row }).cloned().flatten();
            let topics = topic.map(|topic| vec![topic]);
            let key = query.keys.get(row).cloned().flatten();
            if topics.is_some() && key.is_some() { KeyQuery { topics, key, candidates } } else { KeyQuery::default() }
        };
        let wanted = rows.clone().zip(self.candidates.by_ref()).map(key_query).collect();
        self.step.go_on_with(wanted);
        self.next = rows.end;
        Ok(())
    }

    /// Returns the next batch; `None` at the end.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.step.next_batch()? {
                return Ok(Some(batch));
            }
            if self.next >= self.query.keys.len() {
                break;
            }
            self.begin_step()?;
        }
        let missing: Vec<u64> =
            self.step.missing().into_iter().filter_map(|offset| u64::try_from(offset).ok()).collect();
        for (_, _, found) in self.log.damage(&missing)? {
            if !self.findings.contains(&found) {
                self.findings.push(found);
            }
        }
        Ok(None)
    }

    /// Returns missing and damaged parts of the log that may hold a match, as far as they are known.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

impl Iterator for FoundBatches {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().map_err(|e| ArrowError::ExternalError(Box::new(e))).transpose()
    }
}

impl RecordBatchReader for FoundBatches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Log and index as they were at one moment: a search lists no directory, so that many searches cost little.
#[derive(Debug)]
pub struct KeyView {
    log: CommitLog,
    files: Vec<Arc<IndexFile>>,
    store: Arc<Store>,
}

impl KeyView {
    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The index files, newest first.
    pub fn files(&self) -> &[Arc<IndexFile>] {
        &self.files
    }

    /// Returns the newest messages that carry a key as the log holds them, in its order.
    ///
    /// # Errors
    /// An I/O error, or a file of that moment is gone.
    pub fn stored_frames(
        &self,
        topic: &str,
        key: &str,
        times: TimeRange,
        max_num: usize,
        max_bytes: usize,
    ) -> Result<Vec<u8>> {
        let checks = Checks {
            times,
            max_num: None,
            tags: false,
            columns: Vec::new(),
            batch_size: 1,
            first_row: None,
            body_budget: None,
        };
        let hash = key_hash(&[topic, "#", key].concat());
        let asked = Keys::new(KeyColumn::Hashes(vec![hash].into()), Topics::InKey);
        let (files, mut hits): (Vec<&IndexFile>, _) = (self.files.iter().map(AsRef::as_ref).collect(), Hits::new());
        let damage = hash_index::select_files(&files, &asked, 0..1, None, times, &mut hits)?;
        if let Some((file, damage)) = damage {
            self.store.index.note_damage(file, &damage);
        }
        let mut offsets = [hits.phy_offsets().to_vec()];
        self.store.unindexed.add_candidates(&[hash], &mut offsets);
        let key_query = KeyQuery {
            topics: Some([topic.to_owned()].into()),
            key: Some(key.to_owned()),
            candidates: offsets.concat(),
        };
        candidates::frames_with_key(&self.log, key_query, &checks, max_num, max_bytes)
    }
}
