//! The parts of a store that a writer opens, and the lock of a broker that runs on it.

use std::path::Path;

use crate::error::Result;
use crate::io::disk::absolute;
use crate::io::regular_file::check_part;
use crate::io::store_lock::refuse_other_holder;

/// Each part with the number of directories from it down to its files.
const PARTS: [(&str, usize); 9] = [
    ("abort", 0),
    ("checkpoint", 0),
    ("lock", 0),
    ("config", 1),
    ("commitlog", 1),
    // A directory among the index files is passed over and reported.
    ("index", 2),
    ("consumequeue", 3),
    ("batchconsumequeue", 3),
    ("consumequeue_ext", 3),
];

/// Checks that the store holds its parts itself, before it is written: they have only directories and regular files, no links,
/// and no directory has the name of a file. The root may be a link.
///
/// # Errors
/// The path of the first one, as an I/O error; an I/O error.
pub fn check_parts(root: &Path) -> Result<()> {
    PARTS.iter().try_for_each(|(name, levels)| check_part(&root.join(name), *levels))
}

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
