//! Messages to Arrow. A block of messages is added column by column: each loop touches one field of every frame, which
//! are all in the processor's cache.

use std::borrow::Cow;
use std::iter;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;

use super::body::BodyDecoder;
use super::column_builder::ColumnBuilder;
use super::columns::{self, Column};
use super::frame::{COMPRESSED, Frame};
use super::properties::{Entry, KnownNames, Names};
use super::scan::Place;
use super::suspect::Suspect;
use super::text::{HostText, HostTexts};
use crate::arrow::byte_column::{ByteColumn, Piece};
use crate::java_text::decode_utf8;

/// A batch ends before it is larger than this, if it has a row.
const BATCH_BYTES: usize = 64 * 1024 * 1024;
/// The most that a column's 32-bit offsets can reach, with room to spare.
const MOST_BYTES: usize = 2_000_000_000;

/// How the body column is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bodies {
    /// As the producer sent it; null with a reason where it cannot be decoded.
    Decoded,
    /// As the log holds it, perhaps compressed.
    Stored,
}

/// A message that is to be added.
#[derive(Clone, Copy, Debug)]
pub(in crate::rocketmq) struct Row<'a> {
    pub(in crate::rocketmq) frame: Frame<'a>,
    pub(in crate::rocketmq) place: Place<'a>,
    pub(in crate::rocketmq) suspect: Suspect,
}

/// The properties of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Properties {
    /// Number of the names.
    names: usize,
    /// NumberColumn of the entries in the block.
    begin: usize,
    pub(super) end: usize,
}

/// What the columns of a block are made of.
pub(super) struct Block<'a> {
    pub(super) rows: &'a [Row<'a>],
    /// Of every row, where any column needs them.
    pub(super) properties: Vec<Properties>,
    pub(super) entries: Vec<Entry<'a>>,
    /// NumberColumn of the texts of born host and store host of every row, where any column needs them.
    pub(super) hosts: Vec<[usize; 2]>,
    known: &'a Known,
    /// Why bodies are missing; nothing where none is.
    pub(super) body_errors: Vec<Option<String>>,
}

/// What came before and comes again.
#[derive(Debug, Default)]
struct Known {
    hosts: HostTexts,
    names: KnownNames,
}

impl<'a> Block<'a> {
    pub(super) fn host(&self, number: usize) -> &'a HostText {
        self.known.hosts.get(number)
    }

    /// The names of a message's properties.
    pub(super) fn names(&self, properties: &Properties) -> Option<&'a Names> {
        self.known.names.get(properties.names)
    }

    /// The value of one of the properties that have columns of their own.
    pub(super) fn value(&self, properties: &Properties, which: usize) -> Option<Piece<'a>> {
        let entry = self.names(properties)?.known.get(which).copied().flatten()?;
        self.entries.get(properties.begin + entry).map(Entry::value)
    }

    /// Forgets the rows from this one on.
    fn truncate(&mut self, rows: usize) {
        self.rows = self.rows.get(..rows).unwrap_or_default();
        self.properties.truncate(rows);
        self.entries.truncate(self.properties.last().map_or(0, |last| last.end));
        self.hosts.truncate(rows);
    }
}

impl Known {
    /// Splits the properties of every row. `decoded` holds the texts of those that are no UTF-8.
    fn split<'a>(&mut self, rows: &[Row<'a>], decoded: &'a [Option<String>]) -> (Vec<Properties>, Vec<Entry<'a>>) {
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

    /// The numbers of the hosts' texts.
    fn hosts(&mut self, rows: &[Row<'_>]) -> Vec<[usize; 2]> {
        self.hosts.limit();
        let hosts = &mut self.hosts;
        let numbers = |row: &Row<'_>| [row.frame.born_host(), row.frame.store_host()].map(|host| hosts.number(host));
        rows.iter().map(numbers).collect()
    }
}

/// The properties of rows as text, where their bytes are no UTF-8; nothing where all are ASCII.
fn decoded(rows: &[Row<'_>]) -> Vec<Option<String>> {
    if rows.iter().all(|row| row.frame.properties_piece().is_ascii()) {
        return Vec::new();
    }
    let decode = |row: &Row<'_>| match decode_utf8(row.frame.properties()) {
        Cow::Owned(text) => Some(text),
        Cow::Borrowed(_) => None,
    };
    rows.iter().map(decode).collect()
}

/// Takes messages and gives record batches.
pub(in crate::rocketmq) struct BatchBuilder {
    schema: SchemaRef,
    columns: Vec<(Column, ColumnBuilder)>,
    body: Option<usize>,
    bodies: Bodies,
    decoder: BodyDecoder,
    known: Known,
    wants_properties: bool,
    wants_hosts: bool,
    wants_body: bool,
    most_bytes: usize,
    rows: usize,
    bytes: usize,
}

impl BatchBuilder {
    pub(super) fn new(columns: &[Column], bodies: Bodies, max_body_bytes: usize) -> Self {
        let any = |wanted: &[Column]| columns.iter().any(|c| wanted.contains(c));
        Self {
            schema: columns::schema(columns),
            columns: columns.iter().map(|c| (*c, ColumnBuilder::new(*c))).collect(),
            body: columns.iter().position(|column| *column == Column::Body),
            bodies,
            decoder: BodyDecoder::new(max_body_bytes),
            known: Known::default(),
            wants_hosts: any(&[Column::BornHost, Column::StoreHost, Column::MsgId]),
            wants_properties: any(&[Column::UniqKey, Column::Tags, Column::Keys, Column::Properties]),
            wants_body: any(&[Column::Body, Column::BodyError]),
            most_bytes: BATCH_BYTES,
            rows: 0,
            bytes: 0,
        }
    }

    /// Takes as much as a batch can hold at all.
    pub(super) fn unbounded(mut self) -> Self {
        self.most_bytes = MOST_BYTES;
        self
    }

    pub(in crate::rocketmq) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    pub(in crate::rocketmq) fn rows(&self) -> usize {
        self.rows
    }

    /// Adds messages and gives how many: fewer than all when the batch is full of bytes and must be taken first.
    pub(in crate::rocketmq) fn append(&mut self, rows: &[Row<'_>]) -> usize {
        let mut known = std::mem::take(&mut self.known);
        let decoded = if self.wants_properties { decoded(rows) } else { Vec::new() };
        let (properties, entries) =
            if self.wants_properties { known.split(rows, &decoded) } else { (Vec::new(), Vec::new()) };
        let hosts = if self.wants_hosts { known.hosts(rows) } else { Vec::new() };
        let mut block = Block { rows, properties, entries, hosts, known: &known, body_errors: Vec::new() };
        let fits = self.append_bodies(&mut block);
        block.truncate(fits);
        for (column, builder) in &mut self.columns {
            if *column != Column::Body {
                builder.append(*column, &block);
            }
        }
        self.rows += fits;
        self.known = known;
        fits
    }

    /// Counts the bytes of the rows, adds their bodies, and gives how many rows found room.
    fn append_bodies(&mut self, block: &mut Block<'_>) -> usize {
        let is_plain = |row: &Row<'_>| row.frame.sys_flag() & COMPRESSED == 0;
        if self.wants_body && self.bodies == Bodies::Decoded && !block.rows.iter().all(is_plain) {
            return self.append_decoded_bodies(block);
        }
        let mut fits = 0;
        for row in block.rows {
            let body = if self.wants_body { row.frame.stored_body().len() } else { 0 };
            if !self.finds_room(row, fits, body) {
                break;
            }
            fits += 1;
        }
        if let Some(column) = self.body_column() {
            column.extend(block.rows.iter().take(fits).map(|row| Piece::whole(row.frame.stored_body())));
        }
        fits
    }

    /// The same where a body of the block is compressed.
    fn append_decoded_bodies(&mut self, block: &mut Block<'_>) -> usize {
        let mut decoder = std::mem::replace(&mut self.decoder, BodyDecoder::new(0));
        let mut fits = 0;
        for row in block.rows {
            let body = decoder.decode(row.frame.stored_body(), row.frame.sys_flag());
            if !self.finds_room(row, fits, body.as_ref().map_or(256, |body| body.len())) {
                break;
            }
            fits += 1;
            if let Some(column) = self.body_column() {
                column.extend_optional(iter::once(body.as_ref().ok().map(|body| Piece::whole(body))));
            }
            block.body_errors.push(body.err().map(|error| row.place.body_error(&error)));
        }
        self.decoder = decoder;
        fits
    }

    /// Counts the bytes of a row that is added after so many others, unless the batch is full.
    #[inline]
    fn finds_room(&mut self, row: &Row<'_>, others: usize, body: usize) -> bool {
        // An estimate from above: fixed fields, hosts and id, and every property at most twice.
        let texts = row.frame.topic().len() + 2 * row.frame.properties().len();
        let bytes = self.bytes.saturating_add(384 + 3 * texts + body);
        if self.rows + others > 0 && bytes > self.most_bytes {
            return false;
        }
        self.bytes = bytes;
        true
    }

    fn body_column(&mut self) -> Option<&mut ByteColumn> {
        match self.columns.get_mut(self.body?) {
            Some((_, ColumnBuilder::Bytes(column))) => Some(column),
            _ => None,
        }
    }

    /// Adds a row that has only an offset. Always finds room.
    pub(super) fn append_missing(&mut self, phy_offset: Option<i64>) {
        for (column, builder) in &mut self.columns {
            match builder {
                ColumnBuilder::Int64(b) if *column == Column::PhyOffset => b.append_option(phy_offset),
                other => other.append_null(),
            }
        }
        self.rows += 1;
    }

    /// What was added since the last batch was taken.
    pub(in crate::rocketmq) fn take(&mut self) -> RecordBatch {
        let arrays = self.columns.iter_mut().map(|(column, builder)| builder.finish(*column)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        (self.rows, self.bytes) = (0, 0);
        RecordBatch::try_new_with_options(self.schema(), arrays, &options)
            .expect("the builders make the columns of the schema, one row each for every row that was counted")
    }
}
