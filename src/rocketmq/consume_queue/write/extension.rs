//! The extension files of a queue that is open for writing. Source: upstream `ConsumeQueueExt#put`, `#fullFillToEnd`.

use super::files::{Written, WrittenFiles};
use crate::error::Result;
use crate::io::Access;
use crate::rocketmq::consume_queue::read::{END_BLANK, ExtensionReader, ExtensionUnit, HEAD, offset_of};
use crate::rocketmq::offset_files;
use crate::rocketmq::truncate::truncate_files;

/// Ends a file if the next unit would not leave [`END_BLANK`] bytes.
const END: [u8; 2] = (-1i16).to_be_bytes();

/// Writes the extension units of one queue.
#[derive(Debug)]
pub(super) struct ExtensionWriter {
    files: WrittenFiles,
    /// Buffered units from `begin` on.
    units: Vec<u8>,
    begin: u64,
}

impl ExtensionWriter {
    /// Begins an extension without units.
    pub(super) fn new(files: WrittenFiles) -> Self {
        Self { files, units: Vec::new(), begin: 0 }
    }

    /// Opens the extension of a queue and truncates it after the unit of the queue's last message. If this message has no
    /// extension unit, the next file is begun and nothing is truncated (upstream `ConsumeQueueExt#truncateByMaxAddress`). A dry run
    /// truncates nothing.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(super) fn open(files: WrittenFiles, has_messages: bool, address: Option<i64>, dry_run: bool) -> Result<Self> {
        if !files.directory.is_dir() {
            return Ok(Self::new(files));
        }
        let listed = offset_files::list(&[files.directory.as_path().into()])?;
        let begin = match address {
            _ if !has_messages => 0,
            None => {
                let begin = listed.last().map_or(0, |last| (last.start + 1).next_multiple_of(files.file_size));
                return Ok(Self { begin, ..Self::new(files) });
            }
            Some(address) => {
                let unit = ExtensionReader::open(&files.directory.as_path().into(), Access::Auto)?.unit(address)?;
                let bit_map = unit.map_or(0, |unit| unit.bit_map.len());
                offset_of(address).saturating_add((HEAD + bit_map) as u64)
            }
        };
        if !dry_run {
            truncate_files(&listed, begin)?;
        }
        Ok(Self { begin, ..Self::new(files) })
    }

    /// Puts a unit and returns its address. Its bit map is empty: the log does not record which consumers' filters accept a
    /// message.
    pub(super) fn put(&mut self, tags_code: i64, store_timestamp: i64) -> i64 {
        let unit = ExtensionUnit { tags_code, store_timestamp, bit_map: Vec::new() }.encode();
        let mut at = self.begin + self.units.len() as u64;
        let left = self.files.file_size - at % self.files.file_size;
        if unit.len() as u64 + END_BLANK > left {
            self.units.extend_from_slice(&END);
            let filled = self.units.len() + usize::try_from(left).unwrap_or(0) - END.len();
            self.units.resize(filled, 0);
            at += left;
        }
        self.units.extend_from_slice(&unit);
        at.cast_signed().wrapping_add(i64::MIN)
    }

    pub(super) fn write_units(&mut self, written: &mut Written) -> Result<()> {
        self.files.write(self.begin, &self.units, written)?;
        self.drop_units();
        Ok(())
    }

    /// Marks the units as written without writing them.
    pub(super) fn drop_units(&mut self) {
        self.begin += self.units.len() as u64;
        self.units = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_leaves_four_bytes_at_the_end_of_its_file() {
        let folder = tempfile::tempdir().unwrap();
        for (file_size, second, third) in [(44, 20, 44), (43, 43, 86), (24, 24, 48)] {
            let directory = folder.path().join(file_size.to_string());
            let files = WrittenFiles { directory: directory.clone(), file_size };
            let mut writer = ExtensionWriter::new(files);
            let mut written = Written::default();
            assert_eq!(writer.put(7, 8), i64::MIN);
            writer.write_units(&mut written).unwrap();
            assert_eq!(writer.put(9, 10), i64::MIN + second);
            assert_eq!(writer.put(11, 12), i64::MIN + third);
            writer.write_units(&mut written).unwrap();
            let read = |number: u64| std::fs::read(directory.join(format!("{:020}", number * file_size))).unwrap();
            let first = read(0);
            assert_eq!(first.len() as u64, file_size);
            assert_eq!(first[..20], [0, 20, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0]);
            let end = if second == 20 { 40 } else { 20 };
            assert_eq!(first[end..end + 2], [0xff, 0xff]);
            assert!(first[end + 2..].iter().all(|byte| *byte == 0));
            assert_eq!(read(1)[..2], [0, 20]);
        }
    }
}
