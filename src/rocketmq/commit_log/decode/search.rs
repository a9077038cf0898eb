//! The search for a pattern in the decoded parts of messages.

use std::sync::{Arc, Mutex, PoisonError};

use crate::java_text::decode_utf8;
use crate::matcher::{Field, Matcher};
use crate::report::{Finding, Flaw, Kind};
use crate::rocketmq::commit_log::decode::block::Row;
use crate::rocketmq::commit_log::decode::body::BodyDecoder;
use crate::rocketmq::commit_log::frame::properties;
use crate::rocketmq::index_entries::KeyTexts;

/// Bodies that could not be searched are reported one by one up to this number in a part of a read, and then counted.
const MOST_UNSEARCHED: usize = 1_000;

/// A search for a pattern in messages. Clones report what they could not search together.
#[derive(Clone, Debug)]
pub struct Search {
    matcher: Matcher,
    unsearched: Arc<Mutex<Vec<Finding>>>,
}

impl Search {
    /// Searches for a pattern.
    pub fn new(matcher: Matcher) -> Self {
        Self { matcher, unsearched: Arc::default() }
    }

    /// Returns whether a message is wanted. One whose body cannot be decompressed is not, and is reported.
    pub(crate) fn wants(&self, row: &Row<'_>, decoder: &mut BodyDecoder) -> bool {
        let Row { frame, place, .. } = row;
        let mut found = false;
        for field in self.matcher.fields() {
            found = found
                || match field {
                    Field::Keys => {
                        let texts = KeyTexts::of_properties(frame.properties());
                        [texts.keys, texts.uniq_key].iter().flatten().any(|text| self.matcher.finds(text.as_bytes()))
                    }
                    Field::Properties => {
                        let text = decode_utf8(frame.properties());
                        let mut pairs = properties::parse(&text).into_iter();
                        pairs.any(|(name, value)| self.matcher.finds(format!("{name}={value}").as_bytes()))
                    }
                    Field::Body => match decoder.decode(frame.stored_body(), frame.sys_flag()) {
                        Ok(body) => self.matcher.finds(body),
                        Err(error) => {
                            let flaw = Flaw::new(Kind::LogBody, "a body that can be decompressed", error);
                            self.report(Finding::new(place.path, place.file_offset, flaw));
                            return false;
                        }
                    },
                };
        }
        self.matcher.wants(found)
    }

    /// Returns the search for another read, which has findings of its own.
    pub(crate) fn for_read(&self) -> Self {
        Self::new(self.matcher.clone())
    }

    fn report(&self, finding: Finding) {
        let mut unsearched = self.unsearched.lock().unwrap_or_else(PoisonError::into_inner);
        if unsearched.len() <= MOST_UNSEARCHED {
            unsearched.push(finding);
        } else if let Some(last) = unsearched.last_mut() {
            "more such bodies, which are not listed".clone_into(&mut last.found);
        }
    }

    /// Returns the bodies that could not be searched so far, in the order of their places.
    pub(crate) fn unsearched(&self) -> Vec<Finding> {
        let mut found = self.unsearched.lock().unwrap_or_else(PoisonError::into_inner).clone();
        found.sort_by(|one, other| (&one.path, one.offset).cmp(&(&other.path, other.offset)));
        // A message may have been read twice.
        found.dedup_by(|one, other| (&one.path, one.offset) == (&other.path, other.offset));
        found
    }

    /// Takes the bodies that could not be searched so far.
    pub(crate) fn take_unsearched(&self) -> Vec<Finding> {
        let found = self.unsearched();
        self.unsearched.lock().unwrap_or_else(PoisonError::into_inner).clear();
        found
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::matcher::{Pattern, PatternText};
    use crate::rocketmq::commit_log::decode::block::Place;
    use crate::rocketmq::commit_log::decode::suspect::Suspect;
    use crate::rocketmq::commit_log::frame::{Found, Frame, Versions, check};

    /// A frame of topic `T` with this stored body.
    fn frame(body: &[u8], sys_flag: i32, properties: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 84];
        bytes[4..8].copy_from_slice(&0xdaa3_20a7_u32.to_be_bytes());
        bytes[8..12].copy_from_slice(&(crc32fast::hash(body) & 0x7fff_ffff).to_be_bytes());
        bytes[36..40].copy_from_slice(&sys_flag.to_be_bytes());
        bytes.extend(i32::try_from(body.len()).unwrap().to_be_bytes());
        bytes.extend(body);
        bytes.extend([1, b'T']);
        bytes.extend(i16::try_from(properties.len()).unwrap().to_be_bytes());
        bytes.extend(properties);
        let size = i32::try_from(bytes.len()).unwrap();
        bytes[..4].copy_from_slice(&size.to_be_bytes());
        bytes
    }

    fn wants(search: &Search, bytes: &[u8]) -> bool {
        let Ok(Found::Message(layout)) = check(bytes, bytes.len() as u64, Versions::V1AndV2) else {
            panic!("not a message");
        };
        let place = Place { phy_offset: 1_200, path: Path::new("log"), file_offset: 200 };
        let row = Row { frame: Frame::new(bytes, layout), place, suspect: Suspect::default() };
        search.wants(&row, &mut BodyDecoder::new(1 << 20))
    }

    fn search(text: &str, fields: &[Field], invert: bool) -> Search {
        let pattern = Pattern::new(PatternText::Text(text.to_owned()));
        Search::new(Matcher::new(&Pattern { fields: fields.to_vec(), invert, ..pattern }).unwrap())
    }

    /// The ways to store a body, with their system flags.
    fn stored(body: &[u8]) -> Vec<(i32, Vec<u8>)> {
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        zlib.write_all(body).unwrap();
        let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        lz4.write_all(body).unwrap();
        let zstd = zstd::bulk::compress(body, 3).unwrap();
        vec![(0, body.to_vec()), (1, zlib.finish().unwrap()), (1 | 1 << 8, lz4.finish().unwrap()), (1 | 2 << 8, zstd)]
    }

    #[test]
    fn bodies_are_searched_decompressed() {
        let body = [&[b'x'; 500][..], b"order-17", &[b'y'; 500]].concat();
        let mut compared = 0;
        for (sys_flag, stored) in stored(&body) {
            let bytes = frame(&stored, sys_flag, b"");
            for (text, found) in [("order-[0-9]+y", true), ("^x+order", true), ("order-18", false)] {
                assert_eq!(wants(&search(text, &[Field::Body], false), &bytes), found, "{sys_flag} {text}");
                assert_eq!(wants(&search(text, &[Field::Body], true), &bytes), !found, "{sys_flag} {text}");
                compared += 2;
            }
        }
        assert_eq!(compared, 24);
    }

    #[test]
    fn keys_and_properties_are_searched_as_columns_hold_them() {
        let bytes = frame(b"body", 0, b"KEYS\x01a bc\x02n\x01old\x02UNIQ_KEY\x01u1\x02n\x01new\xff\x02");
        let finds = |text: &str, field| wants(&search(text, &[field], false), &bytes);
        for text in ["^a bc$", "^u1$"] {
            assert!(finds(text, Field::Keys), "{text}");
        }
        for text in ["n=", "body", "new"] {
            assert!(!finds(text, Field::Keys), "{text}");
        }
        for text in ["^KEYS=a bc$", "^n=new\u{fffd}$", "u1"] {
            assert!(finds(text, Field::Properties), "{text}");
        }
        assert!(!finds("old", Field::Properties));
        assert!(wants(&search("body|zzz", &[Field::Keys, Field::Body], false), &bytes));
        assert!(!wants(&search("body", &[Field::Keys, Field::Body], true), &bytes));
    }

    #[test]
    fn a_body_that_cannot_be_decompressed_is_reported_and_not_wanted() {
        let bytes = frame(b"no zlib data", 1, b"KEYS\x01k\x02");
        for invert in [false, true] {
            let search = search("zlib", &[Field::Body], invert);
            assert!(!wants(&search, &bytes));
            assert!(!wants(&search.clone(), &bytes));
            assert_eq!(search.for_read().unsearched(), []);
            let [finding] = &search.take_unsearched()[..] else { panic!("expected one finding") };
            assert_eq!((finding.kind, finding.offset, finding.path.as_path()), (Kind::LogBody, 200, Path::new("log")));
            assert!(finding.found.contains("zlib"), "{}", finding.found);
            assert_eq!(search.unsearched(), []);
        }
        // Another field decides.
        let search = search("^k$", &[Field::Body, Field::Keys], false);
        assert!(wants(&search, &bytes));
        assert_eq!(search.unsearched(), []);
    }

    #[test]
    fn many_bodies_that_cannot_be_decompressed_take_little_memory() {
        let (search, bytes) = (search("x", &[Field::Body], false), frame(b"no zlib data", 1, b""));
        for _ in 0..MOST_UNSEARCHED + 10 {
            wants(&search, &bytes);
        }
        assert_eq!(search.unsearched.lock().unwrap().len(), MOST_UNSEARCHED + 1);
        let last = search.unsearched.lock().unwrap().last().unwrap().found.clone();
        assert_eq!(last, "more such bodies, which are not listed");
    }

    proptest! {
        #[test]
        fn a_search_is_a_plain_search_in_the_body(body in "[ab]{0,12}", needle in "[ab]{0,3}", invert: bool) {
            for (sys_flag, stored) in stored(body.as_bytes()) {
                let found = wants(&search(&needle, &[Field::Body], invert), &frame(&stored, sys_flag, b""));
                prop_assert_eq!(found, body.contains(&needle) != invert);
            }
        }
    }
}
