//! The columns of a batch, in their fixed order, and their builders. Names are those of the broker's dump tool.

use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BooleanBuilder, Int32Builder, Int64Builder, ListBuilder, StringBuilder, TimestampMillisecondBuilder,
};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::record_columns::{choose, timestamp_type};
use crate::error::Result;
use crate::kafka::format::codec::Codec;
use crate::kafka::format::header::Header;

/// One column of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Byte offset in the log.
    Position,
    /// Bytes.
    Size,
    /// Format.
    Magic,
    /// Offset of the first record's slot; null for a legacy wrapper that cannot be decompressed.
    BaseOffset,
    /// Offset of the last record's slot.
    LastOffset,
    /// Records that it says it has; null for magic 0 and 1.
    Count,
    /// Checksum as stored.
    Crc,
    /// Whether it is that of the bytes; null when it was not compared.
    IsValid,
    /// Name of the compression; null where there is none of that number.
    Compression,
    /// Its number.
    CompressionId,
    /// Whose time: 0 the producer's, 1 the append's, -1 none.
    TimestampType,
    /// What record timestamps are relative to; null for magic 0 and 1.
    BaseTimestamp,
    /// The largest timestamp.
    MaxTimestamp,
    /// -1: none.
    ProducerId,
    /// -1: none.
    ProducerEpoch,
    /// -1: none.
    BaseSequence,
    /// -1: none.
    LastSequence,
    /// -1: unknown.
    PartitionLeaderEpoch,
    /// SegmentRange of a transaction.
    IsTransactional,
    /// Markers of the broker.
    IsControl,
    /// When compaction may remove its tombstones; null: not set.
    DeleteHorizonMs,
    /// What the markers of a control batch are; null for others.
    ControlTypes,
}

impl Column {
    /// All columns in their order.
    pub const ALL: [Self; 22] = [
        Self::Position,
        Self::Size,
        Self::Magic,
        Self::BaseOffset,
        Self::LastOffset,
        Self::Count,
        Self::Crc,
        Self::IsValid,
        Self::Compression,
        Self::CompressionId,
        Self::TimestampType,
        Self::BaseTimestamp,
        Self::MaxTimestamp,
        Self::ProducerId,
        Self::ProducerEpoch,
        Self::BaseSequence,
        Self::LastSequence,
        Self::PartitionLeaderEpoch,
        Self::IsTransactional,
        Self::IsControl,
        Self::DeleteHorizonMs,
        Self::ControlTypes,
    ];

    /// The column's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Position => "position",
            Self::Size => "size",
            Self::Magic => "magic",
            Self::BaseOffset => "baseOffset",
            Self::LastOffset => "lastOffset",
            Self::Count => "count",
            Self::Crc => "crc",
            Self::IsValid => "isValid",
            Self::Compression => "compression",
            Self::CompressionId => "compressionId",
            Self::TimestampType => "timestampType",
            Self::BaseTimestamp => "baseTimestamp",
            Self::MaxTimestamp => "maxTimestamp",
            Self::ProducerId => "producerId",
            Self::ProducerEpoch => "producerEpoch",
            Self::BaseSequence => "baseSequence",
            Self::LastSequence => "lastSequence",
            Self::PartitionLeaderEpoch => "partitionLeaderEpoch",
            Self::IsTransactional => "isTransactional",
            Self::IsControl => "isControl",
            Self::DeleteHorizonMs => "deleteHorizonMs",
            Self::ControlTypes => "controlTypes",
        }
    }

    /// The column's Arrow type.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Position | Self::BaseOffset | Self::LastOffset | Self::Crc | Self::ProducerId => DataType::Int64,
            Self::BaseTimestamp | Self::MaxTimestamp | Self::DeleteHorizonMs => timestamp_type(),
            Self::IsValid | Self::IsTransactional | Self::IsControl => DataType::Boolean,
            Self::Compression => DataType::Utf8,
            Self::ControlTypes => DataType::List(Arc::new(Field::new("item", DataType::Utf8, true))),
            _ => DataType::Int32,
        }
    }

    /// The columns of these names, in the order given; all columns where none are given.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is unknown or comes twice.
    pub fn choose<S: AsRef<str>>(names: Option<&[S]>) -> Result<Vec<Self>> {
        let all: Vec<_> = Self::ALL.iter().map(|column| (column.name(), *column)).collect();
        names.map_or(Ok(Self::ALL.to_vec()), |names| choose(names, &all, "batch"))
    }
}

/// The schema of these columns; all of them can be null.
pub fn schema(columns: &[Column]) -> SchemaRef {
    let fields: Vec<Field> = columns.iter().map(|c| Field::new(c.name(), c.data_type(), true)).collect();
    Arc::new(Schema::new(fields))
}

/// Builder of one column.
#[derive(Debug)]
enum Builder {
    Int32(Int32Builder),
    Int64(Int64Builder),
    Time(TimestampMillisecondBuilder),
    Flag(BooleanBuilder),
    Text(StringBuilder),
    Texts(ListBuilder<StringBuilder>),
}

impl Builder {
    fn new(column: Column) -> Self {
        match column.data_type() {
            DataType::Int32 => Self::Int32(Int32Builder::new()),
            DataType::Int64 => Self::Int64(Int64Builder::new()),
            DataType::Boolean => Self::Flag(BooleanBuilder::new()),
            DataType::Utf8 => Self::Text(StringBuilder::new()),
            DataType::List(_) => Self::Texts(ListBuilder::new(StringBuilder::new())),
            kind => Self::Time(TimestampMillisecondBuilder::new().with_data_type(kind)),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Int32(b) => ArrayBuilder::finish(b),
            Self::Int64(b) => ArrayBuilder::finish(b),
            Self::Time(b) => ArrayBuilder::finish(b),
            Self::Flag(b) => ArrayBuilder::finish(b),
            Self::Text(b) => ArrayBuilder::finish(b),
            Self::Texts(b) => ArrayBuilder::finish(b),
        }
    }
}

/// What a row says beyond the head of its batch.
#[derive(Debug, Default)]
pub(crate) struct Details<'a> {
    pub(crate) base_offset: Option<i64>,
    pub(crate) is_valid: Option<bool>,
    pub(crate) control_types: Option<&'a [&'static str]>,
}

/// Takes heads of batches and gives record batches.
#[derive(Debug)]
pub(crate) struct BatchColumns {
    schema: SchemaRef,
    columns: Vec<(Column, Builder)>,
    rows: usize,
}

impl BatchColumns {
    pub(crate) fn new(columns: &[Column]) -> Self {
        Self { schema: schema(columns), columns: columns.iter().map(|c| (*c, Builder::new(*c))).collect(), rows: 0 }
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn append(&mut self, header: &Header, details: &Details<'_>) {
        for (column, builder) in &mut self.columns {
            match builder {
                Builder::Int32(b) => b.append_option(match column {
                    Column::Size => Some(i32::try_from(header.size).unwrap_or(i32::MAX)),
                    Column::Magic => Some(i32::from(header.magic)),
                    Column::Count => header.count,
                    Column::CompressionId => Some(i32::from(header.codec_id())),
                    Column::TimestampType => Some(header.timestamp_type().id()),
                    Column::ProducerEpoch => Some(i32::from(header.producer_epoch)),
                    Column::BaseSequence => Some(header.base_sequence),
                    Column::LastSequence => Some(header.last_sequence()),
                    _ => Some(header.leader_epoch),
                }),
                Builder::Int64(b) => b.append_option(match column {
                    Column::Position => i64::try_from(header.position).ok(),
                    Column::BaseOffset => details.base_offset,
                    Column::LastOffset => Some(header.last_offset),
                    Column::Crc => Some(i64::from(header.crc)),
                    _ => Some(header.producer_id),
                }),
                Builder::Time(b) => b.append_option(match column {
                    Column::BaseTimestamp => (!header.is_legacy()).then_some(header.base_timestamp),
                    Column::DeleteHorizonMs => header.delete_horizon(),
                    _ => Some(header.max_timestamp),
                }),
                Builder::Flag(b) => b.append_option(match column {
                    Column::IsValid => details.is_valid,
                    Column::IsControl => Some(header.is_control()),
                    _ => Some(header.is_transactional()),
                }),
                Builder::Text(b) => b.append_option(Codec::from_id(header.codec_id()).map(Codec::name)),
                Builder::Texts(b) => match details.control_types {
                    Some(types) => b.append_value(types.iter().map(Some)),
                    None => b.append_null(),
                },
            }
        }
        self.rows += 1;
    }

    /// What was added since the last batch was taken.
    pub(crate) fn take(&mut self) -> RecordBatch {
        let arrays = self.columns.iter_mut().map(|(_, builder)| builder.finish()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        RecordBatch::try_new_with_options(self.schema(), arrays, &options)
            .expect("every column has the rows and the type of the schema")
    }
}
