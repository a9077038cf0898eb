//! What look-ups keep of a segment from one call to the next: the open log, and its indexes in memory.
//!
//! A log directory may hold more segments than a process may have files open, so only the segments that most recently began to
//! keep something do so, over the whole process. What a call holds goes on living until it ends.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::checked_index::CheckedIndex;
use crate::error::Result;
use crate::io::FileSource;
use crate::kafka::index::offset_index::OffsetIndex;
use crate::kafka::index::time_index::TimeIndex;

/// Segments that keep something. With segments and an index interval of the usual size that is at most 350 MiB.
pub(crate) const MOST: usize = 64;

/// Segments that keep something, in the order in which they began to.
static KEEPING: Mutex<VecDeque<Weak<OpenFiles>>> = Mutex::new(VecDeque::new());

/// What is kept.
#[derive(Debug, Default)]
pub(crate) struct Things {
    pub(crate) source: Option<Arc<FileSource>>,
    pub(crate) offset_index: Option<Arc<CheckedIndex<OffsetIndex>>>,
    pub(crate) time_index: Option<Arc<CheckedIndex<TimeIndex>>>,
    /// It stands in [`KEEPING`].
    listed: bool,
}

/// What one segment keeps.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles(Mutex<Things>);

impl OpenFiles {
    /// One of the things; made at the first call, and again after others took its place.
    pub(crate) fn get<T>(
        self: &Arc<Self>,
        place: impl FnOnce(&mut Things) -> &mut Option<Arc<T>>,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        let mut things = lock(&self.0);
        let place = place(&mut things);
        let thing = match place {
            Some(known) => Arc::clone(known),
            None => Arc::clone(place.insert(Arc::new(make()?))),
        };
        let listed = std::mem::replace(&mut things.listed, true);
        drop(things);
        if !listed {
            self.list();
        }
        Ok(thing)
    }

    /// Takes its place among those that keep something; the first of them lets go where there are too many.
    fn list(self: &Arc<Self>) {
        let mut keeping = lock(&KEEPING);
        keeping.retain(|kept| kept.strong_count() > 0);
        keeping.push_back(Arc::downgrade(self));
        let first = if keeping.len() > MOST { keeping.pop_front() } else { None };
        // Only one lock is held at a time.
        drop(keeping);
        if let Some(first) = first.and_then(|first| first.upgrade()) {
            *lock(&first.0) = Things::default();
        }
    }

    #[cfg(test)]
    pub(crate) fn is_open(&self) -> bool {
        lock(&self.0).source.is_some()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::test_data::{SEVEN, SEVEN_INDEX, SEVEN_TIMES, hex, segment};
    use crate::kafka::{Segment, SegmentOptions};

    #[test]
    fn only_so_many_segments_keep_files_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = segment(dir.path(), 100, &hex(SEVEN), Some(&hex(SEVEN_INDEX)), Some(&hex(SEVEN_TIMES)));
        let segments: Vec<Segment> =
            (0..3 * MOST).map(|_| Segment::open(&path, SegmentOptions::default()).unwrap()).collect();
        for _ in 0..2 {
            for segment in &segments {
                assert_eq!(segment.translate_offset(109, 0).unwrap().unwrap().position, 601);
                assert_eq!(segment.max_timestamp().unwrap().offset, 111);
            }
            let open = segments.iter().filter(|segment| segment.keeps_open()).count();
            assert!((1..=MOST).contains(&open), "{open}");
        }
    }
}
