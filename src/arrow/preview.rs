//! Previews: the start of a body or value on one line, with the matches of a pattern in it.
//!
//! A text is in UTF-8 and has no control characters but tabs and line breaks. Its white space becomes single spaces, and that
//! between the tokens of JSON is left out. Everything else is shown as bytes. If the first match is not near the start, the line begins
//! near it, so that a narrow line shows it.

use std::iter::Peekable;
use std::ops::Range;

use arrow_array::{Array, BinaryArray};

use crate::matcher::Matcher;

/// Matches are looked for in the first bytes only, and so many: a stranger may have chosen a pattern for which each search is long.
const SEARCHED: usize = 1 << 20;
const MOST_MATCHES: usize = 16;
/// Bytes before the first match that are shown.
const AROUND: usize = 24;
/// A letter of a preview takes at most this many bytes: white space between the tokens of JSON is left out.
const BYTES_PER_LETTER: usize = 16;
/// Letters that a byte takes.
const LETTERS_PER_BYTE: usize = 4;

/// The start of a value on one line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Preview {
    /// The value is a text.
    pub(crate) is_text: bool,
    /// Bytes of the value.
    pub(crate) size: usize,
    /// Parts of the line, and whether each is a match.
    pub(crate) pieces: Vec<(String, bool)>,
}

/// Returns the previews of the rows of a column, with about `most` letters each; null for a null.
pub(crate) fn previews(column: &BinaryArray, matcher: Option<&Matcher>, most: usize) -> Vec<Option<Preview>> {
    let rows = 0..column.len();
    rows.map(|row| column.is_valid(row).then(|| preview(column.value(row), matcher, most))).collect()
}

fn preview(content: &[u8], matcher: Option<&Matcher>, most: usize) -> Preview {
    let searched = content.get(..content.len().min(SEARCHED)).unwrap_or_default();
    let found = matcher.into_iter().flat_map(|matcher| matcher.ranges(searched));
    let mut hits = found.take(MOST_MATCHES).filter(|hit| !hit.is_empty()).peekable();
    let begin = match hits.peek() {
        Some(hit) if hit.start > AROUND => begin_of_letter(content, hit.start.saturating_sub(AROUND)),
        _ => 0,
    };
    let end = content.len().min(begin.saturating_add(most.saturating_mul(BYTES_PER_LETTER)));
    let part = content.get(begin..end).unwrap_or_default();
    let text = text(part);
    let mut line = Line { pieces: Vec::new(), letters: 0, most };
    if begin > 0 {
        line.push("... ", false);
    }
    let is_whole = if let Some(text) = text {
        let is_json = matches!(content.trim_ascii(), [b'{', .., b'}'] | [b'[', .., b']']);
        let place = is_json.then(|| JsonPlace::after(content.get(..begin).unwrap_or_default()));
        line.write_text(text, begin, place, &mut hits) && begin + text.len() == content.len()
    } else {
        let shown = part.get(..part.len().min(most / LETTERS_PER_BYTE)).unwrap_or_default();
        line.write_bytes(shown, begin, &mut hits);
        begin + shown.len() == content.len()
    };
    if !is_whole {
        line.push(" ...", false);
    }
    Preview { is_text: text.is_some(), size: content.len(), pieces: line.pieces }
}

/// Returns bytes as text, without a letter that is cut at the end; `None` if they are no text.
fn text(part: &[u8]) -> Option<&str> {
    let text = match std::str::from_utf8(part) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => std::str::from_utf8(part.get(..error.valid_up_to())?).ok()?,
        Err(_) => return None,
    };
    let is_control = |letter: char| letter.is_control() && !matches!(letter, '\t' | '\n' | '\r');
    (!text.contains(is_control)).then_some(text)
}

/// Returns the first place at or before `at` where a letter may begin.
fn begin_of_letter(content: &[u8], at: usize) -> usize {
    let before = content.get(..=at).unwrap_or_default().iter().rev().take(at.min(3));
    at - before.take_while(|byte| **byte & 0xc0 == 0x80).count()
}

/// A place in JSON.
#[derive(Debug, Default)]
struct JsonPlace {
    in_string: bool,
    is_escaped: bool,
}

impl JsonPlace {
    /// Returns the place after some bytes.
    fn after(bytes: &[u8]) -> Self {
        let mut place = Self::default();
        for byte in bytes {
            place.pass(*byte == b'"', *byte == b'\\');
        }
        place
    }

    /// Passes a letter.
    fn pass(&mut self, is_quote: bool, is_backslash: bool) {
        self.in_string ^= is_quote && !self.is_escaped;
        self.is_escaped = self.in_string && is_backslash && !self.is_escaped;
    }
}

struct Line {
    pieces: Vec<(String, bool)>,
    letters: usize,
    most: usize,
}

impl Line {
    fn push(&mut self, text: &str, is_match: bool) {
        self.letters += text.chars().count();
        match self.pieces.last_mut() {
            Some((last, kind)) if *kind == is_match => last.push_str(text),
            _ => self.pieces.push((text.to_owned(), is_match)),
        }
    }

    /// Writes a text that begins at a byte, or at a place in JSON; returns whether all of it is there.
    fn write_text(
        &mut self,
        text: &str,
        begin: usize,
        mut place: Option<JsonPlace>,
        hits: &mut Peekable<impl Iterator<Item = Range<usize>>>,
    ) -> bool {
        let mut space = None;
        let mut letter_text = [0; 4];
        for (at, letter) in text.char_indices() {
            let is_match = is_in(begin + at, hits);
            let in_string = place.as_ref().is_some_and(|place| place.in_string);
            if letter.is_whitespace() && !(in_string && letter == ' ') {
                space = space.or(Some(is_match));
                continue;
            }
            if self.letters >= self.most {
                return false;
            }
            if let Some(is_match) = space.take().filter(|_| (place.is_none() || in_string) && self.letters > 0) {
                self.push(" ", is_match);
            }
            self.push(letter.encode_utf8(&mut letter_text), is_match);
            if let Some(place) = &mut place {
                place.pass(letter == '"', letter == '\\');
            }
        }
        true
    }

    fn write_bytes(&mut self, bytes: &[u8], begin: usize, hits: &mut Peekable<impl Iterator<Item = Range<usize>>>) {
        for (at, byte) in bytes.iter().enumerate() {
            let is_match = is_in(begin + at, hits);
            if at > 0 {
                self.push(" ", is_match && self.pieces.last().is_some_and(|(_, is_match)| *is_match));
            }
            self.push(&format!("{byte:02x}"), is_match);
        }
    }
}

/// Returns whether a byte is in a match. Bytes are asked for from left to right.
fn is_in(at: usize, hits: &mut Peekable<impl Iterator<Item = Range<usize>>>) -> bool {
    while hits.next_if(|hit| hit.end <= at).is_some() {}
    hits.peek().is_some_and(|hit| hit.start <= at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::matcher::{Pattern, PatternText};

    fn shown(content: &[u8], pattern: Option<&str>, most: usize) -> (bool, String) {
        let matcher = pattern.map(|text| Matcher::new(&Pattern::new(PatternText::Text(text.to_owned()))).unwrap());
        let preview = preview(content, matcher.as_ref(), most);
        assert_eq!(preview.size, content.len());
        let marked = |(text, is_match): (String, bool)| if is_match { format!("<{text}>") } else { text };
        (preview.is_text, preview.pieces.into_iter().map(marked).collect())
    }

    #[test]
    fn a_text_is_one_line() {
        assert_eq!(shown(b" one\r\n\ttwo  three\n", None, 50), (true, "one two three".to_owned()));
        assert_eq!(shown(b"", None, 50), (true, String::new()));
        assert_eq!(shown("\u{e9}\u{e9}\u{e9}".as_bytes(), None, 2), (true, "\u{e9}\u{e9} ...".to_owned()));
    }

    #[test]
    fn a_null_has_no_preview() {
        let found = previews(&BinaryArray::from_opt_vec(vec![Some(b"a"), None]), None, 9);
        let first = Preview { is_text: true, size: 1, pieces: vec![("a".to_owned(), false)] };
        assert_eq!(found, [Some(first), None]);
    }

    #[test]
    fn json_is_compact_and_its_strings_are_as_they_are() {
        let json = b"{\n  \"a b\": [1,  2],\n  \"c\\\"  d\": \"x  y\"\n}";
        assert_eq!(shown(json, None, 50), (true, "{\"a b\":[1,2],\"c\\\"  d\":\"x  y\"}".to_owned()));
        assert_eq!(shown(b"[info] not  json", None, 50), (true, "[info] not json".to_owned()));
        let far = [b"{ \"a\": \"", &[b'.'; 99][..], b"  \\\"\",\n  \"b  c\":\n  1 }"].concat();
        let (_, line) = shown(&far, Some("1"), 50);
        assert_eq!(line, format!("... {}  \\\"\",\"b  c\":<1>}}", ".".repeat(5)));
    }

    #[test]
    fn other_content_is_bytes() {
        assert_eq!(shown(b"ab\xff\x00", None, 50), (false, "61 62 ff 00".to_owned()));
        assert_eq!(shown(b"ab\x1b[31m", Some("b"), 50), (false, "61 <62> 1b 5b 33 31 6d".to_owned()));
        assert_eq!(shown(&[7; 100], None, 12), (false, "07 07 07 ...".to_owned()));
    }

    #[test]
    fn matches_are_marked_and_a_line_begins_near_the_first() {
        assert_eq!(shown(b"a bb a\nbb", Some("bb"), 50), (true, "a <bb> a <bb>".to_owned()));
        assert_eq!(shown(b"a  b", Some("a  b"), 50), (true, "<a b>".to_owned()));
        assert_eq!(shown(b"aaa", Some("x*"), 50), (true, "aaa".to_owned()));
        assert_eq!(shown(&b"b ".repeat(20), Some("b"), 50).1.matches("<b>").count(), MOST_MATCHES);
        let far = [&[b'.'; 1_000][..], b"hit", &[b'.'; 1_000][..]].concat();
        let (is_text, line) = shown(&far, Some("hit"), 60);
        assert!(
            is_text && line.starts_with("... ....") && line.contains(&format!("{}<hit>.", ".".repeat(AROUND))),
            "{line}"
        );
        assert!(line.ends_with(" ..."), "{line}");
    }

    #[test]
    fn no_letter_begins_before_the_first_byte() {
        for before in 0..=AROUND {
            let content = [&[0x80; 4][..], &vec![b'.'; before], b"hit"].concat();
            shown(&content, Some("hit"), 100);
        }
    }

    #[test]
    fn a_letter_at_the_cut_is_no_damage() {
        let text = "\u{1f600}".repeat(300);
        for most in 1..40 {
            assert!(shown(text.as_bytes(), None, most).0);
        }
        let (is_text, _) = shown(format!("{text}hit").as_bytes(), Some("hit"), 60);
        assert!(is_text);
    }

    proptest! {
        #[test]
        fn no_content_is_too_much(content in prop::collection::vec(any::<u8>(), 0..600), pattern in "[a-c\\xff]{0,3}", most in 0usize..80) {
            let (_, line) = shown(&content, Some(&pattern), most);
            prop_assert!(line.chars().filter(|letter| !matches!(letter, '<' | '>')).count() <= most + 12);
        }
    }
}
