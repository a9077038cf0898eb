//! Column builders. Each one adds one field of all messages of a block.

use std::iter;
use std::sync::Arc;

use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array as _, ArrayRef, MapArray, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer};
use arrow_schema::{DataType, Field};

use crate::arrow::columns::ByteColumn;
use crate::arrow::columns::NumberColumn;
use crate::arrow::columns::Piece;
use crate::arrow::columns::Recycled;
use crate::java_text::decode_utf8;
use crate::rocketmq::commit_log::decode::block::Block;
use crate::rocketmq::commit_log::decode::columns::{self, Column};
use crate::rocketmq::commit_log::decode::text;
use crate::rocketmq::commit_log::frame::Frame;
use crate::rocketmq::commit_log::frame::properties::Entry;

/// Builder of one column.
#[derive(Debug)]
pub(crate) enum ColumnBuilder {
    Int32(NumberColumn<Int32Type>),
    Int64(NumberColumn<Int64Type>),
    Time(NumberColumn<TimestampMillisecondType>),
    Text(ByteColumn),
    Bytes(ByteColumn),
    Map(Box<Map>),
}

/// Names and values of the properties.
#[derive(Debug)]
pub(crate) struct Map {
    names: ByteColumn,
    values: ByteColumn,
    /// End of each row.
    ends: Recycled<i32>,
    nulls: NullBufferBuilder,
}

impl ColumnBuilder {
    pub(crate) fn new(column: Column) -> Self {
        match column.data_type() {
            DataType::Int32 => Self::Int32(NumberColumn::new()),
            DataType::Int64 => Self::Int64(NumberColumn::new()),
            DataType::Binary => Self::Bytes(ByteColumn::new()),
            DataType::Utf8 => Self::Text(ByteColumn::new()),
            DataType::Map(_, _) => Self::Map(Box::new(Map {
                names: ByteColumn::new(),
                values: ByteColumn::new(),
                ends: Recycled::new(),
                nulls: NullBufferBuilder::new(0),
            })),
            _ => Self::Time(NumberColumn::new()),
        }
    }

    pub(crate) fn append_null(&mut self) {
        match self {
            Self::Int32(b) => b.append_option(None),
            Self::Int64(b) => b.append_option(None),
            Self::Time(b) => b.append_option(None),
            Self::Text(b) | Self::Bytes(b) => b.extend_optional(iter::once(None)),
            Self::Map(b) => b.append_null(),
        }
    }

    /// Adds the values of `column` for the block's messages. Bodies are added elsewhere.
    pub(crate) fn append(&mut self, column: Column, block: &Block<'_>) {
        match column {
            Column::Topic => self.texts(|b| append_topics(b, block)),
            Column::QueueId => self.int32s(block, Frame::queue_id),
            Column::QueueOffset => self.int64s(block, Frame::queue_offset),
            Column::PhyOffset => {
                if let Self::Int64(b) = self {
                    b.extend(block.rows.iter().map(|row| row.place.phy_offset.cast_signed()));
                }
            }
            Column::StoreTimestamp => self.times(block, Frame::store_timestamp),
            Column::BornTimestamp => self.times(block, Frame::born_timestamp),
            Column::MsgId => self.texts(|b| append_msg_ids(b, block)),
            Column::UniqKey => self.texts(|b| append_property(b, block, 0)),
            Column::Tags => self.texts(|b| append_property(b, block, 1)),
            Column::Keys => self.texts(|b| append_property(b, block, 2)),
            Column::Body => {}
            Column::Properties => {
                if let Self::Map(b) = self {
                    b.append(block);
                }
            }
            Column::Flag => self.int32s(block, Frame::flag),
            Column::SysFlag => self.int32s(block, Frame::sys_flag),
            Column::StoreSize => self.int32s(block, Frame::store_size),
            Column::BodyCrc => self.int32s(block, Frame::body_crc),
            Column::ReconsumeTimes => self.int32s(block, Frame::reconsume_times),
            Column::PreparedTransactionOffset => self.int64s(block, Frame::prepared_transaction_offset),
            Column::BornHost => {
                self.texts(|b| b.extend(block.hosts.iter().map(|[born, _]| block.host(*born).text())));
            }
            Column::StoreHost => {
                self.texts(|b| b.extend(block.hosts.iter().map(|[_, store]| block.host(*store).text())));
            }
            Column::BodyError => self.texts(|b| append_body_errors(b, block)),
            Column::Suspect => self.texts(|b| append_suspects(b, block)),
        }
    }

    fn int32s<'a>(&mut self, block: &Block<'a>, field: impl Fn(&Frame<'a>) -> i32) {
        if let Self::Int32(b) = self {
            numbers(b, block, field);
        }
    }

    fn int64s<'a>(&mut self, block: &Block<'a>, field: impl Fn(&Frame<'a>) -> i64) {
        if let Self::Int64(b) = self {
            numbers(b, block, field);
        }
    }

    fn times<'a>(&mut self, block: &Block<'a>, field: impl Fn(&Frame<'a>) -> i64) {
        if let Self::Time(b) = self {
            numbers(b, block, field);
        }
    }

    fn texts(&mut self, append: impl FnOnce(&mut ByteColumn)) {
        if let Self::Text(b) = self {
            append(b);
        }
    }

    pub(crate) fn finish(&mut self, column: Column) -> ArrayRef {
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
    column: &mut NumberColumn<P>,
    block: &Block<'a>,
    field: impl Fn(&Frame<'a>) -> P::Native,
) {
    column.extend(block.rows.iter().map(|row| field(&row.frame)));
}

impl Map {
    fn append(&mut self, block: &Block<'_>) {
        let before = self.names.len();
        self.names.extend_rows(block.properties.iter().filter_map(|of_row| Some(block.names(of_row)?.joined())));
        self.values.extend(block.entries.iter().map(Entry::value));
        self.ends.extend(block.properties.iter().map(|of_row| end(before + of_row.end)));
        self.nulls.append_n_non_nulls(block.properties.len());
    }

    fn append_null(&mut self) {
        self.ends.extend(iter::once(end(self.names.len())));
        self.nulls.append_null();
    }

    fn finish(&mut self) -> MapArray {
        let ends = self.ends.finish();
        let offsets: Vec<i32> = iter::once(0).chain(ends.iter().copied()).collect();
        let fields = columns::map_fields();
        let columns: Vec<ArrayRef> = vec![Arc::new(self.names.finish_text()), Arc::new(self.values.finish_text())];
        let entries = StructArray::new(fields.to_vec().into(), columns, None);
        let field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
        MapArray::new(field, OffsetBuffer::new(offsets.into()), entries, self.nulls.finish(), false)
    }
}

fn end(entries: usize) -> i32 {
    i32::try_from(entries).unwrap_or(i32::MAX)
}

fn append_property(texts: &mut ByteColumn, block: &Block<'_>, which: usize) {
    texts.extend_optional(block.properties.iter().map(|of_row| block.value(of_row, which)));
}

fn append_topics(texts: &mut ByteColumn, block: &Block<'_>) {
    let before = texts.len();
    texts.extend(block.rows.iter().map(|row| row.frame.topic_piece()));
    if !texts.content_from(before).is_ascii() {
        texts.truncate(before);
        for row in block.rows {
            texts.extend(iter::once(Piece::whole(decode_utf8(row.frame.topic()).as_bytes())));
        }
    }
}

fn append_msg_ids(texts: &mut ByteColumn, block: &Block<'_>) {
    texts.extend_joined(block.rows.iter().zip(&block.hosts).map(|(row, [_, store])| {
        let mut digits = [0; 32];
        let hex = text::hex(row.place.phy_offset);
        if let Some(to) = digits.first_chunk_mut() {
            *to = hex;
        }
        (block.host(*store).hex(), digits, hex.len())
    }));
}

fn append_body_errors(texts: &mut ByteColumn, block: &Block<'_>) {
    if block.body_errors.is_empty() {
        texts.extend_nulls(block.rows.len());
    } else {
        texts.extend_optional(block.body_errors.iter().map(|e| e.as_ref().map(|e| Piece::whole(e.as_bytes()))));
    }
}

fn append_suspects(texts: &mut ByteColumn, block: &Block<'_>) {
    for row in block.rows {
        let words = row.suspect.words();
        texts.extend_optional(iter::once(words.as_ref().map(|words| Piece::whole(words.as_bytes()))));
    }
}
