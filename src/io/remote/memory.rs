//! Files that are bytes in memory, in a store of their own: `memory://1/00000000000000000000.log`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt as _};

use super::process_stores;
use crate::error::{Error, Result};

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
        let store = InMemory::new();
        for (name, content) in files {
            let key = Key::parse(&name).ok().filter(|key| !key.as_ref().is_empty());
            let refused = || Error::InvalidArgument(format!("name {name:?}: expected the name of a file"));
            let put = store.put(&key.ok_or_else(refused)?, content.into()).now_or_never();
            put.and_then(std::result::Result::ok).ok_or_else(refused)?;
        }
        let store: Arc<dyn ObjectStore> = Arc::new(store);
        Ok(Self { root: process_stores::keep(process_stores::MEMORY, &store) })
    }

    /// The path of a file, or of the directory of all files for an empty name.
    pub fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { PathBuf::from(&self.root) } else { Path::new(&self.root).join(name) }
    }
}

impl Drop for MemoryFiles {
    fn drop(&mut self) {
        process_stores::forget(&self.root);
    }
}
