//! The predicate of a reader of records: keys, offsets and times. It is evaluated on the bytes of a batch, before a column is
//! built.

use std::collections::HashSet;

use super::segment_range::SegmentRange;
use crate::arrow::columns::Place;
use crate::java_text::decode_utf8;
use crate::kafka::format::record::{Span, field};
use crate::matcher::{Field, Matcher};
use crate::time_range::TimeRange;

/// Offsets that are this close are read in one range: skipping the records between them is cheaper than another range.
const NEAR: i64 = 1_000;

/// Keys that a record may carry, or values of one of its headers.
#[derive(Clone, Debug)]
pub struct KeyFilter {
    /// The name of the header; `None`: the record's key.
    header: Option<String>,
    values: Values,
}

#[derive(Clone, Debug)]
enum Values {
    /// The common case, which needs no hash.
    One(Vec<u8>),
    Any(HashSet<Vec<u8>>),
}

impl Values {
    #[inline]
    fn hold(&self, value: &[u8]) -> bool {
        match self {
            Self::One(wanted) => wanted == value,
            Self::Any(wanted) => wanted.contains(value),
        }
    }
}

impl KeyFilter {
    /// A filter for records whose key, or a header of this name, equals one of `values`.
    pub fn new(header: Option<String>, values: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut values: HashSet<Vec<u8>> = values.into_iter().collect();
        let values = match values.len() {
            1 => Values::One(values.drain().next().unwrap_or_default()),
            _ => Values::Any(values),
        };
        Self { header, values }
    }

    /// Returns whether a record carries one of the values; `None` if its headers cannot be parsed.
    pub(crate) fn matches(&self, span: &Span, bytes: &[u8]) -> Option<bool> {
        let Some(name) = &self.header else {
            return Some(field(span.key, bytes).is_some_and(|key| self.values.hold(key)));
        };
        let mut found = false;
        span.each_header(bytes, |key, value| {
            found = found || (is_name(key, bytes, name) && field(value, bytes).is_some_and(|v| self.values.hold(v)));
        })?;
        Some(found)
    }
}

/// Returns whether a header has this name, as its column shows it.
fn is_name(key: Place, bytes: &[u8], name: &str) -> bool {
    // The column shows malformed bytes as replacement characters.
    field(key, bytes)
        .is_some_and(|key| key == name.as_bytes() || (name.contains('\u{fffd}') && decode_utf8(key) == name))
}

/// Returns whether a record contains a match; `None` if its headers cannot be parsed.
fn finds(matcher: &Matcher, span: &Span, bytes: &[u8], scratch: &mut Vec<u8>) -> Option<bool> {
    for each in matcher.fields() {
        let found = match each {
            Field::Body => field(span.value, bytes).is_some_and(|value| matcher.finds(value)),
            Field::Keys => field(span.key, bytes).is_some_and(|key| matcher.finds(key)),
            Field::Properties => {
                let mut found = false;
                span.each_header(bytes, |key, value| {
                    if found {
                        return;
                    }
                    scratch.clear();
                    scratch.extend_from_slice(decode_utf8(field(key, bytes).unwrap_or_default()).as_bytes());
                    scratch.push(b'=');
                    scratch.extend_from_slice(field(value, bytes).unwrap_or_default());
                    found = matcher.finds(scratch);
                })?;
                found
            }
        };
        if found {
            return Some(true);
        }
    }
    Some(false)
}

/// The records that a reader returns.
#[derive(Clone, Debug)]
pub(crate) struct RecordFilter {
    keys: Option<KeyFilter>,
    /// Ascending.
    offsets: Option<Vec<i64>>,
    times: TimeRange,
    matcher: Option<Matcher>,
    /// The text of a header, which is searched.
    scratch: Vec<u8>,
}

impl RecordFilter {
    pub(crate) fn new(
        keys: Option<KeyFilter>,
        offsets: Option<Vec<i64>>,
        times: TimeRange,
        matcher: Option<Matcher>,
    ) -> Self {
        let offsets = offsets.map(|mut offsets| {
            offsets.sort_unstable();
            offsets.dedup();
            offsets
        });
        Self { keys, offsets, times, matcher, scratch: Vec::new() }
    }

    /// True if most records may be skipped.
    pub(crate) fn is_selective(&self) -> bool {
        self.keys.is_some() || self.offsets.is_some() || self.matcher.is_some()
    }

    /// True if a pattern is searched, which takes longer than to read.
    pub(crate) fn is_search(&self) -> bool {
        self.matcher.is_some()
    }

    /// True if keys, headers or values are compared.
    pub(crate) fn wants_fields(&self) -> bool {
        self.keys.is_some() || self.matcher.is_some()
    }

    /// Returns the ranges to read: those given, or the parts of them that contain the wanted offsets.
    pub(crate) fn narrow(&self, parts: Vec<SegmentRange>) -> Vec<SegmentRange> {
        let Some(offsets) = &self.offsets else { return parts };
        let mut pieces = Vec::new();
        for part in parts {
            let begin = offsets.partition_point(|offset| *offset < part.begin_offset);
            let end = offsets.partition_point(|offset| *offset < part.end_offset);
            let inside = offsets.get(begin..end).unwrap_or_default();
            for near in inside.chunk_by(|before, next| next.saturating_sub(*before) <= NEAR) {
                if let [first, ..] = near
                    && let [.., last] = near
                {
                    let end_offset = last.saturating_add(1);
                    pieces.push(SegmentRange { begin_offset: *first, end_offset, ..part.clone() });
                }
            }
        }
        pieces
    }

    /// Drops the records that are not wanted. False if the headers of one cannot be parsed.
    pub(crate) fn retain(&mut self, part: &SegmentRange, spans: &mut Vec<Span>, bytes: &[u8]) -> bool {
        let (begin, end, times) = (part.begin_offset, part.end_offset, self.times);
        if (begin, end) != (i64::MIN, i64::MAX) || !times.is_all() {
            spans.retain(|span| {
                begin <= span.offset && span.offset < end && times.meets(span.timestamp, span.timestamp)
            });
        }
        if let Some(offsets) = &self.offsets {
            spans.retain(|span| offsets.binary_search(&span.offset).is_ok());
        }
        let mut readable = true;
        if let Some(keys) = &self.keys {
            spans.retain(|span| {
                let matches = keys.matches(span, bytes);
                readable &= matches.is_some();
                matches.unwrap_or(false)
            });
        }
        if let Some(matcher) = &self.matcher {
            spans.retain(|span| {
                let found = finds(matcher, span, bytes, &mut self.scratch);
                readable &= found.is_some();
                found.is_some_and(|found| matcher.wants(found))
            });
        }
        readable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matcher::{Pattern, PatternText};

    #[test]
    fn keys_are_compared_whole() {
        let bytes = b"abcabd";
        let span = |at, len| Span { key: (at, len), ..Span::default() };
        for values in [vec![b"abc".to_vec()], vec![b"abc".to_vec(), b"x".to_vec()]] {
            let filter = KeyFilter::new(None, values);
            assert_eq!(filter.matches(&span(0, 3), bytes), Some(true));
            for (at, len) in [(0, 2), (3, 3), (0, 4), (0, -1), (0, 0)] {
                assert_eq!(filter.matches(&span(at, len), bytes), Some(false), "{at} {len}");
            }
        }
        assert_eq!(KeyFilter::new(None, []).matches(&span(0, 3), bytes), Some(false));
        assert_eq!(KeyFilter::new(None, [Vec::new()]).matches(&span(0, 0), bytes), Some(true));
    }

    #[test]
    fn a_pattern_is_searched_in_the_wanted_fields() {
        // Value "abc", key "k1"; headers "a": null and "n": "v" with lengths as zigzag varints.
        let bytes = b"abck1\x02a\x01\x02n\x02v";
        let span = Span { value: (0, 3), key: (3, 2), headers: (5, 7), header_count: 2, ..Span::default() };
        let finds = |text: &str, fields: &[Field], span: &Span| {
            let text = PatternText::Text(text.to_owned());
            let matcher = Matcher::new(&Pattern { fields: fields.to_vec(), ..Pattern::new(text) }).unwrap();
            finds(&matcher, span, bytes, &mut b"rest".to_vec())
        };
        let (found, other) = (Some(true), Some(false));
        assert_eq!(finds("b", &[Field::Body], &span), found);
        assert_eq!(finds("k", &[Field::Body], &span), other);
        assert_eq!(finds("^k.$", &[Field::Body, Field::Keys], &span), found);
        assert_eq!(finds("^n=v$", &[Field::Properties], &span), found);
        assert_eq!(finds("^a=$", &[Field::Properties], &span), found);
        assert_eq!(finds("v=", &[Field::Properties], &span), other);
        // Null is no text, and headers that cannot be parsed are no answer.
        assert_eq!(finds("^", &[Field::Body], &Span { value: (0, -1), ..span }), other);
        let cut = Span { headers: (5, 6), ..span };
        assert_eq!(finds("x", &[Field::Properties], &cut), None);
    }

    #[test]
    fn any_header_of_the_name_may_match() {
        // Two headers "a": null and "v"; then "b": "v". Lengths are zigzag varints.
        let bytes = b"\x02a\x01\x02a\x02v\x02b\x02v";
        let span = Span { headers: (0, 11), header_count: 3, ..Span::default() };
        let matches =
            |name: &str, value: &[u8]| KeyFilter::new(Some(name.to_owned()), [value.to_vec()]).matches(&span, bytes);
        assert_eq!(matches("a", b"v"), Some(true));
        assert_eq!(matches("b", b"v"), Some(true));
        assert_eq!(matches("a", b""), Some(false));
        assert_eq!(matches("c", b"v"), Some(false));
        let cut = Span { headers: (0, 10), ..span };
        assert_eq!(KeyFilter::new(Some("a".to_owned()), [b"v".to_vec()]).matches(&cut, bytes), None);
    }
}
