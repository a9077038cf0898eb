//! Sealing a store of any broker: the rows of its sources, sorted, and a catalog of its files.
//!
//! A broker's module implements [`Source`] for its files with entries, and completes the catalog.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::Path;

use bytes::Bytes;

use super::catalog::{Catalog, KeysFile, StoreFile};
use super::keys_file::Layout;
use super::place::{self, Listed, Presence};
use super::rows::{Packed, Packer, Row, Rows, Sample};
use crate::error::{Error, Result};
use crate::io::Location;
use crate::report::{Kind, Report};

/// Rows that are packed together.
const ROWS_A_BATCH: usize = 1 << 20;
/// Threads that sort and encode.
const THREADS: usize = 2;

/// Facts about a store, by name.
pub type Notes = BTreeMap<String, String>;
/// A receiver of rows.
pub type Take<'a> = &'a mut dyn FnMut(&[Row]) -> Result<()>;
/// Rows in blocks.
pub type Blocks = Box<dyn Iterator<Item = Result<Vec<Row>>> + Send>;
/// Adds the broker's own facts to a draft when all sources are read.
pub type Complete = Box<dyn FnOnce(&mut Draft) -> Result<()> + Send>;

/// A file whose entries are sealed: an index file of RocketMQ, or a segment of Kafka.
pub trait Source: fmt::Debug + Send + Sync {
    /// Reads and checks the file, and passes on its rows. Without facts it cannot be sealed, and the report has the reason.
    ///
    /// # Errors
    /// An I/O error, with the path; those of `take`.
    fn read(&self, take: Option<Take<'_>>) -> Result<(Option<Facts>, Report)>;

    /// Prepares to read the rows of a part, in a file that was described: positions of entries, or offsets of records.
    ///
    /// # Errors
    /// An I/O error, with the path.
    fn blocks(&self, part: Range<i64>) -> Result<Blocks>;
}

/// Facts about a source that can be sealed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The source in the catalog. With [`Self::AS_LISTED`] as its size, it has the identity that was listed.
    pub file: StoreFile,
    /// Facts about other files, for [`Complete`].
    pub others: Vec<StoreFile>,
    /// Notes of the catalog.
    pub notes: Notes,
    /// Number of rows, and hashes of some.
    pub sample: Sample,
    /// The end of the last part.
    pub end: i64,
}

/// [`Facts`] for another process: files and notes as a catalog, hashes, and the end.
pub type EncodedFacts = (Vec<u8>, Vec<i32>, i64);

impl Facts {
    /// The size of a file that changed at most after it was listed.
    pub const AS_LISTED: i64 = -1;

    /// Encodes the facts for another process.
    ///
    /// # Errors
    /// `InvalidArgument` if they cannot be encoded.
    pub fn encode(self) -> Result<EncodedFacts> {
        let files = std::iter::once(self.file).chain(self.others).collect();
        let catalog = Catalog { layout: Layout::OneLog, files, keys: Vec::new(), notes: self.notes };
        Ok((catalog.encode()?, self.sample.hashes, self.end))
    }

    /// Decodes the facts of another process.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn decode((bytes, hashes, end): EncodedFacts) -> Result<Self> {
        let path = Path::new("facts of a source");
        let Catalog { mut files, notes, .. } = Catalog::decode(path, bytes.into())?;
        let others = files.split_off(files.len().min(1));
        let file = files.pop().ok_or_else(|| Error::corrupt(path, 0, "a file of the store", "none"))?;
        let entries = file.entries.unwrap_or(0);
        let wrong = |_| Error::corrupt(path, 0, "a number of rows of 0 or more", entries.to_string());
        let rows = u64::try_from(entries).map_err(wrong)?;
        Ok(Self { file, others, notes, sample: Sample { rows, hashes }, end })
    }
}

/// The draft of the catalog of a store.
#[derive(Debug, Default)]
pub struct Draft {
    /// Files of the store.
    pub files: Vec<Listed>,
    /// Notes.
    pub notes: Notes,
    /// Facts about other files than the sources.
    pub others: Vec<StoreFile>,
}

/// Seals one store.
pub struct Sealing {
    directory: Location,
    layout: Layout,
    /// The name of the sources in the report.
    counted: &'static str,
    draft: Draft,
    complete: Complete,
    rows: Rows,
    presence: Presence,
    sample: Sample,
    report: Report,
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealing")
            .field("directory", &self.directory)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

impl Sealing {
    /// Prepares to seal the files of a draft into a directory. The report calls its sources `counted`.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn new(
        directory: &Location,
        layout: Layout,
        counted: &'static str,
        draft: Draft,
        complete: Complete,
    ) -> Result<Self> {
        let (rows, presence) = (place::no_rows(directory)?, Presence::begin(directory)?);
        let (directory, sample, report) = (directory.to_owned(), Sample::default(), Report::default());
        Ok(Self { directory, layout, counted, draft, complete, rows, presence, sample, report })
    }

    /// The columns of the rows.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Adds the rows of a source. If it cannot be sealed, the report has the reason.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn add(&mut self, source: &dyn Source) -> Result<()> {
        let rows = &mut self.rows;
        let (facts, report) = source.read(Some(&mut |block| rows.push(block)))?;
        self.report.add(report);
        match facts {
            Some(facts) => {
                self.rows.keep();
                self.add_facts(facts);
            }
            None => self.rows.drop_new(),
        }
        Ok(())
    }

    /// Adds the facts about a source whose rows other processes sort.
    pub fn add_facts(&mut self, facts: Facts) {
        self.report.count(self.counted, 1);
        self.report.count("entries", facts.sample.rows);
        self.sample.add(facts.sample);
        self.draft.notes.extend(facts.notes);
        self.draft.others.extend(facts.others);
        if let Some((_, file)) = self.draft.files.iter_mut().find(|(_, file)| file.path == facts.file.path) {
            let listed = std::mem::replace(file, facts.file);
            if file.size == Facts::AS_LISTED {
                (file.size, file.modified, file.etag) = (listed.size, listed.modified, listed.etag);
            }
        }
    }

    /// The first hashes of the ranges into which other processes sort the rows, but for the first range.
    pub fn bounds(&self) -> Vec<i32> {
        self.sample.bounds()
    }

    /// Writes the sealed index: the rows that were added, or the catalog of the files of keys that other processes wrote, as
    /// [`place::write_packed`] described them. Sources that changed meanwhile are not sealed.
    ///
    /// # Errors
    /// An I/O error, with the path; `Corrupt` if rows are missing.
    pub fn finish(self, written: Option<Vec<Bytes>>) -> Result<Report> {
        let Self { directory, layout, mut draft, complete, rows, presence, sample, mut report, .. } = self;
        let keys: Vec<KeysFile> = match written {
            Some(written) => place::described(&directory, written, sample.rows)?,
            None => place::write_keys(&directory, &place::name_of_now(), &layout, rows, THREADS)?,
        };
        complete(&mut draft)?;
        let mut files = Vec::new();
        for (path, mut file) in draft.files {
            if file.entries.is_some() && !file.is_still_at(&path)? {
                file.entries = None;
                report.find(&path, 0, Kind::SealedFile, "the file as it was read", "it changed: not sealed");
            }
            files.push(file);
        }
        report.count("files", files.len() as u64);
        report.count("key_files", keys.len() as u64);
        report.count("key_bytes", keys.iter().map(|file| file.size.cast_unsigned()).sum());
        place::publish(&directory, &Catalog { layout, files, keys, notes: draft.notes }, &presence)?;
        Ok(report)
    }
}

/// The rows of a source, packed by ranges of their hashes: see [`Packer`].
pub struct PackedRows {
    blocks: Blocks,
    bounds: Vec<i32>,
}

impl PackedRows {
    /// Prepares to read a part of a source. Bounds are the first hashes of all ranges but the first, ascending.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn new(source: &dyn Source, part: Range<i64>, bounds: Vec<i32>) -> Result<Self> {
        Ok(Self { blocks: source.blocks(part)?, bounds })
    }

    /// Returns the next rows; `None` at the end.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn next_rows(&mut self) -> Result<Option<Vec<Packed>>> {
        let mut packer = Packer::new(&self.bounds);
        let mut count = 0;
        while count < ROWS_A_BATCH
            && let Some(rows) = self.blocks.next().transpose()?
        {
            packer.push(&rows);
            count += rows.len().max(1);
        }
        Ok((count > 0).then(|| packer.finish()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source of rows in memory, whose reads may fail.
    #[derive(Debug)]
    struct Held {
        path: &'static str,
        rows: Vec<Row>,
        fails_after: usize,
        is_damaged: bool,
    }

    impl Source for Held {
        fn read(&self, take: Option<Take<'_>>) -> Result<(Option<Facts>, Report)> {
            let mut sample = Sample::default();
            if let Some(take) = take {
                for block in self.blocks(0..i64::MAX)? {
                    let block = block?;
                    sample.note(&block);
                    take(&block)?;
                }
            }
            let (path, kind) = (self.path.to_owned(), "source".to_owned());
            let entries = i64::try_from(sample.rows).ok();
            let file = StoreFile { path, kind, size: Facts::AS_LISTED, entries, ..StoreFile::default() };
            Ok(((!self.is_damaged).then(|| Facts { file, sample, ..Facts::default() }), Report::default()))
        }

        fn blocks(&self, _: Range<i64>) -> Result<Blocks> {
            let (fails_after, rows) = (self.fails_after, self.rows.clone());
            let blocks: Vec<Vec<Row>> = rows.chunks(10).map(<[Row]>::to_vec).collect();
            Ok(Box::new(blocks.into_iter().enumerate().map(move |(number, block)| {
                let failed = || Error::io(Path::new("source"), std::io::ErrorKind::UnexpectedEof.into());
                if number < fails_after { Ok(block) } else { Err(failed()) }
            })))
        }
    }

    fn held(path: &'static str, first: i32) -> Held {
        let row = |number| Row { key_hash: first + number, part: 0, offset: i64::from(number), time: 5 };
        Held { path, rows: (0..100).map(row).collect(), fails_after: usize::MAX, is_damaged: false }
    }

    /// Starts to seal a store of three files.
    fn sealing(root: &Path) -> Sealing {
        let root = &Location::from(root);
        let directory = root.join(place::DIRECTORY);
        for name in ["a", "b", "c"] {
            std::fs::write(root.join(name), name).unwrap();
        }
        let files = place::list_store(root, &directory, |_| "source").unwrap();
        let draft = Draft { files, ..Draft::default() };
        let complete: Complete = Box::new(|draft| {
            draft.notes.insert("completed".to_owned(), draft.files.len().to_string());
            Ok(())
        });
        Sealing::new(&directory, Layout::OneLog, "sources", draft, complete).unwrap()
    }

    fn sealed(root: &Path) -> (Catalog, Vec<Row>) {
        let directory = Location::from(root.join(place::DIRECTORY));
        let catalog = place::read_catalog(&directory, &[]).unwrap();
        let mut rows = Vec::new();
        let keys = super::super::SealedKeys::new(&directory, &catalog).unwrap();
        keys.for_each(|block| {
            rows.extend_from_slice(block);
            Ok(())
        })
        .unwrap();
        (catalog, rows)
    }

    #[test]
    fn rows_of_all_valid_sources_are_sealed_in_the_order_of_their_hashes() {
        let root = tempfile::tempdir().unwrap();
        let mut sealing = sealing(root.path());
        let (a, b, c) = (held("a", 1_000), Held { is_damaged: true, ..held("b", 0) }, held("c", 500));
        for source in [&a, &b, &c] {
            sealing.add(source).unwrap();
        }
        let report = sealing.finish(None).unwrap();
        assert!(report.findings.is_empty());
        let (catalog, rows) = sealed(root.path());
        assert_eq!(rows, [c.rows, a.rows].concat());
        assert_eq!(catalog.files.iter().map(|file| file.entries).collect::<Vec<_>>(), [Some(100), None, Some(100)]);
        assert!(catalog.files.iter().all(|file| file.size == 1 && file.modified.is_some()));
        assert_eq!(catalog.notes.get("completed").map(String::as_str), Some("3"));
    }

    #[test]
    fn a_read_that_fails_is_an_error_and_the_former_index_stays() {
        let root = tempfile::tempdir().unwrap();
        let mut first = sealing(root.path());
        first.add(&held("a", 7)).unwrap();
        first.finish(None).unwrap();
        let before = sealed(root.path());
        let mut second = sealing(root.path());
        let failed = second.add(&Held { fails_after: 3, ..held("b", 0) });
        assert!(matches!(failed, Err(Error::Io { .. })));
        drop(second);
        assert_eq!(sealed(root.path()), before);
    }

    #[test]
    fn a_source_that_changes_meanwhile_is_not_sealed() {
        let root = tempfile::tempdir().unwrap();
        let mut sealing = sealing(root.path());
        sealing.add(&held("a", 7)).unwrap();
        std::fs::write(root.path().join("a"), "longer").unwrap();
        let report = sealing.finish(None).unwrap();
        assert_eq!(report.findings.len(), 1);
        assert_eq!(sealed(root.path()).0.files[0].entries, None);
    }

    #[test]
    fn facts_pass_to_another_process() {
        let others = vec![StoreFile { last_offset: Some(77), kind: "log".to_owned(), ..StoreFile::default() }];
        let file = StoreFile { path: "a".to_owned(), size: Facts::AS_LISTED, entries: Some(9), ..others[0].clone() };
        let notes = Notes::from([("name".to_owned(), "value".to_owned())]);
        let facts = Facts { file, others, notes, sample: Sample { rows: 9, hashes: vec![3, 1] }, end: 10 };
        assert_eq!(Facts::decode(facts.clone().encode().unwrap()).unwrap(), facts);
        assert!(matches!(Facts::decode((vec![1, 2], Vec::new(), 0)), Err(Error::Corrupt { .. })));
    }
}
