//! Extension files: message fields that do not fit into a unit.
//!
//! ```text
//! 0 size i16 = 20 + bit map    10 store timestamp i64
//! 2 tags code i64              18 bit map length i16, bit map
//! ```
//!
//! A unit with an extension holds an address instead of the tags code: the offset in the extension files plus `i64::MIN`. A size
//! of 0 or less ends a file. Source: upstream `ConsumeQueueExt`.

use super::queue::ConsumeQueue;
use crate::error::{Error, Result};
use crate::io::{Access, FileSource, Location, ReadAt as _, usize_of};
use crate::rocketmq::offset_files::{self, OffsetFile};

/// Tags codes up to this value are addresses (upstream `ConsumeQueueExt.MAX_ADDR`).
const MAX_ADDRESS: i64 = i32::MIN as i64 - 1;
/// Bytes of a unit without its bit map.
pub(crate) const HEAD: usize = 20;
/// Bytes that must stay free at the end of a file.
pub(crate) const END_BLANK: u64 = 4;
/// The shortest file that holds a unit without a bit map.
pub(crate) const SHORTEST_EXTENSION_FILE: u64 = HEAD as u64 + END_BLANK;

/// Bytes that are read at once.
const WINDOW: usize = 4096;

/// Returns whether a tags code is the address of an extension unit.
pub fn is_extension_address(tags_code: i64) -> bool {
    tags_code <= MAX_ADDRESS
}

/// Returns the offset in the extension files of an address.
pub(crate) fn offset_of(address: i64) -> u64 {
    address.wrapping_sub(i64::MIN).cast_unsigned()
}

/// An extension unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionUnit {
    /// Hash of the tags.
    pub tags_code: i64,
    /// Store time of the message.
    pub store_timestamp: i64,
    /// The consumers whose filters accept the message; may be empty.
    pub bit_map: Vec<u8>,
}

impl ExtensionUnit {
    /// Returns the bytes of the unit. Its bit map must be shorter than 32 KiB.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let size = |bytes: usize| i16::try_from(bytes).unwrap_or(i16::MAX).to_be_bytes();
        let (tags_code, time) = (self.tags_code.to_be_bytes(), self.store_timestamp.to_be_bytes());
        let fields =
            [&size(HEAD + self.bit_map.len())[..], &tags_code, &time, &size(self.bit_map.len()), &self.bit_map];
        fields.concat()
    }
}

/// Reads the unit at the beginning of `bytes`; `None` if there is none.
pub(crate) fn parse(bytes: &[u8]) -> Option<ExtensionUnit> {
    let size = i16::from_be_bytes(bytes.first_chunk().copied()?);
    let head: &[u8; HEAD] = bytes.first_chunk()?;
    let [_, _, head @ ..] = head;
    let (tags_code, head) = head.split_first_chunk::<8>()?;
    let (store_timestamp, head) = head.split_first_chunk::<8>()?;
    let length = usize::try_from(i16::from_be_bytes(*head.first_chunk()?)).ok()?;
    if usize::try_from(size).ok()? != HEAD + length {
        return None;
    }
    Some(ExtensionUnit {
        tags_code: i64::from_be_bytes(*tags_code),
        store_timestamp: i64::from_be_bytes(*store_timestamp),
        bit_map: bytes.get(HEAD..HEAD + length)?.to_vec(),
    })
}

impl ConsumeQueue {
    /// Returns the extension units at these addresses; `None` for an address without a unit.
    ///
    /// # Errors
    /// `InvalidArgument` without a directory of extensions; an I/O error, with the path.
    pub fn extension_units(
        &self,
        addresses: impl IntoIterator<Item = Option<i64>>,
    ) -> Result<Vec<Option<ExtensionUnit>>> {
        let Some(directory) = &self.options.extension else {
            let text =
                format!("{}: expected a queue that was opened with its extension directory", self.path().display());
            return Err(Error::InvalidArgument(text));
        };
        let mut units = ExtensionReader::open(directory, self.options.access)?;
        addresses.into_iter().map(|address| address.map_or(Ok(None), |address| units.unit(address))).collect()
    }
}

/// Reads extension units; fastest in the order of their addresses.
#[derive(Debug)]
pub(crate) struct ExtensionReader {
    files: Vec<OffsetFile>,
    access: Access,
    /// The most recently read file, and where it begins.
    opened: Option<(u64, FileSource)>,
    /// Bytes of that file, and their offset in the queue's extension.
    window: Vec<u8>,
    begin: u64,
}

impl ExtensionReader {
    /// Lists the files in a directory.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(crate) fn open(directory: &Location, access: Access) -> Result<Self> {
        let files = offset_files::list(&[directory.to_owned()])?;
        Ok(Self { files, access, opened: None, window: Vec::new(), begin: 0 })
    }

    /// Offset of the first byte of the files; `None` without files.
    pub(crate) fn first(&self) -> Option<u64> {
        self.files.first().map(|file| file.start)
    }

    /// Returns the unit of a tags code; `None` if it is not an address or has no unit.
    ///
    /// # Errors
    /// An I/O error, with the path.
    pub(crate) fn unit(&mut self, tags_code: i64) -> Result<Option<ExtensionUnit>> {
        if !is_extension_address(tags_code) {
            return Ok(None);
        }
        let at = offset_of(tags_code);
        let size = self.bytes(at, HEAD)?.first_chunk().map_or(0, |size| i16::from_be_bytes(*size));
        let size = usize::try_from(size).unwrap_or(0);
        Ok(if size < HEAD { None } else { parse(self.bytes(at, size)?) })
    }

    /// Returns at least `len` bytes from an offset on; none if the file ends earlier.
    fn bytes(&mut self, at: u64, len: usize) -> Result<&[u8]> {
        let is_in = at >= self.begin && at + len as u64 <= self.begin + self.window.len() as u64;
        if !is_in && !self.fill(at, len)? {
            return Ok(&[]);
        }
        Ok(usize::try_from(at - self.begin).ok().and_then(|at| self.window.get(at..)).unwrap_or_default())
    }

    fn fill(&mut self, at: u64, len: usize) -> Result<bool> {
        let after = self.files.partition_point(|file| file.start <= at);
        let file = after.checked_sub(1).and_then(|last| self.files.get(last));
        let Some(file) = file.filter(|file| at < file.end() && len as u64 <= file.end() - at) else {
            return Ok(false);
        };
        let source = match self.opened.take() {
            Some((start, source)) if start == file.start => source,
            _ => offset_files::open(file, self.access)?,
        };
        let left = usize_of(file.end() - at);
        self.window.resize(left.min(len.max(WINDOW)), 0);
        self.begin = at;
        let read = source.read_exact_at(&mut self.window, at - file.start);
        if read.is_err() {
            self.window.clear();
        }
        read.map_err(|e| Error::io(&file.path, e))?;
        self.opened = Some((file.start, source));
        Ok(true)
    }
}
