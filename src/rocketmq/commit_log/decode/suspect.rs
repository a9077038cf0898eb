//! What speaks against a message that is whole in itself.
//!
//! A broker that cuts its log back erases nothing. New messages overwrite the old ones from the cut on, and where one ends
//! just where an old one began, the old ones follow as if they were new (*ghosts*). Magic, lengths, checksum, even the offset
//! that a ghost states are right. What gives it away is its past: its store time is earlier than that of a message before
//! it, and its queue has had its queue offset already.
//!
//! A clock that stepped back looks the same. Only where the two cannot be mistaken for each other, behind the end of the log
//! in its last file, is a message told to be cut off.

use arrow_array::RecordBatch;

use crate::arrow::input_columns::{Texts, integers, null};
use crate::error::Result;

/// The signs, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suspect(u8);

impl Suspect {
    /// A broker's walk ends before it.
    pub const AFTER_STOP: Self = Self(1);
    /// Its store time is earlier than that of a message before it.
    pub const TIME_BACK: Self = Self(2);
    /// A message of its queue before it has the same queue offset or a later one.
    pub const QUEUE_BACK: Self = Self(4);
    /// It states another offset than it has.
    pub const PHY_OFFSET: Self = Self(8);
    /// Its property `__CRC32#` does not fit its bytes.
    pub const PROP_CRC: Self = Self(16);
    /// A broker cut it off: it lies behind the end of the log, and there is another sign against it.
    pub const CUT_OFF: Self = Self(32);

    /// The words for the signs, as the column `suspect` holds them, by their bits.
    const WORDS: [(u8, &str); 6] =
        [(1, "after-stop"), (2, "time-back"), (4, "queue-back"), (8, "phy-offset"), (16, "prop-crc"), (32, "cut-off")];

    /// Both signs.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True when there is none.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// True when it has every sign of `other`.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The words of the signs with spaces between; `None` without a sign.
    pub fn words(self) -> Option<String> {
        let words: Vec<&str> = Self::WORDS.iter().filter(|(bit, _)| self.0 & bit != 0).map(|(_, word)| *word).collect();
        (!words.is_empty()).then(|| words.join(" "))
    }
}

/// Valid messages in batches, offsets and signs of the messages that were cut off, and the number of messages that step back in
/// time.
pub type SplitMessages = (Vec<RecordBatch>, Vec<(i64, String)>, usize);

/// Splits a batch of a salvaging scan into valid messages and those that a broker cut off. A message behind damage is valid.
///
/// # Errors
/// `InvalidArgument` for a column that is missing, of another type, or null.
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
