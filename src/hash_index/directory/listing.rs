//! The names in an index directory.
//!
//! In an object store nothing can be renamed. So the objects of a job stay where they were written, and the last write of the job
//! is one small object, `_committed.json`, that names them: docs/formats/rocketmq-index.md, "An index in an object store".

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::io::Location;
use crate::io::storage::{self, Identity, Kind};
use crate::java_text::parse_long;

/// The object that names the files of an index.
pub(crate) const COMMITTED: &str = "_committed.json";
const VERSION: u64 = 1;
/// Digits of the names of log and queue files.
const LOG_NAME_DIGITS: usize = 20;

/// One name in an index directory. A file that is replaced or changes its size becomes another entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name; bytes that are not UTF-8 are as the directory has them only in the path.
    pub name: String,
    /// The path of the file.
    pub path: Location,
    /// Length in bytes.
    pub len: u64,
    /// True for a regular file, also through links.
    pub is_file: bool,
    /// Shows if another file took the name.
    identity: Identity,
}

impl Entry {
    /// Returns whether a broker takes the name for an index file's.
    pub fn is_numeric(&self) -> bool {
        is_index_file_name(&self.name)
    }
}

/// Returns whether a broker takes a name for an index file: a signed decimal of 64 bits, in the digits of any script.
///
/// Source: `MappedFile#init`, which calls `Long.parseLong`. A broker writes names in the digits of its locale.
pub fn is_index_file_name(name: &str) -> bool {
    parse_long(name).is_some()
}

/// Returns the key by which a broker sorts names: UTF-16 code units (`File#compareTo`).
fn sort_key(name: &str) -> Vec<u16> {
    name.encode_utf16().collect()
}

/// Lists a directory in the broker's load order (`IndexService#load`). Names that vanish meanwhile are left out.
///
/// Names that begin with `_` or `.` belong to batch jobs (Hadoop's convention, such as Spark's `_SUCCESS`): left out, too. If a
/// job committed files in an object store, these are the only ones, also in a copy of it.
///
/// # Errors
/// `NotFound`; `Corrupt` if a job that writes index files was killed in the middle of its commit; an I/O error.
pub fn list(directory: &Location) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let listed = storage::list(directory)?;
    if listed.iter().any(|entry| entry.name == COMMITTED) {
        return committed_entries(directory);
    }
    for each in listed {
        let name = each.name.to_string_lossy().into_owned();
        if name.starts_with(['_', '.']) {
            if name == "_temporary" && !directory.is_remote() {
                refuse_commit(&each.path)?;
            }
            continue;
        }
        if let Some(found) = each.status()? {
            let (len, is_file) = (found.len, found.kind == Kind::File);
            entries.push(Entry { name, path: each.path, len, is_file, identity: found.identity });
        }
    }
    entries.sort_by_cached_key(|entry| sort_key(&entry.name));
    Ok(entries)
}

/// Refuses a directory in which a Spark job was killed while it gave the files their names: only some may have them.
fn refuse_commit(temporary: &Location) -> Result<()> {
    for job in storage::list(temporary)? {
        let commit = job.path.join("commit");
        if storage::exists(&commit)? {
            let found =
                "one that is under way, or was interrupted: a read by Spark's format rocketmq_index finishes it";
            return Err(Error::corrupt(&commit, 0, "no commit of a Spark job", found));
        }
    }
    Ok(())
}

fn committed_entries(directory: &Location) -> Result<Vec<Entry>> {
    let files = read_committed(directory)?;
    let entry = |(name, (object, len)): (String, (String, u64))| Entry {
        path: directory.join(object),
        name,
        len,
        is_file: true,
        identity: Identity::Remote(None),
    };
    let mut entries: Vec<Entry> = files.into_iter().map(entry).collect();
    // All of them will be opened.
    for job in entries.iter().filter_map(|entry| entry.path.parent()).collect::<std::collections::BTreeSet<_>>() {
        storage::expect_list(&job);
    }
    entries.sort_by_cached_key(|entry| sort_key(&entry.name));
    Ok(entries)
}

/// Returns the files that a job committed: their names, where they are below the directory, and their bytes.
///
/// # Errors
/// `NotFound` if nothing was committed; `Corrupt` if the object is damaged.
pub(crate) fn read_committed(directory: &Location) -> Result<BTreeMap<String, (String, u64)>> {
    let path = directory.join(COMMITTED);
    let content = storage::read_file(&path, None)?;
    parse_committed(&content).ok_or_else(|| {
        let begin = content.get(..content.len().min(200)).unwrap_or(&content);
        let expected = format!("JSON of version {VERSION} with the names, objects and sizes of files");
        Error::corrupt(&path, 0, expected, format!("b\"{}\"", begin.escape_ascii()))
    })
}

fn parse_committed(content: &[u8]) -> Option<BTreeMap<String, (String, u64)>> {
    let read: Value = serde_json::from_slice(content).ok()?;
    if read.get("version")?.as_u64()? != VERSION {
        return None;
    }
    let file = |(name, file): (&String, &Value)| {
        let file = file.as_object().filter(|file| file.len() == 2)?;
        let (object, len) = (file.get("object")?.as_str()?, file.get("size")?.as_u64()?);
        let is_below = object.split('/').all(|part| !matches!(part, "" | "." | ".."));
        // A log or queue file has 20 digits.
        let is_name = is_index_file_name(name) && name.chars().count() != LOG_NAME_DIGITS;
        (is_below && is_name).then(|| (name.clone(), (object.to_owned(), len)))
    };
    read.get("files")?.as_object()?.iter().map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_by_utf16_units_and_those_of_jobs_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["20250208105220772", "+5", "notes.txt", "_SUCCESS", ".crc", "\u{ff10}", "\u{1f600}"] {
            std::fs::write(folder.path().join(name), b"x").unwrap();
        }
        std::fs::create_dir(folder.path().join("7")).unwrap();
        let entries = list(&folder.path().into()).unwrap();
        let found: Vec<_> =
            entries.iter().map(|entry| (entry.name.as_str(), entry.is_numeric(), entry.is_file)).collect();
        let expected = [
            ("+5", true, true),
            ("20250208105220772", true, true),
            ("7", true, false),
            ("notes.txt", false, true),
            ("\u{1f600}", false, true),
            ("\u{ff10}", true, true),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_files_of_a_job_are_those_that_it_committed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("20250208105220772"), b"not committed").unwrap();
        let files = BTreeMap::from([("7".to_owned(), ("_jobs/a/7".to_owned(), 44))]);
        let content = br#"{"version": 1, "files": {"7": {"object": "_jobs/a/7", "size": 44}}}"#;
        std::fs::write(folder.path().join(COMMITTED), content).unwrap();
        assert_eq!(read_committed(&folder.path().into()).unwrap(), files);
        let entries = list(&folder.path().into()).unwrap();
        assert_eq!(entries.iter().map(|entry| (&*entry.name, entry.len)).collect::<Vec<_>>(), [("7", 44)]);
        for damage in [
            &b"no JSON"[..],
            b"{\"version\": 2, \"files\": {}}",
            br#"{"version":1,"files":{"7":{"object":"../7","size":1}}}"#,
        ] {
            std::fs::write(folder.path().join(COMMITTED), damage).unwrap();
            assert!(matches!(list(&folder.path().into()), Err(Error::Corrupt { offset: 0, .. })));
        }
    }

    #[test]
    fn a_commit_that_was_interrupted_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let job = folder.path().join("_temporary/job");
        std::fs::create_dir_all(&job).unwrap();
        assert!(list(&folder.path().into()).unwrap().is_empty());
        std::fs::write(job.join("commit"), b"").unwrap();
        assert!(matches!(list(&folder.path().into()), Err(Error::Corrupt { .. })));
    }
}
