//! Truncates a sequence of files: sets the rest of one file to zero and deletes the files after it.
//!
//! A broker leaves the bytes after the end where they are (upstream `CommitLog#recoverNormally`,
//! `MappedFileQueue#truncateDirtyFiles`), so a recovery after its next crash may read them again. Zeros are an end for a broker
//! as well, and no recovery can read a message from them.

use std::fs::{self, File};
use std::path::Path;

use super::offset_files::{self, OffsetFile};
use crate::error::{Error, Result};
use crate::io::disk::{self, write_all_at};
use crate::io::regular_file::open_file;
use crate::io::{Holes, Location, PlainFile, ReadAt as _, usize_of};
use crate::report::Report;

/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// The result of a truncation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Truncated {
    /// Bytes from the end to the last one that was not zero.
    pub(super) bytes: u64,
    /// Files with such bytes that were deleted. A file of zeros that a writer prepared is not a loss.
    pub(super) files: u64,
}

/// Truncates a log: deletes the files that begin after an offset and clears the rest of the file that holds it. When this
/// returns, the result is on the disk. Directories separated by commas are one log.
///
/// Counts `bytes_cut` (in each file up to the last byte that was not zero) and `files_deleted`, without files of zeros.
///
/// # Errors
/// `InvalidArgument` for an offset before the log; an I/O error, with the path.
pub fn truncate_log(directory: impl Into<Location>, end_phy_offset: u64) -> Result<Report> {
    let directory = &directory.into();
    let directories = offset_files::directories(directory)?;
    let mut truncated = Truncated::default();
    loop {
        let files = offset_files::list(&directories)?;
        if let Some(first) = files.first().filter(|first| end_phy_offset < first.start) {
            let (directory, begin) = (directory.display(), first.start);
            let text = format!("{directory}: cannot truncate at offset {end_phy_offset}, the log begins at {begin}");
            return Err(Error::InvalidArgument(text));
        }
        let kept = files.partition_point(|file| file.start <= end_phy_offset);
        let (kept, behind) = files.split_at(kept);
        if behind.is_empty() {
            if let Some(file) = kept.last() {
                truncated.bytes += clear_from(&file.path, end_phy_offset - file.start)?;
            }
            break;
        }
        // List again: another directory may hold a file of the same name.
        truncated.add(delete(behind)?);
    }
    Ok(truncated.report())
}

/// Returns what [`truncate_log`] would count; nothing is changed.
///
/// # Errors
/// An I/O error, with the path.
pub fn log_truncation(directory: impl Into<Location>, end_phy_offset: u64) -> Result<Report> {
    let directory = &directory.into();
    let mut truncated = Truncated::default();
    for file in offset_files::list(&offset_files::directories(directory)?)? {
        let bytes = written_len(&file.path, end_phy_offset.saturating_sub(file.start))?;
        truncated.add(Truncated { bytes, files: u64::from(bytes > 0 && file.start > end_phy_offset) });
    }
    Ok(truncated.report())
}

impl Truncated {
    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.files += other.files;
    }

    fn report(self) -> Report {
        let mut report = Report::default();
        report.count("bytes_cut", self.bytes);
        report.count("files_deleted", self.files);
        report
    }
}

/// Returns the counts of [`truncate_files`] without changing anything.
///
/// # Errors
/// An I/O error, with the path.
pub(super) fn truncation(files: &[OffsetFile], position: u64) -> Result<Truncated> {
    let mut truncated = Truncated::default();
    for file in files {
        let bytes = written_len(&file.path, position.saturating_sub(file.start))?;
        truncated.add(Truncated { bytes, files: u64::from(bytes > 0 && file.start >= position) });
    }
    Ok(truncated)
}

/// Deletes the files that begin at or after a position, and clears the rest of the file that holds the position.
///
/// # Errors
/// An I/O error, with the path.
pub(super) fn truncate_files(files: &[OffsetFile], position: u64) -> Result<Truncated> {
    let (kept, behind) = files.split_at(files.partition_point(|file| file.start < position));
    let mut truncated = delete(behind)?;
    if let Some(file) = kept.last().filter(|file| position < file.end()) {
        truncated.bytes += clear_from(&file.path, position - file.start)?;
    }
    Ok(truncated)
}

/// Returns the number of bytes of a file from `begin` to the last byte that is not zero.
///
/// # Errors
/// An I/O error, with the path.
pub(super) fn written_len(path: &Path, begin: u64) -> Result<u64> {
    let file = open_file(path, false)?;
    Ok(for_each_data(&file, path, begin, |_, _| Ok(()))?.saturating_sub(begin))
}

/// Sets every byte of a file from `begin` on to zero and syncs it. Holes remain holes. Returns the number of bytes up to the last
/// one that was not zero.
fn clear_from(path: &Path, begin: u64) -> Result<u64> {
    let file = open_file(path, true)?;
    let written = for_each_data(&file, path, begin, |at, bytes| write_all_at(&file, &vec![0; bytes.len()], at))?;
    if written > begin {
        file.sync_all().map_err(|e| Error::io(path, e))?;
    }
    Ok(written.saturating_sub(begin))
}

/// Deletes files and syncs their directories. The last file is deleted first, so that no gap ever exists.
fn delete(files: &[OffsetFile]) -> Result<Truncated> {
    let mut deleted = Truncated::default();
    for file in files.iter().rev() {
        let bytes = written_len(&file.path, 0)?;
        deleted.add(Truncated { bytes, files: u64::from(bytes > 0) });
        fs::remove_file(&file.path).map_err(|e| Error::io(&file.path, e))?;
        disk::sync_parent(&file.path)?;
    }
    Ok(deleted)
}

/// Calls `take` for the chunks of a file from `begin` on that hold a byte other than zero. Returns the offset after the last such
/// byte.
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
        buffer.resize(usize_of(source.len() - at).min(CHUNK), 0);
        source.read_exact_at(&mut buffer, at).map_err(fail)?;
        if let Some(last) = buffer.iter().rposition(|byte| *byte != 0) {
            end = at + last as u64 + 1;
            take(at, &buffer).map_err(fail)?;
        } else {
            holes.met_zeros(&source, at).map_err(fail)?;
        }
        at = holes.skip(&source, at + buffer.len() as u64);
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::rocketmq::file_name;

    /// Creates a log of four files of 64 bytes from offset 64 on; the last is zero.
    fn log(directory: &Path) {
        for (number, byte) in [(1, 1u8), (2, 2), (3, 3), (4, 0)] {
            fs::write(directory.join(file_name::of_offset(64 * number)), [byte; 64]).unwrap();
        }
        fs::write(directory.join("stray"), b"kept").unwrap();
    }

    fn counts(report: &Report) -> [u64; 2] {
        let [("bytes_cut", bytes), ("files_deleted", files)] = report.checked[..] else {
            panic!("{:?}", report.checked);
        };
        [bytes, files]
    }

    #[test]
    fn the_rest_of_the_file_is_zero_and_later_files_go() {
        for (end, bytes, deleted, left) in [
            // The fourth file has only zeros: it is deleted, but nothing is lost with it.
            (64, 3 * 64, 2, vec![vec![0; 64]]),
            (100, 28 + 2 * 64, 2, vec![[vec![1; 36], vec![0; 28]].concat()]),
            (128, 2 * 64, 1, vec![vec![1; 64], vec![0; 64]]),
            (255, 1, 0, vec![vec![1; 64], vec![2; 64], [vec![3; 63], vec![0]].concat()]),
            (260, 0, 0, vec![vec![1; 64], vec![2; 64], vec![3; 64], vec![0; 64]]),
            (320, 0, 0, vec![vec![1; 64], vec![2; 64], vec![3; 64], vec![0; 64]]),
            (9_999, 0, 0, vec![vec![1; 64], vec![2; 64], vec![3; 64], vec![0; 64]]),
        ] {
            let folder = tempfile::tempdir().unwrap();
            log(folder.path());
            assert_eq!(counts(&log_truncation(folder.path(), end).unwrap()), [bytes, deleted], "{end}");
            let report = truncate_log(folder.path(), end).unwrap();
            assert_eq!(counts(&report), [bytes, deleted], "{end}");
            let files = offset_files::list(&[folder.path().into()]).unwrap();
            let content: Vec<_> = files.iter().map(|file| fs::read(&file.path).unwrap()).collect();
            assert_eq!(content, left, "{end}");
            assert!(folder.path().join("stray").exists());
            assert_eq!(counts(&truncate_log(folder.path(), end).unwrap()), [0, 0]);
        }
    }

    #[test]
    fn a_log_in_several_directories_is_truncated_in_all() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
        for (directory, numbers) in [(&a, [0, 2]), (&b, [1, 2])] {
            fs::create_dir(directory).unwrap();
            for number in numbers {
                fs::write(directory.join(file_name::of_offset(64 * number)), [7; 64]).unwrap();
            }
        }
        let both = format!("{},{}", a.display(), b.display());
        assert_eq!(counts(&truncate_log(Path::new(&both), 70).unwrap()), [58 + 2 * 64, 2]);
        assert_eq!(fs::read_dir(&a).unwrap().count(), 1);
        assert_eq!(fs::read(b.join(file_name::of_offset(64))).unwrap(), [vec![7; 6], vec![0; 58]].concat());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn holes_are_neither_read_nor_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file_name::of_offset(0));
        let file = fs::File::create(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        crate::io::disk::write_all_at(&file, b"message", 3 << 20).unwrap();
        crate::io::disk::write_all_at(&file, b"stale", 1 << 39).unwrap();
        let counted = counts(&truncate_log(folder.path(), (3 << 20) + 7).unwrap());
        assert_eq!(counted, [(1 << 39) + 5 - (3 << 20) - 7, 0]);
        let mut head = vec![1; 8];
        std::os::unix::fs::FileExt::read_exact_at(&fs::File::open(&path).unwrap(), &mut head, 3 << 20).unwrap();
        assert_eq!(head, b"message\0");
    }

    #[test]
    fn an_offset_before_the_log_is_refused_and_one_behind_it_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(counts(&truncate_log(folder.path(), 0).unwrap()), [0, 0]);
        log(folder.path());
        assert!(matches!(truncate_log(folder.path(), 63), Err(Error::InvalidArgument(_))));
        assert!(matches!(truncate_log(folder.path().join("none"), 63), Err(Error::Io { .. })));
        assert_eq!(offset_files::list(&[folder.path().into()]).unwrap().len(), 4);
    }
}
