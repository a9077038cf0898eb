//! The next index file, made ready by a helper thread while the current one is still filled.
//!
//! A new file costs its writer a page fault for each page that it touches first: about a third of the time of all its
//! puts. A helper thread takes these in advance. The file is created without a name, grown, its space reserved, and its
//! pages are brought into memory, large ones where the file system has them. Only when the writer rolls does the file get
//! its seeds and its name; until then it is nothing that anybody could meet, and a process that dies leaves nothing.
//!
//! Where the system has no files without a name, nothing is prepared. Source of the idea: `AllocateMappedFileService`.

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
use crate::io::{Access, WriteAt};

/// Bytes populated between two looks at whether the file is still wanted.
const STEP: u64 = 16 << 20;

/// An index file on its way: the helper thread's work, then its result. Dropped, it leaves nothing behind.
#[derive(Debug)]
pub struct Prepared {
    geometry: Geometry,
    access: Access,
    directory: PathBuf,
    state: State,
    unwanted: Arc<AtomicBool>,
    /// A fork has the handle, but not the thread.
    process: u32,
}

#[derive(Debug)]
enum State {
    Underway(JoinHandle<Result<Option<Ready>>>),
    Ready(Ready),
    /// Named, or never to be.
    Gone,
}

/// A whole file that lacks but seeds and a name.
#[derive(Debug)]
struct Ready {
    new: NewFile,
    bytes: Bytes,
    writer: File,
}

impl Prepared {
    /// Begins to prepare a file for a directory in a thread of its own.
    ///
    /// # Errors
    /// The system's error when it gives no thread.
    pub fn start(directory: &Path, geometry: Geometry, access: Access) -> Result<Self> {
        let unwanted = Arc::new(AtomicBool::new(false));
        let work = {
            let (directory, unwanted) = (directory.to_owned(), Arc::clone(&unwanted));
            move || prepare(&directory, geometry, access, &unwanted)
        };
        let thread = std::thread::Builder::new().name("logdex-prepare".into());
        let state = State::Underway(thread.spawn(work).map_err(|e| Error::io(directory, e))?);
        Ok(Self { geometry, access, directory: directory.to_owned(), state, unwanted, process: std::process::id() })
    }

    /// Waits for the helper and makes the file one of the directory, with seeds and name: [`IndexFile::create`], but with
    /// the work done. `None` where nothing could be prepared, for instance because the disk was full then, or not what
    /// `options` ask for: `create` then tries again and tells what is wrong.
    ///
    /// # Errors
    /// As [`IndexFile::create`]. After `AlreadyExists` another name can be tried.
    pub fn publish(&mut self, path: &Path, options: CreateOptions) -> Result<Option<IndexFile>> {
        let wanted = (options.geometry, options.access) == (self.geometry, self.access);
        if !wanted || path.parent() != Some(&*self.directory) || self.process != std::process::id() {
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
        if self.process == std::process::id() {
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
