//! The extension files of a queue that is being written. Source: upstream `ConsumeQueueExt#put`, `#fullFillToEnd`.

use super::extension::{ExtensionReader, ExtensionUnit, HEAD, offset_of};
use super::written_files::{Written, WrittenFiles};
use super::written_queue::QueueEnd;
use crate::error::Result;
use crate::io::Access;
use crate::rocketmq::cut::cut_files;
use crate::rocketmq::offset_files;

/// Bytes that a unit leaves free at the end of a file.
const END_BLANK: u64 = 4;
/// Stands where the next unit would not leave them.
const END: [u8; 2] = (-1i16).to_be_bytes();
/// The shortest file that holds a unit without bit map.
pub(super) const SHORTEST_FILE: u64 = HEAD as u64 + END_BLANK;

/// Writes the extension units of one queue.
#[derive(Debug)]
pub(super) struct ExtensionWriter {
    files: WrittenFiles,
    /// Units from `begin` on that are not in a file yet.
    kept: Vec<u8>,
    begin: u64,
}

impl ExtensionWriter {
    /// Nothing yet; files have [`SHORTEST_FILE`] bytes or more.
    pub(super) fn new(files: WrittenFiles) -> Self {
        Self { files, kept: Vec::new(), begin: 0 }
    }

    /// Goes on behind the unit of a queue's last message, and cuts off what lies behind it. Where that message has none the next
    /// file is begun, and nothing is cut off (upstream `ConsumeQueueExt#truncateByMaxAddress`).
    ///
    /// # Errors
    /// The system's error, with the path.
    pub(super) fn open(files: WrittenFiles, end: &QueueEnd, address: Option<i64>) -> Result<Self> {
        if !files.directory.is_dir() {
            return Ok(Self::new(files));
        }
        let listed = offset_files::list(std::slice::from_ref(&files.directory))?;
        let begin = match address {
            _ if end.log_end < 0 => 0,
            None => {
                let begin = listed.last().map_or(0, |last| (last.start + 1).next_multiple_of(files.file_size));
                return Ok(Self { begin, ..Self::new(files) });
            }
            Some(address) => {
                let unit = ExtensionReader::open(&files.directory, Access::Auto)?.unit(address)?;
                let bit_map = unit.map_or(0, |unit| unit.bit_map.len());
                offset_of(address).saturating_add((HEAD + bit_map) as u64)
            }
        };
        cut_files(&listed, begin)?;
        Ok(Self { begin, ..Self::new(files) })
    }

    /// Puts a unit without bit map: which consumers' filters take a message the log does not tell. Gives its address.
    pub(super) fn put(&mut self, tags_code: i64, store_timestamp: i64) -> i64 {
        let unit = ExtensionUnit { tags_code, store_timestamp, bit_map: Vec::new() }.encode();
        let mut at = self.begin + self.kept.len() as u64;
        let left = self.files.file_size - at % self.files.file_size;
        if unit.len() as u64 + END_BLANK > left {
            self.kept.extend_from_slice(&END);
            let filled = self.kept.len() + usize::try_from(left).unwrap_or(0) - END.len();
            self.kept.resize(filled, 0);
            at += left;
        }
        self.kept.extend_from_slice(&unit);
        at.cast_signed().wrapping_add(i64::MIN)
    }

    pub(super) fn write_kept(&mut self, written: &mut Written) -> Result<()> {
        self.files.write(self.begin, &self.kept, written)?;
        self.begin += self.kept.len() as u64;
        self.kept = Vec::new();
        Ok(())
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
            writer.write_kept(&mut written).unwrap();
            assert_eq!(writer.put(9, 10), i64::MIN + second);
            assert_eq!(writer.put(11, 12), i64::MIN + third);
            writer.write_kept(&mut written).unwrap();
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
