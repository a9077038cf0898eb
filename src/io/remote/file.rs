//! A remote file that is open for reading.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;

use super::blocks::{Cache, Held, cache};
use super::object::{Object, Origin, RemoteEntry};
use super::objects::Objects;
use crate::io::source::{ReadAt, words_by_copy};

/// A remote file that is open for reading. It holds no connection; a process that was forked makes its own.
#[derive(Debug)]
pub struct RemoteFile {
    store: Objects,
    object: Arc<Object>,
    /// Of this handle: two readers of a file read ahead for themselves.
    handle: u64,
    /// The block of the last short read: the next one is often next to it, and needs no search in the cache.
    last: ArcSwapOption<Held>,
}

static HANDLES: AtomicU64 = AtomicU64::new(0);

impl RemoteFile {
    /// Opens a file that is described already. Nothing is requested; a read fails if the file is another one.
    pub fn known(store: &Objects, file: RemoteEntry) -> Self {
        let since = |time: std::time::SystemTime| time.duration_since(std::time::UNIX_EPOCH).ok();
        let modified_ms = file.modified.and_then(since).map(|since| since.as_millis());
        let origin = Origin(Arc::clone(store.options()));
        let object = Object { origin, path: file.path, len: file.len.unwrap_or(0), etag: file.etag, modified_ms };
        let handle = HANDLES.fetch_add(1, Ordering::Relaxed);
        Self { store: store.clone(), object: Arc::new(object), handle, last: ArcSwapOption::empty() }
    }
}

impl ReadAt for RemoteFile {
    fn len(&self) -> u64 {
        self.object.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.object.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some((begin, bytes)) = self.last.load().as_deref()
            && let Some(from) = offset.checked_sub(*begin).and_then(|from| usize::try_from(from).ok())
            && let Some(bytes) = bytes.get(from..).and_then(|bytes| bytes.get(..buf.len()))
        {
            buf.copy_from_slice(bytes);
            return Ok(());
        }
        if let Some(held) = cache()?.read(&self.store, &self.object, self.handle, buf, offset)? {
            self.last.store(Some(Arc::new(held)));
        }
        Ok(())
    }

    fn is_far(&self) -> bool {
        true
    }

    fn words<const N: usize>(&self, offset: u64) -> io::Result<[u32; N]> {
        words_by_copy(self, offset)
    }

    fn is_in_memory(&self, offset: u64) -> bool {
        cache().is_ok_and(|cache| cache.holds(&self.object, offset))
    }

    fn will_need(&self, offset: u64, len: u64) {
        if let (Ok(cache), Ok(session)) = (cache(), self.store.session()) {
            cache.expect(&session, &self.object, offset..offset.saturating_add(len).min(self.object.len));
        }
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        Cache::forget(self.handle);
    }
}
