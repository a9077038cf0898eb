//! A store of objects as a value: where it is, and the options that lead to it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use futures_util::FutureExt as _;
use object_store::ObjectStoreExt as _;
use object_store::memory::InMemory;
use object_store::path::Path as Key;

use super::client::{Session, Source, client};
use super::file_system::FileSystem;
use super::object::RemoteEntry;
use super::url::Options;
use crate::error::{Error, Result};
use crate::io::fork::Generation;

/// A store of objects. Clones are the same store.
#[derive(Clone)]
pub struct Objects(Arc<Inner>);

struct Inner {
    root: String,
    options: Arc<Options>,
    source: Source,
    /// Of this process: that of another one has threads and connections that stayed there.
    session: ArcSwapOption<Session>,
}

impl fmt::Debug for Objects {
    // The options have credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Objects").field(&self.0.root).finish()
    }
}

impl Objects {
    /// A store of other machines.
    pub(crate) fn at(url: &str, mut options: Options) -> Self {
        options.sort();
        Self(Arc::new(Inner {
            root: url.to_owned(),
            options: options.into(),
            source: Source::Machine,
            session: ArcSwapOption::empty(),
        }))
    }

    /// A store of this process, which is like no other one.
    fn own(scheme: &str, source: Source) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        let (root, options) = (format!("{scheme}://{number}"), vec![(scheme.to_owned(), number)].into());
        Self(Arc::new(Inner { root, options, source, session: ArcSwapOption::empty() }))
    }

    /// Files in memory, in which slashes separate directories. They are held as long as a value leads to them.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is not a path of a file.
    pub fn in_memory(files: impl IntoIterator<Item = (String, Bytes)>) -> Result<Self> {
        let store = InMemory::new();
        for (name, content) in files {
            let key = Key::parse(&name).ok().filter(|key| !key.as_ref().is_empty());
            let refused = || Error::InvalidArgument(format!("name {name:?}: expected the name of a file"));
            let put = store.put(&key.ok_or_else(refused)?, content.into()).now_or_never();
            put.and_then(std::result::Result::ok).ok_or_else(refused)?;
        }
        Ok(Self::own("memory", Source::Memory(Arc::new(store))))
    }

    /// The file system of a caller. It is read in this process only.
    pub fn in_file_system(files: Arc<dyn FileSystem>) -> Self {
        Self::own("filesystem", Source::Caller(Generation::current(), files))
    }

    /// The store's part in this process.
    pub(super) fn session(&self) -> io::Result<Arc<Session>> {
        let held = self.0.session.load_full();
        if let Some(session) = held.as_ref().filter(|session| session.client.is_of_this_process()) {
            return Ok(Arc::clone(session));
        }
        let new = Arc::new(Session::new(client()?, &self.0.root, &self.0.options, &self.0.source)?);
        let before = self.0.session.compare_and_swap(&held, Some(Arc::clone(&new)));
        Ok(match before.as_ref() {
            // Another thread was faster.
            Some(other) if other.client.is_of_this_process() => Arc::clone(other),
            _ => new,
        })
    }

    fn existing(&self) -> Option<Arc<Session>> {
        self.0.session.load_full().filter(|session| session.client.is_of_this_process())
    }

    /// Returns whether the bytes are on other machines, so that another process can request them as well.
    pub fn is_of_machines(&self) -> bool {
        matches!(self.0.source, Source::Machine)
    }

    /// The options that lead to it.
    pub fn options(&self) -> &Arc<Options> {
        &self.0.options
    }

    /// The URL of the whole store.
    pub fn root(&self) -> &str {
        &self.0.root
    }

    /// Returns whether both have the same URL and options.
    pub(crate) fn is_alike(&self, other: &Self) -> bool {
        self.0.root == other.0.root && self.0.options == other.0.options
    }

    /// Returns whether both are the same object, and not only alike.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Forgets what was listed before the last second, so that a store that is opened again is seen as it is now.
    pub(crate) fn forget_old_listings(&self) {
        if let Some(session) = self.existing() {
            session.refresh();
        }
    }

    /// Forgets all that was listed: this process, or another one for it, wrote.
    pub(crate) fn forget_listings(&self) {
        if let Some(session) = self.existing() {
            session.forget_listings();
        }
    }

    /// Lists a directory, sorted by name. Directories that were listed in the last seconds are not listed again.
    pub(crate) fn list(&self, directory: &Path) -> Result<Arc<Vec<RemoteEntry>>> {
        self.session().and_then(|session| session.list(directory)).map_err(|e| Error::io(directory, e))
    }

    /// Describes what is at a path. No request is made if its directory was just listed.
    pub(crate) fn status(&self, path: &Path) -> Result<RemoteEntry> {
        self.session().and_then(|session| session.status(path)).map_err(|e| Error::io(path, e))
    }

    /// Lists a directory with all below it, so that [`Self::list`] needs no request for the next seconds. An error is left to it.
    pub(crate) fn expect_tree(&self, directory: &Path) {
        _ = self.session().and_then(|session| session.list_tree(directory));
    }

    /// Begins to list several directories at the same time, so that [`Self::list`] and [`Self::status`] need no request for them
    /// for the next seconds. An error is left to them.
    pub(super) fn expect_lists(&self, directories: Vec<PathBuf>) {
        if let Ok(session) = self.session() {
            session.begin_lists(directories);
        }
    }

    /// Reads a whole object of at most `most` bytes with one request, and lists directories at the same time.
    pub(crate) fn read_whole(&self, path: &Path, most: u64, directories: &[PathBuf]) -> Result<(RemoteEntry, Bytes)> {
        let read = self.session().and_then(|session| session.read_whole(path, most, directories));
        read.map_err(|e| Error::io(path, e))
    }

    /// Begins to read a whole object, so that the next [`Self::read_whole`] of it needs no request.
    pub(super) fn expect_whole(&self, path: &Path, most: u64) {
        if let Ok(session) = self.session() {
            session.begin_whole(path.to_owned(), most);
        }
    }
}
