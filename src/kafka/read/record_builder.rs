//! The columns of records while they are built.

use std::sync::Arc;

use arrow_array::builder::{ArrayBuilder, BooleanBuilder, Int64Builder, StringBuilder};
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{ArrayRef, BooleanArray, PrimitiveArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::NullBufferBuilder;
use arrow_schema::SchemaRef;

use super::header_column::HeaderColumn;
use super::record_columns::{Column, schema};
use crate::arrow::columns::{ByteColumn, Place};
use crate::arrow::view_column::ViewColumn;
use crate::io::{Lent, i64_of};
use crate::kafka::format::header::Header;
use crate::kafka::format::record::{Span, Wants};

/// Topic and partition of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) topic: Option<String>,
    pub(crate) partition: Option<i32>,
}

/// The rows of one batch, whose common values are stored once.
#[derive(Clone, Debug)]
struct Run {
    rows: usize,
    owner: Arc<Owner>,
    header: Header,
}

/// Keys or values.
#[derive(Debug)]
enum Bytes {
    Copies(ByteColumn),
    Views(ViewColumn),
}

impl Bytes {
    fn new(views: bool) -> Self {
        if views { Self::Views(ViewColumn::default()) } else { Self::Copies(ByteColumn::new()) }
    }

    #[inline]
    fn extend(&mut self, places: impl ExactSizeIterator<Item = Place> + Clone, bytes: &[u8], lent: Option<&Lent>) {
        match self {
            Self::Copies(column) => column.extend_places(places, bytes),
            Self::Views(column) => column.extend_places(places, bytes, lent),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Copies(column) => Arc::new(column.finish_binary()),
            Self::Views(column) => Arc::new(column.finish()),
        }
    }
}

/// Upper bound of the bytes of records in the columns.
fn size(spans: &[Span], wants: Wants) -> usize {
    let content = |span: &Span| span.len() + span.headers.1 as usize;
    64 * spans.len() + if wants == Wants::All { spans.iter().map(content).sum() } else { 0 }
}

/// A builder of record batches.
#[derive(Debug)]
pub(crate) struct RecordBuilder {
    schema: SchemaRef,
    columns: Vec<Column>,
    keys: Option<Bytes>,
    values: Option<Bytes>,
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
    most_bytes: usize,
}

impl RecordBuilder {
    /// A batch ends before it is larger than `most_bytes`, unless one row is.
    pub(crate) fn new(columns: &[Column], views: bool, most_bytes: usize) -> Self {
        let has = |column: Column| columns.contains(&column);
        Self {
            schema: schema(columns, views),
            columns: columns.to_vec(),
            keys: has(Column::Key).then(|| Bytes::new(views)),
            values: has(Column::Value).then(|| Bytes::new(views)),
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
            most_bytes,
        }
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Which parts of a record the columns need.
    pub(crate) fn wants(&self) -> Wants {
        let all = self.keys.is_some() || self.values.is_some() || self.headers.is_some();
        if all { Wants::All } else { Wants::Times }
    }

    /// Begins the rows of a batch, or goes on with them.
    pub(crate) fn begin_run(&mut self, owner: &Arc<Owner>, header: &Header) {
        // A filter may have dropped all records of the batch before.
        self.runs.pop_if(|run| run.rows == 0);
        self.runs.push(Run { rows: 0, owner: Arc::clone(owner), header: *header });
    }

    /// Returns how many of these records fit: at least one if there are no rows.
    pub(crate) fn room_for(&self, spans: &[Span]) -> usize {
        let mut space_left = self.most_bytes.saturating_sub(self.bytes);
        let wants = self.wants();
        if size(spans, wants) <= space_left {
            return spans.len();
        }
        let fitting = spans.iter().take_while(|span| {
            let size = size(std::slice::from_ref(span), wants);
            let fits = size <= space_left;
            space_left = space_left.saturating_sub(size);
            fits
        });
        let count = fitting.count();
        if self.rows == 0 { count.max(1).min(spans.len()) } else { count }
    }

    /// Adds records of the current batch, to whose bytes the spans point. If these are lent, views are of them. False if the headers
    /// of a record cannot be parsed.
    #[inline]
    pub(crate) fn append(&mut self, spans: &[Span], bytes: &[u8], lent: Option<&Lent>, header: &Header) -> bool {
        self.bytes += size(spans, self.wants());
        self.rows += spans.len();
        if let Some(run) = self.runs.last_mut() {
            run.rows += spans.len();
        }
        if let Some(keys) = &mut self.keys {
            keys.extend(spans.iter().map(|span| span.key), bytes, lent);
        }
        if let Some(values) = &mut self.values {
            values.extend(spans.iter().map(|span| span.value), bytes, lent);
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

    /// Returns the rows, and begins again without any.
    pub(crate) fn take(&mut self) -> RecordBatch {
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
        fn bytes(column: &mut Option<Bytes>) -> ArrayRef {
            column.as_mut().map(Bytes::finish).expect("a builder of every column that was chosen")
        }
        /// Allocate for as many rows as before.
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
            Column::Headers => {
                self.headers.as_mut().map(HeaderColumn::finish).expect("a builder of every column that was chosen")
            }
            Column::Topic => self.topics(),
            Column::Partition => self.ints(|run| run.owner.partition),
            Column::TimestampType => self.ints(|run| Some(run.header.timestamp_type().id())),
            Column::PartitionLeaderEpoch => self.ints(|run| Some(run.header.leader_epoch)),
            Column::ProducerEpoch => self.ints(|run| Some(i32::from(run.header.producer_epoch))),
            Column::Magic => self.ints(|run| Some(i32::from(run.header.magic))),
            Column::ProducerId => self.longs(|run| run.header.producer_id),
            Column::BatchPosition => self.longs(|run| i64_of(run.header.position)),
            Column::IsTransactional => self.flags(|run| run.header.is_transactional()),
            Column::IsControl => self.flags(|run| run.header.is_control()),
        }
    }

    /// The topic column. Nearly always the topic is the same as in the batch before; then that column is used again.
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

    /// A column of values that a batch has once.
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
