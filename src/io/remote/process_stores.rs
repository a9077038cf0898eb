//! Stores that only this process has: bytes in memory, and file systems that callers gave. No user can write their URLs.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;
use object_store::ObjectStore;

use crate::io::fork::Generation;

/// The scheme of files in memory.
pub(super) const MEMORY: &str = "memory";
/// The scheme of the file systems of callers.
pub(super) const FILE_SYSTEM: &str = "filesystem";

/// A store, and the process that keeps it.
type Kept = (Generation, Arc<dyn ObjectStore>);

/// A lock would be held for ever in the child of a fork that another thread made meanwhile.
static STORES: LazyLock<ArcSwap<HashMap<String, Kept>>> = LazyLock::new(ArcSwap::default);

/// Keeps a store, and returns its root.
pub(super) fn keep(scheme: &str, store: &Arc<dyn ObjectStore>) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let root = format!("{scheme}://{}", NEXT.fetch_add(1, Ordering::Relaxed));
    STORES.rcu(|held| {
        let mut held = HashMap::clone(held);
        held.insert(root.clone(), (Generation::current(), Arc::clone(store)));
        held
    });
    root
}

/// Drops the store of a root.
pub(super) fn forget(root: &str) {
    STORES.rcu(|held| {
        let mut held = HashMap::clone(held);
        held.remove(root);
        held
    });
}

/// Returns whether a root is that of such a store, which may be gone.
pub(super) fn is_own(root: &str) -> bool {
    [MEMORY, FILE_SYSTEM].iter().any(|scheme| root.strip_prefix(scheme).is_some_and(|rest| rest.starts_with("://")))
}

/// Returns whether a path is in a caller's file system.
pub(super) fn is_file_system(path: &Path) -> bool {
    path.to_str().and_then(|text| text.strip_prefix(FILE_SYSTEM)).is_some_and(|rest| rest.starts_with("://"))
}

/// Returns whether the store of a root is kept.
pub(super) fn is_kept(root: &str) -> bool {
    STORES.load().contains_key(root)
}

/// The store of a root. The error says what is expected.
pub(super) fn store(root: &str) -> Result<Arc<dyn ObjectStore>, &'static str> {
    let held = STORES.load();
    let is_file_system = root.starts_with(FILE_SYSTEM);
    match held.get(root) {
        // Its connections and threads stayed with the parent.
        Some((process, _)) if is_file_system && !process.is_current() => {
            Err("expected a file system of this process, found one from before a fork; open it again with filesystem=")
        }
        Some((_, store)) => Ok(Arc::clone(store)),
        None if is_file_system => {
            Err("expected a file system of this process; it is not pickled: open it again with filesystem=")
        }
        None => Err("expected bytes in memory, which are gone with their handle; they are not pickled"),
    }
}
