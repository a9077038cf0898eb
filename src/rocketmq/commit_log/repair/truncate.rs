//! Cutting a log where it ends, without leaving what a later crash would bring back.
//!
//! Source: upstream `CommitLog#recoverNormally`, `MappedFileQueue#truncateDirtyFiles`, which clears no byte.

use std::path::Path;

use crate::error::{Error, Result};
use crate::report::Report;
use crate::rocketmq::cut::{Cut, delete, zero_rest};
use crate::rocketmq::offset_files;

/// Deletes the files that begin behind an offset and makes the rest of the file that holds it zero, all on the disk when it
/// returns. Directories separated by commas make one log together.
///
/// Counted are `bytes_cut`, up to the last one of each file that was not zero, and `files_deleted`.
///
/// # Errors
/// `InvalidArgument` for an offset before the log; the system's error, with the path.
pub fn cut_log(directory: &Path, end_phy_offset: u64) -> Result<Report> {
    let directories = offset_files::directories(directory);
    let mut cut = Cut::default();
    loop {
        let files = offset_files::list(&directories)?;
        if let Some(first) = files.first().filter(|first| end_phy_offset < first.start) {
            let (directory, begin) = (directory.display(), first.start);
            let text = format!("{directory} begins at offset {begin}, it cannot be cut at {end_phy_offset}");
            return Err(Error::InvalidArgument(text));
        }
        let kept = files.partition_point(|file| file.start <= end_phy_offset);
        let (kept, behind) = files.split_at(kept);
        if behind.is_empty() {
            if let Some(file) = kept.last() {
                cut.bytes += zero_rest(&file.path, end_phy_offset - file.start)?;
            }
            break;
        }
        // Listed again: behind a file there may be another of the same name in another directory.
        cut.files += behind.len() as u64;
        cut.bytes += delete(behind)?;
    }
    let mut checked = Report::default();
    checked.count("bytes_cut", cut.bytes);
    checked.count("files_deleted", cut.files);
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::rocketmq::file_name;

    /// A log of four files of 64 bytes from offset 64 on; the last is zero.
    fn log(directory: &Path) {
        for (number, byte) in [(1, 1u8), (2, 2), (3, 3), (4, 0)] {
            fs::write(directory.join(file_name::of_offset(64 * number)), [byte; 64]).unwrap();
        }
        fs::write(directory.join("stray"), b"kept").unwrap();
    }

    fn counts(checked: &Report) -> [u64; 2] {
        let [("bytes_cut", bytes), ("files_deleted", files)] = checked.checked[..] else {
            panic!("{:?}", checked.checked);
        };
        [bytes, files]
    }

    #[test]
    fn the_rest_of_the_file_is_zero_and_later_files_go() {
        for (end, bytes, deleted, left) in [
            (64, 3 * 64, 3, vec![vec![0; 64]]),
            (100, 28 + 2 * 64, 3, vec![[vec![1; 36], vec![0; 28]].concat()]),
            (128, 2 * 64, 2, vec![vec![1; 64], vec![0; 64]]),
            (255, 1, 1, vec![vec![1; 64], vec![2; 64], [vec![3; 63], vec![0]].concat()]),
            (260, 0, 0, vec![vec![1; 64], vec![2; 64], vec![3; 64], vec![0; 64]]),
            (320, 0, 0, vec![vec![1; 64], vec![2; 64], vec![3; 64], vec![0; 64]]),
            (9_999, 0, 0, vec![vec![1; 64], vec![2; 64], vec![3; 64], vec![0; 64]]),
        ] {
            let folder = tempfile::tempdir().unwrap();
            log(folder.path());
            let checked = cut_log(folder.path(), end).unwrap();
            assert_eq!(counts(&checked), [bytes, deleted], "{end}");
            let files = offset_files::list(&[folder.path().to_owned()]).unwrap();
            let content: Vec<_> = files.iter().map(|file| fs::read(&file.path).unwrap()).collect();
            assert_eq!(content, left, "{end}");
            assert!(folder.path().join("stray").exists());
            assert_eq!(counts(&cut_log(folder.path(), end).unwrap()), [0, 0]);
        }
    }

    #[test]
    fn a_log_in_several_directories_is_cut_in_all() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
        for (directory, numbers) in [(&a, [0, 2]), (&b, [1, 2])] {
            fs::create_dir(directory).unwrap();
            for number in numbers {
                fs::write(directory.join(file_name::of_offset(64 * number)), [7; 64]).unwrap();
            }
        }
        let both = format!("{},{}", a.display(), b.display());
        assert_eq!(counts(&cut_log(Path::new(&both), 70).unwrap()), [58 + 2 * 64, 2]);
        assert_eq!(fs::read_dir(&a).unwrap().count(), 1);
        assert_eq!(fs::read(b.join(file_name::of_offset(64))).unwrap(), [vec![7; 6], vec![0; 58]].concat());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_what_was_written_is_looked_at_and_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file_name::of_offset(0));
        let file = fs::File::create(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        crate::io::disk::write_all_at(&file, b"message", 3 << 20).unwrap();
        crate::io::disk::write_all_at(&file, b"ghost", 1 << 39).unwrap();
        let counted = counts(&cut_log(folder.path(), (3 << 20) + 7).unwrap());
        assert_eq!(counted, [(1 << 39) + 5 - (3 << 20) - 7, 0]);
        let mut head = vec![1; 8];
        std::os::unix::fs::FileExt::read_exact_at(&fs::File::open(&path).unwrap(), &mut head, 3 << 20).unwrap();
        assert_eq!(head, b"message\0");
    }

    #[test]
    fn offsets_outside_of_the_log_are_refused_or_cut_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(counts(&cut_log(folder.path(), 0).unwrap()), [0, 0]);
        log(folder.path());
        assert!(matches!(cut_log(folder.path(), 63), Err(Error::InvalidArgument(_))));
        assert!(matches!(cut_log(&folder.path().join("none"), 63), Err(Error::Io { .. })));
        assert_eq!(offset_files::list(&[folder.path().to_owned()]).unwrap().len(), 4);
    }
}
