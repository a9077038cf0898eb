//! Slots and entries of the files in an index directory. No index file stores them.

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use super::listing::Entry;
use crate::error::{Error, Result};
use crate::hash_index::file::bytes;
use crate::hash_index::format::geometry::{Geometry, HEADER_LEN};
use crate::hash_index::format::header::Header;
use crate::io::{Access, FileSource, Location, ReadAt as _, remote};

/// More than a writer takes between the entries of a block and their slots.
const PUT: Duration = Duration::from_millis(1);

/// The geometry of a directory.
#[derive(Debug)]
pub(super) enum Found {
    /// That of its fullest file.
    Known(Geometry),
    /// No file holds a byte.
    Nothing,
    /// No file holds an entry yet, so slots and entries are unknown; there are no answers either.
    NothingIndexed(Error),
}

/// Finds the geometry of a directory from its fullest file.
///
/// Files of the most common size come first, because the size of a damaged file proves nothing. If the content of a file fits no
/// geometry, the next fullest is tried.
///
/// # Errors
/// `Geometry` if no geometry fits any of the files, or several fit the fullest; an I/O error.
pub(super) fn find_geometry(directory: &Location, entries: &[Entry], access: Access) -> Result<Found> {
    let files = fullest_first(entries)?;
    let mut refused = None;
    for (entry, _) in files.iter().filter(|(_, held)| *held > 1) {
        match infer(&entry.path, access) {
            Ok(geometry) => return Ok(Found::Known(geometry)),
            Err(Error::Geometry { count: 0, .. }) if refused.is_some() => {}
            Err(error @ Error::Geometry { count: 0, .. }) => refused = Some(error),
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error),
        }
    }
    if let Some(refused) = refused {
        return Err(refused);
    }
    let Some((first, _)) = files.first() else { return Ok(Found::Nothing) };
    // Nothing is indexed yet, so only the size is known. A file of the broker's default size has the default geometry.
    if first.len == Geometry::DEFAULT.file_len() {
        return Ok(Found::Known(Geometry::DEFAULT));
    }
    let path = directory.join(&first.name);
    Ok(Found::NothingIndexed(Error::Geometry { path: path.to_path_buf(), fits: Vec::new(), count: 0, size: first.len }))
}

/// Returns the index files that hold a byte, and their counts: those of the most common size first, of these the fullest.
fn fullest_first(entries: &[Entry]) -> Result<Vec<(&Entry, i32)>> {
    let files: Vec<&Entry> = entries.iter().filter(|e| e.is_numeric() && e.is_file && e.len > 0).collect();
    let mut sizes = HashMap::new();
    for file in &files {
        *sizes.entry(file.len).or_insert(0_usize) += 1;
    }
    remote::expect_heads(&files.iter().map(|file| file.path.clone()).collect::<Vec<_>>());
    // The oldest file of the usual size is mostly full: its newest entries, which show the geometry, are at its end.
    let usual = files.iter().rev().max_by_key(|file| sizes.get(&file.len)).map(|file| file.len);
    let oldest = files.iter().find(|file| Some(file.len) == usual);
    remote::expect_ends(&oldest.map(|file| file.path.clone()).into_iter().collect::<Vec<_>>());
    let mut counted = Vec::with_capacity(files.len());
    for file in files {
        // The counts are checked when a file is opened.
        counted.push((file, index_count(&file.path)?));
    }
    counted.sort_by_key(|(file, held)| std::cmp::Reverse((sizes.get(&file.len).copied(), *held)));
    Ok(counted)
}

/// Checks that the files of a directory have a geometry: for puts all files, for lookups the fullest.
///
/// The content of a file decides. A file without an entry only counts for puts, if it is too long. A damaged file does not count:
/// its content fits nothing, or it has the right slots and became longer or shorter.
///
/// # Errors
/// `InvalidArgument` if a file has other slots and entries; an I/O error.
pub(crate) fn check_geometry(entries: &[Entry], geometry: Geometry, access: Access, for_puts: bool) -> Result<()> {
    let files = fullest_first(entries)?;
    let expected = geometry.file_len();
    let some_right = files.iter().any(|(entry, _)| entry.len == expected);
    for (entry, held) in files.iter().take(if for_puts { usize::MAX } else { 1 }) {
        let (fits, count) = fits(&entry.path, *held, geometry, access)?;
        let slots_fit = fits.iter().any(|(slots, _)| *slots == geometry.hash_slots());
        let is_other = if !for_puts {
            let holds = i64::from(*held) <= i64::from(geometry.max_entries());
            !fits.is_empty() && fits.len() == count && !(holds && slots_fit)
        } else if fits.is_empty() {
            !some_right && entry.len > expected
        } else {
            !(fits.contains(&(geometry.hash_slots(), geometry.max_entries())) || some_right && slots_fit)
        };
        if is_other {
            let content: Vec<_> =
                fits.iter().map(|(slots, most)| format!("{slots} slots and {most} entries")).collect();
            return Err(Error::InvalidArgument(format!(
                "{}: {} slots and {} entries make {expected} bytes, but the file has {} in {} bytes",
                entry.path.display(),
                geometry.hash_slots(),
                geometry.max_entries(),
                if content.is_empty() { "others".to_owned() } else { content.join(" or ") },
                entry.len,
            )));
        }
    }
    Ok(())
}

/// The first few geometries that fit a file, the given one alone if it does, and how many fit.
fn fits(path: &Location, held: i32, given: Geometry, access: Access) -> Result<(Vec<(u32, u32)>, usize)> {
    if held <= 1 {
        return Ok((Vec::new(), 0));
    }
    match FileSource::open(path, access).and_then(|source| bytes::infer_geometry(path, &source, Some(given))) {
        Ok(geometry) => Ok((vec![(geometry.hash_slots(), geometry.max_entries())], 1)),
        Err(Error::Geometry { fits, count, .. }) => Ok((fits, count)),
        Err(error) if error.is_missing() => Ok((Vec::new(), 0)),
        Err(error) => Err(error),
    }
}

/// Infers the geometry of a file. If none fits, tries once more: a writer may be between an entry and its slot.
fn infer(path: &Location, access: Access) -> Result<Geometry> {
    let infer = || FileSource::open(path, access).and_then(|source| bytes::infer_geometry(path, &source, None));
    match infer() {
        Err(Error::Geometry { count: 0, .. }) => {
            thread::sleep(PUT);
            infer()
        }
        inferred => inferred,
    }
}

/// Reads the index count in the header of an index file, unchecked; 0 for a file without a whole header, and without the file.
///
/// # Errors
/// An I/O error.
pub(crate) fn index_count(path: &Location) -> Result<i32> {
    let file = match FileSource::open(path, Access::Pread) {
        Err(error) if error.is_missing() => return Ok(0),
        opened => opened?,
    };
    if file.len() < HEADER_LEN {
        return Ok(0);
    }
    Header::read(&file).map(|header| header.index_count).map_err(|e| Error::io(path, e))
}
