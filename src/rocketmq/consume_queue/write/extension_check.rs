//! Whether the addresses of a queue lead to extension units of its messages.
//!
//! Extension units stand in the order of their messages. Where an address is not above those before it, it was given a second time
//! and what stands there is the later message's: the earlier ones from there on lead to units of others. Addresses before the first
//! file are sound: a broker deletes the files of messages that the log no longer has (upstream `ConsumeQueueExt#truncateByMinAddress`).

use std::io;
use std::path::Path;

use super::extension::{ExtensionReader, is_extension_address, offset_of};
use crate::error::{Error, Result};
use crate::io::Access;

/// Looks at the addresses of one queue.
#[derive(Debug)]
pub(super) struct ExtensionCheck {
    /// `None` where the queue has no directory of extension files.
    units: Option<ExtensionReader>,
    /// From here on units are other messages' than those that lead to them.
    end: u64,
    before: Option<u64>,
}

impl ExtensionCheck {
    /// Lists the extension files in a directory, which may be missing.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let units = match ExtensionReader::open(directory, Access::Auto) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
            units => Some(units?),
        };
        Ok(Self { units, end: u64::MAX, before: None })
    }

    /// From here on extension units are not those of the messages that lead to them first.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Begins a walk; addresses rise from here on.
    pub(super) fn restart(&mut self) {
        self.before = None;
    }

    /// True for a tags code that is no address, or that of a unit behind those before.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub(super) fn is_sound(&mut self, tags_code: i64) -> Result<bool> {
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
    use super::super::extension_writer::ExtensionWriter;
    use super::super::written_files::{Written, WrittenFiles};
    use super::*;

    const FIRST: i64 = i64::MIN;

    #[test]
    fn addresses_rise_and_lead_to_units() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("0");
        assert!(!ExtensionCheck::open(&directory).unwrap().is_sound(FIRST).unwrap());
        let mut writer = ExtensionWriter::new(WrittenFiles { directory: directory.clone(), file_size: 64 });
        let addresses: Vec<i64> = (0..6).map(|number| writer.put(number, number)).collect();
        assert_eq!(addresses[..4], [FIRST, FIRST + 20, FIRST + 40, FIRST + 64]);
        writer.write_kept(&mut Written::default()).unwrap();

        let mut check = ExtensionCheck::open(&directory).unwrap();
        let mut is_sound = |code| check.is_sound(code).unwrap();
        assert!(addresses.iter().all(|address| is_sound(*address)));
        assert!(is_sound(-1) && is_sound(i64::MAX));
        // Behind the last unit, in the middle of a file's end, and behind the last file.
        assert!(!is_sound(FIRST + 124) && !is_sound(FIRST + 150));
        assert_eq!(check.end(), u64::MAX);

        check.restart();
        assert!(check.is_sound(addresses[3]).unwrap());
        assert!(!check.is_sound(addresses[1]).unwrap());
        assert_eq!(check.end(), 20);
        check.restart();
        assert!(check.is_sound(addresses[0]).unwrap());
        assert!(!check.is_sound(addresses[2]).unwrap());

        std::fs::remove_file(directory.join(format!("{:020}", 0))).unwrap();
        let mut check = ExtensionCheck::open(&directory).unwrap();
        assert!(addresses.iter().all(|address| check.is_sound(*address).unwrap()));
    }
}
