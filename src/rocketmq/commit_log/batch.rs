//! Messages to Arrow: one builder for each column that was asked for.

use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, Int32Builder, Int64Builder, MapBuilder, MapFieldNames, StringBuilder,
    TimestampMillisecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, SchemaRef};

use super::body::BodyDecoder;
use super::columns::{self, Column};
use super::frame::Frame;
use super::properties;
use super::scan::Place;
use super::text::{self, HostText};
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

/// Builder of one column.
#[derive(Debug)]
enum Builder {
    Int32(Int32Builder),
    Int64(Int64Builder),
    Time(TimestampMillisecondBuilder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Map(Box<MapBuilder<StringBuilder, StringBuilder>>),
}

impl Builder {
    fn new(column: Column) -> Self {
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

    fn append_null(&mut self) {
        match self {
            Self::Int32(b) => b.append_null(),
            Self::Int64(b) => b.append_null(),
            Self::Time(b) => b.append_null(),
            Self::Text(b) => b.append_null(),
            Self::Bytes(b) => b.append_null(),
            Self::Map(b) => append_map(b, false),
        }
    }

    fn finish(&mut self) -> ArrayRef {
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

/// Takes messages and gives record batches.
pub(super) struct BatchBuilder {
    schema: SchemaRef,
    columns: Vec<(Column, Builder)>,
    bodies: Bodies,
    decoder: BodyDecoder,
    born: HostText,
    store: HostText,
    msg_id: String,
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
            columns: columns.iter().map(|c| (*c, Builder::new(*c))).collect(),
            bodies,
            decoder: BodyDecoder::new(max_body_bytes),
            born: HostText::default(),
            store: HostText::default(),
            msg_id: String::new(),
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

    /// Adds a message. False, and nothing is added, when the batch is full of bytes: it must be taken first.
    pub(super) fn append(&mut self, frame: &Frame<'_>, place: Place<'_>) -> bool {
        let body = match (self.wants_body, self.bodies) {
            (false, _) => Ok(&[][..]),
            (true, Bodies::Stored) => Ok(frame.stored_body()),
            (true, Bodies::Decoded) => self.decoder.decode(frame.stored_body(), frame.sys_flag()),
        };
        let topic = decode_utf8(frame.topic());
        let text = if self.wants_properties { decode_utf8(frame.properties()) } else { "".into() };
        // An estimate from above: fixed fields, hosts and id, and every property at most twice.
        let room = 256 + topic.len() + 2 * text.len() + body.as_ref().map_or(256, |b| b.len());
        if self.rows > 0 && self.bytes.saturating_add(room) > self.most_bytes {
            return false;
        }
        let entries = properties::parse(&text);
        let property = |name: &str| entries.iter().find(|(n, _)| *n == name).map(|(_, value)| *value);
        let phy_offset = place.phy_offset.cast_signed();
        let mut bytes = 0;
        for (column, builder) in &mut self.columns {
            bytes += match (builder, column) {
                (Builder::Int32(b), column) => {
                    b.append_value(match column {
                        Column::QueueId => frame.queue_id(),
                        Column::Flag => frame.flag(),
                        Column::SysFlag => frame.sys_flag(),
                        Column::StoreSize => frame.store_size(),
                        Column::BodyCrc => frame.body_crc(),
                        _ => frame.reconsume_times(),
                    });
                    4
                }
                (Builder::Int64(b), column) => {
                    b.append_value(match column {
                        Column::QueueOffset => frame.queue_offset(),
                        Column::PhyOffset => phy_offset,
                        _ => frame.prepared_transaction_offset(),
                    });
                    8
                }
                (Builder::Time(b), column) => {
                    b.append_value(match column {
                        Column::StoreTimestamp => frame.store_timestamp(),
                        _ => frame.born_timestamp(),
                    });
                    8
                }
                (Builder::Bytes(b), _) => {
                    b.append_option(body.as_ref().ok());
                    4 + body.as_ref().map_or(0, |body| body.len())
                }
                (Builder::Map(b), _) => {
                    for (name, value) in &entries {
                        b.keys().append_value(name);
                        b.values().append_value(value);
                    }
                    append_map(b, true);
                    4 + 8 * entries.len() + text.len()
                }
                (Builder::Text(b), Column::BodyError) => {
                    let error = body.as_ref().err().map(|e| place.body_error(e));
                    b.append_option(error.as_ref());
                    4 + error.map_or(0, |e| e.len())
                }
                (Builder::Text(b), column) => {
                    let value = match column {
                        Column::Topic => Some(topic.as_ref()),
                        Column::MsgId => {
                            text::write_msg_id(frame.store_host(), place.phy_offset, &mut self.msg_id);
                            Some(self.msg_id.as_str())
                        }
                        Column::BornHost => Some(self.born.of(frame.born_host())),
                        Column::StoreHost => Some(self.store.of(frame.store_host())),
                        Column::UniqKey => property(properties::UNIQ_KEY),
                        Column::Tags => property(properties::TAGS),
                        _ => property(properties::KEYS),
                    };
                    b.append_option(value);
                    4 + value.map_or(0, str::len)
                }
            };
        }
        self.rows += 1;
        self.bytes += bytes;
        true
    }

    /// Adds a row that has only an offset. Always finds room.
    pub(super) fn append_missing(&mut self, phy_offset: Option<i64>) {
        for (column, builder) in &mut self.columns {
            match builder {
                Builder::Int64(b) if *column == Column::PhyOffset => b.append_option(phy_offset),
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
