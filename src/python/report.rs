//! `logdex.report.Report` of what a check of a store's files found.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::rocketmq::findings::Checked;

pub(super) fn report<'py>(py: Python<'py>, checked: &Checked) -> PyResult<Bound<'py, PyAny>> {
    let module = py.import("logdex.report")?;
    let finding = module.getattr("Finding")?;
    let findings = checked
        .findings
        .iter()
        .map(|f| finding.call1((f.path.display().to_string(), f.offset, f.kind, &f.expected, &f.found)))
        .collect::<PyResult<Vec<_>>>()?;
    let counts = PyDict::new(py);
    for (name, count) in &checked.counts {
        counts.set_item(name, count)?;
    }
    module.getattr("Report")?.call1((findings, counts))
}
