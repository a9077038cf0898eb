//! Rules about batches of messages: `index_entries`, `indexed_messages`, `last_message`, `split_cut_off`.

use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;

use crate::rocketmq;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(index_entries, m)?)?;
    m.add_function(wrap_pyfunction!(indexed_messages, m)?)?;
    m.add_function(wrap_pyfunction!(last_message, m)?)?;
    m.add_function(wrap_pyfunction!(split_cut_off, m)?)
}

/// Index entries of a batch of messages, by the rules of the broker's dispatcher.
///
/// Args:
///     messages: An Arrow record batch with `topic`, `phy_offset`, `store_timestamp`, `sys_flag`, `uniq_key`, `keys`,
///         and `tags` where they are asked for.
///     end_phy_offset: Messages before it are left out; it moves to each message that gave an entry.
///     tags: Give an entry `T#` and the whole tags text as well, as 5.5.0 does.
///
/// Returns:
///     A record batch of `topic`, `key`, `phy_offset`, `store_timestamp`, and `row`, the number of the message in
///     `messages`. In order: the unique key, each of the space-separated keys, the tags. Rolled-back messages give none.
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

/// Count the messages of a batch that have index entries.
///
/// Args:
///     messages: As for `index_entries`.
///     tags: As for `index_entries`.
///
/// Raises:
///     ValueError: As for `index_entries`.
#[pyfunction]
#[pyo3(signature = (messages, *, tags))]
fn indexed_messages(py: Python<'_>, messages: PyRecordBatch, tags: bool) -> PyResult<usize> {
    let messages = messages.into_inner();
    Ok(py.detach(|| rocketmq::index_entries::indexed_messages(&messages, tags))?)
}

/// The offset in the log behind the last message of a batch, and its store time in ms; None without messages.
///
/// Args:
///     messages: An Arrow record batch with `phy_offset`, `store_size` and `store_timestamp`.
///
/// Raises:
///     ValueError: A column is missing, of another type, or null.
#[pyfunction]
fn last_message(messages: PyRecordBatch) -> PyResult<Option<(i64, i64)>> {
    Ok(rocketmq::message_columns::last_message(messages.as_ref())?)
}

/// Split a batch of a salvaging scan into valid messages and those that a broker truncated before.
///
/// Args:
///     messages: An Arrow record batch with `phy_offset` and `suspect`.
///
/// Returns:
///     The valid messages, in batches without copies; the offset and the column `suspect` of each truncated one; and how many
///     messages are older than one before them.
///
/// Raises:
///     ValueError: A column is missing, of another type, or null.
#[pyfunction]
fn split_cut_off<'py>(py: Python<'py>, messages: PyRecordBatch) -> PyResult<SplitMessages<'py>> {
    let (valid, cut_off, back_in_time) = rocketmq::commit_log::split_cut_off(messages.as_ref())?;
    let valid = valid.into_iter().map(|batch| PyRecordBatch::new(batch).into_arro3(py)).collect::<PyResult<_>>()?;
    Ok((valid, cut_off, back_in_time))
}

type SplitMessages<'py> = (Vec<Bound<'py, PyAny>>, Vec<(i64, String)>, usize);
