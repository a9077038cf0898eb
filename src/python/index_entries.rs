//! `index_entries`.

use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;

use crate::rocketmq;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(index_entries, m)?)
}

/// Return the index entries of a batch of messages, by the rules of the broker's dispatcher.
///
/// Args:
///     messages: An Arrow record batch with `topic`, `phy_offset`, `store_timestamp`, `sys_flag`, `uniq_key`, `keys`,
///         and with `tags` if tags are wanted.
///     end_phy_offset: Messages before it are left out; it moves to each message that has an entry.
///     tags: Add an entry for `T#` and the whole tags text as well, as 5.5.0 does.
///
/// Returns:
///     A record batch of `topic`, `key`, `phy_offset`, `store_timestamp`, and `row`, the number of the message in
///     `messages`. In order: the unique key, each of the space-separated keys, the tags. Rolled-back messages have none.
///
/// Raises:
///     ValueError: A column is missing, of another type, or null where a message must have a value.
///
/// Source: `IndexService#buildIndex`.
#[pyfunction]
#[pyo3(signature = (messages, *, end_phy_offset, tags=false))]
fn index_entries(
    py: Python<'_>,
    messages: PyRecordBatch,
    end_phy_offset: i64,
    tags: bool,
) -> PyResult<Bound<'_, PyAny>> {
    let messages = messages.into_inner();
    let entries = py.detach(|| rocketmq::index_entries::index_entries(&messages, end_phy_offset, tags))?;
    PyRecordBatch::new(entries).into_arro3(py)
}
