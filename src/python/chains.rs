//! Chains of index files, for `explain` and `stats`.

use std::collections::BTreeMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::index_file::PyIndexFile;
use crate::hash_index::Buckets;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(read_chain, m)?)?;
    m.add_function(wrap_pyfunction!(chain_statistics, m)?)
}

/// Position, hash of the key, offset in the log, stored time difference in s, position of the next older entry.
type Link = (u32, i32, i64, i32, i32);

/// Slot, position of its newest entry, links, number of entries, and what ends the chain early.
type Chain = (u32, i32, Vec<Link>, u32, Option<String>);

/// Follow the chain of a hash in an index file, as the bytes have it.
///
/// Args:
///     file: The index file.
///     key_hash: Hash of the index key.
///     max_links: The most entries to return.
///
/// Returns:
///     The slot; the position of its newest entry, as stored; a tuple for each entry, newest first: position, hash of the
///     key, offset in the log, time difference in s, position of the next older entry; the number of entries; and what ends
///     the chain before its last entry, or None.
///
/// Raises:
///     OSError: The system refuses.
#[pyfunction]
fn read_chain(py: Python<'_>, file: &PyIndexFile, key_hash: i32, max_links: usize) -> PyResult<Chain> {
    let file = file.inner()?;
    let chain = py.detach(|| file.chain(key_hash, max_links))?;
    let links = chain.links.into_iter();
    let links = links.map(|(at, entry)| (at, entry.key_hash, entry.phy_offset, entry.time_diff, entry.prev_index));
    Ok((chain.slot, chain.slot_value, links.collect(), chain.length, chain.broken_by))
}

/// Slots by the length of their chain, entries by region, entries by time, number of different hashes.
type Statistics = (BTreeMap<u32, u64>, Vec<u64>, Vec<u64>, u64);

/// Count the entries of an index file. Linear; needs 4 bytes of memory for each slot and entry.
///
/// Args:
///     file: The index file.
///     begin: Begin of the first time bucket, ms; earlier entries count as of this time.
///     end: Latest time, ms; later entries count as of this time.
///     width: Width of a time bucket, ms.
///     regions: Number of equal parts of the slots.
///
/// Returns:
///     A dict: chain length (0: empty) to number of slots; a list: entries in each region of the slots; a list: entries in
///     each time bucket, up to the last one that has any; the number of different key hashes.
///
/// Raises:
///     OSError: The system refuses.
///     ValueError: `width` or `regions` is below 1.
#[pyfunction]
#[pyo3(signature = (file, *, begin, end, width, regions))]
fn chain_statistics(
    py: Python<'_>,
    file: &PyIndexFile,
    begin: i64,
    end: i64,
    width: i64,
    regions: u32,
) -> PyResult<Statistics> {
    if width < 1 || regions < 1 {
        let text = format!("width and regions: expected 1 or more, got {width} and {regions}");
        return Err(PyValueError::new_err(text));
    }
    let file = file.inner()?;
    let buckets = Buckets { begin_ms: begin, end_ms: end, width_ms: width, regions };
    let counted = py.detach(|| file.chain_statistics(buckets))?;
    Ok((counted.chains, counted.regions, counted.times, counted.distinct_hashes))
}
