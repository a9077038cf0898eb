//! Builders of the columns: each adds one field of every message of a block.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, Int32Builder, Int64Builder, MapBuilder, MapFieldNames, StringBuilder,
    TimestampMillisecondBuilder,
};
use arrow_array::{ArrayRef, builder};
use arrow_schema::DataType;

use super::batch::Block;
use super::columns::{self, Column};
use super::frame::Frame;
use super::properties;
use super::text::{self, HostTexts};
use crate::java_text::decode_utf8;

/// Builder of one column.
#[derive(Debug)]
pub(super) enum ColumnBuilder {
    Int32(Int32Builder),
    Int64(Int64Builder),
    Time(TimestampMillisecondBuilder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Map(Box<MapBuilder<StringBuilder, StringBuilder>>),
}

impl ColumnBuilder {
    pub(super) fn new(column: Column) -> Self {
        match column.data_type() {
            DataType::Int32 => Self::Int32(Int32Builder::new()),
            DataType::Int64 => Self::Int64(Int64Builder::new()),
            DataType::Binary => Self::Bytes(BinaryBuilder::new()),
            DataType::Utf8 => Self::Text(StringBuilder::new()),
            DataType::Map(_, _) => {
                let names =
                    MapFieldNames { entry: "entries".to_owned(), key: "key".to_owned(), value: "value".to_owned() };
                let [key, value] = columns::map_fields();
                let map = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new());
                Self::Map(Box::new(map.with_keys_field(key).with_values_field(value)))
            }
            kind => Self::Time(TimestampMillisecondBuilder::new().with_data_type(kind)),
        }
    }

    pub(super) fn append_null(&mut self) {
        match self {
            Self::Int32(b) => b.append_null(),
            Self::Int64(b) => b.append_null(),
            Self::Time(b) => b.append_null(),
            Self::Text(b) => b.append_null(),
            Self::Bytes(b) => b.append_null(),
            Self::Map(b) => append_map(b, false),
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
                block.rows.iter().for_each(|row| b.append_value(row.place.phy_offset.cast_signed()));
            }
            (Self::Int64(b), _) => numbers(b, block, Frame::prepared_transaction_offset),
            (Self::Time(b), Column::StoreTimestamp) => numbers(b, block, Frame::store_timestamp),
            (Self::Time(b), _) => numbers(b, block, Frame::born_timestamp),
            (Self::Map(b), _) => append_properties(b, block),
            (Self::Text(b), column) => append_texts(b, column, block, hosts),
            (Self::Bytes(_), _) => {}
        }
    }

    pub(super) fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Int32(b) => ArrayBuilder::finish(b),
            Self::Int64(b) => ArrayBuilder::finish(b),
            Self::Time(b) => ArrayBuilder::finish(b),
            Self::Text(b) => ArrayBuilder::finish(b),
            Self::Bytes(b) => ArrayBuilder::finish(b),
            Self::Map(b) => Arc::new(b.finish()),
        }
    }
}

fn append_map(map: &mut MapBuilder<StringBuilder, StringBuilder>, valid: bool) {
    map.append(valid).expect("keys and values are always added in pairs");
}

#[inline]
fn numbers<'a, T: arrow_array::ArrowPrimitiveType>(
    builder: &mut builder::PrimitiveBuilder<T>,
    block: &Block<'a>,
    field: impl Fn(&Frame<'a>) -> T::Native,
) {
    for row in block.rows {
        builder.append_value(field(&row.frame));
    }
}

fn append_properties(map: &mut MapBuilder<StringBuilder, StringBuilder>, block: &Block<'_>) {
    for properties in &block.properties {
        for entry in properties.of(block.entries) {
            map.keys().append_value(entry.name(&properties.text));
            map.values().append_value(entry.value(&properties.text));
        }
        append_map(map, true);
    }
}

fn append_property(texts: &mut StringBuilder, block: &Block<'_>, name: &str) {
    for properties in &block.properties {
        let entry = properties.of(block.entries).iter().find(|entry| entry.name(&properties.text) == name);
        match entry {
            Some(entry) => texts.append_value(entry.value(&properties.text)),
            None => texts.append_null(),
        }
    }
}

fn append_texts(texts: &mut StringBuilder, column: Column, block: &Block<'_>, hosts: &mut HostTexts) {
    let rows = block.rows.iter();
    match column {
        Column::Topic => rows.for_each(|row| texts.append_value(decode_utf8(row.frame.topic()))),
        Column::UniqKey => append_property(texts, block, properties::UNIQ_KEY),
        Column::Tags => append_property(texts, block, properties::TAGS),
        Column::Keys => append_property(texts, block, properties::KEYS),
        Column::BornHost => rows.for_each(|row| texts.append_value(&hosts.of(row.frame.born_host()).text)),
        Column::StoreHost => rows.for_each(|row| texts.append_value(&hosts.of(row.frame.store_host()).text)),
        Column::MsgId => rows.for_each(|row| {
            let host = &hosts.of(row.frame.store_host()).hex;
            let offset = text::hex(row.place.phy_offset);
            let written = texts.write_str(host).and_then(|()| texts.write_str(text::text_of(&offset)));
            debug_assert!(written.is_ok(), "writing to memory cannot fail");
            texts.append_value("");
        }),
        Column::BodyError => block.body_errors.iter().for_each(|error| texts.append_option(error.as_ref())),
        Column::Suspect => rows.for_each(|row| texts.append_option(row.suspect.words())),
        _ => {}
    }
}
