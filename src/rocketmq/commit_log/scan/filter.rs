//! Which messages a scan returns, decided on the raw frame: before a body is decompressed or a column is built.
//!
//! Texts are compared as the columns hold them: malformed UTF-8 is replaced first, as Java does.

use std::collections::HashSet;
use std::ops::{Range, RangeInclusive};

use crate::java_text::decode_utf8;
use crate::rocketmq::commit_log::frame::Frame;
use crate::rocketmq::index_entries::KeyTexts;
use crate::time_range::TimeRange;

/// A set of texts of which a message must have one.
#[derive(Clone, Debug)]
pub enum TextSet {
    /// Compared one after the other.
    Few(Vec<String>),
    /// Looked up by hash.
    Many(HashSet<String>),
}

impl TextSet {
    /// Sets up to this size are compared text by text.
    const FEW: usize = 4;

    /// Returns whether the set has this text.
    #[inline]
    pub fn contains(&self, text: &str) -> bool {
        match self {
            Self::Few(texts) => texts.iter().any(|each| each == text),
            Self::Many(texts) => texts.contains(text),
        }
    }
}

impl FromIterator<String> for TextSet {
    fn from_iter<I: IntoIterator<Item = String>>(texts: I) -> Self {
        let texts: HashSet<String> = texts.into_iter().collect();
        if texts.len() <= Self::FEW { Self::Few(texts.into_iter().collect()) } else { Self::Many(texts) }
    }
}

/// Conditions on a message; all of them must hold. `None`, and a range of everything, is no condition.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The topic as stored is one of these.
    pub topics: Option<TextSet>,
    /// The queue id is one of these.
    pub queue_ids: Option<HashSet<i32>>,
    /// The queue offset is in this range.
    pub queue_offsets: RangeInclusive<i64>,
    /// The frame begins in this range of the log.
    pub phy_offsets: Range<u64>,
    /// The store time is in this range.
    pub times: TimeRange,
    /// The unique key or one of the space-separated keys is one of these.
    pub keys: Option<TextSet>,
    /// The property `TAGS` is one of these.
    pub tags: Option<TextSet>,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            topics: None,
            queue_ids: None,
            queue_offsets: i64::MIN..=i64::MAX,
            phy_offsets: 0..u64::MAX,
            times: TimeRange::ALL,
            keys: None,
            tags: None,
        }
    }
}

impl Filter {
    /// Returns whether a message fulfils all conditions.
    #[inline]
    pub fn passes(&self, frame: &Frame<'_>, phy_offset: u64) -> bool {
        self.phy_offsets.contains(&phy_offset)
            && self.queue_ids.as_ref().is_none_or(|ids| ids.contains(&frame.queue_id()))
            && self.queue_offsets.contains(&frame.queue_offset())
            && self.holds_time(frame)
            && self.topics.as_ref().is_none_or(|topics| topics.contains(&decode_utf8(frame.topic())))
            && self.holds_properties(frame)
    }

    #[inline]
    fn holds_time(&self, frame: &Frame<'_>) -> bool {
        let time = frame.store_timestamp();
        self.times.meets(time, time)
    }

    #[inline]
    fn holds_properties(&self, frame: &Frame<'_>) -> bool {
        if self.keys.is_none() && self.tags.is_none() {
            return true;
        }
        let texts = KeyTexts::of_properties(frame.properties());
        self.keys.as_ref().is_none_or(|wanted| texts.plain_keys().any(|key| wanted.contains(key)))
            && self.tags.as_ref().is_none_or(|wanted| texts.tags.as_deref().is_some_and(|tags| wanted.contains(tags)))
    }
}
