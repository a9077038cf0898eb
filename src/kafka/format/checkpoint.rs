//! The text files next to the segments: offset checkpoints of a log directory, leader epochs of a partition.
//!
//! All have one form: a version, a number of lines, then that many lines of fields with a space between them. Source:
//! `CheckpointFile#write`, `OffsetCheckpointFile`, `LeaderEpochCheckpointFile`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};
use crate::io::Location;
use crate::io::ProcessMutex;
use crate::io::regular_file::NotAFile;
use crate::io::storage::{self, Identity, read_file};

const VERSION: &str = "0";

/// A line: the topic, which leader epochs do not have, and two numbers.
pub type Line = (Option<String>, i64, i64);

/// Reads a checkpoint of three fields (topic, partition, offset) or two (epoch, first offset). A missing or empty file has no lines.
///
/// # Errors
/// `Corrupt` for another version, count or line, or if this is no file; an I/O error.
pub fn read(path: &Location, has_topic: bool) -> Result<Vec<Line>> {
    let bytes = match read_file(path, None) {
        Ok(bytes) => bytes,
        Err(error) if error.is_missing() => return Ok(Vec::new()),
        Err(Error::Io { source, path }) => {
            let other = source.get_ref().and_then(|cause| cause.downcast_ref::<NotAFile>()).map(|kind| kind.name());
            return Err(other.map_or(Error::Io { source, path: path.clone() }, |found| {
                Error::corrupt(&path, 0, "a regular file", found)
            }));
        }
        Err(error) => return Err(error),
    };
    read_bytes(path, &bytes, has_topic)
}

/// Reads the content of a checkpoint, which is at this path.
///
/// # Errors
/// `Corrupt` for another version, count or line.
pub fn read_bytes(path: &Path, bytes: &[u8], has_topic: bool) -> Result<Vec<Line>> {
    // A broker reads lines, which may end as on any system.
    let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n").replace('\r', "\n");
    parse(&text, has_topic).map_err(|(at, expected, found)| Error::corrupt(path, at, expected, found))
}

/// Returns the content of a checkpoint. Source: `CheckpointWriteBuffer#write`.
pub fn text(lines: impl ExactSizeIterator<Item = Line>) -> String {
    let mut text = format!("{VERSION}\n{}\n", lines.len());
    for (topic, first, second) in lines {
        text.extend(topic.map(|topic| topic + " "));
        text.extend([first.to_string(), " ".to_owned(), second.to_string(), "\n".to_owned()]);
    }
    text
}

/// Checkpoints of offsets that stay in memory: a directory has a line for each of thousands of partitions, and all are requested.
const KEPT: usize = 8;
/// A file that changed less than this ago may change again without another time of change.
const SETTLED: Duration = Duration::from_millis(100);

/// The signs of a replaced checkpoint: a broker writes another file and renames it.
#[derive(Clone, PartialEq, Eq)]
struct Stamp {
    identity: Identity,
    len: u64,
    /// `None`: the storage does not have it, so the file is read each time.
    modified: Option<SystemTime>,
}

type Offsets = HashMap<(String, i64), i64>;

static KNOWN: ProcessMutex<Vec<(Location, Stamp, Arc<Offsets>)>> = ProcessMutex::new();

/// Returns the offset of a partition in a checkpoint of offsets; `None` if it has none, or if the file is missing or not valid.
///
/// # Errors
/// An I/O error, with the path.
pub fn recorded_offset(path: &Location, topic: &str, partition: i64) -> Result<Option<i64>> {
    let Some(found) = storage::existing(path)? else { return Ok(None) };
    let stamp = Stamp { identity: found.identity, len: found.len, modified: found.modified };
    let same = |(of, at, _): &&(Location, Stamp, Arc<Offsets>)| of == path && *at == stamp;
    let held = KNOWN.with(|known| known.iter().find(same).map(|(_, _, offsets)| Arc::clone(offsets)));
    let offsets = if let Some(offsets) = held {
        offsets
    } else {
        // Without the lock: the file may be a remote one.
        let Some(lines) = Error::unless_lost(read(path, true))? else { return Ok(None) };
        // The last line of a partition counts.
        let offsets = lines.into_iter().map(|(topic, number, offset)| ((topic.unwrap_or_default(), number), offset));
        let offsets: Arc<Offsets> = Arc::new(offsets.collect());
        KNOWN.with(|known| {
            known.retain(|(of, _, _)| of != path);
            if stamp.modified.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > SETTLED) {
                known.truncate(KEPT - 1);
                known.insert(0, (path.to_owned(), stamp, Arc::clone(&offsets)));
            }
        });
        offsets
    };
    Ok(offsets.get(&(topic.to_owned(), partition)).copied())
}

/// Parses the lines; on an error, return its byte offset, what was expected and what was found.
fn parse(text: &str, has_topic: bool) -> std::result::Result<Vec<Line>, (u64, String, String)> {
    if text.is_empty() {
        return Ok(Vec::new()); // a checkpoint that was never written
    }
    let (version, rest) = text.split_once('\n').unwrap_or((text, ""));
    if version != VERSION {
        return Err((0, format!("version {VERSION}"), shown(version)));
    }
    let (count, body) = rest.split_once('\n').unwrap_or((rest, ""));
    let lines: Vec<&str> = body.split('\n').filter(|line| !line.is_empty()).collect();
    if count != lines.len().to_string() {
        let found = if text.contains('\n') { shown(count) } else { "none".to_owned() };
        let expected = format!("a count of {}, as many as there are lines", lines.len());
        return Err((VERSION.len() as u64 + 1, expected, found));
    }
    let mut at = (version.len() + count.len() + 2) as u64;
    let mut parsed = Vec::with_capacity(lines.len());
    for line in lines {
        let fields = if has_topic { 3 } else { 2 };
        let of_line = line_of(line, has_topic).ok_or_else(|| (at, format!("{fields} fields"), shown(line)))?;
        parsed.push(of_line);
        at += line.len() as u64 + 1;
    }
    Ok(parsed)
}

fn line_of(line: &str, has_topic: bool) -> Option<Line> {
    // A topic has no space in it.
    let mut fields = line.split(' ');
    let topic = if has_topic { Some(fields.next()?.to_owned()) } else { None };
    let (first, second) = (number(fields.next()?)?, number(fields.next()?)?);
    fields.next().is_none().then_some((topic, first, second))
}

fn number(text: &str) -> Option<i64> {
    // The parser of the language takes a plus sign, too.
    text.parse().ok().filter(|_| !text.starts_with('+'))
}

fn shown(text: &str) -> String {
    let short: String = text.chars().take(200).collect();
    format!("{short:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_fields() {
        assert_eq!(
            parse("0\n2\na 0 5\nb 1 7\n", true).unwrap(),
            [(Some("a".to_owned()), 0, 5), (Some("b".to_owned()), 1, 7)]
        );
        assert_eq!(parse("0\n1\n3 -1\n", false).unwrap(), [(None, 3, -1)]);
        assert_eq!(parse("", true).unwrap(), []);
        assert_eq!(text([(Some("a".to_owned()), 0, 5)].into_iter()), "0\n1\na 0 5\n");
        assert_eq!(text([(None, 3, -1)].into_iter()), "0\n1\n3 -1\n");
    }

    #[test]
    fn damage_has_a_place() {
        for (text, at) in [("1\n0\n", 0), ("0\n2\n0 0\n", 2), ("0\n1\n0\n", 4), ("0\n2\n0 0\n5 x\n", 8), ("0", 2)] {
            assert_eq!(parse(text, false).unwrap_err().0, at, "{text:?}");
        }
    }
}
