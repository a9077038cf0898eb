//! `MessagePack` maps as JSON objects, whose fields are those of a sample.
//!
//! | value | JSON |
//! |---|---|
//! | bin | text in base64, and so is a str that is not UTF-8 |
//! | NaN, infinity | `"NaN"`, `"inf"`, `"-inf"`, which are numbers in a column of numbers |
//! | timestamp (ext -1) | text in RFC 3339 |
//! | another ext | `{"ext": TYPE, "data": BASE64}` |
//! | key that is no str | its text |

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::DateTime;
use rmpv::ValueRef;
use rmpv::decode::read_value_ref_with_max_depth;
use serde_json::{Map, Number, Value, json};

/// The most values around a value.
const MOST_DEPTH: usize = 100;
/// The type of timestamps.
const TIMESTAMP: i8 = -1;

/// The value in place of a number that JSON does not have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NotFinite {
    /// As texts, which a column of numbers takes.
    Text,
    /// As a number, so that the column is one of numbers.
    Zero,
}

/// Reads one value.
pub(super) fn read(mut bytes: &[u8], not_finite: NotFinite) -> Result<Value, String> {
    let value = read_value_ref_with_max_depth(&mut bytes, MOST_DEPTH).map_err(|e| e.to_string())?;
    match bytes.len() {
        0 => Ok(json_value(&value, not_finite)),
        left => Err(format!("expected one value, found {left} bytes after it")),
    }
}

fn json_value(value: &ValueRef<'_>, not_finite: NotFinite) -> Value {
    match value {
        ValueRef::Nil => Value::Null,
        ValueRef::Boolean(flag) => (*flag).into(),
        ValueRef::Integer(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => number.into(),
            (None, number) => number.into(),
        },
        ValueRef::F32(number) => double(f64::from(*number), not_finite),
        ValueRef::F64(number) => double(*number, not_finite),
        ValueRef::String(text) => match text.as_str() {
            Some(text) => text.into(),
            None => STANDARD.encode(text.as_bytes()).into(),
        },
        ValueRef::Binary(bytes) => STANDARD.encode(bytes).into(),
        ValueRef::Array(items) => items.iter().map(|item| json_value(item, not_finite)).collect(),
        ValueRef::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| {
                let key = match json_value(key, NotFinite::Text) {
                    Value::String(key) => key,
                    other => other.to_string(),
                };
                (key, json_value(value, not_finite))
            });
            pairs.collect::<Map<_, _>>().into()
        }
        ValueRef::Ext(kind, data) => {
            timestamp(*kind, data).map_or_else(|| json!({"ext": kind, "data": STANDARD.encode(data)}), Value::String)
        }
    }
}

fn double(number: f64, not_finite: NotFinite) -> Value {
    match (Number::from_f64(number), not_finite) {
        (Some(number), _) => number.into(),
        (None, NotFinite::Text) => number.to_string().into(),
        (None, NotFinite::Zero) => 0.0.into(),
    }
}

/// Returns a timestamp of 4, 8 or 12 bytes.
fn timestamp(kind: i8, data: &[u8]) -> Option<String> {
    let (seconds, nanos) = match data.len() {
        4 => (i64::from(u32::from_be_bytes(data.try_into().ok()?)), 0),
        8 => {
            let both = u64::from_be_bytes(data.try_into().ok()?);
            (i64::try_from(both & 0x3_ffff_ffff).ok()?, u32::try_from(both >> 34).ok()?)
        }
        _ => {
            let (nanos, seconds) = data.split_first_chunk()?;
            (i64::from_be_bytes(seconds.try_into().ok()?), u32::from_be_bytes(*nanos))
        }
    };
    let time = DateTime::from_timestamp(seconds, nanos).filter(|_| kind == TIMESTAMP)?;
    Some(time.format("%Y-%m-%dT%H:%M:%S%.fZ").to_string())
}
