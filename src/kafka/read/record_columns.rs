//! The columns of a record: their names, types and fixed order.
//!
//! The first eight are those of Spark's own Kafka source, in its order. The others must be requested by name.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

use super::header_column;
use crate::error::{Error, Result};

/// One column of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Key, or null.
    Key,
    /// Value, or null.
    Value,
    /// Topic.
    Topic,
    /// Partition.
    Partition,
    /// Offset.
    Offset,
    /// Time of the producer or of the append; -1 ms if the format has none.
    Timestamp,
    /// The clock of the timestamp: 0 the producer's, 1 the broker's, -1 none.
    TimestampType,
    /// Headers, or null.
    Headers,
    /// Leader epoch of the batch; -1: unknown.
    PartitionLeaderEpoch,
    /// Producer of the batch; -1: none.
    ProducerId,
    /// Its epoch; -1: none.
    ProducerEpoch,
    /// Sequence number; -1: none.
    Sequence,
    /// True if it is part of a transaction.
    IsTransactional,
    /// True if it is a control record.
    IsControl,
    /// Format of the batch.
    Magic,
    /// Byte offset of the batch in its segment.
    BatchPosition,
    /// Checksum of a message of magic 0 or 1.
    Crc,
    /// True if that checksum is right.
    IsValid,
}

impl Column {
    /// All columns in their order.
    pub const ALL: [Self; 18] = [
        Self::Key,
        Self::Value,
        Self::Topic,
        Self::Partition,
        Self::Offset,
        Self::Timestamp,
        Self::TimestampType,
        Self::Headers,
        Self::PartitionLeaderEpoch,
        Self::ProducerId,
        Self::ProducerEpoch,
        Self::Sequence,
        Self::IsTransactional,
        Self::IsControl,
        Self::Magic,
        Self::BatchPosition,
        Self::Crc,
        Self::IsValid,
    ];
    /// Number of columns that are read by default.
    const DEFAULT: usize = 8;

    /// The column's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Value => "value",
            Self::Topic => "topic",
            Self::Partition => "partition",
            Self::Offset => "offset",
            Self::Timestamp => "timestamp",
            Self::TimestampType => "timestampType",
            Self::Headers => "headers",
            Self::PartitionLeaderEpoch => "partitionLeaderEpoch",
            Self::ProducerId => "producerId",
            Self::ProducerEpoch => "producerEpoch",
            Self::Sequence => "sequence",
            Self::IsTransactional => "isTransactional",
            Self::IsControl => "isControl",
            Self::Magic => "magic",
            Self::BatchPosition => "batchPosition",
            Self::Crc => "crc",
            Self::IsValid => "isValid",
        }
    }

    /// The column's Arrow type.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Key | Self::Value => DataType::Binary,
            Self::Topic => DataType::Utf8,
            Self::Offset | Self::ProducerId | Self::BatchPosition | Self::Crc => DataType::Int64,
            Self::Timestamp => timestamp_type(),
            Self::Headers => DataType::List(header_column::item()),
            Self::IsTransactional | Self::IsControl | Self::IsValid => DataType::Boolean,
            Self::Partition
            | Self::TimestampType
            | Self::PartitionLeaderEpoch
            | Self::ProducerEpoch
            | Self::Sequence
            | Self::Magic => DataType::Int32,
        }
    }

    /// Returns the columns of these names, in their order; without names, the columns of Spark's source.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown or a repeated name.
    pub fn choose<S: AsRef<str>>(names: Option<&[S]>) -> Result<Vec<Self>> {
        let all: Vec<_> = Self::ALL.iter().map(|column| (column.name(), *column)).collect();
        match names {
            Some(names) => choose(names, &all, "record"),
            None => Ok(Self::by_default()),
        }
    }

    /// The columns of a read that names none.
    pub(super) fn by_default() -> Vec<Self> {
        Self::ALL.into_iter().take(Self::DEFAULT).collect()
    }
}

/// Returns the columns of these names, in their order.
pub(crate) fn choose<C: Copy + PartialEq, S: AsRef<str>>(
    names: &[S],
    all: &[(&'static str, C)],
    what: &str,
) -> Result<Vec<C>> {
    let mut chosen = Vec::with_capacity(names.len().min(all.len()));
    for name in names {
        let name = name.as_ref();
        let (_, column) = all.iter().find(|(known, _)| *known == name).ok_or_else(|| {
            let all = all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            Error::InvalidArgument(format!("columns: no {what} column {name:?}, expected some of {all}"))
        })?;
        if chosen.contains(column) {
            return Err(Error::InvalidArgument(format!("columns: {what} column {name:?} is given twice")));
        }
        chosen.push(*column);
    }
    Ok(chosen)
}

/// The type of timestamps: milliseconds, UTC.
pub(crate) fn timestamp_type() -> DataType {
    DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))
}

/// Returns the schema of these columns; all are nullable. Bytes may be views.
pub fn schema(columns: &[Column], views: bool) -> SchemaRef {
    let fields = columns.iter().map(|column| {
        let data_type = match column.data_type() {
            DataType::Binary if views => DataType::BinaryView,
            other => other,
        };
        Field::new(column.name(), data_type, true)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_chosen_by_name() {
        assert_eq!(Column::choose::<&str>(None).unwrap(), Column::ALL[..8]);
        assert_eq!(Column::choose(Some(&["offset", "key"])).unwrap(), [Column::Offset, Column::Key]);
        for bad in [&["nothing"][..], &["key", "key"]] {
            assert!(matches!(Column::choose(Some(bad)), Err(Error::InvalidArgument(_))));
        }
    }
}
