//! Reports and findings of a check, as `logdex.report.Report` and `logdex.report.Finding`.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{IntoPyDict, PyType};

use crate::report::{Finding, Flaw, Kind, Report};

register! { fn finding_kinds }

/// All kinds of findings that a report may hold, in alphabetical order: the closed list of docs/findings.md.
#[pyfunction]
fn finding_kinds() -> Vec<&'static str> {
    Kind::ALL.iter().map(|kind| kind.word()).collect()
}

into_python!(Report, |report, py| {
    let checked = report.checked.into_py_dict(py)?;
    py.import("logdex.report")?.getattr("Report")?.call1((report.findings, checked))
});

into_python!(Finding, |found, py| {
    static FINDING: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let Finding { path, offset, kind, expected, found } = found;
    FINDING.import(py, "logdex.report", "Finding")?.call1((
        path.display().to_string(),
        offset,
        kind.word(),
        expected,
        found,
    ))
});

impl FromPyObject<'_, '_> for Finding {
    type Error = PyErr;

    /// Takes a `logdex.report.Finding`.
    fn extract(found: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let word: String = found.getattr("kind")?.extract()?;
        let kind = Kind::ALL.iter().find(|kind| kind.word() == word);
        let kind =
            *kind.ok_or_else(|| PyValueError::new_err(format!("kind={word:?}: expected a kind of a finding")))?;
        let text = |name: &str| found.getattr(name)?.extract::<String>();
        let flaw = Flaw::new(kind, text("expected")?, text("found")?);
        let (path, offset): (PathBuf, _) = (found.getattr("path")?.extract()?, found.getattr("offset")?.extract()?);
        Ok(Self::new(&path, offset, flaw))
    }
}

/// Log findings, and issue one `logdex.DamageWarning` for all of them.
pub(super) fn warn(py: Python<'_>, found: Vec<Finding>) -> PyResult<()> {
    let damage = py.import("logdex.report")?.getattr("Damage")?.call0()?;
    for finding in found {
        damage.call_method1("add", (finding,))?;
    }
    // The caller's frame follows that of `warn`: a call in Rust has none.
    damage.call_method1("warn", (1,))?;
    Ok(())
}
