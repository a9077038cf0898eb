//! The next index file, prepared by a helper thread while the current one is being filled.
//!
//! The first store into each page of a new file is a page fault: about a third of the time of all its puts. A helper thread
//! takes these faults in advance. It creates the file without a name, extends it, reserves its space, and brings its pages
//! into memory, large ones if the file system has them. The file gets its seeds and its name when the writer rolls. Until
//! then no other process can open it, and a process that dies leaves nothing.
//!
//! If the system has no files without a name, nothing is prepared. Source of the idea: `AllocateMappedFileService`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::bytes::{Bytes, on_writable, writable_bytes};
use super::index_file::IndexFile;
use super::open::{CreateOptions, clone, write_seeds};
use crate::error::{Error, Result};
use crate::hash_index::format::geometry::Geometry;
use crate::io::disk::{NewFile, lock_writer};
use crate::io::fork::Generation;
use crate::io::{Access, WriteAt};

/// Bytes populated between two checks whether the file is still wanted.
const STEP: u64 = 16 << 20;

/// An index file in preparation: the helper thread, then its result. Dropping it leaves nothing.
#[derive(Debug)]
pub struct Prepared {
    geometry: Geometry,
    access: Access,
    directory: PathBuf,
    state: State,
    unwanted: Arc<AtomicBool>,
    /// A forked child has the handle, but not the thread.
    process: Generation,
}

#[derive(Debug)]
enum State {
    Underway(JoinHandle<Result<Option<Ready>>>),
    Ready(Ready),
    /// Published, failed, or never started.
    Gone,
}

/// A complete file without seeds and name.
#[derive(Debug)]
struct Ready {
    new: NewFile,
    bytes: Bytes,
    writer: File,
}

impl Prepared {
    /// Starts a thread that prepares a file for a directory. If no thread can be started, no file is prepared.
    pub fn start(directory: &Path, geometry: Geometry, access: Access) -> Self {
        let unwanted = Arc::new(AtomicBool::new(false));
        let work = {
            let (directory, unwanted) = (directory.to_owned(), Arc::clone(&unwanted));
            move || prepare(&directory, geometry, access, &unwanted)
        };
        let thread = std::thread::Builder::new().name("logdex-prepare".into());
        let state = thread.spawn(work).map_or(State::Gone, State::Underway);
        Self { geometry, access, directory: directory.to_owned(), state, unwanted, process: Generation::current() }
    }

    /// Waits for the helper thread and publishes the file with its seeds and name, like [`IndexFile::create`]. `None` if nothing
    /// could be prepared, for example because the disk was full, or if the prepared file does not match `options`: then
    /// `create` tries again and reports the error.
    ///
    /// # Errors
    /// As [`IndexFile::create`]. After `AlreadyExists` another name can be tried.
    pub fn publish(&mut self, path: &Path, options: CreateOptions) -> Result<Option<IndexFile>> {
        let wanted = (options.geometry, options.access) == (self.geometry, self.access);
        if !wanted || path.parent() != Some(&*self.directory) || !self.process.is_current() {
            return Ok(None);
        }
        self.wait();
        let State::Ready(ready) = &self.state else { return Ok(None) };
        on_writable!(&ready.bytes, target => write_seeds(target, options)).map_err(|e| Error::io(path, e))?;
        ready.new.publish_as(path)?;
        match std::mem::replace(&mut self.state, State::Gone) {
            State::Ready(Ready { bytes, writer, .. }) => Ok(Some(IndexFile::created(path, options, bytes, writer))),
            _ => Ok(None),
        }
    }

    fn wait(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Gone) {
            State::Underway(thread) => {
                thread.join().ok().and_then(Result::ok).flatten().map_or(State::Gone, State::Ready)
            }
            other => other,
        };
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.unwanted.store(true, Ordering::Relaxed);
        if self.process.is_current() {
            // The helper stops within a step.
            self.wait();
        }
    }
}

fn prepare(directory: &Path, geometry: Geometry, access: Access, unwanted: &AtomicBool) -> Result<Option<Ready>> {
    let Some(new) = NewFile::unnamed(directory) else { return Ok(None) };
    let writer = lock_writer(directory, new.file())?;
    let bytes = writable_bytes(directory, clone(directory, new.file())?, geometry, access)?;
    if let Bytes::Mapped(map) = &bytes {
        let mut offset = 0;
        while offset < geometry.file_len() && !unwanted.load(Ordering::Relaxed) {
            map.populate(offset, STEP);
            offset += STEP;
        }
    }
    Ok(Some(Ready { new, bytes, writer }))
}
