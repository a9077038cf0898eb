//! The parts of a store that a writer opens.

use std::path::Path;

use crate::error::Result;
use crate::io::own_parts::check_part;

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
