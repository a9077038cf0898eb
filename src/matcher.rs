//! A pattern that is searched in fields of messages and records: a literal or a regular expression, compiled once.
//!
//! The search takes linear time. A compiled pattern has a size limit, so that a stranger's pattern cannot take all memory.

use std::fmt;
use std::ops::Range;

use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;

use crate::error::{Error, Result};

/// The longest pattern in bytes. A class of letters takes some kilobytes while it is parsed.
pub const MOST_PATTERN_BYTES: usize = 4_096;
/// The most bytes of a compiled pattern.
const MOST_COMPILED_BYTES: usize = 4 << 20;
/// The most bytes of a thread's cache of states.
const MOST_CACHED_BYTES: usize = 4 << 20;

/// A field of a message or record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// The body of a message, the value of a record.
    Body,
    /// The keys and the unique key of a message, the key of a record.
    Keys,
    /// The properties of a message, the headers of a record, each as `name=value`.
    Properties,
}

impl Field {
    /// Returns the name of the field.
    pub fn name(self) -> &'static str {
        match self {
            Self::Body => "body",
            Self::Keys => "keys",
            Self::Properties => "properties",
        }
    }

    /// Returns the field of a name of either broker.
    ///
    /// # Errors
    /// `InvalidArgument` for another name.
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "body" | "value" => Ok(Self::Body),
            "keys" | "key" => Ok(Self::Keys),
            "properties" | "headers" => Ok(Self::Properties),
            _ => {
                let text = format!("fields={name:?}: expected body (value), keys (key) or properties (headers)");
                Err(Error::InvalidArgument(text))
            }
        }
    }
}

/// The text of a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PatternText {
    /// Letters are those of Unicode, in UTF-8.
    Text(String),
    /// Each byte stands for itself; letters and digits are those of ASCII.
    Bytes(Vec<u8>),
}

/// A pattern and its options.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "options of a search, as grep has them")]
pub struct Pattern {
    /// The text.
    pub text: PatternText,
    /// The fields to search. A message matches if one of them does.
    pub fields: Vec<Field>,
    /// The text is no regular expression.
    pub literal: bool,
    /// Upper and lower case are the same.
    pub ignore_case: bool,
    /// No letter, digit or underscore is before or after a match.
    pub word: bool,
    /// Messages without a match are wanted.
    pub invert: bool,
}

impl Pattern {
    /// A pattern that is searched in bodies.
    pub fn new(text: PatternText) -> Self {
        Self { text, fields: vec![Field::Body], literal: false, ignore_case: false, word: false, invert: false }
    }

    fn is_unicode(&self) -> bool {
        matches!(self.text, PatternText::Text(_))
    }

    /// Returns the regular expression, and for each byte of it the position in the pattern.
    fn source(&self) -> (String, Vec<usize>) {
        let letter = |letter: char| {
            let escape = if self.literal && regex_syntax::is_meta_character(letter) { "\\" } else { "" };
            format!("{escape}{letter}")
        };
        let byte = |byte: &u8| if byte.is_ascii() { letter(char::from(*byte)) } else { format!("\\x{byte:02x}") };
        let parts: Vec<String> = match &self.text {
            PatternText::Text(text) => text.chars().map(letter).collect(),
            PatternText::Bytes(bytes) => bytes.iter().map(byte).collect(),
        };
        let places = parts.iter().enumerate().flat_map(|(at, part)| std::iter::repeat_n(at, part.len())).collect();
        (parts.concat(), places)
    }

    fn refused(&self, expected: &str, found: impl fmt::Display) -> Error {
        Error::InvalidArgument(format!("matches={self}: expected {expected}, found {found}"))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The letters that are shown of a long pattern.
        const SHOWN: usize = 200;
        let text = match &self.text {
            PatternText::Text(text) => text.clone(),
            PatternText::Bytes(bytes) => bytes.escape_ascii().to_string(),
        };
        match text.char_indices().nth(SHOWN).and_then(|(at, _)| text.get(..at)) {
            Some(begin) => write!(f, "{begin:?}..."),
            None => write!(f, "{text:?}"),
        }
    }
}

/// A compiled pattern. A clone has memory of its own for searches, so each thread takes one.
#[derive(Clone, Debug)]
pub struct Matcher {
    regex: Regex,
    fields: Vec<Field>,
    invert: bool,
}

impl Matcher {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// `InvalidArgument` without a field, or if the pattern is too long, too large, or no regular expression.
    pub fn new(pattern: &Pattern) -> Result<Self> {
        let length = match &pattern.text {
            PatternText::Text(text) => text.len(),
            PatternText::Bytes(bytes) => bytes.len(),
        };
        if length > MOST_PATTERN_BYTES {
            let expected = format!("at most {MOST_PATTERN_BYTES} bytes");
            return Err(pattern.refused(&expected, format_args!("{length}")));
        }
        if pattern.fields.is_empty() {
            return Err(Error::InvalidArgument("fields: expected one or more, found none".to_owned()));
        }
        let (source, places) = pattern.source();
        // The pattern is checked by itself: with the text for whole words around it, another one may be valid.
        check(pattern, &source, &places)?;
        let whole = if pattern.word { format!(r"\b{{start-half}}(?:{source})\b{{end-half}}") } else { source };
        let built = RegexBuilder::new(&whole)
            .unicode(pattern.is_unicode())
            .case_insensitive(pattern.ignore_case)
            .size_limit(MOST_COMPILED_BYTES)
            .dfa_size_limit(MOST_CACHED_BYTES)
            .build();
        let regex = built.map_err(|error| match error {
            regex::Error::CompiledTooBig(limit) => {
                pattern.refused(&format!("a pattern of at most {limit} bytes when compiled"), "a larger one")
            }
            // A comment at its end hides what follows.
            error => pattern.refused("a pattern that can be searched as whole words", error),
        })?;
        let mut fields = pattern.fields.clone();
        // Bodies last: they may have to be decompressed.
        fields.sort_by_key(|field| *field == Field::Body);
        Ok(Self { regex, fields, invert: pattern.invert })
    }

    /// Returns the fields to search. The body is the last.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns whether a field is searched.
    pub fn searches(&self, field: Field) -> bool {
        self.fields.contains(&field)
    }

    /// Returns whether bytes contain a match, whatever `invert` is.
    #[inline]
    pub fn finds(&self, bytes: &[u8]) -> bool {
        self.regex.is_match(bytes)
    }

    /// Returns whether a message is wanted in which a match was found or not.
    #[inline]
    pub fn wants(&self, found: bool) -> bool {
        found != self.invert
    }

    /// Returns the places of the matches in some bytes, from left to right.
    pub fn ranges<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = Range<usize>> + 'a {
        self.regex.find_iter(bytes).map(|found| found.range())
    }
}

/// Checks that a pattern is a regular expression.
fn check(pattern: &Pattern, source: &str, places: &[usize]) -> Result<()> {
    let parsed = ParserBuilder::new()
        .unicode(pattern.is_unicode())
        .utf8(false)
        .case_insensitive(pattern.ignore_case)
        .build()
        .parse(source);
    let (kind, offset) = match parsed {
        Ok(_) => return Ok(()),
        Err(regex_syntax::Error::Parse(error)) => (error.kind().to_string(), error.span().start.offset),
        Err(regex_syntax::Error::Translate(error)) => (error.kind().to_string(), error.span().start.offset),
        Err(error) => (error.to_string(), 0),
    };
    let position = places.get(offset).copied().unwrap_or_else(|| places.last().map_or(0, |last| last + 1));
    Err(pattern.refused("a regular expression", format_args!("at position {position}: {kind}")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(text: &str) -> Pattern {
        Pattern::new(PatternText::Text(text.to_owned()))
    }

    fn bytes(text: &[u8]) -> Pattern {
        Pattern::new(PatternText::Bytes(text.to_vec()))
    }

    fn finds(pattern: &Pattern, content: &[u8]) -> bool {
        Matcher::new(pattern).unwrap().finds(content)
    }

    fn refusal(pattern: &Pattern) -> String {
        Matcher::new(pattern).unwrap_err().to_string()
    }

    #[test]
    fn a_text_is_unicode_and_bytes_are_ascii() {
        assert!(finds(&text("^\\w$"), "\u{e9}".as_bytes()));
        assert!(!finds(&bytes(b"^\\w$"), "\u{e9}".as_bytes()));
        assert!(finds(&bytes(b"^..$"), "\u{e9}".as_bytes()));
        assert!(finds(&bytes(b"[\xc3][\xa0-\xaf]"), "\u{e9}".as_bytes()));
        assert!(finds(&bytes(b"\xff\x00"), b"a\xff\x00b"));
        assert!(!finds(&text("\u{ff}"), b"a\xff\x00b"));
        assert!(finds(&Pattern { ignore_case: true, ..text("\u{c9}") }, "\u{e9}".as_bytes()));
        assert!(!finds(&Pattern { ignore_case: true, ..bytes("\u{c9}".as_bytes()) }, "\u{e9}".as_bytes()));
    }

    #[test]
    fn a_literal_is_no_regular_expression() {
        let pattern = Pattern { literal: true, ..text("a.(b") };
        assert!(finds(&pattern, b"xa.(by"));
        assert!(!finds(&pattern, b"xaz(by"));
        assert!(finds(&Pattern { ignore_case: true, ..pattern }, b"A.(B"));
        assert!(finds(&Pattern { literal: true, ..bytes(b"\xff[\n") }, b"\xff[\n"));
    }

    #[test]
    fn a_word_has_no_letters_around_it() {
        let pattern = Pattern { word: true, ..text("ab|abc") };
        for (content, expected) in [("ab", true), ("x ab.", true), ("abc", true), ("abd", false), ("_ab", false)] {
            assert_eq!(finds(&pattern, content.as_bytes()), expected, "{content}");
        }
        // Symbols have no word around them.
        assert!(finds(&Pattern { word: true, literal: true, ..text("$5") }, b"for $5 only"));
        assert!(refusal(&Pattern { word: true, ..text("(?x)a # b") }).contains("searched as whole words"));
    }

    #[test]
    fn a_refusal_names_the_pattern_and_the_position() {
        for (pattern, expected) in [
            (
                text("\u{e9}a(b"),
                "matches=\"\u{e9}a(b\": expected a regular expression, found at position 2: unclosed group",
            ),
            (
                bytes(b"\xffa(b"),
                "matches=\"\\\\xffa(b\": expected a regular expression, found at position 2: unclosed group",
            ),
            (
                Pattern { word: true, ..text("a)(b") },
                "matches=\"a)(b\": expected a regular expression, found at position 1: unopened group",
            ),
            (
                text("\\p{Nope}"),
                "matches=\"\\\\p{Nope}\": expected a regular expression, found at position 0: Unicode property not found",
            ),
        ] {
            assert_eq!(refusal(&pattern), expected);
        }
        assert!(refusal(&text(&"x".repeat(5_000))).ends_with("...: expected at most 4096 bytes, found 5000"));
        assert!(refusal(&Pattern { fields: vec![], ..text("a") }).starts_with("fields: expected one or more"));
        assert!(Field::named("topic").unwrap_err().to_string().starts_with("fields=\"topic\": expected body"));
    }

    #[test]
    fn hostile_patterns_end_soon() {
        for pattern in
            ["(?:x{1000}){1000}", "\\w{1000}{1000}", &"(".repeat(4_000), &"(?:".repeat(1_300), &"\\pL".repeat(1_300)]
        {
            // An error, or a pattern within the limits.
            let _ = Matcher::new(&text(pattern));
        }
        assert!(refusal(&text("\\w{1000}")).contains("bytes when compiled, found a larger one"));
        // Exponential for a search that goes back.
        assert!(!finds(&text("^(a|a)*(a*)*$"), &[&[b'a'; 10_000][..], b"b"].concat()));
    }

    #[test]
    fn invert_and_the_order_of_fields() {
        let matcher =
            Matcher::new(&Pattern { invert: true, fields: vec![Field::Body, Field::Keys], ..text("b+") }).unwrap();
        assert_eq!(matcher.fields(), [Field::Keys, Field::Body]);
        assert!(matcher.searches(Field::Body) && !matcher.searches(Field::Properties));
        assert!(matcher.wants(false) && !matcher.wants(true));
        assert_eq!(matcher.ranges(b"abbab").collect::<Vec<_>>(), [1..3, 4..5]);
    }

    proptest! {
        #[test]
        fn a_literal_is_found_where_a_plain_search_finds_it(
            needle in prop::collection::vec(prop::sample::select(&b"ab.\xff\n"[..]), 0..4),
            content in prop::collection::vec(prop::sample::select(&b"ab.\xff\n"[..]), 0..40),
        ) {
            let matcher = Matcher::new(&Pattern { literal: true, ..bytes(&needle) }).unwrap();
            let windows = |at: usize| content.get(at..).is_some_and(|rest| rest.starts_with(&needle));
            let mut expected = Vec::new();
            let mut at = 0;
            while at <= content.len() {
                if windows(at) { expected.push(at..at + needle.len()); }
                at += if windows(at) { needle.len().max(1) } else { 1 };
            }
            prop_assert_eq!(matcher.finds(&content), !expected.is_empty());
            prop_assert_eq!(matcher.ranges(&content).collect::<Vec<_>>(), expected);
        }

        #[test]
        fn any_text_is_a_pattern_or_an_error(pattern in "\\PC{0,30}", content in ".{0,60}") {
            if let Ok(matcher) = Matcher::new(&text(&pattern)) {
                matcher.ranges(content.as_bytes()).for_each(|range| assert!(range.end <= content.len()));
            }
        }
    }
}
