//! The queue offsets of each block of a batch queue, so that a range can be read without reading the whole queue.
//!
//! The position of a unit in a batch queue does not follow from its queue offset. One pass finds the offsets of each block of
//! units. Units that are appended later are read on demand. Blocks out of order are found as well, so damage does not hide the
//! units after it.

use super::queue::{ConsumeQueue, Numbered};
use crate::error::Result;
use crate::rocketmq::consume_queue::unit::BatchUnit;
use crate::rocketmq::offset_files::OffsetFile;

/// The most units of a block.
const BLOCK: u64 = 256;

/// A range of units, as numbers, and their queue offsets.
#[derive(Clone, Copy, Debug)]
struct Block {
    first: u64,
    end: u64,
    /// The smallest queue offset of this block and the later ones.
    least: i64,
    /// After the largest queue offset of this block and the earlier ones.
    most: i64,
}

/// The blocks of one batch queue.
#[derive(Debug, Default)]
pub(crate) struct BatchBlocks {
    blocks: Vec<Block>,
    /// After the largest queue offset of the last block alone.
    last_most: i64,
    is_known: bool,
    units_read: u64,
}

impl BatchBlocks {
    /// Calls `take` for the units of messages with queue offsets in `begin..end`, in their order in the files.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(crate) fn units(
        &mut self,
        queue: &ConsumeQueue,
        begin: i64,
        end: i64,
        mut take: impl FnMut(BatchUnit),
    ) -> Result<()> {
        let files = queue.files()?;
        if !self.is_known || self.last_most < end {
            self.read_blocks(queue, &files)?;
        }
        let first = self.blocks.partition_point(|block| block.most <= begin);
        let last = self.blocks.partition_point(|block| block.least < end);
        for block in self.blocks.get(first..last).unwrap_or_default() {
            for file in &files {
                queue.read_file(file, block.first, block.end, |Numbered { unit, .. }| {
                    self.units_read += 1;
                    if is_message(unit) && unit.end_offset() > begin && unit.base_offset < end {
                        take(unit);
                    }
                    true
                })?;
            }
        }
        Ok(())
    }

    /// Returns the first queue offset at or after `begin` that a unit holds; `None` after the last one.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(crate) fn written_from(&mut self, queue: &ConsumeQueue, begin: i64) -> Result<Option<i64>> {
        let files = queue.files()?;
        if !self.is_known {
            self.read_blocks(queue, &files)?;
        }
        let mut first: Option<i64> = None;
        for block in self.blocks.iter().skip_while(|block| block.most <= begin) {
            if first.is_some_and(|first| first <= block.least.max(begin)) {
                break;
            }
            for file in &files {
                queue.read_file(file, block.first, block.end, |Numbered { unit, .. }| {
                    if is_message(unit) && unit.end_offset() > begin {
                        first = Some(first.map_or(unit.base_offset, |first| first.min(unit.base_offset)).max(begin));
                    }
                    true
                })?;
            }
        }
        Ok(first)
    }

    /// The number of units read so far. A unit that was read twice counts twice.
    #[cfg(test)]
    pub(crate) fn units_read(&self) -> u64 {
        self.units_read
    }

    /// Reads the units after the last block: at first all of them, later up to the first block without a message.
    fn read_blocks(&mut self, queue: &ConsumeQueue, files: &[OffsetFile]) -> Result<()> {
        let from = self.blocks.last().map_or(0, |last| last.end);
        let (mut block, mut blank): (Option<Block>, u64) = (None, 0);
        for file in files {
            queue.read_file(file, from, u64::MAX, |Numbered { number, unit }| {
                self.units_read += 1;
                if block.is_some_and(|block| number >= block.first + BLOCK) {
                    self.blocks.extend(block.take());
                }
                if is_message(unit) {
                    let new = Block { first: number, end: number, least: i64::MAX, most: i64::MIN };
                    let block = block.get_or_insert(new);
                    block.end = number + 1;
                    block.least = block.least.min(unit.base_offset);
                    block.most = block.most.max(unit.end_offset());
                    blank = 0;
                } else {
                    blank += 1;
                }
                !self.is_known || blank < BLOCK
            })?;
            if self.is_known && blank >= BLOCK {
                break;
            }
        }
        if let Some(block) = block {
            self.last_most = block.most;
            self.blocks.push(block);
        }
        self.is_known = true;
        self.carry();
        Ok(())
    }

    /// Propagates the smallest offset to the earlier blocks, and the largest to the later ones.
    fn carry(&mut self) {
        let mut most = i64::MIN;
        for block in &mut self.blocks {
            most = most.max(block.most);
            block.most = most;
        }
        let mut least = i64::MAX;
        for block in self.blocks.iter_mut().rev() {
            least = least.min(block.least);
            block.least = least;
        }
    }
}

fn is_message(unit: BatchUnit) -> bool {
    unit.is_valid() && unit.unit.is_message()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::rocketmq::consume_queue::read::Options;
    use crate::rocketmq::consume_queue::unit::{BATCH_UNIT_LEN, Unit};
    use crate::rocketmq::file_name;

    /// Units in a file.
    const FILE: usize = 1_000;

    fn unit(number: i64, base_offset: i64, messages: i16) -> BatchUnit {
        let unit = Unit { phy_offset: 100 * number, size: 100, tags_code: 0 };
        BatchUnit { unit, store_timestamp: 0, base_offset, messages }
    }

    fn write(directory: &Path, units: &[Option<BatchUnit>]) {
        fs::create_dir_all(directory).unwrap();
        for (number, units) in units.chunks(FILE).enumerate() {
            let encode = |unit: &Option<BatchUnit>| unit.map_or([0; BATCH_UNIT_LEN], BatchUnit::encode);
            let mut bytes: Vec<u8> = units.iter().flat_map(encode).collect();
            bytes.resize(FILE * BATCH_UNIT_LEN, 0);
            fs::write(directory.join(file_name::of_offset((number * FILE * BATCH_UNIT_LEN) as u64)), bytes).unwrap();
        }
    }

    fn found(blocks: &mut BatchBlocks, queue: &ConsumeQueue, begin: i64, end: i64) -> Vec<BatchUnit> {
        let mut units = Vec::new();
        blocks.units(queue, begin, end, |unit| units.push(unit)).unwrap();
        units
    }

    #[test]
    fn windows_in_their_order_read_each_unit_a_few_times() {
        for count in [4_000, 32_000] {
            let folder = tempfile::tempdir().unwrap();
            let directory = folder.path().join("batchconsumequeue/T/0");
            let units: Vec<_> = (0..count).map(|number| Some(unit(number, 3 * number, 3))).collect();
            write(&directory, &units);
            let queue = ConsumeQueue::open(&directory, Options::default()).unwrap();
            let mut blocks = BatchBlocks::default();
            let mut met = 0;
            for begin in (0..3 * count).step_by(600) {
                let units = found(&mut blocks, &queue, begin, begin + 600);
                assert_eq!(units.len(), 200);
                assert_eq!(units[0].base_offset, begin);
                met += units.len();
            }
            assert_eq!(i64::try_from(met), Ok(count));
            // All units once, then at most 3 blocks for each window of 200 units.
            let most = count + count / 200 * 3 * BLOCK.cast_signed();
            assert!(blocks.units_read() <= most.cast_unsigned(), "{} of {most}", blocks.units_read());
        }
    }

    #[test]
    fn what_is_appended_is_found_and_what_is_out_of_order_too() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("batchconsumequeue/T/0");
        let mut units: Vec<_> = (0..2_500).map(|number| Some(unit(number, 2 * number, 2))).collect();
        // Zeros over a whole block, one wild offset, and one duplicate offset at the end.
        for lost in &mut units[300..900] {
            *lost = None;
        }
        units[1_000] = Some(unit(1_000, 1 << 40, 2));
        units[2_499] = Some(unit(2_499, 20, 2));
        write(&directory, &units);
        let queue = ConsumeQueue::open(&directory, Options::default()).unwrap();
        let mut blocks = BatchBlocks::default();
        let check = |blocks: &mut BatchBlocks, units: &[Option<BatchUnit>]| {
            for (begin, end) in [(0, 1), (15, 25), (599, 1_801), (1_990, 2_010), (1 << 40, i64::MAX), (4_990, 6_000)] {
                let overlaps = |unit: &BatchUnit| unit.end_offset() > begin && unit.base_offset < end;
                let expected: Vec<_> = units.iter().copied().flatten().filter(overlaps).collect();
                assert_eq!(found(blocks, &queue, begin, end), expected, "{begin}");
            }
        };
        check(&mut blocks, &units);
        units[1_000] = None;
        units[2_499] = None;
        write(&directory, &units);
        let mut blocks = BatchBlocks::default();
        check(&mut blocks, &units);
        units.extend((2_500..3_300).map(|number| Some(unit(number, 2 * number, 2))));
        write(&directory, &units);
        let before = blocks.units_read();
        check(&mut blocks, &units);
        assert!(blocks.units_read() - before < 4_000, "what is known is not looked at again");
    }
}
