//! Check whether a broker would accept a frame. Source: upstream `CommitLog#checkMessageAndReturnSize`.

use super::fields::{Frame, Layout, body_crc};
use super::layout::Versions;
use super::layout::{MAGIC_BLANK, MAGIC_V1, MAGIC_V2, PHY_OFFSET, array, i32_at};
use crate::rocketmq::commit_log::frame::properties;
use crate::rocketmq::names::{DELAY, SCHEDULE_TOPIC};

/// The reason why a frame is refused. The broker's walk of the log ends at such a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Unwritten space: the regular end of the log.
    Unwritten,
    /// The magic of neither a message nor a BLANK frame.
    Magic(u32),
    /// The file ends inside the frame.
    CutOff,
    /// The lengths of the fields do not match the size.
    Size {
        /// The size that the frame states.
        stated: i32,
    },
    /// The checksum of the body does not match.
    BodyCrc {
        /// The checksum stored in the frame.
        stored: u32,
        /// The checksum computed from the body.
        computed: u32,
    },
    /// A delayed message whose level is not a number.
    DelayLevel,
}

/// The end of a walk, and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Log offset.
    pub phy_offset: u64,
    /// The refusal; `None` at the end of the requested range, or after the last file.
    pub refusal: Option<Refusal>,
}

/// The content of a position of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A message.
    Message(Layout),
    /// A BLANK frame: the rest of the file is padding.
    Blank,
    /// The walk of the log ends here.
    Refused(Refusal),
}

/// The frame cannot be checked without this number of bytes. The file has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs(pub usize);

/// Checks the frame at the beginning of `bytes`, as a broker does when it walks the log.
///
/// `available` is the number of bytes from here to the end of the file. `bytes` may hold fewer.
///
/// # Errors
/// The number of bytes that the check needs. It is never more than `available`.
pub fn check(bytes: &[u8], available: u64, versions: Versions) -> Result<Found, Needs> {
    check_with(bytes, available, versions, true)
}

/// Checks a frame as [`check`] does. The checksum of the body is optional.
///
/// # Errors
/// As [`check`].
#[inline]
pub fn check_with(bytes: &[u8], available: u64, versions: Versions, crc: bool) -> Result<Found, Needs> {
    if available < 8 {
        return Ok(Found::Refused(Refusal::CutOff));
    }
    let (Some(total), Some(magic)) = (i32_at(bytes, 0), array(bytes, 4).map(u32::from_be_bytes)) else {
        return Err(Needs(8));
    };
    match magic {
        MAGIC_V1 => {}
        MAGIC_V2 if versions == Versions::V1AndV2 => {}
        MAGIC_BLANK => return Ok(Found::Blank),
        0 => return Ok(Found::Refused(Refusal::Unwritten)),
        other => return Ok(Found::Refused(Refusal::Magic(other))),
    }
    let Ok(size) = u32::try_from(total) else {
        return Ok(Found::Refused(Refusal::Size { stated: total }));
    };
    if u64::from(size) > available {
        return Ok(Found::Refused(Refusal::CutOff));
    }
    let frame = bytes.get(..size as usize).ok_or(Needs(size as usize))?;
    let Ok(Some(layout)) = Layout::of(frame, size, magic) else {
        return Ok(Found::Refused(Refusal::Size { stated: total }));
    };
    Ok(refusal(&Frame::new(frame, layout), crc).map_or(Found::Message(layout), Found::Refused))
}

/// Bytes at the beginning of a batch, size and magic, that are written after all others.
pub const UNCOMMITTED_LEN: usize = 8;

/// Returns whether a batch begins with `head`, at this offset of the log, that was never completed: its messages were refused.
///
/// Its size and magic are zero and the rest is not. A power loss cannot leave that after a valid message: it loses whole sectors,
/// and the end of that message is in the same sector.
pub fn is_uncommitted(head: &[u8], phy_offset: u64) -> bool {
    let Some((begin, rest)) = head.split_first_chunk::<UNCOMMITTED_LEN>() else { return false };
    *begin == [0; UNCOMMITTED_LEN]
        && rest.iter().any(|byte| *byte != 0)
        && array(head, PHY_OFFSET).map(i64::from_be_bytes) == Some(phy_offset.cast_signed())
}

/// Returns the reason why a broker refuses a frame with valid lengths.
#[inline]
fn refusal(frame: &Frame<'_>, crc: bool) -> Option<Refusal> {
    let (stored, body) = (frame.body_crc().cast_unsigned(), frame.stored_body());
    // The checksum of an empty body is never checked.
    if crc && !body.is_empty() {
        let computed = body_crc(body);
        if stored != computed {
            return Some(Refusal::BodyCrc { stored, computed });
        }
    }
    if frame.topic() == SCHEDULE_TOPIC.as_bytes() && !has_level(frame) {
        return Some(Refusal::DelayLevel);
    }
    None
}

/// Returns false if the delay level is not a number.
#[cold]
fn has_level(frame: &Frame<'_>) -> bool {
    let text = crate::java_text::decode_utf8(frame.properties());
    let level = properties::parse(&text).into_iter().rfind(|(name, _)| *name == DELAY);
    level.is_none_or(|(_, level)| level.parse::<i32>().is_ok())
}
