//! Deletes the files of a queue whose messages are all gone from the log.
//!
//! Source: upstream `ConsumeQueue#deleteExpiredFile`, `MappedFileQueue#deleteExpiredFileByOffset`, `ConsumeQueue#correctMinOffset`,
//! `ConsumeQueueExt#truncateByMinAddress`. A broker reads the last unit of a file. Here it is the last unit of a message,
//! because a file may end with filling, and a file that ends with anything else stays.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::rocketmq::consume_queue::read::{ConsumeQueue, Options, is_extension_address, offset_of};
use crate::rocketmq::offset_files::{self, OffsetFile, delete_file};

/// Deletes the oldest files of a queue whose messages are before an offset of the log, and the extension files that no remaining
/// message needs. The newest file of each stays. Adds the paths to `deleted`.
///
/// # Errors
/// An I/O error, with the path; the files in `deleted` are gone.
pub(super) fn delete_expired(
    directory: &Path,
    extension: &Path,
    min_phy_offset: i64,
    deleted: &mut Vec<PathBuf>,
) -> Result<()> {
    let queue = match ConsumeQueue::open(directory, Options::default()) {
        // A queue whose units are not written yet.
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
        queue => queue?,
    };
    let mut files = queue.files()?;
    let mut expired = 0;
    while expired + 1 < files.len() && is_expired(&queue, &files, expired, min_phy_offset)? {
        expired += 1;
    }
    delete(files.drain(..expired), deleted)?;
    let extensions = match offset_files::list(&[extension.into()]) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
        extensions => extensions?,
    };
    let first = queue.unit(&files, queue.unit_from(&files, min_phy_offset)?)?;
    let Some(address) = first.map(|first| first.unit.unit.tags_code).filter(|code| is_extension_address(*code)) else {
        return Ok(());
    };
    let count = extensions.iter().take_while(|file| file.end() < offset_of(address)).count();
    delete(extensions.into_iter().take(count), deleted)
}

/// Returns whether all messages of a file are before an offset of the log.
fn is_expired(queue: &ConsumeQueue, files: &[OffsetFile], place: usize, min_phy_offset: i64) -> Result<bool> {
    let Some(file) = files.get(place) else { return Ok(false) };
    let (begin, mut end) = (file.start / queue.unit_bytes(), file.end() / queue.unit_bytes());
    while end > begin {
        end -= 1;
        let Some(last) = queue.unit(files, end)?.map(|last| last.unit.unit) else { return Ok(false) };
        if !last.is_pre_blank() {
            return Ok(last.is_message() && last.phy_offset < min_phy_offset);
        }
    }
    Ok(true)
}

/// Deletes files, the oldest first, so that no gap ever exists.
fn delete(files: impl Iterator<Item = OffsetFile>, deleted: &mut Vec<PathBuf>) -> Result<()> {
    for file in files {
        delete_file(&file.path)?;
        deleted.push(file.path.to_path_buf());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::rocketmq::consume_queue::unit::{PRE_BLANK, Unit};
    use crate::rocketmq::file_name;

    /// Writes files of three units each.
    fn queue(directory: &Path, units: &[[Unit; 3]]) {
        fs::create_dir_all(directory).unwrap();
        for (number, units) in units.iter().enumerate() {
            let bytes: Vec<u8> = units.iter().flat_map(|unit| unit.encode()).collect();
            fs::write(directory.join(file_name::of_offset(60 * number as u64)), bytes).unwrap();
        }
    }

    fn message(phy_offset: i64) -> Unit {
        Unit { phy_offset, size: 10, tags_code: i64::MIN + phy_offset }
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_stay_from_the_first_one_with_a_message_of_the_log_and_the_newest_always() {
        let zero = Unit { phy_offset: 0, size: 0, tags_code: 0 };
        let units = [
            [message(0), message(10), message(20)],
            // Filling ends a file after its last message.
            [message(30), PRE_BLANK, PRE_BLANK],
            [PRE_BLANK; 3],
            [message(40), message(50), message(60)],
            [message(70), zero, zero],
        ];
        for (min_phy_offset, first) in [(0, 0), (20, 0), (21, 1), (30, 1), (31, 3), (60, 3), (61, 4), (1_000, 4)] {
            let folder = tempfile::tempdir().unwrap();
            let (directory, extension) = (folder.path().join("queue"), folder.path().join("extension"));
            queue(&directory, &units);
            let mut deleted = Vec::new();
            delete_expired(&directory, &extension, min_phy_offset, &mut deleted).unwrap();
            assert_eq!(deleted.len(), first, "{min_phy_offset}");
            let left: Vec<_> = (first..5).map(|number| file_name::of_offset(60 * number as u64)).collect();
            assert_eq!(names(&directory), left, "{min_phy_offset}");
        }
    }

    #[test]
    fn a_file_that_lost_its_end_stays() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("queue");
        let zero = Unit { phy_offset: 0, size: 0, tags_code: 0 };
        queue(&directory, &[[message(0), message(10), zero], [message(20), zero, zero]]);
        let mut deleted = Vec::new();
        delete_expired(&directory, &folder.path().join("none"), 1_000, &mut deleted).unwrap();
        delete_expired(&folder.path().join("none"), &folder.path().join("none"), 1_000, &mut deleted).unwrap();
        assert!(deleted.is_empty());
    }

    #[test]
    fn extension_files_stay_from_the_one_that_the_first_message_needs() {
        for (min_phy_offset, first) in [(0, 0), (30, 0), (31, 1), (61, 2), (62, 2), (80, 2)] {
            let folder = tempfile::tempdir().unwrap();
            let (directory, extension) = (folder.path().join("queue"), folder.path().join("extension"));
            queue(&directory, &[[message(0), message(30), message(31)], [message(60), message(61), message(79)]]);
            fs::create_dir(&extension).unwrap();
            for start in [0, 30, 60] {
                fs::write(extension.join(file_name::of_offset(start)), [0; 30]).unwrap();
            }
            delete_expired(&directory, &extension, min_phy_offset, &mut Vec::new()).unwrap();
            let left: Vec<_> = (first..3).map(|number| file_name::of_offset(30 * number)).collect();
            // After the last message no unit shows what is needed.
            let left = if min_phy_offset == 80 { names(&extension) } else { left };
            assert_eq!(names(&extension), left, "{min_phy_offset}");
        }
    }
}
