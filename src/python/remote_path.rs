//! `RemotePath`: a path in a store that is not on this machine.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList};

use crate::error::{Error, Result};
use crate::io::location::Location;
use crate::io::storage::{self, Entry, Kind, Status};
use crate::kafka::tiered;

/// A path in a store that is not on this machine, with the methods of `pathlib.Path` that read.
///
/// It holds its store with the options of it, and is pickled with them, so that another process can read it. `str` and `repr`,
/// which users read, have the URL only.
#[pyclass(name = "RemotePath", module = "logdex._core", frozen, eq, ord, hash)]
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PyRemotePath(pub(super) Location);

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The numbers of `os.stat_result` for a kind of file.
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;

impl PyRemotePath {
    fn status(&self, py: Python<'_>) -> PyResult<Option<Status>> {
        match py.detach(|| storage::status(&self.0)) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            found => Ok(Some(found?)),
        }
    }
}

#[pymethods]
impl PyRemotePath {
    fn __fspath__(&self) -> String {
        text(&self.0)
    }

    fn __str__(&self) -> String {
        text(&self.0)
    }

    fn __repr__(&self) -> String {
        format!("RemotePath({:?})", text(&self.0))
    }

    fn __truediv__(&self, below: std::path::PathBuf) -> Self {
        Self(self.0.join(below))
    }

    /// Pickle it with all that another process needs.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let core = py.import("logdex._core")?;
        let of = |name: &str| core.getattr(name);
        if let Some((sources, below)) = tiered::sources(&self.0) {
            let keys: std::collections::BTreeMap<_, _> = sources.keys.iter().cloned().collect();
            let made = (sources.local.clone(), sources.remote.clone(), keys, py.None(), text(below));
            return Ok((of("join_tiered")?, made.into_pyobject(py)?.into_any()));
        }
        if !self.0.parts().is_empty() {
            return Ok((of("join_directories")?, (self.0.parts().to_vec(),).into_pyobject(py)?.into_any()));
        }
        if !self.0.objects().is_some_and(crate::io::remote::Objects::is_of_machines) {
            let shown = text(&self.0);
            let advice = "only this process has its store; open it in each process";
            return Err(PyTypeError::new_err(format!(
                "{shown}: a path of filesystem= or of bytes is not pickled: {advice}"
            )));
        }
        Ok((of("locate")?, (text(&self.0), self.storage_options()).into_pyobject(py)?.into_any()))
    }

    /// The options of the store, by name.
    #[getter]
    fn storage_options(&self) -> std::collections::BTreeMap<String, String> {
        self.0.objects().map(|objects| objects.options().iter().cloned().collect()).unwrap_or_default()
    }

    /// The last part.
    #[getter]
    fn name(&self) -> String {
        self.0.file_name().map(|name| text(Path::new(name))).unwrap_or_default()
    }

    /// The ending of the last part, with its dot.
    #[getter]
    fn suffix(&self) -> String {
        self.0.extension().map(|ending| format!(".{}", text(Path::new(ending)))).unwrap_or_default()
    }

    /// The directory; that of the whole store is its own.
    #[getter]
    fn parent(&self) -> Self {
        Self(self.0.parent().unwrap_or_else(|| self.0.clone()))
    }

    /// The directories above, up to that of the whole store.
    #[getter]
    fn parents(&self) -> Vec<Self> {
        std::iter::successors(self.0.parent(), Location::parent).map(Self).collect()
    }

    /// Return the same path with another last part.
    fn with_name(&self, name: &str) -> Self {
        Self(self.0.with_file_name(name))
    }

    /// Return the same path with another ending.
    fn with_suffix(&self, suffix: &str) -> Self {
        Self(self.0.with_extension(suffix.trim_start_matches('.')))
    }

    /// Return the path itself: no directory is the current one.
    fn absolute(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Return the path itself: no store has links.
    fn resolve(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Return true.
    #[expect(clippy::unused_self, reason = "as pathlib.Path")]
    fn is_absolute(&self) -> bool {
        true
    }

    /// Return mode, length and times; the time of a directory is now, since no store keeps it.
    ///
    /// Raises:
    ///     OSError: There is nothing, or the store cannot be reached.
    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let found = py.detach(|| storage::status(&self.0))?;
        let mode = if found.kind == Kind::Directory { S_IFDIR } else { S_IFREG };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let ns = found.modified_ns().map_or(now, |ns| u128::try_from(ns).unwrap_or_default());
        #[expect(clippy::cast_precision_loss, reason = "as Python has them")]
        let (whole, exact) = (ns / 1_000_000_000, ns as f64 / 1e9);
        let numbers = [u128::from(mode), 0, 0, 1, 0, 0, u128::from(found.len), whole, whole, whole];
        let all = PyList::new(py, numbers)?;
        [exact; 3].iter().try_for_each(|time| all.append(time))?;
        [ns; 3].iter().try_for_each(|time| all.append(time))?;
        py.import("os")?.getattr("stat_result")?.call1((all,))
    }

    /// Return whether it is a directory.
    fn is_dir(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.status(py)?.is_some_and(|found| found.kind == Kind::Directory))
    }

    /// Return whether it is a file.
    fn is_file(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.status(py)?.is_some_and(|found| found.kind == Kind::File))
    }

    /// Return whether there is a file or a directory.
    fn exists(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.status(py)?.is_some())
    }

    /// Return what is in a directory by name: the path of each, and its length; None for a directory.
    ///
    /// Raises:
    ///     OSError: There is no such directory, or the store cannot be reached.
    fn entries(&self, py: Python<'_>) -> PyResult<Vec<(Location, Option<u64>)>> {
        Ok(py.detach(|| {
            // What was deleted since it was listed is left out.
            let described = |entry: Entry| {
                let status = entry.status()?;
                Ok(status.map(|status| (entry.path, Some(status.len).filter(|_| status.kind != Kind::Directory))))
            };
            let mut entries = storage::list(&self.0)?;
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            entries.into_iter().map(described).filter_map(Result::transpose).collect::<Result<_>>()
        })?)
    }

    /// Return an iterator of the paths in a directory.
    ///
    /// Raises:
    ///     OSError: As `entries`.
    fn iterdir<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        let paths: Vec<Location> = self.entries(py)?.into_iter().map(|(path, _)| path).collect();
        paths.into_pyobject(py)?.try_iter()
    }

    /// Return an iterator of the paths below that match the parts of a pattern.
    ///
    /// Raises:
    ///     OSError: The store cannot be reached.
    fn glob<'py>(&self, py: Python<'py>, pattern: &str) -> PyResult<Bound<'py, PyIterator>> {
        let matches = py.import("fnmatch")?.getattr("fnmatchcase")?;
        let mut found = vec![self.0.clone()];
        for part in pattern.split('/') {
            let mut next = Vec::new();
            for directory in found.into_iter().map(Self) {
                let entries = if directory.is_dir(py)? { directory.entries(py)? } else { Vec::new() };
                for (path, _) in entries {
                    if matches.call1((path.file_name().unwrap_or_default(), part))?.extract()? {
                        next.push(path);
                    }
                }
            }
            found = next;
        }
        found.into_pyobject(py)?.try_iter()
    }
}
