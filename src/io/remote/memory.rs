//! Files that are bytes in memory, in a store of their own: `memory://1/00000000000000000000.log`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::FutureExt as _;
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt as _};

use crate::error::{Error, Result};

/// The scheme of their paths, which no user can give.
pub(super) const SCHEME: &str = "memory";

/// A lock would be held for ever in the child of a fork that another thread made meanwhile.
static STORES: LazyLock<ArcSwap<HashMap<String, Arc<InMemory>>>> = LazyLock::new(ArcSwap::default);

/// Files in memory, until it is dropped.
#[derive(Debug)]
pub struct MemoryFiles {
    root: String,
}

impl MemoryFiles {
    /// Keeps files by their names, in which slashes separate directories.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is no path of a file.
    pub fn keep(files: impl IntoIterator<Item = (String, Bytes)>) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let store = InMemory::new();
        for (name, content) in files {
            let key = Key::parse(&name).ok().filter(|key| !key.as_ref().is_empty());
            let refused = || Error::InvalidArgument(format!("name {name:?}: expected the name of a file"));
            let put = store.put(&key.ok_or_else(refused)?, content.into()).now_or_never();
            put.and_then(std::result::Result::ok).ok_or_else(refused)?;
        }
        let root = format!("{SCHEME}://{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let store = Arc::new(store);
        STORES.rcu(|held| {
            let mut held = HashMap::clone(held);
            held.insert(root.clone(), Arc::clone(&store));
            held
        });
        Ok(Self { root })
    }

    /// The path of a file, or of the directory of all files for an empty name.
    pub fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { PathBuf::from(&self.root) } else { Path::new(&self.root).join(name) }
    }
}

impl Drop for MemoryFiles {
    fn drop(&mut self) {
        STORES.rcu(|held| {
            let mut held = HashMap::clone(held);
            held.remove(&self.root);
            held
        });
    }
}

/// Returns whether a root is that of files in memory, which may be gone.
pub(super) fn is_in_memory(root: &str) -> bool {
    root.strip_prefix(SCHEME).is_some_and(|rest| rest.starts_with("://"))
}

/// The store of a root, if it is one in memory.
pub(super) fn store(root: &str) -> Option<Arc<dyn ObjectStore>> {
    let store = STORES.load().get(root).map(Arc::clone)?;
    Some(store)
}
