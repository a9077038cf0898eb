//! The columns of a batch of messages that are put: any of the message columns, with their types.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, MapArray, PrimitiveArray, RecordBatch, StringArray,
};

use super::host::Host;
use super::new_message::GivenMessage;
use super::new_properties::NewProperties;
use crate::error::{Error, Result};
use crate::rocketmq::commit_log::columns::Column;
use crate::rocketmq::commit_log::properties::{KEYS, TAGS, UNIQ_KEY};
use crate::rocketmq::commit_log::property_map::entries;

/// The columns that a put reads. It makes the others itself and ignores them if they are given.
#[derive(Debug)]
pub(super) struct PutColumns<'a> {
    topic: &'a StringArray,
    queue_id: Option<&'a PrimitiveArray<Int32Type>>,
    flag: Option<&'a PrimitiveArray<Int32Type>>,
    sys_flag: Option<&'a PrimitiveArray<Int32Type>>,
    reconsume_times: Option<&'a PrimitiveArray<Int32Type>>,
    prepared_transaction_offset: Option<&'a PrimitiveArray<Int64Type>>,
    store_timestamp: Option<&'a PrimitiveArray<TimestampMillisecondType>>,
    born_timestamp: Option<&'a PrimitiveArray<TimestampMillisecondType>>,
    born_host: Option<&'a StringArray>,
    store_host: Option<&'a StringArray>,
    body: Option<&'a BinaryArray>,
    body_error: Option<&'a StringArray>,
    properties: Option<(&'a MapArray, &'a StringArray, &'a StringArray)>,
    /// Columns that repeat or replace a property.
    named: [(&'static str, Option<&'a StringArray>); 3],
    hosts: HostTexts<'a>,
}

impl<'a> PutColumns<'a> {
    /// # Errors
    /// `InvalidArgument` for an unknown column, a column of another type, or a batch without `topic`.
    pub(super) fn of(messages: &'a RecordBatch) -> Result<Self> {
        let given = Given::of(messages)?;
        let text = |column| given.get(column, |array| array.as_string_opt::<i32>());
        let ints = |column| given.get(column, |array| array.as_primitive_opt::<Int32Type>());
        let times = |column| given.get(column, |array| array.as_primitive_opt::<TimestampMillisecondType>());
        let properties = given.get(Column::Properties, |array| {
            array.as_map_opt().filter(|map| texts_of(map.keys()).and(texts_of(map.values())).is_some())
        })?;
        let topic = text(Column::Topic)?;
        Ok(Self {
            topic: topic
                .ok_or_else(|| Error::InvalidArgument("messages: expected a column topic, found none".into()))?,
            queue_id: ints(Column::QueueId)?,
            flag: ints(Column::Flag)?,
            sys_flag: ints(Column::SysFlag)?,
            reconsume_times: ints(Column::ReconsumeTimes)?,
            prepared_transaction_offset: given
                .get(Column::PreparedTransactionOffset, |array| array.as_primitive_opt::<Int64Type>())?,
            store_timestamp: times(Column::StoreTimestamp)?,
            born_timestamp: times(Column::BornTimestamp)?,
            born_host: text(Column::BornHost)?,
            store_host: text(Column::StoreHost)?,
            body: given.get(Column::Body, |array| array.as_binary_opt::<i32>())?,
            body_error: text(Column::BodyError)?,
            properties: properties.and_then(|map| Some((map, texts_of(map.keys())?, texts_of(map.values())?))),
            named: [(TAGS, text(Column::Tags)?), (KEYS, text(Column::Keys)?), (UNIQ_KEY, text(Column::UniqKey)?)],
            hosts: HostTexts::default(),
        })
    }

    /// Returns the message of a row and replaces `properties` by its properties.
    ///
    /// # Errors
    /// `InvalidArgument` for a message that no frame can hold.
    pub(super) fn message(&mut self, row: usize, properties: &mut NewProperties<'a>) -> Result<GivenMessage<'a>> {
        self.properties(row, properties)?;
        let topic = text_at(self.topic, row)
            .ok_or_else(|| Error::InvalidArgument("topic: expected text, found null".into()))?;
        let mut host = |texts: Option<&'a StringArray>| {
            texts.and_then(|texts| text_at(texts, row)).map(|text| self.hosts.get(text)).transpose()
        };
        Ok(GivenMessage {
            topic,
            born_host: host(self.born_host)?,
            store_host: host(self.store_host)?,
            queue_id: number_at(self.queue_id, row).unwrap_or(0),
            flag: number_at(self.flag, row).unwrap_or(0),
            sys_flag: number_at(self.sys_flag, row).unwrap_or(0),
            born_timestamp: number_at(self.born_timestamp, row),
            store_timestamp: number_at(self.store_timestamp, row),
            reconsume_times: number_at(self.reconsume_times, row).unwrap_or(0),
            prepared_transaction_offset: number_at(self.prepared_transaction_offset, row).unwrap_or(0),
            body: self.body(row)?,
        })
    }

    /// # Errors
    /// `InvalidArgument` for a body that could not be decoded when the batch was read.
    fn body(&self, row: usize) -> Result<&'a [u8]> {
        if let Some(body) = self.body.and_then(|bodies| bodies.is_valid(row).then(|| bodies.value(row))) {
            return Ok(body);
        }
        match self.body_error.and_then(|errors| text_at(errors, row)) {
            Some(error) => Err(Error::InvalidArgument(format!(
                "body: expected bytes, found null: {error}; read and put such bodies as they are stored"
            ))),
            None => Ok(&[]),
        }
    }

    /// Replaces `properties` by those of a row.
    ///
    /// # Errors
    /// `InvalidArgument` for a column that differs from the property of its name.
    fn properties(&self, row: usize, properties: &mut NewProperties<'a>) -> Result<()> {
        properties.clear();
        if let Some((map, names, values)) = self.properties {
            for at in entries(map, row) {
                // A null value is skipped, as the broker does.
                if let Some(value) = text_at(values, at) {
                    properties.push(names.value(at), value);
                }
            }
        }
        for (name, texts) in self.named {
            let Some(text) = texts.and_then(|texts| text_at(texts, row)).filter(|text| !text.is_empty()) else {
                continue;
            };
            match properties.get(name) {
                None => properties.push(name, text),
                Some(property) if property == text => {}
                Some(property) => {
                    let text = format!("property {name} is {property:?}, but the column of that name is {text:?}");
                    return Err(Error::InvalidArgument(text));
                }
            }
        }
        Ok(())
    }
}

/// The given columns.
struct Given<'a>(Vec<(Column, &'a ArrayRef)>);

impl<'a> Given<'a> {
    fn of(messages: &'a RecordBatch) -> Result<Self> {
        let mut given = Vec::with_capacity(messages.num_columns());
        for (field, array) in messages.schema_ref().fields().iter().zip(messages.columns()) {
            match Column::named(field.name()) {
                Some(column) => given.push((column, array)),
                // A salvaging scan adds this column; it is not part of the message.
                None if field.name() == Column::Suspect.name() => {}
                None => return Err(Column::unknown(field.name())),
            }
        }
        Ok(Self(given))
    }

    /// Returns a column as an array of its own type, or `None` if it is not given.
    fn get<A>(&self, column: Column, get: impl FnOnce(&'a ArrayRef) -> Option<&'a A>) -> Result<Option<&'a A>> {
        let Some((_, array)) = self.0.iter().find(|(given, _)| *given == column) else { return Ok(None) };
        let wrong = || {
            let (name, wanted) = (column.name(), column.data_type());
            Error::InvalidArgument(format!("messages: column {name}: expected {wanted}, found {}", array.data_type()))
        };
        get(array).map(Some).ok_or_else(wrong)
    }
}

fn texts_of(array: &ArrayRef) -> Option<&StringArray> {
    array.as_string_opt()
}

/// The number of a row; `None` if it is null or there is no such column.
fn number_at<T: ArrowPrimitiveType>(numbers: Option<&PrimitiveArray<T>>, row: usize) -> Option<T::Native> {
    numbers.and_then(|numbers| numbers.is_valid(row).then(|| numbers.value(row)))
}

fn text_at(texts: &StringArray, row: usize) -> Option<&str> {
    texts.is_valid(row).then(|| texts.value(row))
}

/// Caches the last hosts: they recur from row to row.
#[derive(Debug, Default)]
struct HostTexts<'a> {
    kept: [Option<(&'a str, Host)>; 4],
    turn: usize,
}

impl<'a> HostTexts<'a> {
    fn get(&mut self, text: &'a str) -> Result<Host> {
        if let Some((_, host)) = self.kept.iter().flatten().find(|(kept, _)| *kept == text) {
            return Ok(*host);
        }
        let host = Host::parse(text)?;
        let turn = self.turn % self.kept.len();
        if let Some(kept) = self.kept.get_mut(turn) {
            *kept = Some((text, host));
        }
        self.turn += 1;
        Ok(host)
    }
}
