//! Files of sorted rows.
//!
//! A row group has at most 16,384 rows and one page for each column, so it has some 170 KB, and one read answers a lookup. All
//! numbers are delta-encoded in bits, nothing is compressed.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{ParquetMetaData, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, SchemaDescriptor, TypePtr};

use super::rows::{NO_TIME, Row};
use super::table::{self, Kind};
use crate::error::{Error, Result};

/// Rows of a row group.
pub(super) const GROUP_ROWS: usize = 16_384;
/// Upper bound of the bytes of a row group.
const MOST_GROUP_BYTES: usize = 64 << 20;

/// The columns of the files, and what the number of a part stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `key_hash`, `phy_offset`, `store_timestamp`.
    OneLog,
    /// `key_hash`, `topic`, `partition`, `offset`, `timestamp`: the topic and number of each part.
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

    fn schema(&self) -> ParquetResult<TypePtr> {
        let kind = |name: &str| match name {
            "key_hash" | "partition" => Kind::Int32,
            "topic" => Kind::Text,
            "phy_offset" | "offset" => Kind::Int64,
            _ => Kind::Milliseconds,
        };
        let fields = self.columns().iter().map(|name| table::field(name, kind(name), true));
        table::schema("sealed_keys", fields.collect::<ParquetResult<_>>()?)
    }

    fn part(&self, topic: &str, partition: i32) -> Option<u32> {
        let Self::Partitions(parts) = self else { return Some(0) };
        let number = parts.iter().position(|(each, number)| each == topic && *number == partition);
        number.and_then(|number| u32::try_from(number).ok())
    }
}

/// A row group: the part of a file that one lookup reads.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    pub sizes: Vec<u32>,
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
        u64::from(self.rows) <= GROUP_ROWS as u64 && self.len() <= MOST_GROUP_BYTES as u64
    }

    /// Reads the rows from the bytes of the group, in their order. Rows that `wanted` does not choose by their hashes are left out.
    /// Without `needs_times` they have no time.
    ///
    /// # Errors
    /// `Corrupt` if these are not the bytes of the group.
    pub(super) fn rows(
        &self,
        path: &Path,
        layout: &Layout,
        bytes: &Bytes,
        needs_times: bool,
        wanted: impl FnOnce(&[i32]) -> Vec<usize>,
    ) -> Result<Vec<(usize, Row)>> {
        let found = crc32fast::hash(bytes);
        if found != self.crc {
            let (expected, found) =
                (format!("rows with the checksum {:08x} of the catalog", self.crc), format!("{found:08x}"));
            return Err(Error::corrupt(path, self.begin, expected, found));
        }
        table::parsed(path, || self.decode(layout, bytes, needs_times, wanted))
    }

    fn decode(
        &self,
        layout: &Layout,
        bytes: &Bytes,
        needs_times: bool,
        wanted: impl FnOnce(&[i32]) -> Vec<usize>,
    ) -> ParquetResult<Vec<(usize, Row)>> {
        let missing = || ParquetError::General("a row group without all columns".into());
        let schema = SchemaDescriptor::new(layout.schema()?);
        let mut at = 0usize;
        let mut chunks = Vec::new();
        for size in &self.sizes {
            let end = at.saturating_add(usize::try_from(*size).unwrap_or(usize::MAX));
            if end > bytes.len() {
                return Err(missing());
            }
            chunks.push(bytes.slice(at..end));
            at = end;
        }
        let count = usize::try_from(self.rows).unwrap_or(0);
        let chunk = |number: usize| chunks.get(number).cloned().ok_or_else(missing);
        let hashes = table::read_chunk::<Int32Type>(&schema.column(0), chunk(0)?, count)?.required()?;
        let places = wanted(&hashes);
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let last = schema.num_columns() - 1;
        let offsets = table::read_chunk::<Int64Type>(&schema.column(last - 1), chunk(last - 1)?, count)?.required()?;
        let times = if needs_times {
            table::read_chunk::<Int64Type>(&schema.column(last), chunk(last)?, count)?.optional()
        } else {
            Vec::new()
        };
        let mut parts = Vec::new();
        if let Layout::Partitions(_) = layout {
            let topics = table::read_chunk::<ByteArrayType>(&schema.column(1), chunk(1)?, count)?.required()?;
            let numbers = table::read_chunk::<Int32Type>(&schema.column(2), chunk(2)?, count)?.required()?;
            let part = |place: &usize| {
                let (topic, number) = (topics.get(*place)?, numbers.get(*place)?);
                layout.part(topic.as_utf8().ok()?, *number)
            };
            parts = places.iter().map(part).collect();
        }
        let row = |(number, place): (usize, usize)| {
            let part = if parts.is_empty() { 0 } else { (*parts.get(number)?)? };
            let (key_hash, offset) = (*hashes.get(place)?, *offsets.get(place)?);
            Some((place, Row { key_hash, part, offset, time: times.get(place).copied().flatten().unwrap_or(NO_TIME) }))
        };
        Ok(places.into_iter().enumerate().filter_map(row).collect())
    }
}

fn properties() -> WriterPropertiesPtr {
    let sorted = SortingColumn { column_idx: 0, descending: false, nulls_first: false };
    let properties = WriterProperties::builder()
        .set_created_by(concat!("logdex ", env!("CARGO_PKG_VERSION")).into())
        .set_compression(Compression::UNCOMPRESSED)
        .set_dictionary_enabled(false)
        .set_column_dictionary_enabled(ColumnPath::from("topic"), true)
        .set_encoding(Encoding::DELTA_BINARY_PACKED)
        .set_column_encoding(ColumnPath::from("topic"), Encoding::DELTA_BYTE_ARRAY)
        .set_statistics_enabled(EnabledStatistics::Page)
        .set_data_page_row_count_limit(GROUP_ROWS)
        .set_data_page_size_limit(MOST_GROUP_BYTES)
        .set_dictionary_page_size_limit(MOST_GROUP_BYTES)
        .set_write_batch_size(GROUP_ROWS)
        .set_sorting_columns(Some(vec![sorted]));
    Arc::new(properties.build())
}

/// Makes one file in memory of sorted rows. Returns its bytes and its row groups.
///
/// # Errors
/// Those of `pieces`.
pub fn encode(layout: &Layout, pieces: &mut dyn Iterator<Item = Result<Vec<Row>>>) -> Result<(Vec<u8>, Vec<Group>)> {
    let failed = |error: ParquetError| Error::InvalidArgument(format!("rows of a sealed index: {error}"));
    let schema = layout.schema().map_err(failed)?;
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties()).map_err(failed)?;
    // Copies of a topic share its bytes.
    let parts: Vec<(ByteArray, i32)> = match layout {
        Layout::OneLog => Vec::new(),
        Layout::Partitions(parts) => parts.iter().map(|(topic, number)| (topic.as_str().into(), *number)).collect(),
    };
    let mut firsts = Vec::new();
    let mut pending: Vec<Row> = Vec::with_capacity(GROUP_ROWS);
    loop {
        let piece = pieces.next().transpose()?;
        let is_last = piece.is_none();
        let mut rest = piece.as_deref().unwrap_or_default();
        loop {
            let (taken, left) = rest.split_at(rest.len().min(GROUP_ROWS - pending.len()));
            pending.extend_from_slice(taken);
            rest = left;
            if pending.len() == GROUP_ROWS || (is_last && !pending.is_empty()) {
                firsts.extend(pending.first().map(|row| row.key_hash));
                write_group(layout, &parts, &mut writer, &pending).map_err(failed)?;
                pending.clear();
            }
            if rest.is_empty() {
                break;
            }
        }
        if is_last {
            break;
        }
    }
    let metadata = writer.finish().map_err(failed)?;
    let bytes = std::mem::take(writer.inner_mut());
    let groups = groups_of(&metadata, &bytes, &firsts).map_err(failed)?;
    Ok((bytes, groups))
}

fn write_group(
    layout: &Layout,
    parts: &[(ByteArray, i32)],
    writer: &mut SerializedFileWriter<Vec<u8>>,
    rows: &[Row],
) -> ParquetResult<()> {
    let mut group = writer.next_row_group()?;
    let present = vec![1; rows.len()];
    let hashes: Vec<i32> = rows.iter().map(|row| row.key_hash).collect();
    table::write::<Int32Type, _>(&mut group, &hashes, Some(&present), None)?;
    if let Layout::Partitions(_) = layout {
        let part = |row: &Row| usize::try_from(row.part).ok().and_then(|part| parts.get(part));
        let topics = rows.iter().map(|row| part(row).map(|(topic, _)| topic.clone()));
        table::write_optional::<ByteArrayType, _>(&mut group, topics)?;
        let numbers: Vec<i32> = rows.iter().map(|row| part(row).map_or(-1, |(_, number)| *number)).collect();
        table::write::<Int32Type, _>(&mut group, &numbers, Some(&present), None)?;
    }
    let offsets: Vec<i64> = rows.iter().map(|row| row.offset).collect();
    table::write::<Int64Type, _>(&mut group, &offsets, Some(&present), None)?;
    table::write_optional::<Int64Type, _>(
        &mut group,
        rows.iter().map(|row| (row.time != NO_TIME).then_some(row.time)),
    )?;
    group.close().map(|_| ())
}

/// The row groups of a file, from its metadata.
fn groups_of(metadata: &ParquetMetaData, bytes: &[u8], firsts: &[i32]) -> ParquetResult<Vec<Group>> {
    let wrong = |what: &str| ParquetError::General(what.to_owned());
    let group = |(found, first): (&parquet::file::metadata::RowGroupMetaData, &i32)| {
        let mut sizes = Vec::new();
        let mut span: Option<(u64, u64)> = None;
        for column in found.columns() {
            if column.compression() != Compression::UNCOMPRESSED {
                return Err(wrong("compressed columns; expected columns without compression"));
            }
            let (begin, len) = column.byte_range();
            let (first, end) = span.unwrap_or((begin, begin));
            if begin != end {
                return Err(wrong("columns of a row group that do not follow each other"));
            }
            span = Some((first, begin.saturating_add(len)));
            sizes.push(u32::try_from(len).map_err(|_| wrong("a column of more than 4 GiB"))?);
        }
        let (begin, end) = span.unwrap_or_default();
        let range = usize::try_from(begin).ok().zip(usize::try_from(end).ok());
        let held = range.and_then(|(begin, end)| bytes.get(begin..end));
        let crc = crc32fast::hash(held.ok_or_else(|| wrong("a row group beyond the end of the file"))?);
        let rows = u32::try_from(found.num_rows()).map_err(|_| wrong("a row group of more than 2^32 rows"))?;
        Ok(Group { first_key_hash: *first, rows, begin, crc, sizes })
    };
    metadata.row_groups().iter().zip(firsts).map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: i32) -> Vec<Row> {
        let row = |number: i32| Row {
            key_hash: number / 3 * 50,
            part: number.cast_unsigned() % 2,
            offset: i64::from(count - number) * 1000,
            time: if number % 7 == 0 { NO_TIME } else { 1_700_000_000_000 + i64::from(number) },
        };
        (0..count).map(row).collect()
    }

    #[test]
    fn a_group_gives_back_the_chosen_rows() {
        let parts = vec![("orders".to_owned(), 3), ("payments".to_owned(), 0)];
        for layout in [Layout::OneLog, Layout::Partitions(parts)] {
            let mut given = rows(40_000);
            if layout == Layout::OneLog {
                for row in &mut given {
                    row.part = 0;
                }
            }
            let (bytes, groups) = encode(&layout, &mut given.chunks(7_000).map(|piece| Ok(piece.to_vec()))).unwrap();
            assert_eq!(groups.iter().map(|group| group.rows).collect::<Vec<_>>(), [16_384, 16_384, 7_232]);
            let bytes = Bytes::from(bytes);
            let mut read = Vec::new();
            for group in &groups {
                let begin = usize::try_from(group.begin).unwrap();
                let held = bytes.slice(begin..begin + usize::try_from(group.len()).unwrap());
                let path = Path::new("keys");
                assert!(group.rows(path, &layout, &held, true, |_| Vec::new()).unwrap().is_empty());
                let all = group.rows(path, &layout, &held, true, |hashes| (0..hashes.len()).collect()).unwrap();
                read.extend(all.into_iter().map(|(_, row)| row));
                let cut = held.slice(1..);
                assert!(matches!(group.rows(path, &layout, &cut, true, |_| vec![0]), Err(Error::Corrupt { .. })));
            }
            assert_eq!(read, given);
        }
    }

    #[test]
    fn an_entry_takes_less_than_12_bytes() {
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
        let (bytes, _) = encode(&Layout::OneLog, &mut std::iter::once(Ok(given.clone()))).unwrap();
        assert!(bytes.len() < 10 * given.len(), "{} bytes", bytes.len());
    }
}
