//! The properties of a message: `name 01 value 02 name 01 value 02`.
//!
//! Source of the rules: upstream `MessageDecoder#string2messageProperties` since 4.9.1. The last separator may be
//! missing. An entry counts only with a name and a value; a value may hold further 01 bytes. A name that comes twice has
//! the last value.

use std::collections::HashMap;

/// The space-separated keys that a producer gave.
pub const KEYS: &str = "KEYS";
/// The tags that a producer gave.
pub const TAGS: &str = "TAGS";
/// The producer's own message id.
pub const UNIQ_KEY: &str = "UNIQ_KEY";

const NAME_END: u8 = 1;
const VALUE_END: u8 = 2;

/// Up to this many entries, names are compared pair by pair.
const FEW: usize = 32;

/// The entries that count, each name once, in the order in which the names come first.
pub fn parse(text: &str) -> Vec<(&str, &str)> {
    let mut entries = Vec::with_capacity(16);
    let mut many: Option<HashMap<&str, usize>> = None;
    for (name, value) in split(text) {
        let known = match &mut many {
            Some(places) => {
                let place = *places.entry(name).or_insert(entries.len());
                (place < entries.len()).then_some(place)
            }
            None => entries.iter().position(|(other, _)| *other == name),
        };
        match known.and_then(|place| entries.get_mut(place)) {
            Some(entry) => entry.1 = value,
            None => entries.push((name, value)),
        }
        if many.is_none() && entries.len() > FEW {
            many = Some(entries.iter().enumerate().map(|(place, (name, _))| (*name, place)).collect());
        }
    }
    entries
}

/// The entries with a name and a value, in one pass over the bytes.
fn split(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut bytes = text.bytes().enumerate();
    let (mut begin, mut done) = (0, false);
    std::iter::from_fn(move || {
        while !done {
            let mut name_end = None;
            let end = loop {
                match bytes.next() {
                    Some((at, NAME_END)) if name_end.is_none() => name_end = Some(at),
                    Some((at, VALUE_END)) => break at,
                    Some(_) => {}
                    None => {
                        done = true;
                        break text.len();
                    }
                }
            };
            let entry = name_end.and_then(|at| Some((text.get(begin..at)?, text.get(at + 1..end)?)));
            begin = end + 1;
            if let Some((name, value)) = entry
                && !name.is_empty()
                && !value.is_empty()
            {
                return Some((name, value));
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn of(text: &str) -> Vec<(String, String)> {
        let text = text.replace('^', "\u{1}").replace('|', "\u{2}");
        parse(&text).into_iter().map(|(n, v)| (n.replace('\u{1}', "^"), v.replace('\u{1}', "^"))).collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn entries_without_name_or_value_are_dropped() {
        assert_eq!(of("A^"), pairs(&[]));
        assert_eq!(of("^1"), pairs(&[]));
        assert_eq!(of(""), pairs(&[]));
        assert_eq!(of("|||"), pairs(&[]));
        assert_eq!(of("A"), pairs(&[]));
        assert_eq!(of("A^|B^2"), pairs(&[("B", "2")]));
    }

    #[test]
    fn only_the_first_separator_splits() {
        assert_eq!(of("A^b^c|D^e|"), pairs(&[("A", "b^c"), ("D", "e")]));
        assert_eq!(of("A^^"), pairs(&[("A", "^")]));
    }

    #[test]
    fn both_tails_and_doubled_separators_are_read() {
        assert_eq!(of("A^1||B^2"), pairs(&[("A", "1"), ("B", "2")]));
        assert_eq!(of("A^1|B^2|"), pairs(&[("A", "1"), ("B", "2")]));
    }

    #[test]
    fn last_value_of_a_name_wins() {
        assert_eq!(of("A^1|B^2|A^3"), pairs(&[("A", "3"), ("B", "2")]));
        let many: Vec<String> = (0..100).map(|i| format!("k{}^{i}|", i % 50)).collect();
        let read = of(&many.concat());
        assert_eq!(read.len(), 50);
        assert_eq!(read.first().map(|(n, v)| (n.as_str(), v.as_str())), Some(("k0", "50")));
        assert_eq!(read.last().map(|(n, v)| (n.as_str(), v.as_str())), Some(("k49", "99")));
    }
}
