//! The options of a scan, and its filter of messages on the raw frame, before a body is decompressed or a column is built.
//!
//! Texts are compared as the columns hold them: malformed UTF-8 is replaced first, as Java does.

use std::collections::HashSet;
use std::ops::{Range, RangeInclusive};

use crate::batch_size::BatchSize;
use crate::java_text::decode_utf8;
use crate::report::Finding;
use crate::rocketmq::commit_log::decode::batch::Bodies;
use crate::rocketmq::commit_log::decode::columns::Column;
use crate::rocketmq::commit_log::decode::search::Search;
use crate::rocketmq::commit_log::frame::Frame;
use crate::rocketmq::index_entries::KeyTexts;
use crate::time_range::TimeRange;

/// A set of allowed texts.
#[derive(Clone, Debug)]
pub enum TextSet {
    /// Compared one by one.
    Few(Vec<String>),
    /// Looked up by hash.
    Many(HashSet<String>),
}

impl TextSet {
    /// Sets up to this size are compared one by one.
    const FEW: usize = 4;

    /// Returns whether the set contains the text of these bytes. Malformed UTF-8 is replaced.
    #[inline]
    fn contains_bytes(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Few(texts) if texts.iter().any(|each| each.as_bytes() == bytes) => true,
            Self::Few(_) if bytes.is_ascii() => false,
            Self::Few(_) | Self::Many(_) => self.contains(&decode_utf8(bytes)),
        }
    }

    /// Returns the texts, sorted.
    pub fn texts(&self) -> Vec<String> {
        let mut texts: Vec<String> = match self {
            Self::Few(texts) => texts.clone(),
            Self::Many(texts) => texts.iter().cloned().collect(),
        };
        texts.sort_unstable();
        texts
    }

    /// Returns whether the set contains this text.
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

/// Conditions on a message, all of which must hold. `None` and a full range: no condition.
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
    /// The pattern is in the message. It is searched after [`Self::passes`], before columns are built.
    pub search: Option<Search>,
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
            search: None,
        }
    }
}

impl Filter {
    /// Returns the filter for another read, which has findings of its own.
    #[must_use]
    pub fn for_read(&self) -> Self {
        Self { search: self.search.as_ref().map(Search::for_read), ..self.clone() }
    }

    /// Takes the bodies that could not be searched so far, in the order of their places.
    pub fn take_unsearched(&self) -> Vec<Finding> {
        self.search.as_ref().map(Search::take_unsearched).unwrap_or_default()
    }

    /// Returns whether a message meets all conditions but the search.
    #[inline]
    pub fn passes(&self, frame: &Frame<'_>, phy_offset: u64) -> bool {
        self.phy_offsets.contains(&phy_offset)
            && self.queue_ids.as_ref().is_none_or(|ids| ids.contains(&frame.queue_id()))
            && self.queue_offsets.contains(&frame.queue_offset())
            && self.holds_time(frame)
            && self.topics.as_ref().is_none_or(|topics| topics.contains_bytes(frame.topic()))
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

#[cfg(test)]
mod tests {
    use super::{Filter, TextSet};
    use crate::rocketmq::commit_log::frame::{Found, Frame, Versions, check};
    use crate::time_range::TimeRange;

    /// A frame with topic `T`, queue 3, queue offset 5, store time 1000, and these properties.
    fn frame(properties: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 88];
        bytes[4..8].copy_from_slice(&0xdaa3_20a7_u32.to_be_bytes());
        bytes[12..16].copy_from_slice(&3_i32.to_be_bytes());
        bytes[20..28].copy_from_slice(&5_i64.to_be_bytes());
        bytes[56..64].copy_from_slice(&1000_i64.to_be_bytes());
        bytes.extend([1, b'T']);
        bytes.extend(i16::try_from(properties.len()).unwrap().to_be_bytes());
        bytes.extend(properties);
        let size = i32::try_from(bytes.len()).unwrap();
        bytes[..4].copy_from_slice(&size.to_be_bytes());
        bytes
    }

    fn passes(properties: &[u8], filter: &Filter) -> bool {
        let bytes = frame(properties);
        let Ok(Found::Message(layout)) = check(&bytes, bytes.len() as u64, Versions::V1AndV2) else {
            panic!("not a message");
        };
        filter.passes(&Frame::new(&bytes, layout), 200)
    }

    fn texts(texts: &[&str]) -> TextSet {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn every_condition_can_reject() {
        let all = Filter::default();
        assert!(passes(b"", &all));
        assert!(passes(b"", &Filter { topics: Some(texts(&["S", "T"])), ..all.clone() }));
        assert!(!passes(b"", &Filter { topics: Some(texts(&["t"])), ..all.clone() }));
        assert!(!passes(b"", &Filter { topics: Some(texts(&[])), ..all.clone() }));
        assert!(passes(b"", &Filter { queue_ids: Some([3].into()), ..all.clone() }));
        assert!(!passes(b"", &Filter { queue_ids: Some([4].into()), ..all.clone() }));
        assert!(passes(b"", &Filter { queue_offsets: 5..=5, ..all.clone() }));
        assert!(!passes(b"", &Filter { queue_offsets: 6..=9, ..all.clone() }));
        assert!(passes(b"", &Filter { phy_offsets: 200..201, ..all.clone() }));
        assert!(!passes(b"", &Filter { phy_offsets: 0..200, ..all.clone() }));
        assert!(passes(b"", &Filter { times: TimeRange::new(Some(1000), Some(1000)), ..all.clone() }));
        assert!(!passes(b"", &Filter { times: TimeRange::new(Some(1001), None), ..all }));
    }

    #[test]
    fn keys_are_the_unique_key_and_the_words_of_keys() {
        let wants = |key: &str| Filter { keys: Some(texts(&[key])), ..Filter::default() };
        let properties = b"KEYS\x01a bc  d\x02TAGS\x01t\x02UNIQ_KEY\x01u v\x02";
        for key in ["a", "bc", "d", "u v"] {
            assert!(passes(properties, &wants(key)), "{key}");
        }
        for key in ["b", "", "a bc", "u", "t", "T#t"] {
            assert!(!passes(properties, &wants(key)), "{key}");
        }
        assert!(!passes(b"", &wants("a")));
    }

    #[test]
    fn the_last_value_of_a_property_counts_and_malformed_text_is_replaced() {
        let tags = |tag: &str| Filter { tags: Some(texts(&[tag])), ..Filter::default() };
        assert!(passes(b"TAGS\x01a\x02TAGS\x01b\x02", &tags("b")));
        assert!(!passes(b"TAGS\x01a\x02TAGS\x01b\x02", &tags("a")));
        assert!(passes(b"TAGS\x01\xff\x02", &tags("\u{fffd}")));
    }
}

/// The behavior of a scan at a frame that a broker would refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtDamage {
    /// The scan ends there, as a broker's walk does.
    Stop,
    /// The scan continues at the next message. The column `suspect` follows the others and holds the signs of each
    /// message.
    Salvage,
    /// The scan continues at the next message and skips messages that a broker truncated.
    ///
    /// Messages before `queue_end` are returned even if they seem truncated, because consume queues point to them.
    Skip {
        /// Log offset up to which consume queues point; 0 without queues.
        queue_end: u64,
    },
}

/// Options of a scan.
#[derive(Clone, Debug)]
pub struct ScanOptions {
    /// Messages that begin before this offset are not returned.
    pub begin_phy_offset: u64,
    /// Messages that begin at or after this offset are not returned.
    pub end_phy_offset: u64,
    /// The columns, in order.
    pub columns: Vec<Column>,
    /// The size of a batch.
    pub batch_size: BatchSize,
    /// The content of the body column.
    pub bodies: Bodies,
    /// The behavior at a frame that a broker would refuse.
    pub at_damage: AtDamage,
    /// True: compare body checksums. False: return bodies whose checksum does not match.
    pub check_crc: bool,
    /// Number of threads that check and decode, in addition to the caller's thread. 1: only the caller's thread.
    pub threads: usize,
    /// Conditions on the returned messages.
    pub filter: Filter,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            begin_phy_offset: 0,
            end_phy_offset: u64::MAX,
            columns: Column::ALL.to_vec(),
            batch_size: BatchSize::default(),
            bodies: Bodies::Decoded,
            at_damage: AtDamage::Stop,
            check_crc: true,
            threads: 1,
            filter: Filter::default(),
        }
    }
}
