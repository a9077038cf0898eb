//! The header of a command as JSON, read in one pass. Texts without escapes are not copied.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde_core::Deserialize;
use serde_core::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde_core::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Names and texts.
pub(super) type Fields<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// The members of a header.
#[derive(Debug, Default)]
pub(super) struct JsonHeader<'a> {
    pub(super) code: i32,
    pub(super) version: i32,
    pub(super) opaque: i32,
    pub(super) flag: i32,
    pub(super) language: Option<Cow<'a, str>>,
    pub(super) remark: Option<Cow<'a, str>>,
    pub(super) ext: Fields<'a>,
}

impl<'a> JsonHeader<'a> {
    /// Reads a header. A member that comes twice counts as it comes last.
    ///
    /// # Errors
    /// The fault in it.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }
}

impl<'de> Deserialize<'de> for JsonHeader<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = JsonHeader<'de>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut header = JsonHeader::default();
        while let Some(Text(name)) = members.next_key()? {
            match name.as_deref().unwrap_or_default() {
                "code" => header.code = integer(&mut members, "code")?,
                "version" => header.version = integer(&mut members, "version")?,
                "opaque" => header.opaque = integer(&mut members, "opaque")?,
                "flag" => header.flag = integer(&mut members, "flag")?,
                "language" => header.language = members.next_value::<Text<'de>>()?.0,
                "remark" => header.remark = members.next_value::<Text<'de>>()?.0,
                "extFields" => header.ext = members.next_value::<ExtFields<'de>>()?.0,
                _ => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(header)
    }
}

fn integer<'de, A: MapAccess<'de>>(members: &mut A, name: &str) -> Result<i32, A::Error> {
    let value: Value = members.next_value()?;
    let integer = value.as_i64().and_then(|value| i32::try_from(value).ok());
    integer.ok_or_else(|| A::Error::custom(format!("{name}: expected a 32-bit integer, found {value:.40}")))
}

/// The fields of a command. A field that is null is none.
struct ExtFields<'a>(Fields<'a>);

impl<'de> Deserialize<'de> for ExtFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ExtFieldsVisitor)
    }
}

struct ExtFieldsVisitor;

impl<'de> Visitor<'de> for ExtFieldsVisitor {
    type Value = ExtFields<'de>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object for extFields")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(ExtFields(Vec::new()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        // A send has thirteen.
        let mut fields: Fields<'de> = Vec::with_capacity(16);
        // Names that are null, each with the number of fields before it: of these none has the name any more.
        let mut nulls: HashMap<Cow<'de, str>, usize> = HashMap::new();
        while let Some((Text(name), Text(value))) = members.next_entry()? {
            let name = name.unwrap_or_default();
            match value {
                Some(value) => fields.push((name, value)),
                None => _ = nulls.insert(name, fields.len()),
            }
        }
        if !nulls.is_empty() {
            let mut numbers = 0..;
            fields.retain(|(name, _)| nulls.get(name) <= numbers.next().as_ref());
        }
        Ok(ExtFields(fields))
    }
}

/// A text. Another value is its JSON, and null is `None`.
struct Text<'a>(Option<Cow<'a, str>>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a value")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Text(Some(Cow::Borrowed(text))))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text(Some(Cow::Owned(text.to_owned()))))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Text(None))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(json(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(json(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(json(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(json(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        Value::deserialize(SeqAccessDeserializer::new(items)).map(json)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
        Value::deserialize(MapAccessDeserializer::new(members)).map(json)
    }
}

fn json<'a>(value: impl Into<Value>) -> Text<'a> {
    Text(Some(Cow::Owned(value.into().to_string())))
}

#[cfg(test)]
mod tests {
    use super::JsonHeader;

    #[test]
    fn a_field_counts_as_it_comes_last() {
        let header = br#"{"extFields":{"a":"1","b":"2","a":null,"c":null,"b":null,"b":"3","d":7},"code":1}"#;
        let JsonHeader { ext, code, .. } = JsonHeader::parse(header).unwrap();
        let ext: Vec<(&str, &str)> = ext.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!((ext, code), (vec![("b", "3"), ("d", "7")], 1));
    }

    #[test]
    fn many_nulls_take_no_time() {
        let count = 300_000;
        let fields: Vec<String> = (0..count).map(|number| format!("\"{number:06}\":\"\"")).collect();
        let nulls = vec!["\"00000x\":null"; count].join(",");
        let header = format!("{{\"extFields\":{{{},{nulls}}}}}", fields.join(","));
        assert_eq!(JsonHeader::parse(header.as_bytes()).unwrap().ext.len(), count);
    }
}
