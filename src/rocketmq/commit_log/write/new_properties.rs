//! The properties of a message that is put.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::hash_index::carry_utf8;

/// Bytes of the longest text of properties: its length is a signed 16-bit number.
pub(super) const LONGEST: usize = i16::MAX.unsigned_abs() as usize;

/// From this many entries on, names are looked up in a table.
const MANY: usize = 64;

const NAME_END: char = '\u{1}';
const VALUE_END: char = '\u{2}';

/// Returns the entries of a text of properties that have a name and a value.
pub fn property_entries(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let entries = text.split(VALUE_END).filter_map(|entry| entry.split_once(NAME_END));
    entries.filter(|(name, value)| !name.is_empty() && !value.is_empty())
}

/// Names and values in the order in which they are written. Reused for each message.
#[derive(Debug, Default)]
pub(super) struct NewProperties<'a> {
    entries: Vec<(&'a str, Cow<'a, str>)>,
}

impl<'a> NewProperties<'a> {
    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// The last value of a name, as the broker reads it: an empty value counts as missing.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.entries.iter().rev().find(|(n, v)| *n == name && !v.is_empty()).map(|(_, value)| &**value)
    }

    /// Adds an entry at the end.
    pub(super) fn push(&mut self, name: &'a str, value: &'a str) {
        self.entries.push((name, value.into()));
    }

    /// Adds entries at the end.
    pub(super) fn extend(&mut self, entries: impl IntoIterator<Item = (&'a str, &'a str)>) {
        self.entries.extend(entries.into_iter().map(|(name, value)| (name, value.into())));
    }

    /// Sets a name to a value in its place, or at the end, as a Java map does.
    pub(super) fn set(&mut self, name: &'a str, value: impl Into<Cow<'a, str>>) {
        let value = value.into();
        match self.entries.iter_mut().find(|(n, _)| *n == name) {
            Some(entry) => entry.1 = value,
            None => self.entries.push((name, value)),
        }
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Sorts the entries as [`Self::order_as_java`], but for the first ones.
    pub(super) fn order_as_java_from(&mut self, first: usize) {
        let rest = self.entries.split_off(first.min(self.entries.len()));
        let mut rest = Self { entries: rest };
        rest.order_as_java();
        self.entries.append(&mut rest.entries);
    }

    /// Sorts the entries into the order of Java's `HashMap`, each name once with its last value.
    ///
    /// If the broker changes the properties of a message, it writes them again from such a map (upstream
    /// `MessageDecoder#messageProperties2String`): buckets by `h ^ (h >>> 16)`, in a table of 16 that doubles when it is
    /// three quarters full.
    pub(super) fn order_as_java(&mut self) {
        let count = self.entries.len();
        let given = std::mem::replace(&mut self.entries, Vec::with_capacity(count));
        let given = given.into_iter().filter(|(_, value)| !value.is_empty());
        if count < MANY {
            given.for_each(|(name, value)| self.set(name, value));
        } else {
            // A producer chooses how many there are, before their text is found too long.
            let mut places = HashMap::new();
            for (name, value) in given {
                let place = *places.entry(name).or_insert(self.entries.len());
                match self.entries.get_mut(place) {
                    Some(entry) => entry.1 = value,
                    None => self.entries.push((name, value)),
                }
            }
        }
        let mut buckets = 16u32;
        while self.entries.len() * 4 > buckets as usize * 3 {
            buckets *= 2;
        }
        self.entries.sort_by_key(|(name, _)| {
            let hash = carry_utf8(0, name.as_bytes()).cast_unsigned();
            (hash ^ hash >> 16) & (buckets - 1)
        });
    }

    /// Writes the properties into `text`, as releases 4.9.1 to 5.1.4 do and every release reads them: without a separator at the
    /// end.
    ///
    /// # Errors
    /// `InvalidArgument` if the text is too long or could not be read back: an empty name, or separators inside.
    pub(super) fn write(&self, text: &mut String) -> Result<()> {
        text.clear();
        for (name, value) in &self.entries {
            if !text.is_empty() {
                text.push(VALUE_END);
            }
            text.push_str(name);
            text.push(NAME_END);
            text.push_str(value);
        }
        if text.len() > LONGEST {
            let text = format!("properties of {} bytes: at most {LONGEST} fit a frame", text.len());
            return Err(Error::InvalidArgument(text));
        }
        // Two counts over the whole text clear nearly every message. A value may contain NAME_END.
        let count = |separator| memchr::memchr_iter(separator as u8, text.as_bytes()).count();
        let entries = self.entries.len();
        if count(NAME_END) != entries || count(VALUE_END) + 1 != entries.max(1) || self.has_empty_name() {
            self.entries.iter().try_for_each(|(name, value)| check(name, value))?;
        }
        Ok(())
    }

    fn has_empty_name(&self) -> bool {
        self.entries.iter().any(|(name, _)| name.is_empty())
    }
}

fn check(name: &str, value: &str) -> Result<()> {
    if name.is_empty() || name.contains([NAME_END, VALUE_END]) || value.contains(VALUE_END) {
        let what = "a name, and neither \\u0001 nor \\u0002 in it, nor \\u0002 in the value";
        return Err(Error::InvalidArgument(format!("property {name:?} = {value:?}: expected {what}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::NewProperties;

    fn text(entries: &[(&str, &str)], java: bool) -> String {
        let mut properties = NewProperties::default();
        for (name, value) in entries {
            properties.push(name, value);
        }
        if java {
            properties.order_as_java();
        }
        let mut text = String::new();
        properties.write(&mut text).unwrap();
        text.replace('\u{1}', "^").replace('\u{2}', "|")
    }

    #[test]
    fn the_order_is_that_of_a_java_map() {
        let parked = [("DELAY", "1"), ("TAGS", "Tag"), ("REAL_QID", "7"), ("REAL_TOPIC", "TD")];
        assert_eq!(text(&parked, true), "REAL_TOPIC^TD|DELAY^1|TAGS^Tag|REAL_QID^7");
        assert_eq!(text(&parked, false), "DELAY^1|TAGS^Tag|REAL_QID^7|REAL_TOPIC^TD");
        let single = [("TAGS", "x"), ("KEYS", "k1 k2"), ("UNIQ_KEY", "id"), ("TAGS", "TagA")];
        assert_eq!(text(&single, true), "KEYS^k1 k2|UNIQ_KEY^id|TAGS^TagA");
    }

    #[test]
    fn a_table_of_more_than_twelve_doubles() {
        let names: Vec<String> = (0..13).map(|i| format!("{}", char::from(b'a' + i))).collect();
        let entries: Vec<_> = names.iter().rev().map(|name| (name.as_str(), "1")).collect();
        // 'a' is 97: bucket 1 of 16 and of 32; 'p' would be bucket 0 of 16. In a table of 32 all of a to m keep their order.
        assert_eq!(text(&entries, true), names.iter().map(|n| format!("{n}^1")).collect::<Vec<_>>().join("|"));
    }

    #[test]
    fn many_entries_are_ordered_as_few() {
        let names: Vec<String> = (0..300_000).map(|number| format!("n{number}")).collect();
        let mut entries: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
        entries.extend([("n7", "2"), ("n8", "")]);
        let mut properties = NewProperties::default();
        properties.extend(entries.iter().copied());
        properties.order_as_java();
        assert_eq!((properties.len(), properties.get("n7"), properties.get("n8")), (300_000, Some("2"), Some("1")));
        let (few, many) = (entries.get(..40).unwrap(), [entries.get(..40).unwrap(), &[("n5", "1"); 40]].concat());
        assert_eq!(text(&many, true), text(few, true));
    }

    #[test]
    fn properties_that_cannot_be_read_back_are_refused() {
        let refused = |name: &str, value: &str| {
            let mut properties = NewProperties::default();
            properties.push("first", "x");
            properties.push(name, value);
            properties.push("last", "y");
            properties.write(&mut String::new()).is_err()
        };
        assert!(refused("", "v"));
        assert!(refused("a\u{1}b", "v"));
        assert!(refused("a\u{2}b", "v"));
        assert!(refused("a", "v\u{2}w"));
        assert!(refused("a", "\u{2}b\u{1}w"));
        assert!(!refused("a", "v\u{1}w"));
        assert!(!refused("a", ""));
        let long = "x".repeat(32_768);
        let mut properties = NewProperties::default();
        let mut text = String::new();
        properties.write(&mut text).unwrap();
        assert_eq!(text, "");
        for (len, fits) in [(32_765, true), (32_766, false)] {
            properties.clear();
            properties.push("b", long.get(..len).unwrap());
            assert_eq!(properties.write(&mut text).is_ok(), fits);
        }
    }
}
