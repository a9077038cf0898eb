//! Chains of index files, for `explain` and `stats`.

use std::collections::BTreeMap;

use pyo3::prelude::*;

use super::index_file::PyIndexFile;
use crate::hash_index::{Buckets, ChainStatistics};

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
///     OSError: An I/O error.
#[pyfunction]
fn read_chain(py: Python<'_>, file: &PyIndexFile, key_hash: i32, max_links: usize) -> PyResult<Chain> {
    let file = file.inner()?;
    let chain = py.detach(|| file.chain(key_hash, max_links))?;
    let links = chain.links.into_iter();
    let links = links.map(|(at, entry)| (at, entry.key_hash, entry.phy_offset, entry.time_diff, entry.prev_index));
    Ok((chain.slot, chain.slot_value, links.collect(), chain.length, chain.broken_by))
}

/// Slots by the length of their chain, entries by region, begin and entries of each time bucket, number of different hashes.
type Statistics = (BTreeMap<u32, u64>, Vec<u64>, Vec<(i64, u64)>, u64);

/// Bytes of an entry, for the progress.
const ENTRY_LEN: u64 = 20;

/// Count the entries of index files. Linear; needs 4 bytes of memory for each slot and entry of a file.
///
/// Args:
///     files: The index files.
///     time_buckets: The most buckets of equal length over the store times of all files.
///     regions: Number of equal parts of the slots.
///     progress: Called after each file with the finished bytes, and the total.
///
/// Returns:
///     A dict: chain length (0: empty) to number of slots; a list: entries in each region of the slots; a list: begin in ms and
///     entries of each time bucket, up to the last one that has any; the number of different key hashes of each file, added up.
///
/// Raises:
///     OSError: An I/O error.
#[pyfunction]
#[pyo3(signature = (files, *, time_buckets, regions, progress=None))]
#[expect(clippy::needless_pass_by_value, reason = "arguments from Python are owned")]
fn chain_statistics(
    py: Python<'_>,
    files: Vec<Py<PyIndexFile>>,
    time_buckets: u32,
    regions: u32,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Statistics> {
    let files = files.iter().map(|file| file.get().inner()).collect::<PyResult<Vec<_>>>()?;
    let buckets = py.detach(|| Buckets::over(&files, time_buckets, regions))?;
    let mut total = ChainStatistics { regions: vec![0; regions as usize], ..ChainStatistics::default() };
    let lengths = files.iter().map(|file| Ok(u64::from(file.len()?))).collect::<PyResult<Vec<_>>>()?;
    let mut entries = 0;
    for (file, length) in files.iter().zip(&lengths) {
        total.add(&py.detach(|| file.chain_statistics(buckets))?);
        entries += length;
        if let Some(progress) = progress {
            progress.call1((entries * ENTRY_LEN, lengths.iter().sum::<u64>() * ENTRY_LEN))?;
        }
    }
    let begins = (0..).map(|number| buckets.begin_ms.saturating_add(number * buckets.width_ms));
    Ok((total.chains, total.regions, begins.zip(total.times).collect(), total.distinct_hashes))
}
