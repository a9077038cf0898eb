//! The content of a segment's file as lines: text as kafka-dump-log prints it, or JSON.
//!
//! Unlike the tool, an entry for several batches is not a mismatch, no file is created, and damage ends nothing: it is a finding.
//!
//! Source: `DumpLogSegments`.

mod control_text;

use std::fmt::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;

use crate::arrow::text_rows::{PieceWriter, Row, columns, json_text};
use crate::batch_size::BatchSize;
use crate::error::{Error, Result};
use crate::io::Location;
use crate::kafka::format::control_record::ControlRecord;
use crate::kafka::format::internal_record::InternalTopic;
use crate::kafka::format::producer_snapshot::{self, ProducerEntry};
use crate::kafka::index::index_file::{Check, IndexOptions};
use crate::kafka::index::offset_index::OffsetIndex;
use crate::kafka::index::sparse_index::SparseIndex;
use crate::kafka::index::time_index::TimeIndex;
use crate::kafka::index::transaction_index;
use crate::kafka::read::batch_columns;
use crate::kafka::read::batch_reader::BatchScan;
use crate::kafka::read::record_columns;
use crate::kafka::read::record_reader::RecordScan;
use crate::kafka::read::segment::{Segment, SegmentOptions};
use crate::kafka::read::segment_range::SegmentRange;
use crate::kafka::read::segment_reader::{OnError, SegmentReader};
use crate::kafka::verify::{VerifiableIndex, verify_index};
use crate::report::{Finding, Flaw, Kind, Report};

/// The parts of a log that a dump shows, and its form.
#[derive(Clone, Copy, Debug, Default)]
pub struct DumpOptions {
    /// The records of each batch, too.
    pub records: bool,
    /// The keys and values of records.
    pub data: bool,
    /// JSON lines; otherwise text.
    pub json: bool,
}

const BATCH_SIZE: usize = 8_192;
/// Columns of a record that are shown as they are, and those that follow.
const PLAIN: [record_columns::Column; 9] = {
    use record_columns::Column::{
        BatchPosition, Crc, IsControl, IsValid, Magic, Offset, Sequence, Timestamp, TimestampType,
    };
    [Offset, Timestamp, TimestampType, Sequence, IsControl, Magic, BatchPosition, Crc, IsValid]
};
const CONTENT: [record_columns::Column; 3] =
    [record_columns::Column::Key, record_columns::Column::Value, record_columns::Column::Headers];
/// The first format with producers and headers.
const V2: i64 = 2;

/// Writes the content of a file of a segment, or of a snapshot of `KRaft`'s metadata. The report has what is wrong with the file,
/// and the number of lines as `entries`.
///
/// `write` is called with pieces of about 256 KiB: of text with whole lines.
///
/// # Errors
/// `InvalidArgument` for another file; an I/O error; the first error of `write`.
pub fn dump<E: From<Error>>(
    path: &Location,
    options: DumpOptions,
    write: impl FnMut(&str) -> std::result::Result<(), E>,
) -> std::result::Result<Report, E> {
    let out = PieceWriter::new(write);
    let mut dump = Dump { path, options, topic: None, out, lines: 0, findings: Vec::new() };
    match path.extension().and_then(|suffix| suffix.to_str()) {
        Some("log" | "checkpoint") => dump.log()?,
        Some("index") => dump.index::<OffsetIndex>(|e| [("offset", e.offset), ("position", e.position.into())])?,
        Some("timeindex") => dump.index::<TimeIndex>(|e| [("timestamp", e.timestamp), ("offset", e.offset)])?,
        Some("txnindex") => dump.transaction_index()?,
        Some("snapshot") => dump.snapshot()?,
        _ => {
            let path = path.display();
            return Err(Error::InvalidArgument(format!("{path}: expected a file of a segment")).into());
        }
    }
    // Only `write` fails, and its error is kept.
    let _ = dump.out.hand_over();
    let checked = vec![("files", 1), ("entries", dump.lines)];
    dump.out.refused.map_or(Ok(Report { findings: dump.findings, checked }), Err)
}

/// A dump of one file.
struct Dump<'a, F, E> {
    path: &'a Location,
    options: DumpOptions,
    /// The topic, if keys and values are those of the broker itself.
    topic: Option<InternalTopic>,
    out: PieceWriter<F, E>,
    lines: u64,
    findings: Vec<Finding>,
}

/// The records of a log, on their way to the lines of their batches.
struct Records {
    reader: SegmentReader,
    batch: Option<RecordBatch>,
    row: usize,
}

impl<F: FnMut(&str) -> std::result::Result<(), E>, E: From<Error>> Dump<'_, F, E> {
    /// Writes a line: a text, or the members of a JSON object, each after a comma.
    fn line(
        &mut self,
        kind: &str,
        members: impl FnOnce(&mut PieceWriter<F, E>) -> fmt::Result,
        text: impl FnOnce() -> String,
    ) -> std::result::Result<(), E> {
        self.lines += 1;
        let written = if self.options.json {
            object(&mut self.out, self.path, kind, members)
        } else {
            self.out.write_str(&(text().replace('\n', "\\n") + "\n"))
        };
        // Only `write` fails, and its error is kept.
        written.or_else(|_| self.out.refused.take().map_or(Ok(()), Err))
    }

    /// Writes an entry of an index.
    fn entry(&mut self, fields: &[(&str, i64)]) -> std::result::Result<(), E> {
        let text = || fields.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join(" ");
        self.line("entry", |out| numbers(out, fields), text)
    }

    /// Returns what was read; damage becomes a finding.
    fn read<T>(&mut self, read: Result<T>) -> Result<Option<T>> {
        match read {
            Err(Error::Corrupt { path, offset, expected, found }) => {
                self.find([Finding { path, offset, kind: Kind::FileContent, expected, found }]);
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Adds findings, each once: headers and records of a batch are read by two readers, which find the same.
    fn find(&mut self, found: impl IntoIterator<Item = Finding>) {
        for finding in found {
            let is_same = |known: &Finding| (known.offset, known.kind) == (finding.offset, finding.kind);
            if !self.findings.iter().any(is_same) {
                self.findings.push(finding);
            }
        }
    }

    fn log(&mut self) -> std::result::Result<(), E> {
        let segment = Arc::new(Segment::open(self.path, SegmentOptions::default())?);
        let is_snapshot = self.path.extension().is_some_and(|suffix| suffix == "checkpoint");
        let topic = if is_snapshot { Some(InternalTopic::METADATA) } else { None };
        self.topic = topic.or_else(|| InternalTopic::of(segment.topic_partition()?.0));
        self.beginning(&segment)?;
        let on_error = OnError::Skip;
        let scan = BatchScan {
            begin_position: 0,
            end_position: None,
            columns: batch_columns::Column::ALL.to_vec(),
            batch_size: BATCH_SIZE,
            check_crc: true,
            on_error,
        };
        let mut batches = SegmentReader::batches(Arc::clone(&segment), scan)?;
        let scan = RecordScan {
            columns: [&PLAIN[..], &CONTENT].concat(),
            batch_size: BatchSize::of_rows(BATCH_SIZE),
            control: true,
            on_error,
            ..RecordScan::default()
        };
        let reader = SegmentReader::records(vec![SegmentRange::whole(Arc::clone(&segment))], scan)?;
        let mut records = Records { reader, batch: None, row: 0 };
        while let Some(batch) = self.read(batches.next_batch())?.flatten() {
            let columns = columns(&batch)?;
            for at in 0..batch.num_rows() {
                let row = Row { columns: &columns, at };
                self.line("batch", |out| row.members(out, 0..columns.len()), || batch_text(row))?;
                if self.options.records {
                    self.records_to(&mut records, row.number("position"))?;
                }
            }
        }
        self.find(batches.findings().iter().chain(records.reader.findings()).cloned());
        let left = segment.len() - batches.position();
        if left > 0 {
            let name = self.path.file_name().unwrap_or_default().display();
            let position = batches.position();
            self.line(
                "end",
                |out| numbers(out, &[("position", position), ("invalidBytes", left)]),
                || format!("Found {left} invalid bytes at the end of {name}"),
            )?;
        }
        Ok(())
    }

    fn beginning(&mut self, segment: &Segment) -> std::result::Result<(), E> {
        let name = self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let ends = name.strip_suffix(".checkpoint").and_then(|stem| stem.split_once('-'));
        match ends.and_then(|(end, epoch)| Some((end.parse::<i64>().ok()?, epoch.parse::<i64>().ok()?))) {
            Some((end, epoch)) => self.line(
                "snapshot",
                |out| numbers(out, &[("endOffset", end), ("epoch", epoch)]),
                || format!("Snapshot end offset: {end}, epoch: {epoch}"),
            ),
            None if name.ends_with(".checkpoint") => {
                self.line("snapshot", |_| Ok(()), || "KRaft bootstrap snapshot".to_owned())
            }
            None => {
                let start = segment.base_offset();
                let text = || format!("Log starting offset: {start}");
                self.line("log", |out| numbers(out, &[("startingOffset", start)]), text)
            }
        }
    }

    /// Writes the records of the batches up to a position.
    fn records_to(&mut self, records: &mut Records, position: Option<i64>) -> std::result::Result<(), E> {
        loop {
            if records.batch.as_ref().is_none_or(|batch| records.row == batch.num_rows()) {
                records.batch = self.read(records.reader.next_batch())?.flatten();
                records.row = 0;
            }
            let Some(batch) = &records.batch else { return Ok(()) };
            let columns = columns(batch)?;
            while records.row < batch.num_rows() {
                let row = Row { columns: &columns, at: records.row };
                if row.number("batchPosition") > position {
                    return Ok(());
                }
                let (data, topic) = (self.options.data, self.topic);
                self.line("record", |out| record_members(out, row, data, topic), || record_text(row, data, topic))?;
                records.row += 1;
            }
        }
    }

    fn index<I: VerifiableIndex>(
        &mut self,
        fields: impl Fn(I::Entry) -> [(&'static str, i64); 2],
    ) -> std::result::Result<(), E> {
        let log = self.path.with_extension("log");
        let log = if log.is_file() { Some(Segment::open(&log, SegmentOptions::default())?) } else { None };
        let options = IndexOptions { log_len: log.as_ref().map(Segment::len), ..IndexOptions::default() };
        let Some(index) = self.read(I::open(self.path, &options))? else { return Ok(()) };
        if index.is_empty() && I::SUFFIX == OffsetIndex::SUFFIX {
            let path = self.path.display().to_string();
            self.line("index", |out| numbers(out, &[("entries", 0)]), || format!("{path} is empty."))?;
        }
        for entry in (0..index.len()).filter_map(|slot| index.entry(slot)) {
            self.entry(&fields(entry))?;
        }
        let whole = I::open(self.path, &IndexOptions { check: Check::Trust, ..IndexOptions::default() })?;
        if let Some(report) = self.read(verify_index(&whole, log.as_ref()))? {
            self.find(report.findings);
        }
        Ok(())
    }

    fn transaction_index(&mut self) -> std::result::Result<(), E> {
        let Some((entries, torn)) = self.read(transaction_index::read(self.path))? else { return Ok(()) };
        for e in &entries {
            self.entry(&[
                ("version", e.version.into()),
                ("producerId", e.producer_id),
                ("firstOffset", e.first_offset),
                ("lastOffset", e.last_offset),
                ("lastStableOffset", e.last_stable_offset),
            ])?;
        }
        if torn > 0 {
            let at = (entries.len() * transaction_index::ENTRY_SIZE) as u64;
            let flaw = Flaw::new(Kind::IndexSize, "whole entries", format_args!("{torn} bytes of one"));
            self.find([Finding::new(self.path, at, flaw)]);
        }
        Ok(())
    }

    fn snapshot(&mut self) -> std::result::Result<(), E> {
        for producer in self.read(producer_snapshot::read(self.path))?.unwrap_or_default() {
            self.line("producer", |out| producer_members(out, &producer), || producer_text(&producer))?;
        }
        Ok(())
    }
}

fn object<W: Write>(out: &mut W, path: &Path, kind: &str, members: impl FnOnce(&mut W) -> fmt::Result) -> fmt::Result {
    out.write_str("{\"file\": ")?;
    json_text(out, &path.display().to_string())?;
    write!(out, ", \"type\": \"{kind}\"")?;
    members(out)?;
    out.write_str("}\n")
}

/// Writes members of a JSON object, each after a comma.
fn numbers(out: &mut impl Write, numbers: &[(&str, impl fmt::Display)]) -> fmt::Result {
    numbers.iter().try_for_each(|(name, value)| write!(out, ", \"{name}\": {value}"))
}

impl Row<'_> {
    /// Returns the number of bytes, -1 for null.
    fn size(self, name: &str) -> i64 {
        self.bytes(name).map_or(-1, |bytes| i64::try_from(bytes.len()).unwrap_or(i64::MAX))
    }

    fn control(self) -> Option<ControlRecord> {
        let part = |name| self.bytes(name).unwrap_or_default();
        (self.number("isControl") == Some(1)).then(|| ControlRecord::decode(part("key"), part("value")))
    }

    /// Writes columns as members of a JSON object, each after a comma.
    fn members(self, out: &mut impl Write, columns: Range<usize>) -> fmt::Result {
        self.columns.get(columns).unwrap_or_default().iter().try_for_each(|(name, cells)| {
            out.write_str(", ")?;
            cells.json(out, name, self.at)
        })
    }

    /// Returns names with their numbers, as the tool prints them.
    fn words(self, names: &[&str]) -> String {
        let word = |name: &&str| match (*name, self.number(name).unwrap_or(-1)) {
            ("isTransactional" | "isControl", flag) => format!("{name}: {}", flag == 1),
            (_, number) => format!("{name}: {number}"),
        };
        names.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    /// Returns a time with its clock.
    fn time(self, name: &str) -> String {
        let time = self.number(name).unwrap_or(-1);
        let clock = match self.number("timestampType") {
            Some(0) => "CreateTime",
            Some(1) => "LogAppendTime",
            _ => "NoTimestampType",
        };
        format!("{clock}: {time}")
    }
}

/// An optional number as Java shows it.
fn optional(number: Option<i64>) -> String {
    number.map_or_else(|| "OptionalLong.empty".to_owned(), |number| format!("OptionalLong[{number}]"))
}

fn batch_text(row: Row<'_>) -> String {
    let codec = row.bytes("compression").map(String::from_utf8_lossy);
    let codec = codec.unwrap_or_else(|| format!("unknown({})", row.number("compressionId").unwrap_or(-1)).into());
    let end = format!(
        "{} {} {} compresscodec: {codec} {} isvalid: {}",
        row.words(&["position"]),
        row.time("maxTimestamp"),
        row.words(&["size", "magic"]),
        row.words(&["crc"]),
        row.number("isValid") == Some(1),
    );
    if row.number("magic") < Some(V2) {
        return format!("offset: {} {end}", row.number("lastOffset").unwrap_or(-1));
    }
    let records = row.words(&["baseOffset", "lastOffset", "count", "baseSequence", "lastSequence"]);
    let producer = row.words(&["producerId", "producerEpoch", "partitionLeaderEpoch", "isTransactional", "isControl"]);
    format!("{records} {producer} deleteHorizonMs: {} {end}", optional(row.number("deleteHorizonMs")))
}

/// Returns key and value of a record of an internal topic as JSON; `None` for what is not of its form.
fn decoded(row: Row<'_>, topic: Option<InternalTopic>) -> [Option<String>; 2] {
    let (key, value) = (row.bytes("key"), row.bytes("value"));
    let of = |bytes, json: &dyn Fn(InternalTopic, &[u8]) -> Option<String>| json(topic?, bytes?);
    [of(key, &InternalTopic::key), of(value, &|topic, value| topic.value(key, value))]
}

fn record_text(row: Row<'_>, data: bool, topic: Option<InternalTopic>) -> String {
    let (key, value) = (row.size("key"), row.size("value"));
    let head = format!("| {} {} keySize: {key} valueSize: {value}", row.words(&["offset"]), row.time("timestamp"));
    let mut parts = vec![head];
    if row.number("magic") < Some(V2) {
        // The brace is the tool's.
        parts.push(format!("isValid: {} {}}}", row.number("isValid") == Some(1), row.words(&["crc"])));
    } else {
        let names: Vec<_> = row.headers().into_iter().map(|(name, _)| name).collect();
        parts.push(format!("{} headerKeys: [{}]", row.words(&["sequence"]), names.join(",")));
    }
    if let Some(control) = row.control() {
        parts.push(control.to_string());
    } else if data {
        let plain = |name| row.bytes(name).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let [key, value] = decoded(row, topic);
        let deleted = key.is_some().then(|| "<DELETE>".to_owned());
        parts.extend(key.or_else(|| plain("key")).map(|key| format!("key: {key}")));
        let value = value.or_else(|| plain("value")).or(deleted);
        parts.extend(value.map(|value| format!("payload: {value}")));
    }
    parts.join(" ")
}

fn record_members(out: &mut impl Write, row: Row<'_>, data: bool, topic: Option<InternalTopic>) -> fmt::Result {
    row.members(out, 0..PLAIN.len())?;
    numbers(out, &[("keySize", row.size("key")), ("valueSize", row.size("value"))])?;
    if let Some(control) = row.control() {
        write!(out, ", \"control\": {}", control.json())
    } else if data {
        for (at, (name, json)) in (PLAIN.len()..).zip(["key", "value"].into_iter().zip(decoded(row, topic))) {
            match json {
                Some(json) => write!(out, ", \"{name}\": {json}")?,
                None => row.members(out, at..at + 1)?,
            }
        }
        row.members(out, PLAIN.len() + 2..row.columns.len())
    } else {
        out.write_str(", \"headerKeys\": [")?;
        for (at, (name, _)) in row.headers().into_iter().enumerate() {
            out.write_str(if at > 0 { ", " } else { "" })?;
            json_text(out, name)?;
        }
        out.write_str("]")
    }
}

fn producer_text(p: &ProducerEntry) -> String {
    let state = format!(
        "producerId: {} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {} lastTimestamp: {}",
        p.producer_id,
        p.producer_epoch,
        p.coordinator_epoch,
        optional(p.current_txn_first_offset),
        p.timestamp
    );
    if p.last_offset < 0 {
        return state;
    }
    // Sequences wrap from 2147483647 to 0.
    let first = p.last_sequence.wrapping_sub(p.offset_delta) & i32::MAX;
    format!(
        "{state} firstSequence: {first} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {}",
        p.last_sequence, p.last_offset, p.offset_delta, p.timestamp
    )
}

fn producer_members(out: &mut impl Write, p: &ProducerEntry) -> fmt::Result {
    let fields = [
        ("producerId", p.producer_id),
        ("producerEpoch", p.producer_epoch.into()),
        ("lastSequence", p.last_sequence.into()),
        ("lastOffset", p.last_offset),
        ("offsetDelta", p.offset_delta.into()),
        ("timestamp", p.timestamp),
        ("coordinatorEpoch", p.coordinator_epoch.into()),
    ];
    numbers(out, &fields)?;
    let open = p.current_txn_first_offset.map_or_else(|| "null".to_owned(), |offset| offset.to_string());
    numbers(out, &[("currentTxnFirstOffset", open)])
}
