//! The columns of a record, in their fixed order, and their builders.
//!
//! The first eight are those of Spark's own Kafka source, in its order; the others come by name only.

use std::sync::Arc;

use arrow_array::builder::{ArrayBuilder, BooleanBuilder, Int64Builder, StringBuilder};
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{ArrayRef, BooleanArray, ListArray, PrimitiveArray, RecordBatch, RecordBatchOptions, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

use super::byte_column::ByteColumn;
use super::header::Header;
use super::record::{Place, Span, Wants};
use crate::error::{Error, Result};

/// A batch ends before it is larger than this, if it has a row.
const BATCH_BYTES: usize = 64 * 1024 * 1024;

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
    /// Part of a transaction.
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
            Self::Headers => DataType::List(header_item()),
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
pub(super) fn choose<C: Copy + PartialEq, S: AsRef<str>>(
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
pub(super) fn timestamp_type() -> DataType {
    DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))
}

fn header_fields() -> Fields {
    Fields::from(vec![Field::new("key", DataType::Utf8, true), Field::new("value", DataType::Binary, true)])
}

fn header_item() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::Struct(header_fields()), true))
}

/// The schema of these columns; all of them can be null.
pub fn schema(columns: &[Column]) -> SchemaRef {
    let fields: Vec<Field> = columns.iter().map(|c| Field::new(c.name(), c.data_type(), true)).collect();
    Arc::new(Schema::new(fields))
}

/// Whose records a run of rows are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) topic: Option<String>,
    pub(super) partition: Option<i32>,
}

/// Rows of one batch: what they have in common is stored once.
#[derive(Clone, Debug)]
struct Run {
    rows: usize,
    owner: Arc<Owner>,
    header: Header,
}

/// The headers of all rows.
#[derive(Debug)]
struct HeaderColumn {
    ends: Vec<i32>,
    nulls: NullBufferBuilder,
    keys: ByteColumn,
    values: ByteColumn,
    /// Where those of some records lie: used again and again.
    places: Vec<(Place, Place)>,
}

impl HeaderColumn {
    fn new() -> Self {
        Self {
            ends: vec![0],
            nulls: NullBufferBuilder::new(0),
            keys: ByteColumn::new(),
            values: ByteColumn::new(),
            places: Vec::new(),
        }
    }

    /// Adds the headers of these rows. False, and what could be read of them, when some are none.
    fn append(&mut self, spans: &[Span], bytes: &[u8]) -> bool {
        let mut all = true;
        let before = self.keys.rows();
        self.places.clear();
        for span in spans {
            all &= span.each_header(bytes, |key, value| self.places.push((key, value))).is_some();
            self.ends.push(i32::try_from(before + self.places.len()).unwrap_or(i32::MAX));
        }
        if spans.iter().all(|span| span.header_count > 0) {
            self.nulls.append_n_non_nulls(spans.len());
        } else {
            for span in spans {
                self.nulls.append(span.header_count > 0);
            }
        }
        self.keys.extend(self.places.iter().map(|place| place.0), bytes);
        self.values.extend(self.places.iter().map(|place| place.1), bytes);
        all
    }

    fn finish(&mut self) -> ArrayRef {
        let mut next = Vec::with_capacity(self.ends.len());
        next.push(0);
        let ends = std::mem::replace(&mut self.ends, next);
        let arrays: Vec<ArrayRef> = vec![Arc::new(self.keys.finish_text()), Arc::new(self.values.finish())];
        let headers = StructArray::new(header_fields(), arrays, None);
        let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
        Arc::new(ListArray::new(header_item(), ends, Arc::new(headers), self.nulls.finish()))
    }
}

/// Bytes that a record takes in the columns, from above.
fn size(span: &Span) -> usize {
    64 + span.len() + span.headers.1 as usize
}

/// Takes records and gives record batches.
#[derive(Debug)]
pub(super) struct RecordColumns {
    schema: SchemaRef,
    columns: Vec<Column>,
    keys: Option<ByteColumn>,
    values: Option<ByteColumn>,
    offsets: Option<Vec<i64>>,
    timestamps: Option<Vec<i64>>,
    sequences: Option<Vec<i32>>,
    headers: Option<HeaderColumn>,
    crcs: Option<Int64Builder>,
    valid: Option<BooleanBuilder>,
    runs: Vec<Run>,
    last_topic: Option<(Option<String>, ArrayRef)>,
    rows: usize,
    bytes: usize,
}

impl RecordColumns {
    pub(super) fn new(columns: &[Column]) -> Self {
        let has = |column: Column| columns.contains(&column);
        Self {
            schema: schema(columns),
            columns: columns.to_vec(),
            keys: has(Column::Key).then(ByteColumn::new),
            values: has(Column::Value).then(ByteColumn::new),
            offsets: has(Column::Offset).then(Vec::new),
            timestamps: has(Column::Timestamp).then(Vec::new),
            sequences: has(Column::Sequence).then(Vec::new),
            headers: has(Column::Headers).then(HeaderColumn::new),
            crcs: has(Column::Crc).then(Int64Builder::new),
            valid: has(Column::IsValid).then(BooleanBuilder::new),
            runs: Vec::new(),
            last_topic: None,
            rows: 0,
            bytes: 0,
        }
    }

    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Which parts of a record the columns need.
    pub(super) fn wants(&self) -> Wants {
        let all = self.keys.is_some() || self.values.is_some() || self.headers.is_some();
        if all { Wants::All } else { Wants::Times }
    }

    /// Begins the rows of a batch, or goes on with them.
    pub(super) fn begin_run(&mut self, owner: &Arc<Owner>, header: &Header) {
        self.runs.push(Run { rows: 0, owner: Arc::clone(owner), header: *header });
    }

    /// How many of these records there is room for: one at least, if there is no row.
    pub(super) fn room_for(&self, spans: &[Span]) -> usize {
        let mut room = BATCH_BYTES.saturating_sub(self.bytes);
        if spans.iter().map(size).sum::<usize>() <= room {
            return spans.len();
        }
        let fitting = spans.iter().take_while(|span| {
            let fits = size(span) <= room;
            room = room.saturating_sub(size(span));
            fits
        });
        let count = fitting.count();
        if self.rows == 0 { count.max(1).min(spans.len()) } else { count }
    }

    /// Adds records of the batch that was begun. False: the headers of some are none.
    pub(super) fn append(&mut self, spans: &[Span], bytes: &[u8], header: &Header) -> bool {
        self.bytes += spans.iter().map(size).sum::<usize>();
        self.rows += spans.len();
        if let Some(run) = self.runs.last_mut() {
            run.rows += spans.len();
        }
        if let Some(keys) = &mut self.keys {
            keys.extend(spans.iter().map(|span| span.key), bytes);
        }
        if let Some(values) = &mut self.values {
            values.extend(spans.iter().map(|span| span.value), bytes);
        }
        if let Some(offsets) = &mut self.offsets {
            offsets.extend(spans.iter().map(|span| span.offset));
        }
        if let Some(timestamps) = &mut self.timestamps {
            timestamps.extend(spans.iter().map(|span| span.timestamp));
        }
        if let Some(sequences) = &mut self.sequences {
            sequences.extend(spans.iter().map(|span| header.sequence(span.delta)));
        }
        for span in spans {
            if let Some(crcs) = &mut self.crcs {
                crcs.append_option(header.is_legacy().then_some(i64::from(span.crc)));
            }
            if let Some(valid) = &mut self.valid {
                valid.append_option(header.is_legacy().then_some(span.is_valid));
            }
        }
        self.headers.as_mut().is_none_or(|headers| headers.append(spans, bytes))
    }

    /// What was added since the last batch was taken.
    pub(super) fn take(&mut self) -> RecordBatch {
        let columns = std::mem::take(&mut self.columns);
        let arrays: Vec<ArrayRef> = columns.iter().map(|column| self.finish(*column)).collect();
        self.columns = columns;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        (self.rows, self.bytes) = (0, 0);
        self.runs.clear();
        RecordBatch::try_new_with_options(self.schema(), arrays, &options)
            .expect("every column has the rows and the type of the schema")
    }

    fn finish(&mut self, column: Column) -> ArrayRef {
        fn built<B: ArrayBuilder>(builder: &mut Option<B>) -> ArrayRef {
            builder.as_mut().map(ArrayBuilder::finish).expect("a builder of every column that was chosen")
        }
        fn bytes(column: &mut Option<ByteColumn>) -> ArrayRef {
            Arc::new(column.as_mut().map(ByteColumn::finish).expect("a builder of every column that was chosen"))
        }
        /// The next rows will be as many.
        fn taken<T>(values: &mut Option<Vec<T>>) -> Vec<T> {
            values
                .as_mut()
                .map(|v| {
                    let next = Vec::with_capacity(v.len());
                    std::mem::replace(v, next)
                })
                .unwrap_or_default()
        }
        match column {
            Column::Key => bytes(&mut self.keys),
            Column::Value => bytes(&mut self.values),
            Column::Crc => built(&mut self.crcs),
            Column::IsValid => built(&mut self.valid),
            Column::Offset => Arc::new(PrimitiveArray::<Int64Type>::from(taken(&mut self.offsets))),
            Column::Timestamp => {
                let times = PrimitiveArray::<TimestampMillisecondType>::from(taken(&mut self.timestamps));
                Arc::new(times.with_timezone("UTC"))
            }
            Column::Sequence => Arc::new(PrimitiveArray::<Int32Type>::from(taken(&mut self.sequences))),
            Column::Headers => self.headers.as_mut().map(HeaderColumn::finish).expect("as for the builders"),
            Column::Topic => self.topics(),
            Column::Partition => self.ints(|run| run.owner.partition),
            Column::TimestampType => self.ints(|run| Some(run.header.timestamp_type().id())),
            Column::PartitionLeaderEpoch => self.ints(|run| Some(run.header.leader_epoch)),
            Column::ProducerEpoch => self.ints(|run| Some(i32::from(run.header.producer_epoch))),
            Column::Magic => self.ints(|run| Some(i32::from(run.header.magic))),
            Column::ProducerId => self.longs(|run| run.header.producer_id),
            Column::BatchPosition => self.longs(|run| i64::try_from(run.header.position).unwrap_or(i64::MAX)),
            Column::IsTransactional => self.flags(|run| run.header.is_transactional()),
            Column::IsControl => self.flags(|run| run.header.is_control()),
        }
    }

    /// The topics, which are nearly always one, and then the same column again.
    fn topics(&mut self) -> ArrayRef {
        let owner = self.runs.first().map(|run| Arc::clone(&run.owner));
        let is_one = self.runs.iter().all(|run| Some(&run.owner.topic) == owner.as_ref().map(|o| &o.topic));
        if let Some((topic, array)) = &self.last_topic
            && is_one
            && Some(topic) == owner.as_ref().map(|o| &o.topic)
            && array.len() >= self.rows
        {
            return array.slice(0, self.rows);
        }
        let mut topics = StringBuilder::new();
        for run in &self.runs {
            for _ in 0..run.rows {
                topics.append_option(run.owner.topic.as_deref());
            }
        }
        let array: ArrayRef = Arc::new(topics.finish());
        self.last_topic = owner.filter(|_| is_one).map(|owner| (owner.topic.clone(), Arc::clone(&array)));
        array
    }

    /// A column of what each batch has once.
    fn ints(&self, value: impl Fn(&Run) -> Option<i32>) -> ArrayRef {
        let mut values = Vec::with_capacity(self.rows);
        let mut nulls = NullBufferBuilder::new(self.rows);
        for run in &self.runs {
            let value = value(run);
            values.resize(values.len() + run.rows, value.unwrap_or(0));
            if value.is_some() { nulls.append_n_non_nulls(run.rows) } else { nulls.append_n_nulls(run.rows) }
        }
        Arc::new(PrimitiveArray::<Int32Type>::new(values.into(), nulls.finish()))
    }

    fn longs(&self, value: impl Fn(&Run) -> i64) -> ArrayRef {
        let mut values = Vec::with_capacity(self.rows);
        for run in &self.runs {
            values.resize(values.len() + run.rows, value(run));
        }
        Arc::new(PrimitiveArray::<Int64Type>::from(values))
    }

    fn flags(&self, value: impl Fn(&Run) -> bool) -> ArrayRef {
        let rows = self.runs.iter().flat_map(|run| std::iter::repeat_n(Some(value(run)), run.rows));
        Arc::new(rows.collect::<BooleanArray>())
    }
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
