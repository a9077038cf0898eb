//! Columns of a batch that comes in, read row by row.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow_array::{Array, ArrayRef, Int32Array, RecordBatch};
use arrow_schema::{DataType, TimeUnit};

use crate::error::{Error, Result};

/// The error for a null.
pub(crate) fn null(column: &str, row: usize) -> Error {
    Error::InvalidArgument(format!("column {column}: row {row} is null"))
}

/// The error for a column of another type.
pub(crate) fn wrong(column: &str, array: &ArrayRef, wanted: &str) -> Error {
    Error::InvalidArgument(format!("column {column}: expected {wanted}, found {}", array.data_type()))
}

/// The column of a name, which must exist.
pub(crate) fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| Error::InvalidArgument(format!("column {name} is missing")))
}

/// A column of texts of any Arrow type.
pub(crate) enum Texts<'a> {
    Utf8(&'a arrow_array::StringArray),
    LargeUtf8(&'a arrow_array::LargeStringArray),
    View(&'a arrow_array::StringViewArray),
    Null,
}

impl<'a> Texts<'a> {
    pub(crate) fn of(batch: &'a RecordBatch, name: &str) -> Result<Self> {
        let array = column(batch, name)?;
        match array.data_type() {
            DataType::Utf8 => Ok(Self::Utf8(array.as_string())),
            DataType::LargeUtf8 => Ok(Self::LargeUtf8(array.as_string())),
            DataType::Utf8View => Ok(Self::View(array.as_string_view())),
            DataType::Null => Ok(Self::Null),
            _ => Err(wrong(name, array, "text")),
        }
    }

    pub(crate) fn get(&self, row: usize) -> Option<&'a str> {
        match self {
            Self::Utf8(a) => a.is_valid(row).then(|| a.value(row)),
            Self::LargeUtf8(a) => a.is_valid(row).then(|| a.value(row)),
            Self::View(a) => a.is_valid(row).then(|| a.value(row)),
            Self::Null => None,
        }
    }
}

/// Reads one row of a column.
pub(crate) type Get<'a> = Box<dyn Fn(usize) -> Option<i64> + 'a>;

/// A column of 64-bit integers.
pub(crate) fn integers<'a>(batch: &'a RecordBatch, name: &str) -> Result<Get<'a>> {
    let array = column(batch, name)?;
    let values = array.as_primitive_opt::<Int64Type>().ok_or_else(|| wrong(name, array, "int64"))?;
    Ok(Box::new(|row| values.is_valid(row).then(|| values.value(row))))
}

/// A column of timestamps or integers, in milliseconds.
pub(crate) fn times<'a>(batch: &'a RecordBatch, name: &str) -> Result<Get<'a>> {
    let array = column(batch, name)?;
    let DataType::Timestamp(unit, _) = array.data_type() else {
        return integers(batch, name).map_err(|_| wrong(name, array, "a timestamp"));
    };
    Ok(match unit {
        TimeUnit::Second => {
            let values = array.as_primitive::<TimestampSecondType>();
            Box::new(|row| values.is_valid(row).then(|| values.value(row).saturating_mul(1000)))
        }
        TimeUnit::Millisecond => {
            let values = array.as_primitive::<TimestampMillisecondType>();
            Box::new(|row| values.is_valid(row).then(|| values.value(row)))
        }
        TimeUnit::Microsecond => {
            let values = array.as_primitive::<TimestampMicrosecondType>();
            Box::new(|row| values.is_valid(row).then(|| values.value(row).div_euclid(1000)))
        }
        TimeUnit::Nanosecond => {
            let values = array.as_primitive::<TimestampNanosecondType>();
            Box::new(|row| values.is_valid(row).then(|| values.value(row).div_euclid(1_000_000)))
        }
    })
}

/// A column of 32-bit integers.
pub(crate) struct Int32s<'a> {
    values: &'a Int32Array,
    name: &'static str,
}

impl<'a> Int32s<'a> {
    pub(crate) fn of(batch: &'a RecordBatch, name: &'static str) -> Result<Self> {
        let array = column(batch, name)?;
        let values = array.as_primitive_opt::<Int32Type>().ok_or_else(|| wrong(name, array, "int32"))?;
        Ok(Self { values, name })
    }

    pub(crate) fn get(&self, row: usize) -> Result<i32> {
        if self.values.is_null(row) {
            return Err(null(self.name, row));
        }
        Ok(self.values.value(row))
    }
}
