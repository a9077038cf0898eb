//! Signs that a complete message was truncated by a broker.
//!
//! When a broker truncates its log, it erases nothing. New messages overwrite the old ones from that offset on. If a
//! new message ends where an old one began, the old messages follow it as if they were new. Their magic, lengths,
//! checksum and stated offset are valid. Two signs distinguish them. The store time is earlier than that of a message
//! before it. The queue offset occurred before in its queue.
//!
//! A clock that stepped back has the same effect. So a message is marked as truncated only after the end of the log in
//! its last file, or after a BLANK frame.

use arrow_array::RecordBatch;

use crate::arrow::input_columns::{Texts, integers, null};
use crate::error::Result;

/// The signs, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suspect(u8);

impl Suspect {
    /// A broker's walk ends before this message.
    pub const AFTER_STOP: Self = Self(1);
    /// The store time is earlier than that of an earlier message.
    pub const TIME_BACK: Self = Self(2);
    /// An earlier message of the queue has the same queue offset or a later one.
    pub const QUEUE_BACK: Self = Self(4);
    /// The stated offset is not the real one.
    pub const PHY_OFFSET: Self = Self(8);
    /// The property `__CRC32#` does not match the bytes.
    pub const PROP_CRC: Self = Self(16);
    /// A broker truncated this message: it is after the end of the log, or after a BLANK frame, and has another sign.
    pub const CUT_OFF: Self = Self(32);

    /// The words of the signs in the column `suspect`, by their bits.
    const WORDS: [(u8, &str); 6] =
        [(1, "after-stop"), (2, "time-back"), (4, "queue-back"), (8, "phy-offset"), (16, "prop-crc"), (32, "cut-off")];

    /// Returns the signs of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether there is no sign.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns whether all signs of `other` are set.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the words of the signs, separated by spaces; `None` without a sign.
    pub fn words(self) -> Option<String> {
        let words: Vec<&str> = Self::WORDS.iter().filter(|(bit, _)| self.0 & bit != 0).map(|(_, word)| *word).collect();
        (!words.is_empty()).then(|| words.join(" "))
    }
}

/// Valid messages in batches, the offsets and signs of truncated messages, and the number of messages whose store time
/// steps back.
pub type SplitMessages = (Vec<RecordBatch>, Vec<(i64, String)>, usize);

/// Splits a batch of a salvaging scan into valid and truncated messages.
///
/// Messages after a corrupt region are valid.
///
/// # Errors
/// `InvalidArgument` for a column that is missing, has another type, or contains nulls.
pub fn split_cut_off(messages: &RecordBatch) -> Result<SplitMessages> {
    let suspects = Texts::of(messages, "suspect")?;
    let phy_offsets = integers(messages, "phy_offset")?;
    let [cut_off_word, time_back_word] = [Suspect::CUT_OFF, Suspect::TIME_BACK].map(Suspect::words);
    let has = |words: &str, word: &Option<String>| words.split(' ').any(|each| Some(each) == word.as_deref());
    let (mut valid, mut cut_off, mut back_in_time, mut begin) = (Vec::new(), Vec::new(), 0, 0);
    for row in 0..messages.num_rows() {
        let Some(words) = suspects.get(row) else { continue };
        back_in_time += usize::from(has(words, &time_back_word));
        if has(words, &cut_off_word) {
            if begin < row {
                valid.push(messages.slice(begin, row - begin));
            }
            begin = row + 1;
            cut_off.push((phy_offsets(row).ok_or_else(|| null("phy_offset", row))?, words.to_owned()));
        }
    }
    if begin < messages.num_rows() {
        valid.push(messages.slice(begin, messages.num_rows() - begin));
    }
    Ok((valid, cut_off, back_in_time))
}

#[cfg(test)]
mod tests {
    use super::Suspect;

    #[test]
    fn signs_have_words() {
        assert_eq!(Suspect::default().words(), None);
        let both = Suspect::AFTER_STOP.and(Suspect::PROP_CRC);
        assert_eq!(both.words().as_deref(), Some("after-stop prop-crc"));
        assert!(both.has(Suspect::PROP_CRC) && !both.has(Suspect::TIME_BACK) && !both.is_none());
    }
}
