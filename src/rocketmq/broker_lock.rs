//! Refuses to write a store's index files while a broker runs on the store.

use std::path::Path;

use crate::error::Result;
use crate::io::disk::absolute;
use crate::io::store_lock::refuse_other_holder;

/// Checks that no broker runs on the store that an index file belongs to: one with a commit log two levels above the file.
///
/// # Errors
/// `Locked` if a broker runs or another process writes the store; an I/O error, with the path.
pub fn refuse_running_broker(index_file: &Path) -> Result<()> {
    let index_file = absolute(index_file)?;
    match index_file.parent().and_then(Path::parent) {
        Some(root) if root.join("commitlog").is_dir() => refuse_other_holder(&root.join("lock")),
        _ => Ok(()),
    }
}
