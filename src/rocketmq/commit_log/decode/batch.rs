//! Convert messages to Arrow.
//!
//! A block of messages is added column by column. Each loop reads one field of every frame, and all frames are in the
//! processor's cache.

use std::iter;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;

use crate::arrow::columns::ByteColumn;
use crate::arrow::columns::Piece;
use crate::batch_size::BatchSize;
use crate::rocketmq::commit_log::decode::block::Row;
use crate::rocketmq::commit_log::decode::block::{Block, Known, decoded};
use crate::rocketmq::commit_log::decode::body::BodyDecoder;
use crate::rocketmq::commit_log::decode::column_builder::ColumnBuilder;
use crate::rocketmq::commit_log::decode::columns::{self, Column};
use crate::rocketmq::commit_log::decode::search::Search;
use crate::rocketmq::commit_log::frame::COMPRESSED;

/// Limit of a column's 32-bit offsets, with a margin.
const MOST_BYTES: usize = 2_000_000_000;

/// The content of the body column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bodies {
    /// The body as the producer sent it. If it cannot be decoded, it is null, with a reason.
    Decoded,
    /// The body as stored in the log, which may be compressed.
    Stored,
}

/// Builds record batches from messages.
#[derive(Debug)]
pub(crate) struct BatchBuilder {
    schema: SchemaRef,
    columns: Vec<(Column, ColumnBuilder)>,
    body: Option<usize>,
    bodies: Bodies,
    decoder: BodyDecoder,
    known: Known,
    wants_properties: bool,
    wants_hosts: bool,
    wants_body: bool,
    search: Option<Search>,
    most_bytes: usize,
    rows: usize,
    bytes: usize,
}

impl BatchBuilder {
    pub(crate) fn new(columns: &[Column], bodies: Bodies, max_body_bytes: usize) -> Self {
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
            search: None,
            most_bytes: BatchSize::MOST_BYTES,
            rows: 0,
            bytes: 0,
        }
    }

    /// Adds only messages in which a search finds its pattern.
    pub(crate) fn searching(mut self, search: Option<&Search>) -> Self {
        self.search = search.cloned();
        self
    }

    /// Sets the size limit.
    pub(crate) fn of_bytes(mut self, bytes: usize) -> Self {
        self.most_bytes = bytes;
        self
    }

    /// Raises the size limit to the maximum of a batch.
    pub(crate) fn unbounded(mut self) -> Self {
        self.most_bytes = MOST_BYTES;
        self
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of the rows, by the estimate that the size limit applies to.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds messages and returns how many were handled: added, or without the searched pattern.
    ///
    /// If the batch is full, this is fewer than all, and the batch must be taken first.
    pub(crate) fn append(&mut self, rows: &[Row<'_>]) -> usize {
        let Some(search) = &self.search else { return self.append_all(rows) };
        let (mut wanted, mut numbers) = (Vec::new(), Vec::new());
        for (number, row) in rows.iter().enumerate() {
            if search.wants(row, &mut self.decoder) {
                wanted.push(*row);
                numbers.push(number);
            }
        }
        let added = if wanted.is_empty() { 0 } else { self.append_all(&wanted) };
        numbers.get(added).copied().unwrap_or(rows.len())
    }

    fn append_all(&mut self, rows: &[Row<'_>]) -> usize {
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

    /// Counts the bytes of the rows, adds their bodies, and returns how many rows fit.
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

    /// Adds the bodies of a block that has compressed ones.
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

    /// Counts the bytes of a row that is added after `others` rows, unless the batch is full.
    #[inline]
    fn finds_room(&mut self, row: &Row<'_>, others: usize, body: usize) -> bool {
        // An upper bound: fixed fields, hosts and id, and each property at most twice.
        let properties = if self.wants_properties { 2 * row.frame.properties().len() } else { 0 };
        let fixed = if self.wants_hosts { 384 } else { 160 };
        let bytes = self.bytes.saturating_add(fixed + 3 * (row.frame.topic().len() + properties) + body);
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

    /// Adds a row that has only an offset. It always fits.
    pub(crate) fn append_missing(&mut self, phy_offset: Option<i64>) {
        for (column, builder) in &mut self.columns {
            match builder {
                ColumnBuilder::Int64(b) if *column == Column::PhyOffset => b.append_option(phy_offset),
                other => other.append_null(),
            }
        }
        self.rows += 1;
    }

    /// Returns the rows added since the last batch.
    pub(crate) fn take(&mut self) -> RecordBatch {
        let arrays = self.columns.iter_mut().map(|(column, builder)| builder.finish(*column)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        (self.rows, self.bytes) = (0, 0);
        RecordBatch::try_new_with_options(self.schema(), arrays, &options)
            .expect("the builders make the columns of the schema, one row each for every row that was counted")
    }
}
