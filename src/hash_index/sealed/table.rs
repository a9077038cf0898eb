//! Columns of a Parquet file, written and read one at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::column::page::{Page, PageReader};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::FileReader as _;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::writer::SerializedRowGroupWriter;
use parquet::schema::types::{ColumnDescPtr, Type, TypePtr};

use crate::error::Error;

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Int32,
    Int64,
    Milliseconds,
    Nanoseconds,
    Text,
    /// A list of 64-bit integers.
    Numbers,
}

/// A field of a schema.
pub(super) fn field(name: &str, kind: Kind, is_optional: bool) -> Result<TypePtr> {
    let repetition = if is_optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    if kind == Kind::Numbers {
        let element = field("element", Kind::Int64, false)?;
        let list = Type::group_type_builder("list").with_repetition(Repetition::REPEATED).with_fields(vec![element]);
        let column = Type::group_type_builder(name)
            .with_repetition(repetition)
            .with_logical_type(Some(LogicalType::List))
            .with_converted_type(ConvertedType::LIST)
            .with_fields(vec![Arc::new(list.build()?)]);
        return column.build().map(Arc::new);
    }
    let time = |unit| Some(LogicalType::timestamp(true, unit));
    let (physical, logical) = match kind {
        Kind::Int32 => (Physical::INT32, None),
        Kind::Int64 | Kind::Numbers => (Physical::INT64, None),
        Kind::Milliseconds => (Physical::INT64, time(TimeUnit::MILLIS)),
        Kind::Nanoseconds => (Physical::INT64, time(TimeUnit::NANOS)),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    let column = Type::primitive_type_builder(name, physical).with_repetition(repetition).with_logical_type(logical);
    column.build().map(Arc::new)
}

/// A schema of these fields.
pub(super) fn schema(name: &str, fields: Vec<TypePtr>) -> Result<TypePtr> {
    Type::group_type_builder(name).with_fields(fields).build().map(Arc::new)
}

/// Writes the next column of a row group.
pub(super) fn write<T: DataType, W: std::io::Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    definitions: Option<&[i16]>,
    repetitions: Option<&[i16]>,
) -> Result<()> {
    let mut column = group.next_column()?.ok_or_else(|| ParquetError::General("too many columns".into()))?;
    column.typed::<T>().write_batch(values, definitions, repetitions)?;
    column.close()
}

/// Writes the next column, which may have nulls.
pub(super) fn write_optional<T: DataType, W: std::io::Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: impl Iterator<Item = Option<T::T>>,
) -> Result<()> {
    let (mut values, mut definitions) = (Vec::new(), Vec::new());
    for row in rows {
        definitions.push(i16::from(row.is_some()));
        values.extend(row);
    }
    write::<T, W>(group, &values, Some(&definitions), None)
}

/// Writes the next column of texts without nulls.
pub(super) fn write_text<'a, W: std::io::Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: impl Iterator<Item = &'a str>,
) -> Result<()> {
    let values: Vec<ByteArray> = rows.map(ByteArray::from).collect();
    write::<ByteArrayType, W>(group, &values, None, None)
}

/// Writes the next column of lists; an empty one is null.
pub(super) fn write_lists<'a, W: std::io::Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: impl Iterator<Item = &'a [i64]>,
) -> Result<()> {
    let (mut values, mut definitions, mut repetitions) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        values.extend_from_slice(row);
        definitions.extend(std::iter::repeat_n(if row.is_empty() { 0 } else { 2 }, row.len().max(1)));
        repetitions.extend((0..row.len().max(1)).map(|place| i16::from(place > 0)));
    }
    write::<Int64Type, W>(group, &values, Some(&definitions), Some(&repetitions))
}

/// The values of a column, with definition and repetition levels.
#[derive(Debug)]
pub(super) struct Column<T> {
    pub(super) values: Vec<T>,
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
    most: i16,
}

impl<T: Clone> Column<T> {
    /// The rows, null or not.
    pub(super) fn optional(self) -> Vec<Option<T>> {
        if self.most == 0 {
            return self.values.into_iter().map(Some).collect();
        }
        let mut values = self.values.into_iter();
        self.definitions.iter().map(|level| if *level == self.most { values.next() } else { None }).collect()
    }

    /// The rows as lists; null is an empty list.
    pub(super) fn lists(self) -> Vec<Vec<T>> {
        let mut lists: Vec<Vec<T>> = Vec::new();
        let mut values = self.values.into_iter();
        for (definition, repetition) in self.definitions.iter().zip(&self.repetitions) {
            if *repetition == 0 {
                lists.push(Vec::new());
            }
            if *definition == self.most
                && let (Some(list), Some(value)) = (lists.last_mut(), values.next())
            {
                list.push(value);
            }
        }
        lists
    }
}

/// Reads a column from its pages.
fn read<T: DataType>(descriptor: &ColumnDescPtr, pages: Box<dyn PageReader>, rows: usize) -> Result<Column<T::T>> {
    let mut column = Column {
        values: Vec::new(),
        definitions: Vec::new(),
        repetitions: Vec::new(),
        most: descriptor.max_def_level(),
    };
    let mut reader = ColumnReaderImpl::<T>::new(Arc::clone(descriptor), pages);
    let mut left = rows;
    while left > 0 {
        let definitions = (column.most > 0).then_some(&mut column.definitions);
        let repetitions = (descriptor.max_rep_level() > 0).then_some(&mut column.repetitions);
        let (read, _, _) = reader.read_records(left, definitions, repetitions, &mut column.values)?;
        if read == 0 {
            return Err(ParquetError::General(format!("expected {rows} rows, found {}", rows - left)));
        }
        left -= read;
    }
    Ok(column)
}

/// Checks that pages state at most this many values. The reader allocates memory for the stated number.
fn check_pages(pages: impl Iterator<Item = Result<Page>>, most: u64) -> Result<()> {
    let mut values = 0;
    for page in pages {
        values += u64::from(page?.num_values());
        if values > most {
            return Err(ParquetError::General(format!("pages that state {values} values or more, expected {most}")));
        }
    }
    Ok(())
}

/// A file of one row group in memory, whose columns are read by name.
pub(super) struct Table {
    reader: SerializedFileReader<Bytes>,
    /// Bytes of the file. A column has fewer values: see `check_pages`.
    len: u64,
}

impl Table {
    pub(super) fn open(bytes: Bytes) -> Result<Self> {
        let len = bytes.len() as u64;
        SerializedFileReader::new(bytes).map(|reader| Self { reader, len })
    }

    /// The texts of the file's own metadata.
    pub(super) fn notes(&self) -> impl Iterator<Item = (&str, &str)> {
        let notes = self.reader.metadata().file_metadata().key_value_metadata();
        notes.into_iter().flatten().filter_map(|note| Some((note.key.as_str(), note.value.as_deref()?)))
    }

    /// Reads the column whose path begins with this name.
    pub(super) fn column<T: DataType>(&self, name: &str) -> Result<Column<T::T>> {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        let number = (0..schema.num_columns())
            .find(|number| schema.column(*number).path().parts().first().is_some_and(|first| first == name));
        let descriptor = number.map(|number| (number, schema.column(number)));
        let Some((number, descriptor)) =
            descriptor.filter(|(_, found)| found.physical_type() == T::get_physical_type())
        else {
            return Err(ParquetError::General(format!("no column {name} of {}", T::get_physical_type())));
        };
        if self.reader.num_row_groups() != 1 {
            return Err(ParquetError::General(format!("{} row groups, expected 1", self.reader.num_row_groups())));
        }
        let group = self.reader.get_row_group(0)?;
        let rows = group.metadata().num_rows();
        let rows =
            usize::try_from(rows).map_err(|_| ParquetError::General(format!("{rows} rows, expected 0 or more")))?;
        check_pages(group.get_column_page_reader(number)?, self.len)?;
        read::<T>(&descriptor, group.get_column_page_reader(number)?, rows)
    }

    pub(super) fn integers(&self, name: &str) -> Result<Vec<Option<i64>>> {
        self.column::<Int64Type>(name).map(Column::optional)
    }

    pub(super) fn texts(&self, name: &str) -> Result<Vec<Option<String>>> {
        let column = self.column::<ByteArrayType>(name)?.optional();
        column.into_iter().map(|text| text.map(|text| text.as_utf8().map(str::to_owned)).transpose()).collect()
    }

    pub(super) fn lists(&self, name: &str) -> Result<Vec<Vec<i64>>> {
        self.column::<Int64Type>(name).map(Column::lists)
    }
}

/// Parses a file with the Parquet library. The library may panic on bytes that no writer produces.
///
/// # Errors
/// `Corrupt` if the file is invalid.
pub(super) fn parsed<T>(path: &Path, parse: impl FnOnce() -> Result<T>) -> crate::error::Result<T> {
    let found = catch_unwind(AssertUnwindSafe(parse)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
        Err(ParquetError::General(format!("bytes at which the Parquet reader fails: {text}")))
    });
    found.map_err(|error| Error::corrupt(path, 0, "a file of a sealed index", error.to_string()))
}
