//! The whole frames at the beginning of bytes that another broker wrote. They are appended as they are.
//!
//! A master cuts its log anywhere, so the last frame may lack its end. Lengths, magic and the offset that each message states are
//! checked: they show at once that the bytes are no log, or another one. Checksums are not.

use std::path::Path;

use crate::error::{Error, Result};
use crate::io::usize_of;
use crate::rocketmq::commit_log::frame::{Found, Frame, Needs, Refusal, Versions, check_with, stated_size};
use crate::rocketmq::file_name;

/// The whole frames of one file at the beginning of some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WholeFrames {
    /// Their length in bytes; 0 if the first frame lacks its end.
    pub(super) len: usize,
    /// Bytes of the first frame that is not whole, as far as they are known; 0 at the end of the bytes or of the file.
    pub(super) needed: usize,
    /// The earliest and the last store time; `None` without messages.
    pub(super) store_timestamps: Option<(i64, i64)>,
}

/// Returns the whole frames at the beginning of `bytes`, which belong to this offset of a log. They end at the latest with the file.
///
/// # Errors
/// `Corrupt` if no frame of this offset begins with these bytes. Frames before such a place are returned first.
pub(super) fn whole_frames(directory: &Path, bytes: &[u8], begin: u64, file_size: u64) -> Result<WholeFrames> {
    let mut frames = WholeFrames::default();
    while let Some(rest) = bytes.get(frames.len..).filter(|rest| !rest.is_empty()) {
        let phy_offset = begin + frames.len as u64;
        let left = file_size - phy_offset % file_size;
        if frames.len > 0 && left == file_size {
            break;
        }
        let corrupt = |expected: &str, found: String| {
            let path = directory.join(file_name::of_offset(phy_offset - phy_offset % file_size));
            Err(Error::corrupt(&path, phy_offset % file_size, expected, found))
        };
        let len = match check_with(rest, left, Versions::V1AndV2, true) {
            Err(Needs(needed)) => {
                frames.needed = needed;
                break;
            }
            Ok(Found::Message(layout)) => {
                let frame = Frame::new(rest, layout);
                if frame.stated_phy_offset() != phy_offset.cast_signed() {
                    if frames.len > 0 {
                        break;
                    }
                    let expected = format!("a message that states the offset {phy_offset}");
                    return corrupt(&expected, format!("the offset {}", frame.stated_phy_offset()));
                }
                let time = frame.store_timestamp();
                let earliest = frames.store_timestamps.map_or(time, |(earliest, _)| earliest.min(time));
                frames.store_timestamps = Some((earliest, time));
                u64::from(layout.total())
            }
            Ok(Found::Blank) if stated_size(rest) == Some(left) => left,
            _ if frames.len > 0 => break,
            Ok(Found::Blank) => {
                return corrupt(&format!("a BLANK frame of {left} bytes"), "one of another length".to_owned());
            }
            // Once a message is acknowledged, the master treats it as replicated.
            Ok(Found::Refused(Refusal::BodyCrc { stored, computed })) => {
                return corrupt(&format!("a body with checksum {stored:#010x}"), format!("{computed:#010x}"));
            }
            Ok(Found::Refused(refusal)) => {
                return corrupt("a message or a BLANK frame", refused(refusal));
            }
        };
        match usize::try_from(len) {
            Ok(len) if len <= rest.len() => frames.len += len,
            // The rest of the file after the fields of a BLANK frame is not here yet.
            _ => {
                frames.needed = usize_of(len);
                break;
            }
        }
    }
    Ok(frames)
}

fn refused(refusal: Refusal) -> String {
    match refusal {
        Refusal::Unwritten => "zeros".to_owned(),
        Refusal::Magic(magic) => format!("magic {magic:#010x}"),
        Refusal::CutOff => "one that is longer than the rest of the file".to_owned(),
        Refusal::Size { stated } => format!("a length of {stated} that its fields do not have"),
        Refusal::BodyCrc { computed, .. } => format!("a body with checksum {computed:#010x}"),
        Refusal::DelayLevel => "a delay level that is no number".to_owned(),
    }
}
