//! What speaks against a message that is whole in itself.
//!
//! A broker that cuts its log back erases nothing. New messages overwrite the old ones from the cut on, and where one ends
//! just where an old one began, the old ones follow as if they were new (*ghosts*). Magic, lengths, checksum, even the offset
//! that a ghost states are right. What gives it away is its past: its store time is earlier than that of a message before
//! it, and its queue has had its queue offset already.
//!
//! A clock that stepped back looks the same. Only where the two cannot be mistaken for each other, behind the end of the log
//! in its last file, is a message told to be cut off.

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
