//! Reports and findings of a check, as `logdex.report.Report` and `logdex.report.Finding`.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::report::{Finding, Flaw, Kind, Report};

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(finding_kinds, m)?)
}

/// All kinds of findings that a report may hold, in alphabetical order: the closed list of docs/findings.md.
#[pyfunction]
fn finding_kinds() -> Vec<&'static str> {
    Kind::ALL.iter().map(|kind| kind.word()).collect()
}

/// A `logdex.report.Report`.
pub(super) fn report<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyAny>> {
    let checked = PyDict::new(py);
    for (name, count) in &report.checked {
        checked.set_item(name, count)?;
    }
    py.import("logdex.report")?.getattr("Report")?.call1((findings(py, &report.findings)?, checked))
}

/// A list of `logdex.report.Finding`.
pub(super) fn findings<'py>(py: Python<'py>, found: &[Finding]) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let finding = py.import("logdex.report")?.getattr("Finding")?;
    let each = found.iter().map(|f| {
        finding.call1((f.path.display().to_string(), f.offset, f.kind.word(), f.expected.as_str(), f.found.as_str()))
    });
    each.collect()
}

/// Log findings, and issue one `logdex.DamageWarning` for all of them.
pub(super) fn warn(py: Python<'_>, found: &[Finding]) -> PyResult<()> {
    let damage = py.import("logdex.report")?.getattr("Damage")?.call0()?;
    for finding in findings(py, found)? {
        damage.call_method1("add", (finding,))?;
    }
    // The caller's frame follows that of `warn`: a call in Rust has none.
    damage.call_method1("warn", (1,))?;
    Ok(())
}

/// The finding of a `logdex.report.Finding`.
pub(super) fn given_finding(found: &Bound<'_, PyAny>) -> PyResult<Finding> {
    let word: String = found.getattr("kind")?.extract()?;
    let kind = Kind::ALL.iter().find(|kind| kind.word() == word);
    let kind = *kind.ok_or_else(|| PyValueError::new_err(format!("kind={word:?}: expected a kind of a finding")))?;
    let (expected, found_text): (String, String) =
        (found.getattr("expected")?.extract()?, found.getattr("found")?.extract()?);
    let finding = Finding::new(
        &found.getattr("path")?.extract::<PathBuf>()?,
        found.getattr("offset")?.extract()?,
        Flaw::new(kind, expected, found_text),
    );
    Ok(finding)
}
