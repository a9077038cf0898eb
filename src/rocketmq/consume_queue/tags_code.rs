//! The tags code of a unit, by which a broker filters before it reads a message.

use crate::error::{Error, Result};
use crate::hash_index::carry_utf8;
use crate::rocketmq::names::SCHEDULE_TOPIC;

/// The delays of a broker's levels; level 1 is the first (upstream `MessageStoreConfig.messageDelayLevel`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayLevels(Vec<i64>);

impl DelayLevels {
    /// The broker's default.
    pub const DEFAULT: &str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";

    /// Reads numbers with the units s, m, h and d, separated by spaces.
    ///
    /// # Errors
    /// `InvalidArgument` for anything else.
    pub fn parse(text: &str) -> Result<Self> {
        let level = |word: &str| {
            let unit = match word.bytes().next_back()? {
                b's' => 1_000,
                b'm' => 60_000,
                b'h' => 3_600_000,
                b'd' => 86_400_000,
                _ => return None,
            };
            word.get(..word.len() - 1)?.parse::<i64>().ok()?.checked_mul(unit)
        };
        let wrong =
            |word| Error::InvalidArgument(format!("delay level {word:?}: expected a number and one of s, m, h, d"));
        text.split(' ').map(|word| level(word).ok_or_else(|| wrong(word))).collect::<Result<_>>().map(Self)
    }

    /// The delays in ms.
    pub fn as_ms(&self) -> &[i64] {
        &self.0
    }

    /// Returns when a message of this level that was stored at this time is delivered; `None` for a level below 1.
    fn deliver_timestamp(&self, level: i32, store_timestamp: i64) -> Option<i64> {
        let level = usize::try_from(level).ok()?.min(self.0.len());
        let delay = self.0.get(level.checked_sub(1)?)?;
        Some(store_timestamp.wrapping_add(*delay))
    }
}

/// Returns Java's `String.hashCode` of the tags, or the time of delivery of a delayed message.
///
/// Source: upstream `CommitLog#checkMessageAndReturnSize`, `MessageExtBrokerInner#tagsString2tagsCode`.
pub(super) fn tags_code(
    topic: &str,
    tags: Option<&str>,
    delay: Option<&str>,
    store_timestamp: i64,
    levels: &DelayLevels,
) -> i64 {
    let level = delay.filter(|_| topic == SCHEDULE_TOPIC).and_then(|level| level.parse().ok());
    level
        .and_then(|level| levels.deliver_timestamp(level, store_timestamp))
        .unwrap_or_else(|| i64::from(tags_hash(tags.unwrap_or_default())))
}

/// Returns Java's `String.hashCode` of tags.
pub fn tags_hash(tags: &str) -> i32 {
    carry_utf8(0, tags.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::{DelayLevels, SCHEDULE_TOPIC, tags_code};

    #[test]
    fn tags_are_hashed_and_delays_are_times() {
        let levels = DelayLevels::parse(DelayLevels::DEFAULT).unwrap();
        let code = |topic: &str, tags, delay| tags_code(topic, tags, delay, 1000, &levels);
        assert_eq!(code("T", Some("TagA"), None), 0x0027_a807);
        assert_eq!(code("T", Some("\u{6807}\u{7b7e}"), Some("3")), 857_175);
        assert_eq!(code("T", None, None), 0);
        assert_eq!(code(SCHEDULE_TOPIC, Some("TagA"), Some("3")), 11_000);
        assert_eq!(code(SCHEDULE_TOPIC, Some("TagA"), Some("99")), 7_201_000);
        assert_eq!(code(SCHEDULE_TOPIC, Some("TagA"), Some("0")), 0x0027_a807);
        assert!(DelayLevels::parse("1s 2x").is_err());
        assert!(DelayLevels::parse("1s  2s").is_err());
        assert_eq!(DelayLevels::parse("2d").unwrap().deliver_timestamp(1, 0), Some(172_800_000));
    }
}
