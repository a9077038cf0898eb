//! `IndexFiles`, and the names of an index directory.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

use pyo3::prelude::*;

use super::convert::{self, ArrowArray};
use super::handle::Closable;
use super::handle::lock;
use super::index_file::{PyIndexFile, answers};
use super::integer;
use super::keys::{self, log_notes, warn_damage};
use super::time;
use crate::error::Result;
use crate::hash_index::directory::{self, Entry, FilesOptions, IndexFiles};
use crate::hash_index::{self, IndexFile, KeySource as _, OpenOptions};
use crate::io::Location;
use crate::report::Report;
use crate::time_range::TimeRange;

register! { class PyIndexFiles; fn is_index_file_name, list_index_directory, read_committed }

/// Return whether a broker takes a name for an index file: a signed decimal of 64 bits, in the digits of any script.
///
/// This is Java's Long.parseLong, by which MappedFile#init reads names. A broker writes names in the digits of its locale.
#[pyfunction]
fn is_index_file_name(name: &Bound<'_, PyAny>) -> bool {
    // A name with a lone surrogate stands for bytes that are not text.
    name.extract::<String>().is_ok_and(|name| directory::is_index_file_name(&name))
}

/// Name, path, size in bytes, and whether it is a regular file.
type Listed = (String, Location, u64, bool);

/// List an index directory in the broker's load order (IndexService#load). Names that vanish meanwhile are left out.
///
/// Names that begin with `_` or `.` belong to batch jobs (Hadoop's convention, such as Spark's `_SUCCESS`): left out, too. If a job
/// committed files in an object store, these are the only ones, also in a copy of it.
///
/// Returns:
///     Of each entry the name, the path, the size in bytes, and True for a regular file, also through links.
///
/// Raises:
///     FileNotFoundError: There is no such directory.
///     CorruptFileError: A job that writes index files was killed in the middle of its commit.
#[pyfunction]
fn list_index_directory(py: Python<'_>, directory: Location) -> PyResult<Vec<Listed>> {
    let entries = py.detach(|| directory::list(&directory))?;
    Ok(entries.into_iter().map(|Entry { name, path, len, is_file, .. }| (name, path, len, is_file)).collect())
}

/// Return the files that a job committed in a directory of an object store, by their names.
///
/// Returns:
///     Of each the object below the directory, and its bytes.
///
/// Raises:
///     FileNotFoundError: Nothing was committed.
///     CorruptFileError: The object is damaged.
#[pyfunction]
fn read_committed(py: Python<'_>, directory: Location) -> PyResult<BTreeMap<String, (String, u64)>> {
    Ok(py.detach(|| directory::read_committed(&directory))?)
}

/// The files of an index directory. They are opened, ordered and closed as they come and go.
#[pyclass(name = "IndexFiles", module = "logdex._core", frozen)]
pub(super) struct PyIndexFiles {
    files: Closable<IndexFiles>,
    access: String,
    compat: Option<String>,
    /// The handles that callers got. Only clones are made while this is locked, so no thread waits for it.
    handles: Mutex<Vec<(Arc<IndexFile>, Py<PyIndexFile>)>>,
}

impl PyIndexFiles {
    pub(super) fn inner(&self) -> PyResult<Arc<IndexFiles>> {
        self.files.get()
    }

    /// Calls with the files while other threads run, and logs what was left out.
    fn with<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&IndexFiles) -> Result<T> + Send) -> PyResult<T> {
        let files = self.inner()?;
        let (answer, notes) = py.detach(|| (call(&files), files.take_notes()));
        log_notes(py, notes)?;
        Ok(answer?)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Arc<IndexFile>, Py<PyIndexFile>)>> {
        lock(&self.handles)
    }

    /// The handles of open files: each file keeps its handle.
    pub(super) fn handles(&self, py: Python<'_>, files: Vec<Arc<IndexFile>>) -> PyResult<Vec<Py<PyIndexFile>>> {
        let known: Vec<_> = self.lock().iter().map(|(file, handle)| (Arc::clone(file), handle.clone_ref(py))).collect();
        let mut held = Vec::with_capacity(files.len());
        for file in files {
            let handle = match known.iter().find(|(known, _)| Arc::ptr_eq(known, &file)) {
                Some((_, handle)) => handle.clone_ref(py),
                None => Py::new(py, PyIndexFile::of(Arc::clone(&file), &self.access, self.compat.as_deref()))?,
            };
            held.push((file, handle));
        }
        let handles = held.iter().map(|(_, handle)| handle.clone_ref(py)).collect();
        let before = std::mem::replace(&mut *self.lock(), held);
        drop((known, before));
        Ok(handles)
    }
}

#[pymethods]
impl PyIndexFiles {
    /// Prepare an empty set; `refresh` fills it.
    ///
    /// Args:
    ///     directory: The directory; it may be missing.
    ///     hash_slots: Slots of each file. If neither it nor `max_entries` is given, both are inferred from the fullest file.
    ///     max_entries: Entries of each file plus one.
    ///     access: "auto", "mmap" or "pread".
    ///     compat: A broker release whose answers are wanted.
    ///     last_exit_ok: False after a crash of the machine; see `IndexFile.open`.
    ///     without: Names that are left out.
    #[new]
    #[pyo3(signature = (directory, *, hash_slots=None, max_entries=None, access="auto", compat=None, last_exit_ok=true, without=HashSet::new()))]
    fn new(
        directory: Location,
        #[pyo3(from_py_with = integer::hash_slots)] hash_slots: Option<i64>,
        #[pyo3(from_py_with = integer::max_entries)] max_entries: Option<i64>,
        access: &str,
        compat: Option<&str>,
        last_exit_ok: bool,
        without: HashSet<String>,
    ) -> PyResult<Self> {
        let options = FilesOptions {
            geometry: convert::wanted_geometry(hash_slots, max_entries)?,
            access: convert::access(access)?,
            answers: answers(compat)?,
            after_crash: !last_exit_ok,
            without: without.into_iter().collect(),
        };
        let files = IndexFiles::new(&directory, options);
        let (access, compat) = (access.to_owned(), compat.map(str::to_owned));
        Ok(Self { files: Closable::new(files, directory), access, compat, handles: Mutex::default() })
    }

    /// The directory.
    #[getter]
    fn directory(&self) -> Location {
        self.files.path().clone()
    }

    /// Access to the files: "auto", "mmap" or "pread".
    #[getter]
    fn access(&self) -> &str {
        &self.access
    }

    /// The release whose answers are wanted.
    #[getter]
    fn compat(&self) -> Option<&str> {
        self.compat.as_deref()
    }

    /// Slots and entries of each file; None while they are not known.
    #[getter]
    fn geometry(&self, py: Python<'_>) -> PyResult<Option<(u32, u32)>> {
        let found = self.with(py, |files| Ok(files.geometry()))?;
        Ok(found.map(|geometry| (geometry.hash_slots(), geometry.max_entries())))
    }

    /// List the directory again and return the open files in load order, the oldest name first.
    ///
    /// A directory that does not exist holds nothing. A file that vanished since the listing is skipped. So is a file without
    /// entries that came after the first listing, while slots and entries are unknown.
    fn refresh(&self, py: Python<'_>) -> PyResult<Vec<Py<PyIndexFile>>> {
        let files = self.with(py, IndexFiles::refresh)?;
        self.handles(py, files)
    }

    /// Return `refresh` with the names of the files, which in an object store are not those of the objects.
    fn named(&self, py: Python<'_>) -> PyResult<Vec<(String, Py<PyIndexFile>)>> {
        let (names, files): (Vec<_>, Vec<_>) =
            self.with(py, IndexFiles::opened)?.into_iter().map(|(entry, file)| (entry.name, file)).unzip();
        Ok(names.into_iter().zip(self.handles(py, files)?).collect())
    }

    /// Return those of `refresh` that have their full length; the others lost entries.
    fn whole(&self, py: Python<'_>) -> PyResult<Vec<Py<PyIndexFile>>> {
        let opened = self.with(py, IndexFiles::opened)?;
        let files = self.inner()?;
        let is_whole: Vec<bool> = py.detach(|| opened.iter().map(|(entry, _)| files.is_whole(entry)).collect());
        // The other files keep their handles, too.
        let handles = self.handles(py, opened.into_iter().map(|(_, file)| file).collect())?;
        Ok(handles.into_iter().zip(is_whole).filter_map(|(handle, is_whole)| is_whole.then_some(handle)).collect())
    }

    /// Open one file in the directory's geometry; for puts this takes its lock and checks that it can take them.
    #[pyo3(signature = (path, mode="r", *, last_exit_ok=true))]
    fn open_file(&self, py: Python<'_>, path: Location, mode: &str, last_exit_ok: bool) -> PyResult<PyIndexFile> {
        let write = convert::write_mode(mode)?;
        let file = self.with(py, |files| {
            let FilesOptions { access, answers, .. } = *files.options();
            IndexFile::open(&path, OpenOptions { write, geometry: files.geometry(), access, answers, last_exit_ok })
        })?;
        Ok(PyIndexFile::of(Arc::new(file), &self.access, self.compat.as_deref()))
    }

    /// Link the slots of every file again from its entries, after a crash, and cut it at the first impossible entry.
    ///
    /// Files of another size and files that cannot be repaired are not changed; lookups use their entries.
    ///
    /// Returns:
    ///     The number of files that changed, or that would change with `dry_run`.
    #[pyo3(signature = (*, dry_run=false))]
    fn repair(&self, py: Python<'_>, dry_run: bool) -> PyResult<u64> {
        self.with(py, |files| files.repair(dry_run))
    }

    /// Check that the files have the slots and entries that were given, all of them or the fullest.
    ///
    /// Raises:
    ///     ValueError: They have others.
    #[pyo3(signature = (*, for_puts))]
    fn check_geometry(&self, py: Python<'_>, for_puts: bool) -> PyResult<()> {
        self.with(py, |files| files.check_geometry(for_puts))
    }

    /// Answer from the writer's own handle for the file that it writes; the one before becomes a reader again.
    fn set_writer(&self, py: Python<'_>, file: &Bound<'_, PyIndexFile>) -> PyResult<()> {
        let open = file.get().inner()?;
        self.with(py, |files| {
            files.set_writer(Arc::clone(&open));
            Ok(())
        })?;
        self.lock().push((open, file.clone().unbind()));
        Ok(())
    }

    /// Answer without some of the open files from now on.
    fn leave_out(&self, py: Python<'_>, left_out: Vec<PyRef<'_, PyIndexFile>>) -> PyResult<()> {
        let left_out = left_out.iter().map(|file| file.inner()).collect::<PyResult<Vec<_>>>()?;
        self.with(py, |files| {
            files.leave_out(&left_out);
            Ok(())
        })
    }

    /// Return the open files, the newest first: in the order of the commit-log offset of the first entry. With `compat` in the
    /// reverse order of the load.
    fn newest_first(&self, py: Python<'_>) -> PyResult<Vec<Py<PyIndexFile>>> {
        let files = self.with(py, |files| files.newest_first(TimeRange::ALL, 0))?;
        self.handles(py, files)
    }

    /// Find the candidates of each key in the files that may hold entries of a time range.
    ///
    /// Args:
    ///     keys: Keys, or whole index keys where no topic is given.
    ///     topics: One topic for all keys, or a column of them.
    ///     max_num: The most hits per key; `None`: all.
    ///     begin: First store time, inclusive.
    ///     end: Last store time, inclusive.
    ///     clock_slack_ms: As in `IndexFile.is_time_matched`.
    ///
    /// Returns:
    ///     list<int64>, one row per key: commit-log offsets, newest first; null where the key or topic is null.
    #[pyo3(signature = (keys, *, topics=None, max_num=None, begin=None, end=None, clock_slack_ms=3_600_000))]
    #[expect(clippy::too_many_arguments, reason = "keywords of the Python call")]
    fn select(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        topics: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = integer::max_num)] max_num: Option<i64>,
        begin: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = integer::clock_slack_ms)] clock_slack_ms: i64,
    ) -> PyResult<ArrowArray> {
        let keys = keys::keys(keys, topics)?;
        let (range, max_num) = (time::time_range(begin, end)?, convert::max_num(max_num)?);
        let (answer, damage) = self.with(py, |files| {
            let files = files.newest_first(range, clock_slack_ms)?;
            let files: Vec<&IndexFile> = files.iter().map(AsRef::as_ref).collect();
            keys::select(&keys, |asked, hits| {
                let damage = hash_index::select_files(&files, asked, 0..asked.len(), max_num, range, hits)?;
                Ok(damage.map(|(file, damage)| (file.path().to_owned(), damage)))
            })
        })?;
        warn_damage(py, damage)?;
        Ok(answer)
    }

    /// Check everything in the directory, also what a load would leave out; linear in the size of the files.
    fn verify(&self, py: Python<'_>) -> PyResult<Report> {
        self.with(py, IndexFiles::verify)
    }

    /// Close all files, also those that callers hold.
    fn close(&self, py: Python<'_>) {
        let handles = std::mem::take(&mut *self.lock());
        for (file, handle) in handles {
            drop(file);
            handle.get().close(py);
        }
        // Takes no lock: the end of a writer that was dropped may run in any thread.
        let files = self.files.close();
        py.detach(|| drop(files));
    }
}
