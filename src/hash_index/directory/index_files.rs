//! The open files of an index directory, in the broker's load order.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use super::geometry::{self, Found};
use super::listing::{self, Entry};
use crate::error::{Error, Result};
use crate::hash_index::file::index_file::IndexFile;
use crate::hash_index::file::lookup;
use crate::hash_index::file::open::OpenOptions;
use crate::hash_index::format::answers::Answers;
use crate::hash_index::format::geometry::Geometry;
use crate::io::storage::{self, NamesStamp};
use crate::io::{Access, Location, ProcessMutex};
use crate::report::{Finding, Flaw, Kind, Report};
use crate::time_range::TimeRange;

/// Options for opening the files of a directory.
#[derive(Clone, Debug, Default)]
pub struct FilesOptions {
    /// Slots and entries; `None`: inferred from the fullest file.
    pub geometry: Option<Geometry>,
    /// Map or `pread`.
    pub access: Access,
    /// Rules of the answers.
    pub answers: Answers,
    /// True after a crash of the machine: see [`OpenOptions::last_exit_ok`].
    pub after_crash: bool,
    /// Names that are left out.
    pub without: BTreeSet<String>,
}

/// The files of an index directory. They are opened, ordered and closed as they come and go.
#[derive(Debug)]
pub struct IndexFiles {
    directory: Location,
    options: FilesOptions,
    state: ProcessMutex<State>,
}

/// An open file and its entry in the directory.
type Opened = (Entry, Arc<IndexFile>);

#[derive(Debug, Default)]
struct State {
    geometry: Option<Geometry>,
    entries: Vec<Entry>,
    files: Vec<Opened>,
    /// The handle that puts: lookups use it, too.
    writer: Option<Arc<IndexFile>>,
    left_out: Vec<Entry>,
    /// The files on disk were repaired after the crash.
    is_repaired: bool,
    is_listed: bool,
    stamp: Option<NamesStamp>,
    findings: Vec<Finding>,
    notes: Vec<String>,
}

impl IndexFiles {
    /// Prepares an empty set, which [`Self::refresh`] fills.
    pub fn new(directory: &Location, options: FilesOptions) -> Self {
        Self { directory: directory.to_owned(), options, state: ProcessMutex::new() }
    }

    /// The directory.
    pub fn directory(&self) -> &Location {
        &self.directory
    }

    /// The options with which files are opened.
    pub fn options(&self) -> &FilesOptions {
        &self.options
    }

    /// Slots and entries of the files, if they are known.
    pub fn geometry(&self) -> Option<Geometry> {
        self.state.with(|state| self.geometry_of(state))
    }

    fn geometry_of(&self, state: &State) -> Option<Geometry> {
        state.geometry.or(self.options.geometry)
    }

    /// Lists the directory again and returns the open files in load order, the oldest name first.
    ///
    /// A directory that does not exist holds nothing. A file that vanished since the listing is skipped. So is a file without entries
    /// that came after the first listing, while slots and entries are unknown.
    ///
    /// # Errors
    /// `Geometry` if slots and entries are not given and cannot be inferred; `Corrupt` as [`listing::list`]; an I/O error.
    pub fn refresh(&self) -> Result<Vec<Arc<IndexFile>>> {
        Ok(self.opened()?.into_iter().map(|(_, file)| file).collect())
    }

    /// As [`Self::refresh`], with the names of the files.
    ///
    /// # Errors
    /// As `refresh`.
    pub fn opened(&self) -> Result<Vec<Opened>> {
        self.state.wait_with(|state| {
            self.update(state)?;
            Ok(state.files.clone())
        })?
    }

    /// As [`Self::refresh`], without the files that do not have their full length: they lost entries.
    ///
    /// # Errors
    /// As `refresh`.
    pub fn whole(&self) -> Result<Vec<Arc<IndexFile>>> {
        let opened = self.opened()?;
        Ok(opened.into_iter().filter(|(entry, _)| self.is_whole(entry)).map(|(_, file)| file).collect())
    }

    /// Returns the open files that may hold entries of a time range, newest first; see [`lookup::newest_first`].
    ///
    /// # Errors
    /// As [`Self::refresh`].
    pub fn newest_first(&self, range: TimeRange, clock_slack_ms: i64) -> Result<Vec<Arc<IndexFile>>> {
        let files = self.refresh()?;
        if self.options.answers.are_the_brokers() {
            return as_broker(files, range);
        }
        let open: Vec<&IndexFile> = files.iter().map(AsRef::as_ref).collect();
        let places = lookup::newest_first(&open, range, clock_slack_ms)?;
        Ok(places.into_iter().filter_map(|place| files.get(place).cloned()).collect())
    }

    /// Returns the names of the directory in load order, without those that are left out.
    ///
    /// # Errors
    /// As [`listing::list`].
    pub fn list(&self) -> Result<Vec<Entry>> {
        let mut entries = listing::list(&self.directory)?;
        entries.retain(|entry| !self.options.without.contains(&entry.name));
        Ok(entries)
    }

    fn update(&self, state: &mut State) -> Result<()> {
        let stamp = storage::names_stamp(&self.directory);
        if state.is_listed && stamp.is_some() && stamp == state.stamp {
            return Ok(());
        }
        let entries = match self.list() {
            Err(error) if error.is_missing() => Vec::new(),
            listed => listed?,
        };
        if !state.is_listed || entries != state.entries || self.geometry_of(state).is_none() {
            self.reopen(state, &entries)?;
            state.entries = entries;
            state.is_listed = true;
        }
        let geometry = self.geometry_of(state);
        // A short file may still grow, which does not change the directory.
        state.stamp = stamp.filter(|_| state.entries.iter().all(|entry| is_whole(entry, geometry)));
        Ok(())
    }

    fn reopen(&self, state: &mut State, entries: &[Entry]) -> Result<()> {
        if self.geometry_of(state).is_none() {
            match geometry::find_geometry(&self.directory, entries, self.options.access)? {
                Found::Known(geometry) => state.geometry = Some(geometry),
                Found::Nothing => {}
                Found::NothingIndexed(_) if state.is_listed => return Ok(()),
                Found::NothingIndexed(error) => return Err(error),
            }
        }
        let before = std::mem::take(&mut state.findings);
        let mut files = Vec::with_capacity(entries.len());
        for entry in entries {
            if state.left_out.contains(entry) {
                continue;
            }
            let known = state.files.iter().find(|(known, _)| known == entry).map(|(_, file)| Arc::clone(file));
            let opened = known.map_or_else(|| self.open_entry(state, entry), |file| Ok(Some(file)));
            match opened {
                Ok(file) => files.extend(file.map(|file| (entry.clone(), file))),
                // COMPAT(rocketmq IndexService#load, B22): a file that cannot be opened ends the load.
                Err(error @ Error::Io { .. }) if self.options.answers.are_the_brokers() && entry.is_numeric() => {
                    state.notes.push(format!("{}: {error}; the index files after it are left out", entry.name));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        for finding in state.findings.iter().filter(|finding| !before.contains(finding)) {
            let Finding { path, offset, kind, expected, found } = finding;
            let place = format!("{} at byte {offset}", path.display());
            state.notes.push(format!("{place}: {}, expected {expected}, found {found}", kind.word()));
        }
        state.files = files;
        Ok(())
    }

    /// Opens one entry; `None` if it holds no answers, which becomes a finding, or if it has vanished.
    fn open_entry(&self, state: &mut State, entry: &Entry) -> Result<Option<Arc<IndexFile>>> {
        let geometry = self.geometry_of(state);
        let Some(geometry) = geometry.filter(|_| unusable(entry, geometry).is_none()) else {
            state.findings.extend(unusable(entry, geometry));
            if self.options.answers.are_the_brokers() && entry.is_numeric() && !entry.is_file {
                return Err(Error::io(&entry.path, io::Error::new(ErrorKind::IsADirectory, "not a file")));
            }
            return Ok(None);
        };
        let expected = geometry.file_len();
        if entry.len != expected {
            let flaw = Flaw::new(Kind::FileSize, format!("{expected} bytes"), format!("{} bytes", entry.len));
            state.findings.push(Finding::new(&entry.path, entry.len.min(expected), flaw));
        }
        if let Some(writer) = state.writer.as_ref().filter(|w| w.path().file_name() == entry.path.file_name()) {
            return Ok(Some(Arc::clone(writer)));
        }
        // The broker's own rule deletes whole files and reads the others as they are.
        let is_repaired =
            self.options.answers.are_the_brokers() || (state.is_repaired && is_whole(entry, Some(geometry)));
        let options = OpenOptions {
            write: false,
            geometry: Some(geometry),
            access: self.options.access,
            answers: self.options.answers,
            last_exit_ok: !self.options.after_crash || is_repaired,
        };
        match IndexFile::open(&entry.path, options) {
            Ok(file) => Ok(Some(Arc::new(file))),
            Err(error) if error.is_missing() => Ok(None),
            Err(Error::Corrupt { path, offset, expected, found }) => {
                state.findings.push(Finding::new(&path, offset, Flaw::new(Kind::FileSize, expected, found)));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns whether an entry is an index file of full length, so that it holds all entries and takes puts.
    pub fn is_whole(&self, entry: &Entry) -> bool {
        is_whole(entry, self.geometry())
    }

    /// Links the slots of every file again from its entries, after a crash, and cuts it at the first impossible entry.
    ///
    /// Files of another size and files that cannot be repaired are not changed; lookups use their entries. Returns the number of
    /// files that changed, or that would change with `dry_run`.
    ///
    /// # Errors
    /// As [`Self::refresh`].
    pub fn repair(&self, dry_run: bool) -> Result<u64> {
        self.state.wait_with(|state| {
            let entries = match self.list() {
                Err(error) if error.is_missing() => Vec::new(),
                listed => listed?,
            };
            if self.geometry_of(state).is_none() {
                match geometry::find_geometry(&self.directory, &entries, self.options.access)? {
                    Found::Known(geometry) => state.geometry = Some(geometry),
                    Found::Nothing => {}
                    Found::NothingIndexed(error) => return Err(error),
                }
            }
            let geometry = self.geometry_of(state);
            let options = OpenOptions {
                write: !dry_run,
                geometry,
                access: self.options.access,
                answers: self.options.answers,
                last_exit_ok: false,
            };
            let mut repaired = 0;
            for entry in entries.iter().filter(|entry| is_whole(entry, geometry)) {
                let repair = || {
                    let file = IndexFile::open(&entry.path, options)?;
                    let changed = file.is_repaired()?;
                    if !dry_run {
                        file.flush()?;
                    }
                    Ok(changed)
                };
                match repair() {
                    Ok(changed) => repaired += u64::from(changed),
                    Err(error @ Error::Corrupt { .. }) => {
                        state.notes.push(format!("{} is left as it is: {error}", entry.name));
                    }
                    Err(error) => return Err(error),
                }
            }
            // In a dry run, files are repaired in memory each time they are opened.
            state.is_repaired = !dry_run;
            state.files.clear();
            state.is_listed = false;
            Ok(repaired)
        })?
    }

    /// Checks that the files have the slots and entries that the caller gave, all of them or the fullest.
    ///
    /// # Errors
    /// `InvalidArgument` if they have others; an I/O error.
    pub fn check_geometry(&self, for_puts: bool) -> Result<()> {
        // COMPAT(rocketmq IndexFile, B23): a broker reads files with the geometry of its own settings.
        let is_brokers = self.options.answers.are_the_brokers() && !for_puts;
        let Some(geometry) = self.options.geometry.filter(|_| !is_brokers) else { return Ok(()) };
        match self.list() {
            Err(error) if error.is_missing() => Ok(()),
            listed => geometry::check_geometry(&listed?, geometry, self.options.access, for_puts),
        }
    }

    /// Answers from the writer's own handle for the file that it writes, whose slots and entries are those of all; the one before
    /// becomes a reader again.
    pub fn set_writer(&self, file: Arc<IndexFile>) {
        self.state.with(|state| {
            state.geometry = Some(file.geometry());
            let before = state.writer.replace(Arc::clone(&file));
            let writers: Vec<_> = before.into_iter().chain([file]).collect();
            state
                .files
                .retain(|(entry, _)| writers.iter().all(|file| file.path().file_name() != entry.path.file_name()));
            state.is_listed = false;
        });
    }

    /// Answers without some of the open files from now on.
    pub fn leave_out(&self, files: &[Arc<IndexFile>]) {
        self.state.with(|state| {
            let is_one = |file: &Arc<IndexFile>| files.iter().any(|one| Arc::ptr_eq(one, file));
            let left_out = state.files.iter().filter(|(_, file)| is_one(file)).map(|(entry, _)| entry.clone());
            state.left_out = left_out.collect();
            state.is_listed = false;
        });
    }

    /// Checks everything in the directory, also what a load would leave out; linear in the size of the files.
    ///
    /// # Errors
    /// As [`Self::refresh`].
    pub fn verify(&self) -> Result<Report> {
        self.refresh()?;
        let geometry = self.geometry();
        let entries = match listing::list(&self.directory) {
            Err(error) if error.is_missing() => Vec::new(),
            listed => listed?,
        };
        let mut report = Report::default();
        for entry in &entries {
            match unusable(entry, geometry) {
                Some(finding) => report.findings.push(finding),
                None => report.add(self.verify_file(&entry.path, geometry)?),
            }
        }
        Ok(report)
    }

    fn verify_file(&self, path: &Location, geometry: Option<Geometry>) -> Result<Report> {
        let options = OpenOptions { geometry, access: self.options.access, ..OpenOptions::default() };
        let mut report = Report::default();
        match IndexFile::open(path, options).and_then(|file| file.verify()) {
            Ok(checked) => return Ok(checked),
            Err(error) if error.is_missing() => {}
            Err(Error::Corrupt { offset, expected, found, .. }) => {
                report.find(path, offset, Kind::FileSize, expected, found);
            }
            Err(Error::Io { source, .. }) => {
                let expected = format!("{} bytes", geometry.map_or(0, Geometry::file_len));
                report.find(path, 0, Kind::Unreadable, expected, source);
            }
            Err(error) => return Err(error),
        }
        Ok(report)
    }

    /// Returns the texts for the log since the last call: files that were left out, and why.
    pub fn take_notes(&self) -> Vec<String> {
        self.state.with(|state| std::mem::take(&mut state.notes))
    }
}

/// COMPAT(rocketmq IndexService#queryOffset, B21): the load order is taken for the order in time, and the search ends at the first
/// file that begins before the range, although a later one may hold matches.
fn as_broker(files: Vec<Arc<IndexFile>>, range: TimeRange) -> Result<Vec<Arc<IndexFile>>> {
    let mut chosen = Vec::new();
    for file in files.into_iter().rev() {
        let is_last = file.header()?.begin_timestamp < range.begin_ms;
        if file.is_time_matched(range, 0)? {
            chosen.push(file);
        }
        if is_last {
            break;
        }
    }
    Ok(chosen)
}

fn is_whole(entry: &Entry, geometry: Option<Geometry>) -> bool {
    entry.is_numeric() && entry.is_file && geometry.is_some_and(|geometry| entry.len >= geometry.file_len())
}

/// Returns the finding of an entry that cannot be opened as an index file.
fn unusable(entry: &Entry, geometry: Option<Geometry>) -> Option<Finding> {
    let flaw = if !entry.is_numeric() {
        Flaw::new(Kind::FileName, "a decimal number", &entry.name)
    } else if !entry.is_file {
        Flaw::new(Kind::NotAFile, "an index file", "something else than a regular file")
    } else if geometry.is_none() {
        // Nothing but empty files so far.
        Flaw::new(Kind::FileSize, "an index file", format!("{} bytes", entry.len))
    } else {
        return None;
    };
    Some(Finding::new(&entry.path, 0, flaw))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash_index::CreateOptions;

    fn file(directory: &std::path::Path, name: &str, phy_offset: i64) {
        let file = IndexFile::create(&directory.join(name), CreateOptions::new(Geometry::new(5, 8).unwrap())).unwrap();
        file.put_key("T#a", phy_offset, 1_700_000_000_000).unwrap();
        file.put_key("T#b", phy_offset + 1, 1_700_000_000_000).unwrap();
    }

    #[test]
    fn files_follow_the_directory() {
        let folder = tempfile::tempdir().unwrap();
        let files = IndexFiles::new(&folder.path().into(), FilesOptions::default());
        assert!(files.refresh().unwrap().is_empty());
        file(folder.path(), "20250208105220773", 100);
        file(folder.path(), "20250208105220772", 0);
        let opened = files.refresh().unwrap();
        assert_eq!(opened.len(), 2);
        assert_eq!(files.geometry(), Some(Geometry::new(5, 8).unwrap()));
        let newest = files.newest_first(TimeRange::ALL, 0).unwrap();
        assert_eq!(newest.first().unwrap().header().unwrap().begin_phy_offset, 100);
        assert!(Arc::ptr_eq(opened.first().unwrap(), files.refresh().unwrap().first().unwrap()));
        std::fs::remove_file(folder.path().join("20250208105220772")).unwrap();
        assert_eq!(files.refresh().unwrap().len(), 1);
        files.leave_out(&files.refresh().unwrap());
        assert!(files.refresh().unwrap().is_empty());
    }

    #[test]
    fn what_is_no_index_file_becomes_a_finding() {
        let folder = tempfile::tempdir().unwrap();
        file(folder.path(), "7", 0);
        std::fs::write(folder.path().join("notes.txt"), b"").unwrap();
        std::fs::create_dir(folder.path().join("8")).unwrap();
        let short = std::fs::OpenOptions::new().write(true).open(folder.path().join("7")).unwrap();
        let len = short.metadata().unwrap().len();
        let geometry = Some(Geometry::new(5, 8).unwrap());
        let files = IndexFiles::new(&folder.path().into(), FilesOptions { geometry, ..FilesOptions::default() });
        assert_eq!(files.refresh().unwrap().len(), 1);
        assert_eq!(files.whole().unwrap().len(), 1);
        assert_eq!(files.take_notes().len(), 2);
        short.set_len(len - 20).unwrap();
        assert!(files.whole().unwrap().is_empty());
        assert_eq!(files.take_notes().len(), 1);
        let kinds: Vec<_> = files.verify().unwrap().findings.iter().map(|finding| finding.kind.word()).collect();
        assert_eq!(kinds, ["file-size", "not-a-file", "file-name"]);
    }
}
