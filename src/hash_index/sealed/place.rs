//! The place of a sealed index: the directory `_logdex`, local or remote, and writes into it.
//!
//! The files of keys are written first, with names of their own, and the catalog last. So a reader sees the index of before or the
//! new one.

use std::collections::BTreeMap;
use std::fs::File;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::catalog::{Catalog, KeysFile, StoreFile};
use super::keys_file;
use super::rows::{self, Row, Rows};
use crate::error::{Error, Result};
use crate::hash_index::sealed::Layout;
use crate::io::remote::expect_whole;
use crate::io::storage::{self, Entry, Kind};
use crate::io::{Location, i64_of};

/// Name of the directory.
pub const DIRECTORY: &str = "_logdex";
/// Name of the catalog in it.
pub const CATALOG: &str = "catalog.parquet";
/// Name of the directory of the files of keys in it.
const KEYS: &str = "keys";
/// A catalog of this many bytes has a hundred million files or row groups.
const MOST_CATALOG_BYTES: u64 = 1 << 30;
/// An older file that no catalog names was left by a killed call.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the directory of a sealed index below a directory, or the directory itself if it has the name.
pub fn directory_in(out: &Location) -> Location {
    if out.file_name().is_some_and(|name| name == DIRECTORY) { out.to_owned() } else { out.join(DIRECTORY) }
}

/// A file of a store with its path, as it was before its content was read.
pub type Listed = (Location, StoreFile);

/// Lists the files below the root of a store, without those of its sealed index. `kind_of` names the kind of a file by its path
/// below the root.
///
/// # Errors
/// The system's error, with the path.
pub fn list_store(
    root: &Location,
    directory: &Location,
    kind_of: impl Fn(&str) -> &'static str,
) -> Result<Vec<Listed>> {
    storage::expect_tree(root);
    let mut files = Vec::new();
    list_below(root, "", directory, &kind_of, &mut files)?;
    Ok(files)
}

fn list_below(
    directory: &Location,
    above: &str,
    sealed: &Location,
    kind_of: &impl Fn(&str) -> &'static str,
    files: &mut Vec<Listed>,
) -> Result<()> {
    let mut entries = storage::list(directory)?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in entries {
        let name = entry.name.to_string_lossy();
        if entry.path == *sealed || (above.is_empty() && name == DIRECTORY) {
            continue;
        }
        let path = format!("{above}{name}");
        match entry.status()? {
            Some(status) if status.kind == Kind::File => {
                let file = StoreFile::new(&path, kind_of(&path), &status);
                files.push((entry.path, file));
            }
            Some(status) if status.kind == Kind::Directory => {
                list_below(&entry.path, &format!("{path}/"), sealed, kind_of, files)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns no rows yet, whose temporary file will be next to the sealed index, or on this machine if that is remote.
///
/// # Errors
/// The system's error, with the path.
pub fn no_rows(directory: &Location) -> Result<Rows> {
    let temporary = if directory.is_remote() { std::env::temp_dir().into() } else { directory.clone() };
    storage::create_directories(&temporary)?;
    Ok(Rows::new(&temporary))
}

/// The presence of a sealing in the directory of a sealed index: a shared lock if the file system supports locks.
#[derive(Debug)]
pub struct Presence(Option<File>);

impl Presence {
    /// Starts a sealing in a directory. The directory may be missing.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn begin(directory: &Location) -> Result<Self> {
        storage::create_directories(directory)?;
        let opened = if directory.is_remote() { None } else { File::open(directory).ok() };
        Ok(Self(opened.filter(|directory| directory.lock_shared().is_ok())))
    }

    /// Returns whether no other sealing runs in the directory. From then on other sealings wait until this one ends.
    fn is_alone(&self) -> bool {
        self.0.as_ref().is_some_and(|directory| directory.try_lock().is_ok())
    }
}

/// Returns a name for the files of keys of one call.
pub fn name_of_now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:011x}-{:x}", now.as_millis(), std::process::id())
}

/// Reads the catalog in a directory. Other directories are listed at the same time, if they are remote.
///
/// # Errors
/// `NotFound`; `Corrupt` if it is not a sealed index; an I/O error, with the path.
pub fn read_catalog(directory: &Location, beside: &[Location]) -> Result<Catalog> {
    let path = directory.join(CATALOG);
    let (_, bytes) = storage::read_whole(&path, MOST_CATALOG_BYTES, beside)?;
    Catalog::decode(&path, bytes)
}

/// Begins to read the catalog in a remote directory, so that the next [`read_catalog`] needs no request.
pub fn expect_catalog(directory: &Location) {
    expect_whole(&directory.join(CATALOG), MOST_CATALOG_BYTES);
}

/// Writes rows as files of keys. The names begin with `name`.
///
/// # Errors
/// The system's error, with the path.
pub fn write_keys(
    directory: &Location,
    name: &str,
    layout: &Layout,
    rows: Rows,
    threads: usize,
) -> Result<Vec<KeysFile>> {
    storage::create_directories(&directory.join(KEYS))?;
    rows.write(threads, |number, pieces| {
        write_file(directory, format!("{KEYS}/{name}-{number:05}.parquet"), layout, pieces)
    })
}

fn write_file(
    directory: &Location,
    path: String,
    layout: &Layout,
    pieces: &mut dyn Iterator<Item = Result<Vec<Row>>>,
) -> Result<KeysFile> {
    let (bytes, groups) = keys_file::encode(layout, pieces)?;
    let size = i64_of(bytes.len());
    let status = storage::put_whole(&directory.join(&path), bytes.into())?;
    Ok(KeysFile { path, size, etag: status.etag().map(str::to_owned), groups })
}

/// Writes the rows of each of some ranges, packed by [`super::rows::Packer`] and in any order, as one file, and returns its
/// description: a catalog with nothing else. The names begin with `name` and end with `attempt`.
///
/// # Errors
/// `InvalidArgument` for bytes that are not packed rows; an I/O error, with the path.
pub fn write_packed(
    directory: &Location,
    name: &str,
    attempt: i64,
    layout: &Layout,
    ranges: BTreeMap<i32, Vec<Row>>,
) -> Result<Vec<Vec<u8>>> {
    storage::create_directories(&directory.join(KEYS))?;
    let write = |(range, mut rows): (i32, Vec<Row>)| {
        rows.sort_unstable_by_key(Row::order);
        let path = format!("{KEYS}/{name}-{range:05}-{attempt}.parquet");
        let keys = vec![write_file(directory, path, layout, &mut std::iter::once(Ok(rows)))?];
        Catalog { layout: layout.clone(), files: Vec::new(), keys, notes: BTreeMap::new() }.encode()
    };
    ranges.into_iter().map(write).collect()
}

/// Reads what [`write_packed`] returned in all processes, which wrote this many rows.
///
/// # Errors
/// `Corrupt` if rows are missing.
pub fn described(directory: &Location, written: Vec<Bytes>, expected: u64) -> Result<Vec<KeysFile>> {
    let mut files = Vec::new();
    for bytes in written {
        files.extend(Catalog::decode(&directory.join(CATALOG), bytes)?.keys);
    }
    files.sort_by_key(|file| file.groups.first().map(|group| group.first_key_hash));
    let found: u64 = files.iter().map(KeysFile::rows).sum();
    if expected != found {
        return Err(Error::corrupt(directory, 0, format!("{expected} rows"), found.to_string()));
    }
    // This process may have cached an older list of the directory.
    directory.forget_listings();
    Ok(files)
}

/// Deletes the files of keys whose names begin with `name`: those of a job that failed. If it failed after its catalog was written,
/// they stay.
///
/// # Errors
/// The system's error, with the path.
pub fn discard(directory: &Location, name: &str) -> Result<()> {
    // Other processes wrote them.
    directory.forget_listings();
    let begin = format!("{KEYS}/{name}");
    match read_catalog(directory, &[]) {
        Ok(catalog) if catalog.keys.iter().any(|file| file.path.starts_with(&begin)) => return Ok(()),
        Err(error @ Error::Io { .. }) if !error.is_missing() => return Err(error),
        // None, that of before, or one that cannot be read.
        _ => {}
    }
    delete_if(&directory.join(KEYS), |entry| Ok(entry.name.to_string_lossy().starts_with(name)))
}

/// Writes the catalog, then deletes the files of the replaced catalog and the files that a killed call left.
///
/// Another sealing may be writing files that no catalog names yet. Unless the lock shows that no other sealing runs, only
/// old files are deleted.
///
/// # Errors
/// The system's error, with the path.
pub fn publish(directory: &Location, catalog: &Catalog, presence: &Presence) -> Result<()> {
    storage::create_directories(directory)?;
    let former = read_catalog(directory, &[]).map_or_else(|_| Vec::new(), |former| former.keys);
    storage::put_whole(&directory.join(CATALOG), catalog.encode()?.into())?;
    clean_up(directory, &former, catalog, presence)
}

/// Deletes the files that the new catalog does not use; `former` are the files of the replaced catalog.
fn clean_up(directory: &Location, former: &[KeysFile], catalog: &Catalog, presence: &Presence) -> Result<()> {
    let is_alone = presence.is_alone();
    // Another sealing may have written its catalog and ended meanwhile.
    let kept = if is_alone { read_catalog(directory, &[])?.keys } else { catalog.keys.clone() };
    let is_named = |keys: &[KeysFile], name: &str| keys.iter().any(|file| file.path == format!("{KEYS}/{name}"));
    delete_if(&directory.join(KEYS), |entry| {
        let name = entry.name.to_string_lossy();
        let is_over = is_alone || is_named(former, &name) || is_abandoned(entry)?;
        Ok(is_over && !is_named(&kept, &name))
    })?;
    let temporary = [CATALOG, rows::TEMPORARY].map(|name| format!(".{name}."));
    delete_if(directory, |entry| {
        let name = entry.name.to_string_lossy();
        Ok(temporary.iter().any(|beginning| name.starts_with(beginning)) && (is_alone || is_abandoned(entry)?))
    })
}

fn is_abandoned(entry: &Entry) -> Result<bool> {
    let modified = entry.status()?.and_then(|found| found.modified);
    Ok(modified.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > ABANDONED))
}

/// Deletes some of the files in a directory. The directory may be missing. Another call may delete the files at the same time.
fn delete_if(directory: &Location, is_over: impl Fn(&Entry) -> Result<bool>) -> Result<()> {
    let listed = match storage::list(directory) {
        Err(error) if error.is_missing() => Vec::new(),
        listed => listed?,
    };
    for entry in listed {
        if is_over(&entry)? {
            match storage::delete(&entry.path) {
                Err(error) if error.is_missing() => {}
                deleted => deleted?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_fails_late_keeps_the_files_of_its_catalog() {
        let directory = tempfile::tempdir().unwrap();
        let directory = &Location::from(directory.path());
        let count = || std::fs::read_dir(directory.join(KEYS)).map_or(0, Iterator::count);
        let write = |name: &str| {
            let row = Row { key_hash: 1, part: 0, offset: 2, time: 3 };
            let written = write_packed(directory, name, 0, &Layout::OneLog, BTreeMap::from([(0, vec![row])])).unwrap();
            described(directory, written.into_iter().map(Bytes::from).collect(), 1).unwrap()
        };
        write("early");
        discard(directory, "early").unwrap();
        assert_eq!(count(), 0);
        let keys = write("late");
        let catalog = Catalog { layout: Layout::OneLog, files: Vec::new(), keys, notes: BTreeMap::new() };
        publish(directory, &catalog, &Presence::begin(directory).unwrap()).unwrap();
        write("other");
        for name in ["late", "other"] {
            discard(directory, name).unwrap();
            assert_eq!(count(), if name == "late" { 2 } else { 1 });
        }
        assert_eq!(read_catalog(directory, &[]).unwrap().keys, catalog.keys);
    }

    fn files(directory: &Location) -> usize {
        std::fs::read_dir(directory.join(KEYS)).map_or(0, Iterator::count)
    }

    /// Writes the files of a sealing that is not published yet.
    fn sealing(directory: &Location, name: &str) -> (Presence, Catalog) {
        let mut rows = Rows::new(directory);
        rows.push(&[Row { key_hash: 1, part: 0, offset: 2, time: 3 }]).unwrap();
        rows.keep();
        let presence = Presence::begin(directory).unwrap();
        let keys = write_keys(directory, name, &Layout::OneLog, rows, 1).unwrap();
        (presence, Catalog { layout: Layout::OneLog, files: Vec::new(), keys, notes: BTreeMap::new() })
    }

    #[test]
    fn of_two_sealings_at_once_the_last_catalog_has_its_files() {
        let directory = tempfile::tempdir().unwrap();
        let directory = &Location::from(directory.path());
        let (first, second) = (sealing(directory, "first"), sealing(directory, "second"));
        for (presence, catalog) in [first, second] {
            publish(directory, &catalog, &presence).unwrap();
            for file in &read_catalog(directory, &[]).unwrap().keys {
                assert!(directory.join(&file.path).exists(), "{}", file.path);
            }
        }
        assert_eq!(files(directory), 1);
    }

    #[test]
    fn a_sealing_that_cleans_up_late_keeps_the_files_of_a_later_catalog() {
        let directory = tempfile::tempdir().unwrap();
        let directory = &Location::from(directory.path());
        let (presence, catalog) = sealing(directory, "first");
        storage::put_whole(&directory.join(CATALOG), catalog.encode().unwrap().into()).unwrap();
        let (second, later) = sealing(directory, "second");
        publish(directory, &later, &second).unwrap();
        drop(second);
        clean_up(directory, &[], &catalog, &presence).unwrap();
        assert_eq!(files(directory), 1);
        assert!(directory.join(&later.keys[0].path).exists());
    }

    #[test]
    fn what_killed_sealings_left_goes_with_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let directory = &Location::from(directory.path());
        drop(sealing(directory, "killed"));
        for name in [".catalog.parquet.17", ".rows.17.0", "keys/.killed-00001.parquet.17"] {
            std::fs::write(directory.join(name), b"half").unwrap();
        }
        let (presence, catalog) = sealing(directory, "next");
        publish(directory, &catalog, &presence).unwrap();
        assert_eq!(files(directory), 1);
        assert!(!directory.join(".catalog.parquet.17").exists());
        assert!(!directory.join(".rows.17.0").exists());
    }
}
