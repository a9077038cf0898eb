//! The key index of a log directory: index files for each partition, from the key of a record to its offset.
//!
//! docs/formats/kafka-log.md, "Key index", describes the files. An answer is a candidate: a search compares the record's own key.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::seal::{Candidates, Partition};
use crate::error::{Error, Result};
use crate::hash_index::directory::{self, FilesOptions, IndexFiles};
use crate::hash_index::{Geometry, Hits, IndexFile, KeyColumn, Keys, Topics, select_files};
use crate::io::{Location, ProcessMutex, storage};
use crate::time_range::TimeRange;

/// The file of the settings, next to the index files of a partition.
const SETTINGS: &str = "_key_index.json";
/// Bytes of wrong settings that an error shows.
const SHOWN: usize = 200;

/// Settings that do not change after the index of a partition is begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySettings {
    /// Slots of an index file, and entries that it holds plus one.
    pub geometry: Geometry,
    /// The header whose values are indexed next to the keys.
    pub header: Option<String>,
}

impl KeySettings {
    /// Reads the settings of a partition's index; `None` without an index.
    ///
    /// # Errors
    /// `Corrupt` for other content; an I/O error.
    pub fn read(directory: &Location) -> Result<Option<Self>> {
        let path = directory.join(SETTINGS);
        let content = match storage::read_file(&path, None) {
            Err(error) if error.is_missing() => return Ok(None),
            content => content?,
        };
        let values: Value =
            serde_json::from_slice(&content).map_err(|e| Error::corrupt(&path, 0, "JSON", e.to_string()))?;
        let settings = Self::of(&values).ok_or_else(|| {
            let found = values.to_string().chars().take(SHOWN).collect::<String>();
            Error::corrupt(&path, 0, "hash_slots, max_entries and header", found)
        })?;
        Ok(Some(settings))
    }

    fn of(values: &Value) -> Option<Self> {
        let values = values.as_object().filter(|values| values.len() == 3)?;
        let number = |name| values.get(name)?.as_u64().and_then(|number| u32::try_from(number).ok());
        let header = match values.get("header")? {
            Value::Null => None,
            header => Some(header.as_str()?.to_owned()),
        };
        Some(Self { geometry: Geometry::new(number("hash_slots")?, number("max_entries")?).ok()?, header })
    }

    /// Checks that all index files are whole: a truncated file would silently shorten an answer.
    ///
    /// # Errors
    /// `Corrupt` for a file of another length; an I/O error.
    pub fn check_files(&self, directory: &Location) -> Result<()> {
        let expected = self.geometry.file_len();
        let wrong = |entry: &directory::Entry| entry.is_numeric() && entry.len != expected;
        match directory::list(directory)?.into_iter().find(wrong) {
            None => Ok(()),
            Some(entry) => Err(Error::corrupt(
                &entry.path,
                entry.len.min(expected),
                format!("{expected} bytes, as all files of this index have; build it again in another directory"),
                format!("{} bytes", entry.len),
            )),
        }
    }
}

type Opened = (KeySettings, Arc<IndexFiles>);

/// A key index, open for searches. The index files of a partition are opened at its first search.
#[derive(Debug)]
pub struct KeyIndex {
    directory: Location,
    open: ProcessMutex<HashMap<Partition, Opened>>,
    notes: ProcessMutex<Vec<String>>,
}

impl KeyIndex {
    /// Uses a directory with a directory for each partition.
    pub fn new(directory: &Location) -> Self {
        Self { directory: directory.to_owned(), open: ProcessMutex::new(), notes: ProcessMutex::new() }
    }

    /// The directory.
    pub fn directory(&self) -> &Location {
        &self.directory
    }

    /// Returns the candidates of a text in a partition: that of a key, or with a header that of its value. Without an index, or if the
    /// header is not indexed, nothing is covered. Each index file covers the offsets from its first entry to its last one, so a file
    /// that is missing leaves a hole.
    ///
    /// # Errors
    /// `Corrupt` if the settings are damaged or an index file is not whole; an I/O error.
    pub fn candidates(&self, partition: &Partition, text: &str, header: Option<&str>) -> Result<Candidates> {
        let (topic, number) = partition;
        let directory = self.directory.join(format!("{topic}-{number}"));
        let Some(settings) = KeySettings::read(&directory)? else { return Ok(Candidates::default()) };
        if header.is_some() && header != settings.header.as_deref() {
            return Ok(Candidates::default());
        }
        settings.check_files(&directory)?;
        let files = self.files(partition, &directory, settings)?;
        let mut covered = Vec::new();
        for file in files.refresh()? {
            if !file.is_empty()? {
                let header = file.header()?;
                covered.push((header.begin_phy_offset, header.end_phy_offset.saturating_add(1)));
            }
        }
        covered.sort_unstable();
        let files = files.newest_first(TimeRange::ALL, 0)?;
        let files: Vec<&IndexFile> = files.iter().map(AsRef::as_ref).collect();
        let keys = Keys::new(KeyColumn::Text(vec![text].into()), Topics::one(topic.as_bytes()));
        let mut hits = Hits::with_rows(1);
        // No bounds: the time of an entry is only a hint, the record's own is compared.
        if let Some((file, damage)) = select_files(&files, &keys, 0..1, None, TimeRange::ALL, &mut hits)? {
            self.notes.with(|notes| notes.push(damage.note(file.path())));
        }
        Ok(Candidates { covered, offsets: hits.phy_offsets().to_vec() })
    }

    fn files(&self, partition: &Partition, directory: &Location, settings: KeySettings) -> Result<Arc<IndexFiles>> {
        let known = self.open.with(|open| open.get(partition).cloned());
        if let Some((_, files)) = known.filter(|(known, _)| *known == settings) {
            return Ok(files);
        }
        let options = FilesOptions { geometry: Some(settings.geometry), ..FilesOptions::default() };
        let files = Arc::new(IndexFiles::new(directory, options));
        files.check_geometry(false)?;
        self.open.with(|open| open.insert(partition.clone(), (settings, Arc::clone(&files))));
        Ok(files)
    }

    /// Returns the texts for the log since the last call: damaged chains, and files that were left out.
    pub fn take_notes(&self) -> Vec<String> {
        let mut notes = self.notes.with(std::mem::take);
        let open: Vec<_> = self.open.with(|open| open.values().map(|(_, files)| Arc::clone(files)).collect());
        notes.extend(open.iter().flat_map(|files| files.take_notes()));
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash_index::CreateOptions;

    fn partition(number: i32) -> Partition {
        ("orders".to_owned(), number)
    }

    /// An index of partition 0 with two files: of the offsets 10 and 11, and of 30 and 31.
    fn index(folder: &std::path::Path, settings: &str) -> KeyIndex {
        let directory = folder.join("orders-0");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join(SETTINGS), settings).unwrap();
        for (name, first) in [("20250208105220772", 10), ("20250208105220773", 30)] {
            let options = CreateOptions::new(Geometry::new(2, 4).unwrap());
            let file = IndexFile::create(&directory.join(name), options).unwrap();
            file.put_key("orders#k", first, 0).unwrap();
            file.put_key("orders#h=v", first + 1, 0).unwrap();
        }
        KeyIndex::new(&folder.into())
    }

    #[test]
    fn candidates_are_those_of_a_key_or_of_a_header() {
        let folder = tempfile::tempdir().unwrap();
        let index = index(folder.path(), r#"{"hash_slots": 2, "max_entries": 4, "header": "h"}"#);
        let covered = vec![(10, 12), (30, 32)];
        let found = |text, header| index.candidates(&partition(0), text, header).unwrap();
        assert_eq!(found("k", None), Candidates { covered: covered.clone(), offsets: vec![30, 10] });
        assert_eq!(found("h=v", Some("h")), Candidates { covered, offsets: vec![31, 11] });
        assert_eq!(found("i=v", Some("i")), Candidates::default());
        assert_eq!(index.candidates(&partition(1), "k", None).unwrap(), Candidates::default());
    }

    #[test]
    fn files_stay_open_until_the_settings_change() {
        let folder = tempfile::tempdir().unwrap();
        let index = index(folder.path(), r#"{"hash_slots": 2, "max_entries": 4, "header": null}"#);
        let opened = || {
            index.candidates(&partition(0), "k", None).unwrap();
            index.open.with(|open| Arc::clone(&open[&partition(0)].1))
        };
        let first = opened();
        assert!(Arc::ptr_eq(&first, &opened()));
        let path = folder.path().join("orders-0").join(SETTINGS);
        std::fs::write(path, r#"{"hash_slots": 2, "max_entries": 4, "header": "h"}"#).unwrap();
        assert!(!Arc::ptr_eq(&first, &opened()));
    }

    #[test]
    fn settings_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let (directory, path) = (folder.path().into(), folder.path().join(SETTINGS));
        assert_eq!(KeySettings::read(&directory).unwrap(), None);
        let written = r#"{"hash_slots": 256, "max_entries": 1024, "header": null}"#;
        for (text, header) in [("null", None), (r#""a \"quoted\" \u00e9""#, Some("a \"quoted\" \u{e9}".to_owned()))] {
            std::fs::write(&path, written.replace("null", text)).unwrap();
            let settings = KeySettings { geometry: Geometry::new(256, 1024).unwrap(), header };
            assert_eq!(KeySettings::read(&directory).unwrap(), Some(settings));
        }
        for wrong in ["", "[]", "{}", &written.replace("256", "0"), &written.replace("1024", "4294967296")] {
            std::fs::write(&path, wrong).unwrap();
            assert!(matches!(KeySettings::read(&directory), Err(Error::Corrupt { offset: 0, .. })), "{wrong}");
        }
    }
}
