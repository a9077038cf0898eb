//! The chains of a file, for explanations and statistics.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::bytes::on_bytes;
use super::index_file::IndexFile;
use crate::error::{Error, Result};
use crate::hash_index::format::entry::Entry;
use crate::hash_index::read::select::View;
use crate::io::{ReadAt, usize_of};

/// Entries that are read at a time.
const BLOCK: u32 = 65_536;

/// The chain of one slot, as the file stores it. Nothing is repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Number of the slot.
    pub slot: u32,
    /// Position of its newest entry, as stored.
    pub slot_value: i32,
    /// Positions and entries, newest first; at most the requested number.
    pub links: Vec<(u32, Entry)>,
    /// Number of entries.
    pub length: u32,
    /// The reason for an end of the chain before its last entry, in words.
    pub broken_by: Option<String>,
}

/// The counters of the entries of a file.
#[derive(Clone, Copy, Debug)]
pub struct Buckets {
    /// Earliest store time, ms. An earlier one counts as this.
    pub begin_ms: i64,
    /// Latest store time, ms. A later one counts as this.
    pub end_ms: i64,
    /// Width of a time bucket, ms; 1 or more.
    pub width_ms: i64,
    /// Number of equal parts of the slots; 1 or more.
    pub regions: u32,
}

/// Counts over the entries of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChainStatistics {
    /// Number of slots by the length of their chain; 0: empty slots.
    pub chains: BTreeMap<u32, u64>,
    /// Entries in each of equal parts of the slots.
    pub regions: Vec<u64>,
    /// Entries in each time bucket, up to the last one that has any.
    pub times: Vec<u64>,
    /// Number of different key hashes.
    pub distinct_hashes: u64,
}

impl Buckets {
    /// Returns buckets for all store times in the headers of some files, and for parts of their slots.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn over(files: &[Arc<IndexFile>], time_buckets: u32, regions: u32) -> Result<Self> {
        let mut times = Vec::new();
        for file in files {
            if file.len()? > 0 {
                let header = file.header()?;
                times.extend([header.begin_timestamp, header.end_timestamp]);
            }
        }
        let (begin_ms, end_ms) = (times.iter().min().copied().unwrap_or(0), times.iter().max().copied().unwrap_or(0));
        let width_ms = end_ms.saturating_sub(begin_ms) / i64::from(time_buckets.max(1)) + 1;
        Ok(Self { begin_ms, end_ms, width_ms, regions })
    }
}

impl ChainStatistics {
    /// Adds the counts of another file. A hash in two files counts twice.
    pub fn add(&mut self, other: &Self) {
        for (length, slots) in &other.chains {
            *self.chains.entry(*length).or_default() += slots;
        }
        for (sum, counts) in [(&mut self.regions, &other.regions), (&mut self.times, &other.times)] {
            sum.resize(sum.len().max(counts.len()), 0);
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        self.distinct_hashes += other.distinct_hashes;
    }
}

impl IndexFile {
    /// Follows the chain of a hash and keep its first `max_links` entries. It ends after as many steps as there are entries.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn chain(&self, key_hash: i32, max_links: usize) -> Result<Chain> {
        on_bytes!(&self.bytes, source => {
            View::new(source, self.geometry, self.file_len).and_then(|view| walk(&view, key_hash, max_links))
        })
        .map_err(|e| Error::io(&self.path, e))
    }

    /// Counts the entries of the file by chain, slot region and time. Linear; needs 4 bytes of memory for each slot and entry.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn chain_statistics(&self, buckets: Buckets) -> Result<ChainStatistics> {
        let header = self.header()?;
        let slots = self.geometry.hash_slots();
        let mut lengths = vec![0u32; slots as usize];
        let mut hashes = Vec::new();
        let mut times = Vec::new();
        let mut position = 1;
        loop {
            let entries = self.read_entries(position, BLOCK)?;
            for (position, entry) in (position..).zip(&entries) {
                if let Some(length) = lengths.get_mut(self.geometry.slot_of(entry.key_hash) as usize) {
                    *length += 1;
                }
                hashes.push(entry.key_hash);
                let time = self.shown_time(&header, position, entry).min(buckets.end_ms).max(buckets.begin_ms);
                let bucket = time.saturating_sub(buckets.begin_ms) / buckets.width_ms.max(1);
                add(&mut times, usize_of(bucket.cast_unsigned()));
            }
            match u32::try_from(entries.len()) {
                Ok(0) | Err(_) => break,
                Ok(read) => position += read,
            }
        }
        hashes.sort_unstable();
        hashes.dedup();
        let mut statistics =
            ChainStatistics { times, distinct_hashes: hashes.len() as u64, ..ChainStatistics::default() };
        let regions = u64::from(buckets.regions.max(1));
        statistics.regions = vec![0; buckets.regions.max(1) as usize];
        for (slot, length) in (0u64..).zip(&lengths) {
            *statistics.chains.entry(*length).or_default() += 1;
            // The region whose first slot is at or before this one: slots * region / regions, rounded down.
            let region = ((slot + 1) * regions - 1) / u64::from(slots);
            if let Some(entries) = statistics.regions.get_mut(usize_of(region)) {
                *entries += u64::from(*length);
            }
        }
        Ok(statistics)
    }
}

fn add(counts: &mut Vec<u64>, at: usize) {
    if counts.len() <= at {
        counts.resize(at + 1, 0);
    }
    if let Some(count) = counts.get_mut(at) {
        *count += 1;
    }
}

fn walk<S: ReadAt>(view: &View<'_, S>, key_hash: i32, max_links: usize) -> std::io::Result<Chain> {
    let slot = view.geometry.slot_of(key_hash);
    let mut chain = Chain { slot, slot_value: view.slot(slot)?, ..Chain::default() };
    let last = view.header.index_count.saturating_sub(1);
    let mut next = chain.slot_value;
    while next != 0 {
        let Some(position) = u32::try_from(next).ok().filter(|_| next <= last) else {
            chain.broken_by = Some(format!("a link to entry {next}, of {last}"));
            break;
        };
        if position >= view.present {
            chain.broken_by = Some(format!("the end of the file before entry {position}"));
            break;
        }
        let entry = view.entry(position)?;
        chain.length += 1;
        if chain.links.len() < max_links {
            chain.links.push((position, entry));
        }
        if entry.prev_index >= next {
            let link = entry.prev_index;
            chain.broken_by = Some(format!("entry {position}, which links to {link}, not to an older one"));
            break;
        }
        next = entry.prev_index;
    }
    Ok(chain)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use crate::hash_index::{Buckets, ChainStatistics, CreateOptions, Geometry, IndexFile};

    #[test]
    fn chains_and_their_statistics_are_those_of_the_entries() {
        let dir = tempfile::tempdir().unwrap();
        let geometry = Geometry::new(3, 16).unwrap();
        let create = CreateOptions::new(geometry);
        let file = IndexFile::create(&dir.path().join("20260101000000000"), create).unwrap();
        for (hash, time) in [(3, 1_000_000), (4, 1_005_000), (6, 1_010_000), (3, 1_019_000)] {
            assert!(file.put_hash(hash, i64::from(hash), time).unwrap());
        }
        let chain = file.chain(0, 2).unwrap();
        assert_eq!((chain.slot, chain.slot_value, chain.length, chain.broken_by), (0, 4, 3, None));
        assert_eq!(chain.links.iter().map(|(at, entry)| (*at, entry.key_hash)).collect::<Vec<_>>(), [(4, 3), (3, 6)]);
        let buckets = Buckets { begin_ms: 1_000_000, end_ms: 1_019_000, width_ms: 10_000, regions: 2 };
        let counted = file.chain_statistics(buckets).unwrap();
        assert_eq!(counted.chains, BTreeMap::from([(0, 1), (1, 1), (3, 1)]));
        assert_eq!((&counted.regions, &counted.times, counted.distinct_hashes), (&vec![3, 1], &vec![2, 2], 3));
        let over = Buckets::over(&[Arc::new(file)], 2, 2).unwrap();
        assert_eq!((over.begin_ms, over.end_ms, over.width_ms), (1_000_000, 1_019_000, 9_501));
        let mut total = ChainStatistics { times: vec![1], ..ChainStatistics::default() };
        total.add(&counted);
        assert_eq!((total.regions, total.times, total.chains), (vec![3, 1], vec![3, 2], counted.chains));
    }
}
