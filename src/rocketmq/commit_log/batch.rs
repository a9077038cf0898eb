//! Messages to Arrow. A block of messages is added column by column: each loop touches one field of every frame, which
//! are all in the processor's cache.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;

use super::body::{BodyDecoder, BodyError};
use super::column_builder::ColumnBuilder;
use super::columns::{self, Column};
use super::frame::Frame;
use super::properties::{self, Entry};
use super::scan::Place;
use super::suspect::Suspect;
use super::text::HostTexts;
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
pub(super) struct Row<'a> {
    pub(super) frame: Frame<'a>,
    pub(super) place: Place<'a>,
    pub(super) suspect: Suspect,
}

/// The properties of a message.
#[derive(Debug)]
pub(super) struct Properties<'a> {
    pub(super) text: Cow<'a, str>,
    /// Numbers of the entries.
    begin: usize,
    end: usize,
}

impl Properties<'_> {
    pub(super) fn of<'e>(&self, entries: &'e [Entry]) -> &'e [Entry] {
        entries.get(self.begin..self.end).unwrap_or_default()
    }
}

/// What the columns of a block are made of.
pub(super) struct Block<'a> {
    pub(super) rows: &'a [Row<'a>],
    /// Of every row, where any column needs them.
    pub(super) properties: Vec<Properties<'a>>,
    pub(super) entries: &'a [Entry],
    pub(super) body_errors: Vec<Option<String>>,
}

/// Takes messages and gives record batches.
pub(super) struct BatchBuilder {
    schema: SchemaRef,
    columns: Vec<(Column, ColumnBuilder)>,
    body: Option<usize>,
    bodies: Bodies,
    decoder: BodyDecoder,
    hosts: HostTexts,
    entries: Vec<Entry>,
    wants_properties: bool,
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
            hosts: HostTexts::new(),
            entries: Vec::new(),
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

    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Adds messages and gives how many: fewer than all when the batch is full of bytes and must be taken first.
    pub(super) fn append(&mut self, rows: &[Row<'_>]) -> usize {
        let mut entries = std::mem::take(&mut self.entries);
        entries.clear();
        let mut properties = Vec::new();
        if self.wants_properties {
            properties.reserve_exact(rows.len());
            properties.extend(rows.iter().map(|row| {
                let text = decode_utf8(row.frame.properties());
                let begin = entries.len();
                properties::split(&text, &mut entries);
                Properties { text, begin, end: entries.len() }
            }));
        }
        let mut block = Block { rows, properties, entries: &entries, body_errors: Vec::new() };
        let fits = self.append_bodies(&mut block);
        block.rows = rows.get(..fits).unwrap_or_default();
        block.properties.truncate(fits);
        for (column, builder) in &mut self.columns {
            if *column != Column::Body {
                builder.append(*column, &block, &mut self.hosts);
            }
        }
        self.rows += fits;
        self.entries = entries;
        fits
    }

    /// Counts the bytes of the rows, adds their bodies, and gives how many rows found room.
    fn append_bodies(&mut self, block: &mut Block<'_>) -> usize {
        let Self { columns, body, bodies, decoder, .. } = self;
        let mut column = body.and_then(|body| columns.get_mut(body)).map(|(_, builder)| builder);
        if self.wants_body {
            block.body_errors.reserve_exact(block.rows.len());
        }
        for (number, row) in block.rows.iter().enumerate() {
            let stored = row.frame.stored_body();
            let decoded: Result<&[u8], BodyError> = match (self.wants_body, *bodies) {
                (false, _) => Ok(&[]),
                (true, Bodies::Stored) => Ok(stored),
                (true, Bodies::Decoded) => decoder.decode(stored, row.frame.sys_flag()),
            };
            // An estimate from above: fixed fields, hosts and id, and every property at most twice.
            let texts = row.frame.topic().len() + 2 * row.frame.properties().len();
            let room = 384 + 3 * texts + decoded.as_ref().map_or(256, |body| body.len());
            if self.rows + number > 0 && self.bytes.saturating_add(room) > self.most_bytes {
                return number;
            }
            self.bytes += room;
            if let Some(ColumnBuilder::Bytes(column)) = &mut column {
                column.append_option(decoded.as_ref().ok());
            }
            if self.wants_body {
                block.body_errors.push(decoded.err().map(|error| row.place.body_error(&error)));
            }
        }
        block.rows.len()
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
    pub(super) fn take(&mut self) -> RecordBatch {
        let arrays = self.columns.iter_mut().map(|(_, builder)| builder.finish()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        (self.rows, self.bytes) = (0, 0);
        RecordBatch::try_new_with_options(self.schema(), arrays, &options)
            .expect("the builders make the columns of the schema, one row each for every row that was counted")
    }
}
