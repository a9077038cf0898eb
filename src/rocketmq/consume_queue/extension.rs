//! Extension files: what a unit has no room for.
//!
//! ```text
//! 0 size i16 = 20 + bit map    10 store timestamp i64
//! 2 tags code i64              18 bit map length i16, bit map
//! ```
//!
//! A unit with an extension holds its address in place of the tags code: the offset in the extension files plus
//! `i64::MIN`. A size of 0 or less ends a file. Source: upstream `ConsumeQueueExt`.

use super::queue::ConsumeQueue;
use crate::error::{Error, Result};
use crate::rocketmq::offset_files::{self, OffsetFile};
use crate::source::ReadAt;

/// Tags codes up to this are addresses (upstream `ConsumeQueueExt.MAX_ADDR`).
const MAX_ADDRESS: i64 = i32::MIN as i64 - 1;
/// Bytes of a unit without its bit map.
pub(super) const HEAD: usize = 20;

/// True when a tags code is the address of an extension unit.
pub fn is_extension_address(tags_code: i64) -> bool {
    tags_code <= MAX_ADDRESS
}

/// What an extension unit says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionUnit {
    /// Hash of the tags.
    pub tags_code: i64,
    /// Store time of the message.
    pub store_timestamp: i64,
    /// Which consumers' filters take the message; perhaps empty.
    pub bit_map: Vec<u8>,
}

impl ExtensionUnit {
    /// The bytes of the unit, whose bit map has less than 32 KiB.
    pub(super) fn encode(&self) -> Vec<u8> {
        let size = |bytes: usize| i16::try_from(bytes).unwrap_or(i16::MAX).to_be_bytes();
        let (tags_code, time) = (self.tags_code.to_be_bytes(), self.store_timestamp.to_be_bytes());
        let fields =
            [&size(HEAD + self.bit_map.len())[..], &tags_code, &time, &size(self.bit_map.len()), &self.bit_map];
        fields.concat()
    }
}

/// Reads the unit that begins `bytes`; `None` where none does.
pub(super) fn parse(bytes: &[u8]) -> Option<ExtensionUnit> {
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
    /// The extension units at these addresses, `None` where an address leads to none.
    ///
    /// # Errors
    /// `InvalidArgument` without a directory of extensions; the system's error, with the path.
    pub fn extension_units(
        &self,
        addresses: impl IntoIterator<Item = Option<i64>>,
    ) -> Result<Vec<Option<ExtensionUnit>>> {
        let Some(directory) = &self.options.extension else {
            let text = format!("{} was opened without its extension directory", self.path().display());
            return Err(Error::InvalidArgument(text));
        };
        let files = offset_files::list(std::slice::from_ref(directory))?;
        let mut bytes = Vec::new();
        let mut opened: Option<(u64, crate::mmap::FileSource)> = None;
        addresses
            .into_iter()
            .map(|address| {
                let at = address.filter(|address| is_extension_address(*address));
                let Some(at) = at.map(|address| address.wrapping_sub(i64::MIN).cast_unsigned()) else {
                    return Ok(None);
                };
                let after = files.partition_point(|file| file.start <= at);
                let Some(file) = after.checked_sub(1).and_then(|i| files.get(i)).filter(|file| at < file.end()) else {
                    return Ok(None);
                };
                if opened.as_ref().is_none_or(|(start, _)| *start != file.start) {
                    opened = Some((file.start, offset_files::open(file, self.options.access)?));
                }
                let Some((_, source)) = &opened else {
                    return Ok(None);
                };
                read(source, file, at - file.start, &mut bytes)
            })
            .collect()
    }
}

fn read<S: ReadAt>(source: &S, file: &OffsetFile, at: u64, bytes: &mut Vec<u8>) -> Result<Option<ExtensionUnit>> {
    let fail = |e| Error::io(&file.path, e);
    let mut size = [0u8; 2];
    if file.len.saturating_sub(at) < HEAD as u64 {
        return Ok(None);
    }
    source.read_exact_at(&mut size, at).map_err(fail)?;
    let size = usize::try_from(i16::from_be_bytes(size)).unwrap_or(0);
    if size < HEAD || size as u64 > file.len - at {
        return Ok(None);
    }
    bytes.resize(size, 0);
    source.read_exact_at(bytes, at).map_err(fail)?;
    Ok(parse(bytes))
}
