//! The matches of a pattern in the rows of a batch: JSON lines with their positions, and lines for people.
//!
//! A position is a range of bytes: in a body, value or key, or in the text `name=value` of a property or header.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::ops::Range;
use std::sync::LazyLock;

use arrow_array::{BooleanArray, RecordBatch};
use regex::{Captures, Regex};

use super::text_rows::{Cells, PieceWriter, Row, columns, head, json_rows_with, json_text};
use crate::error::Error;
use crate::matcher::{Field, Matcher};
use crate::time_text::Zone;

/// The first matches of a text that are shown.
const SHOWN: usize = 3;
/// Bytes around a match that are shown.
const AROUND: usize = 40;
/// Bytes of a match that are shown.
const MOST_SHOWN: usize = 200;

/// The way in which matches are shown to people.
#[derive(Clone, Debug, Default)]
pub(crate) struct Style {
    /// Text before each row.
    pub(crate) prefix: String,
    /// Texts before and after each match.
    pub(crate) marks: (String, String),
    /// Show whole bodies.
    pub(crate) bodies: bool,
    /// Show only the matches, each on a line.
    pub(crate) only: bool,
}

/// A text of a row that is searched.
struct Searched<'a> {
    /// The column.
    column: &'static str,
    /// The property or header.
    name: Option<&'a str>,
    text: Cow<'a, [u8]>,
}

/// Returns the texts of a row that a pattern is searched in.
fn searched<'a>(row: Row<'a>, matcher: &Matcher) -> Vec<Searched<'a>> {
    let mut texts = Vec::new();
    let pair_text = |(name, value): (&'a str, Option<&'a [u8]>), column| {
        let text = [name.as_bytes(), b"=", value.unwrap_or_default()].concat().into();
        Searched { column, name: Some(name), text }
    };
    for field in matcher.fields() {
        let names: &[&'static str] = match field {
            Field::Body => &["body", "value"],
            Field::Keys => &["keys", "uniq_key", "key"],
            Field::Properties => {
                let properties = row.properties().into_iter().map(|(name, value)| (name, value.map(str::as_bytes)));
                texts.extend(properties.map(|pair| pair_text(pair, "properties")));
                texts.extend(row.headers().into_iter().map(|pair| pair_text(pair, "headers")));
                continue;
            }
        };
        let whole = |column: &&'static str| Some(Searched { column, name: None, text: row.bytes(column)?.into() });
        texts.extend(names.iter().filter_map(whole));
    }
    texts
}

/// Returns whether a pattern wants each row of a batch.
///
/// # Errors
///
/// [`Error::InvalidArgument`] for a column of another type.
#[cfg_attr(not(feature = "python"), expect(dead_code, reason = "for `logdex grep`"))]
pub(crate) fn wanted(batch: &RecordBatch, matcher: &Matcher) -> Result<BooleanArray, Error> {
    let columns = columns(batch)?;
    let is_wanted = |at| {
        let texts = searched(Row { columns: &columns, at }, matcher);
        matcher.wants(texts.iter().any(|each| matcher.finds(&each.text)))
    };
    Ok((0..batch.num_rows()).map(|at| Some(is_wanted(at))).collect())
}

/// Writes the rows of a batch as JSON lines, each with the positions of its matches, in pieces that may end anywhere.
///
/// `path` is the first value of each line, if it is given. Without `bodies` they are only searched.
///
/// # Errors
///
/// [`Error::InvalidArgument`] for a column of another type; the first error of `write`, which is not called again.
pub(crate) fn json_lines<E: From<Error>>(
    batch: &RecordBatch,
    matcher: &Matcher,
    path: Option<&str>,
    bodies: bool,
    write: impl FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let all = columns(batch)?;
    let shown: Vec<(&str, Cells<'_>)> =
        columns(batch)?.into_iter().filter(|(name, _)| bodies || !matches!(*name, "body" | "value")).collect();
    let mut pieces = PieceWriter::new(write);
    let add = |text: &mut PieceWriter<_, E>, at: usize| {
        if let Some(path) = path {
            text.write_str(", \"path\": ")?;
            json_text(text, path)?;
        }
        text.write_str(", \"matches\": [")?;
        let mut is_first = true;
        for each in searched(Row { columns: &all, at }, matcher) {
            for Range { start, end } in matcher.ranges(&each.text) {
                text.write_str(if is_first { "" } else { ", " })?;
                is_first = false;
                write!(text, "{{\"field\": \"{}\", ", each.column)?;
                if let Some(name) = each.name {
                    text.write_str("\"name\": ")?;
                    json_text(text, name)?;
                    text.write_str(", ")?;
                }
                write!(text, "\"begin\": {start}, \"end\": {end}}}")?;
            }
        }
        text.write_str("]")
    };
    // Only `write` fails, and its error is kept.
    let _ = json_rows_with(&mut pieces, &shown, batch.num_rows(), add).and_then(|()| pieces.hand_over());
    pieces.refused.map_or(Ok(()), Err)
}

/// Writes the rows of a batch for people: the head of each, and the first matches with what is around them. Control characters are
/// escaped.
///
/// # Errors
///
/// As [`json_lines`].
pub(crate) fn text_lines<E: From<Error>>(
    batch: &RecordBatch,
    matcher: &Matcher,
    style: &Style,
    zone: Zone<'_>,
    write: impl FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let columns = columns(batch)?;
    let mut pieces = PieceWriter::new(write);
    let write_row = |at| write_row(&mut pieces, Row { columns: &columns, at }, matcher, style, zone);
    // Only `write` fails, and its error is kept.
    let _ = (0..batch.num_rows()).try_for_each(write_row).and_then(|()| pieces.hand_over());
    pieces.refused.map_or(Ok(()), Err)
}

fn write_row(text: &mut impl Write, row: Row<'_>, matcher: &Matcher, style: &Style, zone: Zone<'_>) -> fmt::Result {
    let prefix = &style.prefix;
    if !style.only {
        writeln!(text, "{prefix}{}", printable(head(row, zone).as_bytes()))?;
    }
    let mut is_body_shown = false;
    for each in searched(row, matcher) {
        let content = &each.text;
        let label = each.column;
        if style.only {
            for range in matcher.ranges(content) {
                writeln!(text, "{prefix}{}", marked(content, &range, &style.marks))?;
            }
            continue;
        }
        if style.bodies && each.name.is_none() {
            is_body_shown = is_body_shown || matches!(label, "body" | "value");
            write_whole(text, label, content, matcher.ranges(content), style)?;
            continue;
        }
        let mut ranges = matcher.ranges(content);
        for Range { start, end } in ranges.by_ref().take(SHOWN) {
            let (begin, after) = (begin_of_letter(content, start.saturating_sub(AROUND)), end.saturating_add(AROUND));
            let after = begin_of_letter(content, after.min(content.len()));
            let last = begin_of_letter(content, end.min(start + MOST_SHOWN));
            let dots = |left_out: bool| if left_out { "..." } else { "" };
            let part = |range: Range<usize>| printable(content.get(range).unwrap_or_default());
            let (before, rest) = (part(begin..start), if last < end { "...".to_owned() } else { part(end..after) });
            let shown = marked(content, &(start..last), &style.marks);
            let (first, final_dots) = (dots(begin > 0), dots(last >= end && after < content.len()));
            writeln!(text, "    {label}@{start}: {first}{before}{shown}{rest}{final_dots}")?;
        }
        let more = ranges.count();
        if more > 0 {
            writeln!(text, "    ({more} more in {label})")?;
        }
    }
    if style.bodies && !style.only && !is_body_shown {
        for label in ["body", "value"] {
            if let Some(content) = row.bytes(label) {
                write_whole(text, label, content, std::iter::empty(), style)?;
            }
        }
    }
    Ok(())
}

/// Writes a whole text with its matches.
fn write_whole(
    text: &mut impl Write,
    label: &str,
    content: &[u8],
    ranges: impl Iterator<Item = Range<usize>>,
    style: &Style,
) -> fmt::Result {
    write!(text, "    {label}: ")?;
    let mut at = 0;
    for range in ranges {
        text.write_str(&printable(content.get(at..range.start).unwrap_or_default()))?;
        text.write_str(&marked(content, &range, &style.marks))?;
        at = range.end;
    }
    writeln!(text, "{}", printable(content.get(at..).unwrap_or_default()))
}

fn marked(content: &[u8], range: &Range<usize>, marks: &(String, String)) -> String {
    format!("{}{}{}", marks.0, printable(content.get(range.clone()).unwrap_or_default()), marks.1)
}

/// Returns the first place at or after `at` where a letter may begin.
fn begin_of_letter(content: &[u8], at: usize) -> usize {
    let rest = content.get(at..).unwrap_or_default();
    at + rest.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count()
}

/// Characters that a terminal would obey, or that hide or reverse text, as Python's `str.isprintable` has them.
static UNPRINTABLE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[\p{C}\p{Zl}\p{Zp}[\p{Zs}--\x20]]").expect("a valid class"));

/// Returns bytes as text for a terminal. Bytes that are not UTF-8 are shown as `\xff`.
fn printable(bytes: &[u8]) -> String {
    let escaped = |found: &Captures<'_>| {
        let letter = found.get(0).and_then(|found| found.as_str().chars().next());
        match letter.map(|letter| (letter, u32::from(letter))) {
            Some(('\n', _)) => "\\n".to_owned(),
            Some(('\r', _)) => "\\r".to_owned(),
            Some(('\t', _)) => "\\t".to_owned(),
            Some((_, number @ ..0x100)) => format!("\\x{number:02x}"),
            Some((_, number @ ..0x1_0000)) => format!("\\u{number:04x}"),
            Some((_, number)) => format!("\\U{number:08x}"),
            None => String::new(),
        }
    };
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(&UNPRINTABLE.replace_all(chunk.valid(), escaped));
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, BinaryArray, Int64Array, StringArray};

    use super::*;
    use crate::matcher::{Pattern, PatternText};

    fn matcher(text: &str, fields: &[Field]) -> Matcher {
        let pattern = Pattern::new(PatternText::Text(text.to_owned()));
        Matcher::new(&Pattern { fields: fields.to_vec(), ..pattern }).unwrap()
    }

    fn batch(bodies: Vec<Option<&[u8]>>) -> RecordBatch {
        let rows = bodies.len();
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("topic", Arc::new(StringArray::from(vec!["T"; rows]))),
            ("phy_offset", Arc::new(Int64Array::from(vec![7; rows]))),
            ("keys", Arc::new(StringArray::from(vec!["k1 ab"; rows]))),
            ("body", Arc::new(BinaryArray::from_opt_vec(bodies))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn lines(batch: &RecordBatch, matcher: &Matcher, style: &Style) -> String {
        let mut text = String::new();
        text_lines::<Error>(batch, matcher, style, None, |piece| {
            text += piece;
            Ok(())
        })
        .unwrap();
        text
    }

    fn style() -> Style {
        Style { marks: ("<".to_owned(), ">".to_owned()), ..Style::default() }
    }

    const HEAD: &str = "-  T/-1@-1  phy 7  keys=\"k1 ab\"\n";

    #[test]
    fn the_first_matches_are_shown_with_their_surroundings() {
        let (dots, matcher) = (".".repeat(60), matcher("ab+", &[Field::Body, Field::Keys]));
        let body = format!("{dots}abb\n{dots}");
        let near = ".".repeat(40);
        let expected = format!("{HEAD}    keys@3: k1 <ab>\n    body@60: ...{near}<abb>\\n{}...\n", ".".repeat(39));
        assert_eq!(lines(&batch(vec![Some(body.as_bytes())]), &matcher, &style()), expected);
        let many = "ab ".repeat(5);
        let text = lines(&batch(vec![Some(many.as_bytes())]), &matcher, &style());
        assert!(text.ends_with("    body@6: ab ab <ab> ab ab \n    (2 more in body)\n"), "{text}");
    }

    #[test]
    fn whole_bodies_and_only_matches() {
        let matcher = matcher("a.", &[Field::Body]);
        let batch = batch(vec![Some(b"ab\x1b[31m\xffac"), None, Some(b"other")]);
        let whole = lines(&batch, &matcher, &Style { bodies: true, ..style() });
        assert_eq!(whole, format!("{HEAD}    body: <ab>\\x1b[31m\\xff<ac>\n{HEAD}{HEAD}    body: other\n"));
        let only = lines(&batch, &matcher, &Style { only: true, prefix: "p: ".to_owned(), ..style() });
        assert_eq!(only, "p: <ab>\np: <ac>\n");
    }

    #[test]
    fn letters_are_not_cut_and_hidden_ones_are_escaped() {
        assert_eq!(
            printable("a\u{e9}\u{301}\u{202e}\u{a0}\u{e0001} \t".as_bytes()),
            "a\u{e9}\u{301}\\u202e\\xa0\\U000e0001 \\t"
        );
        let body = "\u{e9}".repeat(30) + "x" + &"\u{1f600}".repeat(15);
        let text = lines(&batch(vec![Some(body.as_bytes())]), &matcher("x", &[Field::Body]), &style());
        assert!(!text.contains("\\x"), "{text}");
        let long = vec![b'y'; 1_000];
        let text = lines(&batch(vec![Some(&long)]), &matcher("y+", &[Field::Body]), &style());
        assert_eq!(text, format!("{HEAD}    body@0: <{}>...\n", "y".repeat(200)));
    }

    #[test]
    fn positions_are_json() {
        let mut text = String::new();
        let matcher = matcher("b", &[Field::Body, Field::Keys]);
        json_lines::<Error>(&batch(vec![Some(b"bcb")]), &matcher, Some("p\"q"), false, |piece| {
            text += piece;
            Ok(())
        })
        .unwrap();
        let expected = concat!(
            r#"{"topic": "T", "phy_offset": 7, "keys": "k1 ab", "path": "p\"q", "matches": ["#,
            r#"{"field": "keys", "begin": 4, "end": 5}, {"field": "body", "begin": 0, "end": 1}, "#,
            r#"{"field": "body", "begin": 2, "end": 3}]}"#,
            "\n"
        );
        assert_eq!(text, expected);
    }
}
