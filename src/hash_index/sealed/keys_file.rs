//! Files of sorted rows: Parquet with row groups of 1,024 rows, and one page for each column.
//!
//! ```text
//! PAR1 | row group | row group | ... | metadata of Parquet
//! row group: key_hash page | (topic dictionary, topic page | partition page) | offset page | time page
//! ```
//!
//! A row group is some 9 KB, and the catalog has its first hash, so one read answers a lookup. All columns are required, all
//! numbers are delta-encoded, and nothing is compressed. This module reads only pages that it writes itself.

use std::path::Path;
use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::errors::Result as ParquetResult;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData, SortingColumn,
};
use parquet::file::statistics::Statistics;
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor};

use super::delta;
use super::rows::{NO_TIME, Row};
use super::table::{self, Kind};
use crate::error::{Error, Result};
use crate::io::{i64_of, u32_of};

/// Rows of a row group.
pub(super) const GROUP_ROWS: usize = 1_024;
/// Upper bound of the bytes of a row group.
const MOST_GROUP_BYTES: u64 = 1 << 20;
/// Columns of a file at most.
const MOST_COLUMNS: usize = 5;
const MAGIC: &[u8; 4] = b"PAR1";

/// The columns of the files, and what the number of a part stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `key_hash`, `phy_offset`, `store_timestamp`.
    OneLog,
    /// `key_hash`, `topic`, `partition`, `offset`, `timestamp`: the topic and number of each part, ascending.
    Partitions(Vec<(String, i32)>),
}

impl Layout {
    /// Names of the columns.
    pub fn columns(&self) -> &'static [&'static str] {
        match self {
            Self::OneLog => &["key_hash", "phy_offset", "store_timestamp"],
            Self::Partitions(_) => &["key_hash", "topic", "partition", "offset", "timestamp"],
        }
    }

    fn schema(&self) -> ParquetResult<SchemaDescPtr> {
        let kind = |name: &str| match name {
            "key_hash" | "partition" => Kind::Int32,
            "topic" => Kind::Text,
            "phy_offset" | "offset" => Kind::Int64,
            _ => Kind::Milliseconds,
        };
        let fields = self.columns().iter().map(|name| table::field(name, kind(name), false));
        let schema = table::schema("sealed_keys", fields.collect::<ParquetResult<_>>()?)?;
        Ok(Arc::new(SchemaDescriptor::new(schema)))
    }
}

/// A row group: what one lookup reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Hash of its first row.
    pub first_key_hash: i32,
    /// Number of rows.
    pub rows: u32,
    /// Offset of its first byte.
    pub begin: u64,
    /// CRC-32 of its bytes.
    pub crc: u32,
    /// Bytes of each column, one after the other.
    pub sizes: [u32; MOST_COLUMNS],
}

impl Group {
    /// Bytes of all columns.
    pub fn len(&self) -> u64 {
        self.sizes.iter().copied().map(u64::from).sum()
    }

    /// True without a byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the row group is possible. A lookup allocates its bytes and rows before it reads them.
    pub(super) fn is_plausible(&self) -> bool {
        (1..=GROUP_ROWS as u64).contains(&self.rows.into()) && self.len() <= MOST_GROUP_BYTES
    }

    /// Places the row groups one after the other.
    pub(super) fn place(groups: &mut [Self]) {
        let mut begin = MAGIC.len() as u64;
        for group in groups {
            group.begin = begin;
            begin = begin.saturating_add(group.len());
        }
    }
}

/// Decodes row groups. The memory is reused.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    hashes: Vec<i32>,
    partitions: Vec<i32>,
    offsets: Vec<i64>,
    times: Vec<i64>,
    numbers: Vec<u64>,
    /// Rows that are wanted, each with the number of its key.
    wanted: Vec<(usize, u32)>,
}

impl Decoder {
    /// Passes on the rows of a row group that `choose` wants by their hashes, each with a number: that of its key. Without
    /// `needs_times` rows have no time.
    ///
    /// # Errors
    /// `Corrupt` if these are not the bytes of the row group.
    pub(super) fn rows(
        &mut self,
        (path, layout, group): (&Path, &Layout, &Group),
        bytes: &[u8],
        needs_times: bool,
        choose: impl FnOnce(&[i32], &mut Vec<(usize, u32)>),
        take: impl FnMut(u32, &Row),
    ) -> Result<()> {
        let found = crc32fast::hash(bytes);
        if found != group.crc {
            let expected = format!("rows with the checksum {:08x} of the catalog", group.crc);
            return Err(Error::corrupt(path, group.begin, expected, format!("{found:08x}")));
        }
        self.decode(layout, group, bytes, needs_times, choose, take).ok_or_else(|| {
            let expected = format!("{} rows, and the pages of {:?}", group.rows, layout.columns());
            Error::corrupt(path, group.begin, expected, "other bytes")
        })
    }

    fn decode(
        &mut self,
        layout: &Layout,
        group: &Group,
        mut bytes: &[u8],
        needs_times: bool,
        choose: impl FnOnce(&[i32], &mut Vec<(usize, u32)>),
        mut take: impl FnMut(u32, &Row),
    ) -> Option<()> {
        let mut columns = [&[][..]; MOST_COLUMNS];
        for (column, size) in columns.iter_mut().zip(group.sizes) {
            (*column, bytes) = bytes.split_at_checked(usize::try_from(size).ok()?)?;
        }
        let count = usize::try_from(group.rows).ok()?;
        let [hashes, topics, partitions, offsets, times] = match layout {
            Layout::OneLog => [columns[0], &[], &[], columns[1], columns[2]],
            Layout::Partitions(_) => columns,
        };
        delta::decode(page_of(hashes, DELTA)?, count, narrow, &mut self.hashes)?;
        self.wanted.clear();
        choose(&self.hashes, &mut self.wanted);
        if self.wanted.is_empty() {
            return Some(());
        }
        delta::decode(page_of(offsets, DELTA)?, count, |offset| offset, &mut self.offsets)?;
        if needs_times {
            delta::decode(page_of(times, DELTA)?, count, |time| time, &mut self.times)?;
        }
        let mut names = Vec::new();
        let parts: &[(String, i32)] = match layout {
            Layout::OneLog => &[],
            Layout::Partitions(parts) => {
                delta::decode(page_of(partitions, DELTA)?, count, narrow, &mut self.partitions)?;
                names = topics_of(topics, count, &mut self.numbers)?;
                parts
            }
        };
        for &(place, key) in &self.wanted {
            let part = match layout {
                Layout::OneLog => 0,
                Layout::Partitions(_) => {
                    let topic = *names.get(usize::try_from(*self.numbers.get(place)?).ok()?)?;
                    let asked = (topic, *self.partitions.get(place)?);
                    let part = parts.binary_search_by(|(topic, number)| (topic.as_str(), *number).cmp(&asked)).ok()?;
                    u32::try_from(part).ok()?
                }
            };
            let time = if needs_times { *self.times.get(place)? } else { NO_TIME };
            let (key_hash, offset) = (*self.hashes.get(place)?, *self.offsets.get(place)?);
            take(key, &Row { key_hash, part, offset, time });
        }
        Some(())
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a column of 32 bits")]
fn narrow(value: i64) -> i32 {
    value as i32
}

/// The topics of a dictionary, and the number of each row's topic in it.
fn topics_of<'a>(column: &'a [u8], count: usize, numbers: &mut Vec<u64>) -> Option<Vec<&'a str>> {
    let (mut dictionary, rest) = take_page(column, DICTIONARY)?;
    let mut names = Vec::new();
    while let Some((len, rest)) = dictionary.split_first_chunk() {
        let name;
        (name, dictionary) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)?;
        names.push(std::str::from_utf8(name).ok()?);
    }
    let (width, mut packed) = page_of(rest, NUMBERS)?.split_first()?;
    let eights = count.div_ceil(8);
    if delta::take_varint(&mut packed)? != (eights as u64) << 1 | 1 || packed.len() != eights * usize::from(*width) {
        return None;
    }
    numbers.clear();
    numbers.resize(8 * eights, 0);
    delta::unpack(packed, *width, numbers.as_chunks_mut().0, |number| number)?;
    Some(names)
}

/// The numbers of a page type and of an encoding.
type PageKind = (i64, i64);
const DATA_PAGE: i64 = 0;
/// `DELTA_BINARY_PACKED`.
const DELTA: PageKind = (DATA_PAGE, 5);
/// `RLE_DICTIONARY`.
const NUMBERS: PageKind = (DATA_PAGE, 8);
/// `PLAIN`.
const DICTIONARY: PageKind = (2, 0);
/// Fields of the compact protocol of Thrift: an integer in the next field, and a structure five or four fields further on.
const INTEGER: u8 = 0x15;
const DATA_HEADER: u8 = 0x2c;
const DICTIONARY_HEADER: u8 = 0x4c;
/// The encoding of levels, of which there are none.
const RLE: i64 = 3;

/// Appends a page: its header, and its values.
fn put_page((kind, encoding): PageKind, count: usize, values: &[u8], out: &mut Vec<u8>) {
    let field = |number: i64, out: &mut Vec<u8>| {
        out.push(INTEGER);
        delta::put_zigzag(number, out);
    };
    let len = i64_of(values.len());
    for number in [kind, len, len] {
        field(number, out);
    }
    out.push(if kind == DATA_PAGE { DATA_HEADER } else { DICTIONARY_HEADER });
    field(i64_of(count), out);
    field(encoding, out);
    if kind == DATA_PAGE {
        field(RLE, out);
        field(RLE, out);
    }
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(values);
}

/// Splits off the values of the first page.
fn take_page(column: &[u8], (kind, encoding): PageKind) -> Option<(&[u8], &[u8])> {
    let mut rest = column;
    let mut field = |name: u8| {
        let (found, after) = rest.split_first()?;
        rest = after;
        if *found != name {
            return None;
        }
        if name == INTEGER { delta::take_zigzag(&mut rest) } else { Some(0) }
    };
    let (found, len, held) = (field(INTEGER)?, field(INTEGER)?, field(INTEGER)?);
    field(if kind == DATA_PAGE { DATA_HEADER } else { DICTIONARY_HEADER })?;
    let (_, found_encoding) = (field(INTEGER)?, field(INTEGER)?);
    if kind == DATA_PAGE {
        field(INTEGER)?;
        field(INTEGER)?;
    }
    field(0)?;
    field(0)?;
    if (found, found_encoding) != (kind, encoding) || len != held {
        return None;
    }
    rest.split_at_checked(usize::try_from(len).ok()?)
}

/// The values of the only page.
fn page_of(column: &[u8], kind: PageKind) -> Option<&[u8]> {
    take_page(column, kind).filter(|(_, rest)| rest.is_empty()).map(|(values, _)| values)
}

/// A file in memory that is being written.
struct Writer<'a> {
    layout: &'a Layout,
    schema: SchemaDescPtr,
    bytes: Vec<u8>,
    groups: Vec<Group>,
    metadata: Vec<RowGroupMetaData>,
    values: Vec<i64>,
    page: Vec<u8>,
}

impl Writer<'_> {
    #[expect(clippy::cast_possible_wrap, reason = "a file in memory has less than 2^63 bytes")]
    fn write_group(&mut self, rows: &[Row]) -> ParquetResult<()> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(()) };
        let begin = self.bytes.len();
        let mut group = Group { first_key_hash: first.key_hash, begin: begin as u64, ..Group::default() };
        group.rows = u32_of(rows.len());
        let mut columns = Vec::new();
        for (number, (name, size)) in self.layout.columns().iter().zip(&mut group.sizes).enumerate() {
            let at = self.bytes.len();
            let mut column = ColumnChunkMetaData::builder(self.schema.column(number));
            let part = |row: &Row| match self.layout {
                Layout::OneLog => None,
                Layout::Partitions(parts) => parts.get(usize::try_from(row.part).ok()?),
            };
            if *name == "topic" {
                let topics = rows.iter().map(|row| part(row).map_or("", |(topic, _)| topic.as_str()));
                let values = put_topics(topics, &mut self.bytes);
                column = column
                    .set_encodings(vec![Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY])
                    .set_dictionary_page_offset(Some(at as i64))
                    .set_data_page_offset(values as i64);
            } else {
                self.values.clear();
                self.values.extend(rows.iter().map(|row| match *name {
                    "key_hash" => i64::from(row.key_hash),
                    "partition" => part(row).map_or(-1, |(_, number)| i64::from(*number)),
                    "phy_offset" | "offset" => row.offset,
                    _ => row.time,
                }));
                self.page.clear();
                delta::encode(&self.values, &mut self.page);
                put_page(DELTA, rows.len(), &self.page, &mut self.bytes);
                let encodings = vec![Encoding::RLE, Encoding::DELTA_BINARY_PACKED];
                column = column.set_encodings(encodings).set_data_page_offset(at as i64);
            }
            if number == 0 {
                let range = (Some(first.key_hash), Some(last.key_hash));
                column = column.set_statistics(Statistics::int32(range.0, range.1, None, Some(0), false));
            }
            let len = self.bytes.len() - at;
            *size = u32_of(len);
            columns.push(
                column
                    .set_num_values(rows.len() as i64)
                    .set_total_compressed_size(len as i64)
                    .set_total_uncompressed_size(len as i64)
                    .build()?,
            );
        }
        group.crc = crc32fast::hash(self.bytes.get(begin..).unwrap_or_default());
        let sorted = SortingColumn { column_idx: 0, descending: false, nulls_first: false };
        let metadata = RowGroupMetaData::builder(Arc::clone(&self.schema))
            .set_num_rows(rows.len() as i64)
            .set_total_byte_size((self.bytes.len() - begin) as i64)
            .set_sorting_columns(Some(vec![sorted]))
            .set_column_metadata(columns);
        self.metadata.push(metadata.build()?);
        self.groups.push(group);
        Ok(())
    }

    fn finish(mut self) -> ParquetResult<(Vec<u8>, Vec<Group>)> {
        let rows = self.groups.iter().map(|group| i64::from(group.rows)).sum();
        let writer = concat!("logdex ", env!("CARGO_PKG_VERSION")).to_owned();
        let file = FileMetaData::new(1, rows, Some(writer), None, self.schema, None);
        let metadata = ParquetMetaData::new(file, self.metadata);
        ParquetMetaDataWriter::new(&mut self.bytes, &metadata).finish()?;
        Ok((self.bytes, self.groups))
    }
}

/// Appends the dictionary of topics and the number of each row's topic. Returns where the second page begins.
fn put_topics<'a>(topics: impl ExactSizeIterator<Item = &'a str> + Clone, out: &mut Vec<u8>) -> usize {
    let mut names: Vec<&str> = topics.clone().collect();
    names.sort_unstable();
    names.dedup();
    let mut page = Vec::new();
    for name in &names {
        page.extend_from_slice(&u32_of(name.len()).to_le_bytes());
        page.extend_from_slice(name.as_bytes());
    }
    put_page(DICTIONARY, names.len(), &page, out);
    let at = out.len();
    let count = topics.len();
    let width = (usize::BITS - (names.len() - 1).leading_zeros()).max(1);
    page.clear();
    page.push(width.to_le_bytes()[0]);
    delta::put_varint((count.div_ceil(8) as u64) << 1 | 1, &mut page);
    let numbers = topics.map(|topic| names.binary_search(&topic).unwrap_or(0) as u64);
    delta::pack(numbers.chain(std::iter::repeat_n(0, count.next_multiple_of(8) - count)), width, &mut page);
    put_page(NUMBERS, count, &page, out);
    at
}

/// Makes one file in memory of sorted rows. Returns its bytes and its row groups.
///
/// # Errors
/// Those of `pieces`.
pub fn encode(layout: &Layout, pieces: &mut dyn Iterator<Item = Result<Vec<Row>>>) -> Result<(Vec<u8>, Vec<Group>)> {
    let failed = |error| Error::InvalidArgument(format!("rows of a sealed index: {error}"));
    let mut writer = Writer {
        layout,
        schema: layout.schema().map_err(failed)?,
        bytes: MAGIC.to_vec(),
        groups: Vec::new(),
        metadata: Vec::new(),
        values: Vec::new(),
        page: Vec::new(),
    };
    let mut pending: Vec<Row> = Vec::with_capacity(GROUP_ROWS);
    for piece in pieces {
        let piece = piece?;
        let (first, rest) = piece.split_at(piece.len().min(GROUP_ROWS - pending.len()));
        pending.extend_from_slice(first);
        if pending.len() == GROUP_ROWS {
            writer.write_group(&pending).map_err(failed)?;
            pending.clear();
        }
        let (groups, rest) = rest.split_at(rest.len() - rest.len() % GROUP_ROWS);
        for group in groups.chunks(GROUP_ROWS) {
            writer.write_group(group).map_err(failed)?;
        }
        pending.extend_from_slice(rest);
    }
    writer.write_group(&pending).map_err(failed)?;
    writer.finish().map_err(failed)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parquet::data_type::{ByteArrayType, Int32Type, Int64Type};

    use super::super::table::Table;
    use super::*;

    fn layouts() -> [Layout; 2] {
        [Layout::OneLog, Layout::Partitions(vec![("orders".into(), 3), ("payments".into(), 0), ("payments".into(), 7)])]
    }

    fn rows(layout: &Layout, count: i32) -> Vec<Row> {
        let parts = if *layout == Layout::OneLog { 1 } else { 3 };
        let row = |number: i32| Row {
            key_hash: number / 3 * 50,
            part: number.cast_unsigned() % parts,
            offset: i64::from(count - number) * 1000,
            time: if number % 7 == 0 { NO_TIME } else { 1_700_000_000_000 + i64::from(number) },
        };
        (0..count).map(row).collect()
    }

    fn held<'a>(bytes: &'a [u8], group: &Group) -> &'a [u8] {
        let begin = usize::try_from(group.begin).unwrap();
        &bytes[begin..begin + usize::try_from(group.len()).unwrap()]
    }

    fn all(hashes: &[i32], wanted: &mut Vec<(usize, u32)>) {
        wanted.extend((0..hashes.len()).map(|place| (place, 0)));
    }

    #[test]
    fn a_group_gives_back_the_chosen_rows() {
        let path = Path::new("keys");
        for layout in layouts() {
            let given = rows(&layout, 2_500);
            let (bytes, groups) = encode(&layout, &mut given.chunks(700).map(|piece| Ok(piece.to_vec()))).unwrap();
            assert_eq!(groups.iter().map(|group| group.rows).collect::<Vec<_>>(), [1_024, 1_024, 452]);
            let (mut decoder, mut read) = (Decoder::default(), Vec::new());
            for group in &groups {
                assert!(group.len() <= 16 << 10);
                let place = (path, &layout, group);
                decoder.rows(place, held(&bytes, group), true, |_, _| {}, |_, row| panic!("{row:?}")).unwrap();
                decoder.rows(place, held(&bytes, group), true, all, |_, row| read.push(*row)).unwrap();
                let choose = |_: &[i32], wanted: &mut Vec<(usize, u32)>| wanted.push((3, 77));
                let mut chosen = Vec::new();
                decoder.rows(place, held(&bytes, group), false, choose, |key, row| chosen.push((key, *row))).unwrap();
                let expected = Row { time: NO_TIME, ..read[read.len() - usize::try_from(group.rows).unwrap() + 3] };
                assert_eq!(chosen, [(77, expected)]);
            }
            assert_eq!(read, given);
        }
    }

    #[test]
    fn other_readers_of_parquet_read_the_rows() {
        for layout in layouts() {
            let given = rows(&layout, 1_000);
            let (bytes, _) = encode(&layout, &mut std::iter::once(Ok(given.clone()))).unwrap();
            let table = Table::open(Bytes::from(bytes)).unwrap();
            let names = layout.columns();
            let hashes = table.column::<Int32Type>("key_hash").unwrap().values;
            assert_eq!(hashes, given.iter().map(|row| row.key_hash).collect::<Vec<_>>());
            let [offsets, times] = [names[names.len() - 2], names[names.len() - 1]]
                .map(|name| table.column::<Int64Type>(name).unwrap().values);
            assert_eq!(offsets, given.iter().map(|row| row.offset).collect::<Vec<_>>());
            assert_eq!(times, given.iter().map(|row| row.time).collect::<Vec<_>>());
            if let Layout::Partitions(parts) = &layout {
                let topics = table.column::<ByteArrayType>("topic").unwrap().values;
                let numbers = table.column::<Int32Type>("partition").unwrap().values;
                let found = topics.iter().map(|topic| topic.as_utf8().unwrap().to_owned()).zip(numbers);
                let expected = given.iter().map(|row| parts[usize::try_from(row.part).unwrap()].clone());
                assert!(found.eq(expected));
            }
        }
    }

    #[test]
    fn a_row_group_has_known_bytes() {
        let given = [Row { key_hash: 3, part: 0, offset: 1024, time: NO_TIME }];
        let (bytes, groups) = encode(&Layout::OneLog, &mut std::iter::once(Ok(given.to_vec()))).unwrap();
        // A data page of 5 or 6 bytes, 1 value, DELTA_BINARY_PACKED; levels are RLE. Then block size, 2, count, first value.
        let header = |len: u8| [0x15, 0, 0x15, len, 0x15, len, 0x2c, 0x15, 2, 0x15, 10, 0x15, 6, 0x15, 6, 0, 0];
        let mut expected = header(10).to_vec();
        expected.extend([0x80, 1, 2, 1, 6]);
        expected.extend(header(12));
        expected.extend([0x80, 1, 2, 1, 0x80, 0x10]);
        expected.extend(header(10));
        expected.extend([0x80, 1, 2, 1, 1]);
        assert_eq!(held(&bytes, &groups[0]), expected);
        assert_eq!((groups[0].begin, groups[0].sizes), (4, [22, 23, 22, 0, 0]));
    }

    #[test]
    fn hostile_bytes_with_a_right_checksum_are_rows_or_an_error() {
        for layout in layouts() {
            let (bytes, groups) = encode(&layout, &mut std::iter::once(Ok(rows(&layout, 40)))).unwrap();
            let (whole, mut failed) = (held(&bytes, &groups[0]), 0);
            for place in 0..whole.len() {
                for byte in [0, 0x7f, 0xff, whole[place] ^ 1] {
                    let mut bytes = whole.to_vec();
                    bytes[place] = byte;
                    let group = Group { crc: crc32fast::hash(&bytes), ..groups[0] };
                    let place = (Path::new("keys"), &layout, &group);
                    match Decoder::default().rows(place, &bytes, true, all, |_, _| {}) {
                        Ok(()) => {}
                        Err(Error::Corrupt { .. }) => failed += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            assert!(failed > 100, "{failed}");
            let cut = &whole[1..];
            let group = Group { crc: crc32fast::hash(cut), ..groups[0] };
            let found = Decoder::default().rows((Path::new("keys"), &layout, &group), cut, true, all, |_, _| {});
            assert!(matches!(found, Err(Error::Corrupt { .. })));
        }
    }

    #[test]
    fn an_entry_takes_less_than_10_bytes() {
        // Hashes and times as in a store of 20 million entries, of which a 64th is here.
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let mut given: Vec<Row> = (0..312_500)
            .map(|_| {
                let message = next() % 20_000_000;
                Row {
                    key_hash: i32::try_from(next() & 0x1ff_ffff).unwrap(),
                    part: 0,
                    offset: i64::try_from(message * 1024).unwrap(),
                    time: 1_700_000_000_000 + i64::try_from(message / 10).unwrap(),
                }
            })
            .collect();
        given.sort_by_key(|row| row.key_hash);
        let (bytes, groups) = encode(&Layout::OneLog, &mut std::iter::once(Ok(given.clone()))).unwrap();
        assert!(bytes.len() < 10 * given.len(), "{} bytes", bytes.len());
        assert!(groups.iter().all(|group| group.len() <= 16 << 10));
    }
}
