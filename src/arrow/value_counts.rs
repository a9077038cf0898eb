//! The number of rows with each value of a column, for a person who narrows a list.

use std::collections::HashMap;
use std::hash::Hash;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMillisecondType};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, TimeUnit};

use crate::error::{Error, Result};

/// Values with their number of rows, the most frequent first, and the number of different values.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ValueCounts {
    /// Of a column of texts.
    Texts(Vec<(String, u64)>, usize),
    /// Of a column of bytes.
    Bytes(Vec<(Vec<u8>, u64)>, usize),
    /// Of a column of numbers or times.
    Numbers(Vec<(i64, u64)>, usize),
}

/// Counts the values of a column that are not null, and returns the `most` frequent ones; among equals the smaller value comes first.
///
/// With a `separator` each part of a text is a value; an empty part is none. With a `step` a number stands for the multiple of it
/// that is the largest one up to the number.
///
/// # Errors
///
/// [`Error::InvalidArgument`] for a column of another type.
pub(crate) fn value_counts(
    column: &ArrayRef,
    most: usize,
    separator: Option<char>,
    step: Option<i64>,
) -> Result<ValueCounts> {
    let whole = |number: i64| step.filter(|step| *step > 0).map_or(number, |step| number - number.rem_euclid(step));
    Ok(match column.data_type() {
        DataType::Utf8 => {
            let texts = column.as_string::<i32>().iter().flatten();
            let (rows, number) = match separator {
                Some(separator) => {
                    counted(texts.flat_map(|text| text.split(separator)).filter(|text| !text.is_empty()), most)
                }
                None => counted(texts, most),
            };
            ValueCounts::Texts(rows.into_iter().map(|(text, rows)| (text.to_owned(), rows)).collect(), number)
        }
        DataType::Binary => {
            let (rows, number) = counted(column.as_binary::<i32>().iter().flatten(), most);
            ValueCounts::Bytes(rows.into_iter().map(|(bytes, rows)| (bytes.to_vec(), rows)).collect(), number)
        }
        DataType::Int32 => {
            numbers(column.as_primitive::<Int32Type>().iter().flatten().map(|number| whole(number.into())), most)
        }
        DataType::Int64 => numbers(column.as_primitive::<Int64Type>().iter().flatten().map(whole), most),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            numbers(column.as_primitive::<TimestampMillisecondType>().iter().flatten().map(whole), most)
        }
        found => {
            let text = format!("column: expected texts, bytes, numbers or times in ms, found {found}");
            return Err(Error::InvalidArgument(text));
        }
    })
}

fn numbers(values: impl Iterator<Item = i64>, most: usize) -> ValueCounts {
    let (rows, number) = counted(values, most);
    ValueCounts::Numbers(rows, number)
}

fn counted<T: Ord + Hash + Clone>(values: impl Iterator<Item = T>, most: usize) -> (Vec<(T, u64)>, usize) {
    let mut counts: HashMap<T, u64> = HashMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    let number = counts.len();
    let mut rows: Vec<(T, u64)> = counts.into_iter().collect();
    rows.sort_unstable_by(|(one, ones), (other, others)| others.cmp(ones).then_with(|| one.cmp(other)));
    rows.truncate(most);
    (rows, number)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{BinaryArray, BooleanArray, Int32Array, StringArray, TimestampMillisecondArray};

    use super::*;

    fn counts(column: impl Array + 'static, most: usize, separator: Option<char>, step: Option<i64>) -> ValueCounts {
        value_counts(&(Arc::new(column) as ArrayRef), most, separator, step).unwrap()
    }

    #[test]
    fn the_most_frequent_come_first_and_nulls_are_not_counted() {
        let texts = StringArray::from(vec![Some("b"), None, Some("a"), Some("c"), Some("c"), Some("")]);
        let rows = vec![("c".to_owned(), 2), (String::new(), 1), ("a".to_owned(), 1)];
        assert_eq!(counts(texts, 3, None, None), ValueCounts::Texts(rows, 4));
        let bytes = BinaryArray::from(vec![&b"\xff"[..], b"a", b"\xff"]);
        assert_eq!(counts(bytes, 1, None, None), ValueCounts::Bytes(vec![(vec![0xff], 2)], 2));
    }

    #[test]
    fn each_part_of_a_text_counts() {
        let keys = StringArray::from(vec![Some("k1 k2"), Some("k2  k3"), None, Some("k2")]);
        let rows = vec![("k2".to_owned(), 3), ("k1".to_owned(), 1)];
        assert_eq!(counts(keys, 2, Some(' '), None), ValueCounts::Texts(rows, 3));
    }

    #[test]
    fn times_stand_for_the_start_of_their_hour() {
        let times = TimestampMillisecondArray::from(vec![Some(3_600_000), Some(7_199_999), Some(-1), None]);
        let rows = vec![(3_600_000, 2), (-3_600_000, 1)];
        assert_eq!(counts(times, 9, None, Some(3_600_000)), ValueCounts::Numbers(rows, 2));
        assert_eq!(counts(Int32Array::from(vec![5, 5]), 9, None, None), ValueCounts::Numbers(vec![(5, 2)], 1));
        let flags = Arc::new(BooleanArray::from(vec![true])) as ArrayRef;
        assert!(value_counts(&flags, 1, None, None).unwrap_err().to_string().contains("found Boolean"));
    }
}
