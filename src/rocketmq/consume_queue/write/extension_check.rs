//! Checks that the addresses in a queue refer to extension units of its messages.
//!
//! Extension units are in the order of their messages. If an address is not above the one before it, it was used twice and its
//! unit belongs to the later message. From there on, the earlier addresses refer to units of other messages. Addresses before the
//! first file are valid: a broker deletes extension files whose messages are no longer in the log (upstream
//! `ConsumeQueueExt#truncateByMinAddress`).

use std::io;
use std::path::Path;

use crate::error::{Error, Result};
use crate::io::Access;
use crate::rocketmq::consume_queue::read::{ExtensionReader, is_extension_address, offset_of};

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
mod tests {
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
