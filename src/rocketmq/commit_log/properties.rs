//! The properties of a message: `name 01 value 02 name 01 value 02`.
//!
//! Source of the rules: upstream `MessageDecoder#string2messageProperties` since 4.9.1. The last separator may be
//! missing. An entry counts only with a name and a value; a value may hold further 01 bytes. A name that comes twice has
//! the last value.

use std::collections::HashMap;
use std::ops::Range;

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

/// Where an entry's name and value stand in the text.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    name: Range<usize>,
    value: Range<usize>,
}

impl Entry {
    pub(super) fn name<'a>(&self, text: &'a str) -> &'a str {
        text.get(self.name.clone()).unwrap_or_default()
    }

    pub(super) fn value<'a>(&self, text: &'a str) -> &'a str {
        text.get(self.value.clone()).unwrap_or_default()
    }
}

/// The entries that count, each name once, in the order in which the names come first.
pub fn parse(text: &str) -> Vec<(&str, &str)> {
    let mut entries = Vec::with_capacity(16);
    split(text, &mut entries);
    entries.into_iter().map(|entry| (entry.name(text), entry.value(text))).collect()
}

/// Adds the entries that count to `entries`, each name once, in the order in which the names come first.
pub(super) fn split(text: &str, entries: &mut Vec<Entry>) {
    let mut names = Names { text, first: entries.len(), seen: 0, many: HashMap::new() };
    let (mut begin, mut name_end) = (0, None);
    separators(text.as_bytes(), |at, byte| {
        if byte == VALUE_END {
            names.add(begin, name_end.take(), at, entries);
            begin = at + 1;
        } else if name_end.is_none() {
            name_end = Some(at);
        }
    });
    names.add(begin, name_end, text.len(), entries);
}

/// Calls `found` with the place of every byte 1 and 2, in order. Eight bytes are looked at in one go.
#[inline]
fn separators(bytes: &[u8], mut found: impl FnMut(usize, u8)) {
    const LOW: u64 = 0x0101_0101_0101_0101;
    let (words, rest) = bytes.as_chunks::<8>();
    let mut begin = 0;
    for word in words {
        let value = u64::from_le_bytes(*word);
        // The high bit of every byte below 3; of the byte after such a one perhaps, too.
        let mut hits = value.wrapping_sub(3 * LOW) & !value & (LOW << 7);
        while hits != 0 {
            let shift = hits.trailing_zeros() & !7;
            let byte = (value >> shift).to_le_bytes()[0];
            if byte == NAME_END || byte == VALUE_END {
                found(begin + shift as usize / 8, byte);
            }
            hits &= hits - 1;
        }
        begin += 8;
    }
    for (at, &byte) in rest.iter().enumerate() {
        if byte == NAME_END || byte == VALUE_END {
            found(begin + at, byte);
        }
    }
}

/// The names of one text that came before.
struct Names<'a> {
    text: &'a str,
    /// Number of the text's first entry.
    first: usize,
    /// One bit for every kind of name, told by its length and first byte.
    seen: u64,
    /// The numbers of the entries by name, once there are many.
    many: HashMap<&'a str, usize>,
}

impl<'a> Names<'a> {
    fn add(&mut self, begin: usize, name_end: Option<usize>, end: usize, entries: &mut Vec<Entry>) {
        let Some(name_end) = name_end.filter(|at| *at > begin && at + 1 < end) else {
            return;
        };
        let entry = Entry { name: begin..name_end, value: name_end + 1..end };
        let name = entry.name(self.text);
        match self.place(name, entries) {
            Some(known) => known.value = entry.value,
            None => entries.push(entry),
        }
    }

    /// The entry of the same name; remembers the name where there is none.
    fn place<'b>(&mut self, name: &'a str, entries: &'b mut [Entry]) -> Option<&'b mut Entry> {
        let count = entries.len() - self.first;
        if count < FEW {
            let kind = name.len().wrapping_mul(5) ^ usize::from(name.bytes().next().unwrap_or_default());
            let bit = 1 << (kind % 64);
            if self.seen & bit == 0 {
                self.seen |= bit;
                return None;
            }
            let text = self.text;
            return entries.get_mut(self.first..)?.iter_mut().find(|entry| entry.name(text) == name);
        }
        if self.many.is_empty() {
            let text = self.text;
            let known = entries.get(self.first..)?;
            self.many = known.iter().enumerate().map(|(place, entry)| (entry.name(text), place)).collect();
        }
        let place = *self.many.entry(name).or_insert(count);
        entries.get_mut(self.first + place)
    }
}

#[cfg(test)]
mod tests {
    use super::{VALUE_END, parse, separators};

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

    #[test]
    fn separators_are_found_at_every_place_and_nothing_else_is() {
        for bytes in [[0u8, 1, 2, 3], [1, 3, 2, 3], [2, 2, 1, 1], [0x81, 0x82, 0, 3], [3, 3, 3, 1], [2, 0, 0, 3]] {
            for before in 0..9 {
                for after in 0..9 {
                    let text = [vec![b'x'; before], bytes.to_vec(), vec![b'x'; after]].concat();
                    let wanted: Vec<_> =
                        text.iter().copied().enumerate().filter(|(_, b)| (1..=VALUE_END).contains(b)).collect();
                    let mut found = Vec::new();
                    separators(&text, |at, byte| found.push((at, byte)));
                    assert_eq!(found, wanted, "{text:?}");
                }
            }
        }
    }
}
