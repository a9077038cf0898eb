//! The extension files of a queue that is open for writing. Source: upstream `ConsumeQueueExt#put`, `#fullFillToEnd`.
//!
//! The addresses in a queue must refer to extension units of its messages. Extension units are in the order of their messages. If
//! an address is not above the one before it, it was used twice and its unit belongs to the later message. From there on, the
//! earlier addresses refer to units of other messages. Addresses before the first file are valid: a broker deletes extension files
//! whose messages are no longer in the log (upstream `ConsumeQueueExt#truncateByMinAddress`).

use std::io;
use std::path::Path;

use super::files::{Written, WrittenFiles};
use crate::error::{Error, Result};
use crate::io::{Access, usize_of};
use crate::rocketmq::consume_queue::read::{
    END_BLANK, ExtensionReader, ExtensionUnit, HEAD, is_extension_address, offset_of,
};
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
            let filled = self.units.len() + usize_of(left) - END.len();
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

/// Checks the addresses of one queue.
#[derive(Debug)]
pub(super) struct ExtensionCheck {
    /// `None` if the queue has no directory of extension files.
    units: Option<ExtensionReader>,
    /// From this address on, units belong to other messages than those that refer to them.
    end: u64,
    before: Option<u64>,
}

impl ExtensionCheck {
    /// Lists the extension files in a directory, which may be missing.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let units = match ExtensionReader::open(&directory.into(), Access::Auto) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
            units => Some(units?),
        };
        Ok(Self { units, end: u64::MAX, before: None })
    }

    /// Returns the address from which units belong to other messages than the first ones that refer to them.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Begins a walk, in which addresses must rise.
    pub(super) fn restart(&mut self) {
        self.before = None;
    }

    /// Returns true if the tags code is not an address, or is the address of a unit after the previous one.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(super) fn is_valid(&mut self, tags_code: i64) -> Result<bool> {
        if !is_extension_address(tags_code) {
            return Ok(true);
        }
        let at = offset_of(tags_code);
        if self.before.is_some_and(|before| at <= before) {
            self.end = self.end.min(at);
        }
        self.before = Some(at);
        let Some(units) = self.units.as_mut().filter(|_| at < self.end) else {
            return Ok(false);
        };
        let is_deleted = units.first().is_some_and(|first| at < first);
        Ok(is_deleted || units.unit(tags_code)?.is_some())
    }
}

#[cfg(test)]
mod extension_check_tests {
    use super::super::extension::ExtensionWriter;
    use super::super::files::{Written, WrittenFiles};
    use super::*;

    const FIRST: i64 = i64::MIN;

    #[test]
    fn addresses_rise_and_refer_to_units() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("0");
        assert!(!ExtensionCheck::open(&directory).unwrap().is_valid(FIRST).unwrap());
        let mut writer = ExtensionWriter::new(WrittenFiles { directory: directory.clone(), file_size: 64 });
        let addresses: Vec<i64> = (0..6).map(|number| writer.put(number, number)).collect();
        assert_eq!(addresses[..4], [FIRST, FIRST + 20, FIRST + 40, FIRST + 64]);
        writer.write_units(&mut Written::default()).unwrap();

        let mut check = ExtensionCheck::open(&directory).unwrap();
        let mut is_valid = |code| check.is_valid(code).unwrap();
        assert!(addresses.iter().all(|address| is_valid(*address)));
        assert!(is_valid(-1) && is_valid(i64::MAX));
        // After the last unit, within the unused end of a file, and after the last file.
        assert!(!is_valid(FIRST + 124) && !is_valid(FIRST + 150));
        assert_eq!(check.end(), u64::MAX);

        check.restart();
        assert!(check.is_valid(addresses[3]).unwrap());
        assert!(!check.is_valid(addresses[1]).unwrap());
        assert_eq!(check.end(), 20);
        check.restart();
        assert!(check.is_valid(addresses[0]).unwrap());
        assert!(!check.is_valid(addresses[2]).unwrap());

        std::fs::remove_file(directory.join(format!("{:020}", 0))).unwrap();
        let mut check = ExtensionCheck::open(&directory).unwrap();
        assert!(addresses.iter().all(|address| check.is_valid(*address).unwrap()));
    }
}
