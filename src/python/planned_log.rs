//! `PlannedLog`, the pieces of a log, and index files as a plan saw them.

use std::ffi::OsString;
use std::sync::Arc;

use pyo3::prelude::*;

use super::closable::Closable;
use super::commit_log::{PyCommitLog, Settings};
use super::convert;
use crate::error::Result;
use crate::io::Location;
use crate::io::PlannedFile;
use crate::io::storage::{self, Identity};
use crate::rocketmq::commit_log::{Lost, PlannedLog};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyPlannedLog>()?;
    m.add_function(wrap_pyfunction!(_planned_log, m)?)?;
    m.add_function(wrap_pyfunction!(plan_log, m)?)?;
    m.add_function(wrap_pyfunction!(plan_files, m)?)?;
    m.add_function(wrap_pyfunction!(planned_file_faults, m)?)
}

/// Path, length, CRC-32 of the first 64 bytes if they are written, and `ETag`.
type Planned = (OsString, u64, Option<u32>, Option<String>);

/// Files of a commit log that a reader needs, as a plan saw them: `plan_log` and `ReadPlan.cut` return it.
///
/// It pickles, so that a process on another machine can open these files, or report which of them it lacks.
#[pyclass(name = "PlannedLog", module = "logdex._core", frozen)]
pub(super) struct PyPlannedLog {
    planned: Arc<PlannedLog>,
    directory: Location,
    settings: Settings,
}

impl PyPlannedLog {
    pub(super) fn new(planned: Arc<PlannedLog>, log: &PyCommitLog) -> Self {
        Self { planned, directory: log.directory(), settings: log.settings().clone() }
    }
}

/// [`Lost`] for Python.
type PyLost = (Location, String, String);

fn python_lost(lost: Vec<Lost>) -> Vec<PyLost> {
    lost.into_iter().collect()
}

/// The arguments that make a plan again.
type Reduced<'py> = (Bound<'py, PyAny>, (Location, Settings, Vec<Planned>, u64, Option<u64>));

/// Unpickle a plan. Its files are in the directory's store.
#[pyfunction]
fn _planned_log(
    directory: Location,
    settings: Settings,
    files: Vec<Planned>,
    last_file: u64,
    last_message: Option<u64>,
) -> PyPlannedLog {
    let files = files
        .into_iter()
        .map(|(path, len, head, etag)| PlannedFile { path: directory.at(path.into()), len, head, etag })
        .collect();
    PyPlannedLog { planned: Arc::new(PlannedLog { files, last_file, last_message }), directory, settings }
}

#[pymethods]
impl PyPlannedLog {
    /// Open the log of these files, with the options of the planned one. The directory is not listed.
    ///
    /// Returns:
    ///     The log, without files that are missing, shorter, or other ones; and what is lost: the path, what was planned, and what
    ///     is there. If the last message of the log was planned but is not there, that is the last of them.
    ///
    /// Raises:
    ///     OSError: An I/O error.
    fn open(&self, py: Python<'_>) -> PyResult<(PyCommitLog, Vec<PyLost>)> {
        let options = self.settings.options()?;
        let (log, lost) = py.detach(|| self.planned.open(&self.directory, options))?;
        Ok((PyCommitLog::new(Closable::new(log, self.directory.clone()), self.settings.clone()), python_lost(lost)))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        let make = py.import("logdex._core")?.getattr("_planned_log")?;
        let plan = &self.planned;
        let of_file = |file: &PlannedFile| (file.path.as_os_str().to_owned(), file.len, file.head, file.etag.clone());
        let files: Vec<Planned> = plan.files.iter().map(of_file).collect();
        let directory = self.directory.clone();
        Ok((make, (directory, self.settings.clone(), files, plan.last_file, plan.last_message)))
    }
}

/// Return what a reader in another process needs of the files that hold some offsets.
///
/// Args:
///     log: The log.
///     phy_offsets: The offsets; None: all files.
///
/// Raises:
///     OSError: The directory or a file cannot be read.
#[pyfunction]
#[pyo3(signature = (log, phy_offsets=None))]
fn plan_log(py: Python<'_>, log: &PyCommitLog, phy_offsets: Option<&Bound<'_, PyAny>>) -> PyResult<PyPlannedLog> {
    let inner = log.inner()?;
    let column = phy_offsets.map(|offsets| convert::int64_column(offsets, "phy_offsets")).transpose()?;
    let offsets: Option<Vec<u64>> =
        column.map(|column| column.iter().flatten().filter_map(|offset| u64::try_from(offset).ok()).collect());
    let planned = py.detach(|| inner.plan(offsets.as_deref()))?;
    Ok(PyPlannedLog::new(Arc::new(planned), log))
}

/// Return what a plan sees of files whose first bytes may change: path, length, and the `ETag` of an object.
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
fn plan_files(py: Python<'_>, files: Vec<Location>) -> PyResult<Vec<(Location, u64, Option<String>)>> {
    let planned =
        py.detach(|| files.iter().map(|path| Ok((path, storage::status(path)?))).collect::<Result<Vec<_>>>())?;
    let described = planned.into_iter().map(|(path, found)| {
        let etag = if let Identity::Remote(etag) = found.identity { etag } else { None };
        (path.clone(), found.len, etag)
    });
    Ok(described.collect())
}

/// Compare files with what a plan saw. A file on a disk may have grown.
///
/// Args:
///     files: What `plan_files` returned.
///
/// Returns:
///     A tuple for each other file: the path, what was planned, and what is there.
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
fn planned_file_faults(py: Python<'_>, files: Vec<(Location, u64, Option<String>)>) -> PyResult<Vec<PyLost>> {
    let faults = py.detach(|| {
        let planned = files.into_iter().map(|(path, len, etag)| PlannedFile { path, len, head: None, etag });
        let faults = planned.map(|file| Ok(file.fault()?.map(|found| (file.path.clone(), file.expected(), found))));
        faults.filter_map(Result::transpose).collect::<Result<Vec<_>>>()
    })?;
    Ok(python_lost(faults))
}
