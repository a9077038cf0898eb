//! A block of messages that are added to the columns together, with the values that several columns share.

use std::borrow::Cow;
use std::path::Path;

use crate::arrow::columns::Piece;
use crate::java_text::decode_utf8;
use crate::rocketmq::commit_log::decode::body::BodyError;
use crate::rocketmq::commit_log::decode::suspect::Suspect;
use crate::rocketmq::commit_log::decode::text::{HostText, HostTexts};
use crate::rocketmq::commit_log::frame::Frame;
use crate::rocketmq::commit_log::frame::properties::{Entry, KnownNames, Names};

/// The properties of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Properties {
    /// Number of the names in the name cache.
    pub(crate) names: usize,
    /// Range of the entries in the block.
    pub(crate) begin: usize,
    pub(crate) end: usize,
}

/// The input of the columns of a block.
pub(crate) struct Block<'a> {
    pub(crate) rows: &'a [Row<'a>],
    /// The properties of each row; empty if no column needs them.
    pub(crate) properties: Vec<Properties>,
    pub(crate) entries: Vec<Entry<'a>>,
    /// Numbers of the texts of born host and store host for each row; empty if no column needs them.
    pub(crate) hosts: Vec<[usize; 2]>,
    pub(crate) known: &'a Known,
    /// The body error of each row; empty if all bodies are valid.
    pub(crate) body_errors: Vec<Option<String>>,
}

/// Caches and buffers that are kept from block to block.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) hosts: HostTexts,
    pub(crate) names: KnownNames,
}

impl<'a> Block<'a> {
    pub(crate) fn host(&self, number: usize) -> &'a HostText {
        self.known.hosts.get(number)
    }

    /// Returns the names of a message's properties.
    pub(crate) fn names(&self, properties: &Properties) -> Option<&'a Names> {
        self.known.names.get(properties.names)
    }

    /// Returns the value of a property with its own column.
    pub(crate) fn value(&self, properties: &Properties, which: usize) -> Option<Piece<'a>> {
        let entry = self.names(properties)?.known.get(which).copied().flatten()?;
        self.entries.get(properties.begin + entry).map(Entry::value)
    }

    /// Removes the rows from this one on.
    pub(crate) fn truncate(&mut self, rows: usize) {
        self.rows = self.rows.get(..rows).unwrap_or_default();
        self.properties.truncate(rows);
        self.entries.truncate(self.properties.last().map_or(0, |last| last.end));
        self.hosts.truncate(rows);
    }
}

impl Known {
    /// Splits the properties of each row. `decoded` holds the texts of properties that are not valid UTF-8.
    pub(crate) fn split<'a>(
        &mut self,
        rows: &[Row<'a>],
        decoded: &'a [Option<String>],
    ) -> (Vec<Properties>, Vec<Entry<'a>>) {
        self.names.limit();
        let (mut properties, mut entries) = (Vec::with_capacity(rows.len()), Vec::with_capacity(8 * rows.len()));
        for (number, row) in rows.iter().enumerate() {
            let begin = entries.len();
            let text = match decoded.get(number) {
                Some(Some(text)) => Piece::whole(text.as_bytes()),
                _ => row.frame.properties_piece(),
            };
            let names = self.names.split(text, &mut entries);
            properties.push(Properties { names, begin, end: entries.len() });
        }
        (properties, entries)
    }

    /// Returns the numbers of the hosts' texts.
    pub(crate) fn hosts(&mut self, rows: &[Row<'_>]) -> Vec<[usize; 2]> {
        self.hosts.limit();
        let hosts = &mut self.hosts;
        let numbers = |row: &Row<'_>| [row.frame.born_host(), row.frame.store_host()].map(|host| hosts.number(host));
        rows.iter().map(numbers).collect()
    }
}

/// Decodes properties that are not valid UTF-8. Empty if all properties are ASCII.
pub(crate) fn decoded(rows: &[Row<'_>]) -> Vec<Option<String>> {
    if rows.iter().all(|row| row.frame.properties_piece().is_ascii()) {
        return Vec::new();
    }
    let decode = |row: &Row<'_>| match decode_utf8(row.frame.properties()) {
        Cow::Owned(text) => Some(text),
        Cow::Borrowed(_) => None,
    };
    rows.iter().map(decode).collect()
}

/// The location of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// Log offset.
    pub phy_offset: u64,
    /// Name of the file.
    pub path: &'a Path,
    /// Offset in the file.
    pub file_offset: u64,
}

impl Place<'_> {
    /// Returns the message for a body that cannot be decoded.
    pub(crate) fn body_error(&self, error: &BodyError) -> String {
        format!("{} at byte {}: {error}", self.path.display(), self.file_offset)
    }
}

/// A message to add.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) frame: Frame<'a>,
    pub(crate) place: Place<'a>,
    pub(crate) suspect: Suspect,
}
