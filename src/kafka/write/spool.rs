//! Records of many partitions as batches in one file. A log gives them their offsets.
//!
//! ```text
//! rows --topic, partition or hash of the key--> a batch for each partition --a leader's checks--> chunks of the file
//! chunks --offsets from the end of the log on--> the log of a follower
//! ```
//!
//! A chunk has whole batches of one partition. Offsets and the leader's epoch are outside of a batch's checksum, so a log takes the
//! bytes as they are.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, Int32Array, RecordBatch};
use arrow_schema::DataType;

use super::given_batches::GivenBatches;
use super::log::{AppendResult, PartitionLog};
use super::new_batch::{NewBatch, plain_header};
use super::new_records::{Columns, Row};
use super::producers::remove;
use super::refusal::Refusal;
use super::topic_config::TopicConfig;
use super::validator::{AppendOptions, Origin, Validator};
use super::writer::LogWriter;
use crate::arrow::input_columns::{Texts, null, wrong};
use crate::error::{Error, Result};
use crate::io::fork::Generation;
use crate::io::{Access, FileSource, Location, ReadAt as _, signals, usize_of};
use crate::kafka::format::batch_cursor::BatchCursor;
use crate::kafka::format::codec::Codec;
use crate::kafka::format::header::Header;
use crate::kafka::format::key_partition::key_partition;

/// The columns of records with their partitions.
const COLUMNS: [&str; 6] = ["topic", "partition", "key", "value", "headers", "timestamp"];
/// A chunk that has this many bytes is written.
const CHUNK: usize = 1 << 20;
/// All chunks are written when they have this many bytes together.
const MOST_WAITING: usize = 64 << 20;
const LONGEST_TOPIC: usize = 249;

/// The rules by which rows become batches.
#[derive(Debug)]
pub struct SpoolOptions {
    /// The partitions of topics that exist, sorted.
    pub topics: HashMap<String, Vec<i32>>,
    /// The number of partitions of other topics; `None`: each row has its partition.
    pub partitions: Option<u32>,
    /// The topic of all rows; `None`: that of the column.
    pub topic: Option<String>,
    /// A number of the task, by which tasks begin in different partitions with rows that have neither partition nor key.
    pub task: u32,
    /// The settings of the topics.
    pub config: TopicConfig,
    /// The compression of batches, unless the topic has one.
    pub codec: Codec,
    /// A batch takes records until it has this many bytes, before compression.
    pub batch_bytes: usize,
}

/// Batches of one partition in a file, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Byte offset in the file.
    pub position: u64,
    /// Length in bytes.
    pub len: u64,
    /// The number of records.
    pub records: u64,
}

/// A partition, and its chunks in order.
pub type Spooled = (String, i32, Vec<Chunk>);

/// The partitions of a topic that rows may have.
#[derive(Debug)]
enum Allowed {
    /// Those that exist, sorted.
    Existing(Vec<i32>),
    /// The first ones of a new topic.
    First(u32),
    /// All of a new topic.
    Any,
}

#[derive(Debug)]
struct Topic {
    name: String,
    allowed: Allowed,
    /// The partition of the next row that has neither partition nor key.
    sticky: u32,
    partitions: BTreeMap<i32, Partition>,
}

#[derive(Debug)]
struct Partition {
    /// The name, for messages.
    name: PathBuf,
    new: NewBatch,
    /// Batches that are not in the file yet, with the number of their records.
    waiting: (Vec<u8>, u64),
    chunks: Vec<Chunk>,
}

/// The file, and what finishes batches.
#[derive(Debug)]
struct Output {
    path: PathBuf,
    file: File,
    size: u64,
    config: TopicConfig,
    codec: Codec,
    cursor: BatchCursor,
    batch: Vec<u8>,
    /// Bytes that wait in all partitions.
    waiting: usize,
}

/// Writes the batches of many partitions into one file.
#[derive(Debug)]
pub struct BatchSpool {
    options: SpoolOptions,
    output: Output,
    topics: Vec<Topic>,
    numbers: HashMap<String, usize>,
    process: Generation,
}

impl BatchSpool {
    /// Creates the file.
    ///
    /// # Errors
    /// `InvalidArgument` for a topic that no broker has; an I/O error if the file exists or cannot be created.
    pub fn create(path: &Path, options: SpoolOptions) -> Result<Self> {
        if let Some(topic) = &options.topic {
            check_topic(topic)?;
        }
        let file = File::create_new(path).map_err(|e| Error::io(path, e))?;
        let output = Output {
            path: path.to_owned(),
            file,
            size: 0,
            config: options.config.clone(),
            codec: options.config.compression.unwrap_or(options.codec),
            cursor: super::log::new_cursor(),
            batch: Vec::new(),
            waiting: 0,
        };
        let process = Generation::current();
        Ok(Self { options, output, topics: Vec::new(), numbers: HashMap::new(), process })
    }

    /// Takes rows. Those without a timestamp get `now`. After an error some of them may be taken.
    ///
    /// # Errors
    /// `InvalidArgument` for columns that are no records, or a row without a partition; `Refused` as by a leader; an I/O error.
    pub fn append(&mut self, rows: &RecordBatch, now: i64) -> Result<()> {
        self.process.check_writer(&self.output.path)?;
        let columns = Columns::of(rows, &COLUMNS)?;
        let texts = if self.options.topic.is_none() { Some(Texts::of(rows, "topic")?) } else { None };
        let given = partitions(rows)?;
        let (mut headers, mut number) = (Vec::new(), 0);
        for at in 0..rows.num_rows() {
            let row = columns.row(at, &mut headers)?;
            let given = given.filter(|given| given.is_valid(at)).map(|given| given.value(at));
            let name = self.options.topic.as_deref().or_else(|| texts.as_ref().and_then(|texts| texts.get(at)));
            let name = name.ok_or_else(|| null("topic", at))?;
            // Rows of one topic usually follow each other.
            if self.topics.get(number).is_none_or(|topic| topic.name != name) {
                number = match self.numbers.get(name) {
                    Some(number) => *number,
                    None => add_topic(&mut self.topics, &mut self.numbers, name, &self.options)?,
                };
            }
            let Some(topic) = self.topics.get_mut(number) else { continue };
            topic.push(&row, &headers, given, self.options.batch_bytes, &mut self.output, now).map_err(
                |e| match e {
                    Error::InvalidArgument(text) => Error::InvalidArgument(format!("row {at}: {text}")),
                    other => other,
                },
            )?;
        }
        if self.output.waiting >= MOST_WAITING { self.each_partition(Partition::write) } else { Ok(()) }
    }

    fn each_partition(&mut self, mut call: impl FnMut(&mut Partition, &mut Output) -> Result<()>) -> Result<()> {
        let Self { topics, output, .. } = self;
        topics.iter_mut().flat_map(|topic| topic.partitions.values_mut()).try_for_each(|each| call(each, output))
    }

    /// Finishes all batches, and returns the chunks of each partition.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub fn finish(mut self, now: i64) -> Result<Vec<Spooled>> {
        self.process.check_writer(&self.output.path)?;
        self.each_partition(|partition, out| {
            partition.finish(out, now)?;
            partition.write(out)
        })?;
        let of = |topic: Topic| {
            let name = topic.name;
            topic.partitions.into_iter().map(move |(number, each)| (name.clone(), number, each.chunks))
        };
        Ok(self.topics.into_iter().flat_map(of).collect())
    }

    /// Removes the file.
    ///
    /// # Errors
    /// An I/O error.
    pub fn discard(self) -> Result<()> {
        self.process.check_writer(&self.output.path)?;
        remove(&self.output.path)
    }
}

fn partitions(rows: &RecordBatch) -> Result<Option<&Int32Array>> {
    let Some(array) = rows.column_by_name("partition").filter(|array| *array.data_type() != DataType::Null) else {
        return Ok(None);
    };
    array.as_primitive_opt::<Int32Type>().map(Some).ok_or_else(|| wrong("partition", array, "int32"))
}

fn check_topic(name: &str) -> Result<()> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=LONGEST_TOPIC).contains(&name.len()) && name.bytes().all(is_valid) && name != "." && name != ".." {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!(
        "topic {name:?}: expected 1 to {LONGEST_TOPIC} letters, digits, '.', '_' or '-'"
    )))
}

fn add_topic(
    topics: &mut Vec<Topic>,
    numbers: &mut HashMap<String, usize>,
    name: &str,
    options: &SpoolOptions,
) -> Result<usize> {
    check_topic(name)?;
    let allowed = match (options.topics.get(name), options.partitions) {
        (Some(existing), _) => Allowed::Existing(existing.clone()),
        (None, Some(count)) => Allowed::First(count),
        (None, None) => Allowed::Any,
    };
    numbers.insert(name.to_owned(), topics.len());
    topics.push(Topic { name: name.to_owned(), allowed, sticky: options.task, partitions: BTreeMap::new() });
    Ok(topics.len() - 1)
}

impl Topic {
    fn push(
        &mut self,
        row: &Row<'_>,
        headers: &[u8],
        given: Option<i32>,
        batch_bytes: usize,
        output: &mut Output,
        now: i64,
    ) -> Result<()> {
        let number = self.choose(row, given)?;
        let mut partition = self.partition(number);
        if partition.is_full(row.bytes(headers), batch_bytes) {
            partition.finish(output, now)?;
            if given.is_none() && row.key.is_none() {
                self.sticky = self.sticky.wrapping_add(1);
                let next = self.choose(row, None)?;
                partition = self.partition(next);
                if partition.is_full(row.bytes(headers), batch_bytes) {
                    partition.finish(output, now)?;
                }
            }
        }
        let timestamp = row.timestamp.unwrap_or(now);
        partition.new.push(timestamp, row.key, row.value, (row.headers, headers));
        Ok(())
    }

    fn partition(&mut self, number: i32) -> &mut Partition {
        let name = &self.name;
        self.partitions.entry(number).or_insert_with(|| Partition {
            name: PathBuf::from(format!("{name}-{number}")),
            new: NewBatch::default(),
            waiting: (Vec::new(), 0),
            chunks: Vec::new(),
        })
    }

    /// Returns the partition of a row.
    fn choose(&self, row: &Row<'_>, given: Option<i32>) -> Result<i32> {
        let name = &self.name;
        if let Some(given) = given {
            let is_allowed = match &self.allowed {
                Allowed::Existing(existing) => existing.binary_search(&given).is_ok(),
                Allowed::First(count) => u32::try_from(given).is_ok_and(|given| given < *count),
                Allowed::Any => given >= 0,
            };
            if is_allowed {
                return Ok(given);
            }
            let wanted = match &self.allowed {
                Allowed::Existing(existing) => format!("one of the {} that are here", existing.len()),
                Allowed::First(count) => format!("0 to {}", count.saturating_sub(1)),
                Allowed::Any => "0 or more".to_owned(),
            };
            return Err(Error::InvalidArgument(format!("topic {name}, partition {given}: expected {wanted}")));
        }
        let count = match &self.allowed {
            Allowed::Existing(existing) => {
                let count = u32::try_from(existing.len()).ok();
                let count = count.filter(|count| existing.last().is_some_and(|last| last.cast_unsigned() < *count));
                count.ok_or("not all of its partitions are here")
            }
            Allowed::First(count) => Ok(*count),
            Allowed::Any => Err("it is new: pass the number of its partitions"),
        };
        let count = count.map_err(|why| {
            Error::InvalidArgument(format!("topic {name}: expected a partition for each row, found none; {why}"))
        })?;
        let chosen = row.key.map_or_else(|| self.sticky % count.max(1), |key| key_partition(key, count));
        i32::try_from(chosen).map_err(|_| Error::InvalidArgument(format!("topic {name}: {count} partitions")))
    }
}

impl Partition {
    fn is_full(&self, more: usize, batch_bytes: usize) -> bool {
        !self.new.is_empty() && self.new.size().saturating_add(more) > batch_bytes
    }

    /// Finishes the batch, as a leader would store it.
    fn finish(&mut self, out: &mut Output, now: i64) -> Result<()> {
        if self.new.is_empty() {
            return Ok(());
        }
        out.batch.clear();
        let facts = self.new.finish(&plain_header(), out.codec, out.config.level(out.codec), &mut out.batch)?;
        let (size, name) = (out.batch.len() as u64, self.name.display());
        if size > out.config.max_message_bytes {
            let most = out.config.max_message_bytes;
            return Err(
                Refusal::RECORD_TOO_LARGE.because(format_args!("{name}: a batch of {size} bytes, at most {most}"))
            );
        }
        if size > out.config.segment_bytes {
            let most = out.config.segment_bytes;
            let text = format_args!("{name}: {size} bytes, segments hold {most}");
            return Err(Refusal::RECORD_BATCH_TOO_LARGE.because(text));
        }
        let options = AppendOptions::of(Origin::Client, 0);
        let validator = Validator::new(&out.config, &self.name, options, 0, out.codec, now);
        let before = self.waiting.0.len();
        if validator.takes_as_is(&facts) {
            Header::write_place(&mut out.batch, 0, options.leader_epoch);
            self.waiting.0.extend_from_slice(&out.batch);
            self.waiting.1 += u64::from(facts.count.cast_unsigned());
        } else {
            let validated = validator.validate(&out.batch, &mut out.cursor)?;
            self.waiting.0.extend_from_slice(&validated.bytes);
            self.waiting.1 += validated.next_offset.cast_unsigned();
        }
        out.waiting += self.waiting.0.len() - before;
        if self.waiting.0.len() >= CHUNK { self.write(out) } else { Ok(()) }
    }

    /// Writes the batches that wait, as a chunk.
    fn write(&mut self, out: &mut Output) -> Result<()> {
        let (bytes, records) = (&mut self.waiting.0, std::mem::take(&mut self.waiting.1));
        if bytes.is_empty() {
            return Ok(());
        }
        out.file.write_all(bytes).map_err(|e| Error::write_failed(&out.path, e))?;
        let len = bytes.len() as u64;
        self.chunks.push(Chunk { position: out.size, len, records });
        out.size += len;
        out.waiting -= bytes.len();
        bytes.clear();
        // All partitions together may keep little.
        bytes.shrink_to(CHUNK / 16);
        signals::look().map_err(|e| Error::io(&out.path, e))
    }
}

impl LogWriter {
    /// Appends chunks of spools in order, with offsets from the end of the log on. Their batches were checked when they were
    /// finished.
    ///
    /// # Errors
    /// As [`Self::append_batches`]; `Corrupt` for a chunk that has other batches than were written; an I/O error of its file.
    pub fn append_chunks(&self, chunks: &[(Location, Chunk)], now: i64) -> Result<AppendResult> {
        let mut whole = AppendResult { first_offset: -1, last_offset: -1, max_timestamp: -1, log_append_time: -1 };
        let leader_epoch = self.leader_epoch()?;
        let (mut bytes, mut open) = (Vec::new(), None::<(&Location, FileSource)>);
        for (path, chunk) in chunks {
            let file = match open.take() {
                Some((of, file)) if of == path => file,
                _ => FileSource::open(path, Access::Pread)?,
            };
            bytes.clear();
            let len = usize_of(chunk.len);
            if chunk.position.checked_add(chunk.len).is_none_or(|end| end > file.len()) {
                let found = format!("a file of {} bytes", file.len());
                return Err(Error::corrupt(path, chunk.position, format!("{len} bytes of batches"), found));
            }
            bytes.resize(len, 0);
            file.read_exact_at(&mut bytes, chunk.position).map_err(|e| Error::io(path, e))?;
            open = Some((path, file));
            self.change(|log| log.append_chunk(&mut bytes, path, *chunk, leader_epoch, now, &mut whole))?;
            signals::look().map_err(|e| Error::io(path, e))?;
        }
        self.wait_for_disk(whole.last_offset + 1)?;
        self.advance_high_watermark(None)?;
        Ok(whole)
    }
}

impl PartitionLog {
    /// Numbers the batches of a chunk, and appends them, together as many as a segment holds.
    fn append_chunk(
        &mut self,
        bytes: &mut [u8],
        path: &Path,
        chunk: Chunk,
        leader_epoch: i32,
        now: i64,
        whole: &mut AppendResult,
    ) -> Result<()> {
        let most = usize_of(self.options.config.segment_bytes);
        let (first, mut next, mut end) = (self.end, self.end, 0);
        let (mut places, mut groups) = (Vec::new(), Vec::<Range<usize>>::new());
        for batch in GivenBatches::new(bytes, path) {
            let (header, batch) = batch?;
            places.push((end, next));
            next += i64::from(header.count.unwrap_or(0));
            match groups.last_mut() {
                Some(group) if end - group.start + batch.len() <= most => group.end += batch.len(),
                _ => groups.push(end..end + batch.len()),
            }
            end += batch.len();
        }
        if end != bytes.len() || (next - first).cast_unsigned() != chunk.records {
            let found = format!("{} records in {end} bytes", next - first);
            let expected = format!("{} records in {} bytes", chunk.records, chunk.len);
            return Err(Error::corrupt(path, chunk.position, expected, found));
        }
        for (at, offset) in places {
            Header::write_place(bytes.split_at_mut(at).1, offset, leader_epoch);
        }
        let options = AppendOptions::of(Origin::Replication, leader_epoch);
        let mut rest = &*bytes;
        for group in groups {
            let batches;
            (batches, rest) = rest.split_at(group.len());
            let part = self.append(batches, options, now)?;
            if whole.first_offset < 0 {
                whole.first_offset = part.first_offset;
            }
            whole.last_offset = part.last_offset;
            whole.max_timestamp = whole.max_timestamp.max(part.max_timestamp);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, StringArray};

    use super::*;
    use crate::kafka::compat::Compat;
    use crate::kafka::write::{LogOptions, now_ms};

    fn options(partitions: Option<u32>) -> SpoolOptions {
        let config = TopicConfig::parse(&HashMap::new(), Compat::parse("3.9.2").unwrap()).unwrap();
        let topics = HashMap::from([("old".to_owned(), vec![0, 1, 2]), ("part".to_owned(), vec![0, 2])]);
        SpoolOptions { topics, partitions, topic: None, task: 0, config, codec: Codec::None, batch_bytes: 200 }
    }

    fn rows(topic: &str, partition: Option<i32>, count: usize) -> RecordBatch {
        let columns: [(&str, ArrayRef); 3] = [
            ("topic", Arc::new(StringArray::from_iter_values(std::iter::repeat_n(topic, count)))),
            ("partition", Arc::new(std::iter::repeat_n(partition, count).collect::<Int32Array>())),
            ("value", Arc::new(arrow_array::BinaryArray::from_iter_values((0..count).map(|_| [7; 50])))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn chunks_get_offsets_from_the_end_of_the_log_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("spool");
        let mut spool = BatchSpool::create(&path, options(None)).unwrap();
        spool.append(&rows("old", Some(1), 10), 5).unwrap();
        spool.append(&rows("old", None, 8), 5).unwrap();
        let spooled = spool.finish(5).unwrap();
        let counts: Vec<_> = spooled.iter().map(|(_, number, chunks)| (*number, chunks[0].records)).collect();
        // Two records fill a batch; the two batches in partition 1 before were taken by their rows.
        assert_eq!(counts.iter().map(|(_, records)| records).sum::<u64>(), 18);
        assert_eq!(counts.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2]);
        let log = LogOptions {
            config: options(None).config,
            compat: Compat::parse("3.9.2").unwrap(),
            is_clean: true,
            truncates: false,
            recovery_point: 0,
            log_start_offset: 0,
            producer_id_expiration_ms: 1,
            topic_id: None,
        };
        let writer = LogWriter::open(&directory.path().join("old-1"), log, false, Arc::default(), 0).unwrap();
        writer.become_leader(3).unwrap();
        let chunks: Vec<_> = spooled[1].2.iter().map(|chunk| (Location::from(path.clone()), *chunk)).collect();
        for first in [0, counts[1].1.cast_signed()] {
            let result = writer.append_chunks(&chunks, now_ms()).unwrap();
            assert_eq!((result.first_offset, result.max_timestamp), (first, 5));
        }
        let offsets = writer.offsets().unwrap();
        assert_eq!((offsets.end, offsets.high_watermark), (2 * counts[1].1.cast_signed(), offsets.end));
        let more = [(chunks[0].0.clone(), Chunk { records: 1, ..chunks[0].1 })];
        let text = writer.append_chunks(&more, 0).unwrap_err().to_string();
        assert!(text.contains("expected 1 records"), "{text}");
        assert_eq!(writer.offsets().unwrap().end, offsets.end);
    }

    #[test]
    fn rows_without_a_place_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        for (number, (partitions, topic, given, expected)) in [
            (None, "old", Some(3), "row 0: topic old, partition 3: expected one of the 3"),
            (None, "part", None, "not all of its partitions are here"),
            (None, "new", None, "it is new"),
            (Some(2), "new", Some(2), "expected 0 to 1"),
            (None, "new", Some(-1), "expected 0 or more"),
            (Some(2), "a/b", None, "topic \"a/b\": expected 1 to 249"),
        ]
        .into_iter()
        .enumerate()
        {
            let path = directory.path().join(number.to_string());
            let mut spool = BatchSpool::create(&path, options(partitions)).unwrap();
            let text = spool.append(&rows(topic, given, 1), 0).unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
            spool.discard().unwrap();
            assert!(!path.exists());
        }
    }
}
