//! The files of a log that is being written (upstream `MappedFileQueue`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::allocate_mapped_file_service::AllocateMappedFileService;
use super::mapped_file::{MappedFile, MappedFileOptions};
use super::options::{AppendMode, WriterOptions};
use crate::error::{Error, Result};

/// Open files by the offset of their first byte: those that are not flushed, the file written last, and the ones after it.
#[derive(Debug)]
pub(super) struct MappedFileQueue {
    options: Arc<MappedFileOptions>,
    files: BTreeMap<u64, Arc<MappedFile>>,
    /// Prepares files, unless a put that writes to files creates them.
    service: Option<AllocateMappedFileService>,
}

impl MappedFileQueue {
    pub(super) fn new(directory: &Path, options: WriterOptions) -> Self {
        let options = Arc::new(MappedFileOptions::new(directory, options));
        Self { options, files: BTreeMap::new(), service: None }
    }

    fn start(&self, phy_offset: u64) -> u64 {
        phy_offset - phy_offset % self.options.file_size
    }

    /// Opens or creates the file of an offset, to append there, or takes it from the thread that prepared it.
    ///
    /// # Errors
    /// As [`MappedFile::init`].
    pub(super) fn ready(&mut self, phy_offset: u64) -> Result<()> {
        let start = self.start(phy_offset);
        if self.files.contains_key(&start) {
            return Ok(());
        }
        let file = if self.options.append.mode == AppendMode::Write {
            MappedFile::init(&self.options, start, &AtomicBool::new(false))?
        } else {
            if self.service.is_none() {
                self.service = Some(AllocateMappedFileService::start(Arc::clone(&self.options))?);
            }
            let next = start + self.options.file_size;
            match &self.service {
                Some(service) => service.put_request_and_return_mapped_file(start, next)?,
                None => return Err(Error::InvalidArgument("the log is closed for writing".into())),
            }
        };
        file.begin_at(phy_offset - start);
        self.files.insert(start, Arc::new(file));
        Ok(())
    }

    /// The file of an offset, which [`Self::ready`] opened.
    ///
    /// # Errors
    /// An I/O error if it was not.
    pub(super) fn file(&self, phy_offset: u64) -> Result<&Arc<MappedFile>> {
        let start = self.start(phy_offset);
        self.files.get(&start).ok_or_else(|| Error::io(&self.options.path(start), std::io::ErrorKind::NotFound.into()))
    }

    /// Appends bytes of one file, which [`Self::ready`] opened.
    ///
    /// # Errors
    /// As [`MappedFile::append_messages_inner`].
    pub(super) fn append(&self, phy_offset: u64, bytes: &[u8]) -> Result<()> {
        let file = self.file(phy_offset)?;
        file.append_messages_inner(bytes, phy_offset - file.file_from_offset)
    }

    /// The files that append to a buffer.
    pub(super) fn buffered(&self) -> impl Iterator<Item = &Arc<MappedFile>> {
        self.files.values().filter(|file| file.is_buffered())
    }

    /// Returns the files to flush, each with the position up to which it is committed.
    pub(super) fn unflushed(&self) -> Vec<(Arc<MappedFile>, u64)> {
        let files = self.files.values().map(|file| (Arc::clone(file), file.committed_position()));
        files.filter(|(file, committed)| file.flushed_position() < *committed).collect()
    }

    /// Closes the flushed files before the one of an offset.
    pub(super) fn leave(&mut self, phy_offset: u64) {
        if self.files.len() < 2 {
            return;
        }
        let start = self.start(phy_offset);
        let is_flushed = |file: &MappedFile| file.flushed_position() >= file.wrote_position();
        let left: Vec<u64> =
            self.files.range(..start).filter(|(_, file)| is_flushed(file)).map(|(at, _)| *at).collect();
        for file in left.iter().filter_map(|at| self.files.remove(at)) {
            match &self.service {
                Some(service) => service.leave(file),
                None => drop(file),
            }
        }
    }

    /// Removes the thread that prepares files. Dropping it ends it.
    pub(super) fn take_service(&mut self) -> Option<AllocateMappedFileService> {
        self.service.take()
    }

    /// Removes all files and the thread. Dropping them closes and ends them.
    pub(super) fn take(&mut self) -> Self {
        let (files, service) = (std::mem::take(&mut self.files), self.service.take());
        Self { options: Arc::clone(&self.options), files, service }
    }
}
