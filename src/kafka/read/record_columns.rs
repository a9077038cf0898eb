//! The columns of a record: their names, types and fixed order.
//!
//! The first eight are those of Spark's own Kafka source, in its order; the others come by name only.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

use super::header_column;
use crate::error::{Error, Result};

/// One column of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Key; null where there is none.
    Key,
    /// Value; null where there is none.
    Value,
    /// Topic.
    Topic,
    /// Partition.
    Partition,
    /// Offset.
    Offset,
    /// Time of the producer or of the append; -1 ms where the format has none.
    Timestamp,
    /// Whose time: 0 the producer's, 1 the append's, -1 none.
    TimestampType,
    /// Headers; null where there are none.
    Headers,
    /// Leader epoch of the batch; -1: unknown.
    PartitionLeaderEpoch,
    /// Producer of the batch; -1: none.
    ProducerId,
    /// Its epoch; -1: none.
    ProducerEpoch,
    /// Sequence number; -1: none.
    Sequence,
    /// SegmentRange of a transaction.
    IsTransactional,
    /// A marker of the broker.
    IsControl,
    /// Format of the batch.
    Magic,
    /// Byte offset of the batch in its segment.
    BatchPosition,
    /// Checksum of a message of magic 0 or 1.
    Crc,
    /// Whether it is that of the bytes.
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
    /// How many of them come unasked.
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

    /// The columns of these names, in the order given; those of Spark's source where none are given.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is unknown or comes twice.
    pub fn choose<S: AsRef<str>>(names: Option<&[S]>) -> Result<Vec<Self>> {
        let all: Vec<_> = Self::ALL.iter().map(|column| (column.name(), *column)).collect();
        match names {
            Some(names) => choose(names, &all, "record"),
            None => Ok(Self::ALL.into_iter().take(Self::DEFAULT).collect()),
        }
    }
}

/// The values of these names, in the order given.
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
            Error::InvalidArgument(format!("no {what} column {name:?}; there are {all}"))
        })?;
        if chosen.contains(column) {
            return Err(Error::InvalidArgument(format!("{what} column {name:?} is asked for twice")));
        }
        chosen.push(*column);
    }
    Ok(chosen)
}

/// Milliseconds, UTC.
pub(crate) fn timestamp_type() -> DataType {
    DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))
}

/// The schema of these columns; all of them can be null.
pub fn schema(columns: &[Column]) -> SchemaRef {
    let fields: Vec<Field> = columns.iter().map(|c| Field::new(c.name(), c.data_type(), true)).collect();
    Arc::new(Schema::new(fields))
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
