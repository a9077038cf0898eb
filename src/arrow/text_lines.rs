//! The rows of a batch as lines for people: a head, and the body or value below it if it was read.
//!
//! Of a long body only the start is shown. Control characters are left to the caller, except line breaks.

use std::fmt::Write as _;

use arrow_array::RecordBatch;

use super::text_rows::{Pieces, Row, columns};
use crate::error::Error;
use crate::time_text::TimeText;

/// Letters of a text that are shown, and half as many bytes of what is not a text.
const SHOWN: usize = 2_000;

/// Writes the rows of a batch of messages or of Kafka records, in pieces of whole lines.
///
/// # Errors
///
/// [`Error::InvalidArgument`] for a column of another type; the first error of `write`, which is not called again.
pub(crate) fn text_lines<E: From<Error>>(
    batch: &RecordBatch,
    write: impl FnMut(&str) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let columns = columns(batch)?;
    let of_row = if batch.column_by_name("phy_offset").is_some() { message_lines } else { record_lines };
    let mut pieces = Pieces::new(write);
    let write_row = |at| {
        let lines = of_row(Row { columns: &columns, at });
        let text: String = lines.iter().map(|line| line.replace('\n', "\\n") + "\n").collect();
        pieces.write_str(&text)
    };
    // Only `write` fails, and its error is kept.
    let _ = (0..batch.num_rows()).try_for_each(write_row).and_then(|()| pieces.hand_over());
    pieces.refused.map_or(Ok(()), Err)
}

fn message_lines(row: Row<'_>) -> Vec<String> {
    let text = |name| row.bytes(name).map(String::from_utf8_lossy);
    let number = |name| row.number(name).unwrap_or(-1);
    let queue = format!("{}/{}", text("topic").unwrap_or_default(), number("queue_id"));
    let places = format!("{queue}@{}  phy {}", number("queue_offset"), number("phy_offset"));
    let mut head = vec![time(row, "store_timestamp"), places];
    head.extend(["tags", "keys", "uniq_key"].iter().filter_map(|name| Some(format!("{name}={}", text(name)?))));
    let mut lines = vec![head.join("  ")];
    if let Some(error) = text("body_error") {
        lines.push(format!("    ({error})"));
    } else if let Some(body) = row.bytes("body") {
        let (shown, rest) = begin_of(body);
        if std::str::from_utf8(body).is_ok() {
            lines.extend(shown.lines().map(|line| format!("    {line}")));
        } else {
            lines.push(format!("    ({} bytes, no text) {shown}", grouped(body.len())));
        }
        if rest > 0 {
            lines.push(format!("    ({} more; --json gives all)", grouped(rest)));
        }
    }
    lines
}

fn record_lines(row: Row<'_>) -> Vec<String> {
    let topic = row.bytes("topic").map(String::from_utf8_lossy).unwrap_or_default();
    let number = |name| row.number(name).unwrap_or(-1);
    let place = format!("{topic}-{}@{}", number("partition"), number("offset"));
    let mut head = vec![time(row, "timestamp"), place, format!("key={}", in_line(row.bytes("key")))];
    head.extend(row.headers().into_iter().map(|(name, value)| format!("{name}={}", in_line(value))));
    let mut lines = vec![head.join("  ")];
    if row.columns.iter().any(|(name, _)| *name == "value") {
        lines.push(format!("    {}", in_line(row.bytes("value"))));
    }
    lines
}

fn time(row: Row<'_>, name: &str) -> String {
    row.number(name).map_or_else(|| "-".to_owned(), |time| TimeText(time).to_string())
}

/// Returns the start of a text, or of other bytes in hexadecimal, and how many letters or bytes are left out.
fn begin_of(content: &[u8]) -> (String, usize) {
    if let Ok(text) = std::str::from_utf8(content) {
        let mut letters = text.chars();
        return (letters.by_ref().take(SHOWN).collect(), letters.count());
    }
    let shown: Vec<_> = content.iter().take(SHOWN / 2).map(|byte| format!("{byte:02x}")).collect();
    (shown.join(" "), content.len().saturating_sub(SHOWN / 2))
}

fn in_line(content: Option<&[u8]>) -> String {
    let Some(content) = content else { return "null".to_owned() };
    match begin_of(content) {
        (shown, 0) => shown,
        (shown, rest) => format!("{shown} ({} more)", grouped(rest)),
    }
}

/// Returns a number with commas between thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, BinaryArray, Int32Array, Int64Array, StringArray, TimestampMillisecondArray};

    use super::*;

    fn lines(columns: Vec<(&str, ArrayRef)>) -> String {
        let mut text = String::new();
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        text_lines::<Error>(&batch, |piece| {
            text += piece;
            Ok(())
        })
        .unwrap();
        text
    }

    #[test]
    fn a_message_is_a_line_with_its_body_below() {
        let long = format!("two\nlines{}", "x".repeat(2_001));
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("topic", Arc::new(StringArray::from(vec!["T"; 4]))),
            ("queue_id", Arc::new(Int32Array::from(vec![1; 4]))),
            ("queue_offset", Arc::new(Int64Array::from(vec![2; 4]))),
            ("phy_offset", Arc::new(Int64Array::from(vec![3; 4]))),
            ("store_timestamp", Arc::new(TimestampMillisecondArray::from(vec![Some(0), None, Some(0), Some(0)]))),
            ("keys", Arc::new(StringArray::from(vec![Some("k\nl"), None, None, None]))),
            (
                "body",
                Arc::new(BinaryArray::from_opt_vec(vec![None, Some(b"\xff\0"), Some(long.as_bytes()), Some(b"text")])),
            ),
            ("body_error", Arc::new(StringArray::from(vec![Some("why"), None, None, None]))),
        ];
        let expected = format!(
            "1970-01-01T00:00:00.000Z  T/1@2  phy 3  keys=k\\nl\n    (why)\n\
             -  T/1@2  phy 3\n    (2 bytes, no text) ff 00\n\
             1970-01-01T00:00:00.000Z  T/1@2  phy 3\n    two\n    lines{}\n    (10 more; --json gives all)\n\
             1970-01-01T00:00:00.000Z  T/1@2  phy 3\n    text\n",
            "x".repeat(1_991)
        );
        assert_eq!(lines(columns), expected);
    }

    #[test]
    fn a_record_is_a_line_with_its_value_below() {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("topic", Arc::new(StringArray::from(vec!["t"]))),
            ("partition", Arc::new(Int32Array::from(vec![0]))),
            ("offset", Arc::new(Int64Array::from(vec![7]))),
            ("timestamp", Arc::new(TimestampMillisecondArray::from(vec![-1]))),
            ("key", Arc::new(BinaryArray::from_opt_vec(vec![None]))),
            ("value", Arc::new(BinaryArray::from_vec(vec![&[0xff; 3_000]]))),
        ];
        let value = vec!["ff"; 1_000].join(" ");
        let expected = format!("1969-12-31T23:59:59.999Z  t-0@7  key=null\n    {value} (2,000 more)\n");
        assert_eq!(lines(columns), expected);
    }
}
