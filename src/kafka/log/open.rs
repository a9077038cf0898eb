//! The open log of a partition. Source: `UnifiedLog`, `LogSegments`.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};

use super::listing::{Listing, SegmentFiles};
use super::missing::Missing;
use crate::error::{Error, Result};
use crate::io::storage;
use crate::io::{Access, Location};
use crate::kafka::compat::Compat;
use crate::kafka::format::checkpoint;
use crate::kafka::index::index_file::Check;
use crate::kafka::read::segment::{Segment, SegmentOptions};
use crate::kafka::read::segment_range::SegmentRange;

const LOG: &str = ".log";
const CLEANER: &str = "cleaner-offset-checkpoint";
const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";

/// Options to open a partition's log.
#[derive(Clone, Debug)]
pub struct PartitionOptions {
    /// Topic of the records.
    pub topic: String,
    /// Partition of the records.
    pub partition: i32,
    /// Which entries of the indexes are used; `None`: as [`Log`] describes it.
    pub check: Option<Check>,
    /// Map or `pread`.
    pub access: Access,
    /// The release whose answers are given; `None`: the right ones.
    pub compat: Option<Compat>,
    /// The largest batch that is read, in bytes, stored and uncompressed.
    pub max_batch_bytes: usize,
}

/// A partition's log. It lists the directory for each view, because a running broker rolls and deletes segments, and keeps those
/// segments open whose files did not change.
///
/// By default indexes are verified, and with a release trusted, except those of the last segment without a clean stop: a running
/// broker keeps their ends in memory, and a crashed one rebuilds them, so the files are full of zeros.
#[derive(Debug)]
pub struct Log {
    directory: Location,
    /// Its absolute path, which has a parent.
    absolute: Location,
    options: PartitionOptions,
    open: Mutex<BTreeMap<i64, Arc<Segment>>>,
    /// The only view, of a log that is never listed again.
    pinned: Option<Arc<LogView>>,
}

/// The segments of a log at one moment, by ascending base offset, and all files of its directory.
#[derive(Debug)]
pub struct LogView {
    pub(crate) directory: Location,
    absolute: Location,
    pub(super) options: PartitionOptions,
    pub(super) segments: Vec<Arc<Segment>>,
    pub(super) listing: Listing,
}

impl Log {
    /// Opens a log. Nothing is read before the first view.
    ///
    /// # Errors
    /// The working directory of a relative path is gone.
    pub fn open(directory: &Location, options: PartitionOptions) -> Result<Self> {
        let absolute = if directory.is_remote() {
            directory.clone()
        } else {
            std::path::absolute(directory).map_err(|e| Error::io(directory, e))?.into()
        };
        Ok(Self { directory: directory.clone(), absolute, options, open: Mutex::default(), pinned: None })
    }

    /// Returns this log with the segments that it has now: it is never listed again.
    ///
    /// # Errors
    /// As [`Self::view`].
    pub fn pinned(&self) -> Result<Self> {
        let (directory, absolute, options) = (self.directory.clone(), self.absolute.clone(), self.options.clone());
        Ok(Self { directory, absolute, options, open: Mutex::default(), pinned: Some(self.view()?) })
    }

    /// Lists the directory, and opens each segment that is new or changed since the last call.
    ///
    /// # Errors
    /// An I/O error; `Corrupt` as [`Listing::of`].
    pub fn view(&self) -> Result<Arc<LogView>> {
        if let Some(view) = &self.pinned {
            return Ok(Arc::clone(view));
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut listing = Listing::of(&self.directory)?;
        let last = listing.segments.keys().next_back().copied();
        let (mut opened, mut gone) = (BTreeMap::new(), Vec::new());
        for (base_offset, files) in &listing.segments {
            let check = self.check(Some(*base_offset) == last);
            match self.segment(files, check, open.get(base_offset)) {
                Ok(segment) => drop(opened.insert(*base_offset, segment)),
                // A running broker deleted it after it was listed.
                Err(error) if error.is_missing() => gone.push(*base_offset),
                Err(error) => return Err(error),
            }
        }
        for base_offset in gone {
            listing.segments.remove(&base_offset);
        }
        open.clone_from(&opened);
        drop(open);
        let (directory, absolute, options) = (self.directory.clone(), self.absolute.clone(), self.options.clone());
        Ok(Arc::new(LogView { directory, absolute, options, segments: opened.into_values().collect(), listing }))
    }

    fn check(&self, is_last: bool) -> Check {
        self.options.check.unwrap_or_else(|| {
            let is_trusted = self.options.compat.is_some() && (!is_last || is_stopped(&self.absolute));
            if is_trusted { Check::Trust } else { Check::Verify }
        })
    }

    fn segment(&self, files: &SegmentFiles, check: Check, known: Option<&Arc<Segment>>) -> Result<Arc<Segment>> {
        let path = files.get(LOG).ok_or_else(|| Error::io(&self.directory, ErrorKind::NotFound.into()))?;
        if let Some(known) = known
            && known.path() == path
            && known.options().check == check
            && *known.status() == storage::status(path)?
        {
            return Ok(Arc::clone(known));
        }
        let PartitionOptions { access, compat, max_batch_bytes, .. } = self.options;
        Segment::open(path, SegmentOptions { check, access, compat, max_batch_bytes }).map(Arc::new)
    }

    /// Closes all segments.
    pub fn close(&self) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Returns whether the broker of a partition's directory stopped cleanly.
fn is_stopped(directory: &Location) -> bool {
    storage::status(&directory.with_file_name(CLEAN_SHUTDOWN)).is_ok()
}

impl LogView {
    /// The segments, by ascending base offset.
    pub fn segments(&self) -> &[Arc<Segment>] {
        &self.segments
    }

    /// All files of the directory.
    pub fn listing(&self) -> &Listing {
        &self.listing
    }

    /// The topic of the records.
    pub fn topic(&self) -> &str {
        &self.options.topic
    }

    /// The partition's number.
    pub fn partition(&self) -> i32 {
        self.options.partition
    }

    /// Returns whether the index of aborted transactions of the last segment does not count: after a power loss it may lack
    /// entries.
    pub fn is_after_crash(&self) -> bool {
        !is_stopped(&self.absolute)
    }

    /// A whole segment as a range of this log.
    pub(super) fn range(&self, segment: &Arc<Segment>) -> SegmentRange {
        let topic = Some(self.options.topic.clone());
        SegmentRange { topic, partition: Some(self.options.partition), ..SegmentRange::whole(Arc::clone(segment)) }
    }

    /// Returns the offset of this partition in a checkpoint of the log directory.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(super) fn recorded(&self, checkpoint: &str) -> Result<Option<i64>> {
        let path = self.absolute.with_file_name(checkpoint);
        checkpoint::recorded_offset(&path, &self.options.topic, self.options.partition.into())
    }

    /// Returns the segments that are missing in the offsets [begin, end).
    ///
    /// # Errors
    /// An I/O error.
    pub fn missing(&self, begin: i64, end: i64) -> Result<Missing> {
        let missing = |compacted| {
            Missing::between(&self.directory, &self.segments, &self.listing.unread, (begin, end), compacted)
        };
        let found = missing(true)?;
        if found.compacted > 0 && self.recorded(CLEANER)?.is_none() { missing(false) } else { Ok(found) }
    }
}
