//! A segment in remote storage, and its files.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::key_ring::{KeyRing, OVERHEAD};
use super::manifest::{IndexPart, Range};
use super::manifests::Known;
use super::names::Object;
use crate::decompress::{DecodeError, Output, zstd_frame};
use crate::error::{Error, Result};
use crate::io::chunked_file::{Chunks, Decode, StoredFile};
use crate::io::{Access, Content, FileSource, Location, ReadAt as _, usize_of};
use crate::kafka::read::walk::{Reads, Walk};

/// A file of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Log,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
    /// The producers at the end of the segment: a broker names it by the base offset of the next one.
    Snapshot,
    LeaderEpochs,
}

impl Part {
    /// All files, with the endings that a broker and `LocalTieredStorage` give them.
    pub(super) const ALL: [(Self, &'static str); 6] = [
        (Self::Log, "log"),
        (Self::OffsetIndex, "index"),
        (Self::TimeIndex, "timeindex"),
        (Self::TransactionIndex, "txnindex"),
        (Self::Snapshot, "snapshot"),
        (Self::LeaderEpochs, "leader_epoch_checkpoint"),
    ];
}

/// The storage of the files of a segment.
#[derive(Debug)]
pub(super) enum Files {
    /// An object each.
    Separate(BTreeMap<Part, Object>),
    /// As Aiven's plugin stores them.
    Packed(Box<Packed>),
}

/// A log in chunks, and an object with the indexes.
#[derive(Debug)]
pub(super) struct Packed {
    pub known: Arc<Known>,
    pub manifest_path: Location,
    pub log: Object,
    pub indexes: Option<Object>,
}

/// A segment in remote storage.
#[derive(Debug)]
pub(super) struct RemoteSegment {
    pub base_offset: i64,
    pub range: Range,
    pub files: Files,
}

impl RemoteSegment {
    /// Returns the object that has the log.
    pub(super) fn log(&self) -> Option<&Object> {
        match &self.files {
            Files::Separate(objects) => objects.get(&Part::Log),
            Files::Packed(packed) => Some(&packed.log),
        }
    }

    /// Describes a segment that does not belong to the log.
    pub(super) fn of_other_epochs(&self) -> String {
        let name = self.log().map(|log| log.path.display().to_string()).unwrap_or_default();
        let epochs = self.range.epochs.iter().map(|(epoch, begin)| format!("{epoch} from {begin}"));
        format!("{name}, whose leader epochs ({}) are not those of the log", epochs.collect::<Vec<_>>().join(", "))
    }

    /// Returns the length of the log.
    pub(super) fn log_len(&self) -> u64 {
        self.len(Part::Log).unwrap_or(0)
    }

    /// Returns the length of a file; `None` if the segment has no such file.
    pub(super) fn len(&self, part: Part) -> Option<u64> {
        match &self.files {
            Files::Separate(objects) => objects.get(&part).map(|object| object.status.len),
            Files::Packed(packed) => packed.len(part),
        }
    }

    /// Finds the bytes of a file.
    ///
    /// # Errors
    /// `InvalidArgument` if it is encrypted and its key is not there.
    pub(super) fn content(&self, part: Part, keys: &KeyRing) -> Result<Option<Content>> {
        match &self.files {
            Files::Separate(objects) => Ok(objects.get(&part).map(|object| Content::Whole(object.path.clone()))),
            Files::Packed(packed) => packed.content(part, keys),
        }
    }

    /// Returns the last offset: by the manifest, or by the log.
    ///
    /// # Errors
    /// As [`FileSource::open`].
    pub(super) fn end_offset(&self, keys: &KeyRing) -> Result<Option<i64>> {
        let (Some(content), None) = (self.content(Part::Log, keys)?, self.range.end_offset) else {
            return Ok(self.range.end_offset);
        };
        let path = content.path().clone();
        let source = FileSource::of(content, Access::Pread)?;
        let mut walk = Walk::new(Reads::Headers, 0, source.len());
        let mut last = None;
        while let Ok(header) = walk.next(&source).map_err(|e| Error::io(&path, e))? {
            last = last.max(Some(header.last_offset));
        }
        Ok(last)
    }
}

impl Packed {
    fn part(&self, part: Part) -> Option<IndexPart> {
        match part {
            Part::Log => None,
            Part::OffsetIndex => Some(self.known.manifest.offset_index),
            Part::TimeIndex => Some(self.known.manifest.time_index),
            Part::TransactionIndex => self.known.manifest.transaction_index,
            Part::Snapshot => Some(self.known.manifest.producer_snapshot),
            Part::LeaderEpochs => Some(self.known.manifest.leader_epochs),
        }
    }

    fn len(&self, part: Part) -> Option<u64> {
        if part == Part::Log {
            return Some(self.known.manifest.chunks.len);
        }
        self.indexes.as_ref()?;
        let stored = self.part(part)?.size;
        // An empty index is not encrypted.
        Some(if self.known.manifest.encryption.is_some() { stored.saturating_sub(OVERHEAD) } else { stored })
    }

    fn content(&self, part: Part, keys: &KeyRing) -> Result<Option<Content>> {
        let (object, stored) = if part == Part::Log {
            if self.known.manifest.is_plain() && self.log.status.len == self.known.manifest.chunks.len {
                return Ok(Some(Content::Whole(self.log.path.clone())));
            }
            let decode = self.decode(self.known.manifest.is_compressed, keys)?;
            let chunks = self.known.manifest.chunks.clone();
            (&self.log, StoredFile { path: self.log.path.to_path_buf(), begin: 0, tag: self.log.tag(), chunks, decode })
        } else {
            let (Some(indexes), Some(stored), Some(len)) = (&self.indexes, self.part(part), self.len(part)) else {
                return Ok(None);
            };
            let decode = self.decode(false, keys)?;
            let chunks = Chunks::one(len, stored.size);
            let path = indexes.path.to_path_buf();
            (indexes, StoredFile { path, begin: stored.position, tag: indexes.tag(), chunks, decode })
        };
        Ok(Some(Content::Chunks(object.path.clone(), stored)))
    }

    fn decode(&self, is_compressed: bool, keys: &KeyRing) -> Result<Arc<Decode>> {
        let key = match &self.known.manifest.encryption {
            None => None,
            Some(encryption) => Some(if let Some(known) = self.known.data_key.get() {
                Arc::clone(known)
            } else {
                let key = Arc::new(keys.data_key(&self.manifest_path, encryption)?);
                Arc::clone(self.known.data_key.get_or_init(|| key))
            }),
        };
        Ok(Arc::new(move |chunk, most| {
            let chunk = match &key {
                Some(key) => key.open(chunk)?,
                None => chunk,
            };
            if !is_compressed {
                return Ok(chunk);
            }
            let mut output = Output::new(most);
            let mut decoder = zstd::zstd_safe::DCtx::create();
            let result = zstd_frame::decode(&mut decoder, &chunk, &mut output);
            result.map_err(|error| {
                let found = match error {
                    DecodeError::TooLong { .. } => "more".to_owned(),
                    DecodeError::Undecodable { reason, .. } => reason,
                };
                (format!("a chunk of {most} bytes in Zstandard"), found)
            })?;
            Ok(output.filled().to_vec())
        }))
    }
}

/// Reads a small file whole.
///
/// # Errors
/// `Corrupt` for bytes that cannot be decoded; an I/O error.
pub(super) fn read(content: Content) -> Result<Vec<u8>> {
    let path = content.path().clone();
    let source = FileSource::of(content, Access::Pread)?;
    let mut bytes = vec![0; usize_of(source.len()).min(MOST_SMALL)];
    source.read_exact_at(&mut bytes, 0).map_err(|e| Error::io(&path, e))?;
    Ok(bytes)
}

/// Bytes of the longest list of leader epochs that is read.
const MOST_SMALL: usize = 1 << 20;
