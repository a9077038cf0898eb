//! Directory trees that are put together from files elsewhere, under a path of their own: `tiered+1f00ba5e://name/directory/file`.
//!
//! What is in such a tree is known to the layers above. They mount it here, so that everything that lists a directory or opens a
//! file reads it like any other one.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;

use super::chunked_file::StoredFile;
use super::remote::RemoteEntry;
use super::remote::roots::{self, Options};
use crate::error::{Error, Result};

/// The begin of each path of a mounted tree.
const SCHEME: &str = "tiered+";

/// What is at a path of a tree.
#[derive(Clone, Debug)]
pub enum Place {
    /// What is at another path.
    Elsewhere(PathBuf),
    /// A file or directory of the tree, at its own path.
    Here(RemoteEntry),
}

/// Where the bytes of a file are.
#[derive(Clone, Debug)]
pub enum Content {
    /// In another file, as they are.
    Whole(PathBuf),
    /// In another file, in chunks.
    Chunks(StoredFile),
}

/// A tree of directories and files. Paths are relative to its root; that of the root is empty.
pub trait Tree: fmt::Debug + Send + Sync {
    /// Lists a directory: names, and what they are.
    ///
    /// # Errors
    /// As [`super::storage::list`].
    fn list(&self, directory: &str) -> Result<Vec<(String, Place)>>;

    /// Finds what is at a path.
    ///
    /// # Errors
    /// As [`super::storage::status`].
    fn find(&self, path: &str) -> Result<Place>;

    /// Finds the bytes of a file.
    ///
    /// # Errors
    /// As [`super::FileSource::open`].
    fn content(&self, path: &str) -> Result<Content>;

    /// Returns the files that should be in a directory and are not: their names, and what is found instead.
    ///
    /// # Errors
    /// As [`Self::list`].
    fn missing(&self, directory: &str) -> Result<Vec<(String, String)>>;

    /// Returns all that is needed to mount it again in another process.
    fn options(&self) -> Options;
}

static MOUNTED: LazyLock<ArcSwap<HashMap<String, Arc<dyn Tree>>>> = LazyLock::new(ArcSwap::default);

/// Mounts the tree that `make` returns, which gets its root as a path. A tree with the same options is mounted once.
///
/// # Errors
/// The errors of `make`.
pub fn mount<T: Tree + 'static>(
    name: &str,
    options: &Options,
    make: impl FnOnce(&Path) -> Result<T>,
) -> Result<PathBuf> {
    if let Some((root, _)) = MOUNTED.load().iter().find(|(_, tree)| tree.options() == *options) {
        return Ok(PathBuf::from(root));
    }
    let root = loop {
        let root = format!("{SCHEME}{}://{name}", roots::new_mark());
        if !MOUNTED.load().contains_key(&root) {
            break root;
        }
    };
    let path = PathBuf::from(&root);
    let tree: Arc<dyn Tree> = Arc::new(make(&path)?);
    MOUNTED.rcu(|known| {
        let mut known = HashMap::clone(known);
        known.insert(root.clone(), Arc::clone(&tree));
        known
    });
    Ok(path)
}

/// Returns whether a path is one of a mounted tree, in this process or in another one.
pub fn is_mounted(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().starts_with(SCHEME.as_bytes())
}

/// Returns the root of a path and what follows it.
fn split(path: &Path) -> Option<(&str, &str)> {
    let text = path.to_str().filter(|_| is_mounted(path))?;
    let begin = text.find("://")? + 3;
    let end = text.get(begin..)?.find('/').map_or(text.len(), |at| begin + at);
    Some((text.get(..end)?, text.get(end..)?.trim_start_matches('/')))
}

/// Returns the tree of a path, and the path in it; `None` for a path of another kind.
pub(super) fn tree(path: &Path) -> Option<Result<(Arc<dyn Tree>, &str)>> {
    let (root, rest) = split(path)?;
    let found = MOUNTED.load().get(root).map(Arc::clone);
    Some(found.map(|tree| (tree, rest)).ok_or_else(|| {
        let text = format!("{}: expected a directory that this process opened with tiered=", path.display());
        Error::InvalidArgument(text)
    }))
}

/// Returns the same path below another root.
pub fn moved(path: &Path, root: &Path) -> PathBuf {
    match split(path) {
        Some((_, rest)) if !rest.is_empty() => root.join(rest),
        _ => root.to_owned(),
    }
}

/// Returns the options of the tree of a path.
pub fn options(path: &Path) -> Option<Options> {
    tree(path)?.ok().map(|(tree, _)| tree.options())
}
