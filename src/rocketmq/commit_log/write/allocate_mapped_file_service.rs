//! A thread that prepares the files of a log before the log reaches them, and closes those that it left (upstream
//! `AllocateMappedFileService`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::mapped_file::{MappedFile, MappedFileOptions};
use crate::error::{Error, Result};
use crate::io::fork::Generation;
use crate::io::signals;

const THREAD: &str = "logdex-allocate";

/// The thread; dropping this stops it, and deletes the files that it created in vain.
#[derive(Debug)]
pub(super) struct AllocateMappedFileService {
    /// The log.
    directory: PathBuf,
    requests: Arc<Requests>,
    thread: Option<JoinHandle<()>>,
    /// A forked process has the handle, but not the thread.
    process: Generation,
}

#[derive(Debug, Default)]
struct Requests {
    table: Mutex<RequestTable>,
    changed: Condvar,
    stop: AtomicBool,
}

/// Files by the offset of their first byte.
#[derive(Debug, Default)]
struct RequestTable {
    wanted: BTreeSet<u64>,
    /// The file that the thread prepares now.
    underway: Option<u64>,
    prepared: BTreeMap<u64, Result<MappedFile>>,
    /// Files that the log left. Unmapping one takes milliseconds.
    left: Vec<Arc<MappedFile>>,
}

impl RequestTable {
    fn request(&mut self, start: u64) {
        match self.prepared.get(&start) {
            // A failed fsync is final, also that of a file which no put needed yet.
            Some(Ok(_) | Err(Error::WriteFailed { .. })) => return,
            // There may be space now.
            Some(Err(_)) => drop(self.prepared.remove(&start)),
            None => {}
        }
        if self.underway != Some(start) {
            self.wanted.insert(start);
        }
    }
}

impl Requests {
    fn lock(&self) -> MutexGuard<'_, RequestTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, table: MutexGuard<'a, RequestTable>) -> MutexGuard<'a, RequestTable> {
        self.changed.wait(table).unwrap_or_else(PoisonError::into_inner)
    }
}

impl AllocateMappedFileService {
    /// # Errors
    /// An I/O error if the thread cannot start.
    pub(super) fn start(options: Arc<MappedFileOptions>) -> Result<Self> {
        let directory = options.directory.clone();
        let requests = Arc::new(Requests::default());
        let work = {
            let requests = Arc::clone(&requests);
            move || prepare(&requests, &options)
        };
        let thread = std::thread::Builder::new().name(THREAD.into()).spawn(work);
        let thread = thread.map_err(|e| Error::io(Path::new(THREAD), e))?;
        Ok(Self { directory, requests, thread: Some(thread), process: Generation::current() })
    }

    /// Waits for the file that begins at an offset, and lets the thread prepare the one after it.
    ///
    /// # Errors
    /// As [`MappedFile::init`]; an I/O error if a signal handler ends the wait. The next put then gets the file.
    pub(super) fn put_request_and_return_mapped_file(&self, start: u64, next: u64) -> Result<MappedFile> {
        let mut table = self.requests.lock();
        table.request(start);
        table.request(next);
        self.requests.changed.notify_all();
        loop {
            if let Some(prepared) = table.prepared.remove(&start) {
                return prepared;
            }
            let waited = self.requests.changed.wait_timeout(table, signals::LOOK);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
            if !table.prepared.contains_key(&start) {
                // A handler may need the interpreter lock.
                drop(table);
                signals::look().map_err(|e| Error::io(&self.directory, e))?;
                table = self.requests.lock();
            }
        }
    }

    /// Closes a file in the thread.
    pub(super) fn leave(&self, file: Arc<MappedFile>) {
        self.requests.lock().left.push(file);
        self.requests.changed.notify_all();
    }
}

impl Drop for AllocateMappedFileService {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        self.requests.stop.store(true, Ordering::Relaxed);
        drop(self.requests.lock());
        self.requests.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let prepared = std::mem::take(&mut self.requests.lock().prepared);
        prepared.into_values().flatten().for_each(MappedFile::destroy);
    }
}

fn prepare(requests: &Requests, options: &MappedFileOptions) {
    let mut table = requests.lock();
    while !requests.stop.load(Ordering::Relaxed) {
        if let Some(start) = table.wanted.pop_first() {
            table.underway = Some(start);
            drop(table);
            let prepared = MappedFile::init(options, start, &requests.stop);
            table = requests.lock();
            table.underway = None;
            table.prepared.insert(start, prepared);
            requests.changed.notify_all();
        } else if !table.left.is_empty() {
            let left = std::mem::take(&mut table.left);
            drop(table);
            drop(left);
            table = requests.lock();
        } else {
            table = requests.wait(table);
        }
    }
}
