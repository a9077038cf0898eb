//! Builders of the columns: each adds one field of every message of a block.

use std::sync::Arc;

use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array as _, ArrayRef, MapArray, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};

use super::batch::Block;
use super::buffers::{Bytes, Numbers};
use super::columns::{self, Column};
use super::frame::Frame;
use super::text::{self, HostTexts};
use crate::java_text::decode_utf8;

/// Builder of one column.
#[derive(Debug)]
pub(super) enum ColumnBuilder {
    Int32(Numbers<Int32Type>),
    Int64(Numbers<Int64Type>),
    Time(Numbers<TimestampMillisecondType>),
    Text(Bytes),
    Bytes(Bytes),
    Map(Box<Map>),
}

/// Names and values of the properties.
#[derive(Debug)]
pub(super) struct Map {
    names: Bytes,
    values: Bytes,
    offsets: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl ColumnBuilder {
    pub(super) fn new(column: Column) -> Self {
        match column.data_type() {
            DataType::Int32 => Self::Int32(Numbers::new()),
            DataType::Int64 => Self::Int64(Numbers::new()),
            DataType::Binary => Self::Bytes(Bytes::new()),
            DataType::Utf8 => Self::Text(Bytes::new()),
            DataType::Map(_, _) => Self::Map(Box::new(Map {
                names: Bytes::new(),
                values: Bytes::new(),
                offsets: vec![0],
                nulls: NullBufferBuilder::new(0),
            })),
            _ => Self::Time(Numbers::new()),
        }
    }

    pub(super) fn append_null(&mut self) {
        match self {
            Self::Int32(b) => b.append_option(None),
            Self::Int64(b) => b.append_option(None),
            Self::Time(b) => b.append_option(None),
            Self::Text(b) | Self::Bytes(b) => b.append_null(),
            Self::Map(b) => b.end_row(false),
        }
    }

    /// Adds what `column` holds of the block's messages. Bodies are added elsewhere.
    pub(super) fn append(&mut self, column: Column, block: &Block<'_>, hosts: &mut HostTexts) {
        match (self, column) {
            (Self::Int32(b), Column::QueueId) => numbers(b, block, Frame::queue_id),
            (Self::Int32(b), Column::Flag) => numbers(b, block, Frame::flag),
            (Self::Int32(b), Column::SysFlag) => numbers(b, block, Frame::sys_flag),
            (Self::Int32(b), Column::StoreSize) => numbers(b, block, Frame::store_size),
            (Self::Int32(b), Column::BodyCrc) => numbers(b, block, Frame::body_crc),
            (Self::Int32(b), _) => numbers(b, block, Frame::reconsume_times),
            (Self::Int64(b), Column::QueueOffset) => numbers(b, block, Frame::queue_offset),
            (Self::Int64(b), Column::PhyOffset) => {
                b.extend(block.rows.iter().map(|row| row.place.phy_offset.cast_signed()));
            }
            (Self::Int64(b), _) => numbers(b, block, Frame::prepared_transaction_offset),
            (Self::Time(b), Column::StoreTimestamp) => numbers(b, block, Frame::store_timestamp),
            (Self::Time(b), _) => numbers(b, block, Frame::born_timestamp),
            (Self::Map(b), _) => b.append(block),
            (Self::Text(b), column) => append_texts(b, column, block, hosts),
            (Self::Bytes(_), _) => {}
        }
    }

    pub(super) fn finish(&mut self, column: Column) -> ArrayRef {
        match self {
            Self::Int32(b) => b.finish(&column.data_type()),
            Self::Int64(b) => b.finish(&column.data_type()),
            Self::Time(b) => b.finish(&column.data_type()),
            Self::Text(b) => Arc::new(b.finish_text()),
            Self::Bytes(b) => Arc::new(b.finish_binary()),
            Self::Map(b) => Arc::new(b.finish()),
        }
    }
}

#[inline]
fn numbers<'a, P: arrow_array::ArrowPrimitiveType>(
    column: &mut Numbers<P>,
    block: &Block<'a>,
    field: impl Fn(&Frame<'a>) -> P::Native,
) {
    column.extend(block.rows.iter().map(|row| field(&row.frame)));
}

impl Map {
    fn append(&mut self, block: &Block<'_>) {
        for (row, properties) in block.rows.iter().zip(&block.properties) {
            let (bytes, base) = properties.bytes(&row.frame);
            for entry in properties.of(block.entries) {
                self.names.append(bytes, base + entry.name.start, entry.name.len());
                self.values.append(bytes, base + entry.value.start, entry.value.len());
            }
            self.end_row(true);
        }
    }

    fn end_row(&mut self, valid: bool) {
        self.nulls.append(valid);
        self.offsets.push(i32::try_from(self.names.len()).unwrap_or(i32::MAX));
    }

    fn finish(&mut self) -> MapArray {
        let offsets = std::mem::replace(&mut self.offsets, vec![0]);
        let fields = columns::map_fields();
        let columns: Vec<ArrayRef> = vec![Arc::new(self.names.finish_text()), Arc::new(self.values.finish_text())];
        let entries = StructArray::new(fields.to_vec().into(), columns, None);
        let field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        MapArray::new(field, offsets, entries, self.nulls.finish(), false)
    }
}

fn append_property(texts: &mut Bytes, block: &Block<'_>, which: usize) {
    for (row, properties) in block.rows.iter().zip(&block.properties) {
        let entry = properties.known.get(which).copied().flatten();
        match entry.and_then(|entry| properties.of(block.entries).get(entry)) {
            Some(entry) => {
                let (bytes, base) = properties.bytes(&row.frame);
                texts.append(bytes, base + entry.value.start, entry.value.len());
            }
            None => texts.append_null(),
        }
    }
}

fn append_text(texts: &mut Bytes, text: Option<&str>) {
    match text {
        Some(text) => texts.append(text.as_bytes(), 0, text.len()),
        None => texts.append_null(),
    }
}

fn append_texts(texts: &mut Bytes, column: Column, block: &Block<'_>, hosts: &mut HostTexts) {
    let rows = block.rows.iter();
    match column {
        Column::Topic => rows.for_each(|row| {
            let topic = row.frame.topic();
            if topic.is_ascii() {
                texts.append(row.frame.bytes(), row.frame.topic_at(), topic.len());
            } else {
                append_text(texts, Some(&decode_utf8(topic)));
            }
        }),
        Column::UniqKey => append_property(texts, block, 0),
        Column::Tags => append_property(texts, block, 1),
        Column::Keys => append_property(texts, block, 2),
        Column::BornHost => rows.for_each(|row| append_text(texts, Some(&hosts.of(row.frame.born_host()).text))),
        Column::StoreHost => rows.for_each(|row| append_text(texts, Some(&hosts.of(row.frame.store_host()).text))),
        Column::MsgId => rows.for_each(|row| {
            let host = &hosts.of(row.frame.store_host()).hex;
            texts.write(host.as_bytes(), 0, host.len());
            let offset = text::hex(row.place.phy_offset);
            texts.append(&offset, 0, offset.len());
        }),
        Column::BodyError => block.body_errors.iter().for_each(|error| append_text(texts, error.as_deref())),
        Column::Suspect => rows.for_each(|row| append_text(texts, row.suspect.words().as_deref())),
        _ => {}
    }
}
