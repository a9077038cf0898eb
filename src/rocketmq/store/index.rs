//! The key index of a store: its index files, some of which a sealed index may stand for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ranges::Range;
use crate::error::{Error, Result};
use crate::hash_index::directory::{self, FilesOptions, IndexFiles};
use crate::hash_index::{Damage, Geometry, Hits, IndexFile, KeyColumn, Keys, Topics, are_samples_cold, select_files};
use crate::io::storage::{self, NamesStamp};
use crate::io::{Location, ProcessMutex};
use crate::report::{Report, thousands};
use crate::rocketmq::commit_log::CommitLog;
use crate::rocketmq::index_recovery::holds_tags;
use crate::rocketmq::seal::{SealedStore, UnchangedFiles, entries_by_name};
use crate::time_range::TimeRange;

/// COMPAT(rocketmq IndexService#queryOffset, B16): no answer of a broker holds more candidates (`maxMsgsNumBatch`).
const MOST_OF_BROKER: usize = 64;

/// Keys for which the index files are not opened next to the sealed rows: a process that looks for one key needs only these.
const FEW_KEYS: usize = 16;
/// Walks through index files in memory that take as long as to decode a row group: measured, 0.3 us and 6.5 us.
const WALKS_A_GROUP: usize = 20;

/// The key index of a store. It follows the directory.
#[derive(Debug)]
pub struct StoreIndex {
    directory: Location,
    is_used: bool,
    options: FilesOptions,
    clock_slack_ms: i64,
    sealed: Option<Arc<SealedStore>>,
    state: ProcessMutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// All index files, once they were searched.
    all: Option<Arc<IndexFiles>>,
    /// The names in the directory, for the sealed index.
    listed: Option<Arc<Listed>>,
    /// The files that the sealed index stands for, and the others.
    unchanged: Option<Arc<UnchangedFiles>>,
    others: Option<Arc<IndexFiles>>,
    /// Both, for the keys that they answer sooner.
    sealed_too: Option<Arc<IndexFiles>>,
    /// Keys that were looked up while the sealed index was in use.
    looked_up: usize,
    /// The reason why the sealed index is not used any more.
    damage: Option<String>,
    notes: Vec<String>,
}

/// The names in an index directory.
#[derive(Debug)]
struct Listed {
    /// As long as the directory has it, the names are the same.
    stamp: Option<NamesStamp>,
    entries: BTreeMap<String, storage::Entry>,
    /// The names that may be index files.
    candidates: Vec<String>,
}

/// The index at one moment: the files that the sealed index replaces, and those that are searched one by one.
#[derive(Clone, Debug)]
pub struct IndexView {
    unchanged: Option<Arc<UnchangedFiles>>,
    files: Option<Arc<IndexFiles>>,
}

/// The candidates of a key in a sealed index.
#[derive(Clone, Debug)]
pub struct SealedAnswer {
    /// The directory of the sealed index.
    pub directory: Location,
    /// The files that it stands for.
    pub unchanged: Arc<UnchangedFiles>,
    /// Offsets, newest first.
    pub offsets: Vec<i64>,
}

/// The candidates of some keys.
#[derive(Debug, Default)]
pub struct Candidates {
    /// Offsets for each key, in no order, some more than once.
    pub offsets: Vec<Vec<i64>>,
    /// True if a broker's limit left some out.
    pub is_capped: bool,
}

impl StoreIndex {
    /// Prepares to use the index files of a directory, and a sealed index that stands for some of them.
    pub fn new(
        directory: &Location,
        options: FilesOptions,
        clock_slack_ms: i64,
        sealed: Option<Arc<SealedStore>>,
    ) -> Self {
        let (directory, state) = (directory.to_owned(), ProcessMutex::new());
        Self { directory, is_used: true, options, clock_slack_ms, sealed, state }
    }

    /// The index of a store that is read as if it had none.
    pub fn unused(root: &Location) -> Self {
        Self { is_used: false, ..Self::new(root, FilesOptions::default(), 0, None) }
    }

    /// The directory of the index files.
    pub fn directory(&self) -> &Location {
        &self.directory
    }

    /// The sealed index.
    pub fn sealed(&self) -> Option<&SealedStore> {
        self.sealed.as_deref()
    }

    /// Does not use the sealed index. With `is_told` the log reports it.
    pub(super) fn drop_sealed(&mut self, is_told: bool) {
        if let Some(sealed) = self.sealed.take().filter(|_| is_told) {
            let place = sealed.directory().display();
            let note = format!("{place}: no index file is as this sealed index says; each index file is asked");
            self.state.with(|state| state.notes.push(note));
        }
    }

    /// Returns whether the answers are a broker's.
    pub fn is_brokers(&self) -> bool {
        self.options.answers.are_the_brokers()
    }

    /// Returns all index files, sealed or not; `None` if there is no directory.
    ///
    /// # Errors
    /// As [`IndexFiles::refresh`]; `InvalidArgument` if the files have other slots and entries than those given.
    pub fn all_files(&self) -> Result<Option<Arc<IndexFiles>>> {
        let known = self.state.with(|state| state.all.clone());
        if known.is_some() || !self.is_used || !storage::is_directory(&self.directory)? {
            return Ok(known);
        }
        let files = Arc::new(IndexFiles::new(&self.directory, self.options.clone()));
        files.check_geometry(false)?;
        files.refresh()?;
        Ok(Some(self.state.with(|state| Arc::clone(state.all.get_or_insert(files)))))
    }

    /// Looks at the directory. `None` if there is none.
    ///
    /// # Errors
    /// As [`Self::all_files`].
    pub fn view(&self) -> Result<Option<IndexView>> {
        if let Some(view) = self.sealed_view()? {
            return Ok(Some(view));
        }
        self.unsealed_view()
    }

    /// Looks at the directory, without the sealed index. `None` if there is none.
    ///
    /// # Errors
    /// As [`Self::all_files`].
    pub fn unsealed_view(&self) -> Result<Option<IndexView>> {
        Ok(self.all_files()?.map(|files| IndexView { unchanged: None, files: Some(files) }))
    }

    /// Finds the index files that are as they were when they were sealed, and opens the others. `None` if all have to be searched.
    fn sealed_view(&self) -> Result<Option<IndexView>> {
        let Some(sealed) = self.sealed.as_ref().filter(|_| self.state.with(|state| state.damage.is_none())) else {
            return Ok(None);
        };
        let Some((slots, entries)) = sealed.geometry() else { return Ok(None) };
        let (listed, known) = self.listed()?;
        if let Some(known) = known
            && let Some(unchanged) = &known.unchanged
            && sealed.are_still_unchanged(&listed.entries, unchanged)?
        {
            return Ok(Some(known));
        }
        let unchanged = sealed.unchanged_of(&listed.entries)?;
        if unchanged.names.is_empty() {
            self.state.with(|state| (state.unchanged, state.others) = (None, None));
            return Ok(None);
        }
        let without: BTreeSet<String> = unchanged.names.iter().cloned().collect();
        let has_others = listed.candidates.iter().any(|name| !without.contains(name));
        let (known, others) = self.state.with(|state| (state.unchanged.clone(), state.others.clone()));
        let unchanged = match known {
            Some(known) if *known == unchanged => known,
            _ => Arc::new(unchanged),
        };
        let is_same = |others: &Arc<IndexFiles>| others.options().without == without;
        let others = match others.filter(|others| has_others && is_same(others)) {
            None if has_others => Some(self.files_as_sealed((slots, entries), without)?),
            others => others,
        };
        let view = IndexView { unchanged: Some(unchanged), files: others };
        self.state.with(|state| (state.unchanged, state.others) = (view.unchanged.clone(), view.files.clone()));
        Ok(Some(view))
    }

    /// Lists the directory if its names may have changed, and returns the last view if they have not.
    fn listed(&self) -> Result<(Arc<Listed>, Option<IndexView>)> {
        let stamp = storage::names_stamp(&self.directory);
        let (listed, unchanged, files) =
            self.state.with(|state| (state.listed.clone(), state.unchanged.clone(), state.others.clone()));
        if let Some(listed) = listed.filter(|listed| stamp.is_some() && listed.stamp == stamp) {
            return Ok((listed, Some(IndexView { unchanged, files })));
        }
        let candidates = match directory::list(&self.directory) {
            Err(error) if error.is_missing() => Vec::new(),
            listed => listed?,
        };
        let candidates = candidates.into_iter().map(|entry| entry.name).collect();
        let listed = Arc::new(Listed { stamp, entries: entries_by_name(&self.directory)?, candidates });
        self.state.with(|state| state.listed = Some(Arc::clone(&listed)));
        Ok((listed, None))
    }

    /// Opens the index files but for some, with the slots and entries of a sealed index.
    fn files_as_sealed(&self, geometry: (u32, u32), without: BTreeSet<String>) -> Result<Arc<IndexFiles>> {
        let geometry = Some(Geometry::new(geometry.0, geometry.1)?);
        let options = FilesOptions { geometry, access: self.options.access, without, ..FilesOptions::default() };
        let files = IndexFiles::new(&self.directory, options);
        files.refresh()?;
        Ok(Arc::new(files))
    }

    /// Notes the damage of a file, which was read from end to end.
    pub(super) fn note_damage(&self, file: &IndexFile, damage: &Damage) {
        self.state.with(|state| state.notes.push(damage.note(file.path())));
    }

    /// Searches each index file from now on.
    fn give_up(&self, error: &Error) {
        self.state.with(|state| {
            state.notes.push(format!("the sealed index is not used any more, each index file is asked: {error}"));
            state.damage = Some(error.to_string());
            (state.unchanged, state.others, state.sealed_too) = (None, None, None);
        });
    }

    /// Returns the candidates of keys, by their hashes; a negative hash has none.
    ///
    /// # Errors
    /// As [`Self::all_files`].
    pub fn candidates(&self, view: &IndexView, hashes: &[i32], times: TimeRange) -> Result<Candidates> {
        let mut found = Candidates { offsets: vec![Vec::new(); hashes.len()], ..Candidates::default() };
        let mut files = view.files.clone();
        if let Some((sealed, unchanged)) = self.sealed.as_deref().zip(view.unchanged.as_deref()) {
            if let Some(faster) = self.faster_files(sealed, unchanged, hashes) {
                files = Some(faster);
            } else {
                match sealed.select(unchanged, hashes, times) {
                    Ok(hits) => found.add(&hits),
                    Err(error @ (Error::Corrupt { .. } | Error::Io { .. })) => {
                        self.give_up(&error);
                        files = self.all_files()?;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        let Some(files) = files else { return Ok(found) };
        let most = self.is_brokers().then_some(MOST_OF_BROKER + 1);
        let files = files.newest_first(times, self.clock_slack_ms)?;
        let files: Vec<&IndexFile> = files.iter().map(AsRef::as_ref).collect();
        let keys = Keys::new(KeyColumn::Hashes(hashes.to_vec().into()), Topics::InKey);
        let mut hits = Hits::with_rows(hashes.len());
        let damage = select_files(&files, &keys, 0..hashes.len(), most, times, &mut hits)?;
        if let Some((file, damage)) = damage {
            self.note_damage(file, &damage);
        }
        found.is_capped = most.is_some_and(|most| hits.rows().any(|row| row.len() == most));
        found.add(&hits);
        if self.is_brokers() {
            found.offsets.iter_mut().for_each(|offsets| offsets.truncate(MOST_OF_BROKER));
        }
        Ok(found)
    }

    /// Returns the index files if they answer sooner than the sealed rows, which stand for some of them: if they are in memory, and
    /// the keys are no large part of all. If they cannot be opened, the sealed rows answer.
    fn faster_files(
        &self,
        sealed: &SealedStore,
        unchanged: &UnchangedFiles,
        hashes: &[i32],
    ) -> Option<Arc<IndexFiles>> {
        let walks = hashes.len().saturating_mul(unchanged.names.len());
        let is_slower = walks >= sealed.groups_of(hashes.len()).saturating_mul(WALKS_A_GROUP);
        if self.directory.is_remote() || is_slower {
            return None;
        }
        let (looked_up, known) = self.state.with(|state| {
            state.looked_up = state.looked_up.saturating_add(hashes.len());
            (state.looked_up, state.sealed_too.clone())
        });
        if looked_up < FEW_KEYS {
            return None;
        }
        let files = if let Some(files) = known {
            files
        } else {
            let files = self.files_as_sealed(sealed.geometry()?, BTreeSet::new()).ok()?;
            self.state.with(|state| Arc::clone(state.sealed_too.insert(files)))
        };
        let open = files.refresh().ok()?;
        let open: Vec<&IndexFile> = open.iter().map(AsRef::as_ref).collect();
        (!are_samples_cold(&open, hashes)).then_some(files)
    }

    /// Returns the sealed index, the files that it replaces, and its candidates of a key; `None` if each index file is searched.
    ///
    /// # Errors
    /// `Corrupt` if a file of the sealed index is damaged; an I/O error.
    pub fn ask_sealed(&self, hash: i32, times: TimeRange) -> Result<Option<SealedAnswer>> {
        let Some((sealed, unchanged)) = self.sealed.as_ref().zip(self.sealed_view()?.and_then(|view| view.unchanged))
        else {
            return Ok(None);
        };
        let offsets = sealed.select(&unchanged, &[hash], times)?.phy_offsets().to_vec();
        Ok(Some(SealedAnswer { directory: sealed.directory().to_owned(), unchanged, offsets }))
    }

    /// Returns what is sealed, for people; `None` without a sealed index.
    ///
    /// # Errors
    /// As [`Self::view`].
    pub fn sealed_words(&self) -> Result<Option<String>> {
        let Some(sealed) = &self.sealed else { return Ok(None) };
        let view = self.sealed_view()?;
        if let Some(damage) = self.state.with(|state| state.damage.clone()) {
            return Ok(Some(format!("not used, damaged: {damage}")));
        }
        let others = match view.as_ref().and_then(|view| view.files.as_ref()) {
            Some(files) => files.refresh()?.len(),
            None => 0,
        };
        let (names, entries) =
            view.and_then(|view| view.unchanged).map_or((0, 0), |unchanged| (unchanged.names.len(), unchanged.entries));
        let others = if others == 0 { String::new() } else { format!(", {others} other files") };
        let place = sealed.directory().display();
        Ok(Some(format!("{names} index files with {} entries in {place}{others}", thousands(entries))))
    }

    /// Compares the sealed rows with the index files that they stand for, and with the times of the log. `None` if it is not used.
    ///
    /// # Errors
    /// As [`Self::all_files`]. Damage is a finding.
    pub fn verify_sealed(&self, log: &Arc<CommitLog>) -> Result<Option<Report>> {
        let unchanged = self.sealed_view()?.and_then(|view| view.unchanged);
        let Some((sealed, unchanged)) = self.sealed.as_ref().zip(unchanged) else { return Ok(None) };
        let files = self.all_files()?.map_or(Ok(Vec::new()), |files| files.refresh())?;
        sealed.verify(&unchanged, log, &files).map(Some)
    }

    /// Returns whether tags are indexed, or there is no entry at all.
    ///
    /// # Errors
    /// As [`Self::all_files`].
    pub fn holds_tags(&self, view: &IndexView, log: &CommitLog) -> Result<bool> {
        if let Some(sealed) = self.sealed.as_ref().filter(|_| view.knows_tags()) {
            return Ok(sealed.tags() == Some(true));
        }
        let files = self.all_files()?.map_or(Ok(Vec::new()), |files| files.refresh())?;
        let mut is_empty = true;
        for file in &files {
            is_empty &= file.is_empty()?;
        }
        Ok(is_empty || holds_tags(log, &files)?.unwrap_or(false))
    }

    /// Returns the texts for the log since the last call.
    pub fn take_notes(&self) -> Vec<String> {
        let (mut notes, files) = self.state.with(|state| {
            let files = [&state.all, &state.others, &state.sealed_too].map(Clone::clone);
            (std::mem::take(&mut state.notes), files)
        });
        notes.extend(files.into_iter().flatten().flat_map(|files| files.take_notes()));
        notes
    }
}

impl Candidates {
    fn add(&mut self, hits: &Hits) {
        for (offsets, found) in self.offsets.iter_mut().zip(hits.rows()) {
            offsets.extend_from_slice(found);
        }
    }
}

impl IndexView {
    /// Returns the ranges of the log whose messages are indexed. The first and the last message of a file are not covered: they may
    /// have keys in the files next to it.
    ///
    /// # Errors
    /// An I/O error.
    pub fn covered(&self) -> Result<Vec<Range>> {
        let mut covered = Vec::new();
        if let Some(unchanged) = &self.unchanged {
            covered.extend(unchanged.spans.iter().map(|(begin, end)| (begin.saturating_add(1), *end)));
            covered.extend_from_slice(&unchanged.complete_ranges);
        }
        for file in self.files.as_ref().map_or(Ok(Vec::new()), |files| files.whole())? {
            if !file.is_empty()? {
                let header = file.header()?;
                covered.push((header.begin_phy_offset.saturating_add(1), header.end_phy_offset));
            }
        }
        Ok(covered)
    }

    /// Returns the files that are searched one by one, in load order.
    ///
    /// # Errors
    /// As [`IndexFiles::refresh`].
    pub fn files(&self) -> Result<Vec<Arc<IndexFile>>> {
        self.files.as_ref().map_or(Ok(Vec::new()), |files| files.refresh())
    }

    /// Returns whether the sealed index records whether tags are indexed.
    pub fn knows_tags(&self) -> bool {
        self.unchanged.as_ref().is_some_and(|unchanged| unchanged.entries > 0)
    }

    /// Returns whether all files are searched one by one.
    pub fn is_unsealed(&self) -> bool {
        self.unchanged.is_none()
    }

    /// Returns the offset of the message of the last index entry; -1 without one.
    ///
    /// # Errors
    /// An I/O error.
    pub fn last_message(&self) -> Result<i64> {
        let spans = self.unchanged.iter().flat_map(|unchanged| unchanged.spans.iter().map(|(_, end)| *end));
        let mut last = spans.max().unwrap_or(-1);
        let whole = if self.is_unsealed() { self.files.as_ref().map(|files| files.whole()) } else { None };
        for file in whole.unwrap_or_else(|| self.files())? {
            if !file.is_empty()? {
                last = last.max(file.header()?.end_phy_offset);
            }
        }
        Ok(last)
    }
}
