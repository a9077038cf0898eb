//! The columns of a message in their fixed order, and the selection of columns.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

use crate::error::{Error, Result};

/// One column of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Topic as stored.
    Topic,
    /// Queue id.
    QueueId,
    /// Index of the message in its queue.
    QueueOffset,
    /// Log offset of the frame.
    PhyOffset,
    /// The broker's time.
    StoreTimestamp,
    /// The producer's time.
    BornTimestamp,
    /// The broker's message id.
    MsgId,
    /// The producer's message id.
    UniqKey,
    /// The producer's tags.
    Tags,
    /// The producer's keys.
    Keys,
    /// Body.
    Body,
    /// All properties.
    Properties,
    /// The application's flag.
    Flag,
    /// The system flag as stored.
    SysFlag,
    /// Length of the frame in bytes.
    StoreSize,
    /// Checksum of the stored body.
    BodyCrc,
    /// The number of times that consumers returned the message.
    ReconsumeTimes,
    /// Offset of the transaction's half message.
    PreparedTransactionOffset,
    /// The producer's address.
    BornHost,
    /// The broker's address.
    StoreHost,
    /// The reason why the body is null.
    BodyError,
    /// The signs of a truncated message. Only a salvaging scan has this column, after all others.
    Suspect,
}

impl Column {
    /// All columns of a message, in order.
    pub const ALL: [Self; 21] = [
        Self::Topic,
        Self::QueueId,
        Self::QueueOffset,
        Self::PhyOffset,
        Self::StoreTimestamp,
        Self::BornTimestamp,
        Self::MsgId,
        Self::UniqKey,
        Self::Tags,
        Self::Keys,
        Self::Body,
        Self::Properties,
        Self::Flag,
        Self::SysFlag,
        Self::StoreSize,
        Self::BodyCrc,
        Self::ReconsumeTimes,
        Self::PreparedTransactionOffset,
        Self::BornHost,
        Self::StoreHost,
        Self::BodyError,
    ];

    /// Returns the column of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|column| column.name() == name)
    }

    pub(crate) fn unknown(name: &str) -> Error {
        let all = Self::ALL.map(Self::name).join(", ");
        Error::InvalidArgument(format!("no message column {name:?}; there are {all}"))
    }

    /// Returns the name of the column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::QueueId => "queue_id",
            Self::QueueOffset => "queue_offset",
            Self::PhyOffset => "phy_offset",
            Self::StoreTimestamp => "store_timestamp",
            Self::BornTimestamp => "born_timestamp",
            Self::MsgId => "msg_id",
            Self::UniqKey => "uniq_key",
            Self::Tags => "tags",
            Self::Keys => "keys",
            Self::Body => "body",
            Self::Properties => "properties",
            Self::Flag => "flag",
            Self::SysFlag => "sys_flag",
            Self::StoreSize => "store_size",
            Self::BodyCrc => "body_crc",
            Self::ReconsumeTimes => "reconsume_times",
            Self::PreparedTransactionOffset => "prepared_transaction_offset",
            Self::BornHost => "born_host",
            Self::StoreHost => "store_host",
            Self::BodyError => "body_error",
            Self::Suspect => "suspect",
        }
    }

    /// Returns the Arrow type of the column.
    pub fn data_type(self) -> DataType {
        match self {
            Self::QueueId | Self::Flag | Self::SysFlag | Self::StoreSize | Self::BodyCrc | Self::ReconsumeTimes => {
                DataType::Int32
            }
            Self::QueueOffset | Self::PhyOffset | Self::PreparedTransactionOffset => DataType::Int64,
            Self::StoreTimestamp | Self::BornTimestamp => timestamp_type(),
            Self::Body => DataType::Binary,
            Self::Properties => {
                let [key, value] = map_fields();
                let entries = DataType::Struct(Fields::from(vec![key, value]));
                DataType::Map(Arc::new(Field::new("entries", entries, false)), false)
            }
            Self::Topic
            | Self::MsgId
            | Self::UniqKey
            | Self::Tags
            | Self::Keys
            | Self::BornHost
            | Self::StoreHost
            | Self::BodyError
            | Self::Suspect => DataType::Utf8,
        }
    }

    /// Returns the columns of these names, in the given order; all columns if no names are given.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is unknown or repeated.
    pub fn choose<S: AsRef<str>>(names: Option<&[S]>) -> Result<Vec<Self>> {
        let Some(names) = names else {
            return Ok(Self::ALL.to_vec());
        };
        let mut chosen = Vec::with_capacity(names.len().min(Self::ALL.len()));
        for name in names {
            let name = name.as_ref();
            let column = Self::named(name).ok_or_else(|| Self::unknown(name))?;
            if chosen.contains(&column) {
                return Err(Error::InvalidArgument(format!("message column {name:?} is asked for twice")));
            }
            chosen.push(column);
        }
        Ok(chosen)
    }
}

/// Returns the type of times: milliseconds, UTC.
pub(crate) fn timestamp_type() -> DataType {
    DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))
}

/// Returns the fields of the property map: key and value.
pub(crate) fn map_fields() -> [Field; 2] {
    [Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Utf8, true)]
}

/// Returns the schema of these columns. All columns are nullable.
pub fn schema(columns: &[Column]) -> SchemaRef {
    let fields: Vec<Field> = columns.iter().map(|c| Field::new(c.name(), c.data_type(), true)).collect();
    Arc::new(Schema::new(fields))
}
