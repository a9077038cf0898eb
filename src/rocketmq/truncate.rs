//! Cutting a sequence of files: the rest of one file becomes zero, the files behind it go.
//!
//! A broker leaves the bytes behind the end where they are (upstream `MappedFileQueue#truncateDirtyFiles`), and its next crash may
//! bring them back. A file of zeros is the same to it, and holds nothing that could come back.

use std::fs::{self, File};
use std::path::Path;

use super::offset_files::OffsetFile;
use crate::error::{Error, Result};
use crate::io::disk::{self, open_file, write_all_at};
use crate::io::{Holes, PlainFile, ReadAt as _};

/// Bytes that are looked at together.
const CHUNK: usize = 64 * 1024;

/// What a cut took away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cut {
    /// Bytes from the end on up to the last one that was not zero.
    pub(super) bytes: u64,
    /// Files that were deleted.
    pub(super) files: u64,
}

/// Makes every byte of a file from `begin` on zero and waits until that is on the disk. Space that was never written stays so.
/// Gives how many bytes it was to the last that was not zero.
///
/// # Errors
/// The system's error, with the path.
pub(super) fn zero_rest(path: &Path, begin: u64) -> Result<u64> {
    let file = open_file(path, true)?;
    let written = for_each_data(&file, path, begin, |at, bytes| write_all_at(&file, &vec![0; bytes.len()], at))?;
    if written > begin {
        file.sync_all().map_err(|e| Error::io(path, e))?;
    }
    Ok(written.saturating_sub(begin))
}

/// Deletes files, the last one first, so that no gap is ever left, and waits until their names are gone from the disk.
/// Gives how many bytes they held, each up to the last that was not zero.
///
/// # Errors
/// The system's error, with the path.
pub(super) fn delete(files: &[OffsetFile]) -> Result<u64> {
    let mut bytes = 0;
    for file in files.iter().rev() {
        bytes += data_len(&file.path, 0)?;
        fs::remove_file(&file.path).map_err(|e| Error::io(&file.path, e))?;
        disk::sync_parent(&file.path)?;
    }
    Ok(bytes)
}

/// How many bytes of a file it is from `begin` to the last one that is not zero.
///
/// # Errors
/// The system's error, with the path.
pub(super) fn data_len(path: &Path, begin: u64) -> Result<u64> {
    let file = open_file(path, false)?;
    Ok(for_each_data(&file, path, begin, |_, _| Ok(()))?.saturating_sub(begin))
}

/// Gives `take` the parts of a file from `begin` on that are not zero throughout; returns where the last byte ends that is not.
fn for_each_data(
    file: &File,
    path: &Path,
    begin: u64,
    mut take: impl FnMut(u64, &[u8]) -> std::io::Result<()>,
) -> Result<u64> {
    let fail = |e| Error::io(path, e);
    let source = PlainFile::new(file.try_clone().map_err(fail)?).map_err(fail)?;
    let mut buffer = vec![0; CHUNK];
    let (mut at, mut end) = (begin, begin);
    let mut holes = Holes::default();
    while at < source.len() {
        let len = usize::try_from(source.len() - at).unwrap_or(usize::MAX).min(CHUNK);
        let bytes = buffer.get_mut(..len).unwrap_or_default();
        source.read_exact_at(bytes, at).map_err(fail)?;
        if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
            end = at + last as u64 + 1;
            take(at, bytes).map_err(fail)?;
        } else {
            holes.met_zeros(&source, at).map_err(fail)?;
        }
        at = holes.skip(at + len as u64);
    }
    Ok(end)
}

/// Deletes the files that begin at a position or behind it, and makes the rest of the one that holds it zero.
///
/// # Errors
/// The system's error, with the path.
pub(super) fn cut_files(files: &[OffsetFile], position: u64) -> Result<Cut> {
    let (kept, behind) = files.split_at(files.partition_point(|file| file.start < position));
    let mut cut = Cut { bytes: delete(behind)?, files: behind.len() as u64 };
    if let Some(file) = kept.last().filter(|file| position < file.end()) {
        cut.bytes += zero_rest(&file.path, position - file.start)?;
    }
    Ok(cut)
}
