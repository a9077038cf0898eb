//! A part of a log as a plan saw it, for a reader that comes later, maybe on another machine that has copies of the files.

use super::log::{CommitLog, Options};
use crate::error::Result;
use crate::io::Location;
use crate::io::PlannedFile;
use crate::rocketmq::offset_files::OffsetFile;

/// Files of a log that a reader needs, and the facts that it needs of the rest of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedLog {
    /// The files, in the order of their offsets.
    pub files: Vec<PlannedFile>,
    /// Start of the last file of the whole log that holds messages.
    pub last_file: u64,
    /// Offset of the last message in that file, if the reader needs it: a shorter copy of the file does not have it.
    pub last_message: Option<u64>,
}

/// A missing part of a plan: the file, what was planned, and what is there.
pub type Lost = (Location, String, String);

impl CommitLog {
    /// Returns what a reader needs of the files that hold these offsets; `None`: of all files.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn plan(&self, phy_offsets: Option<&[u64]>) -> Result<PlannedLog> {
        let files = self.listing()?;
        let mut numbers: Vec<usize> = match phy_offsets {
            None => (0..files.len()).collect(),
            Some(offsets) => {
                let after = offsets.iter().map(|offset| files.partition_point(|file| file.start <= *offset));
                after.filter_map(|after| after.checked_sub(1)).collect()
            }
        };
        numbers.sort_unstable();
        numbers.dedup();
        let last_file = self.last_start(&files)?;
        let needed = || numbers.iter().filter_map(|number| files.get(*number));
        Ok(PlannedLog {
            files: needed().map(planned).collect::<Result<_>>()?,
            last_file,
            last_message: if needed().any(|file| file.start == last_file) { self.last_message()? } else { None },
        })
    }
}

/// Describes a file. The listing of an object's directory has all of it.
fn planned(file: &OffsetFile) -> Result<PlannedFile> {
    match &file.etag {
        Some(etag) => Ok(PlannedFile { path: file.path.clone(), len: file.len, head: None, etag: Some(etag.clone()) }),
        None => PlannedFile::of(&file.path),
    }
}

impl PlannedLog {
    /// Opens the planned part of the log in a directory, without listing it, and returns what is lost of the plan.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub fn open(&self, directory: &Location, options: Options) -> Result<(CommitLog, Vec<Lost>)> {
        let (mut present, mut lost) = (Vec::new(), Vec::new());
        for file in &self.files {
            match file.fault()? {
                Some(found) => lost.push((file.path.clone(), file.expected(), found)),
                None => present.push(&file.path),
            }
        }
        let log = CommitLog::of_files(directory, options, &present, self.last_file, self.last_message)?;
        if let (Some(offset), Some(path)) = (self.last_message, present.last())
            && self.files.last().is_some_and(|last| last.path == **path)
            && log.message(offset)?.is_none()
        {
            let expected = format!("the log up to the message at offset {offset}");
            lost.push(((*path).clone(), expected, format!("its end at {}", log.max_offset()?)));
        }
        Ok((log, lost))
    }
}
