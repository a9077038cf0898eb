//! Lists, checks, creates and opens files that are named by the offset of their first byte: the commit log, the consume queues,
//! and the extensions of queues.
//!
//! Upstream calls such a sequence a `MappedFileQueue`. All its files have the same length. If they do not, a broker does not
//! start; here it is a finding.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::io::Location;
use crate::io::disk::{self, NewFile};
use crate::io::open_cache::{OpenCache, Slot};
use crate::io::storage::{self, Identity, NamesStamp, Status};
use crate::io::{Access, FileSource, ProcessMutex};
use crate::report::{Finding, Flaw, Kind, Report};
use crate::rocketmq::file_name;

/// Maximum number of open files of a sequence, for look-ups.
const KEPT: usize = 8;
/// Maximum number of sequences with open files. A store may have more sequences than a process may open files.
const OPEN_SEQUENCES: usize = 64;

/// A file as its directory lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetFile {
    /// Offset of its first byte, which is its name.
    pub start: u64,
    /// Bytes that belong to it: its length, but not past the start of the next file.
    pub len: u64,
    /// Its name.
    pub path: Location,
    /// The `ETag` of an object.
    pub etag: Option<String>,
}

impl OffsetFile {
    /// Describes the file at this path, of which no later file holds a part.
    ///
    /// # Errors
    /// `InvalidArgument` if the name is not an offset; an I/O error, with the path.
    pub(super) fn at(path: &Location) -> Result<Self> {
        let start = path.file_name().and_then(|name| name.to_str()).and_then(file_name::parse);
        let start = start.ok_or_else(|| {
            Error::InvalidArgument(format!("{}: expected a name of 20 decimal digits", path.display()))
        })?;
        Ok(Self::found(start, path.to_owned(), storage::status(path)?))
    }

    /// Describes a file of which no later file holds a part.
    fn found(start: u64, path: Location, found: Status) -> Self {
        let etag = if let Identity::Remote(etag) = found.identity { etag } else { None };
        Self { start, len: found.len, path, etag }
    }

    /// Offset after its last byte.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }
}

/// Lists the files with their whole lengths, in the order of their offsets, and the other directory entries.
fn entries(directories: &[Location]) -> Result<(Vec<OffsetFile>, Vec<Location>)> {
    let (mut files, mut strays) = (Vec::new(), Vec::new());
    for directory in directories {
        for entry in storage::list(directory)? {
            let Some(start) = entry.name.to_str().and_then(file_name::parse) else {
                strays.push(entry.path);
                continue;
            };
            // The broker may delete an old file after it was listed.
            if let Some(found) = entry.status()? {
                match found.kind {
                    storage::Kind::File => files.push(OffsetFile::found(start, entry.path, found)),
                    _ => strays.push(entry.path),
                }
            }
        }
    }
    files.sort_by(|a, b| (a.start, &a.path).cmp(&(b.start, &b.path)));
    strays.sort();
    Ok((files, strays))
}

/// The files of a sequence in the order of their offsets, and the files that were set aside.
#[derive(Clone, Debug, Default)]
pub(super) struct Listing {
    files: Arc<[OffsetFile]>,
    /// Entries that no reader opens, such as compressed files, by the offset at the start of their names.
    aside: Arc<[(u64, Location)]>,
}

impl Deref for Listing {
    type Target = [OffsetFile];

    fn deref(&self) -> &[OffsetFile] {
        &self.files
    }
}

impl From<Vec<OffsetFile>> for Listing {
    fn from(files: Vec<OffsetFile>) -> Self {
        Self { files: files.into(), aside: Arc::default() }
    }
}

impl Listing {
    fn new(files: Vec<OffsetFile>, strays: &[Location]) -> Self {
        let start = |path: &Location| file_name::parse_beginning(path.file_name()?.to_str()?);
        let mut aside: Vec<(u64, Location)> =
            strays.iter().filter_map(|path| Some((start(path)?, path.clone()))).collect();
        aside.sort();
        aside.dedup_by_key(|(start, _)| *start);
        Self { files: in_sequence(files).into(), aside: aside.into() }
    }
}

/// Lists the files of these directories in the order of their offsets. Entries that are not files, whose name is not 20
/// digits, or whose name does not fit the length of the files, are left out. If two files have the same name, the first
/// one counts.
///
/// # Errors
/// An I/O error, with the path.
pub(super) fn list(directories: &[Location]) -> Result<Vec<OffsetFile>> {
    Ok(in_sequence(entries(directories)?.0))
}

/// Lists the files as [`list`] does, and the files that were set aside.
///
/// # Errors
/// An I/O error, with the path.
pub(super) fn list_with_aside(directories: &[Location]) -> Result<Listing> {
    let (files, strays) = entries(directories)?;
    Ok(Listing::new(files, &strays))
}

/// The last listing of a sequence. It is used again as long as no file can have come, gone or grown.
#[derive(Debug, Default)]
pub(super) struct KeptListing(ProcessMutex<Option<(Vec<NamesStamp>, Listing)>>);

impl KeptListing {
    /// Lists the files as [`list_with_aside`] does.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(super) fn list(&self, directories: &[Location]) -> Result<Listing> {
        let stamps: Option<Vec<NamesStamp>> = directories.iter().map(storage::names_stamp).collect();
        let Some(stamps) = stamps else { return list_with_aside(directories) };
        let known =
            self.0.with(|kept| kept.as_ref().filter(|(of, _)| *of == stamps).map(|(_, listing)| listing.clone()));
        // A repair may cut the last file, which does not change the directory.
        let is_whole = |last: &OffsetFile| storage::status(&last.path).is_ok_and(|found| found.len == last.len);
        if let Some(listing) = known
            && listing.last().is_none_or(is_whole)
        {
            return Ok(listing);
        }
        let listing = list_with_aside(directories)?;
        let size = file_size(&listing);
        // A short file may still grow, which does not change the directory.
        let are_whole = listing.iter().all(|file| file.len == size);
        self.0.with(|kept| *kept = are_whole.then(|| (stamps, listing.clone())));
        Ok(listing)
    }
}

/// Lists the files of a directory as [`list_with_aside`] does; `None` if the directory has no entry at all.
///
/// # Errors
/// An I/O error, with the path.
pub(super) fn list_if_any(directory: &Location) -> Result<Option<Listing>> {
    let (files, strays) = entries(std::slice::from_ref(directory))?;
    Ok((!files.is_empty() || !strays.is_empty()).then(|| Listing::new(files, &strays)))
}

/// Returns the files that form one sequence, each up to the start of the next.
fn in_sequence(mut files: Vec<OffsetFile>) -> Vec<OffsetFile> {
    files.dedup_by_key(|file| file.start);
    take_misnamed(&mut files);
    let starts: Vec<u64> = files.iter().skip(1).map(|file| file.start).collect();
    for (file, next) in files.iter_mut().zip(starts) {
        file.len = file.len.min(next - file.start);
    }
    files
}

/// Lists the files as [`list`] does, with their whole lengths and with those whose name does not fit.
///
/// # Errors
/// An I/O error, with the path.
pub(super) fn list_all(directories: &[Location]) -> Result<Vec<OffsetFile>> {
    Ok(entries(directories)?.0)
}

/// Checks that the name of each file fits the length of the files. A writer would write into a file that readers pass over.
///
/// # Errors
/// `Corrupt` for a file that [`list`] leaves out; an I/O error, with the path.
pub(super) fn refuse_misnamed(directories: &[Location]) -> Result<()> {
    let mut files = list_all(directories)?;
    let misnamed = take_misnamed(&mut files);
    misnamed.first().map_or(Ok(()), |file| {
        let (expected, found) = name_flaw(file, file_size(&files));
        Err(Error::corrupt(&file.path, 0, expected, found))
    })
}

/// The expected and the found name of a file, if it does not fit files of this length.
fn name_flaw(file: &OffsetFile, size: u64) -> (String, String) {
    (format!("a name that fits files of {size} bytes"), format!("{}, {} bytes", file.start, file.len))
}

/// Removes and returns the files whose names no writer gives to files of this length.
///
/// A file begins a multiple of the file length after the others. A file that does not is removed if no data is lost by it: it
/// is empty, it would hide data of a file that fits, or several files agree on a length that it does not have.
fn take_misnamed(files: &mut Vec<OffsetFile>) -> Vec<OffsetFile> {
    let size = file_size(files);
    let whole: Vec<u64> = files.iter().filter(|file| file.len == size).map(|file| file.start).collect();
    let Some(first) = whole.first().copied().filter(|_| size > 0) else {
        return Vec::new();
    };
    let fits = |file: &OffsetFile| file.start.abs_diff(first) % size == 0;
    let fitting: Vec<(u64, u64)> =
        files.iter().filter(|file| fits(file)).map(|file| (file.start, file.end())).collect();
    let is_misnamed = |file: &mut OffsetFile| {
        let overlaps = || {
            let after = fitting.partition_point(|(start, _)| *start < file.end());
            after.checked_sub(1).and_then(|last| fitting.get(last)).is_some_and(|(_, end)| *end > file.start)
        };
        !fits(file) && (file.len == 0 || (whole.len() > 1 && file.len != size) || overlaps())
    };
    files.extract_if(.., is_misnamed).collect()
}

/// Returns the length of the files: the most frequent one, the larger of two that are equally frequent; 0 if no file holds
/// data.
pub(super) fn file_size(files: &[OffsetFile]) -> u64 {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for file in files.iter().filter(|file| file.len > 0) {
        *counts.entry(file.len).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(len, count)| (*count, *len)).map_or(0, |(len, _)| len)
}

/// A range of offsets that no file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Offset of the first missing byte.
    pub begin: u64,
    /// Offset after the last missing byte.
    pub end: u64,
    /// The evidence that bytes are missing.
    pub sign: Sign,
}

/// Evidence that bytes are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// The bytes are between this file and the next one.
    Between(Location, Location),
    /// Index entries have offsets after the end of this file, the last one.
    Index(Location),
    /// This directory entry has the name of the missing file with a suffix, and no reader opens it.
    Aside(Location),
}

impl Gap {
    /// Returns the missing files as a finding.
    pub fn finding(&self) -> Finding {
        let (path, offset, found) = match &self.sign {
            Sign::Between(_, next) => (next, 0, none_before(self.begin, self.end)),
            Sign::Index(last) => {
                let found = format!("no file, and index entries that lead up to offset {}", self.end - 1);
                (last, self.begin, found)
            }
            Sign::Aside(path) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let missing = file_name::of_offset(self.begin);
                (path, 0, format!("{name}, which no reader opens: {missing} is missing"))
            }
        };
        Finding::new(path, offset, Flaw::new(Kind::FileGap, format!("a file that begins at {}", self.begin), found))
    }
}

/// Returns the description of a missing file.
fn none_before(missing: u64, next: u64) -> String {
    let [missing, next] = [missing, next].map(file_name::of_offset);
    format!("none: {missing} is missing, the next is {next}")
}

/// The gaps inside a range, in ascending order, which a walk reports as it passes them.
#[derive(Debug, Default)]
pub(super) struct GapsAhead {
    gaps: Vec<Gap>,
    reported: usize,
}

impl GapsAhead {
    /// Takes the gaps that overlap a range of offsets.
    pub(super) fn within(gaps: Vec<Gap>, begin: u64, end: u64) -> Self {
        let gaps = gaps.into_iter().filter(|gap| gap.begin < end && begin < gap.end).collect();
        Self { gaps, reported: 0 }
    }

    /// Reports the gaps before this offset that were not reported yet.
    pub(super) fn report(&mut self, before: u64, report: &mut Report) {
        while let Some(gap) = self.gaps.get(self.reported).filter(|gap| gap.end <= before) {
            report.findings.push(gap.finding());
            self.reported += 1;
        }
    }

    /// Starts again with the first gap.
    pub(super) fn restart(&mut self) {
        self.reported = 0;
    }
}

/// Returns the ranges in which whole files are missing between the listed ones.
pub(super) fn gaps(files: &[OffsetFile]) -> Vec<Gap> {
    let size = file_size(files);
    let mut gaps = Vec::new();
    for (file, next) in files.iter().zip(files.iter().skip(1)) {
        let begin = file.start.saturating_add(size.max(file.len));
        if begin < next.start {
            let sign = Sign::Between(file.path.clone(), next.path.clone());
            gaps.push(Gap { begin, end: next.start, sign });
        }
    }
    gaps
}

/// Adds the ranges whose files were set aside. A file before the first one is expired, unless it was set aside. If no other file
/// gives the length of the files, it is the least distance between two of them, or the default length.
pub(super) fn add_aside(gaps: &mut Vec<Gap>, listing: &Listing, default_size: u64) {
    let starts = listing.aside.iter().map(|(start, _)| *start);
    let distances = starts.clone().zip(starts.skip(1)).map(|(start, next)| next - start);
    let size = match file_size(listing) {
        0 => distances.min().unwrap_or(default_size),
        size => size,
    };
    for (start, path) in listing.aside.iter() {
        let next = listing.iter().find(|file| file.end() > *start).map_or(u64::MAX, |file| file.start);
        // A file that still exists next to its copy is not missing.
        if next <= *start || gaps.iter().any(|gap| (gap.begin + 1..gap.end).contains(start)) {
            continue;
        }
        let sign = Sign::Aside(path.clone());
        match gaps.iter_mut().find(|gap| gap.begin == *start) {
            Some(gap) => gap.sign = sign,
            None => gaps.push(Gap { begin: *start, end: start.saturating_add(size).min(next), sign }),
        }
    }
    gaps.sort_by_key(|gap| gap.begin);
}

/// Checks for stray files, gaps, and files of another length. The kinds of findings are in docs/findings.md.
///
/// # Errors
/// An I/O error, with the path.
pub(super) fn check(directories: &[Location]) -> Result<Report> {
    let (mut files, strays) = entries(directories)?;
    let misnamed = take_misnamed(&mut files);
    let size = file_size(&files);
    let mut checked = Report::default();
    for file in &misnamed {
        let (expected, found) = name_flaw(file, size);
        checked.find(&file.path, 0, Kind::FileName, expected, found);
    }
    for path in &strays {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if file_name::parse(&name).is_some() {
            checked.find(path, 0, Kind::NotAFile, "a file", "something else than a regular file");
        } else {
            checked.find(path, 0, Kind::FileName, "20 decimal digits", name);
        }
    }
    let mut wanted = None;
    for (place, file) in files.iter().enumerate() {
        let size_text = match size {
            0 => "a file that is not empty".to_owned(),
            _ => format!("{size} bytes, as most files here"),
        };
        if file.len == 0 && place + 1 == files.len() {
            checked.find(&file.path, 0, Kind::FileEmpty, size_text, "0 bytes in the last file");
        } else if file.len != size {
            checked.find(&file.path, file.len.min(size), Kind::FileSize, size_text, format!("{} bytes", file.len));
        }
        if let Some(wanted) = wanted.filter(|wanted| *wanted != file.start) {
            let (kind, found) = if file.start > wanted {
                (Kind::FileGap, none_before(wanted, file.start))
            } else {
                (Kind::FileOverlap, file.start.to_string())
            };
            checked.find(&file.path, 0, kind, format!("a file that begins at {wanted}"), found);
        }
        wanted = Some(file.start.saturating_add(size));
    }
    checked.count("files", files.len() as u64);
    Ok(checked)
}

/// When the disk space of a new file is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    /// At once, so that a later write cannot fail for lack of space.
    Reserved,
    /// When the file is written.
    Sparse,
}

/// Creates a file of zeros with its whole length. After a kill the file is either complete or missing.
///
/// # Errors
/// An I/O error, with the path.
pub(super) fn create(path: &Path, len: u64, space: Space) -> Result<File> {
    let fail = |e| Error::io(path, e);
    let new = NewFile::create(path)?;
    match space {
        Space::Reserved => _ = disk::reserve(new.file(), len).map_err(fail)?,
        Space::Sparse => new.file().set_len(len).map_err(fail)?,
    }
    let file = new.file().try_clone().map_err(fail)?;
    new.publish()?;
    Ok(file)
}

/// Deletes a file. When this returns, its name is gone from the disk. The readers of this process close it, because its space is
/// free only then. Returns false if it was gone.
///
/// # Errors
/// An I/O error, with the path; `WriteFailed` if the directory cannot be synced.
pub fn delete_file(path: &Path) -> Result<bool> {
    let identity = match storage::status(&path.into()) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(false),
        status => status?.identity,
    };
    fs::remove_file(path).map_err(|e| Error::io(path, e))?;
    disk::sync_parent(path)?;
    OPEN.for_each(|files| files.retain(|(_, (_, known), _)| *known != identity));
    Ok(true)
}

/// Opens a file for reading.
///
/// `Access::Auto` is `pread` here, because all bytes are copied out in windows anyway. So a file that the broker deletes or
/// truncates raises no signal, and a log of many gigabytes takes no address space.
pub(super) fn open(file: &OffsetFile, access: Access) -> Result<FileSource> {
    FileSource::open(&file.path, if access == Access::Auto { Access::Pread } else { access })
}

/// Returns the directories of a path: the path itself. If it does not exist, the parts between its commas.
///
/// A broker that spreads its log over disks has one setting for all directories (upstream
/// `MessageStoreConfig.MULTI_PATH_SPLITTER`).
///
/// # Errors
/// An I/O error, with the path.
pub fn directories(path: &Location) -> Result<Vec<Location>> {
    Ok(match path.to_str() {
        _ if !path.parts().is_empty() => path.parts().to_vec(),
        Some(text) if text.contains(',') && !storage::exists(path)? => {
            text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(Location::from).collect()
        }
        _ => vec![path.to_owned()],
    })
}

/// Length and identity of a file when it was opened.
type Known = (u64, Identity);

/// The most recently opened files with their offsets, for look-ups.
type Files = Vec<(u64, Known, Arc<FileSource>)>;

static OPEN: OpenCache<Files> = OpenCache::new(OPEN_SEQUENCES);

/// The open files of one sequence.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenFiles(Arc<Slot<Files>>);

impl OpenFiles {
    /// Returns the open file. If the file has grown or was replaced, it is opened again.
    pub(super) fn get(&self, file: &OffsetFile, access: Access) -> Result<Arc<FileSource>> {
        // Each request for a remote file checks that it is still the same.
        let now = if file.path.is_remote() {
            (file.len, Identity::Remote(None))
        } else {
            let now = storage::status(&file.path)?;
            (now.len, now.identity)
        };
        OPEN.with(&self.0, |files| {
            if let Some(at) = files.iter().position(|(start, known, _)| *start == file.start && *known == now) {
                let known = files.remove(at);
                let source = Arc::clone(&known.2);
                files.push(known);
                return Ok(source);
            }
            let source = Arc::new(open(file, access)?);
            files.retain(|(start, _, _)| *start != file.start);
            if files.len() >= KEPT {
                files.remove(0);
            }
            files.push((file.start, now, Arc::clone(&source)));
            Ok(source)
        })
    }
}
