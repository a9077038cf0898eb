//! The check that a directory that is written has no part elsewhere.
//!
//! A store may come from elsewhere, and a link in it may lead to any file of this machine. So a writer checks all names before
//! it changes anything. The directory that the caller names may be a link: the caller chose it.

use std::fs::{self, FileType};
use std::io;
use std::path::Path;

use super::regular_file::NotAFile;
use crate::error::{Error, Result};

/// Checks a file or directory and everything down to `levels` below it: there are only directories and regular files, and no
/// directory has the name of a file. A missing path passes.
///
/// Files are `levels` below the path, and their names are numbers. With 0 the path is a file itself.
///
/// # Errors
/// [`NotAFile`] for the first such path; an I/O error.
pub fn check_part(path: &Path, levels: usize) -> Result<()> {
    match fs::symlink_metadata(path) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(()),
        Err(e) => Err(Error::io(path, e)),
        Ok(kind) => check(path, kind.file_type(), levels, true),
    }
}

/// Checks what is in a directory, as [`check_part`]; the directory itself may be a link, or be missing.
///
/// # Errors
/// As [`check_part`].
pub fn check_directory(directory: &Path, levels: usize) -> Result<()> {
    let fail = |e| Error::io(directory, e);
    let entries = match fs::read_dir(directory) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(()),
        entries => entries.map_err(fail)?,
    };
    for entry in entries {
        let entry = entry.map_err(fail)?;
        let is_number = entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        let kind = match entry.file_type() {
            // A file may be deleted meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            kind => kind.map_err(|e| Error::io(&entry.path(), e))?,
        };
        if !kind.is_file() {
            check(&entry.path(), kind, levels.saturating_sub(1), is_number)?;
        }
    }
    Ok(())
}

fn check(path: &Path, kind: FileType, levels: usize, is_file_name: bool) -> Result<()> {
    match NotAFile::of(kind) {
        Some(NotAFile::Directory) if levels > 0 => check_directory(path, levels),
        Some(NotAFile::Directory) if !is_file_name => Ok(()),
        Some(other) => Err(other.error(path)),
        None => Ok(()),
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn refused(result: Result<()>) -> Option<String> {
        result.err().map(|error| match error {
            Error::Io { path, .. } => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn links_are_refused_at_every_level() {
        let folder = tempfile::tempdir().unwrap();
        let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
        fs::create_dir_all(root.join("T/0")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(root.join("T/0/00000000000000000000"), b"x").unwrap();
        fs::write(root.join("stray"), b"x").unwrap();
        assert_eq!(refused(check_part(&root, 3)), None);
        for link in ["U", "T/1", "T/0/00000000000000000020", "T/0/stray"] {
            symlink(&outside, root.join(link)).unwrap();
            let name = link.rsplit('/').next().map(str::to_owned);
            assert_eq!(refused(check_part(&root, 3)), name);
            fs::remove_file(root.join(link)).unwrap();
        }
        let link = folder.path().join("link");
        symlink(&root, &link).unwrap();
        assert_eq!(refused(check_part(&link, 3)).as_deref(), Some("link"));
        assert_eq!(refused(check_directory(&link, 3)), None);
        assert_eq!(refused(check_part(&folder.path().join("none"), 3)), None);
    }

    #[test]
    fn a_file_s_name_belongs_to_a_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("_temporary")).unwrap();
        assert_eq!(refused(check_part(folder.path(), 1)), None);
        assert!(refused(check_part(folder.path(), 0)).is_some());
        fs::create_dir(folder.path().join("00000000000000000000")).unwrap();
        assert_eq!(refused(check_part(folder.path(), 1)).as_deref(), Some("00000000000000000000"));
    }
}
