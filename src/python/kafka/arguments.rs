//! Arguments that the Kafka classes share.

use arrow_array::cast::AsArray;
use arrow_schema::DataType;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use super::super::integer::integer;
use super::super::{convert, time};
use crate::kafka::{AbortedRange, AbortedRanges, Check, Codec, Compat, KeyFilter, OnError, RecordScan, record_columns};

/// "verify" or "trust".
pub(super) fn check(word: &str) -> PyResult<Check> {
    match word {
        "verify" => Ok(Check::Verify),
        "trust" => Ok(Check::Trust),
        _ => Err(PyValueError::new_err(format!("check={word:?}: expected \"verify\" or \"trust\""))),
    }
}

pub(super) fn check_word(check: Check) -> &'static str {
    match check {
        Check::Verify => "verify",
        Check::Trust => "trust",
    }
}

/// A Kafka release, or `None`.
pub(super) fn compat(word: Option<&str>) -> PyResult<Option<Compat>> {
    word.map(|word| {
        Compat::parse(word).ok_or_else(|| {
            PyValueError::new_err(format!("compat={word:?}: expected None or a release such as \"3.9.0\""))
        })
    })
    .transpose()
}

/// The largest batch, which must fit in an Arrow column.
const MOST_BATCH_BYTES: i64 = 2_000_000_000;

/// The most bytes of a batch.
pub(super) fn batch_limit(max_batch_bytes: i64) -> PyResult<usize> {
    let limit = usize::try_from(max_batch_bytes).ok().filter(|_| max_batch_bytes <= MOST_BATCH_BYTES);
    limit.ok_or_else(|| {
        PyValueError::new_err(format!("max_batch_bytes={max_batch_bytes}: expected 0 to {MOST_BATCH_BYTES}"))
    })
}

/// "raise", "skip" or "stop".
pub(super) fn on_error(word: &str) -> PyResult<OnError> {
    match word {
        "raise" => Ok(OnError::Raise),
        "skip" => Ok(OnError::Skip),
        "stop" => Ok(OnError::Stop),
        _ => Err(PyValueError::new_err(format!("on_error={word:?}: expected \"raise\", \"skip\" or \"stop\""))),
    }
}

/// The name of a codec.
pub(super) fn codec(word: &str) -> PyResult<Codec> {
    Codec::named(word).ok_or_else(|| {
        let text = format!("codec={word:?}: expected \"none\", \"gzip\", \"snappy\", \"lz4\" or \"zstd\"");
        PyValueError::new_err(text)
    })
}

/// A number of bytes or rows.
pub(super) fn size(value: i64, what: &str) -> PyResult<u64> {
    u64::try_from(value).map_err(|_| PyValueError::new_err(format!("{what}={value}: expected 0 or more")))
}

/// The filter of the arguments `keys` and `header`.
pub(super) fn key_filter(keys: Option<&Bound<'_, PyAny>>, header: Option<String>) -> PyResult<Option<KeyFilter>> {
    let Some(keys) = keys.filter(|keys| !keys.is_none()) else {
        let unused = "header: expected keys as well, the values that the header may have";
        return if header.is_none() { Ok(None) } else { Err(PyValueError::new_err(unused)) };
    };
    if keys.is_instance_of::<PyString>() || keys.is_instance_of::<PyBytes>() {
        return Err(PyTypeError::new_err("keys: expected several keys, got one; put it into a list"));
    }
    if let Some(array) = convert::arrow_array(keys)? {
        let bytes = convert::cast(&array, &DataType::Binary, "keys")?;
        return Ok(Some(KeyFilter::new(header, bytes.as_binary::<i32>().iter().flatten().map(<[u8]>::to_vec))));
    }
    let keys = keys.try_iter()?.map(|key| key_bytes(&key?)).collect::<PyResult<Vec<_>>>()?;
    Ok(Some(KeyFilter::new(header, keys)))
}

fn key_bytes(key: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    match key.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes().to_vec()),
        Err(_) => match key.cast::<PyString>() {
            Ok(text) => Ok(text.to_cow()?.as_bytes().to_vec()),
            Err(_) => Err(PyTypeError::new_err(format!("keys: expected str or bytes, got {}", key.get_type().name()?))),
        },
    }
}

/// Leader epochs, each with its first offset.
pub(super) fn epochs(epochs: &Bound<'_, PyAny>) -> PyResult<Vec<(i64, i64)>> {
    let each = epochs.try_iter()?.map(|epoch| {
        let (epoch, first): (Bound<'_, PyAny>, Bound<'_, PyAny>) = epoch?.extract()?;
        Ok((integer(&epoch, "epochs")?, integer(&first, "epochs")?))
    });
    each.collect()
}

/// Offsets of aborted transactions.
pub(super) fn aborted(ranges: Option<&Bound<'_, PyAny>>) -> PyResult<AbortedRanges> {
    let Some(ranges) = ranges.filter(|ranges| !ranges.is_none()) else { return Ok(AbortedRanges::default()) };
    let ranges = ranges
        .try_iter()?
        .map(|range| {
            let (producer_id, first_offset, last_offset): (Bound<'_, PyAny>, Bound<'_, PyAny>, Bound<'_, PyAny>) =
                range?.extract()?;
            Ok(AbortedRange {
                producer_id: integer(&producer_id, "aborted")?,
                first_offset: integer(&first_offset, "aborted")?,
                last_offset: integer(&last_offset, "aborted")?,
            })
        })
        .collect::<PyResult<Vec<_>>>()?;
    Ok(ranges.into())
}

/// Return the scan of the keywords that all streams of records have.
pub(super) fn record_scan(
    begin: Option<&Bound<'_, PyAny>>,
    end: Option<&Bound<'_, PyAny>>,
    columns: Option<&Bound<'_, PyAny>>,
    batch_size: Option<i64>,
    control: bool,
    check_crc: bool,
    on_error: &str,
) -> PyResult<RecordScan> {
    Ok(RecordScan {
        times: time::bounds(begin, end)?,
        columns: record_columns::Column::choose(convert::column_names(columns)?.as_deref())?,
        batch_size: convert::batch_of_rows(batch_size)?,
        control,
        check_crc,
        on_error: self::on_error(on_error)?,
        ..RecordScan::default()
    })
}
