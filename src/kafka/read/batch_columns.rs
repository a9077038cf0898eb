//! The columns of batch headers, in their fixed order, and their builders. Names are those of the broker's dump tool.

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
    /// Length in bytes.
    Size,
    /// Format.
    Magic,
    /// Offset of the first record; null for a legacy wrapper that cannot be decompressed.
    BaseOffset,
    /// Offset of the last record.
    LastOffset,
    /// Number of records that the header states; null for magic 0 and 1.
    Count,
    /// Checksum as stored.
    Crc,
    /// True if the checksum is right; null if it was not compared.
    IsValid,
    /// Name of the codec; null for an unknown number.
    Compression,
    /// Number of the codec.
    CompressionId,
    /// The clock of timestamps: 0 the producer's, 1 the broker's, -1 none.
    TimestampType,
    /// The base of record timestamps; null for magic 0 and 1.
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
    /// True if it is part of a transaction.
    IsTransactional,
    /// True if its records are control records.
    IsControl,
    /// Time from which compaction may remove its tombstones; null: not set.
    DeleteHorizonMs,
    /// Types of the records of a control batch; null for other batches.
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

    /// Returns how the column is read from a batch. Its Arrow type follows from that.
    fn source(self) -> Source {
        use Source::{Flag, Int32, Int64, Text, Texts, Time};
        match self {
            Self::Position => Int64(|row| i64::try_from(row.header.position).ok()),
            Self::Size => Int32(|row| Some(i32::try_from(row.header.size).unwrap_or(i32::MAX))),
            Self::Magic => Int32(|row| Some(i32::from(row.header.magic))),
            Self::BaseOffset => Int64(|row| row.details.base_offset),
            Self::LastOffset => Int64(|row| Some(row.header.last_offset)),
            Self::Count => Int32(|row| row.header.count),
            Self::Crc => Int64(|row| Some(i64::from(row.header.crc))),
            Self::IsValid => Flag(|row| row.details.is_valid),
            Self::Compression => Text(|row| Codec::from_id(row.header.codec_id()).map(Codec::name)),
            Self::CompressionId => Int32(|row| Some(i32::from(row.header.codec_id()))),
            Self::TimestampType => Int32(|row| Some(row.header.timestamp_type().id())),
            Self::BaseTimestamp => Time(|row| (!row.header.is_legacy()).then_some(row.header.base_timestamp)),
            Self::MaxTimestamp => Time(|row| Some(row.header.max_timestamp)),
            Self::ProducerId => Int64(|row| Some(row.header.producer_id)),
            Self::ProducerEpoch => Int32(|row| Some(i32::from(row.header.producer_epoch))),
            Self::BaseSequence => Int32(|row| Some(row.header.base_sequence)),
            Self::LastSequence => Int32(|row| Some(row.header.last_sequence())),
            Self::PartitionLeaderEpoch => Int32(|row| Some(row.header.leader_epoch)),
            Self::IsTransactional => Flag(|row| Some(row.header.is_transactional())),
            Self::IsControl => Flag(|row| Some(row.header.is_control())),
            Self::DeleteHorizonMs => Time(|row| row.header.delete_horizon()),
            Self::ControlTypes => Texts(|row| row.details.control_types),
        }
    }

    /// The column's Arrow type.
    pub fn data_type(self) -> DataType {
        match self.source() {
            Source::Int32(_) => DataType::Int32,
            Source::Int64(_) => DataType::Int64,
            Source::Time(_) => timestamp_type(),
            Source::Flag(_) => DataType::Boolean,
            Source::Text(_) => DataType::Utf8,
            Source::Texts(_) => DataType::List(Arc::new(Field::new("item", DataType::Utf8, true))),
        }
    }

    /// Returns the columns of these names, in their order; all columns without names.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown or a repeated name.
    pub fn choose<S: AsRef<str>>(names: Option<&[S]>) -> Result<Vec<Self>> {
        let all: Vec<_> = Self::ALL.iter().map(|column| (column.name(), *column)).collect();
        names.map_or(Ok(Self::ALL.to_vec()), |names| choose(names, &all, "batch"))
    }
}

/// Returns the schema of these columns; all are nullable.
pub fn schema(columns: &[Column]) -> SchemaRef {
    let fields: Vec<Field> = columns.iter().map(|c| Field::new(c.name(), c.data_type(), true)).collect();
    Arc::new(Schema::new(fields))
}

/// A batch, and what is known of it beyond its header.
struct Row<'a> {
    header: &'a Header,
    details: &'a Details<'a>,
}

/// The source of a column in a batch.
enum Source {
    Int32(fn(&Row<'_>) -> Option<i32>),
    Int64(fn(&Row<'_>) -> Option<i64>),
    Time(fn(&Row<'_>) -> Option<i64>),
    Flag(fn(&Row<'_>) -> Option<bool>),
    Text(fn(&Row<'_>) -> Option<&'static str>),
    Texts(for<'a> fn(&Row<'a>) -> Option<&'a [&'static str]>),
}

/// The builder of one column, and how it is read.
#[derive(Debug)]
enum Builder {
    Int32(Int32Builder, fn(&Row<'_>) -> Option<i32>),
    Int64(Int64Builder, fn(&Row<'_>) -> Option<i64>),
    Time(TimestampMillisecondBuilder, fn(&Row<'_>) -> Option<i64>),
    Flag(BooleanBuilder, fn(&Row<'_>) -> Option<bool>),
    Text(StringBuilder, fn(&Row<'_>) -> Option<&'static str>),
    Texts(ListBuilder<StringBuilder>, for<'a> fn(&Row<'a>) -> Option<&'a [&'static str]>),
}

impl Builder {
    fn new(column: Column) -> Self {
        match column.source() {
            Source::Int32(read) => Self::Int32(Int32Builder::new(), read),
            Source::Int64(read) => Self::Int64(Int64Builder::new(), read),
            Source::Time(read) => Self::Time(TimestampMillisecondBuilder::new().with_data_type(timestamp_type()), read),
            Source::Flag(read) => Self::Flag(BooleanBuilder::new(), read),
            Source::Text(read) => Self::Text(StringBuilder::new(), read),
            Source::Texts(read) => Self::Texts(ListBuilder::new(StringBuilder::new()), read),
        }
    }

    fn append(&mut self, row: &Row<'_>) {
        match self {
            Self::Int32(builder, read) => builder.append_option(read(row)),
            Self::Int64(builder, read) => builder.append_option(read(row)),
            Self::Time(builder, read) => builder.append_option(read(row)),
            Self::Flag(builder, read) => builder.append_option(read(row)),
            Self::Text(builder, read) => builder.append_option(read(row)),
            Self::Texts(builder, read) => match read(row) {
                Some(texts) => builder.append_value(texts.iter().map(Some)),
                None => builder.append_null(),
            },
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Int32(builder, _) => ArrayBuilder::finish(builder),
            Self::Int64(builder, _) => ArrayBuilder::finish(builder),
            Self::Time(builder, _) => ArrayBuilder::finish(builder),
            Self::Flag(builder, _) => ArrayBuilder::finish(builder),
            Self::Text(builder, _) => ArrayBuilder::finish(builder),
            Self::Texts(builder, _) => ArrayBuilder::finish(builder),
        }
    }
}

/// Values of a row that are not in the header of its batch.
#[derive(Debug, Default)]
pub(crate) struct Details<'a> {
    pub(crate) base_offset: Option<i64>,
    pub(crate) is_valid: Option<bool>,
    pub(crate) control_types: Option<&'a [&'static str]>,
}

/// A builder of record batches of batch headers.
#[derive(Debug)]
pub(crate) struct BatchColumns {
    schema: SchemaRef,
    columns: Vec<Builder>,
    rows: usize,
}

impl BatchColumns {
    pub(crate) fn new(columns: &[Column]) -> Self {
        Self { schema: schema(columns), columns: columns.iter().map(|column| Builder::new(*column)).collect(), rows: 0 }
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn append(&mut self, header: &Header, details: &Details<'_>) {
        let row = Row { header, details };
        for builder in &mut self.columns {
            builder.append(&row);
        }
        self.rows += 1;
    }

    /// Returns the rows, and begins again without any.
    pub(crate) fn take(&mut self) -> RecordBatch {
        let arrays = self.columns.iter_mut().map(Builder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.rows = 0;
        RecordBatch::try_new_with_options(self.schema(), arrays, &options)
            .expect("every column has the rows and the type of the schema")
    }
}
