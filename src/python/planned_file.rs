//! Files as a plan saw them.

use std::path::PathBuf;

use pyo3::prelude::*;

use crate::error::Result;
use crate::io::PlannedFile;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(plan_files, m)?)?;
    m.add_function(wrap_pyfunction!(planned_file_faults, m)?)
}

/// Path, length, and CRC-32 of the first 64 bytes if they are written.
type Planned = (PathBuf, u64, Option<u32>);

/// Describe files for a reader that comes later, maybe on another machine that has copies of them.
///
/// Returns:
///     A tuple for each path: the path, the length, and the CRC-32 of the first 64 bytes, None if these are not written.
///
/// Raises:
///     OSError: The system refuses.
#[pyfunction]
fn plan_files(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<Vec<Planned>> {
    let files = py.detach(|| paths.iter().map(|path| PlannedFile::of(path)).collect::<Result<Vec<_>>>())?;
    Ok(files.into_iter().map(|file| (file.path, file.len, file.head)).collect())
}

/// Compare files with what `plan_files` returned. A file may have grown.
///
/// Returns:
///     The path of each other file, and what is found there.
///
/// Raises:
///     OSError: The system refuses.
#[pyfunction]
fn planned_file_faults(py: Python<'_>, files: Vec<Planned>) -> PyResult<Vec<(PathBuf, String)>> {
    let faults = py.detach(|| {
        let planned = files.into_iter().map(|(path, len, head)| PlannedFile { path, len, head });
        let faults = planned.map(|file| Ok(file.fault()?.map(|found| (file.path, found))));
        faults.filter_map(Result::transpose).collect::<Result<Vec<_>>>()
    })?;
    Ok(faults)
}
