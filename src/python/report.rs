//! What a check found, as `logdex.report.Report`.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::hash_index::{Checked, IndexFile};

pub(super) fn of_file<'py>(py: Python<'py>, file: &IndexFile, checked: &Checked) -> PyResult<Bound<'py, PyAny>> {
    let module = py.import("logdex.report")?;
    let finding = module.getattr("Finding")?;
    let path = file.path().display().to_string();
    let findings = checked
        .findings
        .iter()
        .map(|f| finding.call1((&path, f.offset, f.kind, &f.expected, &f.found)))
        .collect::<PyResult<Vec<_>>>()?;
    let counts = PyDict::new(py);
    counts.set_item("files", 1)?;
    counts.set_item("slots", checked.slots)?;
    counts.set_item("entries", checked.entries)?;
    module.getattr("Report")?.call1((findings, counts))
}
