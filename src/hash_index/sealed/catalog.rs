//! The catalog of a sealed store: its files as they were, and the row groups of the files of keys.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

use super::keys_file::{Group, Layout};
use super::table::{self, Kind, Table};
use crate::error::{Error, Result};
use crate::io::storage::{self, Status};
use crate::io::{Location, i64_of};

/// Name of the note that holds the version of the format.
const VERSION_NOTE: &str = "logdex.sealed";
const VERSION: &str = "2";
/// The place of the CRC-32 of all other bytes, little-endian: after the first magic, where Parquet has nothing.
const CRC: std::ops::Range<usize> = 4..8;
/// The kind of the files of keys.
const KEYS: &str = "keys";

/// A file of the store, as it was when the store was sealed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreFile {
    /// Path below the root of the store, with `/`.
    pub path: String,
    /// Its kind: `commit-log`, `index`, `consume-queue`...
    pub kind: String,
    /// Length in bytes.
    pub size: i64,
    /// Time of the last change, in ns since the epoch.
    pub modified: Option<i64>,
    /// The `ETag`, of an object.
    pub etag: Option<String>,
    /// Offset of the first message.
    pub first_offset: Option<i64>,
    /// Offset of the last message.
    pub last_offset: Option<i64>,
    /// Offset after the last message.
    pub end_offset: Option<i64>,
    /// Store time of the first message, in ms.
    pub first_timestamp: Option<i64>,
    /// Store time of the last message, in ms.
    pub last_timestamp: Option<i64>,
    /// Rows of the sealed index that come from it; `None`: none, because it is not sealed.
    pub entries: Option<i64>,
}

impl StoreFile {
    /// Describes a file: its identity, and nothing of its content.
    pub fn new(path: &str, kind: &str, status: &Status) -> Self {
        Self {
            path: path.to_owned(),
            kind: kind.to_owned(),
            size: i64_of(status.len),
            modified: status.modified_ns(),
            etag: status.etag().map(str::to_owned),
            ..Self::default()
        }
    }

    /// True if a file is the one that was described: by length and `ETag`, or by length and time.
    pub fn is_same(&self, now: &Status) -> bool {
        i64::try_from(now.len).ok() == Some(self.size)
            && match (now.etag(), &self.etag) {
                (Some(now), Some(then)) => now == then,
                (None, None) => now.modified_ns() == self.modified,
                _ => false,
            }
    }

    /// As [`Self::is_same`], of the file at a path; false if there is none.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn is_still_at(&self, path: &Location) -> Result<bool> {
        match storage::status(path) {
            Ok(status) => Ok(self.is_same(&status)),
            Err(error) if error.is_missing() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A file of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeysFile {
    /// Path below the directory of the catalog.
    pub path: String,
    /// Length in bytes.
    pub size: i64,
    /// The `ETag`, of an object.
    pub etag: Option<String>,
    /// Its row groups.
    pub groups: Vec<Group>,
}

impl KeysFile {
    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.groups.iter().map(|group| u64::from(group.rows)).sum()
    }
}

/// The facts known of a sealed store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalog {
    /// The columns of the files of keys.
    pub layout: Layout,
    /// Files of the store.
    pub files: Vec<StoreFile>,
    /// Files of keys, in the order of their hashes.
    pub keys: Vec<KeysFile>,
    /// Facts about the store, by name.
    pub notes: BTreeMap<String, String>,
}

const NUMBERS: [(&str, Kind); 8] = [
    ("size", Kind::Int64),
    ("modified", Kind::Nanoseconds),
    ("first_offset", Kind::Int64),
    ("last_offset", Kind::Int64),
    ("end_offset", Kind::Int64),
    ("first_timestamp", Kind::Milliseconds),
    ("last_timestamp", Kind::Milliseconds),
    ("entries", Kind::Int64),
];
const LISTS: [&str; 4] = ["group_key_hash", "group_rows", "group_crc", "group_sizes"];
const LAYOUT_NOTE: &str = "logdex.kind";
const PART_NOTE: &str = "logdex.partition.";

/// One row of the file.
struct Line<'a> {
    path: &'a str,
    kind: &'a str,
    etag: Option<&'a str>,
    numbers: [Option<i64>; NUMBERS.len()],
    groups: &'a [Group],
}

impl Catalog {
    fn lines(&self) -> Vec<Line<'_>> {
        let of_store = self.files.iter().map(|file| Line {
            path: &file.path,
            kind: &file.kind,
            etag: file.etag.as_deref(),
            numbers: [
                Some(file.size),
                file.modified,
                file.first_offset,
                file.last_offset,
                file.end_offset,
                file.first_timestamp,
                file.last_timestamp,
                file.entries,
            ],
            groups: &[],
        });
        let of_keys = self.keys.iter().map(|file| Line {
            path: &file.path,
            kind: KEYS,
            etag: file.etag.as_deref(),
            numbers: [Some(file.size), None, None, None, None, None, None, i64::try_from(file.rows()).ok()],
            groups: &file.groups,
        });
        of_store.chain(of_keys).collect()
    }

    /// The notes of the file, but for its checksum.
    fn all_notes(&self) -> BTreeMap<String, String> {
        let mut notes = self.notes.clone();
        notes.insert(VERSION_NOTE.to_owned(), VERSION.to_owned());
        match &self.layout {
            Layout::OneLog => _ = notes.insert(LAYOUT_NOTE.to_owned(), "rocketmq".to_owned()),
            Layout::Partitions(parts) => {
                notes.insert(LAYOUT_NOTE.to_owned(), "kafka".to_owned());
                for (number, (topic, partition)) in parts.iter().enumerate() {
                    notes.insert(format!("{PART_NOTE}{number:08}"), format!("{topic} {partition}"));
                }
            }
        }
        notes
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// `InvalidArgument` if it cannot be encoded.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.to_parquet().map_err(|error| Error::InvalidArgument(format!("catalog of a sealed index: {error}")))
    }

    fn to_parquet(&self) -> ParquetResult<Vec<u8>> {
        let mut fields = vec![
            table::field("path", Kind::Text, false)?,
            table::field("kind", Kind::Text, false)?,
            table::field("etag", Kind::Text, true)?,
        ];
        for (name, kind) in NUMBERS {
            fields.push(table::field(name, kind, true)?);
        }
        for name in LISTS {
            fields.push(table::field(name, Kind::Numbers, true)?);
        }
        let notes = self.all_notes().into_iter().map(|(name, note)| KeyValue::new(name, note)).collect();
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("logdex ", env!("CARGO_PKG_VERSION")).into())
            .set_compression(Compression::UNCOMPRESSED)
            .set_key_value_metadata(Some(notes))
            .set_column_encoding("path".into(), Encoding::DELTA_BYTE_ARRAY)
            .set_column_dictionary_enabled("path".into(), false);
        let lists = LISTS.iter().map(|name| vec![(*name).to_owned(), "list".to_owned(), "element".to_owned()]);
        for path in NUMBERS.iter().map(|(name, _)| vec![(*name).to_owned()]).chain(lists) {
            properties = properties
                .set_column_encoding(path.clone().into(), Encoding::DELTA_BINARY_PACKED)
                .set_column_dictionary_enabled(path.into(), false);
        }
        let schema = table::schema("sealed_catalog", fields)?;
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build()))?;
        writer.write_all(&[0; CRC.end - CRC.start])?;
        let lines = self.lines();
        let mut group = writer.next_row_group()?;
        table::write_text(&mut group, lines.iter().map(|line| line.path))?;
        table::write_text(&mut group, lines.iter().map(|line| line.kind))?;
        table::write_optional::<ByteArrayType, _>(&mut group, lines.iter().map(|line| line.etag.map(ByteArray::from)))?;
        for number in 0..NUMBERS.len() {
            let values = lines.iter().map(|line| line.numbers.get(number).copied().flatten());
            table::write_optional::<Int64Type, _>(&mut group, values)?;
        }
        for name in LISTS {
            let lists: Vec<Vec<i64>> =
                lines.iter().map(|line| list_of(name, line.groups, self.layout.columns().len())).collect();
            table::write_lists(&mut group, lists.iter().map(Vec::as_slice))?;
        }
        group.close()?;
        let mut bytes = writer.into_inner()?;
        let crc = checksum(&bytes);
        if let Some(place) = bytes.get_mut(CRC) {
            place.copy_from_slice(&crc.to_le_bytes());
        }
        Ok(bytes)
    }

    /// Reads a catalog.
    ///
    /// # Errors
    /// `Corrupt` if it is none, one of another version, or damaged.
    pub fn decode(path: &Path, bytes: Bytes) -> Result<Self> {
        // First, because the Parquet reader may panic at a damaged file.
        let stated = bytes.get(CRC).and_then(|crc| crc.first_chunk()).copied().map(u32::from_le_bytes);
        let found = checksum(&bytes);
        if stated != Some(found) {
            let expected = "the catalog of a sealed store, with its checksum at this byte";
            return Err(Error::corrupt(path, CRC.start as u64, expected, format!("another one than {found:08x}")));
        }
        table::parsed(path, || Self::of_parquet(bytes))
    }

    fn of_parquet(bytes: Bytes) -> ParquetResult<Self> {
        let wrong = |text: String| ParquetError::General(text);
        let file = Table::open(bytes)?;
        let mut notes: BTreeMap<String, String> =
            file.notes().map(|(name, note)| (name.to_owned(), note.to_owned())).collect();
        let version = notes.remove(VERSION_NOTE);
        if version.as_deref() != Some(VERSION) {
            let found = version.as_deref().unwrap_or("none");
            let text = format!("{VERSION_NOTE}={found}, expected {VERSION}: seal again with `logdex seal`");
            return Err(wrong(text));
        }
        let layout = match notes.remove(LAYOUT_NOTE).as_deref() {
            Some("rocketmq") => Layout::OneLog,
            Some("kafka") => {
                let rest = notes.split_off(PART_NOTE);
                let (of_parts, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
                    rest.into_iter().partition(|(name, _)| name.starts_with(PART_NOTE));
                notes.extend(others);
                let part = |note: String| {
                    let (topic, number) = note.rsplit_once(' ')?;
                    Some((topic.to_owned(), number.parse().ok()?))
                };
                let parts: Option<Vec<(String, i32)>> = of_parts.into_values().map(part).collect();
                let parts = parts.filter(|parts| parts.is_sorted());
                Layout::Partitions(parts.ok_or_else(|| wrong("partitions without numbers or order".to_owned()))?)
            }
            other => return Err(wrong(format!("{LAYOUT_NOTE}={other:?}: expected rocketmq or kafka"))),
        };
        let required = |texts: Vec<Option<String>>| -> Vec<String> { texts.into_iter().flatten().collect() };
        let (paths, kinds) = (required(file.texts("path")?), required(file.texts("kind")?));
        let etags = file.texts("etag")?;
        let mut numbers = Vec::new();
        for (name, _) in NUMBERS {
            numbers.push(file.integers(name)?);
        }
        let mut lists = Vec::new();
        for name in LISTS {
            lists.push(file.lists(name)?);
        }
        let (mut files, mut keys) = (Vec::new(), Vec::new());
        for (row, ((path, kind), etag)) in paths.into_iter().zip(kinds).zip(etags).enumerate() {
            let mut of_row = numbers.iter().map(|column| column.get(row).copied().flatten());
            let mut next = || of_row.next().flatten();
            let file = StoreFile {
                path,
                kind,
                etag,
                size: next().unwrap_or(-1),
                modified: next(),
                first_offset: next(),
                last_offset: next(),
                end_offset: next(),
                first_timestamp: next(),
                last_timestamp: next(),
                entries: next(),
            };
            if file.kind == KEYS {
                if !is_below(&file.path) {
                    return Err(wrong(format!("a file of keys at {:?}, expected one in {KEYS}/", file.path)));
                }
                if file.size < 0 {
                    return Err(wrong(format!("{} with {} bytes, expected 0 or more", file.path, file.size)));
                }
                let of_row: Vec<&[i64]> =
                    lists.iter().map(|column| column.get(row).map_or(&[][..], Vec::as_slice)).collect();
                let groups = groups_of(&of_row, layout.columns().len())
                    .ok_or_else(|| wrong(format!("row groups of {} that cannot be", file.path)))?;
                keys.push(KeysFile { path: file.path, size: file.size, etag: file.etag, groups });
            } else {
                files.push(file);
            }
        }
        Ok(Self { layout, files, keys, notes })
    }
}

/// Returns whether the path is a file in the directory of keys files. A catalog may name no other files.
fn is_below(path: &str) -> bool {
    path.strip_prefix(KEYS).and_then(|rest| rest.strip_prefix('/')).is_some_and(|name| {
        !matches!(name, "" | "." | "..")
            && !name.contains(|letter: char| "/\\:".contains(letter) || letter.is_control())
    })
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(bytes.get(..CRC.start).unwrap_or_default());
    crc.update(bytes.get(CRC.end..).unwrap_or_default());
    crc.finalize()
}

fn list_of(name: &str, groups: &[Group], columns: usize) -> Vec<i64> {
    match name {
        "group_key_hash" => groups.iter().map(|group| i64::from(group.first_key_hash)).collect(),
        "group_rows" => groups.iter().map(|group| i64::from(group.rows)).collect(),
        "group_crc" => groups.iter().map(|group| i64::from(group.crc)).collect(),
        _ => groups.iter().flat_map(|group| group.sizes.into_iter().take(columns).map(i64::from)).collect(),
    }
}

/// Returns the row groups of four lists; `None` if the lists differ in length or a row group is impossible.
fn groups_of(lists: &[&[i64]], columns: usize) -> Option<Vec<Group>> {
    let [firsts, rows, crcs, sizes] = lists else { return None };
    if [rows.len(), crcs.len()] != [firsts.len(); 2] || sizes.len() != columns * firsts.len() {
        return None;
    }
    let group = |(((first, rows), crc), sizes): (((&i64, &i64), &i64), &[i64])| {
        let mut group = Group {
            first_key_hash: i32::try_from(*first).ok()?,
            rows: u32::try_from(*rows).ok()?,
            crc: u32::try_from(*crc).ok()?,
            ..Group::default()
        };
        for (place, size) in group.sizes.iter_mut().zip(sizes) {
            *place = u32::try_from(*size).ok()?;
        }
        group.is_plausible().then_some(group)
    };
    let numbers = firsts.iter().zip(*rows).zip(*crcs).zip(sizes.chunks_exact(columns));
    let mut groups: Vec<Group> = numbers.map(group).collect::<Option<_>>()?;
    Group::place(&mut groups);
    Some(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(layout: Layout) -> Catalog {
        let columns = layout.columns().len();
        let group = |number: u32| {
            let (first_key_hash, mut sizes) = (number.cast_signed() * 1000, [0; 5]);
            sizes.iter_mut().take(columns).zip(number << 16..).for_each(|(place, size)| *place = size);
            Group { first_key_hash, rows: number, begin: 0, crc: u32::MAX - number, sizes }
        };
        let file = |name: &str, mut groups: Vec<Group>| {
            Group::place(&mut groups);
            KeysFile { path: name.to_owned(), size: 77, etag: Some("\"x\"".into()), groups }
        };
        Catalog {
            layout,
            files: vec![
                StoreFile {
                    path: "index/20260101000000000".into(),
                    kind: "index".into(),
                    size: 420,
                    entries: Some(19),
                    first_timestamp: Some(-5),
                    ..StoreFile::default()
                },
                StoreFile { path: "abort".into(), kind: "abort".into(), ..StoreFile::default() },
            ],
            keys: vec![file("keys/a", (1..4).map(group).collect()), file("keys/b", Vec::new())],
            notes: BTreeMap::from([("logdex.tags".to_owned(), "true".to_owned())]),
        }
    }

    #[test]
    fn a_catalog_is_read_as_it_was_written() {
        for layout in [Layout::OneLog, Layout::Partitions(vec![("a b".into(), 1), ("c".into(), 0), ("c".into(), 10)])] {
            let catalog = catalog(layout);
            let bytes = Bytes::from(catalog.encode().unwrap());
            assert_eq!(Catalog::decode(Path::new("catalog"), bytes).unwrap(), catalog);
        }
    }

    #[test]
    fn hostile_bytes_with_a_right_checksum_are_a_catalog_or_an_error() {
        let whole = catalog(Layout::OneLog).encode().unwrap();
        let (mut decoded, mut failed, mut panicked) = (0, 0, 0);
        // Every byte of the first column, and some bytes of the other columns and of the metadata.
        for place in (CRC.end..400).chain((400..whole.len()).step_by(7)) {
            for byte in [0xff, whole[place] ^ 0x80] {
                let mut bytes = whole.clone();
                bytes[place] = byte;
                let crc = checksum(&bytes);
                bytes[CRC].copy_from_slice(&crc.to_le_bytes());
                match Catalog::decode(Path::new("catalog"), bytes.into()) {
                    Ok(_) => decoded += 1,
                    Err(Error::Corrupt { found, .. }) if found.contains("reader fails") => panicked += 1,
                    Err(Error::Corrupt { .. }) => failed += 1,
                    Err(error) => panic!("byte {place}: {error}"),
                }
            }
        }
        assert!(decoded > 100 && failed > 100 && panicked > 0, "{decoded} {failed} {panicked}");
    }

    #[test]
    fn a_catalog_leads_to_no_file_outside_of_its_directory() {
        let paths = [
            "../keys/a",
            "/etc/passwd",
            "keys/../../a",
            "keys/b/c",
            "keys/..",
            "keys/.",
            "keys/",
            "a",
            "keys/c:\\d",
            "keys\\e",
        ];
        for path in paths {
            let mut hostile = catalog(Layout::OneLog);
            path.clone_into(&mut hostile.keys[1].path);
            let error = Catalog::decode(Path::new("catalog"), hostile.encode().unwrap().into()).unwrap_err();
            assert!(matches!(&error, Error::Corrupt { .. }), "{error}");
            assert!(error.to_string().contains(&format!("a file of keys at {path:?}")), "{error}");
        }
    }

    #[test]
    fn a_row_group_is_not_larger_than_one_that_is_written() {
        for (rows, size) in [(u32::MAX, 10), (1_025, 10), (0, 10), (10, 1 << 30)] {
            let mut hostile = catalog(Layout::OneLog);
            hostile.keys[0].groups[0] = Group { rows, sizes: [size, size, size, 0, 0], ..hostile.keys[0].groups[0] };
            let found = Catalog::decode(Path::new("catalog"), hostile.encode().unwrap().into());
            assert!(matches!(found, Err(Error::Corrupt { .. })), "{rows} {size}");
        }
    }

    #[test]
    fn damage_is_an_error_wherever_it_is() {
        let whole = catalog(Layout::OneLog).encode().unwrap();
        let path = Path::new("catalog");
        for place in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[place] ^= 0x10;
            assert!(matches!(Catalog::decode(path, bytes.into()), Err(Error::Corrupt { .. })), "{place}");
        }
        for len in (0..whole.len()).step_by(7) {
            let cut = Bytes::copy_from_slice(&whole[..len]);
            assert!(matches!(Catalog::decode(path, cut), Err(Error::Corrupt { .. })), "{len}");
        }
    }
}
