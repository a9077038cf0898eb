//! Reports and findings of a check, as `logdex.report.Report` and `logdex.report.Finding`.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::report::{Finding, Kind, Report};

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
