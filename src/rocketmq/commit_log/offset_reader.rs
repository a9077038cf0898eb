//! Return messages at given offsets as record batches.

use std::sync::Arc;

use arrow_array::RecordBatch;

use crate::error::Result;
use crate::rocketmq::commit_log::decode::batch::BatchBuilder;
use crate::rocketmq::commit_log::decode::row::Row;
use crate::rocketmq::commit_log::decode::suspect::Suspect;
use crate::rocketmq::commit_log::log::CommitLog;
use crate::rocketmq::commit_log::lookup::LookUp;
use crate::rocketmq::commit_log::scan::filter::Filter;

/// Rows of a batch. A batch ends earlier if it reaches 64 MiB.
const BATCH: usize = 8192;

/// The offsets, and how many of them were read.
pub(crate) struct OffsetReader {
    log: Arc<CommitLog>,
    phy_offsets: Vec<Option<i64>>,
    read: usize,
    builder: BatchBuilder,
    filter: Option<Filter>,
    /// Offsets without a valid message, in the order in which they were read. Without a filter they have rows of their own.
    missing: Vec<i64>,
}

impl OffsetReader {
    pub(crate) fn new(
        log: Arc<CommitLog>,
        phy_offsets: Vec<Option<i64>>,
        builder: BatchBuilder,
        filter: Option<Filter>,
    ) -> Self {
        Self { log, phy_offsets, read: 0, builder, filter, missing: Vec::new() }
    }

    /// Returns the next batch; `None` at the end. With a filter a batch may be empty.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let left = self.phy_offsets.get(self.read..).unwrap_or_default();
        if left.is_empty() {
            return Ok(None);
        }
        let left = left.iter().copied().take(BATCH);
        let filter = self.filter.as_ref().map(|filter| (filter, &mut self.missing));
        let (read, _) = add_messages(&self.log, left, &mut self.builder, filter)?;
        self.read += read;
        Ok(Some(self.builder.take()))
    }

    /// The offsets read so far without a valid message, if there is a filter.
    pub(crate) fn missing(&self) -> &[i64] {
        &self.missing
    }
}

/// Adds the messages at these offsets that pass the filter.
///
/// `filter` has a list to which offsets without a valid message are added. Without a filter each of them has a row of nulls.
///
/// Returns how many offsets were read, and whether these are all. If the builder is full, the rest is read later.
///
/// # Errors
/// An I/O error, with the path.
pub(crate) fn add_messages(
    log: &CommitLog,
    phy_offsets: impl IntoIterator<Item = Option<i64>>,
    builder: &mut BatchBuilder,
    mut filter: Option<(&Filter, &mut Vec<i64>)>,
) -> Result<(usize, bool)> {
    let mut look_up = LookUp::new(log)?;
    let mut read = 0;
    for phy_offset in phy_offsets {
        let offset = phy_offset.and_then(|offset| u64::try_from(offset).ok());
        let fits = look_up.find(offset, |found| match found {
            Some((frame, place))
                if filter.as_ref().is_none_or(|(filter, _)| filter.passes(&frame, place.phy_offset)) =>
            {
                builder.append(&[Row { frame, place, suspect: Suspect::default() }]) == 1
            }
            found => {
                match &mut filter {
                    None => builder.append_missing(phy_offset),
                    Some((_, missing)) if found.is_none() => missing.extend(phy_offset),
                    Some(_) => {}
                }
                true
            }
        })?;
        if !fits {
            return Ok((read, false));
        }
        read += 1;
    }
    Ok((read, true))
}
